"""The block Rayleigh quotient: the smallest eigenvector on the sphere, a subspace on Grassmann."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from stiefel.types import NumpyArray as Array

from ._base import Objective, real_inner
from ._symmetric import Symmetric


@dataclass(frozen=True, eq=False)
class Rayleigh(Objective):
    """f(X) = ½ tr XᴴAX, without the ½ if `half` is false; X is (n, k), or a vector (n,).

    G = A X (2 A X). Cost: one product and one dot. f(XQ) = f(X) for orthogonal Q, so f lives on
    Grassmann; with one column it is the paper's sphere problem (Section 5.1).
    """

    A: Any  # 1-D array (a diagonal), dense, scipy.sparse or LinearOperator
    half: bool = True
    columns: int = 1  # k, used by `minimum`, `minimizer` and `condition_number` only

    @classmethod
    def linear(cls, n: int, columns: int = 1, half: bool = True) -> Rayleigh:
        """The problem of Figure 1: A = diag(1 … n)."""
        return cls(np.arange(1.0, n + 1), half, columns)

    def __post_init__(self) -> None:
        if not 0 < self.columns <= self._operator.n:
            raise ValueError(f"columns = {self.columns}; expected 1 … n = {self._operator.n}")

    @cached_property
    def _operator(self) -> Symmetric:
        return Symmetric(self.A)

    def value(self, X: Array) -> float:
        """f(X): one product A X and one dot."""
        f = real_inner(X, self._operator.apply(X))
        return 0.5 * f if self.half else f

    def value_and_gradient(self, X: Array) -> tuple[float, Array]:
        """f(X) and G = A X (2 A X)."""
        G = self._operator.apply(X)
        f = real_inner(X, G)
        if self.half:
            return 0.5 * f, G
        G *= 2
        return f, G

    def hessp(self, X: Array, V: Array) -> Array:
        """A V (2 A V): f is quadratic. Cost: one product."""
        del X
        HV = self._operator.apply(V)
        if not self.half:
            HV *= 2
        return HV

    @cached_property
    def _solution(self) -> tuple[Array, Array]:
        return self._operator.extreme(self.columns, 0)

    @property
    def minimum(self) -> float:
        """The sum of the `columns` smallest eigenvalues, halved if `half`."""
        return float(self._solution[0].sum()) * (0.5 if self.half else 1.0)

    @property
    def minimizer(self) -> Array:
        """Their eigenvectors, (n, columns)."""
        return self._solution[1].copy()

    @property
    def condition_number(self) -> float:
        """κ at the minimiser, see `rayleigh_condition_number`."""
        low = min(self.columns + 1, self._operator.n)
        values = self._operator.extreme(low, 1 if self._operator.n > low else 0)[0]
        return rayleigh_condition_number(values, self.columns)


def rayleigh_condition_number(eigenvalues: ArrayLike, k: int = 1) -> float:
    """κ = (λ_n − λ_1)/(λ_{k+1} − λ_k); for k = 1 the paper's κ on the sphere.

    For k > 1 it is the condition number on Grassmann: on Stiefel the rotations X → XQ are flat.
    """
    lam = np.sort(np.asarray(eigenvalues, dtype=float))
    if not 0 < k < lam.size:
        raise ValueError(f"expected 0 < k < n; got k = {k}, n = {lam.size}")
    gap = lam[k] - lam[k - 1]
    return float((lam[-1] - lam[0]) / gap) if gap > 0 else float("inf")
