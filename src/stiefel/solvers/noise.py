"""Is this noise, a wrong gradient, or a jump?  One model and one judge for every method.

A value of f is exact to a *level*: rounding, what the user says (``fnoise``), or what steps have
shown.  Differences beneath it mean nothing, and where the decrease that a step promises is beneath
it the step is *blind*: only gradients can tell.

A step of length d that f refuses is a witness.  Slopes (or a quadratic model) promise a change of
f, and f changes by another amount; the gap between the two falls with the cube of d where f is
smooth and the slopes are its derivatives, and with d itself where they are not.  It stays where f
is noisy.  A jump stays as well, but is the same from step to step.  An f that does not change at
all has lost the digits in which it would.  Only short steps can tell: far along a Cayley curve
X(t) turns towards a limit, often −X with the same f, while the slopes at its beginning go on
promising.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from stiefel.types import Curve

ROUNDING = 10.0  # ulps of f that a sum of many terms loses
LOST_BITS = 20  # zeros at the end of f: one value in a million has as many by chance
LOST_FACTOR = 2.0**LOST_BITS
PLAUSIBLE = 1e-6  # relative to the size of f: a larger gap is a jump, not noise
MARGIN = 2.0  # a difference is visible if it is this many times the level

SHORTER = 4.0  # witnesses are compared if one step is so many times shorter
STEADY_GAP = 2.0  # … and the gap has not fallen by this factor: noise
WITNESSES = 3  # so many steps accuse a gradient …
SPACING = 10.0  # … each so many times shorter than the one before …
ALIKE = 3.0  # … if their gaps per distance agree within this factor
CLEAR = 100.0  # … and are so many times the level
LONGEST_TESTIMONY = 1.0  # of a step that testifies: columns have length one
JUMP_SPREAD = 0.02  # gaps that agree to this fraction come from a jump
DWARFING_GAPS = 100.0  # gaps so many times what was promised are noise on the scale of the step

# Of steps that were taken; the runs that these numbers decide are in test_doubt.py.
DOUBTFUL = 0.005  # of what slopes promise is a gap that leaves doubt …
PER_LENGTH = 3.0  # … and this for every unit of length: columns have length one
UNROUNDED = 10.0  # times the noise of f is a gap that leaves doubt


@dataclass(frozen=True)
class Model:
    """What is known about the rounding of f before the first step."""

    eps: float = 2.0**-52
    fnoise: float | None = None  # the absolute error of f, where the user knows it
    magnitude: float = 0.0  # |f(x0)|: f may pass through zero, its rounding does not

    def level(self, f: float) -> float:
        """The size beneath which differences of values near f mean nothing.

        A value that passes near zero because large terms cancel keeps their rounding.  It shows:
        its last digits are zeros.
        """
        if self.fnoise is not None:
            return self.fnoise
        size = abs(f)
        rounding = ROUNDING * self.eps * size
        if size > self.magnitude / LOST_FACTOR:
            return rounding
        unit = last_digit(f)
        if unit <= self.eps * size * LOST_FACTOR:
            return rounding
        return min(ROUNDING * unit, ROUNDING * self.eps * self.magnitude)

    def plausible(self, f: float) -> float:
        """More than this between two values is not noise."""
        return PLAUSIBLE * max(abs(f), self.magnitude)

    def worst(self, f: float) -> float:
        """What f may have lost in terms as large as f(x0) that cancel in it."""
        return max(self.level(f), ROUNDING * self.eps * max(abs(f), self.magnitude))


def last_digit(f: float) -> float:
    """The place value of the last bit of f that is not zero; infinite for f = 0."""
    if not f or not math.isfinite(f):
        return math.inf
    mantissa, exponent = math.frexp(f)
    digits = int(abs(mantissa) * 2.0**53)
    return math.ldexp(digits & -digits, exponent - 53)


class Watch(NamedTuple):
    """What floating point has shown in a run so far; a part of every solver's state."""

    noise: float = 0.0  # of f, beyond the model's level
    blind: bool = False  # the last step's decrease was beneath the noise
    doubtful: bool = False  # the last one that could be read contradicts the gradient; see `doubt`
    looked_at: float = math.inf  # the gradient norm when that was asked, where it is not at hand

    def after(
        self,
        noise: float,
        rise: float,
        slopes: tuple[float, float],
        distance: float,
        level: float,
    ) -> Watch:
        """After a step by which f rose; ``slopes`` at both ends are times its length."""
        blind = -0.5 * slopes[0] <= MARGIN * level
        seen = noise, blind, is_doubtful(self.doubtful, rise, slopes, distance, level)
        return self if seen == self[:3] else Watch(*seen)


