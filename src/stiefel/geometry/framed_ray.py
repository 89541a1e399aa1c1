"""Rays in a frame; see `framed` for the formulas.

Products of nearly unitary matrices drift from being unitary, by a few roundings a step.  The Gram
matrix E + I of X is measured when a ray is made, and a Newton–Schulz step brings X back every few
steps.  X⊥, which nobody sees, may drift ten times as far: Qᴴ(Qz) − z for one vector z tells.
"""

from __future__ import annotations

import math
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from stiefel.backends.base import Kernels, kernel
from stiefel.backends.numpy import divided_in_place
from stiefel.types import Array

from . import compiled
from .ray import Secant

DRIFT = 6.0  # eps √k: an X that is further from orthonormal is brought back …
FRAME_DRIFT = 20.0  # … and here, in eps √n, all of Q


class Split(NamedTuple):
    """How much of a step, and of the change of the gradient, is normal and how much a rotation."""

    normal_step: float
    normal_change: float
    rotation_step: float
    rotation_change: float

    @property
    def square(self) -> float:
        """‖y‖²."""
        return self.squared_change(1.0)

    def squared_change(self, omega: float) -> float:
        """⟨y, φ(y)⟩."""
        return self.normal_change + omega * self.rotation_change


class FramedRay:
    """The ray that leaves Q with the velocity T = [2A; N]."""

    def __init__(self, kernels: Kernels, Q: Array, T: Array) -> None:
        probe = probe_of(T)
        drift = 0.0 if probe is None else float(_frame_drift(kernels, Q, kernels.asarray(probe, Q)))
        self._set_out(kernels, Q, T, *_drift(kernels, Q, T), drift)

    def _set_out(
        self,
        kernels: Kernels,
        Q: Array,
        T: Array,
        E: Array,
        square: Any,
        largest: Any,
        drift: float,
    ) -> None:
        """From Q, brought back if it has drifted: X by E, which has these squares, or the frame."""
        self._kernels, self._Q, self._T = kernels, Q, T
        eps = kernels.eps(Q)
        self.defect = math.sqrt(float(square))
        if float(largest) > (DRIFT * eps) ** 2 * T.shape[-1]:
            self._Q = _straightened(kernels, Q, E)
        if drift > (FRAME_DRIFT * eps) ** 2 * T.shape[-2]:
            self._Q = _restored(kernels, Q)

    @property
    def kernels(self) -> Kernels:
        return self._kernels

    @property
    def tangent(self) -> Array:
        """T."""
        return self._T

    def __call__(self, t: float) -> Array:
        single = self._kernels.pure_numpy and self._Q.ndim == 2
        return (_point_in_place if single else _point)(self._kernels, self._Q, self._T, t)

    @cached_property
    def bounded_length(self) -> float:
        return math.sqrt(float(longest(self._kernels, self._T)))

    @property
    def length(self) -> float:
        return self.bounded_length

    @cached_property
    def squared_norm(self) -> float:
        return float(weighted_inner(self._kernels, self._T, self._T, 0.5))

    def velocity(self, t: float) -> Array:
        """K(I − t²K²/4)⁻¹ in the frame at X(t)."""
        return _velocity(self._kernels, self._T, t)

    def transported_velocity(self, t: float) -> Array:
        return self._T

    def transport(self, t: float, V: Array) -> Array:
        return V

    def secant_pair(self, t: float, old: Any, new: Any) -> Secant:
        s, y = t * self._T, new.G - old.G
        if s.shape[-2] == s.shape[-1]:
            return Secant(s, y)
        return Secant(s, y, Split(*map(float, _split(self._kernels, s, y))))


class CompiledFramedRay(FramedRay):
    """`FramedRay` along the tangents nearest to T, of NumPy matrices of double precision."""

    def __init__(self, kernels: Kernels, Q: Array, T: Array, horizontal: bool) -> None:
        self._prepared(kernels, Q, *compiled.framed_ray(kernels, Q, T, horizontal, probe_of(T)))

    @classmethod
    def along(cls, kernels: Kernels, Q: Array, *prepared: Any) -> CompiledFramedRay:
        """The ray of what `compiled.framed_ray` returns."""
        ray = cls.__new__(cls)
        ray._prepared(kernels, Q, *prepared)
        return ray

    def _prepared(
        self,
        kernels: Kernels,
        Q: Array,
        T: Array,
        E: Array,
        square: float,
        largest: float,
        fastest: float,
        drift: float,
    ) -> None:
        self._set_out(kernels, Q, T, E, square, largest, drift)
        self.bounded_length = math.sqrt(fastest)

    @staticmethod
    def head(G: Array) -> Array:
        """The upper block of G, which is all of a square one."""
        return G[..., : G.shape[-1], :]

    def __call__(self, t: float) -> Array:
        return compiled.framed_point(self._kernels, self._Q, self._T, t)

    def secant_pair(self, t: float, old: Any, new: Any) -> Secant:
        T = self._T
        n, k = T.shape[-2:]
        head = k * k * (2 if T.dtype.kind == "c" else 1)
        s, y, slope, aa, bb, ss, tt = compiled.straight_pair(
            self._kernels, T, t, old.G, new.G, T.size // (n * k), head
        )
        return Secant(s, y, Split(ss, tt, aa, bb), slope=slope)


