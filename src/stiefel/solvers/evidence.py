"""What trials along a curve say about f: the size of its noise, or that its gradient is wrong.

With φ(t) = f(X(t)) and φ' from the gradient, two trials a and b disagree by

    gap = |φ(b) − φ(a) − ½(b − a)(φ'(a) + φ'(b))|,

the error of the trapezium.  It falls with the cube of |b − a| if φ is smooth and φ' its derivative,
with |b − a| itself if φ' is not, and not at all if φ is noisy.  A φ that does not change at all has
lost the digits in which it would: that is noise as well.

Only short steps can tell: far along a Cayley curve X(t) turns towards a limit, often −X with the
same f, while the slopes at its beginning go on promising.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

SHORTER = 4.0  # distances are compared if one is so many times shorter
STEADY = 2.0  # … and the gap has not fallen by this factor: noise
WITNESSES = 3  # so many trials, each SHORTER than the one before, accuse a gradient …
ALIKE = 3.0  # … if their gaps per distance agree within this factor
CLEAR = 100.0  # … and are so many times the noise
LONGEST = 1.0  # of a step that testifies, ‖tW‖_g*: columns have length one
JUMP_SPREAD = 0.02  # gaps that agree to this fraction come from a jump


class Sample(Protocol):
    """A finite trial."""

    @property
    def t(self) -> float: ...
    @property
    def f(self) -> float: ...
    @property
    def slope(self) -> float: ...


class Gap(NamedTuple):
    """How far values and slopes of two trials disagree."""

    distance: float
    size: float


def gap(a: Sample, b: Sample) -> Gap:
    area = 0.5 * (b.t - a.t) * (a.slope + b.slope)
    return Gap(abs(b.t - a.t), abs(b.f - a.f - area))


def measured_noise(new: Gap, earlier: Iterable[Gap], plausible: float) -> float:
    """The noise that a gap shows: as large as over a distance several times as long."""
    if new.size > plausible:
        return 0.0
    steady = [
        g.size
        for g in earlier
        if g.distance >= SHORTER * new.distance and g.size <= STEADY * new.size
    ]
    return max(new.size, *steady) if steady else 0.0


def drowned(gaps: Sequence[Gap]) -> bool:
    """Whether gaps do not fall with the distance, nor agree as those of one jump do."""
    return any(
        measured_noise(b, [a], math.inf) > 0 and abs(a.size - b.size) > JUMP_SPREAD * b.size
        for a, b in itertools.permutations(gaps, 2)
    )


def lost_digits(still: Iterable[Gap]) -> float:
    """The noise of values that did not change over distances so different; else 0."""
    by_distance = sorted(still, reverse=True)
    return by_distance[0].size if len(_spaced(by_distance)) >= WITNESSES else 0.0


def contradicts(gaps: list[Gap], noise: float) -> bool:
    """Whether values and slopes disagree in proportion to the distance: not a derivative of f.

    ``gaps`` from the start of the curve to trials whose values were too high for their slopes.
    """
    clear = sorted((g for g in gaps if g.size > CLEAR * noise), reverse=True)
    return any(
        len(_spaced([g for g in clear[i:] if _alike(g, first)])) >= WITNESSES
        for i, first in enumerate(clear)
    )


def _alike(a: Gap, b: Gap) -> bool:
    """Whether two gaps are in proportion to their distances."""
    one, two = a.size * b.distance, b.size * a.distance
    return max(one, two) <= ALIKE * min(one, two)


def _spaced(gaps: list[Gap]) -> list[Gap]:
    """Those of falling distance of which each is several times shorter than the last."""
    chosen: list[Gap] = []
    for g in gaps:
        if not chosen or SHORTER * g.distance <= chosen[-1].distance:
            chosen.append(g)
    return chosen
