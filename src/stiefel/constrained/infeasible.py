"""What must be asked before a problem is called infeasible: is there no way to lessen a violation?

    v(X) = ½ Σ ‖c(X) − nearest value that is allowed‖²

is stationary where its slope along the manifold vanishes.  That is so at its minima, where a
problem is infeasible nearby, and at its maxima: x ≥ 0 at x = −1/√n.  From those a way in almost any
direction leads down, if it is long enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from stiefel.arguments import bind, leaves_of
from stiefel.backends.ranks import ALONE
from stiefel.function.trees import Tree
from stiefel.types import Array, Manifolds

from .blocks import ConstraintBlock

# Of a slope, against the size of its parts: test_infeasible_constraints_are_told.
LEVEL_SLOPE = 1e-4
WAYS = (0.1, 0.3, 1.0, 3.0)  # their lengths; the first two are level in
# test_the_largest_violation_is_left.
# Of v; a level v varies by rounding: test_a_level_violation_has_no_way_out and, for the other side,
# test_a_small_fall_is_a_way_out.
NOTICEABLE_FALL = 1e-4


class Violation:
    """v of the constraints among the blocks."""

    def __init__(
        self, blocks: Sequence[ConstraintBlock], tree: Tree, manifold: Manifolds | None
    ) -> None:
        self._blocks = [b for b in blocks if b.weights is None]
        self._tree, self._manifold = tree, manifold
        self._least = math.inf  # where v was stationary: a way out must lead beneath it

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def value(self, X: Any) -> float:
        return 0.5 * math.fsum(float(d @ d) for d in map(self._away(X), self._blocks))

    def _away(self, X: Any) -> Any:
        def away(block: ConstraintBlock) -> Array:
            c = block.value(X)
            return c - block.prox(c, 1.0)

        return away

    def is_stationary(self, X: Any) -> bool:
        """Whether no direction along the manifold lessens v, to first order."""
        geometry, point = bind(self._tree, leaves_of(self._tree, X, self._manifold), ALONE)
        total = [np.zeros_like(x) for x in self._tree.flatten(X)]
        size = 0.0
        for block in self._blocks:
            away = self._away(X)(block)
            J = block.jacobian(X)
            size += float(np.abs(away) @ np.sqrt(np.sum(J**2, axis=1)))
            for part, pulled in zip(total, self._tree.flatten(block.pull(X, away))):
                part += pulled
        slope = tuple(total) if isinstance(point, tuple) else total[0]
        return float(geometry.norm(point, geometry.project(point, slope))) <= LEVEL_SLOPE * size

    def lessened(self, X: Any) -> Any:
        """A point with a smaller v, as near as one is found; None if there seems to be none."""
        geometry, point = bind(self._tree, leaves_of(self._tree, X, self._manifold), ALONE)
        self._least = min(self._least, (1.0 - NOTICEABLE_FALL) * self.value(X))
        rng = np.random.default_rng(0)
        for length in WAYS:
            moved = tuple(_strayed(rng, x, length) for x in self._tree.flatten(X))
            if isinstance(point, tuple):
                Y = self._tree.unflatten(geometry.nearest(moved))
            else:
                Y = geometry.nearest(moved[0])
            if self.value(Y) < self._least:
                return Y
        return None


def _strayed(rng: np.random.Generator, x: Array, length: float) -> Array:
    d = rng.standard_normal(x.shape)
    if x.dtype.kind == "c":
        d = d + 1j * rng.standard_normal(x.shape)
    return x + (length / max(float(np.linalg.norm(d)), 1e-300)) * d
