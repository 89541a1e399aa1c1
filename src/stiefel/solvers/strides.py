"""A step in one call, of one matrix or of vectors: from the first trial to that of the next step.

Nearly every step ends where its first trial does: f has fallen, its slope is flatter there, and the
pair has positive curvature.  What `secant_search` decides then, what `LBFGS._arrive` learns and
keeps, and where `matrix_arrival` goes from there needs no question in between.  Every other step is
left to them, with its first trial at hand.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from stiefel.geometry import compiled
from stiefel.geometry.compiled import FirstTrial, LandingRay, faster, kernels_of_turns
from stiefel.geometry.compiled import rows as in_rows
from stiefel.geometry.framed import Framed
from stiefel.geometry.framed_ray import CompiledFramedRay, Split, probe_of
from stiefel.geometry.ray import Lowered, Secant, TangentRay
from stiefel.geometry.stiefel import Stiefel
from stiefel.geometry.turns import CompiledRotationRay, FramedRotations
from stiefel.geometry.wide import CompiledWideRay
from stiefel.types import Aim, Curve, Gradient, Point, Tangent

from .aims import RoomToAim, WideAim
from .arrivals import with_matrices_looked_at
from .learned_metric import Learned, LearnedMetric, largest_turn, one_more_step
from .memory import Pairs, place_for, with_row
from .noise import Watch
from .plain_pairs import LARGE, LOOKED_AT, SMALL, copied, striding
from .problem import Problem
from .secant_search import SecantSearch, Trial
from .stack_pairs import Apart
from .vector_scales import learned_from


class Stride(NamedTuple):
    """A step that was taken, what is known at its end, and where to go from there."""

    X: Point
    at: Gradient
    watch: Watch
    pairs: Pairs
    learned: tuple[Learned, ...]
    gamma: float
    aimed: tuple[Tangent, float, Curve] | None  # None of matrices that have come apart


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
    if pairs.changes is not None:
        return _plain_stride(problem, search, rules, start, aim, watch, pairs, learned, gamma)
    known = aim.slope, watch, pairs, learned, gamma
    if type(curve) is CompiledFramedRay:
        return _framed_stride(problem, search, metric, caution, start, curve, *known)
    if type(curve) is CompiledRotationRay:
        return _turns_stride(problem, search, caution, start, curve, *known)
    if type(curve) is CompiledWideRay:
        return _wide_stride(problem, search, metric, rules, start, curve, *known)
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


def _wide_stride(
    problem: Problem,
    search: SecantSearch,
    metric: LearnedMetric | None,
    rules: tuple[float, float],
    start: Gradient,
    ray: CompiledWideRay,
    slope: float,
    watch: Watch,
    pairs: Pairs,
    learned: tuple[Learned, ...],
    gamma: float,
) -> tuple[Stride | None, Trial | None]:
    """The same of one matrix with many columns."""
    (caution, longest), geometry, old = rules, problem.geometry, learned[0]
    limit, size = search.limit(ray), ray.length
    t = min(1.0, limit)
    lesson = None if metric is None else metric.lesson(t, None, old)
    told_otherwise = metric is not None and lesson is None and not metric.passes_over(learned)
    if told_otherwise or pairs.S is None or problem.precond is not None:
        return None, None
    X = ray(t)
    f, E, aux = problem.objective.value_and_gradient(X)
    rise = f - start.f
    if not -math.inf < rise <= search.sufficient_decrease * t * slope:
        at = problem.known(f, geometry.gradient(X, E), aux)  # type: ignore[attr-defined]
        return None, Trial(t, X, at, ray.secant_pair(t, start, at) if at.finite else None)
    row, gone, kept = with_row(pairs, pairs.rows)
    span = type(geometry).gradient is not Stiefel.gradient  # type: ignore[attr-defined]
    room, of_landing = ray.room_to_land(t, start, X, E, span)
    ahead, Y, V = WideAim(geometry, X, old.metric), np.empty_like(X), np.empty_like(X)
    of_arrival = *ahead.known(kept, room.G), gamma, row, gone, longest, Y, V, lesson
    terms = slope, search.curvature, t >= 0.99 * limit, caution * t * size, largest_turn(old)
    *seen, found = ray.kernels.compiled.wide_stride(*of_landing, *of_arrival, *terms)
    if found is None:
        return None, Trial(t, X, *problem.landed(f, aux, *ray.landed(t, room, seen)))
    gamma, next_slope, *numbers, next_t, told = found
    at = Gradient(f, room.G, math.sqrt(seen[0]), None, room.small[0], True, room.small[1])
    if lesson is not None:
        learned = (metric.taught(geometry, X, old, lesson, told),)  # type: ignore[union-attr]
    elif metric is not None:
        learned = one_more_step(learned)
    level, slopes = max(watch.noise, problem.noise.level(start.f)), (t * slope, t * (seen[1] / t))
    watch = watch.after(watch.noise, rise, slopes, t * size, level)
    aimed = ahead.along(next_slope, *numbers, first=FirstTrial(next_t, Y, V))
    return Stride(X, at, watch, kept, learned, gamma, aimed), None


def _framed_stride(
    problem: Problem,
    search: SecantSearch,
    metric: LearnedMetric | None,
    caution: float,
    start: Gradient,
    ray: CompiledFramedRay,
    slope: float,
    watch: Watch,
    pairs: Pairs,
    learned: tuple[Learned, ...],
    gamma: float,
) -> tuple[Stride | None, Trial | None]:
    """The same in a frame: of one matrix, or of square ones, which learn nothing but pairs."""
    geometry, shape, apart, old = problem.geometry, start.G.shape, pairs.apart, learned[0]
    square, together = shape[-2] == shape[-1], apart is None or not apart.on
    serves = isinstance(geometry, Framed) and together and (square or len(shape) == 2)
    if not serves or problem.precond is not None or pairs.S is None:
        return None, None
    k, limit, size = ray.kernels, search.limit(ray), ray.length
    t = min(1.0, limit)
    Q = ray(t)
    if faster(k, Q, start.G) is not compiled:
        return None, None
    f, E, aux = problem.objective.value_and_gradient(Q)
    rise = f - start.f
    if not -math.inf < rise <= search.sufficient_decrease * t * slope:
        lowered = compiled.framed_gradient(k, Q, E)
        at = problem.known(f, Lowered(*lowered), aux)
        return None, Trial(t, Q, at, ray.secant_pair(t, start, at) if at.finite else None)
    row, gone, kept = with_row(pairs, pairs.rows)
    G, s, y, T, U = (np.empty(shape, Q.dtype) for _ in range(5))
    drift, omega = np.empty_like(ray.head(G)), 0.0 if old.metric.horizontal else old.metric.omega
    looks = not (square or metric is None or metric.passes_over(learned))
    lesson = metric.lesson_in_frame(old) if looks else None  # type: ignore[union-attr]
    probe = probe_of(G)
    of_arrival = *kept[:4], G, Q, omega, T, U, drift, probe, gamma, row, gone, s, y
    terms = slope, search.curvature, t >= 0.99 * limit, caution * t * size, largest_turn(old)
    of_landing = in_rows(E), G, ray.tangent, t, start.G, *terms, lesson
    norm, end, *split, found = k.compiled.framed_stride(*of_arrival, *of_landing)
    if found is None:
        at = problem.known(f, Lowered(G, norm, ray.head(G)), aux)
        return None, Trial(t, Q, at, Secant(s, y, Split(*split), slope=end))
    at = Gradient(f, G, math.sqrt(norm), None, ray.head(G))
    level, slopes = max(watch.noise, problem.noise.level(start.f)), (t * slope, t * (end / t))
    watch = watch.after(watch.noise, rise, slopes, t * size, level)
    gamma, next_slope, *set_out, told = found
    if lesson is not None:
        learned = (metric.taught_in_frame(old, told),)  # type: ignore[union-attr]
    elif metric is not None and not square:
        learned = one_more_step(learned)
    ahead = T, next_slope, CompiledFramedRay.along(k, Q, U, drift, *set_out)
    taken = Stride(Q, at, watch, kept, learned, gamma, ahead)
    return _looked_at(problem, search, taken, apart), None


def _turns_stride(
    problem: Problem,
    search: SecantSearch,
    caution: float,
    start: Gradient,
    ray: CompiledRotationRay,
    slope: float,
    watch: Watch,
    pairs: Pairs,
    learned: tuple[Learned, ...],
    gamma: float,
) -> tuple[Stride | None, Trial | None]:
    """The same of 2×2 or 3×3 rotations, in coordinates."""
    geometry, apart, k, size = problem.geometry, pairs.apart, ray.kernels, ray.bounded_length
    together = apart is None or not apart.on
    blocks = type(pairs.S) is np.ndarray and len(pairs.diagonal) > 0
    if not (together and blocks and isinstance(geometry, FramedRotations)) or problem.precond:
        return None, None
    limit, metric = search.limit(ray), learned[0].metric
    t = min(1.0, limit)
    Q = ray(t)
    if kernels_of_turns(k, Q, start.G) is None:
        return None, None
    f, E, aux = problem.objective.value_and_gradient(Q)
    rise = f - start.f
    if not -math.inf < rise <= search.sufficient_decrease * t * slope:
        at = problem.known(f, geometry.gradient(Q, E), aux)
        return None, Trial(t, Q, at, ray.secant_pair(t, start, at) if at.finite else None)
    row, gone, kept = with_row(pairs, pairs.rows)
    G, s, y, T = (np.empty(start.G.shape) for _ in range(4))
    omega = 0.0 if metric.horizontal else metric.omega
    of_landing = geometry.rows, Q, in_rows(E), G, ray.tangent, t, start.G, s, y
    terms = slope, search.curvature, t >= 0.99 * limit, caution * t * size
    of_arrival = *kept[:4], gamma, row, gone, omega, T
    square, end, ss, yy, found = k.compiled.turns_stride(*of_landing, *of_arrival, *terms)
    if found is None:
        at = problem.known(f, Lowered(G, square), aux)
        return None, Trial(t, Q, at, Secant(s, y, Split(0.0, 0.0, ss, yy), slope=end))
    at = Gradient(f, G, math.sqrt(square))
    level, slopes = max(watch.noise, problem.noise.level(start.f)), (t * slope, t * (end / t))
    watch = watch.after(watch.noise, rise, slopes, t * size, level)
    gamma, next_slope, *seen = found
    ahead = T, next_slope, CompiledRotationRay(k, Q, T, seen)
    return _looked_at(
        problem, search, Stride(Q, at, watch, kept, learned, gamma, ahead), apart
    ), None


def _looked_at(
    problem: Problem, search: SecantSearch, taken: Stride, apart: Apart | None
) -> Stride:
    """The same of a stack, whose matrices are looked at one by one: apart, they are aimed anew."""
    if apart is None:
        return taken
    kept, X = taken.pairs._replace(apart=apart), taken.X
    of_step = problem, X, taken.at, kept, taken.learned, search.curvature
    kept = with_matrices_looked_at(*of_step)
    on = kept.apart is not None and kept.apart.on
    return taken._replace(pairs=kept, aimed=None if on else taken.aimed)


def _plain_stride(
    problem: Problem,
    search: SecantSearch,
    rules: tuple[float, float],
    start: Gradient,
    aim: Aim,
    watch: Watch,
    pairs: Pairs,
    learned: tuple[Learned, ...],
    gamma: float,
) -> tuple[Stride | None, Trial | None]:
    """The same of vectors whose pairs are plain, unless they are due to be looked at one by one."""
    if (curve := striding(aim.curve, start.G)) is None:
        return None, None
    used, objective, slope = curve.place.rows, problem.objective, aim.slope
    if len(used) > len(pairs.rows) and len(used) in LOOKED_AT:
        return None, None
    (caution, longest), limit, size = rules, search.limit(curve), curve.bounded_length
    t = min(1.0, limit)
    X = curve(t)
    f, E, aux = objective.value_and_gradient(X)
    rise = f - start.f
    if aux is not None or not -math.inf < rise <= search.sufficient_decrease * t * slope:
        at = problem.known(f, problem.geometry.gradient(X, E), aux)  # type: ignore[attr-defined]
        return None, Trial(t, X, at, curve.secant_pair(t, start, at) if at.finite else None)
    numbers = inverse, diagonal, changes = copied(pairs)
    terms = slope, search.curvature, t >= 0.99 * limit, caution * t * curve.length
    limits = SMALL, LARGE, TangentRay.LOSSY, longest
    ended = curve.stride(t, X, E, (*numbers, gamma), (terms, limits), pairs.vectors)
    G, square, pair, gamma, *_ = ended
    at = Gradient(f, G, math.sqrt(square) if square >= 0 else math.nan)
    if ended.T is None:
        finite = math.isfinite(f) and math.isfinite(at.norm)
        return None, Trial(t, X, at._replace(finite=finite), pair)
    vectors = pairs.vectors
    if pair.vectors is not None:
        vectors = learned_from(vectors, pair.vectors)  # type: ignore[arg-type]
    kept = Pairs(pairs.S, None, inverse, diagonal, used, changes, None, None, vectors)
    ahead = curve.after(X, G, ended, place_for(kept))
    end, level = pair.slope / t, max(watch.noise, problem.noise.level(start.f))
    watch = watch.after(watch.noise, rise, (t * slope, t * end), t * size, level)
    return Stride(X, at, watch, kept, learned, gamma, (ended.T, ahead.slope, ahead)), None
