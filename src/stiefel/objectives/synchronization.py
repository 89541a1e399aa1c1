"""Synchronisation of rotations: m unknown rotations from noisy measurements of their ratios."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, sparse

from stiefel.types import NumpyArray as Array

from ._base import Cast, Objective, matrix_product, real_inner


@dataclass(frozen=True, eq=False)
class RotationSynchronization(Objective):
    """f(R) = ½ Σ_{(i,j)} w_ij ‖R_i − R_ij R_j‖²_F over a stack R of shape (m, d, d).

    For orthogonal R it differs by a constant from −Σ w_ij tr(R_iᴴ R_ij R_j). With the connection
    Laplacian L (m d, m d), f = ½ tr RᴴLR and G = L R; f itself is summed from the residuals:
    ½⟨R, L R⟩ loses every digit when the measurements are nearly exact. Cost: two sparse products
    with about 12 and 18 entries an edge (d = 3); the value alone needs the first only.
    """

    edges: ArrayLike  # (E, 2) integers i, j
    measurements: Array  # (E, d, d): R_ij ≈ R_i R_jᴴ
    weights: ArrayLike = 1.0  # (E,) or one number; not negative
    exact: Array | None = None  # rotations that fit every measurement, where such are known

    def __post_init__(self) -> None:
        edges, R = np.asarray(self.edges), np.asarray(self.measurements)
        if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu" or not edges.size:
            raise ValueError(
                f"edges have shape {edges.shape}, {edges.dtype}; expected (E, 2) integers"
            )
        if R.ndim != 3 or R.shape[0] != len(edges) or R.shape[1] != R.shape[2]:
            raise ValueError(f"measurements have shape {R.shape}; expected ({len(edges)}, d, d)")
        if (edges[:, 0] == edges[:, 1]).any() or edges.min() < 0:
            raise ValueError("an edge must join two different nodes, numbered from 0")
        weights = np.broadcast_to(np.asarray(self.weights, dtype=float), len(edges))
        if not (weights >= 0).all():
            raise ValueError("weights must not be negative")
        object.__setattr__(self, "edges", edges)
        object.__setattr__(self, "measurements", R)
        object.__setattr__(self, "weights", weights)

    @cached_property
    def m(self) -> int:
        """The number of rotations: the largest node number plus one."""
        return int(np.asarray(self.edges).max()) + 1

    @cached_property
    def _matrices(self) -> tuple[Cast, Cast]:
        """M with block row √w (… I at i … −R_ij at j …), and the connection Laplacian L = MᴴM."""
        R, edges = self.measurements, np.asarray(self.edges)
        count, d = R.shape[:2]
        blocks = np.empty((count, 2, d, d), np.result_type(R.dtype, float))
        blocks[:, 0], blocks[:, 1] = np.eye(d), -R
        blocks *= np.sqrt(np.asarray(self.weights))[:, None, None, None]
        M = sparse.bsr_array(
            (blocks.reshape(-1, d, d), edges.ravel(), np.arange(0, 2 * count + 1, 2)),
            shape=(count * d, self.m * d),
        )
        laplacian = (M.conj().T @ M).tobsr((d, d))
        rows = M.tocsr()
        rows.eliminate_zeros()  # the identity blocks need d entries, not d²
        return Cast(rows), Cast(laplacian)

    @property
    def laplacian(self) -> Any:
        """The connection Laplacian L, sparse (m d, m d)."""
        return self._matrices[1].matrix

    def _tall(self, R: Array) -> Array:
        d = self.measurements.shape[1]
        if R.shape != (self.m, d, d):
            raise ValueError(f"R has shape {R.shape}; expected ({self.m}, {d}, {d})")
        return R.reshape(-1, d)

    def value(self, R: Array) -> float:
        """f(R) from the residuals of the edges: one sparse product."""
        residual = matrix_product(self._matrices[0](R.dtype), self._tall(R))
        return 0.5 * real_inner(residual, residual)

    def value_and_gradient(self, R: Array) -> tuple[float, Array]:
        """f(R) and G = L R, as a stack."""
        return self.value(R), self.hessp(R, R)

    def hessp(self, R: Array, V: Array) -> Array:
        """L V as a stack: f is quadratic. One sparse product."""
        del R
        return matrix_product(self._matrices[1](V.dtype), self._tall(V)).reshape(V.shape)

    @property
    def minimizer(self) -> Array:
        """The rotations that fit all measurements; no such attribute where none are known."""
        if self.exact is None:
            raise AttributeError("the minimiser is known only for measurements without noise")
        return self.exact.copy()

    @property
    def minimum(self) -> float:
        """0 for measurements without noise; otherwise there is no such attribute."""
        if self.exact is None:
            raise AttributeError("the minimum is known only for measurements without noise")
        return 0.0

    @classmethod
    def random_instance(
        cls,
        m: int,
        d: int = 3,
        edge_probability: float = 0.1,
        noise: float = 0.0,
        rng: Any = None,
    ) -> tuple[RotationSynchronization, Array]:
        """A random problem and the rotations (m, d, d) planted in it.

        R_ij = R_i exp(noise·S) R_jᵀ with S skew of standard normal entries. Each pair is an edge
        with the given probability, the pairs (i, i+1) always, so that the graph is connected.
        """
        rng = np.random.default_rng(rng)
        Q, T = np.linalg.qr(rng.standard_normal((m, d, d)))
        Q = Q * np.sign(np.diagonal(T, axis1=1, axis2=2))[:, None, :]  # Haar on O(d) …
        Q[:, :, 0] *= np.sign(np.linalg.det(Q))[:, None]  # … and on SO(d)
        i, j = np.triu_indices(m, 1)
        kept = (rng.random(i.size) < edge_probability) | (j == i + 1)
        i, j = i[kept], j[kept]
        measured = Q[i]
        if noise:
            S = rng.standard_normal((i.size, d, d))
            lower = np.tril(S, -1)
            measured = measured @ linalg.expm(noise * (lower - lower.swapaxes(1, 2)))
        measured = measured @ Q[j].swapaxes(1, 2)
        exact = None if noise else Q.copy()
        return cls(np.stack([i, j], axis=1), measured, 1.0, exact), Q
