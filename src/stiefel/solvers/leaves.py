"""Leaves of a tree and matrices of a stack: one by one, and how stiff they are.

Each has a scale of its own in the learned metric, from the steps in which it moved: with weights
N = Σ w and W = Σ w log(‖y‖²/‖s‖²), W/N is the logarithm of its squared curvature.  The softest one
has scale one.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from stiefel.backends.arrays import kernels_for
from stiefel.geometry.framed import Framed
from stiefel.geometry.framed_ray import Split
from stiefel.geometry.metric import matrix_squares
from stiefel.geometry.product import Product
from stiefel.geometry.ray import Curvature, Secant
from stiefel.geometry.wide import WideCurvature
from stiefel.types import Array, Manifold, Metric

from .leaf_kinds import has_stacks, leaf_kinds
from .problem import Problem, array_kernels


def factors_and_leaves(geometry: Manifold, X: Array) -> list[tuple[Any, Array]]:
    return list(zip(getattr(geometry, "factors", (geometry,)), parts_of(X), strict=True))


def pairs_of(pair: Secant) -> tuple[Secant, ...]:
    """The secant pairs of the leaves."""
    return pair.leaves or (pair,)


def squared_length_of(factor: Manifold, pair: Secant) -> float:
    """⟨y, y⟩ of the pair of a leaf."""
    if pair.square is not None:
        return float(pair.square)
    seen = pair.curvature
    if isinstance(seen, Split):
        return seen.squared_change(1.0)
    if not isinstance(seen, Curvature | WideCurvature):
        return factor.dot(pair.y, pair.y)
    if seen.square is not None:
        return float(seen.square)
    k, yy = array_kernels(factor, pair.y), seen.yy
    return float(yy.trace().real if k.pure_numpy and yy.ndim == 2 else k.trace(yy))


def parts_of(X: Any) -> tuple[Any, ...]:
    return X if isinstance(X, tuple) else (X,)


# -- scales -------------------------------------------------------------------------------------


def balanced(
    geometry: Manifold,
    X: Array,
    pair: Secant,
    learned: tuple[Any, ...],
    memory: float,
    least_share: float,
) -> tuple[Any, ...]:
    """Leaves of a tree, and matrices of a stack, scaled against each other.

    y has a part that comes from the steps of the other leaves.  Where a leaf moves little it
    dominates, and says nothing of the leaf: weights are the shares of a step.
    """
    if isinstance(geometry, Product) and leaf_kinds(geometry, X) and not has_stacks(geometry):
        return _balanced_at_once(geometry, pair, learned, memory, least_share)
    leaves = factors_and_leaves(geometry, X)
    sizes = [_matrices(f, x) for f, x in leaves]
    if sum(sizes) == 1:
        return learned
    ss, yy = _all_squares(leaves, sizes, pairs_of(pair))
    step = float(ss.sum())  # nothing, where rounding leaves nothing of a step
    unit = (learned[0].unit or float(yy.sum()) / step) if step > 0 else 0.0
    if not (unit > 0 and math.isfinite(unit)):
        return learned
    if learned[0].weights is None:
        N = W = np.zeros(len(ss))
    else:
        N = np.concatenate([leaf.weights for leaf in learned])
        W = np.concatenate([leaf.stiffness for leaf in learned])
    N, W, scales = weighed(ss, yy, N, W, unit, memory, least_share)
    ends = [0, *itertools.accumulate(sizes)]
    parts = map(slice, ends, ends[1:])
    return tuple(
        leaf._replace(
            metric=_scaled_metric(leaf.metric, f, x, scales[i]),
            weights=N[i],
            stiffness=W[i],
            unit=unit,
        )
        for leaf, (f, x), i in zip(learned, leaves, parts, strict=True)
    )


def _balanced_at_once(
    geometry: Product, pair: Secant, learned: tuple[Any, ...], memory: float, least_share: float
) -> tuple[Any, ...]:
    """`balanced` in one compiled call, where every leaf has one scale."""
    if len(learned) == 1:
        return learned
    old: Any = (None, None)
    if learned[0].weights is not None:
        old = tuple([leaf.weights for leaf in learned]), tuple([leaf.stiffness for leaf in learned])
    yy = tuple(map(squared_length_of, geometry.factors, pair.leaves))
    fast, known = geometry.factors[0].kernels.compiled, (learned[0].unit, memory, least_share)
    found = np.empty((3, len(learned)))
    unit = fast.leaves_balanced(pair.s, yy, *old, *known, found)
    if unit is None:
        return learned
    N, W, scales = found
    return tuple([
        leaf.weighed(scale, N[i : i + 1], W[i : i + 1], unit)
        for i, (leaf, scale) in enumerate(zip(learned, scales.tolist(), strict=True))
    ])  # fmt: skip


def weighed(
    ss: Array, yy: Array, N: Array, W: Array, unit: float, memory: float, least_share: float
) -> tuple[Array, Array, Array]:
    """Weights and stiffness of all parts after a step with these squares, and their scales."""
    if (fast := kernels_for(ss).compiled) is not None:
        N, W, scales = N.copy(), W.copy(), np.empty_like(ss)
        fast.weighed(ss, yy, N, W, unit, memory, least_share, scales)
        return N, W, scales
    share = ss / _scales(N, W)
    share /= share.sum()
    told = (share > least_share) & (yy > 0)
    w = np.where(told, np.minimum(len(ss) * share, 1.0), 0.0)
    logs = np.log(np.where(told, yy, 1.0) / np.where(told, ss, 1.0 / unit) / unit)
    N, W = memory * N + w, memory * W + w * logs
    return N, W, _scales(N, W)


def _scales(N: Array, W: Array) -> Array:
    """Of matrices of stiffness W/N: 1 for the softest, and for those that are not known."""
    known = N > 0
    if not known.any():
        return np.ones(len(N))
    logs = W / np.where(known, N, 1.0)
    least = logs[known].min()
    return np.exp(0.5 * np.where(known, least - logs, 0.0))


def _scaled_metric(metric: Metric, factor: Manifold, x: Array, scales: Array) -> Metric:
    """The metric of a leaf with its scale, or with those of its matrices."""
    if len(scales) == 1:
        return metric._replace(scale=float(scales[0]))
    each = array_kernels(factor, x).asarray(scales.reshape(*x.shape[:-2], 1, 1), x)
    return metric._replace(scales=each)


def _matrices(factor: Manifold, x: Array) -> int:
    """How many parts of a leaf have a scale of their own."""
    apart = getattr(factor, "learns", False) and not isinstance(factor, Framed) and x.ndim > 2
    return math.prod(x.shape[:-2]) if apart else 1


def _all_squares(
    leaves: list[tuple[Any, Array]], sizes: list[int], pairs: tuple[Secant, ...]
) -> tuple[Array, Array]:
    """‖s‖² and ‖y‖² of every part of the leaves."""
    if sum(sizes) == len(sizes):
        each = [(f, pair) for (f, _), pair in zip(leaves, pairs, strict=True)]
        ss = np.array([f.dot(pair.s, pair.s) for f, pair in each])
        return ss, np.array([squared_length_of(f, pair) for f, pair in each])
    parts = [(f, x, n, p) for (f, x), n, p in zip(leaves, sizes, pairs, strict=True)]
    ss = np.concatenate([_squares(f, x, size, pair.s) for f, x, size, pair in parts])
    return ss, np.concatenate([_squares(f, x, size, pair.y) for f, x, size, pair in parts])


def _squares(factor: Manifold, x: Array, size: int, C: Array) -> Array:
    if size == 1:
        return np.array([factor.dot(C, C)])
    k = array_kernels(factor, x)
    return np.asarray(k.to_numpy(matrix_squares(k, C)), dtype=float).ravel()


def first_scale(problem: Problem, x: Array, T: Array, length: float, longest: float) -> float:
    """What makes the first step along T as long as ``length`` for each column, whatever f is.

    A preconditioner knows its own scale.
    """
    geometry = problem.geometry
    if problem.precond is not None:
        return min(1.0, longest / (geometry.bounded_length(T) or math.inf))
    columns = sum(_columns(part) for part in parts_of(x))
    square = geometry.dot(T, T)  # 0: the gradient was a rounding error, normal to the manifold
    return length * math.sqrt(columns / square) if square else 1.0


def _columns(x: Array) -> int:
    shape = tuple(x.shape)
    return math.prod(shape[:-2]) * shape[-1] if len(shape) >= 2 else 1
