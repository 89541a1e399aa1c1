"""Where L-BFGS aims, for one NumPy matrix: direction, slope and curve in one compiled call.

It is what `memory.apply_inverse`, `raise_index` and `ray_along` do one after the other; for small
matrices the calls between them take longer than they do.
"""

from __future__ import annotations

import numpy as np

from stiefel.geometry import compiled
from stiefel.geometry.compiled import FastTangentRay, empty_frame, faster, rows
from stiefel.geometry.stiefel import Stiefel
from stiefel.types import Cotangent, Curve, Manifold, Metric, Point, Tangent

from .memory import Pairs


def matrix_aim(
    geometry: Manifold, pairs: Pairs, X: Point, G: Cotangent, gamma: float, metric: Metric
) -> tuple[Tangent, float, Curve] | None:
    """T = −H G, ⟨G, T⟩ and the ray along T; None where there is no such kernel."""
    if not isinstance(geometry, Stiefel) or type(geometry).ray_along is not Stiefel.ray_along:
        return None
    k = geometry.kernels_at(X)
    if X.shape[-1] < 2 or pairs.S is None or faster(k, X, G) is not compiled:
        return None
    T, frame = np.empty(X.shape, X.dtype), empty_frame(X)
    D = None if metric.D is None else rows(metric.D)
    omega, theta = 0.0 if metric.horizontal else metric.omega, geometry.rotation_left_out(metric)
    known = *pairs[:4], gamma, rows(G), X, D, omega, theta
    slope, *small = k.compiled.matrix_aim(*known, T, *frame)
    ray = FastTangentRay.prepared(k, X, T, frame, small)
    return T, slope, geometry.ray_along(X, T, metric) if ray.lossy else ray
