"""To the minimum of f̂ + h, the model with the learned operator, at the price of one evaluation.

When the operator foretells a step of f well, `proximal_newton` minimises f̂ + h as far as the error
of f̂ allows, and f is evaluated there.  If F refuses the point, it lies where the operator was not
known, and is learned from; or f is not what it seemed, and the operator is forgotten.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stiefel.solvers.noise import Watch

from .composite import Composite
from .learned_operator import NO_OPERATOR, surrogate
from .quasi_newton import QuasiNewton, State

TRUSTED_ERROR = 0.01  # of what the operator foretells, at which f̂ is minimised
STEPS_OF_A_LEAP = 100  # on f̂, at most …
IDLE_STEPS = 10  # … and so many without a smaller χ: a term that contradicts itself takes all


def is_ready(s: State) -> bool:
    """Whether a leap is the next step."""
    return s.operator.error <= TRUSTED_ERROR


def leap(problem: Composite, s: State, quasi: QuasiNewton, newton: Any) -> State:
    """The state where f̂ + h is smallest, if F is smaller there."""
    at, there = s.point, _foretold(problem, s, newton)
    x = there.point.x
    value = problem.evaluate(x)
    if not (value.finite and np.any(x != at.x)):
        return s._replace(operator=NO_OPERATOR, restarted=True)
    new = problem.measure(x, value, at.t, there.point.L)
    foretold = at.total - there.point.total
    blind = not foretold > 2.0 * problem.noise.level(at.magnitude)
    enough = at.total - value.total >= quasi.sufficient_decrease * foretold
    if not (new.chi < at.chi if blind else enough):
        return _refused(quasi.remembered(s, x - at.x, value.g - at.g))
    X, gradient = problem.book(new)
    arrived = there._replace(x=X, at=gradient, point=new, factor=1.0, operator=s.operator)
    arrived = quasi.remembered(arrived, x - at.x, value.g - at.g)
    return arrived._replace(rejections=0, restarted=False, failure=None, watch=Watch(blind=blind))


def _refused(s: State) -> State:
    """The state that has learned from a leap which F refused.

    It led to where the operator was not known, which shows by its error; if that was small, f is
    not quadratic.
    """
    return s._replace(operator=NO_OPERATOR if is_ready(s) else s.operator, restarted=True)


def _foretold(problem: Composite, s: State, newton: Any) -> State:
    """The state of the quasi-Newton steps where f̂ + h is nearly stationary."""
    at = s.point
    rounding = 1e3 * problem.noise.eps * math.sqrt(float(at.g @ at.g))
    model = surrogate(problem, at, s.operator, max(s.operator.error * at.chi, rounding))
    # On f̂ products cost little: Newton's steps at once.
    state = newton.begun(s._replace(operator=NO_OPERATOR))._replace(left=0)
    least, idle = math.inf, 0
    for _ in range(STEPS_OF_A_LEAP):
        least, idle = min(least, state.at.norm), 0 if state.at.norm < least else idle + 1
        blind = state.restarted and state.watch.blind
        if state.at.norm <= model.target or blind or idle == IDLE_STEPS:
            break
        state = newton.step(model, state)
    return state.inner  # type: ignore[no-any-return]
