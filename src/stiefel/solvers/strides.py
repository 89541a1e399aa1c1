"""A step of one matrix in one call: from the first trial of one step to that of the next.

Nearly every step ends where its first trial does: f has fallen, its slope is flatter there, and the
pair has positive curvature.  What `secant_search` decides then, what `LBFGS._arrive` learns and
keeps, and where `matrix_arrival` goes from there needs no question in between.  Every other step is
left to them, with its first trial at hand.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from stiefel.geometry.compiled import FirstTrial, LandingRay
from stiefel.types import Aim, Curve, Gradient, Point, Tangent

from .aims import RoomToAim
from .learned_metric import Learned, LearnedMetric, largest_turn, one_more_step
from .memory import Pairs, with_row
from .noise import Watch
from .problem import Problem
from .secant_search import SecantSearch, Trial


class Stride(NamedTuple):
    """A step that was taken, what is known at its end, and where to go from there."""

    X: Point
    at: Gradient
    watch: Watch
    pairs: Pairs
    learned: tuple[Learned, ...]
    gamma: float
    aimed: tuple[Tangent, float, Curve]


def stride(
    problem: Problem,
    search: SecantSearch,
    metric: LearnedMetric | None,
    rules: tuple[float, float],
    start: Gradient,
    aim: Aim,
    watch: Watch,
    pairs: Pairs,
    learned: tuple[Learned, ...],
    gamma: float,
) -> tuple[Stride | None, Trial | None]:
    """An ordinary step, or another one's first trial; neither where there is no such kernel.

    ``rules``: pairs with less than so many ‖s‖‖y‖ are not kept, and the next first trial moves by
    so much at most.
    """
    caution, longest = rules
    curve = aim.curve
    if type(curve) is not LandingRay or curve.first is None:
        return None, None
    t, limit, size, old = curve.first.t, search.limit(curve), curve.bounded_length, learned[0]
    if t != min(1.0, limit):
        return None, None
    lesson = None if metric is None else metric.lesson(t, curve.whole, old)
    if metric is not None and lesson is None and not metric.passes_over(learned):
        return None, None
    X = curve(t)
    f, E, aux = problem.objective.value_and_gradient(X)
    rise, slope = f - start.f, aim.slope
    room, of_landing = curve.room_to_land(t, start, X, E)
    kernels = curve.kernels.compiled
    if not -math.inf < rise <= search.sufficient_decrease * t * slope:
        landed = room.landed(t, curve.whole, *kernels.matrix_landing(*of_landing))
        return None, Trial(t, X, *problem.landed(f, aux, *landed))
    row, gone, kept = with_row(pairs, pairs.rows)
    ahead, next_X, N = RoomToAim(X), np.empty(X.shape, X.dtype), np.empty_like(curve.whole[0])
    known = ahead.known(problem.geometry, kept, X, room.G, old.metric)
    of_arrival = gamma, row, gone, longest, next_X, N, lesson
    least, far = caution * t * size, t >= 0.99 * limit
    terms = slope, search.curvature, far, least, largest_turn(old)
    *seen, found = kernels.matrix_stride(*of_landing, *known, *of_arrival, *terms)
    if found is None:
        landed = room.landed(t, curve.whole, *seen)
        return None, Trial(t, X, *problem.landed(f, aux, *landed))
    gamma, next_slope, defect, square, whole, next_t, told = found
    small, end = room.small, seen[1] / t
    at = Gradient(f, room.G, math.sqrt(seen[0]), None, small[0], True, small[1])
    if lesson is not None:
        learned = (metric.taught(problem.geometry, X, old, lesson, told),)  # type: ignore[union-attr]
    elif metric is not None:
        learned = one_more_step(learned)
    level, slopes = max(watch.noise, problem.noise.level(start.f)), (t * slope, t * end)
    watch = watch.after(watch.noise, rise, slopes, t * size, level)
    first = FirstTrial(next_t, next_X, N)
    numbers = defect, square, whole
    there = problem.geometry, curve.kernels, X, old.metric, next_slope, numbers, first
    return Stride(X, at, watch, kept, learned, gamma, ahead.aimed(*there)), None
