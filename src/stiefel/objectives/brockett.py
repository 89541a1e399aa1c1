"""The Brockett cost: k extreme eigenvectors, each in its own column (the paper's Section 5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from stiefel.types import NumpyArray as Array

from ._base import Cast, Objective, real_inner
from ._symmetric import Symmetric

ENTRIES_AT_A_TIME = 1 << 14  # so that X and G are still in cache for the dot


@dataclass(frozen=True, eq=False)
class Brockett(Objective):
    """f(X) = Σ_i w_i ⟨x_i, A x_i⟩ over the columns of X (n, k), halved if `half`.

    G = 2 A X diag(w), without the 2 if `half`. Cost: one product A X and one pass for the scaling
    and the value; a diagonal A (1-D array) costs one multiplication and one dot of n k entries. The
    published tables were run without the ½ that the paper prints.
    """

    A: Any  # 1-D array (a diagonal), dense, scipy.sparse or LinearOperator
    weights: ArrayLike  # α_i; distinct positive weights make the minimiser unique up to signs
    half: bool = False

    def __post_init__(self) -> None:
        w = np.asarray(self.weights, dtype=float)
        if w.ndim != 1 or not 0 < w.size <= self._operator.n:
            raise ValueError(
                f"weights have shape {w.shape}; expected (k,) with 0 < k ≤ n = {self._operator.n}"
            )
        object.__setattr__(self, "weights", w)

    @classmethod
    def table(cls, n: int, k: int, half: bool = False) -> Brockett:
        """The problem of Tables 1 and 2: A = diag(j²/n), w_i = i."""
        return cls(np.arange(1.0, n + 1) ** 2 / n, np.arange(1.0, k + 1), half)

    @classmethod
    def linear(cls, n: int, k: int, half: bool = False) -> Brockett:
        """The problem of Figure 2: A = diag(j), w_i = i, which are its optimal weights."""
        return cls(np.arange(1.0, n + 1), np.arange(1.0, k + 1), half)

    @cached_property
    def _operator(self) -> Symmetric:
        return Symmetric(self.A)

    @cached_property
    def _scale(self) -> Cast:
        """The gradient's column factors: 2 w, or w if half."""
        return Cast((1.0 if self.half else 2.0) * np.asarray(self.weights))

    @cached_property
    def _tables(self) -> tuple[Cast, Cast]:
        """d ⊗ scale in row-major and in column-major order, for a diagonal A."""
        table = np.multiply.outer(self._operator.matrix, self._scale.matrix)
        return Cast(table), Cast(np.asfortranarray(table))

    def _check(self, X: Array) -> None:
        if X.shape != (self._operator.n, self._scale.matrix.size):
            raise ValueError(
                f"X has shape {X.shape}; expected (n, k) = "
                f"({self._operator.n}, {self._scale.matrix.size}), one column a weight"
            )

    def value(self, X: Array) -> float:
        """f(X), bit for bit as in `value_and_gradient`; no n × k temporary for a diagonal A."""
        self._check(X)
        if self._operator.is_diagonal and X.flags.forc:
            return self._diagonal(X, None)
        return self.value_and_gradient(X)[0]

    def value_and_gradient(self, X: Array) -> tuple[float, Array]:
        """f(X) and G = 2 A X diag(w); f = ½ Re⟨X, G⟩."""
        self._check(X)
        if self._operator.is_diagonal and X.flags.forc:
            G = np.empty_like(X)
            return self._diagonal(X, G), G
        G = self._operator.apply(X)
        G *= self._scale(X.dtype)
        return 0.5 * real_inner(X, G), G

    def _diagonal(self, X: Array, G: Array | None) -> float:
        """Fill G = table ∘ X block by block and return f; without G the blocks are dropped."""
        table = self._tables[0 if X.flags.c_contiguous else 1](X.dtype)
        if X.size <= ENTRIES_AT_A_TIME:
            return 0.5 * real_inner(X, np.multiply(table, X, out=G))
        table, x = table.ravel(order="K"), X.ravel(order="K")
        g = np.empty(ENTRIES_AT_A_TIME, x.dtype) if G is None else G.ravel(order="K")
        total = 0.0
        for start in range(0, x.size, ENTRIES_AT_A_TIME):
            part = slice(start, start + ENTRIES_AT_A_TIME)
            x_part = x[part]
            g_part = g[: x_part.size] if G is None else g[part]
            np.multiply(table[part], x_part, out=g_part)
            total += float(np.vdot(x_part, g_part).real)
        return 0.5 * total

    def hessp(self, X: Array, V: Array) -> Array:
        """2 A V diag(w), halved if `half`: f is quadratic. One product A V and one scaling."""
        del X
        self._check(V)
        HV = self._operator.apply(V)
        HV *= self._scale(V.dtype)
        return HV

    @cached_property
    def _solution(self) -> tuple[float, Array]:
        """The rearrangement inequality: the largest weight takes the smallest eigenvalue.

        Negative weights take the largest eigenvalues, the most negative one the largest.
        """
        w = np.asarray(self.weights)
        negative = int((w < 0).sum())
        values, vectors = self._operator.extreme(w.size - negative, negative)
        column = np.argsort(-w, kind="stable")  # decreasing weight ↔ increasing eigenvalue
        X = np.empty_like(vectors)
        X[:, column] = vectors
        return float(w[column] @ values) * (0.5 if self.half else 1.0), X

    @property
    def minimum(self) -> float:
        """min f over orthonormal X, by an eigensolver; kept once computed."""
        return self._solution[0]

    @property
    def minimizer(self) -> Array:
        """An orthonormal X (n, k) that attains `minimum`."""
        return self._solution[1].copy()

    @property
    def condition_number(self) -> float:
        """κ of the Riemannian Hessian at the minimiser, see `brockett_condition_number`."""
        n, k = self._operator.n, np.asarray(self.weights).size
        low = min(k + 1, n)
        return brockett_condition_number(
            self._operator.extreme(low, 1 if n > low else 0)[0], np.asarray(self.weights)
        )


