"""Functions tr(XᵀAXM) recognised inside compiled code: `quadratic` for problems out of step.

Problems in the slots of a pool start at different times, so that each has its own count.  Where
the start and a trial say that f may be such a function, it is evaluated at all points that complete
the start inside the same turn: a turn of the solver costs as much as five evaluations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from stiefel.types import Array, Leaves

from .jax_many import JaxMany
from .leaves import small_real_matrices
from .quadratic import (
    LARGEST_N,
    Recogniser,
    completed,
    evaluations_before,
    evaluations_needed,
    fits,
    points_needed,
    recognised,
)
from .solver import ManyLBFGS
from .state import Evaluate, Limits, State

TOGETHER = 16  # problems whose A is looked at together


class FirstPoint(NamedTuple):
    """What is known about the structure of every problem: `TraceModel` without its points."""

    point: Array  # (B, n, k)
    gradient: Array  # there, Euclidean and scaled
    count: Array  # (B,), of evaluations
    due: Array  # (B,), whether the other points are to be asked for now
    target: Array  # where f is least
    leaps: Array  # (B,), whether the next evaluation is there
    open: Array  # (B,), whether f may have the structure
    gamma: Array  # (B,), the inverse of the largest curvature

    @property
    def complete(self) -> bool:
        """Targets are where functions are least: the points on the way are none."""
        return True


@dataclass(frozen=True)
class JaxRecogniser(Recogniser):
    """`Recogniser` for JAX."""

    def start(self, x: Array, none: Array) -> Any:
        zero = jnp.zeros(len(none), x.dtype)
        return FirstPoint(x, 0.0 * x, self.k.integers(none), none, x, none, ~none, zero)

    def after(self, model: Any, X: Array, E: Array, scale: Array, running: Array) -> Any:
        k, look, G = self.k, model.open & running, self.k.spread_out(scale, E) * E
        gradient = k.choose(look & (model.count == 0), G, model.gradient)
        last = look & (model.count == evaluations_before(points_needed(*X.shape[1:])))
        two = model.point, gradient, X, G
        (due,) = k.on_some(last, _fit, two, (last & ~last,))
        count = model.count + k.integers(look)
        return model._replace(gradient=gradient, count=count, due=due, open=model.open & ~last)


def _fit(x: Array, G: Array, X: Array, E: Array) -> tuple[Array]:
    return (fits(jnp.stack([x, X], axis=1), jnp.stack([G, E], axis=1)),)


@dataclass(frozen=True)
class JaxLBFGS(ManyLBFGS):
    """`ManyLBFGS`, which evaluates problems that may be recognised several times in a turn."""

    def step(self, evaluate: Evaluate, s: State) -> State:
        s = super().step(evaluate, s)
        if s.model is None:
            return s
        model, default = s.model, (s.model.target, s.model.leaps, s.model.gamma)
        due = model.due & (s.status < 0)

        def minima() -> tuple[Array, Array, Array]:
            return self._minima(evaluate, due, s)

        target, leaps, gamma = jax.lax.cond(jnp.any(due), minima, lambda: default)
        more = points_needed(*model.point.shape[1:]) - 1
        books = s.books._replace(nfev=s.books.nfev + more * self.k.integers(due))
        model = model._replace(target=target, leaps=leaps, gamma=gamma)
        return s._replace(model=model, books=books)

    def _minima(self, evaluate: Evaluate, due: Array, s: State) -> tuple[Array, Array, Array]:
        """Where functions are least, whether that is known, and 1/max curvature."""
        k, model, points = self.k, s.model, completed(s.model.point)
        assert isinstance(k, JaxMany)
        E = jax.lax.map(lambda X: evaluate((X,))[1][0], jnp.moveaxis(points[:, 1:], 1, 0))
        gradients = jnp.concat([model.gradient[None], k.spread_out(s.scale, E[0]) * E])
        arrays = points, jnp.moveaxis(gradients, 0, 1)
        default = model.target, model.leaps, model.gamma
        return k.on_few(due, recognised, arrays, default, TOGETHER)


def recogniser(leaves: tuple[Any, ...], limits: Limits, x: Leaves) -> JaxRecogniser | None:
    """On one processor: decompositions of small matrices are slow elsewhere."""
    here = jax.default_backend() == "cpu" and jax.device_count() == 1
    if not here or not small_real_matrices(leaves, x, LARGEST_N):
        return None
    enough = limits.maxfun >= evaluations_needed(*x[0].shape[1:])
    return JaxRecogniser(leaves[0].k) if enough else None
