"""The orthogonal Procrustes problem, unbalanced in general."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg

from stiefel.types import NumpyArray as Array

from ._base import Cast, Objective, matrix_product, real_inner


@dataclass(frozen=True, eq=False)
class Procrustes(Objective):
    """f(X) = ½ ‖A X − B‖²_F with A (m, n), X (n, k), B (m, k).

    G = Aᴴ(A X − B). Cost: one product with A for f, one more with Aᴴ for G. Closed solution only if
    ‖A X‖ is constant over orthonormal X: AᴴA a multiple of I, or k = n (the balanced problem).
    """

    A: Array
    B: Array

    def __post_init__(self) -> None:
        A, B = np.asarray(self.A), np.asarray(self.B)
        if A.ndim != 2 or B.ndim != 2 or A.shape[0] != B.shape[0] or B.shape[1] > A.shape[1]:
            raise ValueError(
                f"A and B have shapes {A.shape} and {B.shape}; expected (m, n) and (m, k), k ≤ n"
            )
        object.__setattr__(self, "A", A)
        object.__setattr__(self, "B", B)

    @cached_property
    def _casts(self) -> tuple[Cast, Cast, Cast]:
        return Cast(self.A), Cast(self.A.conj().T), Cast(self.B)

    def _residual(self, X: Array) -> Array:
        if X.shape != (self.A.shape[1], self.B.shape[1]):
            raise ValueError(
                f"X has shape {X.shape}; expected ({self.A.shape[1]}, {self.B.shape[1]})"
            )
        A, _, B = self._casts
        residual = matrix_product(A(X.dtype), X)
        residual -= B(X.dtype)
        return residual

    def value(self, X: Array) -> float:
        """f(X): one product with A."""
        residual = self._residual(X)
        return 0.5 * real_inner(residual, residual)

    def value_and_gradient(self, X: Array) -> tuple[float, Array]:
        """f(X) and G = Aᴴ(A X − B)."""
        residual = self._residual(X)
        G = matrix_product(self._casts[1](X.dtype), residual)
        return 0.5 * real_inner(residual, residual), G

    def hessp(self, X: Array, V: Array) -> Array:
        """AᴴA V: two products."""
        del X
        A, AH, _ = self._casts
        return matrix_product(AH(V.dtype), matrix_product(A(V.dtype), V))

    @property
    def balanced(self) -> bool:
        """Whether ‖A X‖ is the same for every orthonormal X, to rounding."""
        n = self.A.shape[1]
        if self.B.shape[1] == n:
            return True
        gram = self.A.conj().T @ self.A
        c = float(np.trace(gram).real) / n
        precision = np.finfo(np.result_type(gram.dtype, np.float32)).eps
        return bool(np.abs(gram - c * np.eye(n)).max() <= 100 * n * precision * c)

    @cached_property
    def _solution(self) -> tuple[float, Array]:
        if not self.balanced:
            raise AttributeError(
                "an unbalanced Procrustes problem has no closed solution: AᴴA is not a multiple "
                f"of I and k = {self.B.shape[1]} < n = {self.A.shape[1]}"
            )
        U, _, Vh = linalg.svd(self.A.conj().T @ self.B, full_matrices=False)
        X = np.asarray(U @ Vh)  # the polar factor of AᴴB
        residual = self.A @ X - self.B
        return 0.5 * real_inner(residual, residual), X

    @property
    def minimum(self) -> float:
        """min f for a balanced problem; otherwise there is no such attribute."""
        return self._solution[0]

    @property
    def minimizer(self) -> Array:
        """The polar factor of AᴴB for a balanced problem; otherwise there is no such attribute."""
        return self._solution[1].copy()
