"""A line search whose first trial is nearly always taken, and that survives rounding.

Along X(t) with direction φ(D), let s₀ = ⟨∇f(X), φ(D)⟩ and s(t) = ⟨∇f(X(t)), Q(t)φ(D)⟩ with Q the
isometric transport of the ray.  A step is taken if

    f(X(t)) ≤ f(X) + c₁ t s₀                                  and   s(t) ≥ c₂ s₀,    or
    f(X(t)) ≤ f(X) + noise,   t (s₀ + s(t))/2 ≤ c₁ t s₀        and   s(t) ≥ c₂ s₀.

The second line replaces f's difference by the trapezium of its slopes where rounding has eaten it.
s(t) ≥ c₂ s₀ is exactly what makes the secant pair of `lbfgs` have ⟨s, y⟩ > 0.  No trial moves a
matrix by more than ``longest`` (Frobenius); at that length the slope is not asked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from stiefel.geometry.ray import Secant
from stiefel.types import Array

from .line_search import MARGIN
from .problem import Gradient, Local, Problem

MAX_TRIALS = 40
GROWTH = (1.5, 5.0)  # of a step that was too short
DWARFED = 100.0  # a disagreement so many times larger than the change that slopes predict
SHORTER = 4.0  # steps are compared when one is so many times shorter


class Step(NamedTuple):
    """A step that was taken."""

    t: float
    X: Array
    gradient: Gradient
    pair: Secant  # None while the search goes on
    sy: float  # ⟨s, y⟩ = t (s(t) − s₀): the transport is isometric
    noise: float  # the noise of f beyond plain rounding, as measured so far
    readable: bool  # the decrease is larger than the noise of f


@dataclass(frozen=True)
class SecantSearch:
    """Parameters of the search."""

    sufficient_decrease: float = 1e-4  # c₁
    curvature: float = 0.9  # c₂
    longest: float = 1.0

    def __call__(self, problem: Problem, local: Local, noise: float) -> Step | None:
        """From t = 1 on along the ray of ``local``, whose slope is s₀ < 0."""
        f, slope, ray, size = local.f, local.slope, local.ray, local.ray.longest
        limit = self.longest / size if size > 0 else math.inf
        low, high = 0.0, math.inf
        kept: Step | None = None
        step: Step | None
        doubts: list[tuple[float, float, float]] = []  # t, how far f and slopes disagree, slopes
        t = min(1.0, limit)
        for _ in range(MAX_TRIALS):
            X = at = pair = step = None  # the tall arrays of the trial before
            X = ray(t)
            at = problem.gradient(X)
            if not at.finite:
                high, t = t, low + 0.1 * (t - low)
                continue
            pair = ray.secant(t, local, at)
            end = problem.geometry.dot(at.G, pair.s) / t
            level = max(noise, problem.noise(f))
            rise, area = at.f - f, 0.5 * t * (slope + end)
            wanted = self.sufficient_decrease * t * slope
            good = rise <= wanted or (rise <= level and area <= wanted and not doubts)
            if not good and area <= wanted and rise - area <= problem.plausible_noise(f):
                doubts.append((t, rise - area, area))
                if _is_noise(doubts):
                    noise, good = max(gap for _, gap, _ in doubts), True
            if good:
                readable = -0.5 * t * slope > MARGIN * level
                step = Step(t, X, at, pair, t * (end - slope), noise, readable)
                if end >= self.curvature * slope or t >= 0.99 * limit:
                    return step
                kept = step._replace(X=None, pair=None)  # type: ignore[arg-type]
                low = t
                grow = _clip(_secant(slope, end), *GROWTH)
                t = min(grow * t, limit) if high == math.inf else 0.5 * (low + high)
            else:
                high = t
                t = _clip(t * _secant(slope, end), low + 0.1 * (t - low), low + 0.7 * (t - low))
            if not low < t < high:
                break
        if kept is None:
            return None
        pair = ray.secant(kept.t, local, kept.gradient)
        return kept._replace(X=ray(kept.t), pair=pair)  # the same bits as before


def _is_noise(doubts: list[tuple[float, float, float]]) -> bool:
    """Whether f disagrees with its slopes by as much on a short step as on a long one.

    The disagreement of a wrong gradient is proportional to the step, that of a smooth function
    falls with its cube: only noise stays.  Noise that varies on the scale of the step is known by
    its size: it dwarfs all that the slopes predict.
    """
    last, now, _ = doubts[-1]
    if any(SHORTER * last <= t and 2.0 * now >= gap for t, gap, _ in doubts):
        return True
    return len(doubts) >= 3 and all(gap > DWARFED * abs(area) for _, gap, area in doubts)


def _secant(start: float, end: float) -> float:
    """Where the slope vanishes, in units of the trial, by a straight line through both ends."""
    return -start / (end - start) if end > start else math.inf


def _clip(t: float, least: float, most: float) -> float:
    return min(max(t, least), most)
