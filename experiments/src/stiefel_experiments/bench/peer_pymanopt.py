"""pymanopt's solvers with its own Stiefel manifold (Euclidean metric, QR retraction).

Tolerances are switched off, except that a step of length zero ends a run: the meter stops it.
"""

from __future__ import annotations

import math
from typing import Any

import pymanopt
from pymanopt.manifolds import Stiefel
from pymanopt.optimizers import ConjugateGradient, SteepestDescent, TrustRegions

from stiefel.types import Array

from .meter import Meter

_FOREVER = {
    "max_time": math.inf,
    "max_iterations": 10**9,
    "min_gradient_norm": 0.0,
    "min_step_size": 1e-300,
    "max_cost_evaluations": 10**12,
    "verbosity": 0,
}


def _solve(optimizer: Any, meter: Meter, X0: Array) -> Array:
    *stack, n, k = X0.shape
    manifold = Stiefel(n, k, k=stack[0] if stack else 1)
    on = pymanopt.function.numpy(manifold)

    @on
    def cost(X):  # type: ignore[no-untyped-def]
        return meter.value(X)

    @on
    def gradient(X):  # type: ignore[no-untyped-def]
        return meter.gradient(X)

    @on
    def hessian(X, V):  # type: ignore[no-untyped-def]
        return meter.hessp(X, V)

    problem = pymanopt.Problem(
        manifold, cost, euclidean_gradient=gradient, euclidean_hessian=hessian
    )
    result = optimizer.run(problem, initial_point=X0)
    meter.iterations, meter.message = result.iterations, result.stopping_criterion
    return result.point


SOLVERS = {
    "pymanopt-cg-hs": lambda meter, X0: _solve(
        ConjugateGradient(beta_rule="HestenesStiefel", **_FOREVER), meter, X0
    ),
    "pymanopt-cg-pr": lambda meter, X0: _solve(
        ConjugateGradient(beta_rule="PolakRibiere", **_FOREVER), meter, X0
    ),
    "pymanopt-trust-regions": lambda meter, X0: _solve(TrustRegions(**_FOREVER), meter, X0),
    "pymanopt-steepest": lambda meter, X0: _solve(SteepestDescent(**_FOREVER), meter, X0),
}