# -- formulas --------------------------------------------------------------------------------


def blocks(C: Array) -> tuple[Array, Array]:
    """A and N."""
    size = C.shape[-1]
    return C[..., :size, :], C[..., size:, :]


def stacked(k: Kernels, A: Array, C: Array) -> Array:
    """C with A in the place of its upper block."""
    if C.shape[-2] == C.shape[-1]:
        return A
    return k.xp.concat([A, C[..., C.shape[-1] :, :]], axis=-2)


@kernel
def weighted_inner(k: Kernels, V: Array, W: Array, omega: Any) -> Array:
    """⟨V, φ(W)⟩."""
    A, B = blocks(V)[0], blocks(W)[0]
    return k.dot(V, W) + (omega - 1.0) * k.small_inner(A, B)


@kernel
def _split(k: Kernels, s: Array, y: Array) -> tuple[Array, ...]:
    (A, S), (B, T) = blocks(s), blocks(y)
    return k.dot(S, S), k.dot(T, T), k.dot(A, A), k.dot(B, B)


@kernel
def longest(k: Kernels, T: Array) -> Array:
    if T.ndim == 2:
        return k.dot(T, T)
    return k.largest_square(T)


@kernel
def _drift(k: Kernels, Q: Array, T: Array) -> tuple[Array, Array, Array]:
    """E = XᴴX − I, ‖E‖²_F of the whole stack, and of the matrix that is furthest."""
    X = Q[..., : T.shape[-1]]
    E = k.gram(X, X) - k.eye(X)
    if E.ndim == 2:
        square = k.dot(E, E)
        return E, square, square
    squares = k.xp.sum(k.real(k.conj(E) * E), axis=(-2, -1))
    return E, k.xp.sum(squares), k.largest(squares)


@kernel
def _frame_drift(k: Kernels, Q: Array, z: Array) -> Array:
    """‖(QᴴQ − I)z‖², the largest of a stack; for a random z about ‖QᴴQ − I‖²_F."""
    r = k.adjoint(Q) @ (Q @ z) - z
    return k.largest_square(r)


def probe_of(T: Array) -> Any:
    """One vector that tells whether a frame has drifted; None where X is all of it."""
    return None if T.shape[-1] == T.shape[-2] else _probe(T.shape[-2])


@cache
def _probe(size: int) -> Any:
    return np.random.default_rng(size).standard_normal((size, 1))


@kernel
def _straightened(k: Kernels, Q: Array, E: Array) -> Array:
    """Q with one Newton–Schulz step on X: X − XE/2."""
    size = E.shape[-1]
    X = Q[..., :size]
    X = X - X @ (0.5 * E)
    return X if size == Q.shape[-1] else k.xp.concat([X, Q[..., size:]], axis=-1)


@kernel
def _restored(k: Kernels, Q: Array) -> Array:
    """One Newton–Schulz step; what is subtracted is as small as the defect."""
    return k.subtract(Q, Q, 0.5 * (k.gram(Q, Q) - k.eye(Q)))


@kernel
def _point(k: Kernels, Q: Array, T: Array, t: Any) -> Array:
    """Q(t); see the module."""
    A, N = blocks(T)
    size, H = T.shape[-1], (0.5 * t) * N
    S = k.eye(A) - (0.5 * t) * A
    if T.shape[-2] == size:
        return 2.0 * k.divide(Q, S) - Q
    X, rest = Q[..., :size], Q[..., size:]
    Z = k.divide(X + rest @ H, S + k.adjoint(H) @ H)
    return k.xp.concat([2.0 * Z - X, rest - (2.0 * Z) @ k.adjoint(H)], axis=-1)


def _point_in_place(k: Kernels, Q: Array, T: Array, t: float) -> Array:
    """`_point` of one NumPy matrix: at n = 1000 temporaries take as long as the solve."""
    size = T.shape[1]
    S = T[:size] * (-0.5 * t)
    S.flat[:: size + 1] += 1.0
    if size == len(T):
        Z = divided_in_place(2.0 * Q, S)
        Z -= Q
        return Z
    H, Q_new = T[size:] * (0.5 * t), np.empty_like(Q)
    H_ = k.adjoint(H)
    S += H_.dot(H)
    X, rest = Q[:, :size], Q[:, size:]
    Z = rest.dot(H)
    Z += X
    Z *= 2.0
    Z = divided_in_place(Z, S)
    np.subtract(Z, X, out=Q_new[:, :size])
    np.subtract(rest, Z.dot(H_), out=Q_new[:, size:])
    return Q_new


@kernel
def _velocity(k: Kernels, T: Array, t: Any) -> Array:
    A, N = blocks(T)
    size, rows = T.shape[-1], T.shape[-2]
    K = A
    if rows > size:
        zero = 0.0 * (N @ k.adjoint(N))
        K = k.assemble([[A, -k.adjoint(N)], [N, zero]])
    half = (0.5 * t) * K
    return k.solve(k.eye(K) - half @ half, K)[..., :size]
