"""What an evaluation of f costs compared with a step of L-BFGS, and what follows from it."""

from __future__ import annotations

CHEAP_PAIRS, DEAR_PAIRS = 4, 30  # tests/test_cost.py
# What a step costs beside f, roughly: microseconds, and nanoseconds for each entry of a point.
STEP_MICROSECONDS, ENTRY_NANOSECONDS = 120.0, 15.0
DEAR = 10.0  # times that


def cost_of(seconds: float, entries: int) -> str:
    """Of an evaluation of so many seconds, at so many entries."""
    step = 1e-6 * STEP_MICROSECONDS + 1e-9 * ENTRY_NANOSECONDS * entries
    return "cheap" if seconds < step else "dear" if seconds > DEAR * step else "usual"


def pairs_by_cost(cost: str, memory: int) -> int:
    """``memory``, unless evaluations are cheap or dear."""
    if cost == "cheap":
        return min(memory, CHEAP_PAIRS)
    return max(memory, DEAR_PAIRS) if cost == "dear" else memory
