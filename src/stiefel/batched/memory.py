"""The secant pairs of every problem: `stiefel.solvers.pairs` with a ring of m rows for each.

R⁻¹ stands in the order of the ring, with zeros for rows that are not used; the next row is that
of the oldest pair.  Small matrices have shape (B, m, m), blocks (B, m, ...) for each leaf.
"""

from __future__ import annotations

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
    row: Array  # where the next pair goes
    in_use: Array  # pairs in use


def no_pairs(k: PerProblem, x: Leaves, size: int, zero: Array) -> Memory:
    def block(leaf: Array) -> Array:
        shape = (leaf.shape[0], size, *leaf.shape[1:])
        return k.own(k.xp.zeros(shape, dtype=leaf.dtype, device=k.device(leaf)))

    count = k.integers(zero)
    diagonal = k.own(zero[:, None] + k.xp.zeros((1, size), dtype=zero.dtype, device=k.device(zero)))
    inverse = k.own(diagonal[:, :, None] * diagonal[:, None, :])
    return Memory(tuple(map(block, x)), tuple(map(block, x)), inverse, diagonal, count, 0 * count)


def forget(k: PerProblem, memory: Memory, mask: Array) -> Memory:
    """No pair in use in the problems of the mask; the blocks stay."""
    if not k.some(mask):
        return memory
    return memory._replace(
        inverse=k.choose(mask, 0.0 * memory.inverse, memory.inverse),
        diagonal=k.choose(mask, 0.0 * memory.diagonal, memory.diagonal),
        in_use=k.xp.where(mask, 0 * memory.in_use, memory.in_use),
    )


def remember(
    leaves: tuple[Leaf, ...], memory: Memory, pairs: tuple[Secant, ...], sy: Array, keep: Array
) -> Memory:
    """One more pair in the problems of ``keep``, without the oldest where they are many; 2mnk."""
    k, xp = leaves[0].k, leaves[0].k.xp
    size = memory.diagonal.shape[1]
    S = tuple(k.write(b, memory.row, keep, p.s) for b, p in zip(memory.S, pairs, strict=True))
    Y = tuple(k.write(b, memory.row, keep, p.y) for b, p in zip(memory.Y, pairs, strict=True))
    sy = xp.where(keep, sy, xp.ones_like(sy))
    rows = xp.arange(size, device=k.device(memory.row))
    here = k.numbers(memory.row[:, None] == rows)
    others = 1.0 - here
    old = memory.inverse * others[:, :, None] * others[:, None, :]
    Sy = block_dot(leaves, S, tuple(p.y for p in pairs))
    column = here - xp.sum(old * Sy[:, None, :], axis=-1)
    inverse = old + (column / sy[:, None])[:, :, None] * here[:, None, :]
    diagonal = memory.diagonal * others + here * sy[:, None]
    in_use = xp.minimum(memory.in_use + 1, 0 * memory.in_use + size)
    small = (inverse, diagonal, (memory.row + 1) % size, in_use)
    return Memory(S, Y, *k.choose(keep, small, memory[2:]))


def apply_inverse(
    leaves: tuple[Leaf, ...],
    memory: Memory,
    g: Leaves,
    scale: Callable[[Leaves], Array],
    phi: Callable[[Leaves], Leaves],
) -> Leaves:
    """−H g for cotangents g; γ = scale(φ(q)).  Without pairs it is −γ φ(g); 8mnk."""
    k, xp = leaves[0].k, leaves[0].k.xp
    S, Y, inverse, diagonal, _, _ = memory
    a = xp.sum(inverse * block_dot(leaves, S, g)[:, None, :], axis=-1)
    r = phi(tuple(c - k.block_sum(b, a) for c, b in zip(g, Y, strict=True)))
    gamma = scale(r)
    products = gamma[:, None] * block_dot(leaves, Y, r) - diagonal * a
    c = xp.sum(products[:, :, None] * inverse, axis=1)
    return tuple(k.block_sum(b, c) - k.spread_out(gamma, v) * v for v, b in zip(r, S, strict=True))


def block_dot(leaves: tuple[Leaf, ...], block: Leaves, C: Leaves) -> Array:
    parts = [leaf.k.block_dot(b, c) for leaf, b, c in zip(leaves, block, C, strict=True)]
    return sum(parts[1:], parts[0])
