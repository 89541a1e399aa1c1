"""Proximal L-BFGS: quasi-Newton steps for f + h on XᴴX = I, one evaluation each.

    Z = argmin ⟨G, Z−X⟩ + ½⟨Z−X, B(Z−X)⟩ + h(Z)   over tangent Z−X,      X⁺ = R(Z)

B is the compact BFGS matrix of pairs s = X⁺ − X, y = ∇f(X⁺) − ∇f(X) − sΛ: the curvature is that of
the Lagrangian, with Λ the multiplier of today's proximal step, which contains the subgradient of h.
So the raw differences of gradients are kept, and y is formed anew at every step.

    B = σ(I + UKUᵀ),  U = [S, Y/σ],  K⁻¹ = −[SᵀS, L/σ; Lᵀ/σ, −D/σ],  L + D the lower part of SᵀY
    σ = ‖y‖/‖s‖ of the newest pair, the geometric mean of the two values of Barzilai and Borwein

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

from .composite import Composite, ProximalPoint, Value
from .learned_operator import NO_OPERATOR, LearnedOperator
from .pattern import same
from .smooth_piece import piece_direction
from .subproblem import LowRankModel, ProximalStep, proximal_step

MOST_REJECTIONS = 40
REJECTIONS_IN_NOISE = 5
# Of the pairs of f alone; with fewer, h'' must help: test_curved_pairs_of_f_are_enough, and with 0
# test_every_law of rows.
ENOUGH_CURVED = 0.5
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
        noise = 2.0 * problem.noise.level(at.total)
        x = problem.retract(step.z, step.system)
        value = problem.evaluate(x)
        blind = not predicted > noise
        fell = at.total - value.total
        if value.finite and fell >= self.sufficient_decrease * predicted - noise:
            return self._accepted(problem, s, x, value, t, step.L, fell, predicted, blind)
        return self._rejected(s, x, value, step, t, blind)

    def _solved(
        self, problem: Composite, at: ProximalPoint, t: float, memory: LowRankModel | None
    ) -> tuple[ProximalStep, float]:
        """The step and the decrease it predicts, which its residual must not hide."""
        h = problem.h

        def predicted(z: Array, v: Array) -> float:
            return at.h - h.value(z) - float(at.g @ v)

        step = proximal_step(h, at.x, at.g, t, at.L, memory, predicted=predicted)
        if not step.solved and memory is not None:
            step = proximal_step(h, at.x, at.g, t, at.L, predicted=predicted)
        return step, predicted(step.z, step.v)

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
        new = s._replace(x=X, at=gradient, point=at, factor=factor, gamma=t, rejections=0)
        new = new._replace(steady=self._steps_with_same_zeros(problem, s, at))
        new = self.remembered(new, x - s.point.x, value.g - s.point.g)
        return new._replace(restarted=False, watch=Watch(blind=blind))

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
        noise = problem.noise.level(at.total)
        blind, fell = not predicted > noise, at.total - value.total
        if value.finite and fell >= self.sufficient_decrease * predicted - noise:
            return self._accepted(problem, s, x, value, s.gamma, at.L, fell, predicted, blind)
        rejected = s._replace(steady=s.steady if s.rejections < 2 else 0)
        step = ProximalStep(x, x - at.x, at.L, 0.0, True)
        return self._rejected(rejected, x, value, step, s.gamma, blind)

    def _rejected(
        self, s: State, x: Array, value: Value, step: ProximalStep, t: float, blind: bool
    ) -> State:
        rejections = s.rejections + 1
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
        S = np.vstack([s.S, step])[-self.memory :]
        Y = np.vstack([s.Y, change])[-self.memory :]
        steepest = max(s.steepest, math.sqrt(float(change @ change) / float(step @ step)))
        operator = s.operator.after(step, change)
        return s._replace(S=S, Y=Y, k=len(S), steepest=steepest, operator=operator)

    def _model(self, problem: Composite, s: State) -> tuple[float, LowRankModel | None]:
        """σ and the memory, with the curvature of today's Lagrangian."""
        return model_of(s.S, s.Y - problem.space.normal(s.S, s.point.L), s.sigma, self.caution)


def _lengths(V: Array) -> Array:
    return np.sqrt(np.einsum("ij,ij->i", V, V))


def first_point(
    problem: Composite, X: Array, t: float | None = None
) -> tuple[ProximalPoint, float, Array, Array]:
    """The first point, the first σ, and the pair that measured it; two evaluations, one with t."""
    x, value = problem.space.flat(X), problem.evaluate_at(X)
    zero = np.zeros(problem.space.duals.size)
    if not value.finite:
        return (
            ProximalPoint(x, value.f, value.h, value.g, 1.0, x, zero, math.nan),
            1.0,
            0 * x,
            0 * x,
        )
    sigma, s, y = problem.curvature(x, value) if t is None else (1.0 / t, 0 * x, 0 * x)
    return problem.measure(x, value, 1.0 / sigma, zero), sigma, s, y


def model_of(S: Array, Y: Array, sigma: float, caution: float) -> tuple[float, LowRankModel | None]:
    """σ and the compact BFGS matrix of pairs, oldest first; those without curvature left out."""
    if not len(S):
        return sigma, None
    SS, SY = S @ S.T, S @ Y.T
    ss, sy, yy = SS.diagonal(), SY.diagonal(), np.einsum("ij,ij->i", Y, Y)
    newest = math.sqrt(yy[-1] / ss[-1])
    sigma = newest if 1e-8 * sigma < newest < math.inf else sigma
    keep = sy > caution * np.sqrt(ss * yy)
    if not keep.all():
        if not keep.any():
            return sigma, None
        S, Y, ss = S[keep], Y[keep], ss[keep]
        SS, SY = SS[keep][:, keep], SY[keep][:, keep]
    scale = 1.0 / np.sqrt(ss)  # pairs may be scaled: unit steps
    scales = scale[:, None] * scale
    SY = SY * (scales / sigma)
    m = len(S)
    U = np.empty((2 * m, S.shape[1]))
    np.multiply(S, scale[:, None], out=U[:m])
    np.multiply(Y, (scale / sigma)[:, None], out=U[m:])
    K_inverse = np.zeros((2 * m, 2 * m))
    np.multiply(SS, -scales, out=K_inverse[:m, :m])
    np.multiply(SY, -_beneath(m), out=K_inverse[:m, m:])
    K_inverse[m:, :m] = K_inverse[:m, m:].T
    K_inverse[m:, m:].flat[:: m + 1] = SY.diagonal()
    return sigma, LowRankModel(U, K_inverse)


@cache
def _beneath(m: int) -> Array:
    """Ones beneath the diagonal."""
    return np.tril(np.ones((m, m)), -1)
