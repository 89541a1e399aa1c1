"""Orthonormal matrices with given zeros: back onto them, and along them.

M_S = {X : XᴴX = I, X zero off S}.  With P the mask of S and H(Λ) = herm XᴴP(XΛ):

    restoration   X ← X − P(XΛ),  H(Λ) = ½(XᴴX − I)       Gauss and Newton; quadratic
    projection    W ↦ P(W − XΛ),  H(Λ) = herm XᴴPW         onto the tangents of M_S

H is singular where two columns share too few rows; its pseudo-inverse serves the projection, and
a restoration that does not work is told.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .space import NormalSystem, Space
from .terms import Diagonal

Array = Any

MOST_STEPS = 12
LONGEST = 0.5
LEAST_GAIN = 0.7
QUICK = 0.03


def restore(space: Space, x: Array, mask: Array, allowed: float) -> Array | None:
    """The point of M_S near x, with a defect of at most ``allowed``; None if there is none."""
    x, last = mask * x, math.inf
    if not space.duals.size:
        return x
    system = None
    for _ in range(MOST_STEPS):
        E = space.defect(x)
        size = math.sqrt(float(E @ E))
        if size <= allowed:
            return x
        if not size <= LEAST_GAIN * last:
            return None
        if system is None or size > QUICK * last:  # H stays while it serves well
            system = NormalSystem(space, x, Diagonal(mask), pseudo=True)
        last = size
        step = mask * space.normal(x, system.solve(0.5 * E))
        if not float(step @ step) <= LONGEST**2:
            return None
        x = x - step
    return None


class Tangents:
    """The tangents of M_S at x."""

    def __init__(self, space: Space, x: Array, mask: Array) -> None:
        self._space, self._x, self._mask = space, x, mask
        self._system = NormalSystem(space, x, Diagonal(mask), pseudo=True)

    def multiplier(self, w: Array) -> Array:
        """The Λ for which P(W − XΛ) is tangent."""
        return self._system.solve(self._space.gather(self._x, self._mask * w))

    def project(self, w: Array) -> Array:
        """The orthogonal projection of w."""
        return self._mask * (w - self._space.normal(self._x, self.multiplier(w)))


def polar(space: Space, geometry: Any, z: Array) -> Array:
    """The point of the manifold nearest to z, without regard to zeros."""
    return space.flat(geometry.nearest(space.point(z)))


def allowed_defect(space: Space, eps: float) -> float:
    """What rounding leaves of XᴴX − I, well within what a returned point promises."""
    return 5.0 * eps * math.sqrt(max(space.columns, 1))


def same(a: Array, b: Array) -> bool:
    return bool(np.array_equal(a, b))
