"""SciPy's L-BFGS-B on Z ↦ f(Z(ZᵀZ)^{−1/2}): the polar factor makes the problem unconstrained.

With ZᵀZ = V diag(s²) Vᵀ, H = V diag(s) Vᵀ and X = Z H⁻¹ the gradient by Z is

    (I − XXᵀ) G H⁻¹ + X V [2 (VᵀAV)_ij / (s_i + s_j)] Vᵀ,   A = skew(XᵀG).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize

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


SOLVERS = {"scipy-lbfgs": _lbfgs}
