"""Curves t ↦ R(X, φ(tW)) of the Cayley retraction, and what moves along them.

Gram matrices are computed once, when a ray is made; each point costs one small solve and one tall
update.  The last displacement is kept: what moves to the same t needs no solve.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

from . import cayley, vector
from . import secant as secants
from . import transport as moving
from .frame import displacement
from .kernels import Array, Kernels


def ray(kernels: Kernels, X: Array, W: Array) -> Ray | ColumnRay:
    """The ray from X along the cotangent W."""
    return (ColumnRay if X.shape[-1] == 1 else Ray)(kernels, X, W)


class _Prepared:
    """What every ray knows from the Gram matrices at hand."""

    longest: Any
    _squared_norm: Any
    _squared_defect: Any

    @property
    def length(self) -> float:
        """‖φ(W)‖_F, of a stack the largest."""
        return float(self.longest)

    @property
    def squared_norm(self) -> float:
        """‖W‖²_g*."""
        return float(self._squared_norm)

    @property
    def defect(self) -> float:
        """‖XᴴX − I‖_F, of the whole stack."""
        return math.sqrt(float(self._squared_defect))


class Ray(_Prepared):
    """The ray of matrices with several columns."""

    _last: tuple[float, Array] | None = None

    def __init__(self, kernels: Kernels, X: Array, W: Array) -> None:
        self._kernels, self._X, self._U = kernels, X, W
        prepared = kernels.call(cayley.prepare, X, W)
        self._frame, self._squared_norm, self._squared_defect = prepared

    def __call__(self, t: float) -> Any:
        X, N = self._kernels.call(cayley.point, self._X, self._U, self._frame, t)
        self._last = t, N
        return X

    @cached_property
    def longest(self) -> float:
        """The largest ‖φ(W)‖_F of the matrices of a stack: how far t = 1 would move one."""
        return _root(self._kernels.call(moving.longest, self._frame))

    def velocity(self, t: float) -> Any:
        """X'(t), a tangent at X(t)."""
        return self._moved(moving.velocity, t)

    def carried(self, t: float) -> Any:
        """The velocity φ(W) at X, carried isometrically to X(t)."""
        return self._moved(moving.carried, t)

    def transport(self, t: float, V: Array) -> Any:
        """The cotangent V at X, carried isometrically to X(t)."""
        return self._moved(moving.transport, t, t, V)

    def secant(self, t: float, old: Any, new: Any) -> secants.Secant:
        """The secant pair of the step to X(t), from the gradients (.G, .turn) at both ends."""
        return self._moved(secants.secant, t, t, old.G, old.turn, new.G, new.turn)

    def _moved(self, kernel: Any, t: float, *arguments: Any) -> Any:
        if self._last is None or self._last[0] != t:
            self._last = t, self._kernels.call(displacement, self._frame, t)
        N = self._last[1]
        return self._kernels.call(kernel, self._X, self._U, self._frame, N, *arguments)


class TangentRay(Ray):
    """The ray whose velocity is the tangent (or the horizontal one) nearest to T.

    It is that of the cotangent W = T − XM, M = herm(XᴴT) + θ skew(XᴴT), with θ = ½ (or 1); W
    itself is never formed, and its ‖W‖_g* is not to be had.
    """

    LOSSY = 1e-3  # squared, of the part of T that is used: its Grams are differences

    def __init__(self, kernels: Kernels, X: Array, T: Array, theta: float) -> None:
        self._kernels, self._X, self._U = kernels, X, T
        prepared = kernels.call(cayley.prepare_tangent, X, T, theta)
        self._frame, self._squared_defect, moved, whole = prepared
        self.longest = _root(moved)
        # So little of T is tangent that W had better be formed.
        self.lossy = not float(moved) > self.LOSSY * float(whole)


class ColumnRay(_Prepared):
    """The ray of a single column, or of a stack of them."""

    def __init__(self, kernels: Kernels, x: Array, w: Array) -> None:
        self._kernels, self._x, self._w = kernels, x, w
        prepared = kernels.call(vector.prepare, x, w)
        self._grams, self._squared_norm, self._squared_defect = prepared

    def __call__(self, t: float) -> Any:
        return self._moved(vector.point, t)

    @cached_property
    def longest(self) -> float:
        return _root(self._kernels.call(vector.longest, self._grams))

    def velocity(self, t: float) -> Any:
        return self._moved(vector.velocity, t)

    def carried(self, t: float) -> Any:
        return self._moved(vector.carried, t)

    def transport(self, t: float, V: Array) -> Any:
        return self._moved(vector.transport, t, V)

    def secant(self, t: float, old: Any, new: Any) -> secants.Secant:
        return secants.plain(self, t, old, new)

    def _moved(self, kernel: Any, t: float, *arguments: Any) -> Any:
        return self._kernels.call(kernel, self._x, self._w, self._grams, t, *arguments)


def _root(square: Any) -> float:
    """√square; a difference of Grams may fall below zero."""
    return math.sqrt(max(float(square), 0.0))
