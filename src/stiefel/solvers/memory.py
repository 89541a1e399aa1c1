"""The memory of L-BFGS: the last m secant pairs in two tall blocks, used as rings.

A new pair takes a row that no pair of the state before it uses, so that this state stays valid
and no row is ever moved.  With R = triu(SᵀY), from the oldest pair to the
newest, the two-loop recursion is four products with a block:

    a = R⁻¹ Sᵀg,   q = g − Y a,   r = γ φ(q),   c = R⁻ᵀ(diag(R) a − Yᵀr),   H g = r + S c.

R⁻¹ is kept, not R: a new pair adds the column −R⁻¹Sᵀy/⟨s, y⟩, and without the oldest pair R⁻¹ is
what is left of it.  It stands in the order of the rings, with zeros for rows that are not used:
old pairs that stand in those count for nothing.

Without blocks the newest pair is used for the direction that follows it, and then dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from stiefel.types import Array

Small = np.ndarray[Any, Any]


class Pairs(NamedTuple):
    """At most m pairs in blocks of m + 1 rows, or without blocks the newest pair alone."""

    S: Array | None
    Y: Array | None
    inverse: Small  # R⁻¹
    diagonal: Small  # ⟨s_i, y_i⟩
    rows: tuple[int, ...] = ()  # of the pairs in use, oldest first

    @property
    def held(self) -> int:
        return len(self.rows)

    def forgotten(self) -> Pairs:
        """No pair in use; the blocks stay."""
        return self._replace(
            inverse=np.zeros_like(self.inverse), diagonal=np.zeros_like(self.diagonal), rows=()
        )

    def spent(self) -> Pairs:
        """What is kept once the direction is known."""
        return self if len(self.diagonal) != 1 else NOTHING


NOTHING = Pairs(None, None, np.zeros((0, 0)), np.zeros(0))


def no_pairs(geometry: Any, x: Array, memory: int) -> Pairs:
    rows = memory + 1
    blocks = geometry.block(x, rows), geometry.block(x, rows)
    return Pairs(*blocks, np.zeros((rows, rows)), np.zeros(rows))


def remember(
    geometry: Any, pairs: Pairs, s: Array, y: Array, sy: float, needed: tuple[int, ...]
) -> Pairs:
    """``pairs`` with one more, of ⟨s, y⟩ = sy, and without the oldest if they are many; 2mnk.

    The rows in ``needed`` are those of the state before, which are not written to.
    """
    most = len(pairs.diagonal)
    if not most:
        blocks = geometry.block_of(s), geometry.block_of(y)
        return Pairs(*blocks, np.array([[1.0 / sy]]), np.array([sy]), (0,))
    row = next(i for i in range(most) if i not in needed)
    S, Y = geometry.block_write(pairs.S, row, s), geometry.block_write(pairs.Y, row, y)
    rows, inverse, diagonal = (*pairs.rows, row), pairs.inverse.copy(), pairs.diagonal.copy()
    if len(rows) == most:
        gone, rows = rows[0], rows[1:]
        inverse[gone], inverse[:, gone], diagonal[gone] = 0.0, 0.0, 0.0
    inverse[:, row] = inverse.dot(geometry.block_dot(S, y)) / -sy
    inverse[row, row], diagonal[row] = 1.0 / sy, sy
    return Pairs(S, Y, inverse, diagonal, rows)


def apply_inverse(
    geometry: Any,
    pairs: Pairs,
    g: Array,
    gamma: float,
    phi: Callable[[Array], Array],
    owned: bool,
) -> Array:
    """−H g for a cotangent g, a direction that is tangent up to the parts of old pairs; 8mnk.

    ``phi`` may overwrite what it is given; what it returns is overwritten if it is ``owned``.
    """
    S, Y, inverse, diagonal, _ = pairs
    a = inverse.dot(geometry.block_dot(S, g))
    r = phi(geometry.block_add(1.0, g, Y, -a))
    c = (gamma * geometry.block_dot(Y, r) - diagonal * a).dot(inverse)
    return geometry.block_add(-gamma, r, S, c, overwrite=owned)
