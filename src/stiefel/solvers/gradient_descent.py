"""Gradient descent with the paper's two-sided line search: X_{t+1} = R(X_t, φ(−γ_t ∇f(X_t)))."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from stiefel.types import Point

from .accelerated import AcceleratedGradient, State
from .momentum import NoMomentum
from .problem import Problem


@dataclass(frozen=True)
class GradientDescent:
    """Algorithm 1 without momentum, for comparison; the parameters are those of its search.

    Parameters
    ----------
    initial_step : float
        The first step γ_0 that is tried.
    growth : float
        The factor λ_d by which the step grows and shrinks.
    growth_threshold : float
        A step that brings more of its linear prediction than this, c_L, may grow.
    sufficient_decrease : float
        The part of its linear prediction that a step must bring.

    Examples
    --------
    >>> import numpy as np, stiefel
    >>> objective = stiefel.objectives.Brockett(np.arange(1.0, 21.0), [1.0, 2.0])
    >>> X0 = stiefel.random_point(20, 2, seed=0)
    >>> stiefel.minimize(objective, X0, method=stiefel.GradientDescent(initial_step=0.01)).success
    True
    """

    initial_step: float = 0.1  # γ_0
    growth: float = 1.7  # λ_d
    growth_threshold: float = 0.9  # c_L
    sufficient_decrease: float = 0.5

    def __post_init__(self) -> None:
        self._method  # noqa: B018 - its construction checks the parameters

    @cached_property
    def _method(self) -> AcceleratedGradient:
        return AcceleratedGradient(
            restart="none",
            initial_step=self.initial_step,
            growth=self.growth,
            growth_threshold=self.growth_threshold,
            sufficient_decrease=self.sufficient_decrease,
            least_decrease=0.0,
            momentum=NoMomentum(),
        )

    def init(self, problem: Problem, x: Point) -> State:
        return self._method.init(problem, x)

    def step(self, problem: Problem, s: State) -> State:
        return self._method.step(problem, s)
