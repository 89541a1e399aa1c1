"""The solver of `jax_solve`, which recognises functions tr(XᵀAXM) and leaps to their minima.

What is looked for, and how, is told in `quadratic`.  Problems in the slots of a pool start at
different times: all write into the same row of a ring, and each reads the rows that are its own.
Those that have seen enough are looked at in small groups, because a look costs as much as several
evaluations, and few problems are due at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular

from stiefel.types import Array, Leaves

from .jax_many import JaxMany
from .leaves import small_real_matrices
from .quadratic import LARGEST_N, MOST_POINTS, columns, exact_at, minimum, operator, points_needed
from .solver import ManyLBFGS
from .state import State

TOGETHER = 4  # problems in one look
BETWEEN = 3  # evaluations from one look to the next, while f has the symmetry
GATE_OF_A = 1e-5  # the part of A that may be asymmetric: what a target lacks, the next one has
ENOUGH_FOR_D = 4  # points: D has few entries, and all points are asked whether they agree


class RingModel(NamedTuple):
    """What is known about the structure of every problem: `TraceModel` with a ring."""

    points: Array  # (B, P, kn), transposed
    gradients: Array  # Euclidean and scaled
    row: Array  # where the next point goes, a number
    count: Array  # (B,), of the points of each problem
    target: Array
    leaps: Array
    open: Array


def renewed(model: RingModel | None, mask: Array) -> RingModel | None:
    """Nothing is known about the problems of the mask; the ring stays."""
    if model is None:
        return None
    return model._replace(
        count=jnp.where(mask, 0, model.count), leaps=model.leaps & ~mask, open=model.open | mask
    )


@dataclass(frozen=True)
class JaxLBFGS(ManyLBFGS):
    """`ManyLBFGS` for JAX."""

    def _nothing_seen(self, x: Array, none: Array) -> RingModel:
        count, n, k = x.shape
        rows = MOST_POINTS * points_needed(n, k)
        ring = jnp.zeros((count, rows, n * k), x.dtype)
        return RingModel(ring, ring, jnp.asarray(0), 0 * jnp.asarray(none, int), x, none, ~none)

    def _recognise(self, s: State, X: Leaves, E: Leaves, leapt: Array) -> State:
        model = s.model
        if not isinstance(model, RingModel):
            return s
        k, (x,), row, rows = self.k, s.x, model.row, model.points.shape[1]
        gradient = k.spread_out(s.scale, E[0]) * E[0]
        points = k.put(model.points, 1, row, k.flat(X[0].mT))
        gradients = k.put(model.gradients, 1, row, k.flat(gradient.mT))
        count, needed = model.count + 1, points_needed(*x.shape[1:])
        due = ((count - needed) % BETWEEN == 0) | leapt
        look = model.open & (s.status < 0) & (count >= needed) & due
        own = (row - jnp.arange(rows)) % rows < count[:, None]
        arrays, none = (points, gradients, own, X[0], gradient, x), s.fresh & ~s.fresh
        assert isinstance(k, JaxMany)
        target, leaps, fits = k.on_few(look, _targets, arrays, (model.target, none, none), TOGETHER)
        still = jnp.where(look, fits & (count < rows), model.open)
        row = (row + 1) % rows
        return s._replace(model=RingModel(points, gradients, row, count, target, leaps, still))


def _targets(
    U: Array, V: Array, own: Array, X: Array, E: Array, x: Array
) -> tuple[Array, Array, Array]:
    """As `recognised`; rows of other problems are zero.  X and E are the newest point, again."""
    shape = (*own.shape, *x.mT.shape[1:])
    U, V = (jnp.where(own[:, :, None], a, 0.0).reshape(shape) for a in (U, V))
    few = max(1, points_needed(*x.shape[1:]) // ENOUGH_FOR_D)
    *_, D, fits = columns(U[:, ::few], V[:, ::few])
    none = jnp.zeros_like(fits)
    A, known = jax.lax.cond(
        jnp.any(fits),
        lambda: operator(U, D[:, None] @ V, solve_triangular, GATE_OF_A),
        lambda: (jnp.zeros((*none.shape, *2 * x.shape[1:2])), none),
    )
    known = fits & known
    # A solves all equations as well as their conditioning lets it, those of the newest point to the
    # last digit: where the target of before was not good enough, the next one is.
    Y, regular = jax.lax.cond(
        jnp.any(known), lambda: minimum(exact_at(A, X, E @ D), D, x), lambda: (x, none)
    )
    return Y, known & regular, fits


def recognises(leaves: tuple[object, ...], x: Leaves) -> bool:
    """On one processor: decompositions of small matrices are slow elsewhere."""
    here = jax.default_backend() == "cpu" and jax.device_count() == 1
    return here and small_real_matrices(leaves, x, LARGEST_N)
