"""Sequential quadratic programming on XᵀX = I: one gradient of f and of c an iteration.

    min_V ⟨G, V⟩ + ½⟨V, BV⟩ + ρ Σ |violation of c(X) + JV|   over tangent V,      X⁺ = R(X + V)

B is the limited-memory BFGS matrix of the Lagrangian f − ⟨ν, c⟩ along tangents, so that the
curvature of the constraints and of the orthonormality is in it.  With H = B⁻¹ the dual of the step
is a quadratic function of the multipliers on a box,

    min_ν ½⟨G − Jᵀν, H(G − Jᵀν)⟩ + ⟨c, ν⟩,    |ν| ≤ ρ for c = 0,  0 ≤ ν ≤ ρ for c ≥ 0
    V = −H(G − Jᵀν)

It always has a solution; where the linearised constraints contradict each other, V lessens the
violation as well as it can.  ρ follows the multipliers of the step without a bound on ν, up at once
and down by half.

Before f is evaluated, c is looked at: where R bends it, V is corrected to second order, by one more
value of c, and where f + ρ Σ|violation| cannot fall, with f by its gradient, B is doubled at the
price of values of c alone.  A step is accepted if f + ρ Σ|violation| falls by a part of what the
model says; otherwise B is doubled for another evaluation.  Pairs are carried along by projection
and damped, after Powell, by BV = −(G − Jᵀν); a damped pair says nothing of the scale of B.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stiefel.nonsmooth.space import Space
from stiefel.types import Array

from .box_quadratic import box_minimum
from .rows import ConstraintRows

PAIRS_KEPT = 20
DAMPING = 0.4  # of sᵀBs, which sᵀy must reach
SUFFICIENT = 1e-4
BENT = 0.5  # of the predicted decrease, lost by the curvature of c: then V is corrected
UNBOUNDED = 1e6  # against ρ
PENALTY_MARGIN = 1.5  # of ρ over the multipliers
STEERING = 10.0
LARGEST_FACTOR = 1e12
MERIT_ROUNDING = 2e-14
# Of a slope, against the size of its parts: test_a_start_where_the_violation_is_stationary.
STUCK = 1e-5
MOST_LOOKS = 8  # at c before an evaluation of f


class Evaluated(NamedTuple):
    """f, its gradient and the rows at a point."""

    x: Array
    f: float
    g: Array
    rows: ConstraintRows

    def merit(self, rho: float) -> float:
        return self.f + rho * self.rows.violation()


class Measures(NamedTuple):
    """The three parts of the KKT conditions, and the gradient of the Lagrangian."""

    stationarity: float
    violation: float
    complementarity: float
    gradient: Array


class State(NamedTuple):
    at: Evaluated
    nu: Array  # multipliers of the step
    rho: float
    S: tuple[Array, ...] = ()
    Y: tuple[Array, ...] = ()
    gamma: float = 1.0  # H without pairs
    factor: float = 1.0  # of B
    restarted: bool = False
    failed: bool = False


class StepModel:
    """The quadratic model at one point: H applied to what the dual needs."""

    def __init__(self, space: Space, s: State) -> None:
        at = s.at
        self.rows, self.guess = at.rows, s.nu
        self.g, self.J = onto_tangents(space, at.x, at.g), onto_tangents(space, at.x, at.rows.J)
        H = inverse_times(s, np.vstack([self.J, self.g]))
        self.HJ, self.Hg = H[:-1], H[-1]
        M = self.HJ @ self.J.T
        self.M, self.Mg = 0.5 * (M + M.T), self.HJ @ self.g

    def solve(self, rho: float, factor: float, c: Array | None = None) -> tuple[Array, Array]:
        """(ν, V) with B enlarged by ``factor``; ``c`` takes the place of c(X)."""
        c = self.rows.c if c is None else c
        lower, upper = np.where(self.rows.equal, -rho, 0.0), np.full(len(c), rho)
        nu = box_minimum(self.M / factor, c - self.Mg / factor, lower, upper, self.guess)
        return nu, (self.HJ.T @ nu - self.Hg) / factor

    def left(self, V: Array) -> float:
        """The violation that the linearised constraints keep."""
        return self.rows.violation(self.rows.c + self.rows.J @ V)

    def predicted(self, V: Array, rho: float) -> float:
        return rho * (self.rows.violation() - self.left(V)) - float(self.g @ V)

    def penalty(self, rho: float) -> tuple[float, Array]:
        """(ρ, ν): at least as large as the multipliers, and enough for the violation to fall."""
        size = math.sqrt(float(self.g @ self.g))
        rows = np.sqrt(np.einsum("ij,ij->i", self.J, self.J))
        scale = size / max(float(np.median(rows)), 1e-300) if len(rows) else 0.0
        if rho == 0.0:
            rho = 10.0 * scale if 0 < scale < math.inf else 1.0
        most = UNBOUNDED * max(rho, scale)
        nu, V = self.solve(most, 1.0)
        largest = float(np.max(np.abs(nu), initial=0.0))
        if largest < 0.999 * most:
            return max(PENALTY_MARGIN * largest, 0.5 * (rho + PENALTY_MARGIN * largest)), nu
        now, best = self.rows.violation(), self.left(V)
        nu, V = self.solve(rho, 1.0)
        while now - self.left(V) < 0.5 * (now - best) and rho < most:
            rho *= STEERING
            nu, V = self.solve(rho, 1.0)
        return rho, nu

    def is_stuck(self) -> bool:
        """Whether no tangent lessens the violation, to first order."""
        rows = self.rows
        away = np.where(rows.equal, rows.c, np.minimum(rows.c, 0.0))
        slope = self.J.T @ away
        size = float(np.abs(away) @ np.sqrt(np.einsum("ij,ij->i", rows.J, rows.J)))
        return math.sqrt(float(slope @ slope)) <= STUCK * size

    def measures(self, nu: Array) -> Measures:
        gradient, rows = self.g - self.J.T @ nu, self.rows
        slack = np.where(rows.equal, 0.0, np.minimum(np.abs(nu), np.abs(rows.c)))
        return Measures(
            math.sqrt(float(gradient @ gradient)),
            float(np.max(rows.violations(), initial=0.0)),
            float(np.max(slack, initial=0.0)),
            gradient,
        )


def onto_tangents(space: Space, x: Array, v: Array) -> Array:
    """The projection of v, or of its rows, onto the tangents at x."""
    return v - space.normal(x, space.gather(x, v))


def inverse_times(s: State, V: Array) -> Array:
    """H times the rows of V, by two recursions over the pairs."""
    Q, parts = V.copy(), []
    for p, y in zip(reversed(s.S), reversed(s.Y)):
        a = (Q @ p) / float(p @ y)
        Q -= np.multiply.outer(a, y)
        parts.append(a)
    Q *= s.gamma
    for p, y, a in zip(s.S, s.Y, reversed(parts)):
        Q += np.multiply.outer(a - (Q @ y) / float(p @ y), p)
    return Q


@dataclass(frozen=True)
class SequentialQuadratic:
    """The iteration, given how a point is evaluated and how one comes back to the manifold."""

    space: Space
    evaluate: Callable[[Array, Array | None], Evaluated]  # x and c(x), if known
    values: Callable[[Array], Array]  # c alone
    retract: Callable[[Array], Array]

    def begin(self, at: Evaluated) -> State:
        size = float(np.linalg.norm(onto_tangents(self.space, at.x, at.g)))
        gamma = 1.0 / size if 0 < size < math.inf else 1.0
        return State(at, np.zeros(len(at.rows.c)), 0.0, gamma=gamma)

    def model(self, s: State) -> tuple[State, StepModel, Measures]:
        """The state with today's ρ and ν, its model, and how far it is from a solution."""
        model = StepModel(self.space, s)
        rho, nu = model.penalty(s.rho)
        return s._replace(rho=rho, nu=nu), model, model.measures(nu)

    def step(self, s: State, model: StepModel) -> State:
        """One trial; a refused one doubles B."""
        at, rho = s.at, s.rho
        noise = MERIT_ROUNDING * (abs(at.f) + rho * float(np.max(np.abs(at.rows.c), initial=0.0)))
        used = s.factor
        for _ in range(MOST_LOOKS):
            nu, V = model.solve(rho, used)
            predicted = model.predicted(V, rho)
            x, c = self._arrival(s, model, V, predicted, used)
            drop = rho * (at.rows.violation() - at.rows.violation(c)) - float(at.g @ (x - at.x))
            if not drop < SUFFICIENT * predicted - noise:
                break
            used *= 2.0
        new = self.evaluate(x, c)
        fell = at.merit(rho) - new.merit(rho)
        if not (math.isfinite(fell) and fell >= SUFFICIENT * predicted - noise):
            factor = s.factor * (2.0 if math.isfinite(fell) else 8.0)
            return s._replace(factor=factor, restarted=True, failed=factor > LARGEST_FACTOR)
        return self._remembered(s, model, nu, new, used)._replace(
            at=new, nu=nu, factor=1.0, restarted=False
        )

    def _arrival(
        self, s: State, model: StepModel, V: Array, predicted: float, factor: float
    ) -> tuple[Array, Array]:
        """Where the step ends, corrected where the constraints bend away from it, and c there."""
        x = self.retract(s.at.x + V)
        c = self.values(x)
        rows = s.at.rows
        if not np.all(np.isfinite(c)):
            return x, c
        lost = s.rho * (rows.violation(c) - model.left(V))
        if not lost > BENT * abs(predicted):
            return x, c
        _, W = model.solve(s.rho, factor, c - rows.J @ V)
        if not float(W @ W) < 4.0 * float(V @ V):
            return x, c
        x = self.retract(s.at.x + W)
        return x, self.values(x)

    def _remembered(
        self, s: State, model: StepModel, nu: Array, new: Evaluated, factor: float
    ) -> State:
        """The state with the pair of a step, and the older pairs carried to the new point."""
        space, x, at = self.space, new.x, s.at

        def carry(v: Array) -> Array:
            return onto_tangents(space, x, v)

        old = model.g - model.J.T @ nu
        p = carry(x - at.x)
        y = carry(new.g - new.rows.J.T @ nu) - carry(old)
        Bp = -carry(old) / factor
        pBp, py = float(p @ Bp), float(p @ y)
        damped = pBp > 0 and py < DAMPING * pBp
        if damped:
            theta = (1.0 - DAMPING) * pBp / (pBp - py)
            y = theta * y + (1.0 - theta) * Bp
        pairs = [(carry(a), carry(b)) for a, b in zip(s.S, s.Y)] + [(p, y)]
        kept = [(a, b) for a, b in pairs if float(a @ b) > 1e-10 * _size(a) * _size(b)][
            -PAIRS_KEPT:
        ]
        gamma = s.gamma
        if kept and kept[-1][0] is p and not damped:
            gamma = float(p @ y) / float(y @ y)
        S, Y = tuple(a for a, _ in kept), tuple(b for _, b in kept)
        return s._replace(S=S, Y=Y, gamma=gamma)


def _size(v: Array) -> float:
    return math.sqrt(float(v @ v))
