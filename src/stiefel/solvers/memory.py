"""The memory of L-BFGS: the last m secant pairs in two tall blocks, used as rings.

A new pair takes a row that no pair of the state before it uses, so that this state stays valid
and no row is ever moved.  With R = triu(SᵀY), from the oldest pair to the
newest, the two-loop recursion is four products with a block:

    a = R⁻¹ Sᵀg,   q = g − Y a,   r = γ φ(q),   c = R⁻ᵀ(diag(R) a − Yᵀr),   H g = r + S c.

R⁻¹ is kept, not R: a new pair adds the column −R⁻¹Sᵀy/⟨s, y⟩, and without the oldest pair R⁻¹ is
what is left of it.  It stands in the order of the rings, with zeros for rows that are not used:
old pairs that stand in those count for nothing.

Without blocks the newest pair is used for the direction that follows it, and then dropped.

Where φ is the identity the recursion is shorter: see `plain_pairs`, which keeps them in one block.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from stiefel.backends.arrays import kernels_for
from stiefel.geometry.compiled import rows as in_rows
from stiefel.geometry.ray import PairPlace
from stiefel.types import Array, Cotangent, Leaves, Manifold, NumpyArray, Point, Tangent

from .leaf_kinds import SMALL_TREE
from .problem import array_kernels
from .stack_pairs import Apart, nothing_apart
from .vector_scales import VectorScales

MOST_ENTRIES = 48_000_000  # of the blocks together: six rows each of a point of four million
# Entries of a matrix from which on reading ten pairs takes longer than the rest of a step, and an
# inexact model of rows longer than that: test_long_matrices_… in tests/test_cost.py.
LONG_MATRIX = 32_768
# Entries of more pairs than usual: reading them must take less than the rest of a step, which is
# long for a tree (here 64 MB) and for a stack.  tests/test_cost.py
ROOM_OF_TREES, ROOM_OF_STACKS, ROOM_OF_MATRIX, ROOM_OF_VECTOR = 4_000_000, 240_000, 15_000, 30_000
ROOM_OF_REAL_VECTOR = 5_000


class Pairs(NamedTuple):
    """At most m pairs in blocks of m + 1 rows, or without blocks the newest pair alone."""

    S: Array | None
    Y: Array | None
    inverse: NumpyArray  # R⁻¹
    diagonal: NumpyArray  # ⟨s_i, y_i⟩
    rows: tuple[int, ...] = ()  # of the pairs in use, oldest first
    changes: NumpyArray | None = None  # YᵀDY of plain pairs, whose rows of Y follow those of S
    slopes: NumpyArray | None = None  # products of the rows with the gradient, until it is used
    apart: Apart | None = None  # of a stack, what its matrices are by themselves
    vectors: VectorScales | None = None  # of plain pairs, what is known about unit vectors

    @property
    def in_use(self) -> int:
        return len(self.rows)

    @property
    def scales(self) -> NumpyArray | None:
        """D of unit vectors, a number for each of a row."""
        return None if self.vectors is None else self.vectors.entries

    def forgotten(self) -> Pairs:
        """No pair in use; the blocks stay."""
        return self._replace(
            inverse=np.zeros_like(self.inverse),
            diagonal=np.zeros_like(self.diagonal),
            rows=(),
            slopes=None,
            apart=self.apart and self.apart.forgotten(),
        )

    def after_aiming(self) -> Pairs:
        """What is kept once the direction is known."""
        if self.slopes is not None:
            return self._replace(slopes=None)
        return self if len(self.diagonal) != 1 else NOTHING


NOTHING = Pairs(None, None, np.zeros((0, 0)), np.zeros(0))


def no_pairs(geometry: Manifold, G: Cotangent, memory: int, stack: Point = None) -> Pairs:
    """Room for ``memory`` vectors like G, or for as many as fit into ``MOST_ENTRIES``.

    The matrices of a ``stack`` are looked at one by one.
    """
    rows = room_for(G, memory)
    blocks = _block(geometry, G, rows), _block(geometry, G, rows)
    apart = None if stack is None else nothing_apart(geometry, stack, rows)
    return Pairs(*blocks, np.zeros((rows, rows)), np.zeros(rows), apart=apart)


def room_for(G: Cotangent, memory: int) -> int:
    """Rows of a block, with the one that the next pair will take."""
    entries = sum(math.prod(leaf.shape) for leaf in (G if isinstance(G, tuple) else (G,)))
    return min(memory + 1, max(MOST_ENTRIES // (2 * max(entries, 1)), 2))


def pairs_worth_keeping(geometry: Manifold, G: Cotangent, memory: int, more: bool) -> int:
    """Two fifths of ``memory`` of one long matrix, on all ranks together.

    Where ``more`` may help, up to thrice as many of a tree, a stack, a small matrix or a vector.
    """
    if isinstance(G, tuple):
        room, entries = ROOM_OF_TREES, sum(math.prod(leaf.shape) for leaf in G)
    elif len(G.shape) > 2:
        room, entries = ROOM_OF_STACKS, math.prod(G.shape)
    elif len(G.shape) == 1 or G.shape[1] == 1:
        kernels = array_kernels(geometry, G)
        room = ROOM_OF_VECTOR if kernels.is_complex(G) else ROOM_OF_REAL_VECTOR
        entries = kernels.rows(G) if len(G.shape) > 1 else int(G.shape[0])
    else:
        room, entries = ROOM_OF_MATRIX, array_kernels(geometry, G).rows(G) * int(G.shape[1])
        if entries >= LONG_MATRIX:
            return max(2 * memory // 5, 1)
    return max(memory, min(3 * memory, room // max(entries, 1))) if more else memory


def remember(
    geometry: Manifold,
    pairs: Pairs,
    s: Tangent,
    y: Cotangent,
    sy: float,
    needed: tuple[int, ...],
) -> Pairs:
    """``pairs`` with one more, of ⟨s, y⟩ = sy, and without the oldest if they are many; 2mnk.

    The rows in ``needed`` are those of the state before, which are not written to.
    """
    most = len(pairs.diagonal)
    if not most:
        blocks = _row(s), _row(y)
        return Pairs(*blocks, np.array([[1.0 / sy]]), np.array([sy]), (0,))
    if (fast := _compiled(geometry, pairs)) is not None:
        return _remember_compiled(fast, pairs, s, y, sy, needed)
    row = free_row(needed)
    S, Y = _write(geometry, pairs.S, row, s), _write(geometry, pairs.Y, row, y)
    return Pairs(S, Y, *bordered(pairs, row, _dot(geometry, S, y), sy), apart=pairs.apart)


def free_row(needed: tuple[int, ...]) -> int:
    """A row that no pair in ``needed`` stands in: the next one, or else the first."""
    row = len(needed)
    if row in needed:
        row = 0
        while row in needed:
            row += 1
    return row


def with_row(pairs: Pairs, needed: tuple[int, ...]) -> tuple[int, int, Pairs]:
    """The row of a new pair, the row that counts no more (or −1), and pairs to be written to."""
    S, Y, inverse, diagonal, rows, *_ = pairs
    most, gone = len(diagonal), -1
    row = free_row(needed) if len(needed) + 1 < most else most * (most - 1) // 2 - sum(needed)
    used = (*rows, row)
    if len(used) == most:
        gone, used = used[0], used[1:]
    return row, gone, Pairs(S, Y, inverse.copy(), diagonal.copy(), used)


def place_for(pairs: Pairs) -> PairPlace | None:
    """Where the next plain pair will stand: curves write it there."""
    if pairs.S is None or pairs.changes is None:
        return None
    rows, vectors = rows_with(pairs.rows, len(pairs.diagonal)), pairs.vectors
    if vectors is None:
        return PairPlace(pairs.S, rows)
    return PairPlace(pairs.S, rows, vectors.entries, vectors.look_at(rows[-1]))


def rows_with(rows: tuple[int, ...], most: int) -> tuple[int, ...]:
    """These rows and a free one, without the oldest if they are many."""
    if len(rows) + 1 < most:
        return (*rows, free_row(rows))
    return (*rows[1:], most * (most - 1) // 2 - sum(rows))


def bordered(
    pairs: Pairs, row: int, products: NumpyArray, sy: float
) -> tuple[NumpyArray, NumpyArray, tuple[int, ...]]:
    """R⁻¹, ⟨s_i, y_i⟩ and the rows in use with a new y, of the ``products`` ⟨s_i, y⟩."""
    rows, inverse, diagonal = (*pairs.rows, row), pairs.inverse.copy(), pairs.diagonal.copy()
    if len(rows) == len(diagonal):
        gone, rows = rows[0], rows[1:]
        inverse[gone], inverse[:, gone], diagonal[gone] = 0.0, 0.0, 0.0
    inverse[:, row] = inverse.dot(products) / -sy
    inverse[row, row], diagonal[row] = 1.0 / sy, sy
    return inverse, diagonal, rows


def smoothed(old: float, new: float) -> float:
    """The geometric mean of two values of γ: one step shows one curvature of many."""
    return math.sqrt(old * new) if old else new


def apply_inverse(
    geometry: Manifold,
    pairs: Pairs,
    g: Cotangent,
    gamma: float,
    phi: Callable[[Cotangent], Tangent],
    owned: bool,
) -> Tangent:
    """−H g for a cotangent g, a direction that is tangent up to the parts of old pairs; 8mnk.

    ``phi`` may overwrite what it is given; what it returns is overwritten if it is ``owned``.
    """
    S, Y, inverse, diagonal = pairs[:4]
    if (fast := _compiled(geometry, pairs)) is not None:
        whole = _joined(g)
        q, a = np.empty_like(whole), np.empty_like(diagonal)
        fast.first_loop(S, Y, inverse, whole, q, a)
        found = phi(_parted(q, g))
        over = isinstance(found, tuple) and all(leaf.base is q for leaf in found)  # written over q
        r = q if over else _joined(found)
        r = np.array(r, q.dtype, order="C", copy=None if owned else True)
        fast.second_loop(S, Y, inverse, diagonal, gamma, a, r)
        return _parted(r, g)
    a = inverse.dot(_dot(geometry, S, g))
    r = phi(_add(geometry, 1.0, g, Y, -a))
    c = (gamma * _dot(geometry, Y, r) - diagonal * a).dot(inverse)
    return _add(geometry, -gamma, r, S, c, overwrite=owned)


def _compiled(geometry: Manifold, pairs: Pairs) -> Any:
    """The compiled kernels, where a block is one NumPy array of doubles and φ knows no weights."""
    S = pairs.S
    if type(S) is not np.ndarray or S.dtype.char not in "dD":
        return None
    k = kernels_for(S) if hasattr(geometry, "factors") else array_kernels(geometry, S)
    return k.compiled


def _remember_compiled(
    fast: Any, pairs: Pairs, s: Tangent, y: Cotangent, sy: float, needed: tuple[int, ...]
) -> Pairs:
    """`bordered` in one call, with the pair written into its row."""
    row, gone, kept = with_row(pairs, needed)
    write = fast.leaves_remember
    if not isinstance(s, tuple):
        write, s, y = fast.remember_pair, in_rows(s), in_rows(y)
    write(kept.S, kept.Y, row, gone, s, y, sy, kept.inverse, kept.diagonal)
    return kept if pairs.apart is None else kept._replace(apart=pairs.apart)


# -- blocks: one array (m, *shape) a leaf; products with them are matrix products, whatever m is --


def _block(geometry: Manifold, G: Cotangent, rows: int) -> Any:
    if isinstance(G, tuple):
        if _is_small_tree(geometry, G):
            whole = _joined(G)
            return np.zeros((rows, whole.size), whole.dtype)
        return tuple(_block(f, leaf, rows) for f, leaf in zip(geometry.factors, G, strict=True))  # type: ignore[attr-defined]
    return array_kernels(geometry, G).block(G, rows)


def _is_small_tree(geometry: Manifold, G: Leaves) -> bool:
    """Whether one array holds the real numbers of all leaves: NumPy's, of one precision."""
    factors = geometry.factors  # type: ignore[attr-defined]
    if not all(array_kernels(f, leaf).pure_numpy for f, leaf in zip(factors, G, strict=True)):
        return False
    alike = len({leaf.real.dtype for leaf in G}) == 1
    return alike and sum(leaf.size for leaf in G) <= SMALL_TREE


