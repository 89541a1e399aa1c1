"""The formulas of `fused` once more, by the compiled kernels: one call each.

For NumPy matrices of double precision, real or complex, and for stacks of them, without a
constraint matrix.  What the kernels fill is made here; what they compute stands in
`src/compiled/matrices.inc` under the same names, and `tests/test_compiled.py` compares it with the
formulas.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from stiefel.backends.base import Kernels
from stiefel.types import Array, Metric

from . import cayley, fused
from . import metric as metrics
from .cayley import Frame
from .ray import Curvature, Ray, Secant, Squares, TangentRay

THIS = sys.modules[__name__]
COUNTED_BY_BLAS = 2**31  # entries: it counts with 32 bits
MOST_COMPLEX_COLUMNS = 16  # of a metric; beyond, LAPACK takes less time


def faster(k: Kernels, X: Array, V: Array | None = None) -> ModuleType | None:
    """The module with the fastest versions for NumPy matrices X and an array V of their kind.

    None where the formulas themselves serve: for other libraries, for stacks in single precision.
    """
    if not k.fuses or X.ndim < 2:
        return None
    native = X.dtype.char in "dD" and X.dtype.isnative
    doubles = native and (V is None or V.dtype == X.dtype)
    fits = doubles and X.flags.c_contiguous and 0 < X.size < COUNTED_BY_BLAS
    if fits and k.compiled is not None:
        return THIS
    return fused if X.ndim == 2 else None


def rows(A: Array) -> Array:
    """A, row by row in memory."""
    return A if A.flags.c_contiguous else np.ascontiguousarray(A)


def lower_gradient(k: Kernels, X: Array, E: Array) -> tuple[Array, float, Array, Array]:
    G, size = np.empty(X.shape, X.dtype), X.shape[-1]
    small = np.empty((2, *X.shape[:-2], size, size), X.dtype)  # to be indexed: unpacking is slow
    square = k.compiled.lower_gradient(X, rows(E), G, small[0], small[1])
    return G, square, small[0], small[1]


def project(k: Kernels, X: Array, G: Array) -> Array:
    return lower_gradient(k, X, G)[0]


def prepare(k: Kernels, X: Array, W: Array) -> tuple[Frame, float, float]:
    frame = empty_frame(X)
    return frame, *k.compiled.prepare(X, rows(W), *frame)


def prepare_tangent(
    k: Kernels, X: Array, T: Array, theta: float
) -> tuple[Frame, float, float, float]:
    frame = empty_frame(X)
    return frame, *k.compiled.prepare_tangent(X, rows(T), theta, *frame)


def displacement(k: Kernels, frame: Frame, t: float) -> Array:
    N = np.empty_like(frame.generator)
    k.compiled.displacement(frame.generator, t, N)
    return N


def point(k: Kernels, X: Array, U: Array, frame: Frame, t: float) -> tuple[Array, Array]:
    Y, N = np.empty(X.shape, X.dtype), np.empty_like(frame.generator)
    k.compiled.point(X, rows(U), frame.gram, frame.basis, frame.generator, t, Y, N)
    return Y, N


def secant_pair(
    k: Kernels,
    X: Array,
    U: Array,
    frame: Frame,
    N: Array,
    t: float,
    G: Array,
    rotation: Array,
    G_new: Array,
    rotation_new: Array,
) -> Secant:
    s, y, yy = np.empty(X.shape, X.dtype), np.empty(X.shape, X.dtype), np.empty_like(rotation)
    _, basis, cobasis, K = frame
    of_step = X, rows(U), basis, cobasis, K, N, t, G, rotation, G_new
    slope, square = k.compiled.secant_pair(*of_step, s, y, yy)
    return Secant(s, y, Curvature(t, frame, rotation_new - rotation, yy, square), None, slope)


def transport(k: Kernels, X: Array, U: Array, frame: Frame, N: Array, t: float, V: Array) -> Array:
    if V.dtype != X.dtype or V.shape != X.shape:  # a complex one along a real ray
        return cayley.transport(k, X, U, frame, N, t, V)
    out = np.empty(X.shape, X.dtype)
    k.compiled.transport(X, rows(U), frame.basis, frame.cobasis, N, t, rows(V), out)
    return out


def velocity(k: Kernels, X: Array, U: Array, frame: Frame, N: Array) -> Array:
    return _velocity(k, X, U, frame, N, False)


def transported_velocity(k: Kernels, X: Array, U: Array, frame: Frame, N: Array) -> Array:
    return _velocity(k, X, U, frame, N, True)


def _velocity(k: Kernels, X: Array, U: Array, frame: Frame, N: Array, transported: bool) -> Array:
    out = np.empty(X.shape, X.dtype)
    k.compiled.velocity(X, rows(U), frame.basis, frame.generator, N, transported, out)
    return out


def raise_index(k: Kernels, X: Array, W: Array, metric: Metric) -> Array:
    return raise_onto(k, X, np.array(W, order="C"), metric)


def raise_onto(k: Kernels, X: Array, W: Array, metric: Metric) -> Array:
    """`raise_index`, written over W."""
    omega = 0.0 if metric.horizontal else metric.omega
    k.compiled.raise_index(X, W, _optional(metric.D), omega)
    if metric.scales is not None:
        W *= metric.scales
    return W


def lower_span_gradient(k: Kernels, X: Array, E: Array) -> tuple[Array, float, Array, Array]:
    """`grassmann.lower_span_gradient`."""
    G, size = np.empty(X.shape, X.dtype), X.shape[-1]
    small = np.zeros((2, *X.shape[:-2], size, size), X.dtype)
    return G, k.compiled.lower_span_gradient(X, rows(E), G, small[1]), small[0], small[1]


def extrapolate(k: Kernels, X: Array, Y: Array, tau: float) -> Array:
    out = np.empty(X.shape, X.dtype)
    k.compiled.extrapolate(X, rows(Y), tau, out)
    return out


def squares(k: Kernels, seen: Curvature) -> Squares:
    t, (gram, basis, _, K), B, yy, _ = seen
    SS, TT = np.empty((2, *yy.shape), yy.dtype)
    small = map(rows, (gram, basis, K, B, yy))
    return Squares(SS, TT, *k.compiled.squares(t, *small, SS, TT))


def squared_change(k: Kernels, seen: Curvature, D: Array | None, omega: float) -> float:
    """Of one matrix."""
    return k.compiled.squared_change(seen.B, seen.yy, _optional(D), omega)


def mean_metric(k: Kernels, P: Array, R: Array, largest_ratio: float) -> Array:
    if not has_few_columns(P):
        return (fused if P.ndim == 2 else metrics).mean_metric(k, P, R, largest_ratio)
    D = np.empty(P.shape, P.dtype)
    k.compiled.mean_metric(rows(P), rows(R), largest_ratio, D)
    return D


def spread(k: Kernels, D: Array, E: Array | None) -> float:
    if not has_few_columns(D):
        return (fused if D.ndim == 2 else metrics).spread(k, D, E)
    return k.compiled.spread(rows(D), _optional(E))


def has_few_columns(D: Array) -> bool:
    """Whether the compiled kernels take so many: Jacobi's method is slow for many complex ones."""
    return D.dtype.char == "d" or D.shape[-1] <= MOST_COMPLEX_COLUMNS


