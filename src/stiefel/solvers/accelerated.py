"""Accelerated gradient descent with restarts: Algorithms 1 and 2, and Section 3 on Rⁿ.

    X_{t+1} = R(Y_t, φ(−γ_t ∇f(Y_t)))            γ_t from a line search
    restart:  X_{t+1} = Y_{t+1} = X_t,  k = 0     if the step was not worth its momentum
    else:     Y_{t+1} = R(X_t, φ((1 + α_k) V_t)),  V_t = lift(X_t, X_{t+1}),  α_k = k/(k + 3)

"function" restarts when f(X_{t+1}) > f(X_t) − c_R γ_t ‖∇f(Y_t)‖², eq. (restart); "gradient" when
⟨∇f(Y_t), W_t⟩ < −γ_t ‖∇f(Y_t)‖² with W_t = lift(Y_t, X_t), a cotangent at Y_t (Algorithm 2 prints
it at X_t, with a transposed factor).  The loop test is made on ∇f(Y_t), the gradient that was
computed, and Y_t is what is returned.  Every other restart prints Y_t ← X_{t+1}, meaning that the
next gradient is taken at the last accepted point.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from stiefel.types import Aim, Gradient, Point, Status

from .doubt import looked_at_chord
from .momentum import LinearMomentum, Momentum
from .noise import MARGIN, Watch
from .parameters import check_choice, check_open_interval, check_positive
from .problem import Problem
from .two_sided import TwoSided, TwoSidedTrial

# γL: beyond, Nesterov's iteration is unstable as its momentum tends to one
# (tests/test_trust_rounding.py, a_step_beyond)
STABLE = 4.0 / 3.0


class State(NamedTuple):
    """Y with the gradient tested there; X is the last accepted point."""

    x: Point  # Y_t
    at: Gradient  # at Y_t
    aim: Aim  # steepest descent from Y_t
    X: Point
    f_X: float
    gamma: float  # γ_t
    k: int  # steps since the last restart
    at_X: bool = True  # Y_t = X_t
    restarted: bool = False
    watch: Watch = Watch()
    ceiling: float = 0.0  # the longest recent step
    failure: Status | None = None


@dataclass(frozen=True)
class AcceleratedGradient:
    """Nesterov's method on a manifold, with restarts.

    Parameters
    ----------
    restart : {"function", "gradient", "none"}
        Algorithm 1, Algorithm 2, or no restarts.
    initial_step : float
        The first step γ_0 that is tried.
    growth : float
        The factor λ_d by which the step grows and shrinks.
    growth_threshold : float
        A step that brings more of its linear prediction than this, c_L, may grow.
    sufficient_decrease : float
        The part of its linear prediction that a step must bring.
    least_decrease : float
        The decrease c_R that a step must bring to keep the momentum.
    search : {"two-sided", "backtracking", "fixed"}
        "backtracking" never lets the step grow, as the theorems of Section 3 assume; "fixed"
        always uses initial_step, as 1/L in Theorem 3.1.
    momentum : Momentum
        The sequence k ↦ α_k; see `stiefel.solvers.momentum`.

    Examples
    --------
    >>> import numpy as np, stiefel
    >>> objective = stiefel.objectives.Brockett(np.arange(1.0, 21.0), [1.0, 2.0])
    >>> X0 = stiefel.random_point(20, 2, seed=0)
    >>> method = stiefel.AcceleratedGradient(growth_threshold=0.7)
    >>> stiefel.minimize(objective, X0, method=method).success
    True
    """

    restart: str = "function"
    initial_step: float = 0.1  # γ_0
    growth: float = 1.7  # λ_d
    growth_threshold: float = 0.9  # c_L: 0.9 in Tables 1 and 2, 0.7 in Figures 1 and 2
    sufficient_decrease: float = 0.5
    least_decrease: float = 0.01  # c_R
    search: str = "two-sided"
    momentum: Momentum = field(default_factory=LinearMomentum)

    def __post_init__(self) -> None:
        check_choice(self, "restart", ("function", "gradient", "none"))
        check_choice(self, "search", ("two-sided", "backtracking", "fixed"))
        check_positive(self, "initial_step")
        check_open_interval(self, "growth", 1.0, 100.0)
        check_open_interval(self, "sufficient_decrease", 0.0, 1.0)
        if self.search == "two-sided":
            check_open_interval(self, "growth_threshold", self.sufficient_decrease, 1.0)
        if not 0 <= self.least_decrease < self.sufficient_decrease:
            raise ValueError(
                f"least_decrease is {self.least_decrease!r}; expected at least 0 and less than "
                f"sufficient_decrease = {self.sufficient_decrease!r}, or every step restarts"
            )

    def init(self, problem: Problem, x: Point) -> State:
        at, aim = problem.descent(x)
        return State(x, at, aim, x, at.f, self.initial_step, 0)

    def step(self, problem: Problem, s: State) -> State:
        trial = self._search(problem, s)  # lines 3 to 10: X_{t+1}, f there, γ_t
        if trial is None:
            return self._recover(problem, s)
        if self._must_restart(problem, s, trial):
            back = trial._replace(X=s.X, f=s.f_X)  # Y_{t+1} = X_{t+1} = X_t
            return self._arrive(problem, back, s.X, 0, restarted=True)
        alpha = self.momentum(s.k)
        Y = problem.geometry.extrapolate(s.X, trial.X, 1.0 + alpha) if alpha else trial.X
        new = self._arrive(problem, trial, Y, s.k + 1)
        new = new._replace(watch=looked_at_chord(problem, new.watch, s, new))
        return self._steadied(problem, s, new) if trial.watch.blind else new

    def _steadied(self, problem: Problem, old: State, new: State) -> State:
        """After a blind step: a step that gradients show to be unstable is made shorter.

        Beyond γL = 4/3 a stiff component alternates, and just beyond it grows slowly.  The Armijo
        test would refuse the step, but cannot see the component any more, and gradients that point
        along the momentum give no restart.  The curvature between the last two gradient points is
        at most L, and the alternating component makes it L.
        """
        curvature = _curvature_between(problem, old, new)
        if not curvature * new.gamma > STABLE:
            return new
        gamma = 1.0 / curvature
        return new._replace(gamma=gamma, ceiling=min(new.ceiling, gamma))

    def _search(self, problem: Problem, s: State) -> TwoSidedTrial | None:
        if self.search == "fixed":
            X = s.aim.curve(self.initial_step)
            f = problem.objective.value(X)
            return TwoSidedTrial(X, f, self.initial_step, s.watch, self.initial_step)
        return self._line_search(problem, s.at, s.aim, s.gamma, s.watch, s.ceiling)

    @cached_property
    def _line_search(self) -> TwoSided:
        return TwoSided(
            self.growth,
            self.growth_threshold,
            self.sufficient_decrease,
            may_grow=self.search == "two-sided",
        )

    def _must_restart(self, problem: Problem, s: State, trial: TwoSidedTrial) -> bool:
        if self.restart == "none" or s.k == 0:
            return False
        if self.restart == "function":
            required = s.f_X + self.least_decrease * trial.gamma * s.aim.slope
            noise = max(trial.watch.noise, problem.noise.level(s.f_X))
            if abs(trial.f - s.f_X) > MARGIN * noise or math.isnan(trial.f):
                return trial.f > required
        # Beneath the noise of f only gradients can tell, so that Algorithm 1 asks Algorithm 2.
        geometry = problem.geometry
        W = geometry.lift(s.x, s.X)
        return geometry.inner(s.x, s.at.G, W) < trial.gamma * s.aim.slope

    def _arrive(
        self, problem: Problem, to: TwoSidedTrial, Y: Point, k: int, restarted: bool = False
    ) -> State:
        """The state at Y; a gradient that is not finite there drops the momentum instead."""
        at, aim = problem.descent(Y, to.f if Y is to.X else None)
        if not at.finite and Y is not to.X:
            Y, k, restarted = to.X, 0, True
            at, aim = problem.descent(Y, to.f)
        failure = None if at.finite else Status.NOT_FINITE
        at_X, kept = Y is to.X, (to.watch, to.ceiling)
        return State(Y, at, aim, to.X, to.f, to.gamma, k, at_X, restarted, *kept, failure)

    def _recover(self, problem: Problem, s: State) -> State:
        """No step was found from Y_t: try again from X_t, or give up there."""
        if s.at_X:
            limit = -s.aim.slope * self.initial_step <= problem.noise.level(s.at.f)
            return s._replace(failure=Status.ROUNDING_LIMIT if limit else Status.STEP_NOT_FOUND)
        back = TwoSidedTrial(s.X, s.f_X, s.gamma, s.watch, s.gamma)
        return self._arrive(problem, back, s.X, 0, restarted=True)


def _curvature_between(problem: Problem, a: State, b: State) -> float:
    """⟨∇f(b) − ∇f(a), b − a⟩ / ‖b − a‖², by the slopes at both ends towards the other."""
    geometry = problem.geometry
    ahead, back = geometry.lift(a.x, b.x), geometry.lift(b.x, a.x)
    slopes = geometry.inner(a.x, a.at.G, ahead) + geometry.inner(b.x, b.at.G, back)
    squared = geometry.inner(a.x, ahead, ahead)
    return -slopes / squared if squared > 0.0 else 0.0
