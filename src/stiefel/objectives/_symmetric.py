"""A symmetric (Hermitian) operator in the four forms users hold, and its extreme eigenpairs."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.linalg import LinearOperator, eigsh

from stiefel.types import NumpyArray as Array

from ._base import Cast, matrix_product

DENSE_BELOW = 600  # up to this n a dense eigensolver is faster than Lanczos, and never fails


class Symmetric:
    """A = Aᴴ: a 1-D array (the diagonal), a dense or SciPy sparse matrix, or a LinearOperator."""

    def __init__(self, A: Any) -> None:
        self.is_operator = isinstance(A, LinearOperator)
        self.is_sparse = sparse.issparse(A)
        if self.is_sparse:
            A = A.tocsr()
        elif not self.is_operator:
            A = np.asarray(A)
        self.is_diagonal = A.ndim == 1
        if not self.is_diagonal and (A.ndim != 2 or A.shape[0] != A.shape[1]):
            raise ValueError(f"A has shape {A.shape}; expected (n, n), or (n,) for a diagonal")
        self.matrix = A
        self.n: int = A.shape[0]
        self._check_symmetric()
        if self.is_diagonal:
            self.matrix = A.real
        self.cast = Cast(self.matrix)

    def _check_symmetric(self) -> None:
        A = self.matrix
        if self.is_operator:
            return  # it cannot be looked at without n products
        gap = A - A.conj().T
        if self.is_sparse:
            gap, A = gap.data, A.data
        worst, size = np.abs(gap).max(initial=0.0), np.abs(A).max(initial=0.0)
        precision = np.finfo(A.dtype).eps if A.dtype.kind in "fc" else 0.0
        if not worst <= np.sqrt(precision) * size:  # "not ≤", so that a NaN is refused as well
            raise ValueError(
                f"A is not symmetric: max |A − Aᴴ| = {worst:.1e} with max |A| = {size:.1e}; "
                "pass (A + A.conj().T) / 2"
            )

    def apply(self, X: Array) -> Array:
        """A X in the dtype of X: a new array, which the caller may overwrite."""
        if self.is_operator:
            AX = np.asarray(self.matrix @ X)
            if AX.dtype.kind == "c" and X.dtype.kind != "c":
                raise TypeError("A is complex and X is real; start from X.astype(complex)")
            return AX.astype(X.dtype, copy=np.may_share_memory(AX, X))
        A = self.cast(X.dtype)
        if self.is_diagonal:
            return np.asarray(A * X if X.ndim == 1 else A[:, None] * X)
        return matrix_product(A, X)

    @cached_property
    def dense(self) -> Array:
        """A as an (n, n) array of double precision; for small n and for references only."""
        if self.is_diagonal:
            return np.diag(self.matrix.astype(float))
        if self.is_operator:
            return np.asarray(self.matrix @ np.eye(self.n))
        full = self.matrix.toarray() if self.is_sparse else self.matrix
        return np.asarray(full, dtype=np.result_type(full.dtype, float))

    def extreme(self, low: int, high: int) -> tuple[Array, Array]:
        """The `low` smallest and `high` largest eigenvalues, ascending, and their eigenvectors.

        A diagonal is sorted, a matrix up to n = 600 or dense is factorised (O(n³)), a larger sparse
        one is shifted below Gershgorin's bound and inverted, a larger operator is left to Lanczos.
        """
        n = self.n
        if low + high > n:
            raise ValueError(f"{low} + {high} eigenpairs asked of a matrix of order {n}")
        chosen = np.r_[:low, n - high : n]
        if self.is_diagonal:
            order = np.argsort(self.matrix, kind="stable")[chosen]
            vectors = np.zeros((n, low + high))
            vectors[order, np.arange(low + high)] = 1.0
            return self.matrix[order].astype(float), vectors
        if n <= DENSE_BELOW or low + high > n // 4 or not (self.is_sparse or self.is_operator):
            if high == 0 and low > 0:
                values, vectors = linalg.eigh(self.dense, subset_by_index=(0, low - 1))
                return values, vectors
            values, vectors = linalg.eigh(self.dense)
            return values[chosen], vectors[:, chosen]
        found = [self._lanczos(low, "SA")] if low else []
        found += [self._lanczos(high, "LA")] if high else []
        return np.concatenate([w for w, _ in found]), np.hstack([v for _, v in found])

    def _lanczos(self, count: int, which: str) -> tuple[Array, Array]:
        start = np.random.default_rng(0).standard_normal(self.n)  # the same answer every time
        if self.is_sparse and which == "SA":
            A = self.matrix.astype(np.result_type(self.matrix.dtype, float))
            diagonal = A.diagonal().real
            radius = np.asarray(abs(A).sum(axis=1)).ravel() - np.abs(diagonal)
            bound, spread = (diagonal - radius).min(), (diagonal + radius).max()
            sigma = bound - 1e-3 * (spread - bound) / self.n  # strictly below the spectrum
            values, vectors = eigsh(A.tocsc(), count, sigma=sigma, which="LM", v0=start)
        else:
            values, vectors = eigsh(self.matrix, count, which=which, v0=start)
        order = np.argsort(values)
        return values[order], vectors[:, order]
