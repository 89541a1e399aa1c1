"""The paper's two-sided line search, made safe near rounding.

Lines 3 to 10 of Algorithms 1 and 2: from the step γ handed on,

    while f(X(γ)) < f(Y) − c_L γ‖∇f‖²:  γ ← λ_d γ
    while f(X(γ)) > f(Y) − ½ γ‖∇f‖²:    γ ← γ / λ_d.

What the print leaves out: both loops are bounded (after twelve steps in one direction the exponent
of λ_d doubles, so that a step 10²⁰⁰ times too long is found in two dozen trials, still on the
lattice γ₀ λ_dʲ); a trial that was held already is not evaluated again; and beneath the noise of f
comparisons mean nothing.  Growth, which must see a small part of the decrease, becomes invisible
first: from then on the step is the longest recent one until that fails.  When the decrease itself
is invisible, the step is accepted as it is and called unreadable.

A search that shrinks until nothing is visible has not been on a smooth function with its
gradient, and the changes of f along the way say what it was on instead: changes proportional to
γ belong to a wrong gradient and a constant change to a jump (no step is found); anything else is
noise of f, which is remembered from then on.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

from stiefel.types import Array

from .problem import Local, Problem

MAX_TRIALS = 60
MEMORY = 0.98  # how slowly the longest recent step is forgotten
MARGIN = 2.0  # a difference is visible if it is this many times the noise of f
GALLOP_AFTER = 12
TAIL = 4.0  # a smooth function accepts steps this many times too long: shorter ones testify
WITNESSES = 3  # so many of the shortest steps are asked, each SPACING times as long as the last
SPACING = 10.0
CLEAR = 100.0  # a witness's predicted decrease is this many times the noise
ALIKE = 3.0  # changes of f per step length that agree within this factor are proportional to it
JUMP_SPREAD = 0.02  # changes of f that agree to this fraction come from a jump …
LAST_DIGIT = 10.0  # … if they are this many times what the first step could have made good


class Trial(NamedTuple):
    """A point on the ray."""

    X: Array
    f: float
    gamma: float
    readable: bool  # the decrease is larger than the noise of f
    noise: float  # the noise of f beyond plain rounding, as measured so far
    ceiling: float  # the longest recent step


@dataclass(frozen=True)
class TwoSided:
    """Parameters of the search, with the paper's letters."""

    growth: float = 1.7  # λ_d
    growth_threshold: float = 0.9  # c_L; Figures 1 and 2 use 0.7
    sufficient_decrease: float = 0.5
    may_grow: bool = True

    def __call__(
        self, problem: Problem, local: Local, gamma: float, noise: float, ceiling: float
    ) -> Trial | None:
        """A step along −W that meets the Armijo condition, or None if there is none."""
        search = _Search(problem, local, noise)
        visible = search.visible((1.0 - self.growth_threshold) * gamma * local.slope)
        if self.may_grow and visible:
            trial = self._shrink(search, self._grow(search, search.at(gamma)))
        else:
            trial = self._shrink(search, search.at(max(gamma, ceiling) if self.may_grow else gamma))
        if trial is None:
            return None
        return trial._replace(ceiling=self._ceiling(trial.gamma, ceiling, visible))

    @staticmethod
    def _ceiling(gamma: float, ceiling: float, visible: bool) -> float:
        """The step to try first where growth cannot be seen.

        There, a failed trial halves the distance to the step that passed (in logarithms) instead
        of taking it for ever: one excited stiff component asks for a far shorter step than the
        iterations after it, and nothing could make the step grow again.
        """
        if visible or gamma >= ceiling:
            return max(gamma, MEMORY * ceiling)
        return math.sqrt(gamma * ceiling)

    def _grow(self, search: _Search, trial: Trial) -> Trial:
        for i in range(MAX_TRIALS):
            if not search.below(trial, self.growth_threshold):
                return trial
            longer = search.at(trial.gamma * self.growth ** _gallop(i))
            if not search.accepts(longer, self.sufficient_decrease):
                return trial  # held: the print evaluates this point a second time
            trial = longer
        return trial

    def _shrink(self, search: _Search, trial: Trial) -> Trial | None:
        rejected: list[Trial] = []  # without their points, which are tall
        leap = 1
        for i in range(MAX_TRIALS):
            if not trial.readable:
                return search.diagnose(rejected, trial)
            if search.accepts(trial, self.sufficient_decrease):
                return self._back(search, trial, leap)
            trial = trial._replace(X=None)
            rejected.append(trial)
            leap = self._shrinks(i, trial.gamma, search)
            trial = search.at(trial.gamma / self.growth**leap)
        return None

    def _back(self, search: _Search, trial: Trial, leap: int) -> Trial:
        """The longest step that a leap of λ_d^leap passed over; growth may not be visible here."""
        while leap > 1:
            half = leap // 2
            longer = search.at(trial.gamma * self.growth**half)
            if search.accepts(longer, self.sufficient_decrease):
                trial, leap = longer, leap - half
            else:
                leap = half
        return trial

    def _shrinks(self, i: int, gamma: float, search: _Search) -> int:
        """The exponent of λ_d.

        A leap ends where the decrease can still be read: good steps that it passed over must not
        look like noise.
        """
        shrinks, limit = _gallop(i), search.shortest_readable
        if shrinks == 1 or not 0 < limit < gamma:
            return shrinks
        steps = (math.log(gamma) - math.log(limit)) / math.log(self.growth)  # γ/limit overflows
        return min(shrinks, max(1, math.floor(steps)))


