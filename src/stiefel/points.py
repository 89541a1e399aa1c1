"""Points without a problem: random ones, the nearest one, and those between and beyond two."""

from __future__ import annotations

from typing import Any

import numpy as np

from .geometry import Stiefel

Array = Any


def random_point(
    *shape: int,
    seed: int | np.random.Generator | None = None,
    dtype: Any = np.float64,
    like: Array | None = None,
    manifold: Any = None,
) -> Array:
    """A uniformly distributed orthonormal matrix (n, k), or a stack (..., n, k) of them.

    ``like`` gives the array library, dtype and device; NumPy with ``dtype`` otherwise.
    """
    return (manifold or Stiefel()).random(*shape, seed=seed, dtype=dtype, like=like)


def nearest(A: Array, *, manifold: Any = None) -> Array:
    """The point of the manifold nearest to A; for orthonormal matrices its polar factor."""
    return (manifold or Stiefel()).nearest(A)


def interpolate(X: Array, Y: Array, alpha: float, *, manifold: Any = None) -> Array:
    """The point that stands for (1 − α)X + αY, on the manifold; Section 4.2 of the paper.

    X at α = 0, Y at α = 1, an average in between.  Costs O(nk²), without a factorisation.
    """
    return (manifold or Stiefel()).extrapolate(X, Y, alpha)


def extrapolate(X: Array, Y: Array, tau: float, *, manifold: Any = None) -> Array:
    """The point at τ on the Cayley curve from X (τ = 0) through Y (τ = 1): momentum for τ > 1."""
    return (manifold or Stiefel()).extrapolate(X, Y, tau)
