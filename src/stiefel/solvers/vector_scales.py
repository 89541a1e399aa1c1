"""A scale for each of many unit vectors, in the H₀ = γD of their plain pairs.

Vectors of a graph have unlike degrees, columns of a dictionary are used unlike: their curvatures
differ, and D has one number a vector.  As in `leaves`, its logarithm is a weighted mean over steps,

    log D_i = −½ (Σ w_i log(‖y_i‖²/‖s_i‖²)) / Σ w_i,     w_i the share of a step, at most one,

less the mean over all vectors, so that γ keeps its meaning.  Where vectors are alike, or where y_i
comes from the steps of the others, D is noise.  So it is used only if it does better on steps that
did not make it: D^{−½}s and D^{½}y are the same vector up to γ if D is right, and the score

    log (‖s‖²‖y‖² / (⟨s, D⁻¹s⟩⟨y, Dy⟩))

of the next step says how much nearer they are than s and y.  Every constant here has a test in
`tests/test_vector_scales.py`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from stiefel.types import NumpyArray

SETTLED, THINNING = 40, 4  # after so many steps only every fourth is looked at
BETTER, NO_BETTER = 0.1, 0.0  # score from which D is used, and below which it is no more
CHANGE = 0.1  # of D, root mean square of its logarithm, from which another one takes its place
RANGE = 10.0  # of D, both ways
LEAST_SHARE = 1e-8  # of a step, or of ‖y‖; what moves or changes less is not learned from
HUGE = 1e100  # ‖s‖² and ‖y‖² beyond, or below its inverse, are not looked at


class VectorScales(NamedTuple):
    """What is known about the vectors; arrays broadcast against them."""

    weights: NumpyArray | None = None  # Σ w
    stiffness: NumpyArray | None = None  # Σ w log(‖y‖²/‖s‖²)
    logs: NumpyArray | None = None  # log D that follows
    used: NumpyArray | None = None  # log D of the one in use
    entries: NumpyArray | None = None  # that D, for each number of a point
    unit: float = 0.0  # ‖y‖²/‖s‖² of the first step: the logarithms are relative to it
    score: float = 0.0  # of the last step that was looked at
    steps: int = 0  # so far

    @property
    def wants(self) -> bool:
        """Whether the next step will be looked at."""
        return self.steps < SETTLED or self.steps % THINNING == 0


def learned_from(known: VectorScales, ss: NumpyArray, yy: NumpyArray, fast: Any) -> VectorScales:
    """``known`` after a step with these ‖s_i‖² and ‖y_i‖²; D in use is as it was."""
    step, change = float(ss.sum()), float(yy.sum())
    known = known._replace(steps=known.steps + 1)
    if not (1.0 / HUGE < step < HUGE and 1.0 / HUGE < change < HUGE):
        return known
    unit = known.unit or change / step
    N, W, logs = np.zeros((3, *ss.shape))
    if known.weights is not None and known.stiffness is not None and known.logs is not None:
        N, W, logs = known.weights.copy(), known.stiffness.copy(), known.logs.copy()
    weigh = _weighed if fast is None else fast.units_weighed
    score = weigh(ss, yy, N, W, logs, unit, LEAST_SHARE, math.log(RANGE))
    if not math.isfinite(score):
        return known
    return known._replace(weights=N, stiffness=W, logs=logs, unit=unit, score=score)


def _weighed(
    ss: NumpyArray,
    yy: NumpyArray,
    N: NumpyArray,
    W: NumpyArray,
    logs: NumpyArray,
    unit: float,
    least_share: float,
    most: float,
) -> float:
    """The score of log D = ``logs``; then N, W and ``logs`` with this step.  |log D| ≤ most."""
    D, change = np.exp(logs), float(yy.sum())
    share = ss / D
    step = float(share.sum())
    score = math.log(float(ss.sum()) / step) + math.log(change / float((yy * D).sum()))
    share /= step
    told = (share > least_share) & (yy > least_share * least_share * change)
    w = np.where(told, np.minimum(ss.size * share, 1.0), 0.0)
    N += w
    W += w * np.log(np.where(told, yy, 1.0) / np.where(told, ss, 1.0 / unit) / unit)
    logs[...] = -0.5 * W / np.where(N > 0, N, 1.0)
    logs -= logs.mean()
    np.clip(logs, -most, most, out=logs)
    return score


def chosen(known: VectorScales) -> NumpyArray | None:
    """log D that is worth using now: none, the one in use, or the new one."""
    if known.logs is None or known.score < (BETTER if known.used is None else NO_BETTER):
        return None
    if known.used is None:
        return known.logs
    change = known.logs - known.used
    return known.logs if float((change * change).mean()) > CHANGE * CHANGE else known.used


def with_scales(known: VectorScales, logs: NumpyArray | None, like: NumpyArray) -> VectorScales:
    """``known`` with this log D in use, for points with the numbers of ``like``."""
    if logs is None:
        return known._replace(used=None, entries=None)
    entries = np.broadcast_to(np.exp(logs), like.shape).reshape(-1)
    return known._replace(used=logs, entries=entries)
