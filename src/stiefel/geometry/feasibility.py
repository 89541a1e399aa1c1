"""The promise that every returned point keeps: ‖XᴴX − I‖ ≤ 10 eps √k."""

from __future__ import annotations

from operator import is_

from stiefel.types import Array, Manifold


def examined(geometry: Manifold, x: Array) -> tuple[bool, float]:
    """Whether every matrix of x keeps the promise of its own precision, and the largest defect."""
    factors = getattr(geometry, "factors", None)
    if factors is not None:
        kept, defects = zip(*map(examined, factors, x), strict=True)
        return all(kept), max(defects)
    defect = geometry.defect(x)
    return bool(defect <= geometry.allowed_defect(x)), defect


def is_feasible(geometry: Manifold, x: Array) -> bool:
    """Whether every matrix of x keeps the promise ‖XᴴX − I‖ ≤ 10 eps √k of its own precision."""
    return examined(geometry, x)[0]


def feasible(geometry: Manifold, x: Array) -> Array:
    """x, brought back where it must be: cheaply, or by the polar factor; x itself if nowhere."""
    factors = getattr(geometry, "factors", None)
    if factors is not None:
        leaves = tuple(map(feasible, factors, x))
        return x if all(map(is_, leaves, x)) else leaves
    if is_feasible(geometry, x):
        return x
    restored = geometry.restore(x)
    return restored if is_feasible(geometry, restored) else geometry.restore(geometry.nearest(x))
