"""Constraints as rows c(X) = 0 and c(X) ≥ 0 with their Jacobian, on flat vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from stiefel.types import Array

from .blocks import ConstraintBlock


class ConstraintRows(NamedTuple):
    """The rows at one point; the Jacobian is left out where only values are asked for."""

    c: Array
    J: Array
    equal: Array

    def violations(self, c: Array | None = None) -> Array:
        c = self.c if c is None else c
        return np.where(self.equal, np.abs(c), np.maximum(-c, 0.0))

    def violation(self, c: Array | None = None) -> float:
        return float(self.violations(c).sum())


class RowSet:
    """The rows of all blocks; of each its equations, then lower bounds, then upper ones."""

    def __init__(self, blocks: Sequence[ConstraintBlock], X: Any) -> None:
        self.blocks, self._parts = blocks, []
        equal = []
        for block in blocks:
            m = len(block.value(X))
            bounds = np.asarray(block.lower, float), np.asarray(block.upper, float)
            low, high = (np.broadcast_to(b, m) for b in bounds)
            same = low == high
            eq, lo = np.flatnonzero(same), np.flatnonzero(np.isfinite(low) & ~same)
            up = np.flatnonzero(np.isfinite(high) & ~same)
            self._parts.append((eq, lo, up, low, high))
            equal.append(np.repeat([True, False], [len(eq), len(lo) + len(up)]))
        self.equal = np.concatenate(equal) if equal else np.zeros(0, bool)

    def values(self, X: Any) -> Array:
        each = []
        for block, (eq, lo, up, low, high) in zip(self.blocks, self._parts):
            c = block.value(X)
            each += [c[eq] - low[eq], c[lo] - low[lo], high[up] - c[up]]
        return np.concatenate(each)

    def at(self, X: Any, c: Array | None = None) -> ConstraintRows:
        """The rows with their Jacobian; ``c`` if it is known."""
        each = []
        for block, (eq, lo, up, _, _) in zip(self.blocks, self._parts):
            J = block.jacobian(X)
            each += [J[eq], J[lo], -J[up]]
        return ConstraintRows(self.values(X) if c is None else c, np.vstack(each), self.equal)

    def multipliers(self, nu: Array) -> tuple[Array, ...]:
        """W of every block from the ν of its rows: ∇f + JᵀW is normal."""
        found, start = [], 0
        for eq, lo, up, low, _ in self._parts:
            W = np.zeros(len(low))
            for index, sign in ((eq, -1.0), (lo, -1.0), (up, 1.0)):
                W[index] += sign * nu[start : start + len(index)]
                start += len(index)
            found.append(W)
        return tuple(found)
