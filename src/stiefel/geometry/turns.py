"""Stacks of 2×2 and 3×3 rotations in closed form.

The frame of `framed` with a coordinate for each plane instead of a skew matrix: a cotangent QA has
the coordinates c = √2 (a) with A = [a]×, three numbers (one for n = 2), so that ⟨A, B⟩ is the plain
product of coordinates.  With v = tτ/√8 of the velocity τ and s = |v|², Cayley's formula is

    Q(t) = Q ((1 − s)I + 2vvᵀ + 2[v]×)/(1 + s)

(for n = 2 without vvᵀ), a few operations on whole arrays of numbers.  The kernels in
`src/compiled/turns.c` repeat them for NumPy arrays of double precision, in one call each;
`tests/test_turns.py` compares the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from stiefel.backends.base import Kernels, kernel
from stiefel.types import Array, Metric, NumpyArray

from .compiled import kernels_of_turns, rows, straight_pair, straightened
from .framed import Framed
from .framed_ray import DRIFT, FramedRay, Split
from .ray import Lowered, Secant

SQRT_HALF = math.sqrt(0.5)
SQRT_EIGHTH = math.sqrt(0.125)
DRIFT_OF_DOUBLES = (DRIFT * float(np.finfo(np.float64).eps)) ** 2  # squared, for a column
PLANES = {2: ((1, 0),), 3: ((2, 1), (0, 2), (1, 0))}  # entries of A that are the numbers a


@dataclass(frozen=True)
class FramedRotations(Framed):
    """Real square matrices of two or three columns; see the module."""

    def ambient(self, Q: Array, C: Array) -> Array:
        return Q @ _skew_matrix(self.kernels, C)

    def coordinates(self, Q: Array, W: Array) -> Array:
        return _coordinates(self.kernels, self.kernels.gram(Q, W))

    def project(self, Q: Array, E: Array) -> Array:
        return _lowered(self.kernels, Q, E)[0]

    def gradient(self, Q: Array, E: Array) -> Lowered:
        if (fast := kernels_of_turns(self.kernels, Q, E)) is not None:
            G = np.empty((*Q.shape[:-2], len(PLANES[self.rows])))
            return Lowered(G, fast.turns_gradient(self.rows, Q, rows(E), G))
        G, square = _lowered(self.kernels, Q, E)
        return Lowered(G, float(square))

    def project_direction(self, Q: Array, W: Array) -> Array:
        return W

    def inner(self, Q: Array, V: Array, W: Array) -> float:
        return 2.0 * self.dot(V, W)

    def inner_tangent(self, Q: Array, S: Array, T: Array) -> float:
        return 0.5 * self.dot(S, T)

    def raise_index(self, Q: Array, W: Array, metric: Metric | None = None) -> Array:
        return 2.0 * W

    def lower_index(self, Q: Array, T: Array) -> Array:
        return 0.5 * T

    def cotangent_of(self, Q: Array, T: Array, metric: Metric | None = None) -> Array:
        return 0.5 * T

    def bounded_length(self, T: Array) -> float:
        return math.sqrt(float(_longest(self.kernels, T)))

    def ray_along(self, Q: Array, T: Array, metric: Metric | None = None) -> RotationRay:
        if kernels_of_turns(self.kernels, Q, T) is not None:
            return CompiledRotationRay(self.kernels, Q, rows(T))
        return RotationRay(self.kernels, Q, T)

    def lift(self, Q: Array, Y: Array) -> Array:
        return _coordinates(self.kernels, super().lift(Q, Y))


class RotationRay(FramedRay):
    """The ray that leaves Q with the velocity T, in coordinates."""

    def __init__(self, kernels: Kernels, Q: Array, T: Array) -> None:
        super().__init__(kernels, Q, Q)
        self._T = T

    def __call__(self, t: float) -> Array:
        return _turned_by(self._kernels, self._Q, self._T, t)

    @cached_property
    def bounded_length(self) -> float:
        return math.sqrt(float(_longest(self._kernels, self._T)))

    @cached_property
    def squared_norm(self) -> float:
        return 0.5 * float(self._kernels.dot(self._T, self._T))

    def velocity(self, t: float) -> Array:
        return _slowed(self._kernels, self._T, t)

    def secant_pair(self, t: float, old: Lowered, new: Lowered) -> Secant:
        return Secant(t * self._T, new.G - old.G)


class CompiledRotationRay(RotationRay):
    """`RotationRay`, of NumPy arrays of double precision; ``seen`` is what `turns_ray` returns."""

    def __init__(self, kernels: Kernels, Q: Array, T: Array, seen: Any = None) -> None:
        self._kernels, self._Q, self._T, size = kernels, Q, T, Q.shape[-1]
        square, largest, longest = seen or kernels.compiled.turns_ray(size, Q, T)
        self.defect, self.bounded_length = math.sqrt(square), math.sqrt(longest)
        if largest > DRIFT_OF_DOUBLES * size:
            self._Q = straightened(kernels, Q)

    def __call__(self, t: float) -> Array:
        Q, out = self._Q, np.empty(self._Q.shape)
        self._kernels.compiled.turns_point(Q.shape[-1], Q, self._T, t, out)
        return out

    def secant_pair(self, t: float, old: Any, new: Any) -> Secant:
        s, y, slope, _, _, ss, yy = straight_pair(self._kernels, self._T, t, old.G, new.G)
        return Secant(s, y, Split(0.0, 0.0, ss, yy), slope=slope)


def _coordinates(k: Kernels, M: Array) -> Array:
    """Those of the skew part of M."""
    planes = PLANES[M.shape[-1]]
    return k.xp.stack([SQRT_HALF * (M[..., i, j] - M[..., j, i]) for i, j in planes], axis=-1)


def _skew_matrix(k: Kernels, C: Array) -> Array:
    """A of its coordinates."""
    size = {1: 2, 3: 3}[C.shape[-1]]
    return k.xp.reshape(C @ k.asarray(_skew_basis(size), C), (*C.shape[:-1], size, size))


@cache
def _skew_basis(size: int) -> NumpyArray:
    """The orthonormal skew matrices of the coordinates, each a row."""
    basis = np.zeros((len(PLANES[size]), size, size))
    for E, (i, j) in zip(basis, PLANES[size], strict=True):
        E[i, j], E[j, i] = SQRT_HALF, -SQRT_HALF
    return basis.reshape(len(basis), -1)


@kernel
def _lowered(k: Kernels, Q: Array, E: Array) -> tuple[Array, Array]:
    c = _coordinates(k, k.gram(Q, E))
    return c, 2.0 * k.dot(c, c)


@kernel
def _longest(k: Kernels, T: Array) -> Array:
    return k.largest(k.xp.sum(T * T, axis=-1))


@kernel
def _slowed(k: Kernels, T: Array, t: float) -> Array:
    v = (SQRT_EIGHTH * t) * T
    return T / (1.0 + k.xp.sum(v * v, axis=-1)[..., None])


@kernel
def _turned_by(k: Kernels, Q: Array, T: Array, t: float) -> Array:
    v = (SQRT_EIGHTH * t) * T
    s = k.xp.sum(v * v, axis=-1)
    factor = 2.0 / (1.0 + s)
    diagonal = factor - 1.0
    if v.shape[-1] == 1:
        b = factor * v[..., 0]
        rows = [[diagonal, -b], [b, diagonal]]
    else:
        x, y, z = v[..., 0], v[..., 1], v[..., 2]
        a, b, c = factor * x, factor * y, factor * z
        xy, xz, yz = a * y, a * z, b * z
        rows = [
            [diagonal + a * x, xy - c, xz + b],
            [xy + c, diagonal + b * y, yz - a],
            [xz - b, yz + a, diagonal + c * z],
        ]
    return Q @ k.xp.stack([k.xp.stack(row, axis=-1) for row in rows], axis=-2)
