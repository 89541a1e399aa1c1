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
    """Algorithm 1 without momentum, for comparison; the parameters are those of its search."""

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
