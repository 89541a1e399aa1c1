"""Proof that a point is the global minimum, from the semidefinite relaxation's dual."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg

from stiefel.types import Array

DENSE_ROWS = 2500  # rows up to which a full factorisation is quicker than Lanczos near zero


@dataclass(frozen=True)
class Certificate:
    """What the dual says: ``value`` was reached, and nothing is better than ``bound``.

    The bound is a lower one for a minimum and an upper one for a maximum.

    ``smallest_eigenvalue`` belongs to the dual slack matrix, which is positive semidefinite
    exactly at a dual feasible point; zero to rounding proves that the point is a global optimum.
    ``gap`` = |value − bound| is a proof of how far from it the point can be at most.
    """

    value: float
    bound: float
    smallest_eigenvalue: float

    @property
    def gap(self) -> float:
        return abs(self.value - self.bound)

    def proves_optimality(self, tolerance: float = 1e-8) -> bool:
        """Whether the slack matrix is positive semidefinite to ``tolerance``."""
        return self.smallest_eigenvalue >= -tolerance


def smallest_eigenvalue(A: Any) -> float:
    """Of a symmetric matrix, dense or sparse; O(n³) up to a few thousand rows, Lanczos beyond."""
    return smallest_eigenpair(A)[0]


def smallest_eigenpair(A: Any) -> tuple[float, Array]:
    """The smallest eigenvalue of a symmetric matrix, with a unit eigenvector."""
    n = A.shape[0]
    if n <= DENSE_ROWS:
        dense = A.toarray() if scipy.sparse.issparse(A) else np.asarray(A)
        values, vectors = scipy.linalg.eigh(dense, subset_by_index=(0, 0))
        return float(values[0]), vectors[:, 0]
    # The eigenvalue sought is near zero beside large ones: shifted, it is the largest in size.
    top = float(scipy.sparse.linalg.eigsh(A, 1, which="LA", return_eigenvectors=False, tol=1e-3)[0])
    shifted = 1.01 * top * scipy.sparse.eye_array(n) - A
    values, vectors = scipy.sparse.linalg.eigsh(shifted, 1, which="LA")
    return 1.01 * top - float(values[0]), vectors[:, 0]
