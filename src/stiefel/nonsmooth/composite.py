"""f + h as the methods see it: values, gradients, retractions, and the measure of stationarity.

    χ_t(X) = ‖V_t‖/t,   V_t the proximal step of length t without memory

is zero exactly at stationary points; for h = 0 it is the norm of the projected gradient.  t is
fixed for a whole run, so that χ does not depend on what a method does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from stiefel.function.counted import EvaluationLimit
from stiefel.geometry.feasibility import feasible
from stiefel.solvers.problem import Problem
from stiefel.types import Array, Gradient

from .normal_system import NormalSystem
from .pattern import allowed_defect, nearest_to_vector, restore
from .space import Space, Sum, all_finite
from .subproblem import ProximalStep, proximal_step

ROUGHLY = 0.01  # of χ: the residual of its step
Wrapped = TypeVar("Wrapped", bound=Callable[..., Any])
PROBE = 1e-3  # length of the step that measures the curvature of f


def unwarned(method: Wrapped) -> Wrapped:
    """The method without NumPy's warnings: what is not finite is refused where it shows."""

    @wraps(method)
    def run(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):
            return method(*arguments)

    return cast(Wrapped, run)


class Value(NamedTuple):
    """f + h and the gradient of f at a vector."""

    f: float
    h: float
    g: Array

    @property
    def total(self) -> float:
        return self.f + self.h

    @property
    def magnitude(self) -> float:
        """Of what F is the sum of: its rounding is theirs, also where they cancel."""
        return abs(self.f) + abs(self.h)

    @property
    def finite(self) -> bool:
        return math.isfinite(self.total) and all_finite(self.g)


class ProximalPoint(NamedTuple):
    """What is known at x: values, gradient, and the proximal step of length t."""

    x: Array
    f: float
    h: float
    g: Array
    t: float
    z: Array
    L: Array  # Λ of the proximal step
    chi: float

    @property
    def total(self) -> float:
        return self.f + self.h

    @property
    def magnitude(self) -> float:
        return abs(self.f) + abs(self.h)


@dataclass(frozen=True)
class Composite(Problem):
    """A problem with a nonsmooth term, and the vectors in which it is solved."""

    h: Sum = None  # type: ignore[assignment]
    target: float = 0.0  # of χ, if one is known: nothing is gained beneath it
    warnings: Any = field(default_factory=np.geterr)  # that the user's functions may raise
    _newest: list[ProximalPoint] = field(default_factory=list, repr=False, compare=False)

    @property
    def space(self) -> Space:
        return self.h.space

    def evaluate(self, x: Array) -> Value:
        """f, h and ∇f at the vector x; one call of the user's function."""
        if not all_finite(x):  # of a proximal map that is not finite
            return Value(math.inf, math.inf, np.full_like(x, math.nan))
        with np.errstate(**self.warnings):
            f, G, _ = self.objective.value_and_gradient(self.space.point(x))
        return Value(f, self._term(x), self.space.flat(G))

    def evaluate_at(self, X: Array) -> Value:
        """The same at a point in the solvers' form, which `calibrate` may have evaluated."""
        with np.errstate(**self.warnings):
            f, G, _ = self.objective.value_and_gradient(X)
        return Value(f, self._term(self.space.flat(X)), self.space.flat(G))

    def value(self, x: Array) -> float:
        """F at the vector x, without a gradient where the user's function can do so."""
        with np.errstate(**self.warnings):
            return self.objective.value(self.space.point(x)) + self._term(x)

    def hessian_product(self, X: Array, w: Array) -> Array:
        """The second derivative of f times the vector w, at the point X in the solvers' form."""
        assert self.hessp is not None
        with np.errstate(**self.warnings):
            return self.space.flat(self.hessp(X, self.space.point(w)))

    def _term(self, x: Array) -> float:
        return float(self.h.value(x))

    def first_multiplier(self, x: Array, g: Array) -> Array:
        """Λ as it were if no zero of x had to move: where the first proximal step begins."""
        return self.space.gather(x, g + self.h.gradient(x))

    def measure(self, x: Array, value: Value, t: float, L: Array) -> ProximalPoint:
        """The point with its proximal step; an unsolved subproblem is told by a larger χ."""
        step = self.step(x, value.g, t, L)
        chi = step.length / t
        if not step.solved:
            chi += step.residual / t
        return ProximalPoint(x, value.f, value.h, value.g, t, step.z, step.L, chi)

    def step(self, x: Array, g: Array, t: float, L: Array) -> ProximalStep:
        if not all_finite(g):
            nan = np.full_like(x, math.nan)
            return ProximalStep(x, nan, L, L, math.nan, False)
        return proximal_step(self.h, x, g, t, L, part=ROUGHLY)

    def retract(self, z: Array, system: NormalSystem | None = None) -> Array:
        """The point of the manifold at z: with the zeros of z, or else the polar factor."""
        if not all_finite(z):
            return np.full_like(z, math.nan)
        mask = self.h.support(z)
        x = restore(self.space, z, mask, allowed_defect(self.space, self.noise.eps), system)
        if x is None:
            x = nearest_to_vector(self.space, self.geometry, z)
            x = self.space.flat(feasible(self.geometry, self.space.point(x)))
        return x

    def curvature(self, x: Array, value: Value) -> tuple[float, Array, Array]:
        """(L, s, y) of a short step along the gradient of f + h: L = ‖y‖/‖s‖; one evaluation."""
        space = self.space
        d = value.g + self.h.gradient(x)
        d = d - space.normal(x, space.gather(x, d))
        size = math.sqrt(float(d @ d))
        if not 0 < size < math.inf:
            return 1.0, np.zeros_like(x), np.zeros_like(x)
        length = PROBE * math.sqrt(max(space.columns, 1))
        moved = nearest_to_vector(space, self.geometry, x - (length / size) * d)
        s = moved - x
        try:
            y = self.evaluate(moved).g - value.g
        except EvaluationLimit:  # one evaluation was allowed: the run ends before its first step
            return size, np.zeros_like(x), np.zeros_like(x)
        norms = math.sqrt(float(y @ y)), math.sqrt(float(s @ s))
        estimate = norms[0] / norms[1] if norms[1] > 0 else 0.0
        if not (math.isfinite(estimate) and estimate > 1e-8 * size):
            return max(size, 1e-300), np.zeros_like(x), np.zeros_like(x)
        return estimate, s, y

    def book(self, at: ProximalPoint) -> tuple[Array, Gradient]:
        """What the driver reads: the point, F and χ there, with (x − z)/t for a gradient."""
        X, G = self.space.point(at.x), self.space.point((at.x - at.z) / at.t)
        self._newest[:] = [at]
        finite = math.isfinite(at.total) and math.isfinite(at.chi)
        return X, Gradient(at.total, G, at.chi, finite=finite)

    def recent(self, x: Array) -> ProximalPoint | None:
        """What is known at x, if it is the point that was booked last."""
        return next((at for at in self._newest if np.array_equal(at.x, x)), None)

    @unwarned
    def gradient(self, Y: Array, value: float | None = None) -> Gradient:
        """As a saved run is recognised: F, χ and its gradient at the start."""
        x, at = self.space.flat(Y), self.evaluate_at(Y)
        t = 1.0 / self.curvature(x, at)[0]
        return self.book(self.measure(x, at, t, self.first_multiplier(x, at.g)))[1]
