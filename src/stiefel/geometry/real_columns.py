"""The formulas of `unit` once more, for real unit columns in NumPy, with every pass counted.

As in `real_vector`, the direction w = u − Mx of a circle is not formed: what depends on it comes
from the inner products of x and u, one number a column.  `tests/test_fused.py` compares everything
with the formulas that it repeats.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stiefel.types import Array

from .ray import Lowered, Secant, TangentRay


def column_products(A: Array, B: Array) -> Array:
    """⟨a, b⟩ of the columns, (..., 1, k)."""
    return np.einsum("...ij,...ij->...j", A, B)[..., None, :]


def columns_gradient(X: Array, E: Array) -> Lowered:
    """G = E − X⟨x, e⟩ and its square: four passes."""
    G = X * column_products(X, E)
    np.subtract(E, G, out=G)
    return Lowered(G, float(np.vdot(G, G)))


class RealCircle:
    """The part of a `Circle` that a step of `lbfgs` needs, and what the rest is made from."""

    _X: Array
    _squares: Array
    squared_norm: float
    length: float
    bounded_length: float

    def __init__(self, X: Array, U: Array) -> None:
        a, b, c = column_products(X, X), column_products(X, U), column_products(U, U)
        M: Any = b
        theta = c - b * b * (2.0 - a)
        if not (theta >= TangentRay.LOSSY * c).all():  # better formed
            U, M = U - X * b, 0.0
            b, theta = column_products(X, U), column_products(U, U)
        else:
            b = b - b * a
        self._X, self._U, self._M = X, U, M
        self._half_excess, self._xw, self._squares = 0.5 * (a - 1.0), b, theta
        self.squared_norm = float(theta.sum())
        self.bounded_length = self.length = math.sqrt(max(float(theta.max()), 0.0))
        self._last: tuple[float, Array, Array, Array] | None = None

    @property
    def defect(self) -> float:
        return 2.0 * float(np.abs(self._half_excess).max())

    def __call__(self, t: float) -> Array:
        return self._at(t)[1]

    def _at(self, t: float) -> tuple[float, Array, Array, Array]:
        """t and the point there, with (1 − s²)/(1 + s²) and t/(1 + s²)."""
        if self._last is None or self._last[0] != t:
            ss = (0.25 * t * t) * self._squares
            grown = 1.0 + ss
            P, Q = (1.0 - ss) / grown, t / grown
            # Lengths do not drift: x P + w Q has the square 1 + 2P(P(⟨x, x⟩ − 1)/2 + Q⟨x, w⟩).
            kept = 1.0 - P * (P * self._half_excess + Q * self._xw)
            self._last = t, self._combined(P * kept, Q * kept), P, Q
        return self._last

    def secant_pair(self, t: float, old: Any, new: Any) -> Secant:
        """s = t w, turned, and y = G⁺ − G + (t/2)(x + x⁺)⟨w, g⟩, with ⟨x, g⟩ = 0.

        Along w the transport takes (t²w/2 + t x)/(1 + s²), which is t(x + x⁺)/2.
        """
        _, X, P, Q = self._at(t)
        s = self._combined((-t) * (Q * self._squares), t * P)
        y = self._X + X
        y *= (0.5 * t) * column_products(self._U, old.G)
        y += new.G
        y -= old.G
        return Secant(s, y, None, float(np.vdot(y, y)))

    def _combined(self, p: Array, q: Array) -> Array:
        """x p + w q, column by column."""
        out = self._X * (p - q * self._M)
        out += self._U * q
        return out
