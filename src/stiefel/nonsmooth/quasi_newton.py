"""Proximal L-BFGS: quasi-Newton steps for f + h on XᴴX = I, one evaluation each.

    Z = argmin ⟨G, Z−X⟩ + ½⟨Z−X, B(Z−X)⟩ + h(Z)   over tangent Z−X,      X⁺ = R(Z)

B is the compact BFGS matrix of pairs s = X⁺ − X, y = ∇f(X⁺) − ∇f(X) − sΛ: the curvature is that of
the Lagrangian, with Λ the multiplier of today's proximal step, which contains the subgradient of h.
So the raw differences of gradients are kept, and y is formed anew at every step.

    B = σ(I + UKUᵀ),  U = [S, Y/σ],  K⁻¹ = −[SᵀS, L/σ; Lᵀ/σ, −D/σ],  L + D the lower part of SᵀY
    σ = 0.7‖y‖/‖s‖ of the newest pair; ‖y‖/‖s‖ is the geometric mean of the two values of Barzilai
    and Borwein

A step is accepted if F falls by a part of what the model says; otherwise B is doubled and the trial
becomes a pair.  The factor goes down again after steps that were accepted at once.  Every pair also
tells of the operator that ∇f may have (`learned_operator`).  Cost beside the evaluation: two
subproblems of one or two Newton steps, O(nk³ + mnk²).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from stiefel.solvers.noise import Watch
from stiefel.solvers.parameters import check_integer, check_open_interval
from stiefel.types import Array, Gradient, Status

from .composite import Composite, ProximalPoint, Value, unwarned
from .learned_operator import NO_OPERATOR, LearnedOperator
from .pattern import same
from .smooth_piece import piece_direction
from .subproblem import LowRankModel, ProximalStep, proximal_step

MOST_REJECTIONS = 40
REJECTIONS_IN_NOISE = 5
# Times the rounding of F, a decrease that it cannot hide: test_rounding_is_no_excuse and, for the
# other side, test_rounding_is_an_excuse_near_a_solution.
NO_EXCUSE = 1e4
# Of the pairs of f alone; with fewer, h'' must help: test_curved_pairs_of_f_are_enough and, for the
# other side, test_the_curvature_of_the_term_is_needed.
ENOUGH_CURVED = 0.75
# Of ‖y‖/‖s‖: nearly every step is accepted, so that longer ones pay: test_bold_steps_pay.
BOLD = 0.7
LOOSE = 0.1  # of the length of a step: its residual; test_subproblems_are_solved_loosely
GOOD = 0.5  # of the predicted decrease: the model may be trusted more


class State(NamedTuple):
    x: Array
    at: Gradient
    point: ProximalPoint
    S: Array  # steps, the newest last
    Y: Array  # raw differences of gradients
    sigma: float  # σ before there is a pair
    steepest: float  # the largest ‖ΔG‖/‖s‖ seen
    factor: float = 1.0  # of B
    gamma: float = 0.0  # 1/σ of the last step
    k: int = 0  # pairs held
    rejections: int = 0  # since the last accepted step
    operator: LearnedOperator = NO_OPERATOR  # that f may have
    steady: int = 0  # steps for which the zeros have held, if h bends
    restarted: bool = False
    watch: Watch = Watch()
    failure: Status | None = None


@dataclass(frozen=True)
class QuasiNewton:
    """Steps without learning's leaps; the parameters are those of `ProximalLBFGS`."""

    memory: int = 5
    sufficient_decrease: float = 1e-4
    caution: float = 1e-3
    learn: bool = True

    def __post_init__(self) -> None:
        check_integer(self, "memory", 1)
        check_open_interval(self, "sufficient_decrease", 0.0, 0.5)
        check_open_interval(self, "caution", 0.0, 1.0)

    @unwarned
    def init(self, problem: Composite, x: Array) -> State:
        at, sigma, s, y = first_point(problem, x)
        X, gradient = problem.book(at)
        S = np.zeros((0, len(at.x)))
        operator = LearnedOperator.unknown(problem.space) if self.learn else NO_OPERATOR
        state = State(X, gradient, at, S, S, sigma, sigma, 1.0, 1.0 / sigma, operator=operator)
        return self.remembered(state, s, y) if s.any() else state

    def step(self, problem: Composite, s: State) -> State:
        at = s.point
        sigma, memory = self._model(problem, s)
        t = 1.0 / (sigma * s.factor)
        step, predicted = self._solved(problem, at, t, memory)
        noise = 2.0 * problem.noise.level(at.magnitude)
        x = problem.retract(step.z, step.system)
        value = problem.evaluate(x)
        blind = not predicted > noise
        fell = at.total - value.total
        if value.finite and fell >= self.sufficient_decrease * predicted - noise:
            return self._accepted(problem, s, x, value, t, step.L, fell, predicted, blind)
        return self._rejected(problem, s, x, value, t, blind)

    def _solved(
        self, problem: Composite, at: ProximalPoint, t: float, memory: LowRankModel | None
    ) -> tuple[ProximalStep, float]:
        """The step and the decrease it predicts, without that of its part along XΛ."""
        step = proximal_step(problem.h, at.x, at.g, t, at.L, memory, LOOSE)
        if not step.solved and memory is not None:
            step = proximal_step(problem.h, at.x, at.g, t, at.L, None, LOOSE)
        slope = float(at.g.dot(step.v)) - float(step.L.dot(step.E))
        return step, at.h - problem.h.value(step.z) - slope

    def _accepted(
        self,
        problem: Composite,
        s: State,
        x: Array,
        value: Value,
        t: float,
        L: Array,
        fell: float,
        predicted: float,
        blind: bool,
    ) -> State:
        at = problem.measure(x, value, s.point.t, L)
        X, gradient = problem.book(at)
        factor = s.factor
        if s.rejections == 0 and fell > GOOD * predicted:
            factor = max(1.0, 0.25 * factor)
        new = s._replace(
            x=X,
            at=gradient,
            point=at,
            factor=factor,
            gamma=t,
            rejections=0,
            steady=self._steps_with_same_zeros(problem, s, at),
            restarted=False,
            watch=Watch(blind=blind),
        )
        return self.remembered(new, x - s.point.x, value.g - s.point.g)

    def _steps_with_same_zeros(self, problem: Composite, s: State, at: ProximalPoint) -> int:
        h = problem.h
        if not h.bends:
            return 0
        now = h.support(at.x)
        return s.steady + 1 if same(h.support(s.point.x), now) and same(now, h.support(at.z)) else 0

    def along_piece(self, problem: Composite, s: State) -> State | None:
        """The state after a step of `smooth_piece`; None if there is no such direction."""
        at = s.point
        Y = s.Y - problem.space.normal(s.S, at.L)
        curved = np.einsum("ij,ij->i", s.S, Y) > self.caution * _lengths(s.S) * _lengths(Y)
        if curved.mean() > ENOUGH_CURVED:
            return None
        d, slope = piece_direction(problem, at, s.S, s.Y, self.caution)
        if not slope < 0:
            return None
        t = 1.0 / s.factor
        x = problem.retract(problem.h.stop_at_kinks(at.x, at.x + t * d))
        value, predicted = problem.evaluate(x), -t * slope
        noise = problem.noise.level(at.magnitude)
        blind, fell = not predicted > noise, at.total - value.total
        if value.finite and fell >= self.sufficient_decrease * predicted - noise:
            return self._accepted(problem, s, x, value, s.gamma, at.L, fell, predicted, blind)
        rejected = s._replace(steady=s.steady if s.rejections < 2 else 0)
        return self._rejected(problem, rejected, x, value, s.gamma, blind)

    def _rejected(
        self, problem: Composite, s: State, x: Array, value: Value, t: float, blind: bool
    ) -> State:
        rejections = s.rejections + 1
        blind = blind and _rounding_may_hide(problem, s.point, value)
        failure = None
        if rejections >= MOST_REJECTIONS or (blind and rejections >= REJECTIONS_IN_NOISE):
            failure = Status.ROUNDING_LIMIT if blind else Status.STEP_NOT_FOUND
        new = s._replace(factor=2.0 * s.factor, gamma=t, rejections=rejections, failure=failure)
        if value.finite and not blind:
            new = self.remembered(new, x - s.point.x, value.g - s.point.g)
        elif not value.finite:
            new = new._replace(factor=8.0 * s.factor)
        return new._replace(restarted=True, watch=Watch(blind=blind))

    def remembered(self, s: State, step: Array, change: Array) -> State:
        """The state with a further pair."""
        if not step.any():
            return s
        old = max(0, len(s.S) + 1 - self.memory)
        S = np.concatenate((s.S[old:], step[None]))
        Y = np.concatenate((s.Y[old:], change[None]))
        steepest = max(s.steepest, math.sqrt(change.dot(change) / step.dot(step)))
        operator = s.operator.after(step, change)
        return s._replace(S=S, Y=Y, k=len(S), steepest=steepest, operator=operator)

    def _model(self, problem: Composite, s: State) -> tuple[float, LowRankModel | None]:
        """σ and the memory, with the curvature of today's Lagrangian."""
        fast, L = problem.space.compiled, s.point.L
        if fast is None or not len(s.S):
            return model_of(s.S, s.Y - problem.space.normal(s.S, L), s.sigma, self.caution)
        sigma, U, K_inverse = fast.model(s.point.x, s.S, s.Y, L, BOLD, self.caution, s.sigma)
        return sigma, LowRankModel(U, K_inverse) if len(U) else None


