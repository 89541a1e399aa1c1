"""Truncated conjugate gradients on a cotangent space: Steihaug and Toint.

Minimises m(W) = ⟨G, W⟩ + ½⟨W, HW⟩ within ‖W‖ ≤ Δ, from W = 0, until the residual R = G + HW is
small, the boundary is met, or a direction of negative curvature leads there.  The predicted
decrease is summed step by step: nothing is subtracted.  With a preconditioner P the length is
measured in its inverse, as conjugate gradients do implicitly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from stiefel.types import Array, Manifold

MOST = 5  # iterations per dimension: rounding delays an end that exact arithmetic has at one


class ModelStep(NamedTuple):
    W: Array
    decrease: float  # −m(W) > 0
    squared_length: float
    on_boundary: bool


def truncated_cg(
    geometry: Manifold,
    x: Array,
    G: Array,
    hessian: Callable[[Array], Array],
    radius: float,
    tolerance: float,
    precondition: Callable[[Array], Array] | None = None,
    accuracy: float = 0.0,
) -> ModelStep:
    """The step; one Hessian product and O(nk²) an iteration.

    Products are exact to ``accuracy``, relative to the largest curvature: a negative curvature
    smaller than that is rounding, and nothing to follow to the boundary.
    """
    W = geometry.combine(0.0, G, 0.0, G)
    # Projected once more: rounding of the Euclidean gradient leaves a normal part, which would
    # dominate the last residuals and show H as it is off the tangent space: indefinite.
    R = geometry.project_direction(x, G)
    Z = precondition(R) if precondition else R
    rz = geometry.inner(x, R, Z)
    D = geometry.combine(-1.0, Z, 0.0, Z)
    ww, wd, dd = 0.0, 0.0, rz  # ‖W‖², ⟨W, D⟩, ‖D‖² in the preconditioner's inverse
    decrease = largest = 0.0
    for _ in range(MOST * geometry.dimension(x)):
        if not rz > 0:  # G was the rounding of a gradient without any part along the manifold
            break
        HD = hessian(D)
        curvature = geometry.inner(x, D, HD)
        if ww > 0 and -accuracy * largest * dd <= curvature <= 0:
            break
        largest = max(largest, curvature / dd)
        alpha = rz / curvature if curvature else math.inf
        beyond = ww + 2.0 * alpha * wd + alpha * alpha * dd
        if not curvature > 0 or not beyond < radius * radius:
            tau = _to_boundary(ww, wd, dd, radius)
            decrease += tau * rz - 0.5 * tau * tau * curvature
            return ModelStep(geometry.combine(1.0, W, tau, D), decrease, radius * radius, True)
        W = geometry.combine(1.0, W, alpha, D)
        R = geometry.combine(1.0, R, alpha, HD)
        decrease += 0.5 * alpha * rz
        ww = beyond
        if geometry.inner(x, R, R) <= tolerance * tolerance:
            break
        Z = precondition(R) if precondition else R
        rz, previous = geometry.inner(x, R, Z), rz
        beta = rz / previous
        D = geometry.combine(-1.0, Z, beta, D)
        wd = beta * (wd + alpha * dd)
        dd = rz + beta * beta * dd
    return ModelStep(W, decrease, ww, False)


def _to_boundary(ww: float, wd: float, dd: float, radius: float) -> float:
    """τ ≥ 0 with ‖W + τD‖ = Δ, without cancellation."""
    gap = max(radius * radius - ww, 0.0)
    return gap / (wd + math.sqrt(wd * wd + dd * gap)) if gap else 0.0
