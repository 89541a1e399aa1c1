"""The learned metric at work: φ of a gradient, and ⟨y, φ(y)⟩ of a step."""

from __future__ import annotations

import math
from operator import attrgetter, mul
from typing import Any

from stiefel.geometry.compiled import faster
from stiefel.geometry.framed_ray import Split
from stiefel.geometry.metric import squared_change as change
from stiefel.geometry.ray import Secant
from stiefel.types import Array, Manifold, Metric

from .learned_metric import Learned
from .leaves import pairs_of, squared_length_of
from .problem import Problem, array_kernels

_metric, _scale = attrgetter("metric"), attrgetter("scale")


def metric_of(geometry: Manifold, learned: tuple[Learned, ...]) -> Any:
    """In the form that the geometry takes: one metric, or one a leaf."""
    if not hasattr(geometry, "factors"):
        return learned[0].metric
    return tuple(map(_metric, learned))


def raised_by_learned(
    problem: Problem,
    x: Array,
    learned: tuple[Learned, ...],
    aux: Any,
    overwrite: bool,
    G: Array,
) -> Array:
    """φ(G), a tangent, in the preconditioner's metric or in the learned one.

    With ``overwrite`` it may take the place of G.
    """
    geometry = problem.geometry
    if problem.precond is not None:
        T = geometry.raise_index(x, problem.preconditioned(x, G, aux))
        if geometry.dot(G, T) > 0:
            return T
        # A preconditioner that is not positive here is left aside, as in every other method.
    raise_index = geometry.raise_onto if overwrite else geometry.raise_index
    return raise_index(x, G, metric_of(geometry, learned))


def learned_squared_change(
    problem: Problem, x: Array, pair: Secant, learned: tuple[Learned, ...], aux: Any
) -> float:
    """⟨y, φ(y)⟩ of the change y of the gradient along a step to x."""
    geometry, y = problem.geometry, pair.y
    if problem.precond is None:
        if not isinstance(y, tuple):
            metric = learned[0].metric
            return metric.scale * leaf_change(geometry, x, pair, metric)
        metrics = metric_of(geometry, learned)
        changes = map(leaf_change, geometry.factors, x, pairs_of(pair), metrics)  # type: ignore[attr-defined]
        return math.fsum(map(mul, map(_scale, metrics), changes))
    return float(geometry.dot(y, raised_by_learned(problem, x, learned, aux, False, y)))


def squared_length(geometry: Manifold, pair: Secant) -> float:
    """⟨y, y⟩ of the change y of the gradient along a step."""
    if not pair.leaves:
        return squared_length_of(geometry, pair)
    factors = geometry.factors  # type: ignore[attr-defined]
    return math.fsum(map(squared_length_of, factors, pair.leaves))


def leaf_change(factor: Manifold, x: Array, pair: Secant, metric: Metric) -> float:
    if pair.square is not None:
        return float(pair.square)
    if pair.curvature is None:
        return factor.dot(pair.y, factor.raise_index(x, pair.y, metric))
    k, omega = array_kernels(factor, x), 0.0 if metric.horizontal else metric.omega
    if isinstance(pair.curvature, Split):
        return pair.curvature.squared_change(omega)
    if len(x.shape) == 2 and (fast := faster(k, x)):
        return float(fast.squared_change(k, pair.curvature, metric.D, omega))
    return float(change(k, pair.curvature, metric.D, omega, metric.scales))
