"""The memory of L-BFGS for a stack whose matrices hardly know of each other.

Where f(X) = Σ f_i(X_i), a step of the stack is a step of every matrix: each has a secant pair of
its own, and its own curvature, scale and recursion,

    −H∇f = (−H_i ∇_i f)_i,     H_i from the pairs (s_i, y_i) and γ_i = ⟨s_i, y_i⟩/⟨y_i, φ(y_i)⟩,

where one recursion for all of them would have to describe many unlike problems by m numbers.  The
pairs are those of `memory`: nothing is kept twice.  A matrix does without a pair that violates the
search's condition ⟨∇f(X⁺), s⟩ ≥ c₂ ⟨∇f(X), s⟩ for it alone; the search has seen to the sum only.

Whether matrices are coupled is seen in the pairs.  Hessians are symmetric: of two steps s and s',
⟨s_i, y'_i⟩ = ⟨s'_i, y_i⟩ as far as y_i comes from s_i, and from nothing else.  The asymmetry

    |⟨s_i, y'_i⟩ − ⟨s'_i, y_i⟩| / (⟨s_i, y_i⟩ ⟨s'_i, y'_i⟩)^{1/2},   at most 1,

of one step and the next is a tenth and less where f is a sum, for curvature changes along steps,
and a third and more where it is not.  At first the median over i counts: a recursion for all of
them sends some matrices far, and those tell nothing.  Once they are apart, steps are better and the
mean tells of a coupling that few of them feel; after it did, only the mean parts them again.
Matrices that move by rounding errors are not looked at.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from stiefel.backends.base import Kernels, kernel
from stiefel.geometry.compiled import rows as in_rows
from stiefel.geometry.framed import Framed
from stiefel.geometry.sphere import Sphere
from stiefel.geometry.stiefel import Stiefel
from stiefel.types import Array, Cotangent, Manifold, NumpyArray, Point, Tangent

from .problem import array_kernels

APART, TOGETHER = 0.08, 0.3  # asymmetry below which matrices part, and above which no more
SMOOTHING = 0.7  # memory of the asymmetries: some three steps
# Unit vectors are looked at rarely: at so many steps at a time, and parted if there are some.
LAST_STEPS, VECTORS_APART, FEWEST_VECTORS = 5, 0.03, 4
LEAST_MOVED = 1e-10  # part of the largest ⟨s_i, y_i⟩; below it is that of rounding


class Apart(NamedTuple):
    """What is known about the matrices of a stack, each by itself."""

    # ⟨s_i, y_i⟩ of every row of the memory, 0 where it is not used; written to as its blocks are.
    curvatures: NumpyArray
    gammas: NumpyArray  # γ_i, in the shape of the stack; 0 before the first
    typical: float = TOGETHER  # the median of the asymmetries
    mean: float = TOGETHER  # of them
    on: bool = False
    doubted: bool = False  # they were apart once, and came together again

    def forgotten(self) -> Apart:
        return self._replace(curvatures=np.zeros_like(self.curvatures))


class StackPairs(Protocol):
    """`memory.Pairs`, as far as it is read here."""

    @property
    def S(self) -> Array: ...
    @property
    def Y(self) -> Array: ...
    @property
    def rows(self) -> tuple[int, ...]: ...
    @property
    def apart(self) -> Apart | None: ...


def nothing_apart(geometry: Manifold, X: Point, rows: int) -> Apart | None:
    """Nothing known yet of a stack X and a memory of so many rows; None for anything else."""
    stack = isinstance(geometry, Stiefel | Framed) and not isinstance(geometry, Sphere)
    shape = tuple(X.shape[:-2]) if stack else ()
    return Apart(np.zeros((rows, *shape)), np.zeros(shape)) if math.prod(shape) > 1 else None


def length_of_vectors(geometry: Manifold, x: Point) -> int:
    """The numbers of a unit vector of a stack that is worth looking at; 0 for other points."""
    real = isinstance(geometry, Stiefel) and x.ndim > 1 and x.dtype.kind != "c"
    n: int = x.shape[-2 if x.shape[-1] == 1 else -1] if real else 0
    return n if n and x.size // n >= FEWEST_VECTORS else 0


def vectors_apart(S: NumpyArray, Y: NumpyArray, rows: tuple[int, ...]) -> Apart | None:
    """The same of a stack of unit vectors with pairs in use, if these say that they are apart."""
    axes = (-2, -1) if S.shape[-1] == 1 else (-1,)
    curvatures, used = np.zeros(S.shape[: -len(axes)]), list(rows)

    def products(A: NumpyArray, C: NumpyArray) -> NumpyArray:
        return (A * C).sum(axis=axes)  # type: ignore[no-any-return]

    curvatures[used] = products(S[used], Y[used])
    seen = [
        _asymmetries(curvatures[i], products(S[i], Y[j]) - products(S[j], Y[i]), curvatures[j])
        for j, i in itertools.pairwise(used[-LAST_STEPS:])
    ]
    typical = float(np.mean([_median(each) for each in seen]))
    if not typical < VECTORS_APART:
        return None
    yy, sy = products(Y[used[-1]], Y[used[-1]]), curvatures[used[-1]]
    gammas = np.where(sy > 0, sy, 0.0) / np.where(yy > 0, yy, 1.0)
    return Apart(np.maximum(curvatures, 0.0), gammas, typical, typical, True)


def looked_at(
    geometry: Manifold,
    pairs: StackPairs,
    G: Cotangent,
    phi: Callable[[Cotangent], Tangent] | None,
    c2: float,
    changes: NumpyArray | None = None,
) -> Apart:
    """What is known with the newest pair, at whose end the gradient is G.

    ``changes``: ⟨y_i, φ(y_i)⟩ of the matrices, in place of ``phi``.
    """
    assert pairs.apart is not None
    curvatures, gammas, typical, mean, parted, doubted = pairs.apart
    middle, average = _seen_in(geometry, pairs, G, c2)
    if len(pairs.rows) > 1:
        typical = SMOOTHING * typical + (1.0 - SMOOTHING) * middle
        mean = SMOOTHING * mean + (1.0 - SMOOTHING) * average
    on = mean < TOGETHER and (parted or (mean if doubted else typical) < APART)
    if on:
        row = pairs.rows[-1]
        y = pairs.Y[row, ...] if phi is not None else changes
        z = phi(y) if phi is not None else np.ones_like(changes)
        gammas = _new_gammas(geometry, y, z, curvatures[row, ...], gammas)
    return Apart(curvatures, gammas, typical, mean, on, doubted or (parted and not on))


def _seen_in(geometry: Manifold, pairs: StackPairs, G: Cotangent, c2: float) -> tuple[float, float]:
    """Median and mean of the asymmetries of the newest pair and the one before.

    The curvatures of the newest are written into their row.
    """
    apart, rows, S = pairs.apart, pairs.rows, pairs.S
    assert apart is not None
    now, before, curvatures = rows[-1], rows[-2 if len(rows) > 1 else -1], apart.curvatures
    if (fast := _compiled(array_kernels(geometry, G), S)) is not None:
        flat = curvatures.reshape(len(curvatures), -1)
        return fast.stack_look(S, pairs.Y, now, before, in_rows(G), c2, LEAST_MOVED, flat)  # type: ignore[no-any-return]
    sy, sG, cross, old = _products_of(geometry, pairs, G, now, before)
    kept = (sy > 0) & ((1.0 - c2) * sG + c2 * sy >= 0)
    curvatures[now, ...] = np.where(kept, sy, 0.0)
    seen = _asymmetries(sy, cross, old)
    return _median(seen), float(seen.sum()) / len(seen)


def _new_gammas(
    geometry: Manifold, y: Cotangent, z: Tangent, curvatures: NumpyArray, old: NumpyArray
) -> NumpyArray:
    """γ_i after a pair with z = φ(y): a geometric mean; ``old`` where it is not used."""
    if (fast := _compiled(array_kernels(geometry, y), y)) is not None:
        new = np.empty_like(old)
        fast.stack_gammas(y, in_rows(z), curvatures, old, new)
        return new
    yy = _by_matrix(geometry, y, z, old)
    told = (curvatures > 0) & (yy > 0)
    new = np.where(told, curvatures, 1.0) / np.where(told, yy, 1.0)
    new = np.where(old > 0, np.sqrt(np.where(old > 0, old, 1.0) * new), new)
    return np.where(told, new, old)


def _asymmetries(sy: NumpyArray, cross: NumpyArray, before: NumpyArray) -> NumpyArray:
    """Of the matrices that moved."""
    size = np.sqrt(np.abs(sy) * np.abs(before))
    moved = size > LEAST_MOVED * size.max()
    if not moved.any():
        return np.ones(1)
    return np.fmin(np.abs(cross[moved]) / size[moved], 1.0)


def _median(values: NumpyArray) -> float:
    """`np.median`, which takes ten times as long for a few."""
    low, high = (len(values) - 1) // 2, len(values) // 2
    ordered = np.partition(values, (low, high))
    return 0.5 * float(ordered[low] + ordered[high])


def direction_apart(
    geometry: Manifold,
    pairs: StackPairs,
    g: Cotangent,
    gamma: float,
    phi: Callable[[Cotangent], Tangent],
    longest: float,
) -> Tangent:
    """−H_i g_i of every matrix, none longer than ``longest``; 8mnk.

    ``gamma`` is that of a matrix without a pair.
    """
    k, S, Y, rows, apart = array_kernels(geometry, g), pairs.S, pairs.Y, pairs.rows, pairs.apart
    assert apart is not None
    curvatures, gammas = apart.curvatures, apart.gammas
    if (fast := _compiled(k, S)) is not None:
        used, q = np.array(rows, np.intp), np.empty_like(S[0])
        a = np.empty((gammas.size, len(rows)))
        flat = curvatures.reshape(len(curvatures), -1)
        fast.stack_first_loop(S, Y, flat, used, in_rows(g), q, a)
        r = np.array(phi(q), q.dtype, order="C", copy=None)
        fast.stack_second_loop(S, Y, flat, used, gammas, gamma, a, longest, r)
        return r
    gammas = np.where(gammas > 0, gammas, gamma)
    inverse = np.where(curvatures > 0, 1.0, 0.0) / np.where(curvatures > 0, curvatures, 1.0)
    each = {i: k.asarray(inverse[i], g) for i in rows}
    weights, q = {}, g
    for i in reversed(rows):
        weights[i], q = _without_pair(k, S[i, ...], Y[i, ...], each[i], q)
    r = _scaled(k, k.asarray(gammas, g), phi(q))
    for i in rows:
        r = _with_pair(k, S[i, ...], Y[i, ...], each[i], weights[i], r)
    square = k.to_numpy(_matrix_products(k, r, r, each[rows[0]])).real.astype(np.float64)
    scales = -np.minimum(1.0, longest / np.sqrt(np.maximum(square, np.finfo(float).tiny)))
    return _scaled(k, k.asarray(scales, g), r)


def _compiled(k: Kernels, S: Array) -> Any:
    """The compiled kernels, where a block is a NumPy array of doubles."""
    return k.compiled if type(S) is np.ndarray and S.dtype.char in "dD" else None


def _products_of(
    geometry: Manifold, pairs: StackPairs, G: Cotangent, now: int, before: int
) -> tuple[NumpyArray, ...]:
    """⟨s, y⟩, ⟨s, G⟩, ⟨s, y'⟩ − ⟨s', y⟩ and ⟨s', y'⟩ of each matrix, with the pair before."""
    S, Y, apart = pairs.S, pairs.Y, pairs.apart
    assert apart is not None
    s, y, s_, y_ = S[now, ...], Y[now, ...], S[before, ...], Y[before, ...]
    asked, like = ((s, y), (s, G), (s, y_), (s_, y), (s_, y_)), apart.gammas
    sy, sG, over, under, old = (_by_matrix(geometry, A, C, like) for A, C in asked)
    return sy, sG, over - under, old


def _by_matrix(geometry: Manifold, A: Array, C: Array, like: NumpyArray) -> NumpyArray:
    """`_matrix_products` as NumPy doubles; ``like`` has the shape of the stack."""
    k = array_kernels(geometry, A)
    found = k.to_numpy(_matrix_products(k, A, C, k.asarray(like, A)))
    return np.asarray(found, dtype=np.float64)


# -- formulas ------------------------------------------------------------------------------------


@kernel
def _matrix_products(k: Kernels, A: Array, C: Array, like: Array) -> Array:
    """Re⟨A_i, C_i⟩ of the matrices of two stacks of the shape of ``like``."""
    axes = tuple(range(like.ndim, A.ndim))
    return k.reduce(k.xp.sum(k.real(k.conj(A) * k.weigh(C)), axis=axes))[0]


@kernel
def _scaled(k: Kernels, a: Array, C: Array) -> Array:
    return k.xp.reshape(a, (*a.shape, *(1,) * (C.ndim - a.ndim))) * C


@kernel
def _without_pair(k: Kernels, s: Array, y: Array, inverse: Array, q: Array) -> tuple[Array, Array]:
    a = inverse * _matrix_products(k, s, q, inverse)
    return a, q - _scaled(k, a, y)


@kernel
def _with_pair(k: Kernels, s: Array, y: Array, inverse: Array, a: Array, r: Array) -> Array:
    return r + _scaled(k, a - inverse * _matrix_products(k, y, r, inverse), s)
