"""Many problems through few slots: what a mapped `stiefel.jax.minimize` does on a processor.

A loop over all problems at once ends with the slowest, and its memory does not fit into a cache.
Here a loop works on WIDTH problems; when some of them have ended, their results are written down
and the next problems take their slots.  The course of a problem does not depend on the others.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from stiefel.types import Array, Leaves

from .memory import forget
from .solver import ManyLBFGS
from .state import State

WIDTH = 96  # slots: the pairs of so many problems with 30×3 matrices fill 1.4 megabytes
REFILL = 16  # slots that are refilled together


class Pool(NamedTuple):
    """The slots, and the results so far."""

    state: State
    constants: tuple[Array, ...]  # of the function, for the problems in the slots
    index: Array  # of the problem in each slot; the number of problems for none
    waiting: Array  # the next problem
    found: Any  # results of all problems


def use_pool(problems: int) -> bool:
    """Whether slots are worth their while: an accelerator likes everything at once."""
    return problems > WIDTH and jax.default_backend() == "cpu" and jax.device_count() == 1


def run_pool(
    solver: ManyLBFGS,
    evaluate: Callable[..., Any],
    x: Leaves,
    constants: tuple[Array, ...],
    mapped: tuple[bool, ...],
    results: Callable[[State], Any],
) -> Any:
    """``results`` of all problems; ``evaluate(constants, X)`` for the problems in the slots."""
    total = x[0].shape[0]

    def of(rows: Array) -> tuple[Array, ...]:
        return tuple(c[rows] if m else c for c, m in zip(constants, mapped, strict=True))

    def going(pool: Pool) -> Array:
        return jnp.any(pool.index < total)

    def body(pool: Pool) -> Pool:
        step = partial(solver.step, partial(evaluate, pool.constants))
        taken = jnp.sum(pool.index < total)
        least = taken - jnp.where(pool.waiting < total, jnp.minimum(REFILL, taken), taken)

        def busy(state: State) -> Array:
            return jnp.sum(state.status < 0) > least

        return exchanged(pool._replace(state=jax.lax.while_loop(busy, step, pool.state)))

    def exchanged(pool: Pool) -> Pool:
        """Results of the slots that have ended, which go to the next problems."""
        ended = (pool.state.status >= 0) & (pool.index < total)
        place = jnp.where(ended, pool.index, total)
        found = jax.tree_util.tree_map(
            lambda all_, new: all_.at[place].set(new, mode="drop"),
            pool.found,
            results(pool.state),
        )
        next_one = jnp.minimum(pool.waiting + jnp.cumsum(ended) - 1, total)
        index = jnp.where(ended, next_one, pool.index)
        rows = jnp.minimum(index, total - 1)
        state = _restarted(solver, ended & (index < total), tuple(a[rows] for a in x), pool.state)
        return Pool(state, of(rows), index, pool.waiting + jnp.sum(ended), found)

    index = jnp.arange(WIDTH)
    start = solver.init(tuple(a[:WIDTH] for a in x))
    found = jax.tree_util.tree_map(
        lambda a: jnp.zeros((total, *a.shape[1:]), a.dtype), results(start)
    )
    first = Pool(start, of(index), index, jnp.asarray(WIDTH), found)
    return jax.lax.while_loop(going, body, first).found


def _restarted(solver: ManyLBFGS, mask: Array, x: Leaves, state: State) -> State:
    """New problems in the slots of the mask; blocks of pairs stay where they are."""
    nothing: Any = None
    fresh, old = (s._replace(memory=nothing) for s in (solver.init(x), state))
    mixed: State = solver.k.choose(mask, fresh, old)
    return mixed._replace(memory=forget(solver.k, state.memory, mask))
