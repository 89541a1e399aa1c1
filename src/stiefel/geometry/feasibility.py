"""The promise that every returned point keeps: ‖XᴴX − I‖ ≤ 10 eps √k."""

from __future__ import annotations

from stiefel.types import Array, Manifold


def is_feasible(geometry: Manifold, x: Array) -> bool:
    """Whether every matrix of x keeps the promise ‖XᴴX − I‖ ≤ 10 eps √k of its own precision."""
    factors = getattr(geometry, "factors", None)
    if factors is None:
        return bool(geometry.defect(x) <= geometry.allowed_defect(x))
    return all(map(is_feasible, factors, x))


def feasible(geometry: Manifold, x: Array) -> Array:
    """x, brought back where it must be: cheaply, or by the polar factor."""
    factors = getattr(geometry, "factors", None)
    if factors is not None:
        return tuple(map(feasible, factors, x))
    if is_feasible(geometry, x):
        return x
    restored = geometry.restore(x)
    return restored if is_feasible(geometry, restored) else geometry.restore(geometry.nearest(x))
