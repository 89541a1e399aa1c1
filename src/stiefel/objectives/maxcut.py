"""The low-rank (Burer–Monteiro) form of the MaxCut relaxation: a stack of spheres."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from stiefel.types import NumpyArray as Array

from ._base import Objective, real_inner
from ._symmetric import Symmetric


@dataclass(frozen=True, eq=False)
class MaxCut(Objective):
    """f(X) = −¼ Σ_ij L_ij ⟨y_i, y_j⟩ = −¼ tr(Y L Yᵀ), y_i the unit vector of node i.

    A point is a stack X of shape (m, p, 1): m matrices with one orthonormal column each, so the
    library's Stiefel manifold applies to it as it is; Y (p, m) has the y_i as columns. L is the
    graph's Laplacian (dense, sparse or operator). G = −½ L Y as a stack. Cost: one product of L
    with an (m, p) array and one dot. −f is an upper bound of the maximum cut at the global minimum.
    """

    L: Any
    solution: tuple[float, Array] | None = None  # minimum and a minimiser (m, 2, 1), where known

    @cached_property
    def _operator(self) -> Symmetric:
        return Symmetric(self.L)

    @classmethod
    def from_edges(
        cls,
        m: int,
        edges: ArrayLike,
        weights: ArrayLike = 1.0,
        solution: tuple[float, Array] | None = None,
    ) -> MaxCut:
        """The graph on m nodes with the given edges (E, 2) and weights (E,)."""
        i, j = np.asarray(edges).T
        w = np.broadcast_to(np.asarray(weights, dtype=float), i.shape)
        data = np.concatenate([w, w, -w, -w])
        index = (np.concatenate([i, j, i, j]), np.concatenate([i, j, j, i]))
        return cls(sparse.coo_array((data, index), shape=(m, m)).tocsr(), solution)

    @classmethod
    def cycle(cls, m: int) -> MaxCut:
        """The cycle of m ≥ 3 nodes, whose relaxation is known.

        −min f = m for even m, m cos²(π/2m) for odd m: neighbours at the angle π(m−1)/m.
        """
        if m < 3:
            raise ValueError(f"m = {m}; a cycle has at least 3 nodes")
        i = np.arange(m)
        angle = i * (np.pi if m % 2 == 0 else np.pi * (m - 1) / m)
        X = np.stack([np.cos(angle), np.sin(angle)], axis=1)[:, :, None]
        minimum = -float(m) if m % 2 == 0 else -m * float(np.cos(np.pi / (2 * m))) ** 2
        return cls.from_edges(m, np.stack([i, (i + 1) % m], axis=1), solution=(minimum, X))

    def _product(self, X: Array) -> tuple[Array, Array]:
        if X.ndim != 3 or X.shape[0] != self._operator.n or X.shape[2] != 1:
            raise ValueError(
                f"X has shape {X.shape}; expected ({self._operator.n}, p, 1): unit vectors"
            )
        rows = X[:, :, 0]
        return rows, self._operator.apply(rows)

    def value(self, X: Array) -> float:
        """f(X): one product with L and one dot."""
        return -0.25 * real_inner(*self._product(X))

    def value_and_gradient(self, X: Array) -> tuple[float, Array]:
        """f(X) and G = −½ L Y, as a stack (m, p, 1)."""
        rows, G = self._product(X)
        f = -0.25 * real_inner(rows, G)
        G *= -0.5
        return f, G[:, :, None]

    def hessp(self, X: Array, V: Array) -> Array:
        """−½ L V, as a stack: f is quadratic."""
        del X
        HV = self._product(V)[1]
        HV *= -0.5
        return HV[:, :, None]

    @staticmethod
    def cut(X: Array, rng: Any = None) -> Array:
        """Signs ±1 (m,) of the nodes by a random hyperplane (Goemans and Williamson), X real."""
        direction = np.random.default_rng(rng).standard_normal(X.shape[1])
        return np.where(X[:, :, 0] @ direction >= 0, 1, -1)

    @property
    def minimum(self) -> float:
        """The minimum of the relaxation (p ≥ 2); no such attribute where none is known."""
        if self.solution is None:
            raise AttributeError("the minimum is known for MaxCut.cycle only")
        return self.solution[0]

    @property
    def minimizer(self) -> Array:
        """A minimiser of shape (m, 2, 1); no such attribute where none is known."""
        if self.solution is None:
            raise AttributeError("the minimiser is known for MaxCut.cycle only")
        return self.solution[1].copy()