class _Search:
    """Values along one ray."""

    def __init__(self, problem: Problem, local: Local, noise: float) -> None:
        self.problem, self.local, self.measured = problem, local, noise
        self.noise = max(noise, problem.noise(local.f))

    def at(self, gamma: float) -> Trial:
        X = self.local.ray(-gamma)
        f = self.problem.objective.value(X)
        # Half of the predicted decrease is what the Armijo test has to see.
        readable = self.visible(0.5 * gamma * self.local.slope)
        return Trial(X, f, gamma, readable, self.measured, gamma)

    def visible(self, difference: float) -> bool:
        return difference > MARGIN * self.noise

    def below(self, trial: Trial, c: float) -> bool:
        """Whether f fell by more than c times what its slope predicts."""
        return trial.f < self.local.f - c * trial.gamma * self.local.slope

    def accepts(self, trial: Trial, c: float) -> bool:
        return trial.f <= self.local.f - c * trial.gamma * self.local.slope + self.noise

    @property
    def shortest_readable(self) -> float:
        return 2.0 * MARGIN * self.noise / self.local.slope

    def diagnose(self, rejected: list[Trial], last: Trial) -> Trial | None:
        """What to do with steps that were refused until f could no longer be read."""
        if not rejected:
            return last
        first = rejected[0]
        tail = [t for t in rejected if t.gamma * TAIL <= first.gamma and math.isfinite(t.f)]
        if len(tail) < WITNESSES:
            return last
        # The shortest steps only: what f does on longer ones is its curvature.
        noise = max(self.measured, *(abs(t.f - self.local.f) for t in tail[-WITNESSES:]))
        witnesses = self._witnesses(tail)
        if len(witnesses) == WITNESSES:
            changes = [t.f - self.local.f for t in witnesses]
            rates = [abs(c) / t.gamma for c, t in zip(changes, witnesses, strict=True)]
            proportional = 0 < max(rates) <= ALIKE * min(rates)
            alike = max(changes) - min(changes) <= JUMP_SPREAD * max(changes)
            jump = alike and max(changes) > LAST_DIGIT * first.gamma * self.local.slope
            if proportional or jump:
                return None
        # Where f did not change at all, this much was lost in its digits.
        still = itertools.takewhile(lambda t: t.f == self.local.f, reversed(tail))
        noise = max([noise, *(t.gamma * self.local.slope for t in still)])
        longest = next(t for t in (first, *tail) if t.f <= self.local.f + noise)
        return longest._replace(X=self.local.ray(-longest.gamma), readable=False, noise=noise)

    def _witnesses(self, tail: list[Trial]) -> list[Trial]:
        found: list[Trial] = []
        for t in reversed(tail):
            clear = t.gamma * self.local.slope > CLEAR * self.noise
            if clear and (not found or t.gamma >= SPACING * found[-1].gamma):
                found.append(t)
        return found[:WITNESSES]


def _gallop(i: int) -> int:
    """Twelve times 1, then 2, 4, 8, …, at most 512."""
    return 1 if i < GALLOP_AFTER else int(2 ** min(i - GALLOP_AFTER + 1, 9))
