"""The memory of L-BFGS where φ is the identity: pairs in one block, which is read twice.

NumPy arrays are *plain* where tangents are cotangents: unit vectors and free parameters, complex
ones as their real numbers.  The recursion of `memory` then needs no vector between its products,

    Yᵀr = γ (Yᵀg − YᵀY a),      H g = γ g + [S, Y] [c, −γ a],

with S above Y in one block.  All its products with y and g are one product of matrices, and the
direction is another.  The products with g are those at the new point, so that a pair is remembered
together with the gradient at its end.  Where unit vectors have scales D (see `vector_scales`),

    Yᵀr = γ (YᵀDg − YᵀDY a),    H g = S c + γ D (g − Y a).
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

from stiefel.backends.arrays import kernels_for
from stiefel.backends.numpy import axpy
from stiefel.geometry.ray import PairPlace, PlainStride, Secant
from stiefel.types import Array, Cotangent, Curve, Gradient, Manifold, NumpyArray, Point, Tangent

from . import memory as blocks
from .memory import Pairs, bordered, free_row, place_for, room_for, rows_with
from .stack_pairs import (
    LAST_STEPS,
    LEAST_MOVED,
    VECTORS_APART,
    length_of_vectors,
    vectors_apart,
)
from .vector_scales import VectorScales, learned_from, with_scales

# Numbers of a point from which plain pairs are kept in single precision: their blocks would leave
# the nearest cache, and what a direction loses by it is 1e-14 of what a step gains.
SINGLE_FROM = 512
# Numbers from which two fifths as many plain pairs are kept: reading them takes longer than the
# rest of a step, and the others save an eighth of the evaluations at most, one more saves none.
LONG_PLAIN = 16_384
ROOM_FOR_MORE = 300_000  # numbers of all s together: beyond, more pairs cost more than they save
LOOKED_AT = (10, 15, 20, 25, 30)  # pairs in use when vectors of a stack are looked at one by one
SMALL, LARGE, FINEST = 1e-12, 1e12, 3e-39  # lengths in single precision, which ends at 1e±38
SMALL_PRODUCT = 1_000_000  # multiplications up to which OpenBLAS does not rearrange its arguments


class PlainCurve(Curve, Protocol):
    """A curve of plain vectors that writes its pairs into a `PairPlace`."""

    fast: Any  # the compiled kernels
    place: PairPlace  # where its pair stands
    slope: float  # ⟨G, T⟩

    def aimed_by(self, X: Array, G: Array, T: Array, pairs: Any, into: PairPlace) -> PlainCurve:
        """A curve of the same kind from another point, along −H G, which is written to T.

        ``pairs`` are what `plain_direction` of the compiled kernels takes before g.
        """
        ...

    def strides_from(self, G: Array) -> bool:
        """Whether steps from the gradient G are taken by `stride`."""
        ...

    def stride(
        self, t: float, Y: Array, E: Array, of_memory: tuple[Any, ...], rules: Any, vectors: Any
    ) -> PlainStride:
        """The end of a step at Y = X(t), and what follows from an ordinary one."""
        ...

    def after(self, X: Array, G: Array, ended: PlainStride, into: Any) -> PlainCurve:
        """The curve that follows from a `stride` which ended in X with the gradient G."""
        ...


def striding(curve: Curve, G: Cotangent) -> PlainCurve | None:
    """``curve``, if its steps from the gradient G are one call each."""
    if not hasattr(curve, "strides_from") or not curve.strides_from(G):
        return None
    return curve  # type: ignore[return-value]


def is_plain(geometry: Manifold, X: Point) -> bool:
    """Whether tangents are cotangents, in NumPy arrays: φ is the identity."""
    return bool(hasattr(geometry, "has_plain_metric") and geometry.has_plain_metric(X))


def worth_keeping(G: Cotangent, memory: int, more: bool = False, doubled: bool = False) -> int:
    """How many of ``memory`` plain pairs like G are worth the time it takes to read them.

    Up to three times as many where ``more`` are wanted: they take the place of a learned metric.
    A complex vector, ``doubled``, has more use for them.
    """
    size, room = _numbers(G).size, ROOM_FOR_MORE
    if size >= LONG_PLAIN:
        return max(2 * memory // 5, 1)
    if _is_alone(G):
        room = 2 * blocks.ROOM_OF_VECTOR if doubled else blocks.ROOM_OF_REAL_VECTOR
    return max(memory, min(3 * memory, room // max(size, 1))) if more else memory


def _is_alone(G: Cotangent) -> bool:
    return bool(G.ndim == 1 or G.shape[-1] == 1)


def worth_scaling(G: Cotangent, cost: str) -> bool:
    """Whether unit vectors like G get scales: of long points only where evaluations are dear."""
    return cost == "dear" or (cost == "usual" and _numbers(G).size < LONG_PLAIN)


def no_plain_pairs(G: Cotangent, memory: int, learns: bool = False) -> Pairs:
    """Room for ``memory`` plain pairs like G; see `memory.no_pairs`.

    If it ``learns``, unit vectors get scales of their own.
    """
    rows, g = room_for(G, memory), _numbers(G)
    dtype = np.float32 if g.size >= SINGLE_FROM else g.dtype
    block, zeros = np.zeros((2 * rows, g.size), dtype), np.zeros((rows, rows))
    vectors = VectorScales() if learns else None
    return Pairs(block, None, zeros, np.zeros(rows), (), zeros, vectors=vectors)


def remember_plain(pairs: Pairs, pair: Secant, sy: float, yy: float, at: Gradient) -> Pairs:
    """`memory.remember`, with ⟨y, y⟩ = yy and with the gradient at the end of the step."""
    B, most, g = pairs.S, len(pairs.diagonal), _numbers(at.G)
    assert B is not None and pairs.changes is not None
    if (fast := _compiled_for(g)) is not None:
        rows, numbers = rows_with(pairs.rows, most), copied(pairs)
        found = _products_of(fast, pairs, pair, yy, at, rows)
        fast.plain_remember(B, rows, found, sy, *numbers)
        return Pairs(B, None, *numbers[:2], rows, numbers[2], found, vectors=pairs.vectors)
    row, changes = free_row(pairs.rows), pairs.changes.copy()
    B[row], B[most + row] = _numbers(pair.s).reshape(-1), _numbers(pair.y).reshape(-1)
    ends = np.empty((2, B.shape[1]), B.dtype)
    ends[0], ends[1] = B[most + row], g.reshape(-1)
    found = _safe_products(B, ends, (math.sqrt(yy), at.norm), pairs.scales)
    inverse, diagonal, rows = bordered(pairs, row, found[:most, 0], sy)
    changes[row] = changes[:, row] = found[most:, 0]
    return Pairs(B, None, inverse, diagonal, rows, changes, found[:, 1], vectors=pairs.vectors)


def remembered_and_aimed(
    curve: PlainCurve,
    pairs: Pairs,
    pair: Secant,
    sy: float,
    yy: float,
    gamma: float,
    x: Point,
    at: Gradient,
) -> tuple[Pairs, Tangent, PlainCurve]:
    """`remember_plain`, `plain_direction` and the curve along it, in one call of a kernel.

    ``curve`` has led to x, and has written its pair into its place.
    """
    (B, rows, *_), G, vectors = curve.place, at.G, pairs.vectors
    D = None if vectors is None else vectors.entries
    found = _products_of(curve.fast, pairs, pair, yy, at, rows)
    numbers = inverse, diagonal, changes = copied(pairs)
    new = Pairs(B, None, inverse, diagonal, rows, changes, None, None, vectors)
    T, known = np.empty(G.shape, G.dtype), (B, rows, found, sy, *numbers, gamma, D)
    return new, T, curve.aimed_by(x, G, T, known, place_for(new))  # type: ignore[arg-type]


def copied(pairs: Pairs) -> tuple[NumpyArray, NumpyArray, NumpyArray]:
    """R⁻¹, ⟨s_i, y_i⟩ and YᵀY, to be written to."""
    return pairs.inverse.copy(), pairs.diagonal.copy(), pairs.changes.copy()  # type: ignore[union-attr]


def _products_of(
    fast: Any,
    pairs: Pairs,
    pair: Secant,
    yy: float,
    at: Gradient,
    rows: tuple[int, ...],
    again: bool = False,
) -> NumpyArray:
    """The products of ``rows``, of which the last holds the pair, with y and the gradient.

    Those that the pair knows are made ``again`` where D is another one.
    """
    B, found = pairs.S, pair.kept
    assert B is not None
    ordinary = B.dtype.char == "d" or (_is_ordinary(yy) and _is_ordinary(at.norm * at.norm))
    if found is not None and ordinary and not again:
        return found  # type: ignore[no-any-return]
    ends = (None, None) if found is not None else (_numbers(pair.s), _numbers(pair.y))
    found, scales = np.empty(2 * len(B)), (_scale(B, math.sqrt(yy)), _scale(B, at.norm))
    fast.plain_products(B, rows, *ends, _numbers(at.G), scales, found, pairs.scales)
    return found


def parted(geometry: Manifold, pairs: Pairs, x: Point) -> Pairs | None:
    """Pairs of a stack of unit vectors, each with its own recursion; None if they are coupled.

    They are looked at when there are so many pairs for the first time: a look takes as long as
    some steps, where it is not compiled.
    """
    if pairs.in_use not in LOOKED_AT or pairs.S is None or not hasattr(x, "shape"):
        return None
    if not (n := length_of_vectors(geometry, x)):
        return None
    if (fast := _compiled_for(x)) is not None:
        known = pairs.S, pairs.rows[-LAST_STEPS:], n, LEAST_MOVED, VECTORS_APART
        if not fast.vectors_apart(*known) < VECTORS_APART:
            return None
    S, Y = pairs.S.astype(x.dtype).reshape(2, len(pairs.diagonal), *x.shape)
    apart = vectors_apart(S, Y, pairs.rows)
    return apart and Pairs(S, Y, *pairs[2:5], apart=apart)


# -- scales of unit vectors ---------------------------------------------------------------------


def scaled_change(pairs: Pairs, pair: Secant) -> float:
    """⟨y, Dy⟩, which pairs in a memory know."""
    if pair.kept is not None or pairs.scales is None:
        return float(pair.square if pair.square is not None else np.vdot(pair.y, pair.y).real)
    y = _numbers(pair.y).reshape(-1)
    return float(y.dot(pairs.scales * y))


def seen_vectors(
    pairs: Pairs, pair: Secant, yy: float, at: Gradient
) -> tuple[Pairs, Secant, float]:
    """``pairs`` that know the pair's vectors; what pair and ⟨y, Dy⟩ are if these get another D."""
    assert pairs.vectors is not None
    vectors = learned_from(pairs.vectors, pair.vectors)
    if not vectors.due:
        return Pairs(*pairs[:8], vectors), pair, yy
    g = _numbers(at.G)
    vectors = with_scales(vectors, g if at.G.dtype.kind == "f" else g.reshape(-1, 2))
    pairs = rescaled(pairs, vectors)
    if pair.kept is None:
        return pairs, pair, scaled_change(pairs, pair)
    rows = rows_with(pairs.rows, len(pairs.diagonal))
    found = _products_of(_compiled_for(g), pairs, pair, yy, at, rows, again=True)
    return pairs, pair._replace(kept=found), float(found[4 * len(rows) - 2])


