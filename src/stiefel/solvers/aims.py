"""Where L-BFGS goes next, in one compiled call: direction, slope and curve.

What `remember` and `apply_inverse` of `memory`, `raise_index` and `ray_along` do one after another:
for small points the calls between them take longer than they do.  For one NumPy matrix, for a small
tree, and for small rotations; elsewhere these functions return None, and the others serve.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stiefel.backends.base import Kernels
from stiefel.geometry import compiled
from stiefel.geometry.cayley import Frame
from stiefel.geometry.compiled import FastTangentRay, empty_frame, faster, kernels_of_turns
from stiefel.geometry.compiled import rows as in_rows
from stiefel.geometry.framed import CompiledFramedRay, Framed, Split
from stiefel.geometry.product import Product, ProductRay
from stiefel.geometry.ray import Curvature, Secant
from stiefel.geometry.stiefel import Stiefel
from stiefel.geometry.turns import CompiledRotationRay, FramedRotations
from stiefel.geometry.wide import (
    CompiledWideRay,
    WideCurvature,
    WideFrame,
    WideRay,
    empty_wide_frame,
)
from stiefel.types import (
    Array,
    Cotangent,
    Curve,
    Gradient,
    Leaves,
    Manifold,
    Metric,
    NumpyArray,
    Point,
    Tangent,
)

from .leaf_kinds import MATRIX, SPAN, leaf_kinds
from .memory import Pairs, place_for, with_row
from .problem import array_kernels

# Of a matrix with many columns, whose rays by `wide` take less work: 0.5 of that of `cayley` at
# 150×60, 0.7 at 100×12, 0.85 at 60×5 and 1000×60, 1.03 at 4000×60.  `test_wide.py`.
FEWEST_COLUMNS, ROWS_A_COLUMN = 5, 16


def slope_and_curve(
    geometry: Manifold,
    x: Point,
    at: Gradient,
    T: Tangent,
    metric: Any,
    pairs: Pairs,
    modelled: bool = False,
) -> tuple[float, Curve]:
    """⟨∇f, T⟩ and the curve along T, which writes plain pairs where they are kept.

    Directions that are ``modelled`` have rays of `cayley`, as row models make them.
    """
    if pairs.changes is not None and hasattr(geometry, "aim_along"):
        return geometry.aim_along(x, at.G, T, place_for(pairs))  # type: ignore[no-any-return]
    wide = None if modelled else kernels_of_wide_rays(geometry, x)
    if wide is not None:
        kind = WideRay if wide.compiled is None else CompiledWideRay
        ray = kind(wide, x, T, geometry.rotation_left_out(metric))  # type: ignore[attr-defined]
        if not ray.lossy:
            return geometry.dot(at.G, T), ray
    return geometry.dot(at.G, T), geometry.ray_along(x, T, metric)


def matrix_aim(
    geometry: Manifold,
    pairs: Pairs,
    X: Point,
    G: Cotangent,
    gamma: float,
    metric: Metric,
    longest: float = math.inf,
) -> tuple[Tangent, float, Curve] | None:
    """T = −H G, ⟨G, T⟩ and the ray along T.

    Small rotations that are apart move by ``longest`` at most.
    """
    if isinstance(geometry, FramedRotations):
        return _turns_aim(geometry, pairs, X, G, gamma, longest)
    if isinstance(geometry, Product):
        return _tree_aim(geometry, pairs, X, G, gamma, metric)
    k = kernels_of_rays(geometry, X, G)
    if k is None or pairs.S is None:
        return None
    known, room = _archer(geometry, pairs, X, G, metric)
    aim = k.compiled.wide_aim if isinstance(room[1], WideFrame) else k.compiled.matrix_aim
    slope, *small = aim(*known, gamma)
    return _aimed_along(geometry, k, X, metric, room, slope, small)


def matrix_arrival(
    geometry: Manifold,
    pairs: Pairs,
    pair: Secant,
    sy: float,
    least: float,
    needed: tuple[int, ...],
    gamma: float,
    X: Point,
    G: Cotangent,
    metric: Metric,
) -> tuple[Pairs, float, tuple[Tangent, float, Curve]] | None:
    """`remember` of a pair, γ averaged with the old one, and `matrix_aim`, in one call.

    None where there is no such kernel, no blocks, or no ⟨s, y⟩ above ``least`` ‖y‖.
    """
    seen = pair.curvature
    if type(seen) is Split and isinstance(geometry, Framed) and pairs.S is not None:
        if X.ndim > 2 or G.ndim != X.ndim or not sy > least * math.sqrt(seen.squared_change(1.0)):
            return None
        return _framed_arrival(geometry, pairs, pair, sy, needed, gamma, X, G, metric)
    tells = type(seen) in (Curvature, WideCurvature) and pairs.S is not None
    k = kernels_of_rays(geometry, X, G) if tells else None
    if k is None or seen.square is None or not sy > least * math.sqrt(seen.square):
        return None
    row, gone, kept = with_row(pairs, needed)
    known, room = _archer(geometry, kept, X, G, metric)
    new = (
        row,
        gone,
        in_rows(pair.s),
        in_rows(pair.y),
        sy,
        in_rows(pair.curvature.B),
        pair.curvature.yy,
    )
    wide = isinstance(room[1], WideFrame)
    arrive = k.compiled.wide_arrival if wide else k.compiled.matrix_arrival
    gamma, slope, *small = arrive(*known, gamma, *new)
    return kept, gamma, _aimed_along(geometry, k, X, metric, room, slope, small)


def _framed_arrival(
    geometry: Framed,
    pairs: Pairs,
    pair: Secant,
    sy: float,
    needed: tuple[int, ...],
    gamma: float,
    Q: Array,
    G: Cotangent,
    metric: Metric,
) -> tuple[Pairs, float, tuple[Tangent, float, Curve]] | None:
    """`matrix_arrival` in a frame."""
    k = geometry.kernels
    if faster(k, Q, G) is not compiled:
        return None
    row, gone, kept = with_row(pairs, needed)
    (T, U), size = np.empty((2, *G.shape), G.dtype), G.shape[1]
    E, omega = np.empty((size, size), G.dtype), 0.0 if metric.horizontal else metric.omega
    new = row, gone, pair.s, pair.y, sy, pair.curvature.squared_change(omega)
    room = in_rows(G), Q, omega, T, U, E
    gamma, slope, *seen = k.compiled.framed_arrival(*kept[:4], *room, gamma, *new)
    return kept, gamma, (T, slope, CompiledFramedRay.along(k, Q, U, E, *seen))


def _archer(
    geometry: Manifold, pairs: Pairs, X: Array, G: Cotangent, metric: Metric
) -> tuple[tuple[Any, ...], tuple[Tangent, Frame | WideFrame]]:
    """What both kernels begin with, and the room for direction and frame that is in it."""
    room_for_frame = empty_wide_frame if kernels_of_wide_rays(geometry, X) else empty_frame
    room = T, frame = np.empty(X.shape, X.dtype), room_for_frame(X)
    D = None if metric.D is None else in_rows(metric.D)
    omega = 0.0 if metric.horizontal else metric.omega
    theta = geometry.rotation_left_out(metric)  # type: ignore[attr-defined]
    return (*pairs[:4], in_rows(G), X, D, omega, theta, T, *frame), room


def _aimed_along(
    geometry: Manifold,
    k: Kernels,
    X: Array,
    metric: Metric,
    room: tuple[Tangent, Frame | WideFrame],
    slope: float,
    small: Any,
) -> tuple[Tangent, float, Curve]:
    T, frame = room
    ray: CompiledWideRay | FastTangentRay
    if isinstance(frame, WideFrame):
        theta = geometry.rotation_left_out(metric)  # type: ignore[attr-defined]
        ray = CompiledWideRay.prepared(k, X, T, theta, frame, small)
    else:
        ray = FastTangentRay.prepared(k, X, T, frame, small)
    return T, slope, geometry.ray_along(X, T, metric) if ray.lossy else ray


def kernels_of_rays(geometry: Manifold, X: Point, G: Cotangent) -> Any:
    """The kernels of a matrix whose rays the compiled ones prepare; None for other points."""
    if not isinstance(geometry, Stiefel) or type(geometry).ray_along is not Stiefel.ray_along:
        return None
    k = geometry.kernels_at(X)
    single = X.ndim == 2 and X.shape[-1] > 1
    return k if single and faster(k, X, G) is compiled else None


def is_wide(X: Array) -> bool:
    """Whether rays from X are better made in `wide` than in `cayley`: it has many columns."""
    n, k = X.shape
    return FEWEST_COLUMNS <= k < n <= ROWS_A_COLUMN * k


def kernels_of_wide_rays(geometry: Manifold, X: Point) -> Any:
    """The kernels of a matrix with many columns, whose rays `wide` makes; None for others."""
    if not isinstance(geometry, Stiefel) or type(geometry).ray_along is not Stiefel.ray_along:
        return None
    k = geometry.kernels_at(X)
    if not k.pure_numpy:
        return None
    doubles = X.ndim == 2 and is_wide(X) and X.dtype.char in "dD"
    return k if doubles and (k.compiled is None or faster(k, X) is compiled) else None


def _turns_aim(
    geometry: FramedRotations, pairs: Pairs, X: Array, G: Array, gamma: float, longest: float
) -> tuple[Tangent, float, Curve] | None:
    """`matrix_aim` of 2×2 or 3×3 rotations, together or apart."""
    k, apart, (S, Y, inverse, diagonal, rows) = geometry.kernels, pairs.apart, pairs[:5]
    if S is None or (fast := kernels_of_turns(k, X, G)) is None:
        return None
    known, T = (geometry.rows, X, G, S, Y), np.empty(G.shape)
    if apart is not None and apart.on:
        flat, used = apart.curvatures.reshape(len(diagonal), -1), np.array(rows, np.intp)
        own = flat, used, apart.gammas, gamma, longest
        slope, *seen = fast.turns_aim_apart(*known, *own, T)
    else:
        slope, *seen = fast.turns_aim(*known, inverse, diagonal, gamma, T)
    return T, slope, CompiledRotationRay(k, X, T, seen)


def _tree_aim(
    geometry: Product, pairs: Pairs, X: Leaves, G: Leaves, gamma: float, metrics: Any
) -> tuple[Tangent, float, Curve] | None:
    """`matrix_aim` of a tree whose leaves share one block."""
    kinds = leaf_kinds(geometry, X)
    if kinds is None or not isinstance(pairs.S, np.ndarray):
        return None
    fast = geometry.factors[0].kernels.compiled
    T = tuple([np.empty(g.shape, g.dtype) for g in G])
    frames = tuple([_room_for_frame(kind, x) for kind, x in zip(kinds, X, strict=True)])
    if not all(m.D is None or m.D.flags.c_contiguous for m in metrics):
        metrics = tuple([m._replace(D=m.D if m.D is None else in_rows(m.D)) for m in metrics])
    known = *pairs[:4], gamma, G, T, X, metrics, kinds, frames
    slopes, small = fast.leaves_aim(*known)
    leaves = zip(geometry.factors, X, T, metrics, frames, small, strict=True)
    return T, math.fsum(slopes), ProductRay([_ray_of_leaf(*leaf) for leaf in leaves])


def _room_for_frame(kind: int, X: Array) -> NumpyArray | None:
    two = 2 * X.shape[-1]
    return np.empty((4, two, two), X.dtype) if kind in (MATRIX, SPAN) else None


def _ray_of_leaf(
    factor: Manifold, X: Array, T: Array, metric: Metric, frame: Any, small: Any
) -> Curve:
    """The ray along T; the kernel has prepared those that have a frame."""
    if frame is not None:
        ray = FastTangentRay.prepared(array_kernels(factor, X), X, T, Frame(*frame), small)
        if not ray.lossy:
            return ray
    return factor.ray_along(X, T, metric)  # type: ignore[no-any-return]
