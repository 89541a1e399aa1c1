"""A line search for the Wolfe conditions that survives rounding.

Along the curve t ↦ X(t) with φ(t) = f(X(t)) a step is accepted if

    |φ'(t)| ≤ c₂ |φ'(0)|   and either   φ(t) ≤ φ(0) + c₁ t φ'(0)                    (strong Wolfe)
                           or   φ(t) ≤ φ(0) + noise,  φ'(t) ≤ (2c₁ − 1) φ'(0)   (approximate).

The last line, of Hager and Zhang, is Armijo's condition for a quadratic φ, written with
derivatives: near a minimum differences of f drown in its rounding long before derivatives do.
φ'(t) is the exact derivative along the curve, ⟨∇f(X(t)), X'(t)⟩.

A bracket [low, high] shrinks by cubic interpolation (by the secant of derivatives where values say
nothing), safeguarded by bisection; a trial that is not finite shortens the step by ten.  Every
trial evaluates value and gradient together: the first one is nearly always accepted, and its
gradient is the next iteration's.

Values and derivatives of the trials are compared (`noise`).  When they show noise, the bracket is
made again from all trials; when they contradict each other, the search ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from stiefel.types import Aim, Gradient, Point

from .noise import (
    CLEAR,
    MARGIN,
    Kind,
    Watch,
    Witness,
    is_doubtful,
    judge,
    lost_digits,
    measured,
    testifies,
)
from .problem import Problem

MAX_TRIALS = 40
MARGINAL = 0.1  # a trial keeps this part of the bracket away from its ends
EXPANSION = (1.5, 10.0)  # least and largest growth of a step that was too short
CONTRACTION = 0.1  # after a trial that is not finite
SLOW = 0.6  # two trials must shrink the bracket by this factor, or it is bisected


class WolfeTrial(NamedTuple):
    """A point on the curve."""

    t: float
    f: float
    slope: float  # φ'(t)
    X: Point = None
    at: Gradient | None = None

    @property
    def finite(self) -> bool:
        return math.isfinite(self.f) and math.isfinite(self.slope)


class Found(NamedTuple):
    """An accepted trial, and what was learnt about the noise of f."""

    t: float
    X: Point
    at: Gradient
    slope: float
    watch: Watch


class Lost(NamedTuple):
    """No step was found; what was learnt about the noise of f."""

    watch: Watch


@dataclass(frozen=True)
class Wolfe:
    """Parameters of the search."""

    sufficient_decrease: float = 1e-4  # c₁
    curvature: float = 0.9  # c₂

    def __call__(
        self, problem: Problem, at: Gradient, aim: Aim, t: float, watch: Watch
    ) -> Found | Lost:
        """A step that meets the conditions, else one that descends visibly, else none."""
        search = _Search(self, problem, at, aim, watch)
        for _ in range(MAX_TRIALS):
            trial = search.at(t)
            if search.accepts(trial):
                return search.found(trial)
            if (earlier := search.acceptable_after_all()) is not None:
                return search.found(earlier)
            if search.hopeless(trial):
                break
            t = search.next()
            if not search.low.t < t < math.inf:
                break
        fell = search.low.f < at.f - search.noise
        return search.found(search.low) if fell else Lost(watch._replace(noise=search.measured))


class _Search:
    """Trials along one curve and the bracket they make."""

    def __init__(self, rule: Wolfe, problem: Problem, at: Gradient, aim: Aim, watch: Watch) -> None:
        self.rule, self.problem, self.aim, self.watch = rule, problem, aim, watch
        self.measured = watch.noise
        self.first = self.low = WolfeTrial(0.0, at.f, aim.slope)
        self.widths: list[float] = []
        self.gaps: list[Witness] = []  # between trials …
        self.short: list[Witness] = []  # … and from the start to short ones
        self.doubts: list[Witness] = []  # of trials whose values are too high for their slopes
        self.trials = [self.low]

    @property
    def noise(self) -> float:
        return max(self.measured, self.problem.noise.level(self.first.f))

    def at(self, t: float) -> WolfeTrial:
        X = self.aim.curve(t)
        at = self.problem.gradient(X)
        trial = WolfeTrial(t, math.nan, math.nan)
        if at.finite:
            slope = self.problem.geometry.pair(X, at.G, self.aim.curve.velocity(t))
            trial = WolfeTrial(t, at.f, slope, X, at)
        if trial.finite:
            self._compare(trial)
        self.trials.append(trial)
        self.trials.sort(key=lambda trial: trial.t)
        return trial

    def acceptable_after_all(self) -> WolfeTrial | None:
        """A trial refused for a difference of values that turned out to be noise."""
        if self.measured <= self.watch.noise:
            return None
        return next((trial for trial in self.trials[1:] if self.accepts(trial)), None)

    def hopeless(self, trial: WolfeTrial) -> bool:
        """Whether no shorter step will do either, because f does not fall as its slope says."""
        if not (self._is_short(trial) and trial.slope < 0 and self.too_high(trial)):
            return False
        self.doubts.append(_gap(self.first, trial))
        verdict = judge(self.doubts, self.noise, self.problem.noise.plausible(self.first.f))
        return verdict.kind not in (Kind.OPEN, Kind.NOISE)

    def accepts(self, trial: WolfeTrial) -> bool:
        c1, c2 = self.rule.sufficient_decrease, self.rule.curvature
        f, slope = self.first.f, self.first.slope
        if not (trial.finite and c2 * slope <= trial.slope <= -c2 * slope):
            return False
        if trial.f <= f + c1 * trial.t * slope:
            return True
        # Not where a decrease must show: slopes vanish at the far end of the curve as well.
        hidden = trial.f <= f + self.noise and -trial.t * slope <= CLEAR * self.noise
        return hidden and trial.slope <= (2.0 * c1 - 1.0) * slope

    def too_high(self, trial: WolfeTrial) -> bool:
        armijo = self.first.f + self.rule.sufficient_decrease * trial.t * self.first.slope
        return trial.f > armijo + self.noise

    def _is_short(self, trial: WolfeTrial) -> bool:
        return trial.finite and testifies(self.aim.curve, trial.t)

    def _is_beyond(self, trial: WolfeTrial) -> bool:
        return not trial.finite or trial.slope >= 0 or self.too_high(trial)

    def next(self) -> float:
        """The bracket that the trials make, and where to look in it."""
        trials = self.trials
        refused = (i for i, trial in enumerate(trials) if i and self._is_beyond(trial))
        first = next(refused, len(trials))
        self.low = trials[first - 1]
        if first == len(trials):
            return self.low.t * _clip(_growth(trials[-2], self.low), *EXPANSION)
        return self._inside(self.low, trials[first])

    def _inside(self, low: WolfeTrial, high: WolfeTrial) -> float:
        width = high.t - low.t
        self.widths.append(width)
        if not high.finite:
            return low.t + CONTRACTION * width
        if len(self.widths) > 2 and width > SLOW * self.widths[-3]:
            return low.t + 0.5 * width
        readable = abs(high.f - low.f) > MARGIN * self.noise
        t = _cubic(low, high) if readable else _secant_step(low, high)
        if not math.isfinite(t):
            t = low.t + 0.5 * width
        return _clip(t, low.t + MARGINAL * width, high.t - MARGINAL * width)

    def _compare(self, trial: WolfeTrial) -> None:
        """With the start and with the nearest trial: noise shows itself over short distances."""
        others = [other for other in self.trials[1:] if other.finite]
        nearest = min(others, key=lambda other: abs(other.t - trial.t), default=self.first)
        plausible = self.problem.noise.plausible(self.first.f)
        noise = self.noise
        for other in {0: self.first, nearest.t: nearest}.values():
            new = _gap(other, trial)
            noise = max(noise, measured(new, self.gaps, plausible))
            self.gaps.append(new)
        if self._is_short(trial):
            self.short.append(_gap(self.first, trial))
            noise = max(noise, lost_digits(self.short))
        if noise > self.noise:
            self.measured = noise
            self.widths.clear()  # the bracket will be another one

    def found(self, trial: WolfeTrial) -> Found:
        assert trial.at is not None
        blind = 0.5 * trial.t * abs(self.first.slope) <= MARGIN * self.noise
        slopes, rise = (trial.t * self.first.slope, trial.t * trial.slope), trial.f - self.first.f
        distance = trial.t * self.aim.curve.bounded_length
        doubtful = is_doubtful(self.watch.doubtful, rise, slopes, distance, self.noise)
        watch = Watch(self.measured, blind, doubtful)
        return Found(trial.t, trial.X, trial.at, trial.slope, watch)


def _gap(a: WolfeTrial, b: WolfeTrial) -> Witness:
    """How far values and slopes of two trials disagree: the error of the trapezium."""
    change, area = b.f - a.f, 0.5 * (b.t - a.t) * (a.slope + b.slope)
    return Witness(abs(b.t - a.t), abs(change - area), abs(area), still=change == 0)


def _growth(previous: WolfeTrial, trial: WolfeTrial) -> float:
    """How much longer the step should be, by the secant of the derivatives."""
    change = trial.slope - previous.slope
    if not change > 0:
        return math.inf
    return 1.0 - trial.slope * (trial.t - previous.t) / (change * trial.t)


def _secant_step(low: WolfeTrial, high: WolfeTrial) -> float:
    """The zero of the line through both derivatives."""
    change = high.slope - low.slope
    return low.t - low.slope * (high.t - low.t) / change if change > 0 else math.nan


def _cubic(low: WolfeTrial, high: WolfeTrial) -> float:
    """The minimiser of the cubic with both values and derivatives."""
    return high.t - back_to_cubic(high.t - low.t, high.f - low.f, low.slope, high.slope)


def back_to_cubic(width: float, rise: float, start: float, end: float) -> float:
    """How far before its end a cubic is least, which rises by ``rise`` and has these slopes."""
    theta = start + end - 3.0 * rise / width
    scale = max(abs(theta), abs(start), abs(end))
    radicand = (theta / scale) ** 2 - (start / scale) * (end / scale)
    if not radicand >= 0:
        return math.nan
    gamma = scale * math.sqrt(radicand)
    denominator = end - start + 2.0 * gamma
    return width * (end + gamma - theta) / denominator if denominator else math.nan


def _clip(t: float, least: float, most: float) -> float:
    return min(max(t, least), most)