def rescaled(pairs: Pairs, vectors: VectorScales) -> Pairs:
    """``pairs`` with the D of ``vectors``; m²nk."""
    B, D, rows, before = pairs.S, vectors.entries, pairs.rows, pairs.changes
    assert B is not None and before is not None
    changes = np.zeros_like(before)
    if rows and (fast := _compiled_for(before)) is not None:
        fast.plain_squares(B, rows, D, (SMALL, LARGE, FINEST), before, changes)
    elif rows:
        Y = B[[len(before) + row for row in rows]]
        # Squares of small numbers are lost in single precision.
        sizes = np.array([1.0 / _scale(B, math.sqrt(before[i, i])) for i in rows])
        if (sizes != 1.0).any():
            Y /= sizes[:, None]
        if D is not None:
            Y *= np.sqrt(D).astype(B.dtype)
        changes[np.ix_(rows, rows)] = _products(Y, Y) * (sizes[:, None] * sizes)
    return pairs._replace(vectors=vectors, changes=changes)


def _numbers(C: NumpyArray) -> NumpyArray:
    """The real numbers of an array, row by row in memory: Re⟨·, ·⟩ is their inner product."""
    C = C if C.flags.c_contiguous else np.ascontiguousarray(C)
    return C if C.dtype.kind == "f" else C.reshape(-1).view(C.real.dtype)


