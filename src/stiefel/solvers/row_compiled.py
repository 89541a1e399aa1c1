"""The formulas of `row_memory` and `row_model` once more, by the compiled kernels: one call each.

For single NumPy matrices of double precision, real or complex, without a constraint matrix.  What
the kernels fill is made here; what they compute stands in `src/compiled/rows*.inc`, and
`tests/test_compiled_rows.py` compares it with the text.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stiefel.backends.base import Kernels
from stiefel.geometry.compiled import rows
from stiefel.types import Array, NumpyArray

NO_TURNS, UNCOUPLED, COUPLED = range(3)  # what the inverse does with rotations


def way_of_turns(offset: Array | None, horizontal: bool) -> int:
    """What the compiled inverse does with rotations."""
    if horizontal:
        return NO_TURNS
    return UNCOUPLED if offset is None else COUPLED


def row_kernels(k: Kernels, X: Array) -> Any:
    """The compiled kernels where they serve for X; None where the text does."""
    if k.compiled is None or X.dtype.char not in "dD" or not X.dtype.isnative:
        return None
    return k.compiled if X.flags.c_contiguous else None


def look_in_one_call(
    fast: Any, older: tuple[Array, Array], ends: tuple[Array, ...], eps: float
) -> tuple[Any, ...] | None:
    """S, Y, their products, and the errors of the pair; None if there is no step.

    ``ends``: X, G and level before the step, and X, G, level and rotation after it.
    """
    X, m = ends[3], len(older[0])
    size, kind = X.shape[1], X.dtype
    S, Y, small = np.empty(X.shape, kind), np.empty(X.shape, kind), np.empty((5, size, size), kind)
    both = np.empty((m * size, size), kind), np.empty((size, m * size), kind)
    error = fast.rows_look(*map(rows, ends), *map(rows, older), eps, S, Y, small, *both)
    return (S, Y, *small, *both, error) if error >= 0 else None


def symmetrising_in_one_call(
    fast: Any, K: NumpyArray, size: int, weights: NumpyArray, rounds: int, hopeless: float
) -> NumpyArray | None:
    D = np.empty((size, size), K.dtype)
    return D if fast.rows_symmetrising(rows(K), weights, rounds, hopeless, D) else None


def with_new_block(
    fast: Any,
    memory: tuple[Array, int, Array],
    X: Array,
    E: Array,
    G: Array,
    small: tuple[NumpyArray, NumpyArray],
    grams: tuple[NumpyArray, NumpyArray],
    least: float,
) -> tuple[Any, ...]:
    """From W, how much is used of it, and [X, AX]; (D, level); and the Gram matrices WW and WX.

    Whether a block was added, its asymmetry and that of all; [X, AX], Gram matrices, what is seen.
    """
    (W, used, XA0), size, kind = memory, X.shape[1], X.dtype
    q, two = (used + 1) * size, 2 * size
    made = (
        np.empty((len(X), two), kind),
        np.empty((2 * q, 2 * q), kind),
        np.empty((2 * q, two), kind),
        np.empty((two, two), kind),
        np.empty((2 * q + size, size), kind),
    )
    told = fast.rows_grown(
        W, used, XA0, X, rows(E), rows(G), *map(rows, small), *grams, least, *made
    )
    return *told, *made


def all_grams(fast: Any, W: Array, used: int, XA: Array, G: Array) -> tuple[NumpyArray, ...]:
    """Gram matrices WW, WX and XX, and what is seen of G."""
    size, kind = XA.shape[1] // 2, XA.dtype
    p, two = used * size, 2 * size
    made = (
        np.empty((2 * p, 2 * p), kind),
        np.empty((2 * p, two), kind),
        np.empty((two, two), kind),
        np.empty((2 * p + size, size), kind),
    )
    fast.rows_grams(W, used, XA, rows(G), *made)
    return made


def combined(
    fast: Any, memory: tuple[Array, int, Array], C: NumpyArray, along: NumpyArray, blocks: int
) -> Array:
    """Blocks of the combinations, and room for the others."""
    W, vectors = memory[0], C.shape[1]
    new = _room_for(W, blocks, vectors)
    fast.rows_combined(*memory, C, along, new.reshape(-1, 2, W.shape[2])[:vectors])
    return new


def _room_for(W: Array, blocks: int, vectors: int) -> Array:
    """Blocks of which so many vectors will be written; zeros behind them."""
    new = np.empty((blocks, *W.shape[1:]), W.dtype)
    new.reshape(-1, 2, W.shape[2])[vectors:] = 0
    return new


def ritz(
    fast: Any,
    halves: tuple[NumpyArray, NumpyArray],
    level: NumpyArray,
    grams: tuple[NumpyArray, NumpyArray, NumpyArray],
    dependent: float,
    unreliable: float,
) -> tuple[NumpyArray, ...]:
    """Shifts c and columns W and F from (D½, D^{-½}); normal Gram matrix; T and θ of Ritz pairs."""
    WW, size, kind = grams[0], len(level), level.dtype
    p = len(WW) // 2
    c, theta = np.empty(size), np.empty(p)
    (W, F), normal, T = np.empty((2, size, size), kind), np.empty_like(WW), np.empty(p * p, kind)
    made = c, W, F, normal, T, theta
    count = fast.rows_ritz(*halves, rows(level), *grams, dependent, unreliable, *made)
    return c, W, F, normal, T[: p * count].reshape(p, count), theta[:count]


def applied_inverse(
    fast: Any,
    memory: tuple[Array, int, Array],
    G: Array,
    seen: tuple[NumpyArray | None, NumpyArray | None],
    small: tuple[NumpyArray, ...],
    softest: float,
    sign: float,
    turns: int,
) -> Array:
    """±H G; products and rotation of G if known; ``small`` as the kernel lists them."""
    T = np.empty(G.shape, G.dtype)
    known = [m if m is None else rows(m) for m in seen]
    fast.rows_inverse(*memory, rows(G), *known, *map(rows, small), softest, sign, turns, T)
    return T


def advanced(
    fast: Any,
    memory: tuple[Array, int, Array],
    lowest: int,
    before: tuple[NumpyArray, ...],
    at: tuple[Array, ...],
    offset: Array | None,
    columns: tuple[NumpyArray, ...],
    rules: tuple[float, ...],
    turns: int,
    aims: bool,
) -> tuple[Any, ...] | None:
    """A step of the model from W, used and [X, AX]; None for an unusual one.

    So many lowest Ritz vectors stay in a full memory, and the newest block.
    Returns the memory; columns c, W and F; the normal Gram matrix; T and θ of Ritz pairs; and if it
    ``aims`` direction and slope, frame and numbers of the ray.
    """
    (W, used, XA0), X, kind, room = memory, at[0], at[0].dtype, None
    (n, size), p = X.shape, used * X.shape[1]
    if used == len(W):
        pairs = len(before[-1])
        kept = pairs if pairs <= lowest else lowest + min(pairs - lowest, size)
        p = -(-kept // size) * size
        room = _room_for(W, len(W), p)
    q, two = p + size, 2 * size
    XA, WW, WX = (
        np.empty((n, two), kind),
        np.empty((2 * q, 2 * q), kind),
        np.empty((2 * q, two), kind),
    )
    XX, c, (columns_there, F) = (
        np.empty((two, two), kind),
        np.empty(size),
        np.empty((2, size, size), kind),
    )
    normal, T, theta = np.empty((2 * q, 2 * q), kind), np.empty(q * q, kind), np.empty(q)
    seen = direction = frame = None
    if aims:
        seen, direction = np.empty((2 * q + size, size), kind), np.empty((n, size), kind)
        frame = np.empty((4, two, two), kind)
    found = fast.rows_step(
        W, used, room, p, lowest, XA0, *map(rows, before), *map(rows, at), offset,
        *map(rows, columns), *rules, turns,
        XA, WW, WX, XX, seen, c, columns_there, F, normal, T, theta, direction, frame,
    )  # fmt: skip
    if found is None:
        return None
    count, slope, *numbers = found
    ritz = T[: q * count].reshape(q, count), theta[:count]
    new = W if room is None else room, XA, q // size, (WW, WX, XX), seen
    return new, (c, columns_there, F), normal, ritz, direction, slope, frame, numbers
