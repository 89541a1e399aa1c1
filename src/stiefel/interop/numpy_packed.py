"""Rays of small matrices: point and direction side by side in one buffer Z = [X, W].

At n = 1000, k = 10 a product of tall matrices costs 13 µs, and one that is twice or three times
as wide not twice as much.  The Gram matrix E = ZᴴZ is one product; every vector V of the span of
X and W, and every other one, is moved by

    Q(t)V = V + Z C,   C = [2S₂; tS₁],   (I − ZᴴU) S = [XᴴV; −(t/2) WᴴV]

so that a point is one product, and a secant pair another.  The price is a copy of X and W: large
matrices go the other way.
"""

from __future__ import annotations

import numpy as np

from stiefel.geometry.cayley import Grams
from stiefel.geometry.kernels import Array

from .numpy_kernels import solve_in_place

LARGEST = 100_000  # entries of a point: [X, W] must stay in a fast cache


class PackedGrams(Grams):
    """Grams that come with their buffer."""

    packed: Packed


def pack(X: Array, W: Array) -> PackedGrams:
    return Packed(X, W).grams()


class Packed:
    """Z = [X, W] and its Gram matrix."""

    def __init__(self, X: Array, W: Array) -> None:
        self.Z = np.concatenate((X, W), axis=1)
        self.E = _adjoint(self.Z) @ self.Z
        self.k = X.shape[1]
        self._M: Array | None = None  # the direction is W − XM, and E the Gram of X and that

    def grams(self) -> PackedGrams:
        k, E = self.k, self.E
        grams = PackedGrams(E[:k, :k], E[:k, k:], E[k:, k:])
        grams.packed = self
        return grams

    def shifted(self, theta: float) -> tuple[PackedGrams, Array]:
        """The same with the direction T − XM of `cayley.TangentRay` in place of T = W."""
        k, E = self.k, self.E
        a, B = E[:k, :k], E[:k, k:]
        self._M = M = (0.5 + 0.5 * theta) * B + (0.5 - 0.5 * theta) * _adjoint(B)
        C = E[k:, k:] - _adjoint(M) @ B
        B -= a @ M
        bH = _adjoint(B)
        np.subtract(C, bH @ M, out=E[k:, k:])
        E[k:, :k] = bH
        return self.grams(), M

    def point(self, t: float) -> Array:
        """R(X, φ(tW))."""
        k = self.k
        C = self._moved(t, self.E[:, :k])
        C.ravel()[: k * k : k + 1] += 1.0  # X + Z C
        F = _adjoint(C) @ (self.E @ C)
        F *= -0.5
        F.ravel()[:: k + 1] += 1.5
        return self._combined(C @ F)  # one Newton–Schulz step, done on the coefficients

    def secant(self, t: float, turn: Array, WG: Array, change: Array) -> tuple[Array, Array]:
        """The step tQ(t)φ(W), and ``change`` − (Q(t)G − G); the buffer's W gives WᴴG."""
        k, E = self.k, self.E
        right = np.empty((2 * k, 2 * k), E.dtype, order="F")
        np.matmul(E[:, :k], E[:k, k:], out=right[:, :k])
        right[:, :k] += E[:, k:]  # Zᴴφ(W), φ(W) = W + XXᴴW
        right[:k, k:] = turn
        right[k:, k:] = WG if self._M is None else WG - _adjoint(self._M) @ turn
        C = self._moved(t, right)
        C[:k, :k] += E[:k, k:]
        C.ravel()[2 * k * k :: 2 * k + 1] += 1.0
        C[:, :k] *= t
        moved = self._combined(C)
        change -= moved[:, k:]
        return moved[:, :k].copy(), change

    def _combined(self, C: Array) -> Array:
        if self._M is not None:
            C[: self.k] -= self._M @ C[self.k :]
        return self.Z @ C

    def _moved(self, t: float, ZV: Array) -> Array:
        """C with Q(t)V = V + Z C, from ZᴴV; row-major."""
        k = self.k
        right = np.array(ZV, order="F")
        right[k:] *= -0.5 * t
        S = solve_in_place(self._system(t), right)
        C = np.empty(S.shape, S.dtype)
        np.multiply(S[k:], 2.0, out=C[:k])
        np.multiply(S[:k], t, out=C[k:])
        return C

    def _system(self, t: float) -> Array:
        """I − ZᴴU = [I − hb, −a; h²c, I + hbᴴ], in LAPACK's order."""
        k, E, h = self.k, self.E, 0.5 * t
        left = np.empty(E.shape, E.dtype, order="F")
        np.multiply(E[:k, k:], -h, out=left[:k, :k])
        np.negative(E[:k, :k], out=left[:k, k:])
        np.multiply(E[k:, k:], h * h, out=left[k:, :k])
        np.multiply(E[k:, :k], h, out=left[k:, k:])
        left.ravel(order="K")[:: 2 * k + 1] += 1.0
        return left


def _adjoint(A: Array) -> Array:
    return A.conj().T if A.dtype.kind == "c" else A.T
