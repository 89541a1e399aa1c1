"""The formulas of `vector` and `stiefel` once more, for one real NumPy vector, (n,) or (n, 1).

A vector of a few thousand entries costs a few microseconds a pass: here every pass is counted, and
what needs none is done on Python's numbers.  Cotangents at a unit vector x are its tangents, so
that xᵀg = 0 and no metric can be learned.  `tests/test_fused.py` compares everything with the
formulas that it repeats.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

from stiefel.backends.base import Kernels
from stiefel.backends.numpy import axpy
from stiefel.types import Array

from .ray import ColumnRay, Lowered, Secant, TangentRay


def is_real_vector(k: Kernels, X: Array) -> bool:
    """Whether X, a column or an array without the axis of columns, is one of these."""
    if not k.pure_numpy or X.dtype.kind != "f" or X.dtype.itemsize > 8:
        return False
    return X.ndim == 1 or (X.ndim == 2 and X.shape[1] == 1)


def vector_gradient(X: Array, E: Array) -> Lowered:
    """G = E − x xᵀE and its square: four passes."""
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
    """The ray along w = u − Mx, with M = 0 or M = xᵀu; w itself is not formed in a step."""

    def __init__(self, kernels: Kernels, X: Array, U: Array, tangent: bool) -> None:
        x, u = X.reshape(-1), U.reshape(-1)
        a, b, c = float(x.dot(x)), float(x.dot(u)), float(u.dot(u))
        M = 0.0
        if tangent:
            if not c - b * b * (2.0 - a) > TangentRay.LOSSY * c:
                u = project_onto(x, u.copy())
                b, c = float(x.dot(u)), float(u.dot(u))
            else:
                M, b, c = b, b - b * a, c - b * b * (2.0 - a)
        self._kernels, self._X, self._flat, self._u, self._M = kernels, X, x, u, M
        self._grams, self._squared_norm, self._squared_defect = (a, b, c), c + b * b, (a - 1.0) ** 2
        self.bounded_length = math.sqrt(max(c + 3.0 * (b * b), 0.0))

    def __call__(self, t: float) -> Array:
        a, b, c = self._grams
        h = 0.5 * t
        minus, hhac = 1.0 - h * b, h * h * (a * c)
        D = minus * (1.0 + h * b) + hhac
        P, Q = (minus * minus - hhac) / D, t * a / D
        grown = 1.5 - 0.5 * (P * P * a + 2.0 * (P * b * Q) + Q * Q * c)
        return self._combined(P * grown, Q * grown)

    def secant_pair(self, t: float, old: Any, new: Any) -> Secant:
        """s = t Q(t)φ(w) and y = g⁺ − Q(t)g, with xᵀg = 0."""
        a, b, c = self._grams
        h = 0.5 * t
        minus, plus = 1.0 - h * b, 1.0 + h * b
        D, hhc = minus * plus + (h * h) * (a * c), (h * h) * c
        p, q = b + b * a, -h * (c + b * b)
        up, low = (plus * p + a * q) / D, (minus * q - hhc * p) / D
        s = self._combined(t * (b + 2.0 * low), t + t * t * up)
        q = -h * float(self._u.dot(old.G.reshape(-1)))
        up, low = t * a * q / D, 2.0 * minus * q / D
        y = new.G - old.G
        flat = y.reshape(-1)
        axpy(self._M * up - low, self._flat, flat)
        axpy(-up, self._u, flat)
        return Secant(s, y, None, float(flat.dot(flat)))

    def _combined(self, p: float, q: float) -> Array:
        """p x + q w."""
        out = (p - q * self._M) * self._flat
        axpy(q, self._u, out)
        return out.reshape(self._X.shape)

    # -- what a step of `lbfgs` does not ask for ---------------------------------------------

    @cached_property
    def _x(self) -> Array:  # type: ignore[override]
        return self._flat[:, None]

    @cached_property
    def _w(self) -> Array:  # type: ignore[override]
        return (self._u - self._M * self._flat)[:, None] if self._M else self._u[:, None]

    def _evaluated(self, formula: Any, t: float, *arguments: Any) -> Any:
        columns = (V.reshape(-1, 1) for V in arguments)
        return super()._evaluated(formula, t, *columns).reshape(self._X.shape)
