"""What is minimised, on what, as the solvers see it.

A `Problem` is fixed during a run; everything that varies lives in the solver's state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stiefel.backends.arrays import kernels_for
from stiefel.backends.base import Kernels
from stiefel.geometry.ray import Lowered, Secant
from stiefel.types import Aim, Array, Cotangent, Curve, Gradient, Manifold, Objective, Point

from .noise import Model

LEAST_COSINE = 1e-10  # between −D and the gradient; less is not a descent direction


def array_kernels(manifold: Manifold, x: Array) -> Kernels:
    """The array operations for points like x, resolved once where the manifold is bound."""
    return getattr(manifold, "kernels", None) or kernels_for(x)


@dataclass(frozen=True)
class Problem:
    """A manifold, an objective on it, and what is known about the objective's rounding."""

    geometry: Manifold
    objective: Objective
    precond: Callable[[Point, Cotangent, Any], Array] | None = None
    hessp: Callable[[Point, Array], Array] | None = None
    noise: Model = Model()  # noqa: RUF009 - a frozen record

    def gradient(self, Y: Point, value: float | None = None) -> Gradient:
        """Value and gradient at Y; ``value`` is f(Y) where it is held already."""
        f, lowered, aux = self.objective.projected(self.geometry.gradient, Y, value)
        return self.known(f, lowered, aux)

    def landing(
        self, curve: Curve, t: float, X: Point, start: Gradient
    ) -> tuple[Gradient, Secant | None]:
        """`gradient` at X = curve(t), and the secant pair of the step where that is finite."""
        land = getattr(curve, "landing", None)
        if land is None:
            at = self.gradient(X)
            return at, curve.secant_pair(t, start, at) if at.finite else None
        f, E, aux = self.objective.value_and_gradient(X)
        return self.landed(f, aux, *land(t, start, X, E))

    @staticmethod
    def landed(f: float, aux: Any, lowered: Any, pair: Secant) -> tuple[Gradient, Secant]:
        """`landing` from f and what the curve knows there."""
        G, square, rotation, level = lowered
        norm = math.sqrt(square) if square >= 0 else math.nan
        finite = math.isfinite(f) and math.isfinite(norm)
        return Gradient(f, G, norm, aux, rotation, finite, level), pair

    @staticmethod
    def known(f: float, lowered: Lowered, aux: Any = None) -> Gradient:
        """What is known at a point, from f and its gradient there."""
        G, square, rotation, level = lowered if type(lowered) is Lowered else Lowered(*lowered)
        norm = math.sqrt(square) if square >= 0 else math.nan
        return Gradient(f, G, norm, aux, rotation, math.isfinite(f) and math.isfinite(norm), level)

    def descent(self, Y: Point, value: float | None = None) -> tuple[Gradient, Aim]:
        """What is known at Y, and the way of steepest descent from there.

        Without a preconditioner the norm comes from the Gram matrices of the curve: on several
        ranks that is one message less.
        """
        if self.precond is not None:
            at = self.gradient(Y, value)
            return at._replace(aux=None), self.against(Y, *self.steepest(Y, at))
        f, G, _ = self.objective.projected(self.geometry.project, Y, value)
        D = self.geometry.scale(-1.0, G)
        curve = self.geometry.ray(Y, D)
        square = curve.squared_norm
        return self.known(f, Lowered(G, square)), Aim(D, -square, curve)

    def steepest(self, Y: Point, at: Gradient) -> tuple[Cotangent, float]:
        """W and ⟨G, W⟩: the gradient G, preconditioned where that descends."""
        if self.precond is not None and at.finite:
            W = self.preconditioned(Y, at.G, at.aux)
            square = self.geometry.inner(Y, at.G, W)
            if square > 0:
                return W, square
        return at.G, at.norm * at.norm  # ** rounds differently at another scale

    def against(self, Y: Point, W: Cotangent, square: float) -> Aim:
        """The way down from Y along −W, with ⟨G, W⟩ = ``square``."""
        D = self.geometry.scale(-1.0, W)
        return Aim(D, -square, self.geometry.ray(Y, D))

    def preconditioned(self, Y: Point, G: Cotangent, aux: Any) -> Cotangent:
        """The preconditioner's image of a cotangent G at Y, a cotangent again."""
        assert self.precond is not None
        return self.geometry.project_direction(Y, self.precond(Y, G, aux))