def _compiled_for(numbers: NumpyArray) -> Any:
    """The compiled kernels, where they take such numbers in a row."""
    return kernels_for(numbers).compiled if numbers.dtype.char == "d" and numbers.size else None


def _is_ordinary(square: float) -> bool:
    """Whether a length needs no scale in single precision."""
    return SMALL * SMALL < square < LARGE * LARGE


def _scale(B: NumpyArray, length: float) -> float:
    """What an end of this length is multiplied by for its products with the rows of B.

    Squares of small and large numbers are lost in single precision: those have length one here.
    """
    if SMALL < length < LARGE or B.dtype != np.float32:
        return 1.0
    return 1.0 / max(length, FINEST)


def _safe_products(
    B: NumpyArray, ends: NumpyArray, lengths: tuple[float, ...], D: NumpyArray | None
) -> NumpyArray:
    """All products of rows, in double precision; ``ends`` have these lengths, times D for Y."""
    scales = np.array([[_scale(B, length)] for length in lengths])
    if (scales != 1.0).any():
        ends = (scales * ends).astype(B.dtype)
    found = _products(B, ends).astype(np.float64, copy=False)
    if D is not None:
        most = len(B) // 2
        found[most:] = _products(B[most:], (D * ends).astype(B.dtype))
    return found / scales.T


