"""Curves t ↦ R(X, φ(tW)) of the Cayley retraction, and what moves along them.

Gram matrices are computed once, when a ray is made; each point costs one small solve and one tall
update.  The last displacement is kept: what moves to the same t needs no solve.

The secant pair of a step along a ray, and what it says about curvature.

A step from X with gradient G to X⁺ = Q(t)X with gradient G⁺ gives

    s = t Q(t)φ(W),      y = G⁺ − Q(t)G

with Q the isometric transport of the ray; see `transport`.  The rotation parts of both and the
Gram matrix of s are known before any tall work, because Q keeps Gram matrices:

    X⁺ᴴs = t Xᴴφ(W),   sᴴs = t² φ(W)ᴴφ(W),   X⁺ᴴy = X⁺ᴴG⁺ − XᴴG

so that curvature costs one Gram matrix, yᴴy.  Grams of normal parts are differences here: they
lose relative accuracy where rotations are larger by 1e8, and with it their meaning.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from stiefel.backends.base import Kernels, kernel
from stiefel.types import Array, Curve, NumpyArray

from . import cayley, vector
from .cayley import Frame, halves, in_basis, in_cobasis, velocity_of

# -- secant pairs


class Lowered(NamedTuple):
    """A Euclidean gradient as a cotangent G."""

    G: Array
    square: float  # ‖G‖²_g*
    rotation: Any = None  # XᴴG, where it came for free
    level: Any = None  # herm(XᴴE) of the Euclidean gradient E = G + X level, likewise


class Curvature(NamedTuple):
    """Small matrices from which a step tells about second derivatives; see `squares`."""

    t: Array | float
    frame: Frame | Array  # of the ray; compiled ones may have it in one array
    B: Array  # the rotation part of y
    yy: Array  # yᴴy
    square: float | None = None  # its trace, where it came for free


class Squares(NamedTuple):
    """Normal parts S, T and rotation parts A, B of a step s and of the change y along it."""

    SS: Array  # SᴴS
    TT: Array  # TᴴT
    normal_step: Array  # ‖S‖²
    normal_change: Array  # ‖T‖²
    rotation_step: Array  # ‖A‖²
    rotation_change: Array  # ‖B‖²


class PairPlace(NamedTuple):
    """Where a curve writes its secant pair: the last of these rows of a block, S above Y."""

    block: Array
    rows: tuple[int, ...]
    scales: Array | None = None  # D of unit vectors, a number for each of a row
    # Of unit vectors that are looked at: (N, W, D) so far, D in use, and the rules of the look.
    look: tuple[Array | None, Array | None, float, float, float] | None = None


class Secant(NamedTuple):
    """A pair (s, y) at the end of a step."""

    s: Array  # a tangent
    y: Array  # a cotangent
    curvature: Any = None  # `Curvature`, or a tuple of them; None where nothing can be learned
    # ⟨y, y⟩, where it is ⟨y, φ(y)⟩ too, whatever is learned; in a memory ⟨y, Dy⟩.
    square: Any = None
    slope: Any = None  # ⟨G⁺, s⟩, where it came for free
    # In a memory s and y are None; products of its `PairPlace` with y and with G⁺.
    kept: Any = None
    leaves: tuple[Secant, ...] = ()  # of a tree, one pair a leaf
    # ‖s_i‖² and ‖y_i‖² of unit vectors, where they are looked at; (N, W, D) with them, the score
    # and the change of D, where kernels look.
    vectors: Array | tuple[Array, float, float] | None = None


class PlainStride(NamedTuple):
    """What a kernel finds at the end of a step of plain vectors, and where it leads from there."""

    G: Array
    square: float  # ‖G‖²
    pair: Secant
    # Of an ordinary step: γ and t of the next first trial, the direction, that trial, and numbers.
    gamma: float = 0.0
    t: float = 0.0
    T: Array | None = None
    first: Array | None = None
    numbers: tuple[float, ...] = ()
    known: Array | None = None  # of unit vectors


@kernel
def secant_pair(
    k: Kernels,
    X: Array,
    U: Array,
    frame: Frame,
    N: Array,
    t: Array | float,
    G: Array,
    rotation: Array,
    G_new: Array,
    rotation_new: Array,
) -> Secant:
    """The pair of a step, for matrices with several columns; 12nk² + O(k³)."""
    P, Q, p, q = coefficients(k, frame, N, t, rotation, k.gram(U, G))
    s, into = k.combine(X, P, U, Q), k.overwriting()
    y = into.subtract(into.subtract(G_new - G, X, p), U, q)
    seen = Curvature(t, frame, rotation_new - rotation, k.gram(y, y))
    return Secant(s, y, seen)


@kernel
def coefficients(
    k: Kernels, frame: Frame, N: Array, t: Array | float, XG: Array, UG: Array
) -> tuple[Array, Array, Array, Array]:
    """P, Q, p, q with t Q(t)φ(W) = X P + U Q and Q(t)G = G + X p + U q.

    tφ(W) is Z tK[I; 0], which Q takes to Z (I + N) tK[I; 0] = Z (2N − tK)[I; 0], and
    Q G = G + t Z (I + N/2) A [X, U]ᴴG.
    """
    size = XG.shape[-1]
    C = 2.0 * N[..., :size] - t * frame.generator[..., :size]
    c = in_cobasis(k, frame, t * XG, t * UG)
    return *halves(in_basis(frame, C)), *halves(in_basis(frame, c + 0.5 * (N @ c)))


@kernel
def squares(k: Kernels, seen: Curvature) -> Squares:
    t, frame, B, yy, _ = seen
    C, gram_C = velocity_of(frame)
    C, gram_C = t * C, t * gram_C
    A = gram_C[..., : B.shape[-1], :]
    AA, BB = k.adjoint(A) @ A, k.adjoint(B) @ B
    SS, TT = k.adjoint(C) @ gram_C - AA, yy - BB
    return Squares(SS, TT, k.trace(SS), k.trace(TT), k.trace(AA), k.trace(BB))


@kernel
def squares_at(k: Kernels, X: Array, s: Array, y: Array) -> Squares:
    """The same for a tangent s at X and the change y of the gradient along it; 8nk²."""
    A, B = k.gram(X, s), k.gram(X, y)
    AA, BB = k.adjoint(A) @ A, k.adjoint(B) @ B
    SS, TT = k.gram(s, s) - AA, k.gram(y, y) - BB
    return Squares(SS, TT, k.trace(SS), k.trace(TT), k.trace(AA), k.trace(BB))


def pair_by_transport(ray: Curve, t: float, old: Any, new: Any) -> Secant:
    """The pair of a step along any ray; nothing is said of curvature."""
    return Secant(t * ray.transported_velocity(t), new.G - ray.transport(t, old.G))


def pair_of_leaves(leaves: Iterable[Secant]) -> Secant:
    """The pair of a tree, whose s and y are tuples."""
    leaves = tuple(leaves)
    s, y, _, _, slopes, *_ = zip(*leaves, strict=True)
    slope = None if None in slopes else math.fsum(slopes)
    return Secant(s, y, None, None, slope, None, leaves)


def pair_with_products(pair: Secant, G: NumpyArray) -> Secant:
    """A pair in NumPy arrays with ⟨y, y⟩ and ⟨G, s⟩, where tangents are cotangents."""
    square, slope = np.vdot(pair.y, pair.y).real, np.vdot(G, pair.s).real
    return pair._replace(square=float(square), slope=float(slope))


# -- the curves


class _Prepared:
    """What every ray knows from the Gram matrices at hand."""

    bounded_length: Any
    _squared_norm: Any
    _squared_defect: Any

    @property
    def length(self) -> float:
        """‖φ(W)‖_F, of a stack the largest."""
        return float(self.bounded_length)

    @property
    def squared_norm(self) -> float:
        """‖W‖²_g*."""
        return float(self._squared_norm)

    @property
    def defect(self) -> float:
        """‖XᴴX − I‖_F, of the whole stack."""
        return math.sqrt(float(self._squared_defect))


class Ray(_Prepared):
    """The ray of matrices with several columns; the formulas are those of `cayley`."""

    prepare = staticmethod(cayley.prepare)
    point = staticmethod(cayley.point)
    displacement = staticmethod(cayley.displacement)
    pair = staticmethod(secant_pair)
    carry = staticmethod(cayley.transport)
    velocity_there = staticmethod(cayley.velocity)
    velocity_brought = staticmethod(cayley.transported_velocity)

    _last: tuple[float, Array] | None = None

    def __init__(self, kernels: Kernels, X: Array, W: Array) -> None:
        self._kernels, self._X, self._U = kernels, X, W
        prepared = self.prepare(kernels, X, W)
        self._frame, self._squared_norm, self._squared_defect = prepared

    def __call__(self, t: float) -> Array:
        X, N = self.point(self._kernels, self._X, self._U, self._frame, t)
        self._last = t, N
        return X

    @cached_property
    def bounded_length(self) -> float:
        """The largest ‖φ(W)‖_F of the matrices of a stack: how far t = 1 would move one."""
        return _root(cayley.squared_speed(self._kernels, self._frame))

    def velocity(self, t: float) -> Array:
        """X'(t), a tangent at X(t)."""
        return self.velocity_there(*self._at(t))

    def transported_velocity(self, t: float) -> Array:
        """The velocity φ(W) at X, carried isometrically to X(t)."""
        return self.velocity_brought(*self._at(t))

    def transport(self, t: float, V: Array) -> Array:
        """The cotangent V at X, carried isometrically to X(t)."""
        return self.carry(*self._at(t), t, V)

    def secant_pair(self, t: float, old: Any, new: Any) -> Secant:
        """The secant pair of the step to X(t), from the gradients (.G, .rotation) at both ends."""
        return self.pair(*self._at(t), t, old.G, old.rotation, new.G, new.rotation)

    def _at(self, t: float) -> tuple[Kernels, Array, Array, Frame, Array]:
        """What moves to X(t) needs, with the displacement N of `cayley`."""
        if self._last is None or self._last[0] != t:
            self._last = t, self.displacement(self._kernels, self._frame, t)
        return self._kernels, self._X, self._U, self._frame, self._last[1]