def _rounding_may_hide(problem: Composite, at: ProximalPoint, value: Value) -> bool:
    """Whether rounding is an excuse for a step that F refused: test_rounding_is_no_excuse.

    Not where F jumps or is no number, and not far from a solution: the plain step promises χ²t.
    """
    near = at.chi**2 * at.t <= NO_EXCUSE * problem.noise.level(at.magnitude)
    rose = value.total - at.total
    return near and value.finite and rose <= problem.noise.plausible(at.magnitude)


def _lengths(V: Array) -> Array:
    return np.sqrt(np.einsum("ij,ij->i", V, V))


def first_point(
    problem: Composite, X: Array, t: float | None = None
) -> tuple[ProximalPoint, float, Array, Array]:
    """The first point, the first σ, and the pair that measured it; two evaluations, one with t."""
    x, value = problem.space.flat(X), problem.evaluate_at(X)
    if not value.finite:
        zero = np.zeros(problem.space.duals.size)
        return (
            ProximalPoint(x, value.f, value.h, value.g, 1.0, x, zero, math.nan),
            1.0,
            0 * x,
            0 * x,
        )
    sigma, s, y = problem.curvature(x, value) if t is None else (1.0 / t, 0 * x, 0 * x)
    L = problem.first_multiplier(x, value.g)
    return problem.measure(x, value, 1.0 / sigma, L), sigma, s, y


