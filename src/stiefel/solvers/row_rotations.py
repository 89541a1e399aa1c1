"""The inverse of a Hessian on XΩ + V together, where ∇f = A X M + C₀ with a constant part C₀.

Rotations XΩ are then coupled to each other and, by R = AX − XΛ, to the normal part V.  In the
columns of `row_model`, with Ω = W ω Wᴴ, F = UᴴR W and the normal part eliminated, ω solves
skew([Q_j ω_j]) = …, where

    Q_j = WᴴΛW − c_j WᴴW − Fᴴ e_j F,    Λ = XᴴAX,    e_j = 1/(θ − c_j).

Small matrices only; an eigenvalue problem of order k(k − 1)/2, k² for complex matrices.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from stiefel.types import NumpyArray

from .row_memory import RitzPairs, Stacked, SubspaceGrams

SOFTEST = 1e-4  # curvature of a rotation, relative to the largest


class Coupled(NamedTuple):
    """H of a cotangent: [U°, Z°] uz + qγ + R r, times Wᴴ, and the rotation X omega."""

    uz: NumpyArray
    r: NumpyArray
    omega: NumpyArray


def coupled(
    ritz: RitzPairs,
    normal: Stacked,
    grams: SubspaceGrams,
    columns: tuple[NumpyArray, NumpyArray, NumpyArray],
    seen: tuple[NumpyArray, NumpyArray, NumpyArray],
) -> Coupled:
    """For (c, γ, W) and a cotangent by its products [U°, Z°]ᴴq, AXᴴq and its rotation part XᴴG.

    The block BFGS formula, on the space of all XΩ + Uv.
    """
    (T, theta), (c, gamma, W), (Wq, Rq, rotation) = ritz, columns, seen
    (WX, L, LL), p, size = grams[1:], len(T), len(c)
    TH, WH, RR = T.conj().T, W.conj().T, LL - L.conj().T.dot(L)
    WR = WX[:, size:] - WX[:, :size].dot(L)  # [U°, Z°]ᴴR
    WR[p:] -= WX[:p, :size].dot(RR)
    F, e = TH.dot(WR[:p]).dot(W), 1.0 / (theta[:, None] - c)
    inverse = _rotations(WH.dot(0.5 * (L + L.conj().T)).dot(W), WH.dot(W), F, e, c)

    def solve(rotation: NumpyArray, u: NumpyArray) -> tuple[NumpyArray, NumpyArray]:
        omega = inverse(rotation - F.conj().T.dot(e * u))
        return omega, e * (u - F.dot(omega))

    omega, a = solve(WH.dot(rotation).dot(W), TH.dot(Wq[:p]))
    r, uz = W.dot(omega), np.empty_like(Wq)
    uz[:p], uz[p:] = T.dot(a * c), -T.dot(a)
    v = gamma * (Wq + normal.WW.dot(uz) - WR.dot(r))
    Rv = gamma * (Rq + WR.conj().T.dot(uz) - RR.dot(r))
    again, a2 = solve(WH.dot(Rv), TH.dot(v[p:] - v[:p] * c))
    uz *= gamma
    uz[:p] += T.dot(a - a2)
    return Coupled(uz, -gamma * r, W.dot(omega - again).dot(WH))


def _rotations(
    G: NumpyArray, H: NumpyArray, F: NumpyArray, e: NumpyArray, c: NumpyArray
) -> Inverse:
    """ω from skew([Q_j ω_j]), Q_j = G − c_j H − Fᴴ e_j F; curvatures are made positive."""
    Q = G - c[:, None, None] * H - np.einsum("pa,pj,pb->jab", F.conj(), e, F)
    basis = _skew_basis(len(c), Q.dtype.kind == "c")
    images = np.einsum("jac,bcj->baj", Q, basis)
    flat = basis.reshape(len(basis), -1)
    S = flat.conj().dot(images.reshape(len(basis), -1).T).real
    values, vectors = np.linalg.eigh(0.5 * (S + S.T))
    values = np.abs(values)
    values = np.maximum(values, max(SOFTEST * values.max(), np.finfo(float).tiny))
    return Inverse(flat, vectors, values)


class Inverse(NamedTuple):
    """The inverse of a form on skew-Hermitian matrices."""

    basis: NumpyArray
    vectors: NumpyArray
    values: NumpyArray

    def __call__(self, rotation: NumpyArray) -> NumpyArray:
        """ω for the skew part of ``rotation``."""
        right = self.basis.conj().dot(rotation.ravel()).real
        x = self.vectors.dot(self.vectors.T.dot(right) / self.values)
        return x.dot(self.basis).reshape(rotation.shape)


@cache
def _skew_basis(size: int, is_complex: bool) -> NumpyArray:
    """A real basis of the skew-Hermitian matrices, (m, size, size)."""
    rows, columns = np.triu_indices(size, 1)
    count = np.arange(len(rows))
    rotations = np.zeros((len(rows), size, size), complex if is_complex else float)
    rotations[count, rows, columns], rotations[count, columns, rows] = 1.0, -1.0
    if not is_complex:
        return rotations
    phases = np.zeros((len(rows) + size, size, size), complex)
    phases[count, rows, columns] = phases[count, columns, rows] = 1j
    phases[len(rows) + np.arange(size), np.arange(size), np.arange(size)] = 1j
    return np.concatenate((rotations, phases))
