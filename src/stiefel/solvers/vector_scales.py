"""A scale for each of many unit vectors, in the H₀ = γD of their plain pairs.

Vertices of a graph have unlike degrees, columns of a dictionary are used unlike: their curvatures
differ, and D has one number a vector,

    D_i ∝ (Σ ‖s_i‖²/‖s‖² / Σ ‖y_i‖²/‖s‖²)^{1/2},     sums over steps,

with the mean one, so that γ keeps its meaning.  Where vectors are alike, or where y_i comes from
the steps of the others, D is noise.  So it is used only if it does better on a step that did not
make it: D^{−½}s and D^{½}y are the same vector up to γ if D is right, and the score

    log (‖s‖²‖y‖² / (⟨s, D⁻¹s⟩⟨y, Dy⟩))

says how much nearer they are than s and y.  Another D is a dear one, for YᵀDY has to be made again:
it has to differ, and there are fewer and fewer.

Every constant here has a test in `tests/test_vector_scales.py`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from stiefel.types import NumpyArray

FIRST_LOOK = 5  # pairs before it: short runs have no use for scales
SETTLED, THINNING = 40, 4  # after so many looks only at pairs in every fourth row
SCORE_MEMORY = 0.9  # memory of the scores: some ten looks
BETTER, NO_BETTER = 0.1, 0.0  # score from which D is used, and below which it is no more
CHANGE = 0.1  # of D, relative root mean square, from which another one takes its place …
WAITING = 1.25  # … after so many times the looks there were at the last change
RANGE = 10.0  # of D, both ways
LEAST_SHARE = 1e-8  # of a step; what moves less is not learned from
HUGE = 1e100  # ‖s‖² and ‖y‖² beyond, or below its inverse, are not looked at


class VectorScales(NamedTuple):
    """What is known about the vectors."""

    numbers: NumpyArray | None = None  # of each: Σ‖s_i‖²/‖s‖², Σ‖y_i‖²/‖s‖², and D
    used: NumpyArray | None = None  # the D in use, in the shape that broadcasts against them
    entries: NumpyArray | None = None  # that D, for each number of a point
    score: float = 0.0  # of D, smoothed
    change: float = 0.0  # mean square of D/used − 1, of the new D
    looks: int = 0  # steps that were looked at so far
    changed: int = 0  # how many there were when D was last changed

    def look_at(self, row: int) -> tuple[Any, ...] | None:
        """What a look needs at the step whose pair will stand in this row; None without a look."""
        if (self.looks or row >= FIRST_LOOK) and (self.looks < SETTLED or row % THINNING == 0):
            return self.numbers, self.used, LEAST_SHARE, RANGE, HUGE
        return None

    @property
    def better(self) -> bool:
        """Whether D is worth using now."""
        return self.score >= self._least

    @property
    def _least(self) -> float:
        return BETTER if self.used is None else NO_BETTER

    @property
    def rules_of_due(self) -> tuple[float, ...]:
        """What a kernel needs to tell whether the next look makes another D `due`."""
        uses, may = self.used is not None, self.looks + 1 >= WAITING * self.changed
        return self.score, SCORE_MEMORY, self._least, CHANGE * CHANGE, uses, may

    @property
    def due(self) -> bool:
        """Whether another D takes the place of the one in use, or none."""
        if self.used is not None and not self.better:
            return True
        another = self.better if self.used is None else self.change > CHANGE * CHANGE
        return another and self.looks >= WAITING * self.changed


def learned_from(known: VectorScales, seen: Any) -> VectorScales:
    """``known`` after a step that was ``seen`` as its `Secant` says; D in use is as it was."""
    numbers, used, entries, score, _, looks, changed = known
    if type(seen) is not tuple:
        seen = _weighed(seen, numbers, used, LEAST_SHARE, RANGE, HUGE)
    new, found, change = seen
    if found != found:  # NaN
        return known
    score = SCORE_MEMORY * score + (1.0 - SCORE_MEMORY) * found
    return VectorScales(new, used, entries, score, change, looks + 1, changed)


def _weighed(
    seen: NumpyArray,
    before: NumpyArray | None,
    used: NumpyArray | None,
    least_share: float,
    most: float,
    huge: float,
) -> tuple[NumpyArray | None, float, float]:
    """The numbers with a step, the score of D, and how much the new D differs from ``used``.

    1/most ≤ D ≤ most.  The score is NaN, and nothing is learned, where a step tells nothing.
    """
    (ss, yy), (N, W, D) = seen.astype(float), (0.0, 0.0, 1.0) if before is None else before
    step, change = float(ss.sum()), float(yy.sum())
    if not (1.0 / huge < step < huge and 1.0 / huge < change < huge):
        return before, math.nan, math.nan
    score = math.log(step / float((ss / D).sum())) + math.log(change / float((yy * D).sum()))
    told = ss > least_share * step
    N = N + np.where(told, ss, 0.0) / step
    W = W + np.where(told, yy, 0.0) / step
    known = (N > 0) & (W > 0)
    D = np.where(known, np.sqrt(np.where(known, N, 1.0) / np.where(known, W, 1.0)), 0.0)
    count, whole = int(known.sum()), float(D.sum())
    D = np.where(known, np.clip(D * (count / whole), 1.0 / most, most), 1.0) if count else 0 * N + 1
    relative = D - 1.0 if used is None else D / used - 1.0
    return np.stack([N, W, D]), score, float((relative * relative).mean())


def with_scales(known: VectorScales, like: NumpyArray) -> VectorScales:
    """``known`` with its D in use, if that is better, for points with the numbers of ``like``."""
    if known.numbers is None or not known.better:
        return known._replace(used=None, entries=None, changed=known.looks)
    D = known.numbers[2]
    entries = np.broadcast_to(D, like.shape).reshape(-1)
    return known._replace(used=D, entries=entries, changed=known.looks)