class TangentRay(Ray):
    """The ray whose velocity is the tangent (or the horizontal one) nearest to T.

    It is that of the cotangent W = T − XM, M = herm(XᴴT) + θ skew(XᴴT), with θ = ½ (or 1); W
    itself is never formed, and its ‖W‖_g* is not to be had.
    """

    prepare_tangent = staticmethod(cayley.prepare_tangent)

    LOSSY = 1e-3  # squared, of the part of T that is used: its Grams are differences

    def __init__(self, kernels: Kernels, X: Array, T: Array, theta: float) -> None:
        frame, *small = self.prepare_tangent(kernels, X, T, theta)
        self._set_out(kernels, X, T, frame, small)

    @classmethod
    def prepared(cls, kernels: Kernels, X: Array, T: Array, frame: Frame, small: Any) -> Self:
        """The ray of a frame and of numbers that `prepare_tangent` returned."""
        ray = cls.__new__(cls)
        ray._set_out(kernels, X, T, frame, small)
        return ray

    def _set_out(self, kernels: Kernels, X: Array, T: Array, frame: Frame, small: Any) -> None:
        self._kernels, self._X, self._U, self._frame = kernels, X, T, frame
        self._know(*(small if kernels.pure_numpy else kernels.numbers(small)))

    def _know(self, defect: float, square: float, whole: float) -> None:
        """The numbers that `prepare_tangent` returned."""
        self._squared_defect = defect
        self.bounded_length = _root(square)
        # So little of T is tangent that W had better be formed.
        self.lossy = not square > self.LOSSY * whole


