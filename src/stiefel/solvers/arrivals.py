"""What a step of a small tree, or of a small stack, teaches, in one compiled call.

What `LearnedMetric.observe`, `memory.remember`, γ and `aims.matrix_aim` do one after another:
between small leaves the calls take longer than they do.  Elsewhere `leaves_arrival` returns None.
"""

from __future__ import annotations

import itertools
import math
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from stiefel.geometry.compiled import has_few_columns
from stiefel.geometry.framed_ray import Split
from stiefel.geometry.product import Product
from stiefel.geometry.ray import Curvature, Secant
from stiefel.types import (
    Array,
    Cotangent,
    Curve,
    Gradient,
    Leaves,
    Manifold,
    Metric,
    NumpyArray,
    Point,
    Tangent,
)

from .aims import aimed_leaves, room_for_leaves
from .leaf_kinds import MATRIX, SPAN, leaf_kinds, matrices_of, stack_kind
from .learned_metric import Learned, LearnedMetric, one_more_step, only_turns
from .memory import Pairs, with_row
from .problem import Problem
from .raising import raised_by_learned
from .secant_search import SearchStep
from .stack_pairs import looked_at

Arrival = tuple[Pairs, tuple[Learned, ...], float, tuple[Tangent, float, Curve] | None]


class _Tree(NamedTuple):
    """A tree, or a stack as the one leaf of a tree."""

    factors: tuple[Any, ...]
    kinds: tuple[int, ...]
    sizes: tuple[int, ...]  # matrices with scales of their own, leaf by leaf
    X: Leaves
    G: Leaves
    s: Leaves
    y: Leaves
    pairs: tuple[Secant, ...]


def leaves_arrival(
    rules: LearnedMetric | None,
    c2: float,
    geometry: Manifold,
    pairs: Pairs,
    taken: SearchStep,
    least: float,
    needed: tuple[int, ...],
    gamma: float,
    learned: tuple[Learned, ...],
) -> Arrival | None:
    """Pairs, what is learned by these ``rules``, γ, and where to go.

    None where there is no such kernel, no block, or no ⟨s, y⟩ above ``least`` t‖y‖.  Matrices of a
    stack are looked at one by one, by c₂ of the search; if they are apart, where to go is open.
    """
    t, X, (_, G, *_), pair, sy, _ = taken
    tree = _tree_of(geometry, X, G, pair) if type(pairs.S) is np.ndarray else None
    if tree is None or not sy > least * t * _length(tree.pairs):
        return None
    if len(learned) == 1 and learned[0].P is None and only_turns(tree.pairs[0].curvature):
        rules = None  # there is nothing to weigh it against
    row, gone, kept = with_row(pairs, needed)
    old = tuple([leaf.metric for leaf in learned])
    room = T, *_ = room_for_leaves(tree.kinds, tree.X, tree.G, old)
    changes = None if pairs.apart is None else np.empty(tree.sizes[0])
    looks, matrices, balance = lesson = _lesson(rules, learned, tree.sizes)
    aims = pairs.apart is None or not pairs.apart.on
    ahead = tree.G, T if aims else None, tree.X, *room[1:]
    step = row, gone, sy, tree.s, tree.y, tree.pairs, looks, learned, matrices, balance, changes
    fast = tree.factors[0].kernels.compiled
    gamma, unit, facts, *aimed = fast.leaves_arrival(*kept[:4], gamma, *ahead, *step)
    if looks is not None:
        before, learned = learned, _all_taught(learned, tree, facts, lesson, unit)
        if rules is not None and not isinstance(X, tuple):
            learned = (rules.judged(geometry, X, before[0], learned[0]),)
    elif rules is not None:
        learned = one_more_step(learned)
    if pairs.apart is not None:
        kept = kept._replace(apart=pairs.apart)
        apart = looked_at(geometry, kept, G, None, c2, changes)
        kept = kept._replace(apart=apart)
        if not aims or apart.on:
            return kept, learned, gamma, None
    new = tuple([leaf.metric for leaf in learned])
    T, slope, ray = aimed_leaves(tree.factors, tree.X, new, room, *aimed)
    if isinstance(X, tuple):
        return kept, learned, gamma, (T, slope, ray)
    return kept, learned, gamma, (T[0], slope, ray.only)


