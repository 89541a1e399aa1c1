"""Joint diagonalisation of several symmetric matrices."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from stiefel.types import NumpyArray as Array

from ._base import Cast, Objective, real_inner


@dataclass(frozen=True, eq=False)
class JointDiagonalization(Objective):
    """f(X) = Σ_l ‖off(XᴴC_lX)‖²_F for Hermitian C of shape (l, n, n) and X of shape (n, k).

    off() puts zeros on the diagonal. G = 4 Σ_l C_l X off(XᴴC_lX). Cost: l products with C_l
    (2 l n² k flops in one matrix product) and 4 l n k² more; the value saves half of the latter.
    """

    C: Array
    exact: Array | None = None  # (n, n): diagonalises every C_l, where such a matrix is known

    def __post_init__(self) -> None:
        C = np.asarray(self.C)
        if C.ndim != 3 or C.shape[1] != C.shape[2]:
            raise ValueError(f"C has shape {C.shape}; expected (l, n, n)")
        gap = float(np.abs(C - C.conj().swapaxes(1, 2)).max(initial=0.0))
        size = float(np.abs(C).max(initial=0.0))
        precision = float(np.finfo(np.result_type(C.dtype, np.float32)).eps)
        if not gap <= np.sqrt(precision) * size:
            raise ValueError(f"the matrices are not symmetric: max |C − Cᴴ| = {gap:.1e}")
        object.__setattr__(self, "C", C)

    @classmethod
    def random_exact(cls, n: int, matrices: int, rng: Any = None) -> JointDiagonalization:
        """C_l = Q D_l Qᵀ with a common random orthogonal Q and normal D_l: the minimum is 0."""
        rng = np.random.default_rng(rng)
        Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
        D = rng.standard_normal((matrices, n))
        C = (Q * D[:, None, :]) @ Q.T
        return cls((C + C.swapaxes(1, 2)) / 2, Q)

    @cached_property
    def _stack(self) -> Cast:
        """C as (l n, n), so that all the products C_l X are one."""
        return Cast(self.C.reshape(-1, self.C.shape[2]))

    def _products(self, X: Array) -> Array:
        """C_l X as (l, n, k)."""
        if X.ndim != 2 or X.shape[0] != self.C.shape[1]:
            raise ValueError(f"X has shape {X.shape}; expected ({self.C.shape[1]}, k)")
        C = self._stack(X.dtype)
        return np.asarray(C @ X).reshape(self.C.shape[0], *X.shape)

    def value(self, X: Array) -> float:
        """f(X): the products C_l X and the k × k matrices."""
        M = _off(X.conj().T @ self._products(X))
        return real_inner(M, M)

    def value_and_gradient(self, X: Array) -> tuple[float, Array]:
        """f(X) and G = 4 Σ_l C_l X off(XᴴC_lX)."""
        CX = self._products(X)
        M = _off(X.conj().T @ CX)
        f = real_inner(M, M)
        M *= 4
        return f, np.asarray(np.matmul(CX, M).sum(axis=0))

    def hessp(self, X: Array, V: Array) -> Array:
        """4 Σ_l C_l V off(XᴴC_lX) + C_l X off(Z_l + Z_lᴴ) with Z_l = XᴴC_lV."""
        CX, CV = self._products(X), self._products(V)
        XH = X.conj().T
        Z = XH @ CV
        HV = np.matmul(CV, _off(XH @ CX))
        HV += np.matmul(CX, _off(Z + Z.conj().swapaxes(1, 2)))
        return np.asarray(4 * HV.sum(axis=0))

    @property
    def minimizer(self) -> Array:
        """The common eigenvectors (n, n); no such attribute where none are known."""
        if self.exact is None:
            raise AttributeError("the minimiser is known only for commuting matrices")
        return self.exact.copy()

    @property
    def minimum(self) -> float:
        """0 for matrices with common eigenvectors; otherwise there is no such attribute."""
        if self.exact is None:
            raise AttributeError("the minimum is known only for commuting matrices")
        return 0.0


def _off(M: Array) -> Array:
    """M (l, k, k) with the diagonals set to zero, in place."""
    i = np.arange(M.shape[-1])
    M[:, i, i] = 0
    return M
