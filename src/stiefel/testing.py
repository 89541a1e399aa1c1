"""Laws for what you write yourself: a manifold, or a nonsmooth term.

stiefel.testing.check_manifold(MyManifold(), X)   # raises an error that lists the laws it breaks
stiefel.testing.check_term(MyTerm(), X)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from stiefel.backends.arrays import is_array
from stiefel.geometry.checks import gaussian
from stiefel.nonsmooth.laws import check_term
from stiefel.types import Array, Manifold, Point

DIFFERENCE_STEP = 1e-4  # of differences; their error is its square

Law = Callable[["_Sample"], Iterator[tuple[float, float]]]  # what was found, what was expected


class ManifoldError(AssertionError):
    """A manifold that breaks laws; the message lists them."""


class _Sample:
    """A manifold with a point and a few cotangents there, of length one."""

    def __init__(self, manifold: Manifold, X: Point, seed: int) -> None:
        self.M, self.X, self._rng = manifold, X, np.random.default_rng(seed)
        self.G, self.V, self.W = (self.array() for _ in range(3))
        self.V, self.W = (self._unit(manifold.project_direction(X, D)) for D in (self.V, self.W))

    def array(self) -> Any:
        leaves = self.X if isinstance(self.X, tuple) else (self.X,)
        drawn = tuple(gaussian(tuple(x.shape), self._rng, None, x) for x in leaves)
        return drawn if isinstance(self.X, tuple) else drawn[0]

    def _unit(self, W: Array) -> Array:
        return self.M.scale(1.0 / self.M.norm(self.X, W), W)

    def gap(self, A: Any, B: Any) -> float:
        """The largest difference of two arrays, or trees of them."""
        if isinstance(A, tuple):
            return max(map(self.gap, A, B))
        assert is_array(A), f"an array was expected, not a {type(A).__name__}"
        return float(np.max(np.abs(np.asarray(A) - np.asarray(B)), initial=0.0))


def _projections(s: _Sample) -> Iterator[tuple[float, float]]:
    P = s.M.project_direction(s.X, s.G)
    yield s.gap(s.M.project_direction(s.X, P), P), 0.0
    T = s.M.raise_index(s.X, s.W)
    yield s.M.pair(s.X, s.M.project(s.X, s.G), T), s.M.dot(s.M.project(s.X, s.G), T)


def _gradients(s: _Sample) -> Iterator[tuple[float, float]]:
    G, square, *_ = s.M.gradient(s.X, s.G)
    yield s.gap(G, s.M.project(s.X, s.G)), 0.0
    yield math.sqrt(square), s.M.norm(s.X, G)


def _inner_products(s: _Sample) -> Iterator[tuple[float, float]]:
    yield s.M.inner(s.X, s.V, s.W), s.M.inner(s.X, s.W, s.V)
    yield s.M.inner(s.X, s.V, s.W), s.M.pair(s.X, s.V, s.M.raise_index(s.X, s.W))
    both = s.M.combine(1.0, s.V, 2.0, s.W)
    expected = 1.0 + 4.0 + 4.0 * s.M.inner(s.X, s.V, s.W)
    yield s.M.inner(s.X, both, both), expected


def _indices(s: _Sample) -> Iterator[tuple[float, float]]:
    T = s.M.raise_index(s.X, s.W)
    yield s.gap(s.M.lower_index(s.X, T), s.W), 0.0


def _rays_begin(s: _Sample) -> Iterator[tuple[float, float]]:
    ray = s.M.ray(s.X, s.W)
    yield s.gap(ray(0.0), s.X), 0.0
    yield ray.squared_norm, 1.0
    ends = ray(DIFFERENCE_STEP), ray(-DIFFERENCE_STEP)
    slope = s.M.combine(0.5 / DIFFERENCE_STEP, ends[0], -0.5 / DIFFERENCE_STEP, ends[1])
    yield s.gap(slope, s.M.raise_index(s.X, s.W)), 0.0


def _rays_stay(s: _Sample) -> Iterator[tuple[float, float]]:
    for t in (0.3, 1.0, -2.0):
        yield s.M.defect(s.M.ray(s.X, s.W)(t)), 0.0


def _velocities(s: _Sample) -> Iterator[tuple[float, float]]:
    ray = s.M.ray(s.X, s.W)
    slope = s.M.combine(
        0.5 / DIFFERENCE_STEP,
        ray(0.4 + DIFFERENCE_STEP),
        -0.5 / DIFFERENCE_STEP,
        ray(0.4 - DIFFERENCE_STEP),
    )
    yield s.gap(slope, ray.velocity(0.4)), 0.0


def _transports(s: _Sample) -> Iterator[tuple[float, float]]:
    ray = s.M.ray(s.X, s.W)
    Y, V, W = ray(0.7), ray.transport(0.7, s.V), ray.transport(0.7, s.W)
    yield s.gap(s.M.project_direction(Y, V), V), 0.0
    yield s.M.inner(Y, V, W), s.M.inner(s.X, s.V, s.W)
    yield s.gap(s.M.raise_index(Y, W), ray.transported_velocity(0.7)), 0.0


def _lifts(s: _Sample) -> Iterator[tuple[float, float]]:
    Y = s.M.ray(s.X, s.W)(0.5)
    yield s.gap(s.M.lift(s.X, Y), s.M.scale(0.5, s.W)), 0.0
    yield s.gap(s.M.extrapolate(s.X, Y, 1.0), Y), 0.0
    yield s.gap(s.M.extrapolate(s.X, Y, 0.0), s.X), 0.0


def _hessians(s: _Sample) -> Iterator[tuple[float, float]]:
    """Of the linear function ⟨G, X⟩: only the curvature of the manifold is left."""
    zero = s.M.scale(0.0, s.G)

    def product(W: Array) -> Array:
        return s.M.hessian(s.X, s.G, W, zero)

    yield s.M.inner(s.X, s.V, product(s.W)), s.M.inner(s.X, s.W, product(s.V))
    ray, step = s.M.ray(s.X, s.W), 1e-3
    values = [s.M.dot(s.G, ray(t)) for t in (-step, 0.0, step)]
    second = (values[0] - 2.0 * values[1] + values[2]) / step**2
    yield s.M.inner(s.X, s.W, product(s.W)), second


def _points(s: _Sample) -> Iterator[tuple[float, float]]:
    yield s.M.defect(s.M.nearest(s.M.combine(1.0, s.X, 0.1, s.G))), 0.0
    yield s.gap(s.M.nearest(s.X), s.X), 0.0
    yield max(s.M.defect(s.M.restore(s.X)) - s.M.allowed_defect(s.X), 0.0), 0.0


LAWS: dict[str, Law] = {
    "project_direction is a projection, and pair is dot": _projections,
    "gradient is project with the squared norm": _gradients,
    "inner is symmetric, bilinear, and V(φ(W))": _inner_products,
    "lower_index undoes raise_index": _indices,
    "a ray leaves X with velocity φ(W) and knows ‖W‖²": _rays_begin,
    "a ray stays on the manifold": _rays_stay,
    "velocity(t) is the derivative of the ray": _velocities,
    "transport is isometric, gives cotangents, and carries φ(W)": _transports,
    "lift undoes the ray, and extrapolate meets both ends": _lifts,
    "hessian is symmetric, and the second derivative along the ray": _hessians,
    "nearest and restore give points, and leave points alone": _points,
}


def check_manifold(manifold: Manifold, X: Point, *, seed: int = 0, tolerance: float = 1e-5) -> None:
    """Try the laws of a manifold at a point, with random directions.

    Parameters
    ----------
    manifold : Manifold
        What is to be checked; `stiefel.types.Manifold` lists its functions.
    X : array or tuple of arrays
        A point of it.
    seed : int
        Of the random directions.
    tolerance : float
        The largest difference that is allowed, for directions of length one.

    Raises
    ------
    ManifoldError
        If laws are broken, or functions missing: the message lists all of them.

    Examples
    --------
    >>> import stiefel, stiefel.testing
    >>> stiefel.testing.check_manifold(stiefel.Stiefel(), stiefel.random_point(6, 2, seed=0))
    """
    sample, broken = _Sample(manifold, X, seed), []
    for name, law in LAWS.items():
        try:
            gaps = [(found, expected) for found, expected in law(sample)]
        except Exception as error:  # a function that is missing, or fails
            broken.append(f"{name}: {type(error).__name__}: {error}")
            continue
        bad = [pair for pair in gaps if not abs(pair[0] - pair[1]) <= tolerance]
        broken += [f"{name}: found {f:.3g}, expected {e:.3g}" for f, e in bad]
    if broken:
        listed = "\n".join(f"  - {line}" for line in broken)
        raise ManifoldError(f"{type(manifold).__name__} breaks {len(broken)} law(s):\n{listed}")


__all__ = ["LAWS", "ManifoldError", "check_manifold", "check_term"]
