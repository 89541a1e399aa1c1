"""A quadratic function on Rⁿ: the test ground of the paper's Section 3."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import linalg
from scipy.sparse.linalg import cg, spsolve

from stiefel.types import NumpyArray as Array

from ._base import Cast, Objective, real_inner
from ._symmetric import Symmetric


@dataclass(frozen=True, eq=False)
class Quadratic(Objective):
    """f(x) = ½⟨x, A x⟩ − Re⟨b, x⟩ for symmetric A and x of the shape of b, (n,) or (n, k).

    G = A x − b. Cost: one product and two dots. With A positive definite f is μ-strongly convex and
    L-smooth, μ and L the extreme eigenvalues of A.
    """

    A: Any  # 1-D array (a diagonal), dense, scipy.sparse or LinearOperator
    b: Array

    def __post_init__(self) -> None:
        b = np.asarray(self.b)
        if b.ndim not in (1, 2) or b.shape[0] != self._operator.n:
            raise ValueError(f"b has shape {b.shape}; expected ({self._operator.n},) or (n, k)")
        object.__setattr__(self, "b", b)

    @cached_property
    def _operator(self) -> Symmetric:
        return Symmetric(self.A)

    @cached_property
    def _right_side(self) -> Cast:
        return Cast(self.b)

    def value(self, x: Array) -> float:
        """f(x): one product and two dots."""
        Ax, b = self._parts(x)
        return 0.5 * real_inner(x, Ax) - real_inner(b, x)

    def value_and_gradient(self, x: Array) -> tuple[float, Array]:
        """f(x) and G = A x − b."""
        G, b = self._parts(x)
        f = 0.5 * real_inner(x, G) - real_inner(b, x)
        G -= b
        return f, G

    def _parts(self, x: Array) -> tuple[Array, Array]:
        if x.shape != self.b.shape:
            raise ValueError(f"x has shape {x.shape}; expected {self.b.shape}, the shape of b")
        return self._operator.apply(x), self._right_side(x.dtype)

    def hessp(self, x: Array, v: Array) -> Array:
        """A v."""
        del x
        return self._operator.apply(v)

    @cached_property
    def _curvatures(self) -> tuple[float, float]:
        n = self._operator.n
        values = self._operator.extreme(1, 1 if n > 1 else 0)[0]
        return float(values[0]), float(values[-1])

    @property
    def mu(self) -> float:
        """μ = λ_1(A)."""
        return self._curvatures[0]

    @property
    def L(self) -> float:
        """L = λ_n(A)."""
        return self._curvatures[1]

    @cached_property
    def _solution(self) -> tuple[float, Array]:
        if self.mu <= 0:
            raise AttributeError(f"A is not positive definite (λ_1 = {self.mu:.1e}): no minimum")
        A, b = self._operator, self.b
        if A.is_diagonal:
            x = (b.T / A.matrix).T
        elif A.is_sparse:
            x = spsolve(A.matrix.tocsc(), b)
        elif A.is_operator:
            solved = [cg(A.matrix, c, rtol=1e-13) for c in b.reshape(A.n, -1).T]
            if any(info for _, info in solved):
                raise ArithmeticError("conjugate gradients did not reach 1e-13 on A x = b")
            x = np.stack([column for column, _ in solved], axis=1)
        else:
            x = linalg.solve(A.dense, b, assume_a="pos")
        x = np.asarray(x).reshape(b.shape)
        return -0.5 * real_inner(b, x), x

    @property
    def minimum(self) -> float:
        """−½⟨b, A⁻¹b⟩; no such attribute unless A is positive definite."""
        return self._solution[0]

    @property
    def minimizer(self) -> Array:
        """A⁻¹b; no such attribute unless A is positive definite."""
        return self._solution[1].copy()
