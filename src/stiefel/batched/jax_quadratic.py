"""Functions tr(XᵀAXM) recognised inside compiled code: `quadratic` for problems out of step.

Problems in the slots of a pool start at different times, so that each has its own count.  Those
that are due are looked at in small groups, because a look costs as much as several evaluations,
and few problems are due at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from stiefel.types import Array, Leaves

from .jax_many import JaxMany
from .leaves import small_real_matrices
from .quadratic import (
    LARGEST_N,
    Recogniser,
    TraceModel,
    completed,
    evaluations_before,
    points_needed,
    recognised,
)
from .quadratic import fits as fit

TOGETHER = 4  # problems in one look


def renewed(model: TraceModel | None, mask: Array, x: Array) -> TraceModel | None:
    """Nothing is known about the problems of the mask, which start at x."""
    if model is None:
        return None
    start = jnp.where(mask[:, None, None], x, model.points[:, 0])
    return model._replace(
        points=model.points.at[:, 0].set(start),
        count=jnp.where(mask, 0, model.count),
        leaps=model.leaps & ~mask,
        open=model.open | mask,
    )


@dataclass(frozen=True)
class JaxRecogniser(Recogniser):
    """`Recogniser` for JAX."""

    def start(self, x: Array, none: Array) -> TraceModel:
        count, n, k = x.shape
        points = jnp.zeros((count, points_needed(n, k), n, k), x.dtype)
        number, zero = jnp.asarray(none, int), jnp.zeros(count, x.dtype)
        return TraceModel(points.at[:, 0].set(x), points, number, x, none, ~none, zero)

    def after(
        self, model: TraceModel, X: Array, E: Array, scale: Array, running: Array
    ) -> TraceModel:
        k, count, P = self.k, model.count, model.points.shape[1]
        assert isinstance(k, JaxMany)
        look, none, G = model.open & running, running & ~running, k.spread_out(scale, E) * E
        seen = count - evaluations_before(P)  # points beside the start
        row = jnp.where(look & ((count == 0) | (seen > 0)), jnp.maximum(seen, 0), P)
        gradients = model.gradients.at[jnp.arange(len(row)), row].set(G, mode="drop")

        first, last = look & (seen == 0), look & (seen == P - 1)
        two = model.points, gradients, X, G
        points, fits = k.on_few(first, _points, two, (model.points, none), TOGETHER)
        still = jnp.where(first, fits, look)
        ended = (points, gradients), (model.target, none, model.gamma)
        least, known, gamma = k.on_few(last & still, recognised, *ended, TOGETHER)
        still = jnp.where(last, known, still)
        following = points[jnp.arange(len(row)), jnp.clip(seen + 1, 0, P - 1)]
        target = k.choose(seen < P - 1, following, least)
        leaps = still & (seen >= 0)
        return TraceModel(points, gradients, count + 1, target, leaps, still, gamma)


def _points(points: Array, gradients: Array, X: Array, E: Array) -> tuple[Array, Array]:
    x, G = points[:, 0], gradients[:, 0]
    return completed(x), fit(jnp.stack([x, X], axis=1), jnp.stack([G, E], axis=1))


def recognises(leaves: tuple[object, ...], x: Leaves) -> bool:
    """On one processor: decompositions of small matrices are slow elsewhere."""
    here = jax.default_backend() == "cpu" and jax.device_count() == 1
    return here and small_real_matrices(leaves, x, LARGEST_N)
