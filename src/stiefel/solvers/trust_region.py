"""Newton's method in a trust region, each step by truncated conjugate gradients.

    minimise m(W) = f + ⟨∇f, W⟩ + ½⟨W, HW⟩  over cotangents with ‖W‖ ≤ Δ   (Steihaug and Toint)
    X_{t+1} = R(X_t, φ(W)) if f fell by at least ρ' of what m predicts, else X_t
    Δ ← Δ/4 if the model was poor, 2Δ if it was good and W reached the boundary.

H is the Riemannian Hessian (`stiefel.geometry.hessian`), whose Euclidean part comes from
``hessp``, from autodiff, or from differences of gradients along the ray of W.  The inner iteration
ends when its residual falls below min(κ, (‖∇f‖/‖∇f₀‖)^θ) ‖∇f‖, without units; four digits a step
are enough.  Beneath the noise of f the ratio says nothing: there a step must make the gradient
smaller.

Steps that f refuses testify (`evidence`): f − m falls with the cube of the step, with its square if
the Hessian is wrong, with the step itself if the gradient is, and not at all if f is noisy.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from stiefel.types import Array, Status

from .evidence import LONGEST, Gap, contradicts, drowned, measured_noise
from .line_search import MARGIN
from .parameters import check_open_interval, check_positive
from .problem import Local, Problem
from .steihaug import Step, truncated_cg

POOR, GOOD = 0.25, 0.75  # of the predicted decrease
SHORTEST = 1e-3  # of a step that rounding allows: a trust region this small has failed
BLIND_REJECTIONS = 3
MOST_DOUBTS = 12
# A residual reduced further than this in one step is not worth its products, and beneath the
# rounding of the gradient conjugate gradients find negative curvature that is not there.
LEAST_FACTOR = 1e-4


class State(NamedTuple):
    x: Array
    local: Local
    gradient: Array  # Euclidean, which the curvature of the manifold needs
    radius: float  # Δ
    reference: float  # ‖∇f₀‖
    gamma: float = 0.0  # length of the last step
    k: int = 0  # steps accepted since the last rejection
    rejections: int = 0  # since the last accepted step
    restarted: bool = False  # the last step was rejected
    blind: bool = False
    failure: Status | None = None
    doubts: tuple[Gap, ...] = ()  # of visible steps that f refused since it allowed one
    noise: float = 0.0  # the noise of f beyond plain rounding, as measured so far


@dataclass(frozen=True)
class TrustRegion:
    """Riemannian trust-region Newton method.

    Parameters
    ----------
    initial_radius : Δ₀, a length in the metric g*.
    least_ratio : ρ', the part of the predicted decrease that a step must bring.
    residual_factor, residual_exponent : κ and θ of the inner stopping test.
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

    def init(self, problem: Problem, x: Array) -> State:
        local, gradient = _evaluate(problem, x)
        return State(x, local, gradient, self.initial_radius, local.norm)

    def step(self, problem: Problem, s: State) -> State:
        if not s.local.norm > 0:
            return s._replace(failure=Status.ROUNDING_LIMIT)
        step = self._model_step(problem, s)
        x = problem.geometry.ray(s.x, step.W)(1.0)
        local, gradient = _evaluate(problem, x)
        gap = _gap(step, s.local, local)
        s = s._replace(noise=max(s.noise, self._measured(problem, s, gap)))
        # The noise of f added to both sides: ρ tends to 1 where neither decrease can be seen.
        noise = MARGIN * max(s.noise, problem.noise(s.local.f))
        blind = step.decrease <= noise
        ratio = (
            (s.local.f - local.f + noise) / (step.decrease + noise) if local.finite else -math.inf
        )
        if blind and local.norm >= s.local.norm:
            ratio = -math.inf
        if not ratio > self.least_ratio and _halves_gradient(problem, s, local):
            ratio, blind = 0.5, True
        radius = self._radius(s.radius, step, ratio)
        unseen = s.doubts and blind and step.on_boundary and not s.noise
        if unseen and not self._is_limited(problem, s, noise):
            # Refused until nothing can be seen: a gradient that got smaller there proves nothing.
            failure = Status.ROUNDING_LIMIT if drowned(s.doubts) else Status.STEP_NOT_FOUND
            return s._replace(failure=failure, restarted=True, blind=True)
        if not ratio > self.least_ratio:
            return self._reject(problem, s, radius, blind, gap)
        doubts = s.doubts if blind else ()
        length = math.sqrt(step.squared_length)
        new = State(x, local, gradient, radius, s.reference, length, s.k + 1, blind=blind)
        return new._replace(doubts=doubts, noise=s.noise)

    def _measured(self, problem: Problem, s: State, gap: Gap | None) -> float:
        if gap is None or gap.size <= problem.noise(s.local.f):
            return 0.0
        return measured_noise(gap, s.doubts, problem.plausible_noise(s.local.f))

    def _radius(self, radius: float, step: Step, ratio: float) -> float:
        if not ratio >= POOR:
            return 0.25 * min(radius, math.sqrt(step.squared_length))
        if ratio > GOOD and step.on_boundary:
            return 2.0 * radius
        return radius

    def _reject(
        self, problem: Problem, s: State, radius: float, blind: bool, gap: Gap | None
    ) -> State:
        rejections, failure, doubts = s.rejections + 1, None, s.doubts
        noise = max(s.noise, problem.noise(s.local.f))
        if gap is not None and gap.size > noise and gap.distance <= LONGEST:
            doubts = (*doubts, gap)[-MOST_DOUBTS:]
        tiny = radius * s.local.norm < SHORTEST * noise
        if contradicts(list(doubts), noise):
            failure = Status.STEP_NOT_FOUND
        elif tiny or (blind and rejections >= BLIND_REJECTIONS):
            limit = drowned(doubts) or self._is_limited(problem, s, noise)
            failure = Status.ROUNDING_LIMIT if limit else Status.STEP_NOT_FOUND
        kept = s._replace(radius=radius, k=0, rejections=rejections, restarted=True)
        return kept._replace(blind=blind, doubts=doubts, failure=failure)

    def _is_limited(self, problem: Problem, s: State, noise: float) -> bool:
        """Whether rounding explains that no step was found: of f, or of a gradient this small."""
        size = max(s.reference, math.sqrt(problem.geometry.dot(s.gradient, s.gradient)))
        unreadable = SHORTEST * self.initial_radius * s.local.norm <= noise
        return unreadable or s.local.norm <= math.sqrt(problem.eps) * size

    def _model_step(self, problem: Problem, s: State) -> Step:
        relative = s.local.norm / s.reference if s.reference else 1.0
        # Of differences of gradients half of the digits are right.
        accuracy = 10.0 * (problem.eps if problem.hessp else math.sqrt(problem.eps))
        least = max(LEAST_FACTOR, accuracy)
        factor = min(self.residual_factor, max(relative**self.residual_exponent, least))
        rounding = problem.eps * math.sqrt(problem.geometry.dot(s.gradient, s.gradient))
        precondition = None
        if problem.precond is not None:
            aux = problem.objective.aux(s.x)
            precondition = lambda R: problem.preconditioned(s.x, R, aux)  # noqa: E731
        return truncated_cg(
            problem.geometry,
            s.x,
            s.local.G,
            hessian_of(problem, s.x, s.gradient),
            s.radius,
            max(factor * s.local.norm, rounding),
            precondition,
            accuracy,
        )


def _evaluate(problem: Problem, x: Array) -> tuple[Local, Array]:
    """f near x, and the Euclidean gradient that `Local` drops."""
    geometry = problem.geometry
    f, gradient, aux = problem.objective.value_and_gradient(x)
    local = problem.assemble(x, f, geometry.project(x, gradient), aux)
    # A copy: the user's function may write its next gradient into the same array.
    return local, geometry.combine(1.0, gradient, 0.0, gradient)


def _gap(step: Step, old: Local, new: Local) -> Gap | None:
    """How far f and its model disagree at the end of a step."""
    if not new.finite:
        return None
    return Gap(math.sqrt(step.squared_length), abs(new.f - old.f + step.decrease))


def _halves_gradient(problem: Problem, s: State, local: Local) -> bool:
    """Whether a step that f refuses is a Newton step within what may be noise of f."""
    rise = local.f - s.local.f
    return local.norm < 0.5 * s.local.norm and rise <= problem.plausible_noise(s.local.f)


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
    h = math.sqrt(problem.eps) * size / math.sqrt(ray.squared_norm)
    _, there, _ = problem.objective.value_and_gradient(ray(h))
    return geometry.combine(1.0 / h, there, -1.0 / h, gradient)
