"""A step in one call, of matrices or of vectors: from the first trial to that of the next step.

Nearly every step ends where its first trial does: f has fallen, its slope is flatter there, and the
pair has positive curvature.  What `secant_search` decides then, what `LBFGS._arrive` learns and
keeps, and where `matrix_arrival` goes from there needs no question in between.  Every other step is
left to them, with its first trial at hand.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

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
from .vector_scales import learned_from


class Setting(NamedTuple):
    """Where a step begins, and the rules by which it goes."""

    problem: Problem
    search: SecantSearch
    metric: LearnedMetric | None
    caution: float  # pairs with less than so many ‖s‖‖y‖ are not kept
    longest: float  # the next first trial moves by so much at most
    start: Gradient
    aim: Aim
    watch: Watch
    pairs: Pairs
    learned: tuple[Learned, ...]
    gamma: float

    def falls(self, t: float, f: float) -> bool:
        """Whether a trial of t does what the search asks of f."""
        wanted = self.search.sufficient_decrease * t * self.aim.slope
        return -math.inf < f - self.start.f <= wanted

    def trial(self, ray: Curve, t: float, X: Point, found: tuple[float, Any, Any]) -> Trial:
        """A trial that does not, from f and its Euclidean gradient there."""
        f, E, aux = found
        at = self.problem.known(f, self.problem.geometry.gradient(X, E), aux)  # type: ignore[attr-defined]
        return Trial(t, X, at, ray.secant_pair(t, self.start, at) if at.finite else None)

    def terms(self, t: float, limit: float, length: float) -> tuple[float, ...]:
        """When kernels take the step without a question."""
        far, least = t >= 0.99 * limit, self.caution * t * length
        return self.aim.slope, self.search.curvature, far, least

    def watched(self, t: float, f: float, end: float, size: float) -> Watch:
        """What is seen of rounding in a step of t with ⟨∇f, s⟩ = ``end`` there."""
        watch, slope, start = self.watch, self.aim.slope, self.start.f
        level = max(watch.noise, self.problem.noise.level(start))
        slopes = t * slope, t * (end / t)
        return watch.after(watch.noise, f - start, slopes, t * size, level)

    def lesson(self, t: float, frame: Any) -> tuple[Any, bool]:
        """What a kernel needs to learn from the step, and whether the formulas alone can."""
        metric, learned = self.metric, self.learned
        if metric is None:
            return None, False
        found = metric.lesson(t, frame, learned[0])
        return found, found is None and not metric.passes_over(learned)

    def together(self) -> bool:
        """Whether the matrices of a stack, if it is one, share their pairs."""
        return self.pairs.apart is None or not self.pairs.apart.on


Strided = tuple["Stride | None", Trial | None]
NOTHING_FOUND: Strided = (None, None)


class Stride(NamedTuple):
    """A step that was taken, what is known at its end, and where to go from there."""

    X: Point
    at: Gradient
    watch: Watch
    pairs: Pairs
    learned: tuple[Learned, ...]
    gamma: float
    aimed: tuple[Tangent, float, Curve] | None  # None of matrices that have come apart


def stride(now: Setting) -> Strided:
    """An ordinary step, or another one's first trial; neither where there is no such kernel.

    Here of one tall matrix; others go their own ways.
    """
    ray = now.aim.curve
    if now.pairs.changes is not None:
        return _plain_stride(now)
    if type(ray) is CompiledFramedRay:
        return _framed_stride(now, ray)
    if type(ray) is CompiledRotationRay:
        return _turns_stride(now, ray)
    if type(ray) is CompiledWideRay:
        return _wide_stride(now, ray)
    problem, search, _, _, longest, start, _, _, pairs, learned, gamma = now
    if type(ray) is not LandingRay or ray.first is None:
        return NOTHING_FOUND
    t, size, old = ray.first.t, ray.bounded_length, learned[0]
    (lesson, by_formulas), limit = now.lesson(t, ray.whole), search.limit(ray)
    if t != min(1.0, limit) or by_formulas:
        return NOTHING_FOUND
    X = ray(t)
    f, E, aux = problem.objective.value_and_gradient(X)
    room, of_landing = ray.room_to_land(t, start, X, E)
    kernels = ray.kernels.compiled
    if not now.falls(t, f):
        landed = room.landed(t, ray.whole, *kernels.matrix_landing(*of_landing))
        return None, Trial(t, X, *problem.landed(f, aux, *landed))
    row, gone, kept = with_row(pairs, pairs.rows)
    ahead, next_X, N = RoomToAim(X), np.empty(X.shape, X.dtype), np.empty_like(ray.whole[0])
    known = ahead.known(problem.geometry, kept, X, room.G, old.metric)
    of_arrival = gamma, row, gone, longest, next_X, N, lesson
    terms = *now.terms(t, limit, size), largest_turn(old)
    *seen, found = kernels.matrix_stride(*of_landing, *known, *of_arrival, *terms)
    if found is None:
        landed = room.landed(t, ray.whole, *seen)
        return None, Trial(t, X, *problem.landed(f, aux, *landed))
    gamma, next_slope, *numbers, next_t, told = found
    at = Gradient(f, room.G, math.sqrt(seen[0]), None, room.small[0], True, room.small[1])
    first, watch = FirstTrial(next_t, next_X, N), now.watched(t, f, seen[1], size)
    learned = _taught(now, X, lesson, told)
    there = problem.geometry, ray.kernels, X, old.metric, next_slope, numbers, first
    return Stride(X, at, watch, kept, learned, gamma, ahead.aimed(*there)), None


def _taught(now: Setting, X: Point, lesson: Any, told: Any) -> tuple[Learned, ...]:
    """What is known of one matrix after a step, from what the kernel told of a lesson, if any."""
    metric, learned = now.metric, now.learned
    if metric is None:
        return learned
    if lesson is None:
        return one_more_step(learned)
    return (metric.taught(now.problem.geometry, X, learned[0], lesson, told),)


def _wide_stride(now: Setting, ray: CompiledWideRay) -> Strided:
    """Of one matrix with many columns."""
    problem, search, _, _, longest, start, _, _, pairs, learned, gamma = now
    geometry, limit, old = problem.geometry, search.limit(ray), learned[0]
    t = min(1.0, limit)
    lesson, by_formulas = now.lesson(t, None)
    if by_formulas or pairs.S is None or problem.precond is not None:
        return NOTHING_FOUND
    X = ray(t)
    f, E, aux = found = problem.objective.value_and_gradient(X)
    if not now.falls(t, f):
        return None, now.trial(ray, t, X, found)
    row, gone, kept = with_row(pairs, pairs.rows)
    span = type(geometry).gradient is not Stiefel.gradient  # type: ignore[attr-defined]
    room, of_landing = ray.room_to_land(t, start, X, E, span)
    ahead, Y, V = WideAim(geometry, X, old.metric), np.empty_like(X), np.empty_like(X)
    of_arrival = *ahead.known(kept, room.G), gamma, row, gone, longest, Y, V, lesson
    terms = *now.terms(t, limit, ray.length), largest_turn(old)
    *seen, found = ray.kernels.compiled.wide_stride(*of_landing, *of_arrival, *terms)
    if found is None:
        return None, Trial(t, X, *problem.landed(f, aux, *ray.landed(t, room, seen)))
    gamma, next_slope, *numbers, next_t, told = found
    at = Gradient(f, room.G, math.sqrt(seen[0]), None, room.small[0], True, room.small[1])
    watch, learned = now.watched(t, f, seen[1], ray.length), _taught(now, X, lesson, told)
    aimed = ahead.along(next_slope, *numbers, first=FirstTrial(next_t, Y, V))
    return Stride(X, at, watch, kept, learned, gamma, aimed), None


def _framed_stride(now: Setting, ray: CompiledFramedRay) -> Strided:
    """In a frame: of one matrix, or of square ones, which learn nothing but pairs.

    No metric of square ones is horizontal: their gradients are rotations and nothing else.
    """
    problem, search, metric, _, _, start, _, _, pairs, learned, gamma = now
    shape, old, k, size = start.G.shape, learned[0], ray.kernels, ray.length
    square = shape[-2] == shape[-1]
    serves = isinstance(problem.geometry, Framed) and (square or len(shape) == 2)
    if not (serves and now.together()) or problem.precond is not None or pairs.S is None:
        return NOTHING_FOUND
    limit = search.limit(ray)
    t = min(1.0, limit)
    Q = ray(t)
    if faster(k, Q, start.G) is not compiled:
        return NOTHING_FOUND
    f, E, aux = found = problem.objective.value_and_gradient(Q)
    if not now.falls(t, f):
        return None, now.trial(ray, t, Q, found)
    row, gone, kept = with_row(pairs, pairs.rows)
    G, s, y, T, U = (np.empty(shape, Q.dtype) for _ in range(5))
    rotation, omega = ray.head(G), 0.0 if old.metric.horizontal else old.metric.omega
    drift, looks = np.empty_like(rotation), metric is not None and not square
    lesson = metric.lesson_in_frame(learned) if looks else None  # type: ignore[union-attr]
    of_arrival = *kept[:4], G, Q, omega, T, U, drift, probe_of(G), gamma, row, gone, s, y
    terms = *now.terms(t, limit, size), largest_turn(old)
    of_landing = in_rows(E), G, ray.tangent, t, start.G, *terms, lesson
    norm, end, *split, found = k.compiled.framed_stride(*of_arrival, *of_landing)
    if found is None:
        at = problem.known(f, Lowered(G, norm, rotation), aux)
        return None, Trial(t, Q, at, Secant(s, y, Split(*split), slope=end))
    gamma, next_slope, *set_out, told = found
    if looks:
        learned = (metric.taught_in_frame(old, told),)  # type: ignore[union-attr]
    at, watch = Gradient(f, G, math.sqrt(norm), None, rotation), now.watched(t, f, end, size)
    ahead = T, next_slope, CompiledFramedRay.along(k, Q, U, drift, *set_out)
    return _looked_at(now, Stride(Q, at, watch, kept, learned, gamma, ahead)), None


def _turns_stride(now: Setting, ray: CompiledRotationRay) -> Strided:
    """Of 2×2 or 3×3 rotations, in coordinates."""
    problem, search, _, _, _, start, _, _, pairs, learned, gamma = now
    geometry, k, size, metric = problem.geometry, ray.kernels, ray.bounded_length, learned[0].metric
    blocks = type(pairs.S) is np.ndarray and len(pairs.diagonal) > 0
    serves = isinstance(geometry, FramedRotations) and now.together()
    if not (serves and blocks) or problem.precond is not None:
        return NOTHING_FOUND
    limit = search.limit(ray)
    t = min(1.0, limit)
    Q = ray(t)
    if kernels_of_turns(k, Q, start.G) is None:
        return NOTHING_FOUND
    f, E, aux = found = problem.objective.value_and_gradient(Q)
    if not now.falls(t, f):
        return None, now.trial(ray, t, Q, found)
    row, gone, kept = with_row(pairs, pairs.rows)
    G, s, y, T = (np.empty(start.G.shape) for _ in range(4))
    omega = 0.0 if metric.horizontal else metric.omega
    of_landing = Q.shape[-1], Q, in_rows(E), G, ray.tangent, t, start.G, s, y
    of_arrival = *kept[:4], gamma, row, gone, omega, T, *now.terms(t, limit, size)
    square, end, ss, yy, found = k.compiled.turns_stride(*of_landing, *of_arrival)
    if found is None:
        at = problem.known(f, Lowered(G, square), aux)
        return None, Trial(t, Q, at, Secant(s, y, Split(0.0, 0.0, ss, yy), slope=end))
    gamma, next_slope, *seen = found
    at, watch = Gradient(f, G, math.sqrt(square)), now.watched(t, f, end, size)
    ahead = T, next_slope, CompiledRotationRay(k, Q, T, seen)
    return _looked_at(now, Stride(Q, at, watch, kept, learned, gamma, ahead)), None


def _looked_at(now: Setting, taken: Stride) -> Stride:
    """The same of a stack, whose matrices are looked at one by one: apart, they are aimed anew."""
    if now.pairs.apart is None:
        return taken
    kept, X = taken.pairs._replace(apart=now.pairs.apart), taken.X
    of_step = now.problem, X, taken.at, kept, taken.learned, now.search.curvature
    kept = with_matrices_looked_at(*of_step)
    on = kept.apart is not None and kept.apart.on
    return taken._replace(pairs=kept, aimed=None if on else taken.aimed)


def _plain_stride(now: Setting) -> Strided:
    """Of vectors whose pairs are plain, unless they are due to be looked at one by one."""
    problem, search, _, _, longest, start, aim, _, pairs, learned, gamma = now
    if (ray := striding(aim.curve, start.G)) is None:
        return NOTHING_FOUND
    used = ray.place.rows
    if len(used) > len(pairs.rows) and len(used) in LOOKED_AT:
        return NOTHING_FOUND
    limit, size = search.limit(ray), ray.bounded_length
    t = min(1.0, limit)
    X = ray(t)
    f, E, aux = found = problem.objective.value_and_gradient(X)
    if aux is not None or not now.falls(t, f):
        return None, now.trial(ray, t, X, found)
    numbers = inverse, diagonal, changes = copied(pairs)
    limits = SMALL, LARGE, TangentRay.LOSSY, longest
    terms = now.terms(t, limit, ray.length)
    ended = ray.stride(t, X, E, (*numbers, gamma), (terms, limits), pairs.vectors)
    G, square, pair, gamma, *_ = ended
    at = Gradient(f, G, math.sqrt(square) if square >= 0 else math.nan)
    if ended.T is None:
        finite = math.isfinite(f) and math.isfinite(at.norm)
        return None, Trial(t, X, at._replace(finite=finite), pair)
    vectors = pairs.vectors
    if pair.vectors is not None:
        vectors = learned_from(vectors, pair.vectors)  # type: ignore[arg-type]
    kept = Pairs(pairs.S, None, inverse, diagonal, used, changes, None, None, vectors)
    ahead, watch = ray.after(X, G, ended, place_for(kept)), now.watched(t, f, pair.slope, size)
    return Stride(X, at, watch, kept, learned, gamma, (ended.T, ahead.slope, ahead)), None