class ColumnRay(_Prepared):
    """The ray of a single column, or of a stack of them."""

    def __init__(self, kernels: Kernels, x: Array, w: Array) -> None:
        self._kernels, self._x, self._w = kernels, x, w
        prepared = vector.prepare(kernels, x, w)
        self._grams, self._squared_norm, self._squared_defect = prepared

    def __call__(self, t: float) -> Any:
        return self._evaluated(vector.point, t)

    @cached_property
    def bounded_length(self) -> float:
        return _root(vector.squared_speed(self._kernels, self._grams))

    def velocity(self, t: float) -> Any:
        return self._evaluated(vector.velocity, t)

    def transported_velocity(self, t: float) -> Any:
        return self._evaluated(vector.transported_velocity, t)

    def transport(self, t: float, V: Array) -> Any:
        return self._evaluated(vector.transport, t, V)

    def secant_pair(self, t: float, old: Any, new: Any) -> Secant:
        return pair_by_transport(self, t, old, new)

    def _evaluated(self, formula: Any, t: float, *arguments: Any) -> Any:
        return formula(self._kernels, self._x, self._w, self._grams, t, *arguments)


def _root(square: Any) -> float:
    """√square; a difference of Grams may fall below zero."""
    square = float(square)
    return 0.0 if square < 0.0 else math.sqrt(square)
