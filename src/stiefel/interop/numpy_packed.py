"""Rays of small matrices: point and direction side by side in one buffer Z = [X, W].

At n = 1000, k = 10 a product of tall matrices costs 13 µs, and one that is twice or three times
as wide not twice as much.  The Gram matrix E = ZᴴZ is one product; every vector V of the span of
X and W, and every other one, is moved by

    Q(t)V = V + Z C,   C = [2S₂; tS₁],   (I − ZᴴU) S = [XᴴV; −(t/2) WᴴV]

so that a point is one product, and a secant pair another.  The 2k×2k matrix is factorised once
for each t.  Two more copies of X and W are the price: large matrices go the other way.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.linalg import lapack

from stiefel.geometry.cayley import Grams
from stiefel.geometry.kernels import Array

LARGEST = 100_000  # entries of a point: [X, W] must stay in a fast cache
CLEAN = 3.0  # a defect of so many eps √k is left alone

_GETRF, _GETRS = (
    {np.dtype(kind): getattr(lapack, letter + name) for kind, letter in zip("fdFD", "sdcz")}
    for name in ("getrf", "getrs")
)


class PackedGrams(Grams):
    """Grams that come with their buffer."""

    packed: Packed


def pack(X: Array, W: Array) -> PackedGrams:
    packed = Packed(X, W)
    k, E = packed.k, packed.E
    grams = PackedGrams(E[:k, :k], E[:k, k:], E[k:, k:])
    grams.packed = packed
    return grams


class Packed:
    """Z = [X, W], its Gram matrix, and what was factorised last."""

    def __init__(self, X: Array, W: Array) -> None:
        self.Z = np.concatenate((X, W), axis=1)
        self.E = _adjoint(self.Z) @ self.Z
        self.k = X.shape[1]
        self.clean = False  # whether XᴴX = I to a few roundings
        self._t = math.nan
        self._lu: tuple[Array, Array] = (None, None)

    def point(self, t: float) -> Array:
        """R(X, φ(tW))."""
        k = self.k
        C = self._moved(t, self.E[:, :k])
        C.ravel()[: k * k : k + 1] += 1.0  # X + Z C
        if not self.clean:
            F = _adjoint(C) @ (self.E @ C)
            F *= -0.5
            F.ravel()[:: k + 1] += 1.5
            C = C @ F  # one Newton–Schulz step, done on the coefficients
        return self.Z @ C

    def secant(self, t: float, ZG: Array) -> Array:
        """[s, Q(t)G − G]: the step tQ(t)φ(W), and by how much the gradient G turns; ZG = ZᴴG."""
        k, E = self.k, self.E
        right = np.empty((2 * k, 2 * k), E.dtype, order="F")
        np.matmul(E[:, :k], E[:k, k:], out=right[:, :k])
        right[:, :k] += E[:, k:]  # Zᴴφ(W), φ(W) = W + XXᴴW
        right[:, k:] = ZG
        C = self._moved(t, right)
        C[:k, :k] += E[:k, k:]
        C.ravel()[2 * k * k :: 2 * k + 1] += 1.0
        C[:, :k] *= t
        return self.Z @ C

    def _moved(self, t: float, ZV: Array) -> Array:
        """C with Q(t)V = V + Z C, from ZᴴV; row-major."""
        k = self.k
        if t != self._t:
            self._t, self._lu = t, self._factor(t)
        right = np.array(ZV, order="F")
        right[k:] *= -0.5 * t
        lu, pivots = self._lu
        S, _ = _GETRS[lu.dtype](lu, pivots, right, overwrite_b=True)
        C = np.empty(S.shape, S.dtype)
        np.multiply(S[k:], 2.0, out=C[:k])
        np.multiply(S[:k], t, out=C[k:])
        return C

    def _factor(self, t: float) -> tuple[Array, Array]:
        """LU of I − ZᴴU = [I − hb, −a; h²c, I + hbᴴ]; a singular one gives NaN, not an error."""
        k, E, h = self.k, self.E, 0.5 * t
        left = np.empty(E.shape, E.dtype, order="F")
        np.multiply(E[:k, k:], -h, out=left[:k, :k])
        np.negative(E[:k, :k], out=left[:k, k:])
        np.multiply(E[k:, k:], h * h, out=left[k:, :k])
        np.multiply(E[k:, :k], h, out=left[k:, k:])
        left.ravel(order="K")[:: 2 * k + 1] += 1.0
        lu, pivots, info = _GETRF[E.dtype](left, overwrite_a=True)
        if info != 0:
            lu = np.full_like(lu, np.nan)
        return lu, pivots


def _adjoint(A: Array) -> Array:
    return A.conj().T if A.dtype.kind == "c" else A.T
