"""Proximal Newton: the proximal step finds the zeros, Newton's method the numbers.

    1. Z from the proximal step; S its support; X ← Z brought back onto M_S, unless X has S already
    2. on M_S, the orthonormal matrices with these zeros, f + h is smooth:
       ∇ = P(∇f + h'),   H = P(∇²f[W] + h''[W] − WΛ),   Λ the multiplier of M_S at X
    3. D from H D = −∇ by conjugate gradients to min(0.1, √(t‖∇‖))‖∇‖ within a trust region
    4. X⁺ = X + sD, with zeros where a kink was passed, brought back; s halved until F falls.

Near a solution the zeros stand and the method is of order 3/2.  Far from it the steps are those of
`quasi_newton`: the first twenty, or until the zeros have held for three steps; and again when
Newton's step is refused.  If f turns out to be quadratic by them, there is a `leap`.  Beneath the
rounding of F a step is accepted if χ falls.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from stiefel.solvers.noise import Watch
from stiefel.solvers.parameters import check_integer
from stiefel.types import Array, Gradient, Status

from .composite import Composite, ProximalPoint, unwarned
from .leap import is_ready, leap
from .normal_system import NormalSystem
from .pattern import Tangents, same
from .quasi_newton import QuasiNewton
from .quasi_newton import State as Inner
from .subproblem import proximal_step

NEXT_REACH = 1.5  # times the length of a step that was accepted whole: test_newton_spends_little
MOST_PRODUCTS = 200  # of one Newton step
HALVINGS = 5
STEADY_STEPS = 3  # steps for which the zeros have held
SLOPE = 1e-4


class State(NamedTuple):
    x: Array
    at: Gradient
    inner: Inner  # of the quasi-Newton steps, at the same point
    left: int  # quasi-Newton steps to take before Newton's
    steady: int = 0  # steps for which the zeros have held
    gamma: float = 0.0
    k: int = 0  # Newton steps since the last other one
    reach: float = math.inf  # of the next Newton step: what was accepted last, enlarged
    restarted: bool = False
    watch: Watch = Watch()
    failure: Status | None = None


@dataclass(frozen=True)
class ProximalNewton:
    """Proximal Newton's method for f + h, given products with the Hessian of f.

    Parameters
    ----------
    memory : int
        The pairs of the quasi-Newton steps.
    patience : int
        The quasi-Newton steps before the first Newton step, at most.
    learn : bool
        Whether the operator of a quadratic f is learned.

    Examples
    --------
    >>> import numpy as np, stiefel
    >>> B = np.random.default_rng(0).standard_normal((20, 30))
    >>> fun = lambda X: (-np.sum((B @ X) ** 2), -2 * B.T @ (B @ X))
    >>> hessp = lambda X, V: -2 * B.T @ (B @ V)
    >>> X0 = stiefel.random_point(30, 2, seed=0)
    >>> result = stiefel.minimize(
    ...     fun, X0, nonsmooth=stiefel.L1(2.0), hessp=hessp, method="proximal-newton"
    ... )
    >>> bool(result.success), bool((result.x == 0).any())
    (True, True)
    """

    memory: int = 5
    patience: int = 20
    learn: bool = True

    def __post_init__(self) -> None:
        check_integer(self, "memory", 1)
        check_integer(self, "patience", 0)

    @cached_property
    def _quasi(self) -> QuasiNewton:
        return QuasiNewton(memory=self.memory, learn=self.learn)

    @unwarned
    def init(self, problem: Composite, x: Array) -> State:
        inner = self._quasi.init(problem, x)
        return self.begun(inner)

    def begun(self, inner: Inner) -> State:
        """The state from which the quasi-Newton steps of ``inner`` go on."""
        return State(inner.x, inner.at, inner, self.patience, gamma=inner.gamma)

    @unwarned
    def step(self, problem: Composite, s: State) -> State:
        if is_ready(s.inner):
            return self._went_on(problem, s, leap(problem, s.inner, self._quasi, self), s.left)
        if s.left > 0 and s.steady < STEADY_STEPS:
            return self._quasi_step(problem, s, s.left - 1)
        base = self._identified(problem, s.inner)
        if base is None:
            return self._quasi_step(problem, s, STEADY_STEPS)
        new, reach = self._newton(problem, base, s.inner.point, s.reach)
        if new is None:
            return self._quasi_step(problem, s._replace(reach=reach), STEADY_STEPS)
        inner = _transferred(problem, self._quasi, s.inner, new)
        blind = s.inner.point.total - new.total <= 2.0 * problem.noise.level(new.magnitude)
        held = s.steady + 1 if _holds(problem, new) else 0
        return State(
            inner.x,
            inner.at,
            inner,
            s.left,
            max(held, STEADY_STEPS),
            1.0,
            s.k + 1,
            reach,
            watch=Watch(blind=blind),
        )

    def _quasi_step(self, problem: Composite, s: State, left: int) -> State:
        return self._went_on(problem, s, self._quasi.step(problem, s.inner), left)

    def _went_on(self, problem: Composite, s: State, inner: Inner, left: int) -> State:
        """The state after a step that was not Newton's."""
        old, new = s.inner.point, inner.point
        held = not inner.restarted and same(problem.h.support(old.x), problem.h.support(new.x))
        held = held and _holds(problem, new)
        return State(
            inner.x,
            inner.at,
            inner,
            left,
            s.steady + 1 if held else 0,
            inner.gamma,
            0,
            s.reach,
            inner.restarted,
            watch=inner.watch,
            failure=inner.failure,
        )

    def _identified(self, problem: Composite, inner: Inner) -> ProximalPoint | None:
        """The point with the zeros of its proximal step; None if F refuses it.

        The step is as long as the steepest pair allows: one that F refuses costs an evaluation.
        """
        at = inner.point
        z, system = at.z, None
        if inner.steepest * at.t > 1.0:
            step = proximal_step(problem.h, at.x, at.g, 1.0 / inner.steepest, at.L)
            z, system = step.z, step.system
        if same(problem.h.support(at.x), problem.h.support(z)):
            return at
        x = problem.retract(z, system)
        value = problem.evaluate(x)
        if not (value.finite and value.total <= at.total + 2.0 * problem.noise.level(at.magnitude)):
            return None
        return at._replace(x=x, f=value.f, h=value.h, g=value.g)

    def _newton(
        self, problem: Composite, base: ProximalPoint, before: ProximalPoint, reach: float
    ) -> tuple[ProximalPoint | None, float]:
        """The point after Newton's step from ``base``, and how far the next may reach.

        ``before`` is where the step began.
        """
        d, slope, system = newton_direction(problem, base, reach)
        if not slope < 0:  # of products that are not finite, for one
            return None, reach
        noise = 2.0 * problem.noise.level(base.magnitude)
        length, s = math.sqrt(d.dot(d)), 1.0
        for _ in range(HALVINGS):
            x = problem.retract(problem.h.stop_at_kinks(base.x, base.x + s * d), system)
            value = problem.evaluate(x)
            if value.finite and value.total <= base.total + SLOPE * s * slope + noise:
                new = problem.measure(x, value, before.t, base.L)
                visible = before.total - new.total > noise
                reach = (NEXT_REACH if s == 1.0 else s) * length
                return (new if visible or new.chi < before.chi else None), reach
            s *= 0.5
        return None, s * length


