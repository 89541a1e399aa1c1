"""geoopt's optimisers with its Euclidean Stiefel manifold; the canonical one solves n × n systems.

Gradients come from the meter and are put where autograd would put them, which saves geoopt the
backward pass.  RiemannianSGD has no rule for its step: it is told 1/L with the largest curvature L
of f at a minimiser found beforehand (neither counted nor timed), and a momentum near the best for
the problem's condition number.
"""

from __future__ import annotations

import warnings
from typing import Any

import geoopt
import torch

import stiefel
from stiefel.types import Array

from .meter import Meter


def _parameter(X0: Array) -> Any:
    manifold = geoopt.EuclideanStiefel()
    return geoopt.ManifoldParameter(torch.from_numpy(X0.copy()), manifold=manifold)


def _closure(meter: Meter, X: Any) -> Any:
    def closure() -> float:
        f, G = meter.value_and_gradient(X.detach().numpy())
        X.grad = torch.from_numpy(G)
        return f

    return closure


def _nesterov(meter: Meter, X0: Array) -> Array:
    X = _parameter(X0)
    curvature = meter.untimed(lambda: largest_curvature(meter, X0))
    optimizer = geoopt.optim.RiemannianSGD(
        [X], lr=1 / curvature, momentum=meter.problem.momentum, nesterov=True, stabilize=100
    )
    closure = _closure(meter, X)
    while True:
        optimizer.step(closure)


def _conjugate(meter: Meter, X0: Array) -> Array:
    X = _parameter(X0)
    optimizer = geoopt.optim.RiemannianLineSearch(
        [X], line_search_method="wolfe", cg_method="pr", fallback_stepsize=0.0
    )
    closure = _closure(meter, X)
    misses = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while misses < 10:
            optimizer.step(closure)
            misses = misses + 1 if optimizer.last_step_size is None else 0
    meter.message = "no step was found ten times in a row"
    return X.detach().numpy().copy()


def largest_curvature(meter: Meter, X0: Array) -> float:
    """The largest eigenvalue of the Riemannian Hessian (Euclidean metric) at a minimiser.

    A power iteration on differences of projected gradients.
    """
    f, geometry = meter.problem.objective, meter.problem.manifold.bind(X0)
    X = stiefel.minimize(f, X0, manifold=meter.problem.manifold, rtol=1e-4, maxfun=20_000).x
    G = geometry.project(X, f.value_and_gradient(X)[1])
    V = geometry.project(X, stiefel.random_point(*X.shape, seed=0))
    L, h = 1.0, 1e-6
    for _ in range(100):
        V /= float((V**2).sum()) ** 0.5
        Y = geometry.nearest(X + h * V)
        V = (geometry.project(Y, f.value_and_gradient(Y)[1]) - G) / h
        L = float((V**2).sum()) ** 0.5
    return L


SOLVERS = {"geoopt-nesterov": _nesterov, "geoopt-cg": _conjugate}
