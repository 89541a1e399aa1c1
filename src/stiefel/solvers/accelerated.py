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
from typing import Any, NamedTuple

from stiefel.types import Array, Status

from .line_search import Trial, TwoSided
from .momentum import LinearMomentum, Momentum
from .parameters import check_choice, check_open_interval, check_positive
from .problem import Local, Problem

# Beneath the noise of f: growth of the gradient that momentum alone does not make, and steps in
# which it should have fallen.
UNSTABLE = 10.0
STALL = 100
PATIENCE = 4  # times more of these after each reduction …
REDUCTIONS = 2  # … of which there are so many


class State(NamedTuple):
    """Y with the gradient tested there; X is the last accepted point."""

    x: Array  # Y_t
    local: Local  # f at Y_t
    X: Array
    f_X: float
    gamma: float  # γ_t
    k: int  # steps since the last restart
    restarted: bool = False
    noise: float = 0.0  # the noise of f beyond plain rounding, as measured so far
    ceiling: float = 0.0  # the longest recent step
    blind: bool = False  # differences of f are beneath its noise
    quiet: float = math.inf  # the gradient norm reached since then …
    stalled: int = 0  # … and how many steps ago
    calmed: int = 0  # how often the step was made shorter for that
    failure: Status | None = None


@dataclass(frozen=True)
class AcceleratedGradient:
    """Nesterov's method on a manifold, with restarts.

    Parameters (the paper's letter and value in the comment)
    ----------
    restart : "function" (Algorithm 1), "gradient" (Algorithm 2) or "none".
    initial_step, growth, growth_threshold, sufficient_decrease : the two-sided line search.
    least_decrease : the decrease that a step must bring to keep the momentum.
    search : "two-sided"; "backtracking" never lets the step grow, as the theorems of
        Section 3 assume; "fixed" always uses initial_step, as 1/L in Theorem 3.1.
    momentum : k ↦ α_k; see `stiefel.solvers.momentum`.
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

    def init(self, problem: Problem, x: Array) -> State:
        local = problem.local(x)
        return State(x, local, x, local.f, self.initial_step, 0)

    def step(self, problem: Problem, s: State) -> State:
        patience = max(STALL * PATIENCE**s.calmed, s.k // 2)
        if s.k > 0 and (s.local.norm > UNSTABLE * s.quiet or s.stalled > patience):
            return self._calm(problem, s)
        trial = self._search(problem, s)
        if trial is None:
            return self._recover(problem, s)
        X, f, gamma = trial.X, trial.f, trial.gamma
        kept = {
            "gamma": gamma,
            "noise": trial.noise,
            "ceiling": trial.ceiling,
            "blind": not trial.readable,
            "quiet": s.quiet,
            "stalled": s.stalled,
            "calmed": s.calmed,
        }
        if self._must_restart(problem, s, trial):
            return self._arrive(problem, s.X, s.f_X, s.X, 0, restarted=True, **kept)
        alpha = self.momentum(s.k)
        Y = problem.geometry.extrapolate(s.X, X, 1.0 + alpha) if alpha else X
        return self._arrive(problem, X, f, Y, s.k + 1, **kept)

    def _search(self, problem: Problem, s: State) -> Trial | None:
        if self.search == "fixed":
            X = s.local.ray(-self.initial_step)
            f = problem.objective.value(X)
            return Trial(X, f, self.initial_step, True, s.noise, self.initial_step)
        return self._line_search(problem, s.local, s.gamma, s.noise, s.ceiling)

    @cached_property
    def _line_search(self) -> TwoSided:
        return TwoSided(
            self.growth,
            self.growth_threshold,
            self.sufficient_decrease,
            may_grow=self.search == "two-sided",
        )

    def _must_restart(self, problem: Problem, s: State, trial: Trial) -> bool:
        if self.restart == "none" or s.k == 0:
            return False
        if self.restart == "function":
            required = s.f_X - self.least_decrease * trial.gamma * s.local.slope
            noise = max(trial.noise, problem.noise(s.f_X))
            if abs(trial.f - s.f_X) > 2.0 * noise or math.isnan(trial.f):
                return trial.f > required
        # Beneath the noise of f only gradients can tell, so that Algorithm 1 asks Algorithm 2.
        geometry = problem.geometry
        W = geometry.lift(s.x, s.X)
        return geometry.inner(s.x, s.local.G, W) < -trial.gamma * s.local.slope

    def _arrive(
        self, problem: Problem, X: Array, f_X: float, Y: Array, k: int, **kept: Any
    ) -> State:
        """The state at Y; a gradient that is not finite there drops the momentum instead."""
        quiet, stalled = kept.pop("quiet", math.inf), kept.pop("stalled", 0) + 1
        local = problem.local(Y, f_X if Y is X else None)
        if not local.finite and Y is not X:
            Y, k, kept["restarted"] = X, 0, True
            local = problem.local(X, f_X)
        failure = None if local.finite else Status.NOT_FINITE
        if not kept["blind"] or local.norm < 0.9 * quiet:
            quiet, stalled = local.norm if kept["blind"] else math.inf, 0
        kept |= {"quiet": quiet, "stalled": stalled}
        return State(Y, local, X, f_X, k=k, failure=failure, **kept)

    def _calm(self, problem: Problem, s: State) -> State:
        """Nobody sees f rise beneath its noise, but a step beyond 4/(3L) keeps gradients up.

        Two reductions bring every step that passed below that; gradients that stay up longer do so
        because momentum is slow, and are given more time.
        """
        gamma = s.gamma / self.growth if s.calmed < REDUCTIONS else s.gamma
        kept = {"gamma": gamma, "noise": s.noise, "blind": s.blind, "calmed": s.calmed + 1}
        return self._arrive(problem, s.X, s.f_X, s.X, 0, restarted=True, **kept)

    def _recover(self, problem: Problem, s: State) -> State:
        """No step was found from Y_t: try again from X_t, or give up there."""
        if s.k == 0 or s.x is s.X:
            limit = s.local.slope * self.initial_step <= problem.noise(s.local.f)
            return s._replace(failure=Status.ROUNDING_LIMIT if limit else Status.STEP_NOT_FOUND)
        kept = {"gamma": s.gamma, "noise": s.noise, "ceiling": s.gamma, "blind": s.blind}
        return self._arrive(problem, s.X, s.f_X, s.X, 0, restarted=True, **kept)
