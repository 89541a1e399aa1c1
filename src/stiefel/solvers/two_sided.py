"""The paper's two-sided line search, made safe near rounding.

Lines 3 to 10 of Algorithms 1 and 2: from the step γ handed on,

    while f(X(γ)) < f(Y) − c_L γ‖∇f‖²:  γ ← λ_d γ
    while f(X(γ)) > f(Y) − ½ γ‖∇f‖²:    γ ← γ / λ_d.

What the print leaves out: both loops are bounded (after twelve steps in one direction the exponent
of λ_d doubles, so that a step 10²⁰⁰ times too long is found in two dozen trials, still on the
lattice γ₀ λ_dʲ); a trial that was held already is not evaluated again; and beneath the noise of f
comparisons mean nothing.  Growth, which must see a small part of the decrease, becomes invisible
first: from then on the step is the longest recent one until that fails.  When the decrease itself
is invisible, the step is accepted as it is and called blind.

A search that shrinks until nothing is visible has not been on a smooth function with its gradient,
and the steps that were refused say what it was on instead (`noise`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from stiefel.types import Aim, Gradient, Point

from .noise import MARGIN, WITNESSES, Kind, Watch, Witness, judge, testifies
from .problem import Problem

MAX_TRIALS = 60
MEMORY = 0.98  # how slowly the longest recent step is forgotten
GALLOP_AFTER = 12


class TwoSidedTrial(NamedTuple):
    """A point on the curve."""

    X: Point
    f: float
    gamma: float
    watch: Watch
    ceiling: float  # the longest recent step


@dataclass(frozen=True)
class TwoSided:
    """Parameters of the search, with the paper's letters."""

    growth: float = 1.7  # λ_d
    growth_threshold: float = 0.9  # c_L; Figures 1 and 2 use 0.7
    sufficient_decrease: float = 0.5
    may_grow: bool = True

    def __call__(
        self, problem: Problem, at: Gradient, aim: Aim, gamma: float, watch: Watch, ceiling: float
    ) -> TwoSidedTrial | None:
        """A step along the curve that meets the Armijo condition, or None if there is none."""
        search = _Search(problem, at, aim, watch)
        visible = search.visible((1.0 - self.growth_threshold) * gamma)
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

    def _grow(self, search: _Search, trial: TwoSidedTrial) -> TwoSidedTrial:
        for i in range(MAX_TRIALS):
            if not search.below(trial, self.growth_threshold):
                return trial
            longer = search.at(trial.gamma * self.growth ** _gallop(i))
            if not search.accepts(longer, self.sufficient_decrease):
                return trial  # held: the print evaluates this point a second time
            trial = longer
        return trial

    def _shrink(self, search: _Search, trial: TwoSidedTrial) -> TwoSidedTrial | None:
        refused: list[TwoSidedTrial] = []  # without their points, which are tall
        leap = 1
        for i in range(MAX_TRIALS):
            if trial.watch.blind:
                return search.judged(refused, trial)
            if search.accepts(trial, self.sufficient_decrease):
                return self._back(search, trial, leap)
            trial = trial._replace(X=None)
            refused.append(trial)
            leap = self._shrinks(i, trial.gamma, search)
            trial = search.at(trial.gamma / self.growth**leap)
        return None

    def _back(self, search: _Search, trial: TwoSidedTrial, leap: int) -> TwoSidedTrial:
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
        shrinks, limit = _gallop(i), search.shortest_visible
        if shrinks == 1 or not 0 < limit < gamma:
            return shrinks
        steps = (math.log(gamma) - math.log(limit)) / math.log(self.growth)  # γ/limit overflows
        return min(shrinks, max(1, math.floor(steps)))


class _Search:
    """Values along one curve."""

    def __init__(self, problem: Problem, at: Gradient, aim: Aim, watch: Watch) -> None:
        self.problem, self.f, self.aim, self.watch = problem, at.f, aim, watch
        self.noise = max(watch.noise, problem.noise.level(at.f))

    def at(self, gamma: float) -> TwoSidedTrial:
        X = self.aim.curve(gamma)
        f = self.problem.objective.value(X)
        # Half of the predicted decrease is what the Armijo test has to see.
        blind = not self.visible(0.5 * gamma)
        return TwoSidedTrial(X, f, gamma, self.watch._replace(blind=blind), gamma)

    def visible(self, gamma: float) -> bool:
        """Whether the decrease that the slope promises for γ can be seen."""
        return -gamma * self.aim.slope > MARGIN * self.noise

    def below(self, trial: TwoSidedTrial, c: float) -> bool:
        """Whether f fell by more than c times what its slope predicts, and not to −∞."""
        return -math.inf < trial.f < self.f + c * trial.gamma * self.aim.slope

    def accepts(self, trial: TwoSidedTrial, c: float) -> bool:
        return trial.f <= self.f + c * trial.gamma * self.aim.slope + self.noise

    @property
    def shortest_visible(self) -> float:
        return -2.0 * MARGIN * self.noise / self.aim.slope

    def judged(self, refused: list[TwoSidedTrial], last: TwoSidedTrial) -> TwoSidedTrial | None:
        """What to do with steps that were refused until f could no longer be read."""
        witnesses = [self._witness(t) for t in refused if math.isfinite(t.f) and self._is_short(t)]
        plausible = self.problem.noise.plausible(self.f)
        kind, noise = judge(witnesses, self.noise, plausible)
        if kind is Kind.OPEN:  # nothing else is left that could have refused the shortest steps
            noise = max((w.gap for w in witnesses[-WITNESSES:]), default=0.0)
            if not (len(witnesses) > WITNESSES and noise <= plausible):
                return last
        elif kind is not Kind.NOISE:
            return None
        longest = next((t for t in refused if t.f <= self.f + noise), last)
        watch = self.watch._replace(noise=max(self.watch.noise, noise), blind=True)
        return longest._replace(X=self.aim.curve(longest.gamma), watch=watch)

    def _witness(self, trial: TwoSidedTrial) -> Witness:
        """Nothing is known of slopes out there: what a refused step changed is the gap itself."""
        change, promised = abs(trial.f - self.f), -trial.gamma * self.aim.slope
        return Witness(trial.gamma, change or promised, promised, still=not change)

    def _is_short(self, trial: TwoSidedTrial) -> bool:
        return testifies(self.aim.curve, trial.gamma)


def _gallop(i: int) -> int:
    """Twelve times 1, then 2, 4, 8, …, at most 512."""
    return 1 if i < GALLOP_AFTER else int(2 ** min(i - GALLOP_AFTER + 1, 9))
