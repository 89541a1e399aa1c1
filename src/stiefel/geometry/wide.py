"""Matrices with many columns: a Cayley ray by k×k algebra.

`cayley` works in the span of X and of the direction, with 2k×2k matrices and measured Grams; where
k is no small part of n these cost more than all that is tall.  A ray along a tangent U = XA + N at
an orthonormal X, with A = XᴴU skew and XᴴN = 0, needs half as many: with

    C = NᴴN,    S = I − tA/2 + t²C/4,    V = (tU − (t²/2) X C) S⁻¹

the point is X(t) = X + V.  V is as small as the step and known to its own last digits.  The
isometric transport of the ray takes a G with a = XᴴG and D = NᴴG, and the velocity, to

    QG = G − t X D + V (a − tD/2),    tQU = 2V − tU.

X is orthonormal up to the rounding of some steps.  XᴴX is measured when a ray is made, and one that
is further away is brought back by a Newton–Schulz step first.
The points, the steps and the pairs are those of `ray.TangentRay`, up to rounding.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, Self

import numpy as np

from stiefel.backends.base import Kernels, kernel
from stiefel.types import Array

from .compiled import LandingRoom, StartingRay, rows
from .framed_ray import DRIFT
from .ray import Secant, Squares, TangentRay

SCALES = 1e-200, 1e200  # ‖U‖² between which C neither overflows nor loses digits


class WideFrame(NamedTuple):
    """A ray: its velocity U, A = XᴴU, and C of the normal part of U."""

    U: Array
    A: Array
    C: Array


class WideCurvature(NamedTuple):
    """What a step tells about second derivatives, as `ray.Curvature` does."""

    t: float
    frame: WideFrame
    B: Array  # the rotation part of y
    yy: Array  # yᴴy
    square: float


# -- formulas ------------------------------------------------------------------------------------


@kernel
def prepare_wide(
    k: Kernels, X: Array, T: Array, theta: Any
) -> tuple[WideFrame, Array, Array, Array]:
    """The ray along U = XA + N, and the squares of XᴴX − I, U and T; 8nk²."""
    m = k.gram(X, T)
    E, A = k.gram(X, X) - k.eye(m), (1.0 - theta) * (m - k.adjoint(m))
    U = T - X @ (m - A)
    return WideFrame(U, A, k.gram(U, U) + A @ A), k.dot(E, E), k.dot(U, U), k.dot(T, T)


@kernel
def wide_point(k: Kernels, X: Array, frame: WideFrame, t: Any) -> tuple[Array, Array]:
    """X(t) and V; 4nk² + 8k³/3."""
    U, A, C = frame
    S = k.eye(A) - (0.5 * t) * A + (0.25 * t * t) * C
    V = k.divide(t * U - X @ ((0.5 * t * t) * C), S)
    return X + V, V


@kernel
def _straightened_point(k: Kernels, X: Array) -> Array:
    """One Newton–Schulz step; what is subtracted is as small as the defect."""
    return k.subtract(X, X, 0.5 * (k.gram(X, X) - k.eye(X)))


@kernel
def wide_pair(
    k: Kernels,
    X: Array,
    frame: WideFrame,
    V: Array,
    t: Any,
    G: Array,
    rotation: Array,
    G_new: Array,
) -> tuple[Array, Array, Array, Array, Array]:
    """s, y, yᴴy, ⟨G⁺, s⟩ and ‖y‖²; 8nk²."""
    s, y = 2.0 * V - t * frame.U, G_new - _gradient_brought(k, X, frame, V, t, G, rotation)
    return s, y, k.gram(y, y), k.dot(G_new, s), k.dot(y, y)


def _gradient_brought(
    k: Kernels, X: Array, frame: WideFrame, V: Array, t: Any, G: Array, rotation: Array
) -> Array:
    """QG; NᴴG is UᴴG + A XᴴG, for A is skew."""
    D = k.gram(frame.U, G) + frame.A @ rotation
    return G - X @ (t * D) + V @ (rotation - (0.5 * t) * D)


def _velocity(k: Kernels, X: Array, frame: WideFrame, V: Array, t: Any) -> Array:
    """V′, from (VS)′ = U − tXC."""
    U, A, C = frame
    S = k.eye(A) - (0.5 * t) * A + (0.25 * t * t) * C
    return k.divide(U - X @ (t * C) - V @ (0.5 * t * C - 0.5 * A), S)


def wide_squares(k: Kernels, seen: WideCurvature) -> Squares:
    """`ray.squares`: the transport keeps the Gram matrices of a step."""
    t, (_, A, C), B, yy, _ = seen
    SS, TT = (t * t) * C, yy - k.adjoint(B) @ B
    turned, changed = t * t * k.dot(A, A), k.dot(B, B)
    return Squares(SS, TT, k.trace(SS), k.trace(TT), turned, changed)


# -- the curve -----------------------------------------------------------------------------------


class WideRay:
    """The ray whose velocity is the tangent (for θ = 1 the horizontal one) nearest to T."""

    prepare = staticmethod(prepare_wide)
    point = staticmethod(wide_point)
    pair = staticmethod(wide_pair)

    lossy: bool  # so little of T is tangent, or it is so large or small, that others had better

    def __init__(self, kernels: Kernels, X: Array, T: Array, theta: float) -> None:
        frame, *numbers = self.prepare(kernels, X, T, theta)
        self._set_out(kernels, X, T, theta, frame, numbers)

    @classmethod
    def prepared(
        cls, kernels: Kernels, X: Array, T: Array, theta: float, frame: WideFrame, numbers: Any
    ) -> Self:
        """The ray of what `prepare` returned."""
        ray = cls.__new__(cls)
        ray._set_out(kernels, X, T, theta, frame, numbers)
        return ray

    def _set_out(
        self, kernels: Kernels, X: Array, T: Array, theta: float, frame: WideFrame, numbers: Any
    ) -> None:
        """From X, brought back if it has drifted."""
        defect, square, whole = map(float, numbers)
        self.straightened = defect > (DRIFT * kernels.eps(X)) ** 2 * X.shape[1]
        if self.straightened:
            X = _straightened_point(kernels, X)
            frame, _, *numbers = self.prepare(kernels, X, T, theta)
            square, whole = map(float, numbers)
        self.kernels = self._kernels = kernels
        self._X, self._frame, self.defect = X, frame, math.sqrt(defect)
        self.bounded_length = self.length = math.sqrt(square)
        fits = square > TangentRay.LOSSY * whole and SCALES[0] < square < SCALES[1]
        self.lossy, self._last = not fits, (math.nan, None)

    def __call__(self, t: float) -> Array:
        Y, V = self.point(self._kernels, self._X, self._frame, t)
        self._last = t, V
        return Y

    @property
    def squared_norm(self) -> float:
        """g(U, U), which is ‖W‖²_g* of the cotangent W = U − XA/2."""
        A = self._frame.A
        return self.length * self.length - 0.5 * float(self._kernels.dot(A, A))

    def velocity(self, t: float) -> Array:
        return _velocity(self._kernels, self._X, self._frame, self._at(t), t)

    def transported_velocity(self, t: float) -> Array:
        return (2.0 / t) * self._at(t) - self._frame.U if t else self._frame.U

    def transport(self, t: float, G: Array) -> Array:
        k, X, frame = self._kernels, self._X, self._frame
        return _gradient_brought(k, X, frame, self._at(t), t, G, k.gram(X, G))

    def secant_pair(self, t: float, old: Any, new: Any) -> Secant:
        k, X, frame, V = self._kernels, self._X, self._frame, self._at(t)
        known = t, old.G, old.rotation, new.G
        s, y, yy, slope, square = self.pair(k, X, frame, V, *known)
        seen = WideCurvature(t, frame, new.rotation - old.rotation, yy, float(square))
        return Secant(s, y, seen, slope=float(slope))

    def _at(self, t: float) -> Array:
        """V of the step to X(t)."""
        if self._last[0] != t:
            self(t)
        return self._last[1]


class CompiledWideRay(StartingRay, WideRay):
    """`WideRay` by the compiled kernels; a first trial may come with it."""

    def room_to_land(
        self, t: float, start: Any, Y: Array, E: Array, span: bool
    ) -> tuple[LandingRoom, tuple[Any, ...]]:
        """What kernels fill where a step to Y = X(t) ends, and all that they ask of it."""
        X, V, shape, size = self._X, self._at(t), Y.shape, Y.shape[1]
        G, s, y = np.empty(shape, Y.dtype), np.empty(shape, Y.dtype), np.empty(shape, Y.dtype)
        room = LandingRoom(G, s, y, np.empty((4, size, size), Y.dtype))
        of_step = X, *self._frame, V, t, rows(start.G), rows(start.rotation), Y, rows(E), span
        return room, (*of_step, *room)

    def landed(self, t: float, room: LandingRoom, found: Any) -> tuple[Any, Secant]:
        """The gradient as `Lowered` has it, and the pair of the step."""
        square, slope, change = found
        seen = WideCurvature(t, self._frame, room.small[2], room.small[3], change)
        pair = Secant(room.s, room.y, seen, slope=slope)
        return (room.G, square, room.small[0], room.small[1]), pair

    @staticmethod
    def prepare(k: Kernels, X: Array, T: Array, theta: float) -> tuple[WideFrame, Any, Any, Any]:
        frame = empty_wide_frame(X)
        return frame, *k.compiled.prepare_wide(X, rows(T), theta, *frame)

    @staticmethod
    def point(k: Kernels, X: Array, frame: WideFrame, t: float) -> tuple[Array, Array]:
        Y, V = np.empty((2, *X.shape), X.dtype)
        k.compiled.wide_point(X, *frame, t, Y, V)
        return Y, V

    @staticmethod
    def pair(
        k: Kernels,
        X: Array,
        frame: WideFrame,
        V: Array,
        t: float,
        G: Array,
        rotation: Array,
        G_new: Array,
    ) -> tuple[Array, Array, Array, float, float]:
        s, y, yy = np.empty_like(V), np.empty_like(V), np.empty_like(frame.A)
        of_step = X, frame.U, frame.A, V, t, rows(G), rows(rotation), rows(G_new)
        return s, y, yy, *k.compiled.wide_pair(*of_step, s, y, yy)


def empty_wide_frame(X: Array) -> WideFrame:
    """Room for the frame of a ray from X."""
    size = X.shape[1]
    return WideFrame(np.empty(X.shape, X.dtype), *np.empty((2, size, size), X.dtype))
