"""Blocks of vectors, for solvers with a memory.

A block is one array (m, *shape): its rows are tangents or cotangents, perhaps at different points.
Products with a block are matrix products, whatever m is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stiefel.backends.arrays import to_numpy
from stiefel.backends.base import Kernels, kernel
from stiefel.types import Array, Metric

from .metric import squared_change
from .ray import Secant


class Blocks:
    """What a manifold of arrays does with blocks, and with the pairs that stand in them."""

    def _k(self, X: Array) -> Kernels:
        raise NotImplementedError

    def block(self, X: Array, rows: int) -> Array:
        """A block of zeros, to be written to."""
        k = self._k(X)
        return k.xp.zeros((rows, *X.shape), dtype=X.dtype, device=k.device(X))

    def block_of(self, C: Array) -> Array:
        """C as a block of one row."""
        return C[None, ...]

    def raise_onto(self, X: Array, W: Array, metric: Any) -> Array:
        """φ(W), perhaps written over W, which nobody needs any more."""
        return self.raise_index(X, W, metric)  # type: ignore[attr-defined]

    def ray_along(self, X: Array, T: Array, metric: Any) -> Any:
        """The ray whose velocity is the tangent (horizontal in such a metric) nearest to T."""
        return self.ray(X, self.cotangent_of(X, T, metric))  # type: ignore[attr-defined]

    def squared_length(self, pair: Secant) -> float:
        """⟨y, y⟩ of the change y of the gradient along a step."""
        if pair.curvature is None:
            return self.dot(pair.y, pair.y)
        return float(self._k(pair.y).trace(pair.curvature.yy))

    def squared_change(self, X: Array, pair: Secant, metric: Metric) -> float:
        """⟨y, φ(y)⟩ of the change y of the gradient along a step to X."""
        if pair.curvature is None:
            return self.dot(pair.y, self.raise_index(X, pair.y, metric))  # type: ignore[attr-defined]
        omega = 0.0 if metric.horizontal else metric.omega
        return float(squared_change(self._k(X), pair.curvature, metric.D, omega))

    def block_dot(self, block: Array, C: Array) -> Any:
        """Re⟨block_i, C⟩ for all i, as NumPy doubles."""
        found = to_numpy(self._k(C).block_dot(block, C))
        return found.astype(np.float64, copy=False)

    def block_add(
        self,
        a: float,
        C: Array,
        block: Array,
        weights: np.ndarray[Any, Any],
        overwrite: bool = False,
    ) -> Array:
        """a C + Σ weights_i block_i; with ``overwrite`` it may take the place of C."""
        k = self._k(block)
        return k.block_add(a, C, block, k.asarray(weights, block), overwrite)

    def block_write(self, block: Array, i: int, C: Array) -> Array:
        """The block with C as its row i; in place where the library allows it."""
        return self._k(C).write_row(block, i, C)

    def dot(self, C: Array, D: Array) -> float:
        """Re⟨C, D⟩ of a tangent and a cotangent, or of two vectors."""
        return float(dot(self._k(C), C, D))


@kernel
def dot(k: Kernels, C: Array, D: Array) -> Array:
    return k.dot(C, D)
