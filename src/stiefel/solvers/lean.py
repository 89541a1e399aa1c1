"""Accelerated gradient descent with one evaluation an iteration and a learned metric.

    Z_{t+1} = R(Y_t, −φ(∇f(Y_t))/L_t),     Y_{t+1} = extrapolate(Z_t, Z_{t+1}, 1 + (k−1)/(k+2))

Value and gradient are computed at Y only.  The points Z of the gradient steps are never evaluated:
1/L_t is the largest step that the curvature ⟨y, φ(y)⟩/⟨s, y⟩, measured between consecutive Y,
allows, and L_t falls by at most a twentieth an iteration.  When f rises from Y_t to Y_{t+1}
(beneath its noise: when its slopes say so), the method restarts at Y_t with a plain step that is
searched, so that f falls by a sufficient amount at every restart.  A new metric drops the momentum
too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from stiefel.geometry.ray import Secant
from stiefel.types import Array, Status

from .learned_metric import (
    Learned,
    LearnedMetric,
    first_scale,
    metric_of,
    raised,
    squared_change,
    still_invariant,
)
from .parameters import check_open_interval, check_positive
from .problem import Gradient, Local, Problem
from .secant_search import SecantSearch

RISK = 4.0  # how much shorter a step becomes after one to a point that is not finite


class State(NamedTuple):
    x: Array  # Y_t, the last point from which f did not rise
    local: Local  # W is the tangent −φ(∇f)/L: the direction of the next step
    Z: Array
    L: float  # curvature in the metric; 0 before it was measured
    learned: tuple[Learned, ...]
    k: int = 0
    gamma: float = 0.0  # 1/L
    restarted: bool = False
    noise: float = 0.0
    blind: bool = False
    failure: Status | None = None


@dataclass(frozen=True)
class LeanAccelerated:
    """Accelerated gradient descent that evaluates once an iteration.

    Parameters
    ----------
    metric : how the metric is learned; None for the canonical one.
    relaxation : how fast the curvature L may fall.
    initial_length : length of the first step, for a column.
    longest : no searched step moves a matrix further than this.
    """

    metric: LearnedMetric | None = field(default_factory=LearnedMetric)
    relaxation: float = 0.95
    initial_length: float = 0.01
    longest: float = 1.0

    def __post_init__(self) -> None:
        check_open_interval(self, "relaxation", 0.0, 1.0)
        check_positive(self, "initial_length")
        check_positive(self, "longest")

    def init(self, problem: Problem, x: Array) -> State:
        at = problem.gradient(x)
        learned = (self.metric or LearnedMetric()).init(problem.geometry, x, at)
        return self._aimed(problem, x, at, x, 0.0, learned, 0)

    def step(self, problem: Problem, s: State) -> State:
        return self._searched(problem, s) if s.k == 0 else self._accelerated(problem, s)

    @cached_property
    def _search(self) -> SecantSearch:
        return SecantSearch(curvature=1.0, longest=self.longest)

    def _searched(self, problem: Problem, s: State) -> State:
        """A plain step with sufficient decrease, after a restart."""
        taken = self._search(problem, s.local, s.noise)
        if taken is None:
            limit = s.blind or abs(s.local.slope) <= problem.worst_rounding(s.local.f)
            return s._replace(failure=Status.ROUNDING_LIMIT if limit else Status.STEP_NOT_FOUND)
        at, x = taken.gradient, taken.X
        learned, L, _ = self._learn(problem, x, at, taken.pair, s.learned)
        L = max(L, s.L / taken.t if taken.t < 1.0 else self.relaxation * s.L)
        new = self._aimed(problem, x, at, x, L, learned, 1)
        return new._replace(noise=taken.noise, blind=not taken.readable)

    def _accelerated(self, problem: Problem, s: State) -> State:
        geometry, old = problem.geometry, s.local
        Z = old.ray(1.0)
        beta = (s.k - 1) / (s.k + 2)
        Y = geometry.extrapolate(s.Z, Z, 1.0 + beta) if beta else Z
        at = problem.gradient(Y)
        if not at.finite:
            return self._restart(problem, s, RISK * s.L, s.learned)
        D = geometry.lift(s.x, Y)
        ray = geometry.ray(s.x, D)
        pair = ray.secant(1.0, old, at)
        start, end = geometry.inner(s.x, old.G, D), geometry.dot(at.G, pair.s)
        learned, L, changed = self._learn(problem, Y, at, pair, s.learned)
        L = max(L, self.relaxation * s.L)
        rise = at.f - old.f
        blind = abs(rise) <= max(s.noise, problem.noise(old.f))
        if (start + end if blind else rise) > 0:
            return self._restart(problem, s, L, learned)
        if changed:
            return self._aimed(problem, Y, at, Y, L, learned, 1)._replace(
                restarted=True, noise=s.noise, blind=blind
            )
        new = self._aimed(problem, Y, at, Z, L, learned, s.k + 1)
        return new._replace(noise=s.noise, blind=blind)

    def _restart(self, problem: Problem, s: State, L: float, learned: tuple[Learned, ...]) -> State:
        at = Gradient(s.local.f, s.local.G, s.local.norm, turn=s.local.turn)
        if problem.precond is not None:  # its aux is not kept
            at = problem.gradient(s.x)
        new = self._aimed(problem, s.x, at, s.x, L, learned, 0)
        return new._replace(restarted=True, noise=s.noise, blind=s.blind)

    def _learn(
        self,
        problem: Problem,
        x: Array,
        at: Gradient,
        pair: Secant,
        old: tuple[Learned, ...],
    ) -> tuple[tuple[Learned, ...], float, bool]:
        """(what is known now, the curvature along the step, whether the metric changed)."""
        geometry = problem.geometry
        learned, same = still_invariant(geometry, x, at, old)
        if self.metric is not None and problem.precond is None:
            learned = self.metric.observe(geometry, x, pair, learned)
        same = same and all(_same(a, b) for a, b in zip(learned, old, strict=True))
        sy = geometry.dot(pair.s, pair.y)
        if not sy > 0:
            return learned, 0.0, not same
        return learned, squared_change(problem, x, pair, learned, at.aux) / sy, not same

    def _aimed(
        self,
        problem: Problem,
        x: Array,
        at: Gradient,
        Z: Array,
        L: float,
        learned: tuple[Learned, ...],
        k: int,
    ) -> State:
        """The state at x with its next step."""
        geometry = problem.geometry
        T = raised(problem, x, at.G, learned, at.aux)
        square = geometry.dot(at.G, T)
        if not (square > 0 and math.isfinite(square)):
            local = Local(at.f, at.G, at.norm, at.G, 0.0, geometry.ray(x, at.G), at.turn)
            return State(x, local, Z, L, learned, k)
        gamma = 1.0 / L if L > 0 else first_scale(problem, x, T, self.initial_length, self.longest)
        T = geometry.scale(-gamma, T)
        metric = metric_of(geometry, learned)
        ray = geometry.ray_along(x, T, metric)
        local = Local(at.f, at.G, at.norm, T, -gamma * square, ray, at.turn, metric)
        return State(x, local, Z, 1.0 / gamma, learned, k, gamma)


def _same(a: Learned, b: Learned) -> bool:
    m, n = a.metric, b.metric
    return m.D is n.D and m.omega == n.omega and m.horizontal == n.horizontal
