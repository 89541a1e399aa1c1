"""The memory of L-BFGS: the last m secant pairs in two tall blocks, used as rings.

A new pair takes the one row that no pair of the state before it uses, so that states that came
before stay valid and no row is ever moved.  With R = triu(SᵀY), rows and columns from the oldest
pair to the newest, the two-loop recursion is four products with a block and two small solves:

    a = R⁻¹ Sᵀg,   q = g − Y a,   r = γ φ(q),   c = R⁻ᵀ(diag(R) a − Yᵀr),   H g = r + S c.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.lapack import dtrtrs

Array = Any
Small = np.ndarray[Any, Any]


class Pairs(NamedTuple):
    """At most m pairs in blocks of m + 1 rows."""

    S: Array
    Y: Array
    R: Small  # ⟨s_i, y_j⟩ for i ≤ j, of the pairs in use
    rows: tuple[int, ...] = ()  # of the pairs in use, oldest first
    written: int = 0  # rows that hold something

    @property
    def held(self) -> int:
        return len(self.rows)

    def forgotten(self) -> Pairs:
        """No pair in use; the blocks stay."""
        return self._replace(R=np.zeros((0, 0)), rows=())


def no_pairs(geometry: Any, x: Array, memory: int) -> Pairs:
    blocks = geometry.block(x, memory + 1), geometry.block(x, memory + 1)
    return Pairs(*blocks, np.zeros((0, 0)))


def remember(geometry: Any, pairs: Pairs, memory: int, s: Array, y: Array) -> Pairs:
    """``pairs`` with one more, and without the oldest if there are too many; 2mnk."""
    row = pairs.written if pairs.written <= memory else _spare(pairs.rows, memory)
    S, Y = geometry.block_write(pairs.S, row, s), geometry.block_write(pairs.Y, row, y)
    written, kept = max(pairs.written, row + 1), (*pairs.rows, row)[-memory:]
    m = len(kept)
    R = np.zeros((m, m), order="F")
    R[:-1, :-1] = pairs.R[1 - m :, 1 - m :] if m > 1 else 0.0
    products = geometry.block_dot(geometry.block_rows(S, slice(0, written)), y)
    R[:, -1] = products[list(kept)]
    return Pairs(S, Y, R, kept, written)


def apply_inverse(
    geometry: Any, pairs: Pairs, g: Array, gamma: float, phi: Callable[[Array], Array]
) -> Array:
    """−H g for a cotangent g, a direction that is tangent up to the parts of old pairs; 8mnk."""
    used, rows, R = slice(0, pairs.written), list(pairs.rows), pairs.R
    S, Y = geometry.block_rows(pairs.S, used), geometry.block_rows(pairs.Y, used)
    weights = np.zeros(pairs.written)
    a = dtrtrs(R, geometry.block_dot(S, g)[rows])[0]
    weights[rows] = -a
    r = phi(geometry.block_add(g, Y, weights))
    right = R.diagonal() * a - gamma * geometry.block_dot(Y, r)[rows]
    weights[rows] = -dtrtrs(R, right, trans=1)[0]
    return geometry.block_add(geometry.scale(-gamma, r), S, weights)


def _spare(rows: tuple[int, ...], memory: int) -> int:
    return next(i for i in range(memory + 1) if i not in rows)