def brockett_condition_number(eigenvalues: ArrayLike, weights: Sequence[float] | Array) -> float:
    """κ = α_k(λ_n − λ_1) / min{α_1(λ_{k+1} − λ_k), min_{i<k} (λ_{k−i+1} − λ_{k−i})(α_{i+1} − α_i)}.

    In the canonical metric, at the minimiser. Only λ_1 … λ_{k+1} and λ_n enter. For n = k there is
    no normal part: the rotations alone decide, with largest curvature (α_k − α_1)(λ_k − λ_1).
    Repeated weights or eigenvalues that leave the minimiser free give κ = inf. For complex X the
    phases of the columns are free as well and are not counted.
    """
    lam = np.sort(np.asarray(eigenvalues, dtype=float))
    alpha = np.sort(np.asarray(weights, dtype=float))
    n, k = lam.size, alpha.size
    if not 0 < k <= n or alpha[0] <= 0:
        raise ValueError(f"expected 0 < k ≤ n and positive weights; got n = {n}, weights {alpha}")
    if n == 1:
        raise ValueError("n = k = 1: a point has no tangent directions and no condition number")
    least = np.diff(lam[:k])[::-1] * np.diff(alpha)  # rotations within the k columns
    most = (alpha[-1] - alpha[0]) * (lam[k - 1] - lam[0])
    if n > k:
        least = np.append(least, alpha[0] * (lam[k] - lam[k - 1]))
        most = alpha[-1] * (lam[-1] - lam[0])
    return float(most / least.min()) if least.min() > 0 else float("inf")


def optimal_weights(eigenvalues: ArrayLike, k: int) -> Array:
    """α_i = Σ_{j=0}^{i−1} 1/(λ_{k−j+1} − λ_{k−j}), i = 1 … k: the weights of least κ.

    They attain κ = (λ_n − λ_1) Σ_{i=1}^k 1/(λ_{i+1} − λ_i). The paper prints the summand with i.
    """
    lam = np.sort(np.asarray(eigenvalues, dtype=float))
    if not 0 < k < lam.size:
        raise ValueError(f"expected 0 < k < n; got k = {k}, n = {lam.size}")
    gaps = np.diff(lam[: k + 1])
    if gaps.min() <= 0:
        raise ValueError(
            "the k + 1 smallest eigenvalues must be distinct: no weights separate them"
        )
    return np.asarray(np.cumsum(1.0 / gaps[::-1]))