# -- framed ------------------------------------------------------------------------------------


def framed_gradient(k: Kernels, Q: Array, E: Array) -> tuple[Array, float, Array]:
    """G, ‖G‖²_g* and the upper block of G."""
    G = np.empty(E.shape, E.dtype)
    square = k.compiled.framed_gradient(Q, rows(E), G)
    return G, square, G[..., : G.shape[-1], :]


def framed_ray(
    k: Kernels, Q: Array, T: Array, horizontal: bool, probe: Array | None
) -> tuple[Array, Array, float, float, float, float]:
    """The tangents (or the horizontal ones) nearest to T, E = XᴴX − I, and squares.

    Of E in the whole stack, of the E that is largest, of the fastest tangent, and how far the frame
    has drifted that is furthest from unitary.
    """
    T, size = np.array(T, order="C"), T.shape[-1]
    E = np.empty((*T.shape[:-2], size, size), T.dtype)
    return T, E, *k.compiled.framed_ray(Q, T, horizontal, E, probe)


def framed_point(k: Kernels, Q: Array, T: Array, t: float) -> Array:
    out = np.empty(Q.shape, Q.dtype)
    k.compiled.framed_point(Q, T, t, out)
    return out


# -- stacks of 2×2 and 3×3 rotations -------------------------------------------------------------


def kernels_of_turns(k: Kernels, Q: Array, V: Array) -> Any:
    """The compiled kernels, if they serve rotations Q and an array V that goes with them."""
    if k.compiled is None or Q.shape[-1] not in (2, 3) or Q.shape[-1] != Q.shape[-2]:
        return None
    doubles = Q.dtype.char == "d" == V.dtype.char and Q.dtype.isnative
    return k.compiled if doubles and Q.flags.c_contiguous else None


def straightened(k: Kernels, Q: Array) -> Array:
    """Q after one Newton–Schulz step."""
    out = np.empty(Q.shape)
    k.compiled.turns_straightened(Q.shape[-1], Q, out)
    return out


# -- pairs where transport is the identity --------------------------------------------------------


