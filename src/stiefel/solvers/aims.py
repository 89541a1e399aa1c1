"""Where L-BFGS goes next, in one compiled call: direction, slope and curve.

What `remember` and `apply_inverse` of `memory`, `raise_index` and `ray_along` do one after another:
for small points the calls between them take longer than they do.  For one NumPy matrix, for a small
tree or stack, and for small rotations; elsewhere these functions return None, and the others serve.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stiefel.backends.base import Kernels
from stiefel.geometry import compiled
from stiefel.geometry.cayley import Frame
from stiefel.geometry.compiled import (
    FastTangentRay,
    FirstTrial,
    LandingRay,
    faster,
    kernels_of_turns,
)
from stiefel.geometry.compiled import rows as in_rows
from stiefel.geometry.framed import Framed
from stiefel.geometry.framed_ray import CompiledFramedRay, Split, probe_of
from stiefel.geometry.grassmann import Grassmann, is_everything
from stiefel.geometry.product import Product, ProductRay
from stiefel.geometry.ray import Curvature, Secant
from stiefel.geometry.stiefel import Stiefel
from stiefel.geometry.turns import CompiledRotationRay, FramedRotations
from stiefel.geometry.wide import CompiledWideRay, WideCurvature, WideRay, empty_wide_frame
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

from .leaf_kinds import MATRIX, SPAN, leaf_kinds, stack_kind
from .memory import Pairs, place_for, with_row
from .problem import array_kernels

TELLING = Curvature, WideCurvature, Split  # what says enough about a step for an arrival
# Of a matrix with many columns, whose rays by `wide` take less work: 0.5 of that of `cayley` at
# 150×60, 0.85 at 1000×60, 1.03 at 4000×60.  But a step takes more calls: with f 0.97 at 60×20 and
# 1.07 at 100×16.  `test_matrices_with_many_columns`.
FEWEST_COLUMNS, ROWS_A_COLUMN = 20, 16


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

    Matrices that are apart move by ``longest`` at most.
    """
    if isinstance(geometry, FramedRotations):
        return _turns_aim(geometry, pairs, X, G, gamma, longest)
    if isinstance(geometry, Product):
        return _tree_aim(geometry, pairs, X, G, gamma, metric)
    if X.ndim > 2 and isinstance(geometry, Stiefel):
        return _stack_aim(geometry, pairs, X, G, gamma, metric, longest)
    k = kernels_of_rays(geometry, X, G)
    if k is None or pairs.S is None:
        return None
    if is_wide(X):
        aim = WideAim(geometry, X, metric)
        return aim.along(*k.compiled.wide_aim(*aim.known(pairs, in_rows(G)), gamma))
    room = RoomToAim(X)
    slope, *small = k.compiled.matrix_aim(
        *room.known(geometry, pairs, X, in_rows(G), metric), gamma
    )
    return room.aimed(geometry, k, X, metric, slope, small)


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
    longest: float = math.inf,
    curve: Curve | None = None,
    lesson: tuple[Any, ...] | None = None,
) -> tuple[Pairs, float, tuple[Tangent, float, Curve], Any] | None:
    """`remember` of a pair, γ averaged with the old one, `matrix_aim`, and the first trial from X.

    None where there is no such kernel, no blocks, or no ⟨s, y⟩ above ``least`` ‖y‖.  ``curve``: on
    which the step went.  With a `LearnedMetric.lesson` the step is learned from before all that,
    and what that told comes last.
    """
    seen = pair.curvature
    if pairs.S is None or type(seen) not in TELLING or seen.square is None:
        return None
    if type(seen) is Split or is_wide(X):
        other = _framed_arrival if type(seen) is Split else _wide_arrival
        known = pairs, pair, sy, least, needed, gamma, X, G, metric
        return other(geometry, *known)  # type: ignore[arg-type]
    known_kernels = type(curve) is LandingRay
    k = curve.kernels if known_kernels else kernels_of_rays(geometry, X, G)  # type: ignore[union-attr]
    if k is None or not sy > least * math.sqrt(seen.square):
        return None
    row, gone, kept = with_row(pairs, needed)
    room, Y = RoomToAim(X), np.empty(X.shape, X.dtype)
    N = np.empty_like(room.frame[0])
    known = room.known(geometry, kept, X, G, metric)
    new = row, gone, pair.s, pair.y, sy, seen.B, seen.yy
    found = k.compiled.matrix_arrival(*known, gamma, *new, longest, Y, N, lesson)
    first = FirstTrial(found[5], Y, N)
    aimed = room.aimed(geometry, k, X, metric, found[1], found[2:5], first)
    return kept, found[0], aimed, found[6]


