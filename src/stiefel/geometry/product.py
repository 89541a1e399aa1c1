"""Several matrices in one problem: a point is a tuple of leaves, each on its own manifold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from stiefel.backends.ranks import ALONE, Alone, Ranks
from stiefel.types import Leaves

from .ray import Lowered, Secant


class ProductRay:
    def __init__(self, rays: Sequence[Any]) -> None:
        self._rays = rays

    @property
    def squared_norm(self) -> float:
        return math.fsum(ray.squared_norm for ray in self._rays)

    @property
    def bounded_length(self) -> float:
        return max(float(ray.bounded_length) for ray in self._rays)

    @property
    def length(self) -> float:
        return max(float(ray.length) for ray in self._rays)

    @property
    def defect(self) -> float:
        return max(float(ray.defect) for ray in self._rays)

    def transported_velocity(self, t: float) -> Leaves:
        return tuple(ray.transported_velocity(t) for ray in self._rays)

    def __call__(self, t: float) -> Leaves:
        return tuple(ray(t) for ray in self._rays)

    def velocity(self, t: float) -> Leaves:
        return tuple(ray.velocity(t) for ray in self._rays)

    def secant_pair(self, t: float, old: Any, new: Any) -> Secant:
        ends = zip(self._rays, _ends(old), _ends(new), strict=True)
        return Secant(*zip(*(ray.secant_pair(t, a, b) for ray, a, b in ends), strict=True))

    def transport(self, t: float, V: Leaves) -> Leaves:
        return tuple(ray.transport(t, v) for ray, v in zip(self._rays, V, strict=True))


def _ends(at: Any) -> list[Lowered]:
    """The gradients of the leaves; norms are not asked for."""
    rotations = at.rotation or (None,) * len(at.G)
    return [Lowered(G, 0.0, rotation) for G, rotation in zip(at.G, rotations, strict=True)]


@dataclass(frozen=True)
class Product:
    """The product of manifolds; every function acts leaf by leaf, inner products add up."""

    factors: tuple[Any, ...]

    def bind(self, X: Leaves, ranks: Alone | Ranks = ALONE) -> Self:
        return type(self)(tuple(m.bind(x, ranks) for m, x in zip(self.factors, X, strict=True)))

    def _map(self, name: str, *arguments: Any) -> Leaves:
        return tuple(
            getattr(m, name)(*leaf) for m, *leaf in zip(self.factors, *arguments, strict=True)
        )

    def project(self, X: Leaves, G: Leaves) -> Leaves:
        return self._map("project", X, G)

    def gradient(self, X: Leaves, E: Leaves) -> Lowered:
        lowered = (Lowered(*leaf) for leaf in self._map("gradient", X, E))
        G, squares, rotations, levels = zip(*lowered, strict=True)
        return Lowered(G, math.fsum(squares), rotations, levels)

    def project_direction(self, X: Leaves, W: Leaves) -> Leaves:
        return self._map("project_direction", X, W)

    def inner(self, X: Leaves, V: Leaves, W: Leaves) -> float:
        return math.fsum(self._map("inner", X, V, W))

    def pair(self, X: Leaves, W: Leaves, T: Leaves) -> float:
        return math.fsum(self._map("pair", X, W, T))

    def hessian(self, X: Leaves, gradient: Leaves, W: Leaves, E: Leaves) -> Leaves:
        return self._map("hessian", X, gradient, W, E)

    def dot(self, C: Leaves, D: Leaves) -> float:
        return math.fsum(self._map("dot", C, D))

    def inner_tangent(self, X: Leaves, S: Leaves, T: Leaves) -> float:
        return math.fsum(self._map("inner_tangent", X, S, T))

    def norm(self, X: Leaves, W: Leaves) -> float:
        return math.sqrt(self.inner(X, W, W))

    def raise_index(self, X: Leaves, W: Leaves, metric: Any = None) -> Leaves:
        """φ(W); or, with one metric a leaf, φ of those, scaled against each other."""
        if metric is None:
            return self._map("raise_index", X, W)
        return tuple(
            g.scale * m.raise_index(x, w, g)
            for m, x, w, g in zip(self.factors, X, W, metric, strict=True)
        )

    def raise_onto(self, X: Leaves, W: Leaves, metric: Any) -> Leaves:
        leaves = zip(self.factors, X, W, metric, strict=True)
        return tuple(g.scale * m.raise_onto(x, w, g) for m, x, w, g in leaves)

    def dual(self, C: Leaves) -> Leaves:
        return self._map("dual", C)

    def cotangent_of(self, X: Leaves, T: Leaves, metric: Any) -> Leaves:
        return self._map("cotangent_of", X, T, metric)

    def bounded_length(self, T: Leaves) -> float:
        return max(self._map("bounded_length", T))

    def lower_index(self, X: Leaves, T: Leaves) -> Leaves:
        return self._map("lower_index", X, T)

    def ray(self, X: Leaves, W: Leaves) -> ProductRay:
        return ProductRay(self._map("ray", X, W))

    def ray_along(self, X: Leaves, T: Leaves, metric: Any) -> ProductRay:
        return ProductRay(self._map("ray_along", X, T, metric))

    def lift(self, X: Leaves, Y: Leaves) -> Leaves:
        return self._map("lift", X, Y)

    def extrapolate(self, X: Leaves, Y: Leaves, tau: float) -> Leaves:
        return tuple(m.extrapolate(x, y, tau) for m, x, y in zip(self.factors, X, Y, strict=True))

    def geodesic(self, X: Leaves, W: Leaves, t: float = 1.0) -> Leaves:
        return tuple(m.geodesic(x, w, t) for m, x, w in zip(self.factors, X, W, strict=True))

    def exponential(self, X: Leaves, T: Leaves, t: float = 1.0) -> Leaves:
        return self.geodesic(X, self.lower_index(X, T), t)

    def transport(self, X: Leaves, Y: Leaves, W: Leaves) -> Leaves:
        return self._map("transport", X, Y, W)

    def scale(self, a: float, V: Leaves) -> Leaves:
        return tuple(m.scale(a, v) for m, v in zip(self.factors, V, strict=True))

    def combine(self, a: float, V: Leaves, b: float, W: Leaves) -> Leaves:
        return tuple(m.combine(a, v, b, w) for m, v, w in zip(self.factors, V, W, strict=True))

    def defect(self, X: Leaves) -> float:
        return max(self._map("defect", X))

    def allowed_defect(self, X: Leaves) -> float:
        return max(self._map("allowed_defect", X))

    def restore(self, X: Leaves) -> Leaves:
        return self._map("restore", X)

    def nearest(self, A: Leaves) -> Leaves:
        return self._map("nearest", A)

    def eps(self, X: Leaves) -> float:
        return max(self._map("eps", X))

    def dimension(self, X: Leaves) -> int:
        return sum(self._map("dimension", X))
