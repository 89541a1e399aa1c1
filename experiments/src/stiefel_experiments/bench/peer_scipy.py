"""SciPy's L-BFGS-B on Z ↦ f(Z(ZᵀZ)^{−1/2}): the polar factor makes the problem unconstrained.

With ZᵀZ = V diag(s²) Vᵀ, H = V diag(s) Vᵀ and X = Z H⁻¹ the gradient by Z is

    (I − XXᵀ) G H⁻¹ + X V [2 (VᵀAV)_ij / (s_i + s_j)] Vᵀ,   A = skew(XᵀG).

LOBPCG and ARPACK are for scale only: they use what a general method cannot know.  A product of the
matrix with k columns counts as one evaluation, and the residual asked for is the one at which the
gradient norm of the block meets the tolerance.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, eigsh, lobpcg

from stiefel.types import Array

from .meter import Meter

# Zero switches the tests off, except that a step without any change of f ends a run.
LBFGS = {"maxiter": 10**9, "maxfun": 10**9, "ftol": 0.0, "gtol": 0.0}
RESTARTS = 3


def restarted(meter: Meter, function: Any, z: Array, **arguments: Any) -> Array:
    """SciPy's `minimize`, started again from where it ended as a patient user would do.

    Its line searches give up where differences of f are rounding, often before the tolerance.
    """
    iterations = 0
    for _ in range(1 + RESTARTS):
        result = minimize(function, z, **arguments)
        z = result.x
        iterations += int(result.nit)
        meter.iterations, meter.message = iterations, str(result.message)
    return z


def polar(Z: Array) -> tuple[Array, Array, Array]:
    """X, V and s."""
    w, V = np.linalg.eigh(Z.swapaxes(-1, -2) @ Z)
    s = np.sqrt(np.maximum(w, 1e-300))
    VT = V.swapaxes(-1, -2)
    return Z @ (V / s[..., None, :] @ VT), V, s


def pull_back(X: Array, V: Array, s: Array, G: Array) -> Array:
    """The gradient by Z of f(polar(Z)), from the gradient G of f at X."""
    VT, XT = V.swapaxes(-1, -2), X.swapaxes(-1, -2)
    XG = XT @ G
    A = VT @ (XG - XG.swapaxes(-1, -2)) @ V  # 2 VᵀAV
    A /= s[..., :, None] + s[..., None, :]
    return (G - X @ XG) @ (V / s[..., None, :] @ VT) + X @ (V @ A @ VT)


def _lbfgs(meter: Meter, X0: Array) -> Array:
    def function(z: Array) -> tuple[float, Array]:
        X, V, s = polar(z.reshape(X0.shape))
        f, G = meter.value_and_gradient(X)
        return f, pull_back(X, V, s, G).ravel()

    z = restarted(meter, function, X0.ravel(), jac=True, method="L-BFGS-B", options=LBFGS)
    return polar(z.reshape(X0.shape))[0]


# -- eigensolvers, on the plain eigenproblems of a diagonal matrix -----------------------------


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


SOLVERS = {"scipy-lbfgs": _lbfgs, "lobpcg": _lobpcg, "arpack": _arpack}