class WideAim:
    """What the kernels of `wide` fill, and the ray of it."""

    def __init__(self, geometry: Manifold, X: Array, metric: Metric) -> None:
        self.geometry, self.X, self.metric = geometry, X, metric
        self.T, self.frame = np.empty(X.shape, X.dtype), empty_wide_frame(X)
        self.theta = geometry.rotation_left_out(metric)  # type: ignore[attr-defined]

    def known(self, pairs: Pairs, G: Cotangent) -> tuple[Any, ...]:
        """What both kernels begin with."""
        D = None if self.metric.D is None else in_rows(self.metric.D)
        omega = 0.0 if self.metric.horizontal else self.metric.omega
        return *pairs[:4], G, self.X, D, omega, self.theta, self.T, *self.frame

    def along(
        self, slope: float, *numbers: float, first: FirstTrial | None = None
    ) -> tuple[Tangent, float, Curve]:
        geometry, X, T = self.geometry, self.X, self.T
        k = array_kernels(geometry, X)
        ray = CompiledWideRay.prepared(k, X, T, self.theta, self.frame, numbers)
        ray.first = None if ray.straightened else first
        return T, slope, geometry.ray_along(X, T, self.metric) if ray.lossy else ray


def _wide_arrival(
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
) -> tuple[Pairs, float, tuple[Tangent, float, Curve], Any] | None:
    """`matrix_arrival` of a matrix with many columns, without its lesson and first trial."""
    seen, k = pair.curvature, kernels_of_rays(geometry, X, G)
    if k is None or not sy > least * math.sqrt(seen.square):
        return None
    (row, gone, kept), aim = with_row(pairs, needed), WideAim(geometry, X, metric)
    new = row, gone, in_rows(pair.s), in_rows(pair.y), sy, in_rows(seen.B), seen.yy
    gamma, *found = k.compiled.wide_arrival(*aim.known(kept, in_rows(G)), gamma, *new)
    return kept, gamma, aim.along(*found), None


def _framed_arrival(
    geometry: Framed,
    pairs: Pairs,
    pair: Secant,
    sy: float,
    least: float,
    needed: tuple[int, ...],
    gamma: float,
    Q: Array,
    G: Cotangent,
    metric: Metric,
) -> tuple[Pairs, float, tuple[Tangent, float, Curve], Any] | None:
    """`matrix_arrival` in a frame."""
    k, seen = geometry.kernels, pair.curvature
    parted = pairs.apart is not None and pairs.apart.on  # matrices that know nothing of each other
    fits = type(geometry) is Framed and not parted
    if not fits or faster(k, Q, G) is not compiled or not sy > least * math.sqrt(seen.square):
        return None
    row, gone, kept = with_row(pairs, needed)
    kept = kept._replace(apart=pairs.apart)
    (T, U), size = np.empty((2, *G.shape), G.dtype), G.shape[-1]
    E = np.empty((*G.shape[:-2], size, size), G.dtype)
    omega = 0.0 if metric.horizontal else metric.omega
    new = row, gone, pair.s, pair.y, sy, seen.squared_change(omega)
    room = in_rows(G), Q, omega, T, U, E, probe_of(G)
    gamma, slope, *found = k.compiled.framed_arrival(*kept[:4], *room, gamma, *new)
    return kept, gamma, (T, slope, CompiledFramedRay.along(k, Q, U, E, *found)), None


class RoomToAim:
    """What the kernels fill: a direction and the frame of its ray."""

    def __init__(self, X: Array) -> None:
        two = 2 * X.shape[1]
        self.T, self.frame = np.empty(X.shape, X.dtype), np.empty((4, two, two), X.dtype)

    def known(
        self, geometry: Manifold, pairs: Pairs, X: Array, G: Array, metric: Metric
    ) -> tuple[Any, ...]:
        """What the kernels need to know to aim from X, and the room."""
        D = metric.D
        D = D if D is None or D.flags.c_contiguous else in_rows(D)
        omega = 0.0 if metric.horizontal else metric.omega
        theta = geometry.rotation_left_out(metric)  # type: ignore[attr-defined]
        S, Y, inverse, diagonal, *_ = pairs
        return S, Y, inverse, diagonal, G, X, D, omega, theta, self.T, self.frame

    def aimed(
        self,
        geometry: Manifold,
        k: Kernels,
        X: Array,
        metric: Metric,
        slope: float,
        small: Any,
        first: FirstTrial | None = None,
    ) -> tuple[Tangent, float, Curve]:
        """Direction, slope and ray."""
        T, span = self.T, type(geometry).gradient is not Stiefel.gradient
        ray = LandingRay(k, X, T, self.frame, small, first, span)
        return T, slope, geometry.ray_along(X, T, metric) if ray.lossy else ray


