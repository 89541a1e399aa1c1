"""Eigensolvers on the problems that are plain eigenproblems of a diagonal matrix: for scale only.

They use what a general method cannot know.  A product of the matrix with k columns counts as one
evaluation; the residual asked for is the one at which the gradient norm of the block meets the
tolerance.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.sparse.linalg import LinearOperator, eigsh, lobpcg

from stiefel.types import Array

from .meter import Meter


def _problem(meter: Meter) -> tuple[Any, Array, float]:
    """The operator, the weights, and the residual to reach."""
    f = meter.problem.objective
    A = f.A
    weights = np.atleast_1d(getattr(f, "weights", 1.0))
    k = meter.shape[1]

    def multiply(V: Array) -> Array:
        return meter.product(lambda: (A * V.T).T, V.shape[1] / k if V.ndim > 1 else 1 / k)

    operator = LinearOperator((A.size, A.size), multiply, matmat=multiply, dtype=float)
    # ∇f = 2 R diag(w) for a block of residuals R; one factor √2 for g* and √k for the columns.
    return operator, weights, meter.target / (2 * weights.max() * (2 * k) ** 0.5)


def _in_order(vectors: Array, weights: Array) -> Array:
    """The largest weight has the smallest eigenvalue."""
    X = np.empty_like(vectors)
    X[:, np.argsort(-weights)] = vectors
    return np.linalg.qr(X)[0]


def _lobpcg(meter: Meter, X0: Array) -> Array:
    operator, weights, residual = _problem(meter)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        values, vectors = lobpcg(operator, X0, largest=False, tol=residual, maxiter=10**5)
    return _in_order(vectors[:, np.argsort(values)], weights)


def _arpack(meter: Meter, X0: Array) -> Array:
    operator, weights, residual = _problem(meter)
    k = X0.shape[1]
    largest = float(np.sort(meter.problem.objective.A)[k - 1])
    values, vectors = eigsh(
        operator, k, which="SA", v0=X0[:, 0], tol=residual / largest, maxiter=10**7
    )
    return _in_order(vectors[:, np.argsort(values)], weights)


SOLVERS = {"lobpcg": _lobpcg, "arpack": _arpack}
