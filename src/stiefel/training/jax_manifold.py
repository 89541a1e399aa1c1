"""Steps of orthonormal parameters as an optax transformation, for any rule that gives a direction.

At a parameter X a rule turns the gradient G and what it remembers into a tangent direction D; the
step is X' = R(X, −ηD) with the polar retraction of `formulas`, and the updates are X' − X.
Adding them gives X' to rounding, and the next step measures XᴴX and mends what rounding has left,
so that nothing accumulates.  All matrices of one shape are one stack.

The momentum has the shape of the parameter, so that it is sharded as the parameter is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax

from stiefel.types import Array

from .formulas import polar, second_moment, tangent
from .jax_marks import Marks, View
from .jax_masters import structure_of

Scalar = Any  # a Python number or an array without axes
Rate = Scalar | Callable[[Array], Scalar]


class RuleMemory(NamedTuple):
    """What a rule remembers of a stack of matrices."""

    momentum: Array  # (m, n, k)
    square: Array  # (m, 1, 1), or larger: see `formulas.second_moment`


class Place(NamedTuple):
    """A stack of points with XᴴX = s²I."""

    X: Array
    one: Array
    scale: float

    def tangent(self, A: Array) -> Array:
        return tangent(self.X, A, self.scale)

    def retracted(self, V: Array) -> Array:
        return polar(self.X, V, self.one, self.scale)


class DirectionRule(Protocol):
    """The direction D and the new memory at a place with gradient G; ``t`` counts from 1."""

    def __call__(
        self, at: Place, G: Array, memory: RuleMemory, t: Array
    ) -> tuple[Array, RuleMemory]: ...


class ManifoldState(NamedTuple):
    """The number of steps, the momentum and the mean square of the gradient, by parameter."""

    count: Array
    momentum: Any
    square: Any


def on_manifold(
    marks: Marks, rule: DirectionRule, rate: Rate, moment: str = "matrix"
) -> optax.GradientTransformation:
    """Steps along ``rule`` for a tree whose parameters are all orthonormal."""

    def init(params: Any) -> ManifoldState:
        squares = [
            second_moment(jnp.zeros_like(view.tall(x)), moment)
            for view, x in zip(marks.views(params), jax.tree.leaves(params), strict=True)
        ]
        momentum = jax.tree.map(jnp.zeros_like, params)
        square = structure_of(params).unflatten(squares)
        return ManifoldState(jnp.zeros([], jnp.int32), momentum, square)

    def update(grads: Any, state: ManifoldState, params: Any = None) -> tuple[Any, ManifoldState]:
        structure, t = structure_of(params), optax.safe_increment(state.count)
        eta = rate(state.count) if callable(rate) else rate
        columns = [structure.flatten_up_to(tree) for tree in (params, grads, *state[1:])]
        results: list[Any] = [None] * structure.num_leaves
        for batch in _batches(marks.views(params), columns[0]):
            for i, result in batch.step(rule, eta, t, *columns):
                results[i] = result
        trees = (structure.unflatten([r[j] for r in results]) for j in range(3))
        updates, momentum, square = trees
        return updates, ManifoldState(t, momentum, square)

    return optax.GradientTransformation(init, update)


class _Batch(NamedTuple):
    """Parameters whose matrices have one shape, type and scale; they are stepped as one stack."""

    members: list[int]
    views: list[View]

    def step(
        self,
        rule: DirectionRule,
        eta: Scalar,
        t: Array,
        x: list[Array],
        g: list[Array],
        *memory: Any,
    ) -> Iterator[tuple[int, tuple[Array, Array, Array]]]:
        """(i, (update, momentum, square)) for each member i."""
        X, G, M = (self._stack(column) for column in (x, g, memory[0]))
        v = jnp.concatenate([memory[1][i] for i in self.members])
        at = Place(X, jnp.eye(X.shape[-1], dtype=X.dtype), self.views[0].scale)
        D, after = rule(at, G, RuleMemory(M, v), t)
        new = at.retracted(-as_number(eta, X) * D)
        start = 0
        for i, view in zip(self.members, self.views, strict=True):
            part = slice(start, start := start + view.size)
            update, M = view.back(new[part] - X[part]), view.back(after.momentum[part])
            yield i, (update, M, after.square[part])

    def _stack(self, column: list[Array]) -> Array:
        parts = [v.tall(column[i]) for i, v in zip(self.members, self.views, strict=True)]
        return jnp.concatenate(parts)


def _batches(views: list[View], leaves: list[Array]) -> list[_Batch]:
    batches: dict[Any, _Batch] = {}
    for i, (view, x) in enumerate(zip(views, leaves, strict=True)):
        key = (*sorted(view.matrix), x.dtype, view.scale)
        batch = batches.setdefault(key, _Batch([], []))
        batch.members.append(i)
        batch.views.append(view)
    return list(batches.values())


def as_number(value: Scalar, like: Array) -> Scalar:
    """A number that does not change the type of arrays like ``like``."""
    return value if isinstance(value, int | float) else jnp.asarray(value, like.real.dtype)