class Witness(NamedTuple):
    """A step that f refused."""

    distance: float
    gap: float  # |change of f − what was promised|
    promised: float = math.inf  # |what was promised|
    still: bool = False  # f did not change at all


class Kind(Enum):
    OPEN = "nothing is proved yet"
    NOISE = "f is noisy"
    DROWNED = "f is noisy beyond belief"
    JUMP = "f jumps"
    WRONG = "f contradicts its gradient"


class NoiseVerdict(NamedTuple):
    kind: Kind
    noise: float = 0.0  # its size, where f is noisy


def is_doubtful(
    before: bool, rise: float, slopes: tuple[float, float], distance: float, level: float
) -> bool:
    """Whether a run is in doubt after a step; ``slopes`` at both ends are times its length.

    Where the change of f cannot be read above its noise ``level``, it is as ``before``.
    """
    size = 0.5 * (abs(slopes[0]) + abs(slopes[1]))
    if not max(size, abs(rise)) > CLEAR * level:
        return before
    gap = abs(rise - 0.5 * (slopes[0] + slopes[1]))
    if not gap > max(DOUBTFUL, PER_LENGTH * distance) * size:
        return False
    return before or gap > UNROUNDED * level


def testifies(curve: Curve, t: float) -> bool:
    """Whether a step is short enough to be a witness."""
    return t * curve.bounded_length <= LONGEST_TESTIMONY


def judge(witnesses: Sequence[Witness], level: float, plausible: float) -> NoiseVerdict:
    """What refused steps say about f, of which differences beneath ``level`` mean nothing."""
    lost = lost_digits(witnesses)
    if lost > level:
        return NoiseVerdict(Kind.NOISE, lost)
    steady = [(a, b) for a in witnesses for b in witnesses if _is_steady(a, b)]
    size = max((max(a.gap, b.gap) for a, b in steady), default=0.0)
    if _contradicts(witnesses, max(level, size)):
        return NoiseVerdict(Kind.WRONG)
    if not size and len(witnesses) >= WITNESSES:
        dwarfed = all(w.gap > DWARFING_GAPS * w.promised for w in witnesses)
        size = max(w.gap for w in witnesses) if dwarfed else 0.0
    if not size > level:
        return NoiseVerdict(Kind.OPEN)
    if size <= plausible:
        return NoiseVerdict(Kind.NOISE, size)
    unlike = any(abs(a.gap - b.gap) > JUMP_SPREAD * b.gap for a, b in steady)
    return NoiseVerdict(Kind.DROWNED if unlike else Kind.JUMP, size)


def _is_steady(longer: Witness, shorter: Witness) -> bool:
    """Whether the gap has not fallen with the distance."""
    return SHORTER * shorter.distance <= longer.distance and longer.gap <= STEADY_GAP * shorter.gap


def measured(new: Witness, earlier: Iterable[Witness], plausible: float) -> float:
    """The noise that a gap shows: as large as over a distance several times as long; else 0."""
    if new.gap > plausible:
        return 0.0
    return max((max(w.gap, new.gap) for w in earlier if _is_steady(w, new)), default=0.0)


def lost_digits(witnesses: Iterable[Witness]) -> float:
    """What was promised to the longest of the short steps that left f as it was; else 0."""
    still = list(itertools.takewhile(lambda w: w.still, sorted(witnesses)))[::-1]
    return still[0].gap if len(_spaced(still)) >= WITNESSES else 0.0


def _contradicts(witnesses: Sequence[Witness], level: float) -> bool:
    """Whether gaps are in proportion to the distance: the slopes are not derivatives of f."""
    clear = sorted((w for w in witnesses if w.gap > CLEAR * level), reverse=True)
    return any(
        len(_spaced([w for w in clear[i:] if _in_proportion(w, first)])) >= WITNESSES
        for i, first in enumerate(clear)
    )


def _in_proportion(a: Witness, b: Witness) -> bool:
    one, two = a.gap * b.distance, b.gap * a.distance
    return max(one, two) <= ALIKE * min(one, two)


def _spaced(witnesses: list[Witness]) -> list[Witness]:
    """Those of falling distance of which each is several times shorter than the last."""
    chosen: list[Witness] = []
    for w in witnesses:
        if not chosen or SPACING * w.distance <= chosen[-1].distance:
            chosen.append(w)
    return chosen