def with_matrices_looked_at(
    problem: Problem,
    x: Point,
    at: Gradient,
    pairs: Pairs,
    learned: tuple[Learned, ...],
    c2: float,
) -> Pairs:
    """Pairs with what the newest one tells of the matrices of a stack; else as they are."""
    if pairs.apart is None:
        return pairs
    phi = partial(raised_by_learned, problem, x, learned, None, False)
    return pairs._replace(apart=looked_at(problem.geometry, pairs, at.G, phi, c2))


def _tree_of(geometry: Manifold, X: Point, G: Cotangent, pair: Secant) -> _Tree | None:
    """None where the kernel does not serve."""
    if not isinstance(X, tuple):
        kind = stack_kind(geometry, X) if X.ndim > 2 else None
        if kind is None or not has_few_columns(X):
            return None
        one = (kind,), (matrices_of(kind, X),), (X,), (G,), (pair.s,), (pair.y,), (pair,)
        return _Tree((geometry,), *one)
    if not isinstance(geometry, Product) or (kinds := leaf_kinds(geometry, X)) is None:
        return None
    facts = geometry.facts
    if "narrow" not in facts:
        leaves = zip(kinds, X, strict=True)
        facts["narrow"] = all(has_few_columns(x) for kind, x in leaves if kind in (MATRIX, SPAN))
    if not facts["narrow"]:
        return None
    return _Tree(geometry.factors, kinds, facts["sizes"], X, G, pair.s, pair.y, pair.leaves)


def _length(pairs: tuple[Secant, ...]) -> float:
    """‖y‖; NaN where the kernel cannot learn from a pair."""
    return math.sqrt(math.fsum(map(_square, pairs)))


def _square(pair: Secant) -> float:
    if pair.square is not None:
        return pair.square  # type: ignore[no-any-return]
    seen = pair.curvature
    if type(seen) is Curvature:
        return math.nan if seen.square is None else seen.square
    return seen.squared_change(1.0) if type(seen) is Split else math.nan


def _lesson(
    rules: LearnedMetric | None, learned: tuple[Learned, ...], sizes: tuple[int, ...]
) -> tuple[Any, Any, NumpyArray | None]:
    """The rules as numbers, room for P, R and D of leaves, and for N, W and scales of all parts.

    All are None for a step that is not looked at.
    """
    if rules is None or rules.passes_over(learned):
        return None, None, None
    P = [leaf.P for leaf in learned]
    matrices = tuple([None if p is None else np.empty((3, *p.shape), p.dtype) for p in P])
    parts = sum(sizes)
    return rules.numbers, matrices, np.empty((3, parts)) if parts > 1 else None


def _all_taught(
    learned: tuple[Learned, ...], tree: _Tree, facts: Any, lesson: Any, unit: float
) -> tuple[Learned, ...]:
    """What is known of the leaves; without a ``unit`` nothing is told of their scales."""
    _, matrices, balance = lesson
    balance = balance if unit else None
    each = zip(learned, tree.X, facts, matrices, _parts(tree.sizes), strict=True)
    return tuple([
        _taught(old, x, fact, found, balance, part, unit) for old, x, fact, found, part in each
    ])  # fmt: skip


@cache
def _parts(sizes: tuple[int, ...]) -> tuple[slice, ...]:
    """Where the leaves stand among all parts."""
    ends = [0, *itertools.accumulate(sizes)]
    return tuple(map(slice, ends, ends[1:]))


def _taught(
    old: Learned,
    x: Array,
    fact: Any,
    found: Any,
    balance: NumpyArray | None,
    part: slice,
    unit: float,
) -> Learned:
    """What is known of a leaf, from what the kernel has found; its ``part`` of the balance."""
    metric, P, R, weight, judged, ratio, turned, moved, steps, gradient, N, W, old_unit, *rest = old
    D, omega, horizontal, scale, scales = metric
    if fact is not None:
        weight, judged, ratio, turned, moved, omega, seen, replaced = fact
        if seen and found is not None:
            P, R, new = found
            D = new if replaced else D
    if balance is not None:
        N, W, own = balance[:, part]
        old_unit = unit
        if len(own) == 1:
            scale = float(own[0])
        else:
            scales = own.astype(x.dtype).reshape(*x.shape[:-2], 1, 1)
    sums = weight, judged, ratio, turned, moved
    metric = Metric(D, omega, horizontal, scale, scales)
    return Learned(metric, P, R, *sums, steps + 1, gradient, N, W, old_unit, *rest)
