"""What is minimised, on what, as the solvers see it.

A `Problem` is fixed during a run; everything that varies lives in the solver's state.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from stiefel.types import Array

PLAUSIBLE_NOISE = 1e-6  # relative to the size of f: a larger one is a jump, not noise
ROUNDING = 10.0  # ulps of f that a sum of many terms loses
LOST_BITS = 20  # zeros at the end of f: one value in a million has as many by chance


def last_digit(f: float) -> float:
    """The place value of the last bit of f that is not zero; infinite for f = 0."""
    if not f or not math.isfinite(f):
        return math.inf
    mantissa, exponent = math.frexp(f)
    digits = int(abs(mantissa) * 2.0**53)
    return math.ldexp(digits & -digits, exponent - 53)


class Objective(Protocol):
    """Counts calls of the user's function where they happen, and nowhere else."""

    nfev: int
    njev: int

    def value(self, X: Array) -> float: ...

    def value_and_gradient(self, X: Array, value: float | None = None) -> tuple[float, Array, Any]:
        """(f, Euclidean gradient, aux) at X; ``value`` is f(X) where it is held already."""
        ...

    def aux(self, X: Array) -> Any:
        """What the user's function returned beside the gradient at X, for `precond`."""
        ...

    def projected(
        self, project: Callable[[Array, Array], Any], X: Array, value: float | None = None
    ) -> tuple[float, Any, Any]:
        """(f, project(X, gradient), aux) at X; across ranks both travel in one message."""
        ...


class Gradient(NamedTuple):
    """Value and gradient at a point."""

    f: float
    G: Array  # a cotangent
    norm: float  # ‖G‖_g*
    aux: Any = None
    turn: Any = None  # YᴴG, where the geometry has it

    @property
    def finite(self) -> bool:
        return math.isfinite(self.f) and math.isfinite(self.norm)


class Local(NamedTuple):
    """f near a point Y: value, gradient, and the ray along which the solver looks."""

    f: float
    G: Array  # the gradient, a cotangent at Y
    norm: float  # ‖G‖_g*
    W: Array  # the direction of steepest ascent: G, or G preconditioned
    slope: float  # ⟨G, W⟩_g*: the squared norm of the step and restart tests
    ray: Any  # t ↦ R(Y, φ(tW))
    turn: Any = None  # YᴴG, where the geometry has it
    metric: Any = None  # W is a tangent in this metric, to be followed by `ray_along`

    @property
    def finite(self) -> bool:
        return math.isfinite(self.f) and math.isfinite(self.norm) and math.isfinite(self.slope)

    def with_ray(self, geometry: Any, x: Array) -> Local:
        """The same with its ray made again, which repeats every bit."""
        if self.metric is None:
            return self._replace(ray=geometry.ray(x, self.W))
        return self._replace(ray=geometry.ray_along(x, self.W, self.metric))


@dataclass(frozen=True)
class Problem:
    """A geometry, an objective on it, and what is known about the objective's rounding."""

    geometry: Any
    objective: Objective
    precond: Callable[[Array, Array, Any], Array] | None = None
    fnoise: float | None = None  # absolute noise of f, where the user knows it
    eps: float = 2.0**-52
    hessp: Callable[[Array, Array], Array] | None = None

    magnitude: float = 0.0  # |f(x0)|: f may pass through zero, its rounding does not

    def plausible_noise(self, f: float) -> float:
        """More than this between two values is not noise."""
        return PLAUSIBLE_NOISE * max(abs(f), self.magnitude)

    def worst_rounding(self, f: float) -> float:
        """What f may have lost in terms as large as f(x0) that cancel in it."""
        return max(self.noise(f), ROUNDING * self.eps * max(abs(f), self.magnitude))

    def noise(self, f: float) -> float:
        """The size beneath which differences of values near f mean nothing.

        A value that passes near zero because large terms cancel keeps their rounding.  It shows:
        its last digits are zeros.
        """
        if self.fnoise is not None:
            return self.fnoise
        rounding = ROUNDING * self.eps * abs(f)
        if abs(f) > self.magnitude * 2.0**-LOST_BITS:
            return rounding
        unit = last_digit(f)
        if unit <= self.eps * abs(f) * 2.0**LOST_BITS:
            return rounding
        return min(ROUNDING * unit, ROUNDING * self.eps * self.magnitude)

    def local(self, Y: Array, value: float | None = None) -> Local:
        """Evaluate value and gradient at Y."""
        return self.local_and_aux(Y, value)[0]

    def local_and_aux(self, Y: Array, value: float | None = None) -> tuple[Local, Any]:
        """The same, with what the user's function returned for the preconditioner."""
        f, G, aux = self.objective.projected(self.geometry.project, Y, value)
        return self.assemble(Y, f, G, aux), aux

    def assemble(self, Y: Array, f: float, G: Array, aux: Any) -> Local:
        """`Local` from a value and a gradient, a cotangent, that are held already."""
        geometry = self.geometry
        if self.precond is not None:
            norm = math.sqrt(max(geometry.inner(Y, G, G), 0.0)) if math.isfinite(f) else math.nan
            W = self.preconditioned(Y, G, aux)
            slope = geometry.inner(Y, G, W)
            if slope > 0:
                return Local(f, G, norm, W, slope, geometry.ray(Y, W))
            # Not a descent direction: fall back on the gradient.
        ray = geometry.ray(Y, G)
        slope = ray.squared_norm
        return Local(f, G, math.sqrt(slope), G, slope, ray)

    def gradient(self, Y: Array) -> Gradient:
        """Value and gradient at Y, without a ray."""
        f, (G, square, turn), aux = self.objective.projected(self.geometry.gradient, Y)
        return Gradient(f, G, math.sqrt(square) if square >= 0 else math.nan, aux, turn)

    def preconditioned(self, Y: Array, G: Array, aux: Any) -> Array:
        """The preconditioner's image of a cotangent G at Y, a cotangent again."""
        assert self.precond is not None
        return self.geometry.project_direction(Y, self.precond(Y, G, aux))