def _products(B: NumpyArray, ends: NumpyArray) -> NumpyArray:
    """All products of rows."""
    width = max(SMALL_PRODUCT // (len(B) * len(ends)), 1)
    if B.shape[1] <= width:
        return B.dot(ends.T)
    parts = (slice(i, i + width) for i in range(0, B.shape[1], width))
    return sum(B[:, part] @ ends[:, part].T for part in parts)  # type: ignore[return-value]


def plain_direction(pairs: Pairs, at: Gradient, gamma: float) -> Tangent:
    """−H g."""
    B, _, inverse, diagonal, rows, changes, slopes = pairs[:7]
    assert B is not None and changes is not None
    most, g, T = len(diagonal), _numbers(at.G), np.empty(at.G.shape, at.G.dtype)
    D = pairs.scales
    if (fast := _compiled_for(g)) is not None:
        if slopes is None:
            slopes, scales = np.empty(4 * most), (1.0, _scale(B, at.norm))
            fast.plain_products(B, rows, None, None, g, scales, slopes, D)
        known = B, rows, slopes, None, inverse, diagonal, changes, gamma, D
        fast.plain_direction(*known, g, T if g is at.G else _numbers(T), g)
        return T
    g, out = g.reshape(-1), _numbers(T).reshape(-1)
    if slopes is None:
        slopes = _safe_products(B, g.astype(B.dtype)[None], (at.norm,), D)[:, 0]
    a = inverse.dot(slopes[:most])
    c = (gamma * (slopes[most:] - changes.dot(a)) - diagonal * a).dot(inverse)
    if D is not None:
        c, a = c.astype(B.dtype, copy=False), (gamma * a).astype(B.dtype, copy=False)
        out[:] = c.dot(B[:most]) + D * (a.dot(B[most:]) - gamma * g)
        return T
    out[:] = np.concatenate([c, gamma * a]).astype(B.dtype, copy=False).dot(B)
    axpy(-gamma, g, out)
    return T