def model_of(S: Array, Y: Array, sigma: float, caution: float) -> tuple[float, LowRankModel | None]:
    """σ and the compact BFGS matrix of pairs, oldest first; those without curvature left out."""
    m = len(S)
    if not m:
        return sigma, None
    U = np.concatenate((S, Y))
    G = U[:m].dot(U.T)  # SᵀS and SᵀY
    ss, yy = G.diagonal(), np.einsum("ij,ij->i", Y, Y)
    newest = BOLD * math.sqrt(yy[-1] / ss[-1])
    sigma = newest if 1e-8 * sigma < newest < math.inf else sigma
    keep = G.diagonal(m) > caution * np.sqrt(yy * ss)
    scale = 1.0 / np.sqrt(ss)  # pairs may be scaled: unit steps, and Y/σ
    scale = np.concatenate((scale, scale / sigma))
    U *= scale[:, None]
    G *= scale
    G *= scale[:m, None]
    if not keep.all():
        if not keep.any():
            return sigma, None
        both = np.concatenate((keep, keep))
        m, U, G = int(keep.sum()), U[both], G[keep][:, both]
    K_inverse = np.empty((2 * m, 2 * m))
    np.multiply(G, _signs(m), out=K_inverse[:m])
    K_inverse[m:, :m] = K_inverse[:m, m:].T
    K_inverse[m:, m:] = 0.0
    K_inverse.reshape(-1)[2 * m * m + m :: 2 * m + 1] = G.diagonal(m)
    return sigma, LowRankModel(U, K_inverse)


@cache
def _signs(m: int) -> Array:
    """Of the first rows of K⁻¹: −1, and beneath the diagonal alone in the second half."""
    return np.hstack([-np.ones((m, m)), -np.tril(np.ones((m, m)), -1)])
