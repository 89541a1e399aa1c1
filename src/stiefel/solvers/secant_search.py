"""A line search whose first trial is nearly always taken, and that survives rounding.

Along X(t) with direction φ(D), let s₀ = ⟨∇f(X), φ(D)⟩ and s(t) = ⟨∇f(X(t)), Q(t)φ(D)⟩ with Q the
isometric transport of the ray.  A step is taken if

    f(X(t)) ≤ f(X) + c₁ t s₀                                  and   s(t) ≥ c₂ s₀,    or
    f(X(t)) ≤ f(X) + noise,   t (s₀ + s(t))/2 ≤ c₁ t s₀        and   s(t) ≥ c₂ s₀.

The second line replaces f's difference by the trapezium of its slopes where rounding has eaten it.
s(t) ≥ c₂ s₀ is exactly what makes the secant pair of `lbfgs` have ⟨s, y⟩ > 0.  No trial moves a
matrix by more than ``longest`` (Frobenius); at that length the slope is not asked.

After a trial that is too long comes the minimiser of the cubic with the values and slopes of both
ends: far away f may fall again, and a line through its slopes says nothing.  Where values
contradict slopes as noise does, slopes alone are believed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from stiefel.geometry.ray import Secant
from stiefel.types import Aim, Curve, Gradient, Point

from .noise import Kind, Watch, Witness, judge
from .problem import Problem
from .wolfe import back_to_cubic

MAX_TRIALS = 40
GROWTH = (1.5, 5.0)  # of a step that was too short
GROWTH_OF_GUESS = 10.0  # of one whose length nothing was known about: test_a_guessed_step_…
SHRINKAGE = (0.1, 0.7)  # of what lies between a step that was too long and the last one that fell


class SearchStep(NamedTuple):
    """A step that was taken."""

    t: float
    X: Point
    at: Gradient
    pair: Secant  # None while the search goes on, and where nobody asks for it
    sy: float  # ⟨s, y⟩ = t (s(t) − s₀): the transport is isometric
    watch: Watch


class Trial(NamedTuple):
    """A point of the curve, and what is known there."""

    t: float
    X: Point
    at: Gradient
    pair: Secant | None


@dataclass(frozen=True)
class SecantSearch:
    """Parameters of the search."""

    sufficient_decrease: float = 1e-4  # c₁
    curvature: float = 0.9  # c₂
    longest: float = 1.0
    paired: bool = True  # whether anybody asks for the pair of the step
    growth: float = GROWTH[1]  # at most, of a step that was too short

    def __call__(
        self,
        problem: Problem,
        start: Gradient,
        aim: Aim,
        watch: Watch,
        first: Trial | None = None,
    ) -> SearchStep | None:
        """From t = 1 on along the curve of ``aim``; ``first``: that trial, if it is at hand."""
        f, slope, curve, size = start.f, aim.slope, aim.curve, aim.curve.bounded_length
        limit = self.limit(curve)
        low, high, noise, rounding = 0.0, math.inf, watch.noise, problem.noise.level(f)
        f_low, slope_low = f, slope
        kept: SearchStep | None = None
        step: SearchStep | None
        pair: Any
        doubts: list[Witness] = []
        t = min(1.0, limit)
        for _ in range(MAX_TRIALS):
            X = at = pair = step = None  # the tall arrays of the trial before
            if first is not None:
                (_, X, at, pair), first = first, None
            elif self.paired:
                X = curve(t)
                at, pair = problem.landing(curve, t, X, start)
            else:
                X = curve(t)
                at = problem.gradient(X)
            if not at.finite:
                high, t = t, low + 0.1 * (t - low)
                continue
            if self.paired:
                end = _slope(problem, at, pair) / t
            else:
                end = problem.geometry.dot(at.G, curve.transported_velocity(t))
            level = max(noise, rounding)
            rise, area = at.f - f, 0.5 * t * (slope + end)
            wanted = self.sufficient_decrease * t * slope
            good = rise <= wanted or (rise <= level and area <= wanted and not doubts)
            doubtful = not good and area <= wanted and rise - area <= problem.noise.plausible(f)
            if doubtful:
                doubts.append(Witness(t, rise - area, abs(area), rise == 0))
                verdict = judge(doubts, level, problem.noise.plausible(f))
                if verdict.kind is Kind.NOISE:
                    noise, good = max(noise, verdict.noise), True
            if good:
                told = watch.after(noise, rise, (t * slope, t * end), t * size, level)
                step = SearchStep(t, X, at, pair, t * (end - slope), told)
                if end >= self.curvature * slope or t >= 0.99 * limit:
                    return step
                kept = step._replace(X=None, pair=None)  # type: ignore[arg-type]
                low, f_low, slope_low = t, at.f, end
                grow = _clip(_secant_step(slope, end), GROWTH[0], self.growth)
                t = min(grow * t, limit) if high == math.inf else 0.5 * (low + high)
            else:
                high, width = t, t - low
                back = math.nan if doubtful else back_to_cubic(width, at.f - f_low, slope_low, end)
                if not math.isfinite(back):
                    back = t - t * _secant_step(slope, end)
                t = low + width * _clip(1.0 - back / width, *SHRINKAGE)
            if not low < t < high:
                break
        if kept is None:
            return None
        pair = curve.secant_pair(kept.t, start, kept.at) if self.paired else None
        return kept._replace(X=curve(kept.t), pair=pair)  # the same bits as before

    def took_first(self, t: float, curve: Curve) -> bool:
        """Whether a step of t is its first trial."""
        return t == min(1.0, self.limit(curve))

    def limit(self, curve: Curve) -> float:
        """As far as a step may go."""
        size = curve.bounded_length
        return self.longest / size if size > 0 else math.inf


def _slope(problem: Problem, at: Gradient, pair: Secant) -> float:
    """⟨∇f(X(t)), s⟩, which most curves know."""
    known = pair.slope
    return known if type(known) is float else problem.geometry.dot(at.G, pair.s)


def _secant_step(start: float, end: float) -> float:
    """Where the slope vanishes, in units of the trial, by a straight line through both ends."""
    return -start / (end - start) if end > start else math.inf


def _clip(t: float, least: float, most: float) -> float:
    return min(max(t, least), most)
