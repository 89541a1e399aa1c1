"""The formulas of `vector` and `stiefel` once more, for one real NumPy vector, (n,) or (n, 1).

A vector of a few thousand entries costs a few microseconds a pass: here every pass is counted, and
what needs none is done on Python's numbers.  Cotangents at a unit vector x are its tangents, so
that xᵀg = 0 and no metric can be learned.  The compiled kernels do in one pass what takes NumPy
several (`src/compiled/vectors.inc`).  `tests/test_vectors.py` compares everything with the
formulas that it repeats.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np

from stiefel.backends.base import Kernels
from stiefel.backends.numpy import axpy
from stiefel.types import Array

from .compiled import rows
from .ray import ColumnRay, Lowered, PairPlace, PlainStride, Secant, TangentRay

FourProducts = tuple[float, float, float, float]


def is_real_vector(k: Kernels, X: Array) -> bool:
    """Whether X, a column or an array without the axis of columns, is one of these."""
    if not k.pure_numpy or X.dtype.kind != "f" or X.dtype.itemsize > 8:
        return False
    return X.ndim == 1 or (X.ndim == 2 and X.shape[1] == 1)


def compiled_for(k: Kernels, X: Array, V: Array) -> Any:
    """The compiled kernels, where they take the real array X and an array V of its kind."""
    fits = X.dtype.char == "d" == V.dtype.char and X.flags.c_contiguous and X.size > 0
    return k.compiled if fits else None


def vector_gradient(k: Kernels, X: Array, E: Array) -> Lowered:
    """G = E − x xᵀE and its square: four passes."""
    fast = compiled_for(k, X, E)
    if fast is not None:
        G = np.empty(X.shape)
        return Lowered(G, fast.vector_gradient(X, E if E.flags.c_contiguous else rows(E), G))
    G = E.copy()
    g = G.reshape(-1)
    x = X.reshape(-1)
    axpy(-float(x.dot(g)), x, g)
    return Lowered(G, float(g.dot(g)))


def project_onto(X: Array, W: Array) -> Array:
    """W − x xᵀW, written over W."""
    x, w = X.reshape(-1), W.reshape(-1)
    axpy(-float(x.dot(w)), x, w)
    return W


class RealVectorRay(ColumnRay):
    """The ray along w = u − Mx, with M = 0 or M = xᵀu; w itself is not formed in a step.

    ``slope`` is ⟨G, u⟩ of the gradient at x, where it is given; a secant pair from there is written
    ``into`` a memory, where it is given and kernels are compiled.
    """

    length = defect = 0.0  # type: ignore[assignment] # numbers here, no properties
    first: tuple[float, Array] | None = None  # a point of the ray that came with it

    def __init__(
        self,
        kernels: Kernels,
        X: Array,
        U: Array,
        G: Array | None = None,
        into: PairPlace | None = None,
        *,
        tangent: bool = False,
    ) -> None:
        self.fast, self._kernels = compiled_for(kernels, X, U), kernels
        self._X, self._G, U = X, G if G is None else rows(G), rows(U)
        self.place = into if self.fast is not None else None
        self._know(U, self._products(X, U), tangent)

    def _know(self, U: Array, grams: FourProducts, tangent: bool) -> None:
        """What follows from the products of x, u and the gradient."""
        (a, b, c, slope), M = grams, 0.0
        self.slope = slope
        if tangent:
            bb = b * b * (2.0 - a)
            if not c - bb > TangentRay.LOSSY * c:
                U = project_onto(self._X, U.copy())
                a, b, c, slope = self._products(self._X, U)
            else:
                M, b, c = b, b - b * a, c - bb
        self._U, self._M, self._grams, self._gu = U, M, (a, b, c), slope
        self._squared_norm, self.defect = c + b * b, abs(a - 1.0)
        square = c + 3.0 * (b * b)
        self.bounded_length = self.length = math.sqrt(square) if square > 0 else 0.0

    def aimed_by(self, X: Array, G: Array, T: Array, pairs: Any, into: PairPlace) -> RealVectorRay:
        """The ray from another point along the direction of ``pairs``, which is written to T."""
        return self._onward(X, G, T, self.fast.plain_direction(*pairs, rows(G), T, X), into)

    def _onward(
        self, X: Array, G: Array, T: Array, grams: FourProducts, into: PairPlace
    ) -> RealVectorRay:
        ray = object.__new__(RealVectorRay)
        ray.fast, ray._kernels = self.fast, self._kernels
        ray._X, ray._G, ray.place = X, G, into
        ray._know(T, grams, True)
        return ray

    def strides_from(self, G: Array) -> bool:
        """Whether steps from the gradient G are taken by `stride`."""
        return self.place is not None and G is self._G

    def stride(
        self, t: float, Y: Array, E: Array, of_memory: tuple[Any, ...], rules: Any, vectors: Any
    ) -> PlainStride:
        """The gradient at Y = X(t), the pair in its place and, of an ordinary step, what follows.

        ``of_memory``: R⁻¹, ⟨s_i, y_i⟩ and YᵀY to be written to, and γ.  ``rules``: the terms and
        limits of the kernel.
        """
        (block, used, *_), shape = self.place, Y.shape  # type: ignore[misc]
        G, T, first = np.empty(shape), np.empty(shape), np.empty(shape)
        found, E = np.empty(2 * len(block)), E if E.flags.c_contiguous else rows(E)
        step = self._X, self._U, self._grams, self._M, self._gu, t, self._G, block, used, found
        seen = self.fast.vector_stride(*step, Y, E, G, *of_memory, T, first, *rules)
        square, yy, slope, on = seen
        pair = Secant(None, None, None, yy, slope, found)
        if on is None:
            return PlainStride(G, square, pair)
        return PlainStride(G, square, pair, on[0], on[1], T, first, on[2:])

    def after(self, X: Array, G: Array, ended: PlainStride, into: PairPlace) -> RealVectorRay:
        """The ray that follows from a `stride` which ended in X with the gradient G."""
        T = ended.T
        ray = self._onward(X, G, T, ended.numbers, into)  # type: ignore[arg-type]
        ray.first = (ended.t, ended.first) if ray._U is T else None
        return ray

    def _products(self, X: Array, U: Array) -> FourProducts:
        """⟨x, x⟩, ⟨x, u⟩, ⟨u, u⟩ and ⟨g, u⟩."""
        G = U if self._G is None else self._G
        if self.fast is not None:
            return self.fast.vector_prepare(X, U, G)  # type: ignore[no-any-return]
        x, u = X.reshape(-1), U.reshape(-1)
        return float(x.dot(x)), float(x.dot(u)), float(u.dot(u)), float(u.dot(G.reshape(-1)))

    def __call__(self, t: float) -> Array:
        first, self.first = self.first, None  # nobody holds on to the point
        if first is not None and first[0] == t:
            return first[1]
        if self.fast is not None:
            Y = np.empty(self._X.shape)
            self.fast.vector_point(self._X, self._U, self._grams, self._M, t, Y)
            return Y
        a, b, c = self._grams
        h = 0.5 * t
        minus, hhac = 1.0 - h * b, h * h * (a * c)
        D = minus * (1.0 + h * b) + hhac
        P, Q = (minus * minus - hhac) / D, t * a / D
        grown = 1.5 - 0.5 * (P * P * a + 2.0 * (P * b * Q) + Q * Q * c)
        return self._combined(P * grown, Q * grown)

    def secant_pair(self, t: float, old: Any, new: Any) -> Secant:
        """s = t Q(t)φ(w) and y = g⁺ − Q(t)g, with xᵀg = 0."""
        G, G_new = old.G, new.G
        if self.place is not None and G is self._G:
            block, used, *_ = self.place
            known = self._X, self._U, self._grams, self._M, self._gu, t, G
            found = np.empty(2 * len(block))
            square, slope = self.fast.plain_vector_pair(*known, block, used, found, G_new)
            return Secant(None, None, None, square, slope, kept=found)
        if self.fast is not None:
            return self._fast_pair(t, rows(G), rows(G_new))
        a, b, c = self._grams
        h = 0.5 * t
        minus, plus = 1.0 - h * b, 1.0 + h * b
        D, hhc = minus * plus + (h * h) * (a * c), (h * h) * c
        p, q = b + b * a, -h * (c + b * b)
        up, low = (plus * p + a * q) / D, (minus * q - hhc * p) / D
        s = self._combined(t * (b + 2.0 * low), t + t * t * up)
        x, u = self._X.reshape(-1), self._U.reshape(-1)
        q = -h * float(u.dot(G.reshape(-1)))
        up, low = t * a * q / D, 2.0 * minus * q / D
        y = G_new - G
        flat = y.reshape(-1)
        axpy(self._M * up - low, x, flat)
        axpy(-up, u, flat)
        return Secant(s, y, None, float(flat.dot(flat)))

    def _fast_pair(self, t: float, G: Array, G_new: Array) -> Secant:
        s, y = np.empty(self._X.shape), np.empty(self._X.shape)
        gu = self._gu if G is self._G else float(np.vdot(G, self._U))
        known = self._X, self._U, self._grams, self._M, gu, t, G, G_new
        square, slope = self.fast.vector_pair(*known, s, y)  # type: ignore[union-attr]
        return Secant(s, y, None, square, slope)

    def _combined(self, p: float, q: float) -> Array:
        """p x + q w."""
        out = (p - q * self._M) * self._X
        axpy(q, self._U.reshape(-1), out.reshape(-1))
        return out

    # -- what a step of `lbfgs` does not ask for ---------------------------------------------

    @cached_property
    def _x(self) -> Array:  # type: ignore[override]
        return self._X.reshape(-1, 1)

    @cached_property
    def _w(self) -> Array:  # type: ignore[override]
        return (self._U - self._M * self._X).reshape(-1, 1)

    def _evaluated(self, formula: Any, t: float, *arguments: Any) -> Any:
        columns = (V.reshape(-1, 1) for V in arguments)
        return super()._evaluated(formula, t, *columns).reshape(self._X.shape)