def _holds(problem: Composite, at: ProximalPoint) -> bool:
    """Whether the proximal step keeps the zeros of x."""
    return same(problem.h.support(at.x), problem.h.support(at.z))


def _transferred(problem: Composite, quasi: QuasiNewton, inner: Inner, new: ProximalPoint) -> Inner:
    """The quasi-Newton state at a new point, which has learned from the way there."""
    X, gradient = problem.book(new)
    learned = quasi.remembered(inner, new.x - inner.point.x, new.g - inner.point.g)
    return learned._replace(x=X, at=gradient, point=new, factor=1.0, rejections=0, failure=None)


def newton_direction(
    problem: Composite, at: ProximalPoint, reach: float = math.inf
) -> tuple[Array, float, NormalSystem]:
    """(D, ⟨∇F, D⟩, H of `pattern`) on the orthonormal matrices with the zeros of x."""
    h, space, x = problem.h, problem.space, at.x
    mask = h.support(x)
    tangents = Tangents(space, x, mask)
    total = at.g + h.gradient(x)
    L, gradient = tangents.multiplier(total), tangents.project(total)
    X = space.point(x)

    def product(w: Array) -> Array:
        curved = problem.hessian_product(X, w)
        return tangents.curvature(curved + h.hessian(x, w) if h.bends else curved, w, L)

    size = max(math.sqrt(float(gradient @ gradient)), 1e-300)
    rounding = 10.0 * problem.noise.eps * math.sqrt(float(total @ total))
    # Of order 3/2, which spends fewer products than order 2: test_newton_spends_little.  To the
    # target and no further, if there is one: test_a_leap_spends_little.  Not beneath the rounding
    # of the gradient, where every curvature may be met: test_newton_is_quadratic_at_the_end.
    enough = max(math.sqrt(at.t * size), 0.3 * problem.target / size, rounding / size)
    d = truncated(product, -gradient, min(0.1, enough), reach)
    return d, float(gradient @ d), tangents.system


def truncated(
    product: Callable[[Array], Array], rhs: Array, tolerance: float, reach: float = math.inf
) -> Array:
    """Conjugate gradients for product(d) = rhs within ‖d‖ ≤ reach (Steihaug and Toint).

    At negative curvature the way goes on to the border, if there is one.
    """
    d, r, p = np.zeros_like(rhs), rhs.copy(), rhs.copy()
    rr = float(r.dot(r))
    dd, dp, pp = 0.0, 0.0, rr  # of d and p; their recurrences cost no further products
    target = max(tolerance, 1e-6) ** 2 * rr
    for i in range(MOST_PRODUCTS):
        if rr <= target or rr == 0.0:
            break
        Ap = product(p)
        curvature = float(p.dot(Ap))
        if not math.isfinite(curvature):
            return d
        if not curvature > 0 and reach == math.inf:
            return p * (rr / max(-curvature, 1e-300)) if i == 0 else d
        alpha = rr / curvature if curvature > 0 else math.inf
        border = _as_far_as(reach, dd, dp, pp)
        if alpha >= border:
            return d + border * p
        d += alpha * p
        Ap *= alpha
        r -= Ap
        rr, old = float(r.dot(r)), rr
        beta = rr / old
        p *= beta
        p += r
        dd += alpha * (2.0 * dp + alpha * pp)
        dp, pp = beta * (dp + alpha * pp), rr + beta**2 * pp
    return d


def _as_far_as(reach: float, dd: float, dp: float, pp: float) -> float:
    """The τ > 0 with ‖d + τp‖ = reach."""
    if reach == math.inf:
        return math.inf
    return (math.sqrt(dp**2 + max(pp * (reach**2 - dd), 0.0)) - dp) / pp