def straight_pair(
    k: Kernels, T: Array, t: float, G: Array, G_new: Array, many: int = 1, head: int = 0
) -> tuple[Array, Array, float, float, float, float, float]:
    """s, y, ⟨G⁺, s⟩ and ‖s‖², ‖y‖² of the first ``head`` real numbers, and of the rest.

    The first ones of each of ``many`` equal parts.
    """
    s, y = np.empty(T.shape, T.dtype), np.empty(T.shape, T.dtype)
    return s, y, *k.compiled.straight_pair(rows(T), t, rows(G), rows(G_new), many, head, s, y)


# -- what they share ---------------------------------------------------------------------------


def _optional(D: Array | None) -> Array | None:
    return None if D is None else rows(D)


def empty_frame(X: Array) -> Frame:
    """Room for the frame of a ray from X."""
    two = 2 * X.shape[-1]
    whole = np.empty((4, *X.shape[:-2], two, two), X.dtype)
    return Frame(whole[0], whole[1], whole[2], whole[3])


class _Fast:
    """What both rays move by."""

    point = staticmethod(point)
    displacement = staticmethod(displacement)
    pair = staticmethod(secant_pair)
    carry = staticmethod(transport)
    velocity_there = staticmethod(velocity)
    velocity_brought = staticmethod(transported_velocity)


class FastRay(_Fast, Ray):
    """`Ray`, of NumPy matrices of double precision."""

    prepare = staticmethod(prepare)


class FastTangentRay(_Fast, TangentRay):
    """`TangentRay`, of NumPy matrices of double precision."""

    prepare_tangent = staticmethod(prepare_tangent)


class FirstTrial(NamedTuple):
    """A point of a ray that came with it."""

    t: float
    X: Array
    N: Array  # the displacement of `cayley`


class StartingRay:
    """A ray with which its first trial may come: the point is asked for once."""

    first: FirstTrial | None = None
    _last: Any

    def __call__(self, t: float) -> Array:
        first = self.first
        if first is None or first.t != t:
            return super().__call__(t)  # type: ignore[misc]
        self._last, self.first = (t, first.N), None  # nobody holds on to the point
        return first.X


class LandingRay(StartingRay, FastTangentRay):
    """`FastTangentRay` of one matrix whose steps begin and end in one call each.

    Its frame is one array, and a first trial may come with it.  For small matrices what lies
    between the calls of `point`, `lower_gradient` and `secant_pair` takes longer than they do.
    """

    def __init__(
        self,
        kernels: Kernels,
        X: Array,
        T: Array,
        frame: Array,
        small: Any,
        first: FirstTrial | None,
        span: bool,
    ) -> None:
        self.kernels = self._kernels = kernels
        self._X, self._U, self.whole = X, T, frame
        self.first, self._span = first, span
        self._know(*small)

    @property
    def _frame(self) -> Frame:  # type: ignore[override]
        return Frame(*self.whole)

    def landing(self, t: float, start: Any, Y: Array, E: Array) -> tuple[Any, Secant]:
        """The gradient at Y = X(t), of the Euclidean one E, and the pair of the step.

        What is known of the gradient comes as `Lowered` has it.
        """
        if self._last is None or self._last[0] != t:
            self._at(t)
        room, of_step = self.room_to_land(t, start, Y, E)
        return room.landed(t, self.whole, *self._kernels.compiled.matrix_landing(*of_step))

    def room_to_land(
        self, t: float, start: Any, Y: Array, E: Array
    ) -> tuple[LandingRoom, tuple[Any, ...]]:
        """What kernels fill where a step to Y = X(t) ends, and all that they ask of it."""
        X, N, size = self._X, self._last[1], self._X.shape[1]  # type: ignore[index]
        shape, dtype = X.shape, X.dtype
        G, s, y = np.empty(shape, dtype), np.empty(shape, dtype), np.empty(shape, dtype)
        small, E = np.empty((4, size, size), dtype), E if E.flags.c_contiguous else rows(E)
        of_step = X, self._U, self.whole, N, t, start.G, start.rotation, Y, E, self._span
        return LandingRoom(G, s, y, small), (*of_step, G, s, y, small)


class LandingRoom(NamedTuple):
    """What is found where a step ends."""

    G: Array
    s: Array
    y: Array
    small: Array  # its rotation and level, B and yᴴy of `Curvature`

    def landed(
        self, t: float, frame: Any, square: float, slope: float, change: float
    ) -> tuple[Any, Secant]:
        """The gradient as `Lowered` has it, and the pair of the step."""
        small = self.small  # to be indexed: unpacking is slow
        seen = Curvature(t, frame, small[2], small[3], change)
        return (self.G, square, small[0], small[1]), Secant(self.s, self.y, seen, None, slope)
