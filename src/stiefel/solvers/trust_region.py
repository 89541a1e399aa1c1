"""Newton's method in a trust region, each step by truncated conjugate gradients.

    minimise m(W) = f + ⟨∇f, W⟩ + ½⟨W, HW⟩  over cotangents with ‖W‖ ≤ Δ   (Steihaug and Toint)
    X_{t+1} = R(X_t, φ(W)) if f fell by at least ρ' of what m predicts, else X_t
    Δ ← Δ/4 if the model was poor, 2Δ if it was good and W reached the boundary.

H is the Riemannian Hessian (`stiefel.geometry.hessian`), whose Euclidean part comes from
``hessp``, from autodiff, or from differences of gradients along the ray of W.  The inner iteration
ends when its residual falls below min(κ, (‖∇f‖/‖∇f₀‖)^θ) ‖∇f‖, without units; four digits a step
are enough.  Beneath the noise of f the ratio says nothing: there a step must make the gradient
smaller.

A product HD is an exact sample of curvature: the metric of `learned_metric` is learned from all of
them, and the one that the products of earlier steps have shown is the preconditioner.  Where f
depends on spans only, rotations are dropped.

Steps that f refuses testify (`noise`): f − m falls with the cube of the step, with its square if
the Hessian is wrong, with the step itself if the gradient is, and not at all if f is noisy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from stiefel.geometry.metric import CANONICAL
from stiefel.types import Array, Gradient, Metric, Point, Status

from .learned_metric import Learned, LearnedMetric, product_pair, still_invariant
from .noise import LONGEST_TESTIMONY, MARGIN, Kind, Watch, Witness, is_doubtful, judge, measured
from .parameters import check_open_interval, check_positive
from .problem import Problem
from .raising import metric_of
from .steihaug import ModelStep, truncated_cg

POOR, GOOD = 0.25, 0.75  # of the predicted decrease
SHORTEST_STEP = 1e-3  # of a step that rounding allows: a trust region this small has failed
BLIND_REJECTIONS = 3
MOST_DOUBTS = 12
# A residual reduced further than this in one step is not worth its products, and beneath the
# rounding of the gradient conjugate gradients find negative curvature that is not there.
LEAST_FACTOR = 1e-4
# Products are fair samples: none misleads.
LEARNING = LearnedMetric(worst_columns=math.inf, worst_beside_rotations=math.inf)


class State(NamedTuple):
    x: Point
    at: Gradient
    gradient: Array  # Euclidean, which the curvature of the manifold needs
    radius: float  # Δ
    reference: float  # ‖∇f₀‖
    gamma: float = 0.0  # length of the last step
    k: int = 0  # steps accepted since the last rejection
    rejections: int = 0  # since the last accepted step
    restarted: bool = False  # the last step was rejected
    watch: Watch = Watch()
    failure: Status | None = None
    doubts: tuple[Witness, ...] = ()  # visible steps that f refused since it allowed one
    learned: tuple[Learned, ...] = ()  # the metric, from products with the Hessian

    @property
    def expected_decrease(self) -> float:
        """Of a Newton step as long as the last one, which is longer than the next."""
        return 0.5 * self.gamma * self.at.norm if self.gamma or not self.at.norm else math.inf


@dataclass(frozen=True)
class TrustRegion:
    """Riemannian trust-region Newton method.

    Parameters
    ----------
    initial_radius : float
        The radius Δ₀, a length in the metric g*.
    least_ratio : float
        The part ρ' of the predicted decrease that a step must bring.
    residual_factor : float
        The factor κ of the inner stopping test.
    residual_exponent : float
        The exponent θ of the inner stopping test.

    Examples
    --------
    >>> import numpy as np, stiefel
    >>> objective = stiefel.objectives.Brockett(np.arange(1.0, 21.0), [1.0, 2.0])
    >>> X0 = stiefel.random_point(20, 2, seed=0)
    >>> stiefel.minimize(objective, X0, method=stiefel.TrustRegion(initial_radius=0.5)).success
    True
    """

    initial_radius: float = 1.0  # Δ₀
    least_ratio: float = 0.1  # ρ'
    residual_factor: float = 0.1  # κ
    residual_exponent: float = 1.0  # θ

    def __post_init__(self) -> None:
        check_positive(self, "initial_radius")
        check_positive(self, "residual_exponent")
        check_open_interval(self, "least_ratio", 0.0, POOR)
        check_open_interval(self, "residual_factor", 0.0, 1.0)

    def init(self, problem: Problem, x: Point) -> State:
        at, gradient = _evaluate(problem, x)
        learned = LEARNING.init(problem.geometry, x, at)
        return State(x, at, gradient, self.initial_radius, at.norm, learned=learned)

    def step(self, problem: Problem, s: State) -> State:
        if not s.at.norm > 0:
            return s._replace(failure=Status.ROUNDING_LIMIT)
        step, learned = self._model_step(problem, s)
        s = s._replace(learned=learned)
        curve = problem.geometry.ray(s.x, step.W)
        x = curve(1.0)
        at, gradient = _evaluate(problem, x)
        doubt = _doubt(step, s.at, at)
        noise = max(s.watch.noise, self._measured(problem, s, doubt))
        s = s._replace(watch=s.watch._replace(noise=noise))
        # The noise of f added to both sides: ρ tends to 1 where neither decrease can be seen.
        level = MARGIN * max(noise, problem.noise.level(s.at.f))
        blind = step.decrease <= level
        ratio = (s.at.f - at.f + level) / (step.decrease + level) if at.finite else -math.inf
        if blind and at.norm >= s.at.norm:
            ratio = -math.inf
        if not ratio > self.least_ratio and _halves_gradient(problem, s, at):
            ratio, blind = 0.5, True
        radius = self._radius(s.radius, step, ratio)
        unseen = s.doubts and blind and step.on_boundary and not noise
        if unseen and not self._is_limited(problem, s, level):
            # Refused until nothing can be seen: a gradient that got smaller there proves nothing.
            watch = s.watch._replace(blind=True)
            return s._replace(failure=_why(problem, s), restarted=True, watch=watch)
        if not ratio > self.least_ratio:
            return self._reject(problem, s, radius, blind, doubt)
        doubts = s.doubts if blind else ()
        length = math.sqrt(step.squared_length)
        new = State(x, at, gradient, radius, s.reference, length, s.k + 1, learned=learned)
        learned, _ = still_invariant(problem.geometry, x, at, learned)
        model, distance = (-step.decrease, -step.decrease), curve.bounded_length
        doubtful = is_doubtful(s.watch.doubtful, at.f - s.at.f, model, distance, level)
        watch = Watch(noise, blind, doubtful)
        return new._replace(doubts=doubts, watch=watch, learned=learned)

    def _measured(self, problem: Problem, s: State, doubt: Witness | None) -> float:
        if doubt is None or doubt.gap <= problem.noise.level(s.at.f):
            return 0.0
        return measured(doubt, s.doubts, problem.noise.plausible(s.at.f))

    def _radius(self, radius: float, step: ModelStep, ratio: float) -> float:
        if not ratio >= POOR:
            return 0.25 * min(radius, math.sqrt(step.squared_length))
        if ratio > GOOD and step.on_boundary:
            return 2.0 * radius
        return radius

    def _reject(
        self, problem: Problem, s: State, radius: float, blind: bool, doubt: Witness | None
    ) -> State:
        rejections, failure, doubts = s.rejections + 1, None, s.doubts
        noise = max(s.watch.noise, problem.noise.level(s.at.f))
        if doubt is not None and doubt.gap > noise and doubt.distance <= LONGEST_TESTIMONY:
            doubts = (*doubts, doubt)[-MOST_DOUBTS:]
        kept = s._replace(radius=radius, k=0, rejections=rejections, restarted=True)
        kept = kept._replace(watch=s.watch._replace(blind=blind), doubts=doubts)
        tiny = radius * s.at.norm < SHORTEST_STEP * noise
        if judge(doubts, noise, math.inf).kind is Kind.WRONG:
            failure = Status.STEP_NOT_FOUND
        elif tiny or (blind and rejections >= BLIND_REJECTIONS):
            limited = self._is_limited(problem, s, noise)
            failure = Status.ROUNDING_LIMIT if limited else _why(problem, kept)
        return kept._replace(failure=failure)

    def _is_limited(self, problem: Problem, s: State, noise: float) -> bool:
        """Whether rounding explains that no step was found: of f, or of a gradient this small."""
        size = max(s.reference, math.sqrt(problem.geometry.dot(s.gradient, s.gradient)))
        unreadable = SHORTEST_STEP * self.initial_radius * s.at.norm <= noise
        return unreadable or s.at.norm <= math.sqrt(problem.noise.eps) * size

    def _model_step(self, problem: Problem, s: State) -> tuple[ModelStep, tuple[Learned, ...]]:
        relative = s.at.norm / s.reference if s.reference else 1.0
        # Of differences of gradients half of the digits are right.
        accuracy = 10.0 * (problem.noise.eps if problem.hessp else math.sqrt(problem.noise.eps))
        least = max(LEAST_FACTOR, accuracy)
        factor = min(self.residual_factor, max(relative**self.residual_exponent, least))
        rounding = problem.noise.eps * math.sqrt(problem.geometry.dot(s.gradient, s.gradient))
        model = _Model(problem, s)
        step = truncated_cg(
            problem.geometry,
            s.x,
            model.along(s.at.G),
            model.product,
            s.radius,
            max(factor * s.at.norm, rounding),
            model.precondition,
            accuracy,
        )
        return step, model.learned


class _Model:
    """The Hessian at a point, what its products tell, and what precedes it.

    Where f depends on spans, cotangents are kept to the part that matters.  The preconditioner is
    the user's, or the metric as it was learned before.
    """

    def __init__(self, problem: Problem, s: State) -> None:
        self.geometry, self.x, self.learned = problem.geometry, s.x, s.learned
        self._hessian = hessian_of(problem, s.x, s.gradient)
        self._metric = metric_of(self.geometry, s.learned)
        bare = tuple(leaf._replace(metric=_bare(leaf.metric)) for leaf in s.learned)
        spans = any(leaf.metric.horizontal for leaf in bare)
        self._bare = metric_of(self.geometry, bare) if spans else None
        self.precondition: Callable[[Array], Array] | None = None
        self._given = problem.precond is not None
        if self._given:
            aux = problem.objective.aux(s.x)
            self.precondition = lambda R: self.along(problem.preconditioned(s.x, R, aux))
        elif any(_is_learned(leaf.metric) for leaf in s.learned):
            self.precondition = lambda R: self._lowered(R, self._metric)

    def product(self, W: Array) -> Array:
        HW = self.along(self._hessian(W))
        if not self._given:
            pair = product_pair(self.geometry, self.x, W, HW, self.learned)
            self.learned = LEARNING.observe(self.geometry, self.x, pair, self.learned)
        return HW

    def along(self, W: Array) -> Array:
        """W without rotations that f does not see."""
        return W if self._bare is None else self._lowered(W, self._bare)

    def _lowered(self, W: Array, metric: Any) -> Array:
        return self.geometry.lower_index(self.x, self.geometry.raise_index(self.x, W, metric))


def _bare(metric: Metric) -> Metric:
    """The canonical metric, without rotations where ``metric`` has none."""
    return CANONICAL._replace(horizontal=metric.horizontal)


def _is_learned(metric: Metric) -> bool:
    scaled = metric.scales is not None or metric.scale != CANONICAL.scale
    return metric.D is not None or metric.omega != CANONICAL.omega or scaled


def _evaluate(problem: Problem, x: Point) -> tuple[Gradient, Array]:
    """What is known at x, and the Euclidean gradient, which the curvature of the manifold needs."""
    geometry = problem.geometry
    f, gradient, _ = problem.objective.value_and_gradient(x)
    at = problem.known(f, geometry.gradient(x, gradient))
    # A copy: the user's function may write its next gradient into the same array.
    return at, geometry.combine(1.0, gradient, 0.0, gradient)


def _doubt(step: ModelStep, old: Gradient, new: Gradient) -> Witness | None:
    """How far f and its model disagree at the end of a step."""
    if not new.finite:
        return None
    return Witness(math.sqrt(step.squared_length), abs(new.f - old.f + step.decrease))


def _why(problem: Problem, s: State) -> Status:
    """Why every step was refused: f is noisy, or contradicts its gradient."""
    verdict = judge(s.doubts, problem.noise.level(s.at.f), problem.noise.plausible(s.at.f))
    noisy = verdict.kind in (Kind.NOISE, Kind.DROWNED)
    return Status.ROUNDING_LIMIT if noisy else Status.STEP_NOT_FOUND


def _halves_gradient(problem: Problem, s: State, at: Gradient) -> bool:
    """Whether a step that f refuses is a Newton step within what may be noise of f."""
    rise = at.f - s.at.f
    return at.norm < 0.5 * s.at.norm and rise <= problem.noise.plausible(s.at.f)


def hessian_of(problem: Problem, x: Array, gradient: Array) -> Callable[[Array], Array]:
    """W ↦ HW at x, from Hessian products where there are any, else from gradients."""
    geometry = problem.geometry

    def product(W: Array) -> Array:
        E = _by_differences(problem, x, gradient, W)
        return geometry.hessian(x, gradient, W, E)

    def exact(W: Array) -> Array:
        assert problem.hessp is not None
        E = problem.hessp(x, geometry.raise_index(x, W))
        return geometry.hessian(x, gradient, W, E)

    return product if problem.hessp is None else exact


def _by_differences(problem: Problem, x: Array, gradient: Array, W: Array) -> Array:
    """(∇f(X(h)) − ∇f(X))/h along the ray: points stay feasible, the error is O(√eps)."""
    geometry = problem.geometry
    ray = geometry.ray(x, W)
    size = max(1.0, math.sqrt(geometry.dot(x, x)))
    h = math.sqrt(problem.noise.eps) * size / math.sqrt(ray.squared_norm)
    _, there, _ = problem.objective.value_and_gradient(ray(h))
    return geometry.combine(1.0 / h, there, -1.0 / h, gradient)