def kernels_of_rays(geometry: Manifold, X: Point, G: Cotangent) -> Any:
    """The kernels of a matrix whose rays the compiled ones prepare; None for other points."""
    if not isinstance(geometry, Stiefel) or type(geometry).ray_along is not Stiefel.ray_along:
        return None
    k = geometry.kernels_at(X)
    single = X.ndim == 2 and X.shape[-1] > 1 and _lands(geometry, X)
    return k if single and faster(k, X, G) is compiled else None


def _lands(geometry: Stiefel, X: Array) -> bool:
    """Whether gradients of this manifold are those that a landing finds."""
    gradient = type(geometry).gradient
    if gradient is Grassmann.gradient:
        return not is_everything(geometry.kernels_at(X), X)
    return gradient is Stiefel.gradient


def is_wide(X: Array) -> bool:
    """Whether rays from X are better made in `wide` than in `cayley`: it has many columns."""
    n, k = X.shape[-2:]
    return FEWEST_COLUMNS <= k < n <= ROWS_A_COLUMN * k and X.ndim == 2


def kernels_of_wide_rays(geometry: Manifold, X: Point) -> Any:
    """The kernels of a matrix with many columns, whose rays `wide` makes; None for others."""
    if not isinstance(geometry, Stiefel) or type(geometry).ray_along is not Stiefel.ray_along:
        return None
    k = geometry.kernels_at(X)
    if not (k.pure_numpy and is_wide(X) and _lands(geometry, X)):
        return None
    doubles = X.dtype.char in "dD"
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
    room = T, *_ = room_for_leaves(kinds, X, G, metrics)
    fast = geometry.factors[0].kernels.compiled
    slopes, small = fast.leaves_aim(*pairs[:4], gamma, G, T, X, *room[1:])
    return aimed_leaves(geometry.factors, X, metrics, room, slopes, small)


def _stack_aim(
    geometry: Stiefel,
    pairs: Pairs,
    X: Array,
    G: Array,
    gamma: float,
    metric: Metric,
    longest: float,
) -> tuple[Tangent, float, Curve] | None:
    """`matrix_aim` of a small stack, together or apart."""
    kind, apart = stack_kind(geometry, X), pairs.apart
    if kind is None or pairs.S is None:
        return None
    fast, tree = geometry.kernels_at(X).compiled, (X,)
    room = T, *_ = room_for_leaves((kind,), tree, (G,), (metric,))
    if apart is not None and apart.on:
        flat = apart.curvatures.reshape(len(apart.curvatures), -1)
        own = flat, np.array(pairs.rows, np.intp), apart.gammas, gamma
        seen = fast.stack_aim_apart(*pairs[:2], *own, (G,), T, tree, *room[1:], longest)
    else:
        seen = fast.leaves_aim(*pairs[:4], gamma, (G,), T, tree, *room[1:])
    (T,), slope, rays = aimed_leaves((geometry,), tree, (metric,), room, *seen)
    return T, slope, rays.only


def room_for_leaves(
    kinds: tuple[int, ...], X: Leaves, G: Leaves, metrics: tuple[Metric, ...]
) -> tuple[Leaves, tuple[Metric, ...], tuple[int, ...], tuple[NumpyArray | None, ...]]:
    """Room for T, the metrics as kernels take them, the kinds, and room for the frames."""
    T = tuple([np.empty(g.shape, g.dtype) for g in G])
    frames = tuple([_room_for_frame(kind, x) for kind, x in zip(kinds, X, strict=True)])
    if not all(m.D is None or m.D.flags.c_contiguous for m in metrics):
        metrics = tuple([m._replace(D=m.D if m.D is None else in_rows(m.D)) for m in metrics])
    return T, metrics, kinds, frames


def aimed_leaves(
    factors: tuple[Any, ...], X: Leaves, metrics: Any, room: Any, slopes: Any, small: Any
) -> tuple[Tangent, float, ProductRay]:
    """Direction, slope and curve that a kernel has written into its room."""
    T, *_, frames = room
    leaves = zip(factors, X, T, metrics, frames, small, strict=True)
    return T, math.fsum(slopes), ProductRay([_ray_of_leaf(*leaf) for leaf in leaves])


def _room_for_frame(kind: int, X: Array) -> NumpyArray | None:
    two = 2 * X.shape[-1] if kind in (MATRIX, SPAN) else 0
    return np.empty((4, *X.shape[:-2], two, two), X.dtype) if two else None


def _ray_of_leaf(
    factor: Manifold, X: Array, T: Array, metric: Metric, frame: Any, small: Any
) -> Curve:
    """The ray along T; the kernel has prepared those that have a frame."""
    if frame is not None:
        ray = FastTangentRay.prepared(array_kernels(factor, X), X, T, Frame(*frame), small)
        if not ray.lossy:
            return ray
    return factor.ray_along(X, T, metric)  # type: ignore[no-any-return]
