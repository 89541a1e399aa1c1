"""Proximal L-BFGS that learns: quasi-Newton steps, and leaps where f turns out to be quadratic.

The steps are those of `quasi_newton`, one evaluation each.  Every step also tells of the operator A
that ∇f may have (`learned_operator`).  When A foretells a step well, f̂ + h is minimised by
`proximal_newton` without evaluations, as far as the error of f̂ allows, and f is evaluated there:
one leap.  Other functions are told by an asymmetry within two steps, or by a leap that F refuses,
and nothing more is spent on them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from stiefel.solvers.noise import Watch
from stiefel.solvers.parameters import check_integer, check_open_interval
from stiefel.types import Array, Gradient, Status

from .composite import Composite
from .learned_operator import LearnedOperator, surrogate
from .proximal_newton import ProximalNewton
from .proximal_newton import State as NewtonState
from .quasi_newton import QuasiNewton
from .quasi_newton import State as Inner

TRUSTED = 0.01  # the error of what the operator foretells, at which f̂ is minimised
LONGEST = 100  # steps on f̂ in one leap


class State(NamedTuple):
    x: Array
    at: Gradient
    inner: Inner  # of the quasi-Newton steps, at the same point
    operator: LearnedOperator
    gamma: float = 0.0
    k: int = 0  # pairs held
    restarted: bool = False
    watch: Watch = Watch()
    failure: Status | None = None


@dataclass(frozen=True)
class ProximalLBFGS:
    """Proximal L-BFGS for f + h.

    Parameters
    ----------
    memory : int
        The number of pairs kept.
    sufficient_decrease : float
        The part of the predicted decrease that a step must bring.
    caution : float
        A pair is used if ⟨s, y⟩ > caution ‖s‖‖y‖.
    learn : bool
        Whether the operator of a quadratic f is learned.

    Examples
    --------
    >>> import numpy as np, stiefel
    >>> B = np.random.default_rng(0).standard_normal((20, 30))
    >>> fun = lambda X: (-np.sum((B @ X) ** 2), -2 * B.T @ (B @ X))
    >>> X0 = stiefel.random_point(30, 2, seed=0)
    >>> result = stiefel.minimize(fun, X0, nonsmooth=stiefel.L1(2.0), method="proximal-lbfgs")
    >>> bool(result.success), bool((result.x == 0).any())
    (True, True)
    """

    memory: int = 5
    sufficient_decrease: float = 1e-4
    caution: float = 1e-3
    learn: bool = True

    def __post_init__(self) -> None:
        check_integer(self, "memory", 1)
        check_open_interval(self, "sufficient_decrease", 0.0, 0.5)
        check_open_interval(self, "caution", 0.0, 1.0)

    @cached_property
    def _quasi(self) -> QuasiNewton:
        return QuasiNewton(self.memory, self.sufficient_decrease, self.caution)

    @cached_property
    def _newton(self) -> ProximalNewton:
        return ProximalNewton(memory=self.memory)

    def init(self, problem: Composite, x: Array) -> State:
        inner = self._quasi.init(problem, x)
        operator = LearnedOperator.unknown(problem.space)
        if not self.learn:
            operator = operator._replace(possible=False)
        return _wrapped(inner, _observed(operator, inner, problem))

    def step(self, problem: Composite, s: State) -> State:
        if s.operator.error <= TRUSTED:
            return self._leap(problem, s)
        inner = self._quasi.step(problem, s.inner)
        operator = s.operator if inner.S is s.inner.S else _observed(s.operator, inner, problem)
        return _wrapped(inner, operator)

    def _leap(self, problem: Composite, s: State) -> State:
        """To where f̂ + h is smallest, if F is smaller there."""
        at, there = s.inner.point, self._foretold(problem, s)
        x = there.point.x
        value = problem.evaluate(x)
        if not (value.finite and np.any(x != at.x)):
            return _forgotten(s)
        operator = s.operator.after(x - at.x, value.g - at.g, problem.space)
        new = problem.measure(x, value, at.t, there.point.L)
        foretold = at.total - there.point.total
        blind = not foretold > 2.0 * problem.noise.level(at.total)
        enough = at.total - value.total >= self.sufficient_decrease * foretold
        if not (new.chi < at.chi if blind else enough):
            return _forgotten(s)
        X, gradient = problem.book(new)
        inner = self._quasi.remembered(there, x - at.x, value.g - at.g)._replace(
            x=X, at=gradient, point=new, factor=1.0, rejections=0, watch=Watch(blind=blind)
        )
        return _wrapped(inner, operator)

    def _foretold(self, problem: Composite, s: State) -> Inner:
        """The state of the quasi-Newton steps where f̂ + h is nearly stationary."""
        at = s.inner.point
        model = surrogate(problem, at, s.operator)
        rounding = 1e3 * problem.noise.eps * math.sqrt(float(at.g @ at.g))
        target = max(s.operator.error * at.chi, rounding)
        state = NewtonState(s.x, s.at, s.inner, self._newton.patience)
        for _ in range(LONGEST):
            if state.at.norm <= target or (state.restarted and state.watch.blind):
                break
            state = self._newton.step(model, state)
        return state.inner


def _observed(operator: LearnedOperator, inner: Inner, problem: Composite) -> LearnedOperator:
    if not len(inner.S):
        return operator
    return operator.after(inner.S[-1], inner.Y[-1], problem.space)


def _forgotten(s: State) -> State:
    """After a leap that F refused: f is not what it seemed."""
    nothing = s.operator._replace(error=math.inf, possible=False)
    return _wrapped(s.inner._replace(restarted=True), nothing)


def _wrapped(inner: Inner, operator: LearnedOperator) -> State:
    return State(
        inner.x,
        inner.at,
        inner,
        operator,
        inner.gamma,
        inner.k,
        inner.restarted,
        inner.watch,
        inner.failure,
    )