def _joined(C: Array | Leaves) -> NumpyArray:
    """The real numbers of a tree's leaves one after the other; a single array is itself."""
    if not isinstance(C, tuple):
        return C
    return np.concatenate([leaf.reshape(-1).view(leaf.real.dtype) for leaf in C])


def _parted(whole: NumpyArray, like: Array | Leaves) -> Any:
    """The leaves that `_joined` has joined."""
    if not isinstance(like, tuple):
        return whole
    ends = [0, *itertools.accumulate(leaf.nbytes // whole.itemsize for leaf in like)]
    parts = zip(like, ends, ends[1:], strict=False)
    return tuple(whole[i:j].view(leaf.dtype).reshape(leaf.shape) for leaf, i, j in parts)


def _row(C: Array) -> Any:
    """C as a block of one row."""
    return tuple(map(_row, C)) if isinstance(C, tuple) else C[None, ...]


def _write(geometry: Manifold, block: Any, i: int, C: Array) -> Any:
    """The block with C as its row i; in place where the library allows it."""
    if isinstance(C, tuple):
        if not isinstance(block, tuple):
            block[i] = _joined(C)
            return block
        leaves = zip(geometry.factors, block, C, strict=True)  # type: ignore[attr-defined]
        return tuple(_write(f, b, i, c) for f, b, c in leaves)
    return array_kernels(geometry, C).write_row(block, i, C)


def _dot(geometry: Manifold, block: Any, C: Array) -> NumpyArray:
    """⟨block_i, C⟩ for all i."""
    if isinstance(C, tuple):
        if not isinstance(block, tuple):
            return block.dot(_joined(C)).astype(np.float64, copy=False)
        leaves = zip(geometry.factors, block, C, strict=True)  # type: ignore[attr-defined]
        return sum(_dot(f, b, c) for f, b, c in leaves)  # type: ignore[return-value]
    k = array_kernels(geometry, C)
    return k.block_dot(block, C if k.pure_numpy else geometry.dual(C))


def _add(
    geometry: Manifold, a: float, C: Array, block: Any, weights: NumpyArray, overwrite: bool = False
) -> Any:
    """a C + Σ weights_i block_i; with ``overwrite`` it may take the place of C."""
    if isinstance(C, tuple):
        if not isinstance(block, tuple):
            return _parted(a * _joined(C) + weights.astype(block.dtype, copy=False).dot(block), C)
        leaves = zip(geometry.factors, C, block, strict=True)  # type: ignore[attr-defined]
        return tuple(_add(f, a, c, b, weights, overwrite) for f, c, b in leaves)
    return array_kernels(geometry, C).block_add(a, C, block, weights, overwrite)
