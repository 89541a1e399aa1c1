"""Several matrices in one problem: a point is a tuple of leaves, each on its own manifold.

Small leaves take less time than a loop over them.  So the methods of the factors are looked up
once, and ``map(call, …)`` calls them without a frame of Python's own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import attrgetter, call, mul
from typing import Any, Self

import numpy as np

from stiefel.backends.ranks import ALONE, Alone, Ranks
from stiefel.types import Array, Leaves

from .ray import Lowered, Secant, pair_of_leaves

_bounded_length, _length, _defect = map(attrgetter, ("bounded_length", "length", "defect"))
_scale = attrgetter("scale")


class ProductRay:
    _lengths: tuple[float, float] | None = None  # `cached_property` takes a lock for each

    def __init__(self, rays: Sequence[Any]) -> None:
        self._rays = rays

    @property
    def only(self) -> Any:
        """The ray of the one leaf there is."""
        (ray,) = self._rays
        return ray

    @property
    def squared_norm(self) -> float:
        return math.fsum(ray.squared_norm for ray in self._rays)

    @property
    def bounded_length(self) -> float:
        return self._measured()[0]

    @property
    def length(self) -> float:
        return self._measured()[1]

    def _measured(self) -> tuple[float, float]:
        """The largest bounded length, and the largest length."""
        found, rays = self._lengths, self._rays
        if found is None:
            lengths = (map(float, map(each, rays)) for each in (_bounded_length, _length))
            found = self._lengths = tuple(map(max, lengths))  # type: ignore[assignment]
        return found  # type: ignore[return-value]

    @property
    def defect(self) -> float:
        return max(map(float, map(_defect, self._rays)))

    def transported_velocity(self, t: float) -> Leaves:
        return tuple(ray.transported_velocity(t) for ray in self._rays)

    def __call__(self, t: float) -> Leaves:
        return tuple(map(call, self._rays, repeat(t)))

    def velocity(self, t: float) -> Leaves:
        return tuple(ray.velocity(t) for ray in self._rays)

    def secant_pair(self, t: float, old: Any, new: Any) -> Secant:
        ends = zip(self._rays, _ends(old), _ends(new), strict=True)
        return pair_of_leaves([ray.secant_pair(t, a, b) for ray, a, b in ends])

    def transport(self, t: float, V: Leaves) -> Leaves:
        return tuple(ray.transport(t, v) for ray, v in zip(self._rays, V, strict=True))


def _ends(at: Any) -> map[Lowered]:
    """The gradients of the leaves; norms are not asked for."""
    return map(Lowered, at.G, repeat(0.0), at.rotation or repeat(None))


def _scaled(metric: Any, T: Iterable[Array]) -> Leaves:
    return tuple(map(mul, map(_scale, metric), T))


def _scaled_onto(scale: float, T: Array) -> Array:
    """T times its scale, in its place where the library writes into arrays."""
    if type(T) is not np.ndarray:
        return scale * T
    if scale != 1.0:
        T *= scale
    return T


@dataclass(frozen=True)
class Product:
    """The product of manifolds; every function acts leaf by leaf, inner products add up."""

    factors: tuple[Any, ...]
    _methods: dict[str, list[Any]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    # What others have found out about the factors, once.
    facts: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def bind(self, X: Leaves, ranks: Alone | Ranks = ALONE) -> Self:
        return type(self)(tuple(m.bind(x, ranks) for m, x in zip(self.factors, X, strict=True)))

    def _each(self, name: str, *arguments: Any) -> map[Any]:
        """What the factors say, one after the other."""
        methods = self._methods.get(name)
        if methods is None:
            methods = self._methods[name] = [getattr(m, name) for m in self.factors]
        return map(call, methods, *arguments)

    def _map(self, name: str, *arguments: Any) -> Leaves:
        return tuple(self._each(name, *arguments))

    def project(self, X: Leaves, G: Leaves) -> Leaves:
        return self._map("project", X, G)

    def gradient(self, X: Leaves, E: Leaves) -> Lowered:
        leaves = list(self._each("gradient", X, E))
        if set(map(type, leaves)) != {Lowered}:  # of a manifold of the user's
            leaves = [Lowered(*leaf) for leaf in leaves]
        G, squares, rotations, levels = zip(*leaves)
        return Lowered(G, math.fsum(squares), rotations, levels)

    def project_direction(self, X: Leaves, W: Leaves) -> Leaves:
        return self._map("project_direction", X, W)

    def inner(self, X: Leaves, V: Leaves, W: Leaves) -> float:
        return math.fsum(self._each("inner", X, V, W))

    def pair(self, X: Leaves, W: Leaves, T: Leaves) -> float:
        return math.fsum(self._each("pair", X, W, T))

    def hessian(self, X: Leaves, gradient: Leaves, W: Leaves, E: Leaves) -> Leaves:
        return self._map("hessian", X, gradient, W, E)

    def dot(self, C: Leaves, D: Leaves) -> float:
        return math.fsum(self._each("dot", C, D))

    def inner_tangent(self, X: Leaves, S: Leaves, T: Leaves) -> float:
        return math.fsum(self._each("inner_tangent", X, S, T))

    def norm(self, X: Leaves, W: Leaves) -> float:
        return math.sqrt(self.inner(X, W, W))

    def raise_index(self, X: Leaves, W: Leaves, metric: Any = None) -> Leaves:
        """φ(W); or, with one metric a leaf, φ of those, scaled against each other."""
        if metric is None:
            return self._map("raise_index", X, W)
        return _scaled(metric, self._each("raise_index", X, W, metric))

    def raise_onto(self, X: Leaves, W: Leaves, metric: Any) -> Leaves:
        T = self._each("raise_onto", X, W, metric)
        return tuple(map(_scaled_onto, map(_scale, metric), T))

    def dual(self, C: Leaves) -> Leaves:
        return self._map("dual", C)

    def cotangent_of(self, X: Leaves, T: Leaves, metric: Any) -> Leaves:
        return self._map("cotangent_of", X, T, metric)

    def bounded_length(self, T: Leaves) -> float:
        return max(self._each("bounded_length", T))

    def lower_index(self, X: Leaves, T: Leaves) -> Leaves:
        return self._map("lower_index", X, T)

    def ray(self, X: Leaves, W: Leaves) -> ProductRay:
        return ProductRay(self._map("ray", X, W))

    def ray_along(self, X: Leaves, T: Leaves, metric: Any) -> ProductRay:
        return ProductRay(self._map("ray_along", X, T, metric))

    def lift(self, X: Leaves, Y: Leaves) -> Leaves:
        return self._map("lift", X, Y)

    def extrapolate(self, X: Leaves, Y: Leaves, tau: float) -> Leaves:
        return self._map("extrapolate", X, Y, repeat(tau))

    def geodesic(self, X: Leaves, W: Leaves, t: float = 1.0) -> Leaves:
        return self._map("geodesic", X, W, repeat(t))

    def exponential(self, X: Leaves, T: Leaves, t: float = 1.0) -> Leaves:
        return self.geodesic(X, self.lower_index(X, T), t)

    def transport(self, X: Leaves, Y: Leaves, W: Leaves) -> Leaves:
        return self._map("transport", X, Y, W)

    def scale(self, a: float, V: Leaves) -> Leaves:
        return self._map("scale", repeat(a), V)

    def combine(self, a: float, V: Leaves, b: float, W: Leaves) -> Leaves:
        return self._map("combine", repeat(a), V, repeat(b), W)

    def defect(self, X: Leaves) -> float:
        return max(self._each("defect", X))

    def allowed_defect(self, X: Leaves) -> float:
        return max(self._each("allowed_defect", X))

    def restore(self, X: Leaves) -> Leaves:
        return self._map("restore", X)

    def nearest(self, A: Leaves) -> Leaves:
        return self._map("nearest", A)

    def eps(self, X: Leaves) -> float:
        return max(self._each("eps", X))

    def dimension(self, X: Leaves) -> int:
        return sum(self._each("dimension", X))
