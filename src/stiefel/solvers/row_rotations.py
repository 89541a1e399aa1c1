"""The inverse of a Hessian on XΩ + V together, where ∇f = A X M + C₀ with a constant part C₀.

Rotations XΩ are then coupled to each other and, by R = AX − XΛ, to the normal part V.  In the
columns of `row_model`, with Ω = W ω Wᴴ, F = UᴴR W and the normal part eliminated, ω solves
skew([Q_j ω_j]) = …, where

    Q_j = WᴴΛW − c_j WᴴW − Fᴴ e_j F,    Λ = XᴴAX,    e_j = 1/(θ − c_j).

Small matrices only, of order k(k − 1)/2, or k² for complex ones: Cholesky's factor, or an
eigenvalue problem where curvatures are soft or negative.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from stiefel.backends.numpy import eigh, solve_cholesky, well_conditioned_cholesky
from stiefel.types import NumpyArray

from .row_memory import SubspaceGrams
from .row_ritz import RitzPairs, Stacked

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
    WX, L, LL, p, size = grams.WX, grams.L, grams.LL, len(T), len(c)
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
    size, p = len(c), len(e)
    weighed = (e[:, :, None] * F[:, None, :]).reshape(p, size * size)
    Q = G - c[:, None, None] * H
    Q -= F.conj().T.dot(weighed).reshape(size, size, size).transpose(1, 0, 2)
    basis = _skew_basis(size, Q.dtype.kind == "c")
    return Inverse.of(basis, basis.form(Q))


class SkewBasis(NamedTuple):
    """A real basis of the skew-Hermitian matrices: E_ab − E_ba, and if complex i(E_ab + E_ba).

    Every entry of a matrix is a sum of one or two ``parts``: coordinates times numbers.
    """

    order: int
    which: NumpyArray  # (column, part, row): the coordinate …
    factor: NumpyArray  # … and its number: ±1, i, or 0
    pairs: NumpyArray  # of entries of one column: where in a matrix of this order …
    products: NumpyArray  # … and the product of both numbers, (column, part, row, part, row)

    def form(self, Q: NumpyArray) -> NumpyArray:
        """The matrix of ω ↦ Σ_j ω_jᴴ Q_j ω_j in coordinates."""
        terms = (self.products * Q[:, None, :, None, :]).real
        flat = np.bincount(self.pairs, terms.ravel(), self.order**2)
        return flat.reshape(self.order, self.order)

    def coordinates(self, matrix: NumpyArray) -> NumpyArray:
        """Inner products with all of the basis: those of the skew part."""
        terms = (self.factor.conj() * matrix.T[:, None, :]).real
        return np.bincount(self.which.ravel(), terms.ravel(), self.order)

    def matrix(self, x: NumpyArray) -> NumpyArray:
        return np.asarray((x[self.which] * self.factor).sum(axis=1).T)


class Inverse(NamedTuple):
    """The inverse of a form on skew-Hermitian matrices, its curvatures made positive."""

    basis: SkewBasis
    factor: NumpyArray | None  # of Cholesky, where no curvature is soft or negative
    vectors: NumpyArray
    values: NumpyArray

    @classmethod
    def of(cls, basis: SkewBasis, S: NumpyArray) -> Inverse:
        factor = well_conditioned_cholesky(S, SOFTEST)
        if factor is not None:
            return cls(basis, factor, S, S)
        values, vectors = eigh(S)
        values = np.abs(values)
        least = max(SOFTEST * values.max(), np.finfo(float).tiny)
        return cls(basis, None, vectors, np.maximum(values, least))

    def __call__(self, rotation: NumpyArray) -> NumpyArray:
        """ω for the skew part of ``rotation``."""
        right = self.basis.coordinates(rotation)
        if self.factor is not None:
            return self.basis.matrix(solve_cholesky(self.factor, right))
        return self.basis.matrix(self.vectors.dot(self.vectors.T.dot(right) / self.values))


@cache
def _skew_basis(size: int, is_complex: bool) -> SkewBasis:
    j, a = np.indices((size, size))  # column and row
    low, high = np.minimum(a, j), np.maximum(a, j)
    number = low * (2 * size - low - 1) // 2 + high - low - 1  # of the pair low < high
    order, sign = max(1, size * (size - 1) // 2), np.sign(j - a).astype(float)
    which, factor = np.where(a == j, 0, number)[:, None, :], sign[:, None, :]
    if is_complex:
        phases = np.where(a == j, a, size + number) + size * (size - 1) // 2
        which = np.concatenate((which, phases[:, None, :]), axis=1)
        factor = np.concatenate((factor, np.full_like(factor, 1j, complex)), axis=1)
        order = size * size
    pairs = (order * which[:, :, :, None, None] + which[:, None, None, :, :]).ravel()
    products = factor.conj()[:, :, :, None, None] * factor[:, None, None, :, :]
    return SkewBasis(order, which, factor, pairs, products)
