"""Does f fall as its gradient says?  Doubt on the way, and a proof before success is told.

A gradient that is a little wrong vanishes where f does not stand still, and a run can end there as
if it had converged.  Values tell.  Over a step of length d the area beneath the slopes at its two
ends is what f changes by, up to O(d³), while f itself changes by O(d²) near a minimum: the gap
between the two is a part O(d) of the change, and a smaller one as steps become shorter.  If the
gradient is off by e the gap is ed, a part e/d of the change, and a larger one.  So the last step
whose change can be read leaves a run in doubt or free of it; nothing is evaluated for that.

A run in doubt is not said to have converged before f was asked, on both sides of the point in a few
random directions: (f(X(t)) − f(X(−t)))/2t is the derivative of f there, and √N times its size is
about that of the gradient, in N dimensions.  A derivative is the same for all t, noise is not; and
f(X(t)) + f(X(−t)) − 2f(X) falls with t² unless there are kinks.  Nothing is claimed if it is not
so.  tests/test_doubt.py has the runs that end untruthfully, or are accused falsely, without each of
the numbers below.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from stiefel.geometry.checks import gaussian
from stiefel.geometry.frames import seen
from stiefel.types import Curve, Gradient, Manifold, Point

from .noise import CLEAR, Watch, is_doubtful
from .problem import Problem

SUSPECT_NOISE = 1e-3  # of what is plausible: a search may have taken contradictions for noise
LOOK_AGAIN = 0.5  # of the gradient: chords are looked at when it has become so small
PROBED_DIRECTIONS = 3
SEED = 1, len("contradicted")  # another stream than that of `random_point`
LENGTHS = 3  # in one direction, …
SHORTER_PROBE = 8.0  # … each so many times shorter than the one before
SAME_DERIVATIVE = 1.25  # derivatives agree within this factor
UNLIKELY = 4.0  # a Gaussian number is larger once in sixteen thousand times
STRAIGHTENED = 0.5  # of the second difference per length may be left at the last: kinks keep it
CONTRADICTION = (
    "the values of f contradict its gradient, of norm {:.2e} here: in a random direction f has "
    "the derivative {:.2e} (stiefel.check_gradient tells what is wrong)"
)


def looked_at_chord(problem: Problem, watch: Watch, old: Any, new: Any) -> Watch:
    """The same for two states of a method that has no slopes at both ends of a step at hand.

    Cotangents see the part of the chord that is along the manifold: up to third order that of a
    curve.  It takes passes over tall arrays: where the gradient has fallen, and else not.
    """
    if not new.at.norm <= LOOK_AGAIN * watch.looked_at:
        return watch
    geometry, level = problem.geometry, max(watch.noise, problem.noise.level(old.at.f))
    chord = geometry.combine(1.0, new.x, -1.0, old.x)
    slopes = geometry.dot(old.at.G, chord), geometry.dot(new.at.G, chord)
    distance = geometry.bounded_length(chord)
    doubtful = is_doubtful(watch.doubtful, new.at.f - old.at.f, slopes, distance, level)
    return watch._replace(doubtful=doubtful, looked_at=new.at.norm)


def in_doubt(problem: Problem, at: Gradient, watch: Watch) -> bool:
    """Whether values are to be asked before success is told."""
    return watch.doubtful or watch.noise > SUSPECT_NOISE * problem.noise.plausible(at.f)


def contradicting_derivative(
    problem: Problem, x: Point, at: Gradient, is_success: Callable[[float], bool]
) -> float:
    """A derivative of f at x, too large for any gradient whose norm ``is_success``; else 0."""
    geometry, rng = problem.geometry, np.random.default_rng(SEED)
    size = math.sqrt(geometry.dimension(x)) / UNLIKELY
    for _ in range(PROBED_DIRECTIONS):
        W = geometry.project(x, _random_like(geometry, x, rng))
        probe = _Probe(problem, at, geometry.ray(x, W))
        slope = probe.slope(0)
        if not probe.readable:
            return 0.0
        if not is_success(size * abs(slope)):
            return probe.confirmed(slope)
    return 0.0


class _Probe:
    """Values of f on both sides of a point, along a curve."""

    def __init__(self, problem: Problem, at: Gradient, curve: Curve) -> None:
        self.value, self.f, self.curve = problem.objective.value, at.f, curve
        self.least = CLEAR * problem.noise.level(at.f)
        self.longest, self.unit = problem.noise.eps**0.25, math.sqrt(curve.squared_norm)
        self.readable = self.unit > 0
        self.bends: list[float] = []

    def slope(self, i: int) -> float:
        """The derivative for a unit of length, at the i-th length."""
        if not self.readable:
            return 0.0
        length = self.longest / SHORTER_PROBE**i
        t = length / self.unit
        ahead, behind = self.value(self.curve(t)), self.value(self.curve(-t))
        self.readable = self.least < abs(ahead - behind) < math.inf
        self.bends.append(abs((ahead - self.f) + (behind - self.f)) / length)
        return 0.5 * (ahead - behind) / length

    def confirmed(self, first: float) -> float:
        """The slope on which all lengths agree; 0 if f is noisy, or has kinks."""
        slope = first
        for i in range(1, LENGTHS):
            slope = self.slope(i)
            if not (self.readable and _same(slope, first)):
                return 0.0
        return slope if self.bends[-1] <= STRAIGHTENED * self.bends[0] else 0.0


def _same(a: float, b: float) -> bool:
    return a * b > 0 and max(abs(a), abs(b)) <= SAME_DERIVATIVE * min(abs(a), abs(b))


def _random_like(geometry: Manifold, x: Point, rng: np.random.Generator) -> Any:
    """A Gaussian array of the shape of the user's point, or a tuple of them."""
    shown = seen(geometry, x)
    if isinstance(shown, tuple):
        return tuple(gaussian(tuple(leaf.shape), rng, None, leaf) for leaf in shown)
    return gaussian(tuple(shown.shape), rng, None, shown)
