"""Row models of the leaves of a tree, each with an operator of its own.

A leaf is modelled as a single matrix would be, with the others where they are.  What they do to its
gradient makes its pairs asymmetric: where leaves are coupled, none is recognised as exact, and one
that has been goes off.  So H is a block for each exact leaf, and L-BFGS on the rest of the tree:

    −H∇f = (−H_i ∇_i f for exact leaves i,  −H_rest ∇_rest f),

with pairs, γ and metric of the rest alone.  Pairs of all leaves would be spoilt by the steps of the
exact ones, which are no sample of curvature.  Within the rest, inexact models take the place of the
metric on their leaves.  Each exact model bounds the step of its own leaf.

The matrices of a stack are leaves, too, but of one metric: there are models for all of them, which
are exact and begin with the same step, or for none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np

from stiefel.backends.arrays import kernels_for
from stiefel.geometry.product import Product
from stiefel.geometry.ray import Secant, pair_of_leaves
from stiefel.types import Array, Cotangent, Gradient, Leaves, Manifold, Point, Tangent

from .learned_metric import Learned, LearnedMetric
from .leaves import pairs_of, parts_of
from .memory import NOTHING, Pairs, apply_inverse, no_pairs, remember, smoothed
from .problem import Problem
from .raising import learned_squared_change, raised_by_learned, squared_length
from .row_model import GIVEN_UP, OFF, RowModel, Rows
from .row_recognition import Looking, StepEnds
from .secant_search import SearchStep

WAITS = 1e-4  # part of the gradient below which an exact leaf stays where it is
MOST_MATRICES = 16  # of a stack: each model costs as much as that of a single matrix


@dataclass(frozen=True)
class LeafProblem(Problem):
    """A leaf as a problem of its own, the others where they are."""

    whole: Problem | None = None
    others: Leaves = ()
    which: int = 0

    def gradient(self, Y: Array, value: float | None = None) -> Gradient:
        assert self.whole is not None
        X = (*self.others[: self.which], Y, *self.others[self.which + 1 :])
        return leaf_of(self.whole.gradient(X, value), self.which)


class SomeLeaves(NamedTuple):
    """Some leaves of a tree, as a tree of their own."""

    which: tuple[int, ...]

    def of(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(leaves[i] for i in self.which)

    def problem(self, problem: Problem) -> Problem:
        return replace(problem, geometry=Product(self.of(_factors(problem.geometry))))

    def part_of(self, at: Gradient) -> Gradient:
        """What is known of these leaves."""
        G, rotation, level = (self.of(leaves) for leaves in (at.G, at.rotation, at.level))
        return at._replace(G=G, rotation=rotation, level=level)

    def pair(self, pair: Secant) -> Secant:
        return pair_of_leaves(self.of(pairs_of(pair)))

    def put(self, leaves: Sequence[Any], new: Sequence[Any]) -> tuple[Any, ...]:
        """``leaves`` with ``new`` in the place of these."""
        changed = dict(zip(self.which, new, strict=True))
        return tuple(changed.get(i, leaf) for i, leaf in enumerate(leaves))


def leaf_of(at: Gradient, i: int) -> Gradient:
    """What is known of one leaf."""
    f, G, norm, aux, rotation, finite, level = at
    return Gradient(f, G[i], norm, aux, rotation[i], finite, level[i])


def rest_of(rows: Rows) -> SomeLeaves:
    """The leaves without an exact model."""
    return SomeLeaves(tuple(i for i, leaf in enumerate(rows.leaves) if not leaf.exact))


def unmodelled(rows: Rows) -> SomeLeaves:
    """The leaves without a model."""
    return SomeLeaves(tuple(i for i, leaf in enumerate(rows.leaves) if not leaf.on))


def with_columns(learned: tuple[Learned, ...], rows: Rows, x: Point) -> tuple[Learned, ...]:
    """The metrics with the D of exact models; a stack keeps its own."""
    if len(learned) < len(rows.leaves):
        return learned
    parts = zip(learned, rows.leaves or (rows,), parts_of(x), strict=True)
    return tuple(
        leaf._replace(metric=leaf.metric._replace(D=kernels_for(X).asarray(known.columns.D, X)))
        if (known := own.known) is not None and known.exact
        else leaf
        for leaf, own, X in parts
    )


def looking_at_leaves(model: RowModel, geometry: Manifold, X: Leaves, at: Gradient) -> Rows:
    """Nothing known yet; given up at once where no leaf can be modelled."""
    if at.level is None or (not isinstance(X, tuple) and not _is_small_stack(geometry, X)):
        return GIVEN_UP
    if not isinstance(X, tuple):  # no inexact models: no use in looking again and again
        ended = model.init(geometry, X[0], leaf_of(at, 0)).ended
        return GIVEN_UP if ended else Rows(None, None, (Rows(Looking(inexact=False)),) * len(X))
    parts = enumerate(zip(_factors(geometry), X, strict=True))
    leaves = tuple(model.init(factor, x, leaf_of(at, i)) for i, (factor, x) in parts)
    gone = all(leaf == GIVEN_UP for leaf in leaves)
    return GIVEN_UP if gone else Rows(None, None, leaves)


def _is_small_stack(geometry: Manifold, X: Array) -> bool:
    numpy = getattr(getattr(geometry, "kernels", None), "pure_numpy", False)
    return numpy and X.ndim == 3 and len(X) <= MOST_MATRICES


def observed(
    model: RowModel, problem: Problem, rows: Rows, ends: StepEnds, learned: tuple[Learned, ...]
) -> Rows:
    """What is known after one more step, leaf by leaf."""
    X0, at0, X, at = ends
    factors, spans = _factors(problem.geometry, X), _spans(learned, rows)
    pairs = zip(spans, rows.leaves, strict=True)
    stack = not isinstance(X, tuple)
    inexact = not stack and all(span or leaf.exact for span, leaf in pairs)
    strict = model if inexact else _exact_only(model, 1 if stack else model.widest)

    def leaf(i: int, old: Rows) -> Rows:
        own = StepEnds(X0[i], leaf_of(at0, i), X[i], leaf_of(at, i))
        if old.ended:
            return old
        if old.exact and _waits(factors[i], at0, i):
            return model.seen_again(factors[i], old, own.at)
        alone = LeafProblem(factors[i], problem.objective, whole=problem, others=X, which=i)
        return (model if old.on else strict).observe(alone, old, own, spans[i])

    if stack:
        return _together(rows, map(leaf, range(len(rows.leaves)), rows.leaves))
    leaves = tuple(leaf(i, old) for i, old in enumerate(rows.leaves))
    gone = not rows.on and all(leaf.ended for leaf in leaves)
    return GIVEN_UP if gone else Rows(None, None, leaves)


def _together(rows: Rows, looks: Iterable[Rows]) -> Rows:
    """Of a stack: those that are recognised before the others are looked at again.

    After one that is given up there is no need to look at the rest.
    """
    leaves: tuple[Rows, ...] = ()
    for leaf in looks:
        if leaf.ended or (rows.on and not leaf.on):
            return GIVEN_UP
        leaves = (*leaves, leaf)
    if not all(leaf.on for leaf in leaves):
        both = zip(rows.leaves, leaves, strict=True)
        leaves = tuple(old if new.on else new for old, new in both)
    return Rows(None, None, leaves)


@cache
def _exact_only(model: RowModel, widest: int) -> RowModel:
    """Inexact models lose beside leaves without any (Kohn–Sham and a quartic: 16 % more)."""
    return replace(model, nearly=1e-300, widest=widest)


class Keeper(Protocol):
    """L-BFGS, as far as it is asked here."""

    @property
    def metric(self) -> LearnedMetric | None: ...
    @property
    def caution(self) -> float: ...
    def pairs_like(self, geometry: Manifold, G: Cotangent) -> int: ...


def kept_of_rest(
    keeper: Keeper,
    problem: Problem,
    taken: SearchStep,
    before: tuple[Rows, tuple[int, ...], float],
    pairs: Pairs,
    learned: tuple[Learned, ...],
    rows: Rows,
) -> tuple[Pairs, tuple[Learned, ...], float]:
    """Pairs, metrics and γ of the leaves that have no exact model, after one more step.

    ``before`` it: the models, the rows of pairs in use, and γ.
    """
    rest, (old, needed, gamma) = rest_of(rows), before
    if not rest.which:
        return NOTHING, learned, gamma
    apart = rest.problem(problem)
    if rest != rest_of(old):  # their pairs are those of other leaves
        learned, needed = with_columns(learned, old, taken.X), ()
        geometry, G = apart.geometry, rest.of(taken.at.G)
        pairs = no_pairs(geometry, G, keeper.pairs_like(geometry, G))
    x, pair = rest.of(taken.X), rest.pair(taken.pair)
    if keeper.metric:
        seen = keeper.metric.observe(apart.geometry, x, pair, rest.of(learned))
        learned = rest.put(learned, seen)
    sy, ss = apart.geometry.dot(pair.s, pair.y), apart.geometry.dot(pair.s, pair.s)
    if sy > keeper.caution * math.sqrt(ss * squared_length(apart.geometry, pair)):
        pairs = remember(apart.geometry, pairs, pair.s, pair.y, sy, needed)
        square = learned_squared_change(apart, x, pair, rest.of(learned), None)
        gamma = smoothed(gamma, sy / square) if square > 0 else gamma
    return pairs, learned, gamma


def direction_of_leaves(
    model: RowModel,
    otherwise: Callable[..., Tangent],
    problem: Problem,
    x: Leaves,
    at: Gradient,
    pairs: Pairs,
    learned: tuple[Learned, ...],
    gamma: float,
    rows: Rows,
    longest: float,
) -> Tangent:
    """−H_i∇f of the leaves with exact models, and −H∇f of the rest; ``otherwise`` without any."""
    rest, leaves = rest_of(rows), (model, problem.geometry, rows, x, at, learned)
    T = exact_directions(*leaves, longest)
    if not rest.which:
        return T if isinstance(x, tuple) else np.stack(T)
    known = rest.of(x), rest.part_of(at), pairs, rest.of(learned), gamma
    apart, rows = rest.problem(problem), Rows(None, None, rest.of(rows.leaves))
    if not rows.on:
        return rest.put(T, otherwise(apart, *known, OFF))
    return rest.put(T, inexact_directions(model, apart, *known, rows))


def exact_directions(
    model: RowModel,
    geometry: Manifold,
    rows: Rows,
    x: Leaves,
    at: Gradient,
    learned: tuple[Learned, ...],
    longest: float,
) -> tuple[Tangent, ...]:
    """−H∇f of the leaves with exact models, none longer than ``longest``; None for the others."""
    spans = _spans(learned, rows)

    def leaf(i: int, factor: Manifold, known: Any) -> Tangent:
        if known is None or not known.exact:
            return None
        if _waits(factor, at, i):
            return factor.scale(0.0, at.G[i])
        T = model.direction(factor, known, NOTHING, x[i], leaf_of(at, i), spans[i])
        return bounded(factor, T, longest)

    leaves = enumerate(zip(_factors(geometry, x), rows.leaves, strict=True))
    return tuple(leaf(i, factor, own.known) for i, (factor, own) in leaves)


def inexact_directions(
    model: RowModel,
    problem: Problem,
    x: Leaves,
    at: Gradient,
    pairs: Pairs,
    learned: tuple[Learned, ...],
    gamma: float,
    rows: Rows,
) -> Tangent:
    """−H∇f of leaves of which some have inexact models: these are H₀ there, and γφ elsewhere."""
    geometry, own = problem.geometry, unmodelled(rows)
    apart = own.problem(problem)

    def phi(G: Cotangent) -> Tangent:
        leaves = zip(_factors(geometry), rows.leaves, x, G, strict=True)
        T = tuple(leaf.known and model.raised(f, leaf.known, X, g) for f, leaf, X, g in leaves)
        r = raised_by_learned(apart, own.of(x), own.of(learned), None, False, own.of(G))
        return own.put(T, apart.geometry.scale(gamma, r))

    if pairs.in_use:
        return apply_inverse(geometry, pairs, at.G, 1.0, phi, True)
    return geometry.scale(-1.0, phi(at.G))


def _waits(factor: Manifold, at: Gradient, i: int) -> bool:
    """Whether a leaf is so much nearer to its minimum that its next step would be rounding."""
    return factor.dot(at.G[i], at.G[i]) <= (WAITS * at.norm) ** 2


def bounded(factor: Manifold, T: Tangent, longest: float) -> Tangent:
    """T, or what is left of it within ``longest``."""
    return factor.scale(min(1.0, longest / (factor.bounded_length(T) or longest)), T)


def _factors(geometry: Manifold, X: Any = ()) -> tuple[Any, ...]:
    """The manifolds of the leaves, or of the matrices of a stack."""
    return getattr(geometry, "factors", None) or (geometry,) * len(X)


def _spans(learned: tuple[Learned, ...], rows: Rows) -> list[bool]:
    """Whether f is a function of the span, leaf by leaf; a stack has one answer."""
    each = [leaf.metric.horizontal for leaf in learned]
    return each if len(each) == len(rows.leaves) else each * len(rows.leaves)
