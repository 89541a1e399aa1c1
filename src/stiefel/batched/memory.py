"""The secant pairs of every problem: `stiefel.solvers.memory` with one ring for all problems.

All problems write to the same row of the ring, which moves on at every evaluation: a row is then
one contiguous piece of a block.  A problem that keeps no pair, because its trial was refused, has
zeros in that row, which count for nothing.  A pair is scaled so that ⟨s, y⟩ is about one: blocks
may be in single precision, whose range is small.  R⁻¹ stands in the order of the ring.  Small
matrices have shape (B, m, m), blocks (B, m, N) for each leaf of N numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from stiefel.types import Array, Leaves

from .kernels import PerProblem
from .leaves import Leaf
from .shared import Secant


class Memory(NamedTuple):
    S: Leaves
    Y: Leaves
    inverse: Array  # R⁻¹, (B, m, m)
    diagonal: Array  # ⟨s_i, y_i⟩, (B, m)
    row: Array  # where the next pair goes, a number

    def in_use(self, k: PerProblem) -> Array:
        """Which problems have a pair."""
        return k.xp.max(self.diagonal, axis=1) > 0


def no_pairs(k: PerProblem, x: Leaves, size: int, zero: Array) -> Memory:
    def block(leaf: Array) -> Array:
        shape = (leaf.shape[0], size, math.prod(leaf.shape[1:]))
        return k.zeros(shape, k.pair_dtype(leaf), leaf)

    diagonal = k.zeros((zero.shape[0], size), zero.dtype, zero)
    inverse = k.zeros((zero.shape[0], size, size), zero.dtype, zero)
    row = k.integers(zero)[0]
    return Memory(tuple(map(block, x)), tuple(map(block, x)), inverse, diagonal, row)


def forget(k: PerProblem, memory: Memory, mask: Array) -> Memory:
    """No pair in use in the problems of the mask; the blocks stay."""
    if not k.some(mask):
        return memory
    return memory._replace(
        inverse=k.choose(mask, k.xp.zeros_like(memory.inverse), memory.inverse),
        diagonal=k.choose(mask, k.xp.zeros_like(memory.diagonal), memory.diagonal),
    )


def remember(
    leaves: tuple[Leaf, ...], memory: Memory, pairs: tuple[Secant, ...], sy: Array, keep: Array
) -> Memory:
    """One more pair in the problems of ``keep``, in place of the oldest; 2mnk."""
    k, xp, row = leaves[0].k, leaves[0].k.xp, memory.row
    unit = k.power_of_two(xp.sqrt(xp.abs(sy)))

    def scaled(C: Array) -> Array:
        return k.kept(keep, k.spread_out(unit, C) * C)

    s, y = zip(*((scaled(pair.s), scaled(pair.y)) for pair in pairs), strict=True)
    S = tuple(k.put(block, 1, row, k.flat(C)) for block, C in zip(memory.S, s, strict=True))
    Y = tuple(k.put(block, 1, row, k.flat(C)) for block, C in zip(memory.Y, y, strict=True))
    size, sy = memory.diagonal.shape[1], unit * unit * sy
    here = xp.astype(xp.arange(size, device=k.device(sy)) == row, sy.dtype)
    Sy = block_dot(leaves, S, y) * (1.0 - here)
    inverse = k.put(memory.inverse, 1, row, xp.zeros_like(memory.diagonal))
    column = (here - k.times_vector(inverse, Sy)) / xp.where(keep, sy, xp.ones_like(sy))[:, None]
    inverse = k.put(inverse, 2, row, k.kept(keep, column))
    diagonal = k.put(memory.diagonal, 1, row, k.kept(keep, sy))
    return Memory(S, Y, inverse, diagonal, (row + 1) % size)


def apply_inverse(
    leaves: tuple[Leaf, ...],
    memory: Memory,
    g: Leaves,
    scale: Callable[[Leaves], Array],
    phi: Callable[[Leaves], Leaves],
) -> Leaves:
    """−H g for cotangents g; γ = scale(φ(q)).  Without pairs it is −γ φ(g); 8mnk."""
    k, xp = leaves[0].k, leaves[0].k.xp
    S, Y, inverse, diagonal, _ = memory
    a = k.times_vector(inverse, block_dot(leaves, S, g))
    r = phi(tuple(c - k.block_sum(b, a, c) for c, b in zip(g, Y, strict=True)))
    gamma = scale(r)
    products = gamma[:, None] * block_dot(leaves, Y, r) - diagonal * a
    c = k.times_vector(xp.matrix_transpose(inverse), products)
    return tuple(
        k.block_sum(b, c, v) - k.spread_out(gamma, v) * v for v, b in zip(r, S, strict=True)
    )


def block_dot(leaves: tuple[Leaf, ...], block: Leaves, C: Leaves) -> Array:
    parts = [leaf.k.block_dot(b, c) for leaf, b, c in zip(leaves, block, C, strict=True)]
    return sum(parts[1:], parts[0])
