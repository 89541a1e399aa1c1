"""Nonlinear conjugate gradients on a manifold.

    X_{t+1} = R(X_t, φ(α_t D_t)),   D_{t+1} = −W_{t+1} + β_t T(D_t)

with α_t from the Wolfe search, T the isometric transport along the step and W the gradient, or the
preconditioned one.  With y = ∇f_{t+1} − T(∇f_t), z = W_{t+1} − T(W_t), d = T(D_t), all cotangents
at X_{t+1}:

    hager-zhang       β = max(⟨z, ∇f⟩/⟨d, y⟩ − 2 ⟨y, z⟩⟨d, ∇f⟩/⟨d, y⟩²,  η ⟨D_t, ∇f_t⟩/‖D_t‖²)
    polak-ribiere     β = max(⟨z, ∇f⟩/⟨∇f_t, W_t⟩, 0)
    hestenes-stiefel  β = max(⟨z, ∇f⟩/⟨d, y⟩, 0)
    dai-yuan          β = ⟨∇f, W⟩/⟨d, y⟩

A direction that does not descend is replaced by −W.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from stiefel.types import Aim, Cotangent, Gradient, Point, Status

from .noise import Watch
from .parameters import check_choice, check_open_interval, check_positive
from .problem import LEAST_COSINE, Problem
from .wolfe import Found, Lost, Wolfe

BETA_RULES = ("hager-zhang", "polak-ribiere", "hestenes-stiefel", "dai-yuan")
LONGEST_FIRST_TRIAL = 10.0  # columns have length one, and far away a curve turns round
# ‖D‖ in units of ‖W‖, and the length of its curve in units of ‖D‖: less is the rounding of
# −W + βd, and no cotangent at all (test_scales.py, `cancels`).
CANCELLED = 1e-3
ETA = 0.4  # Hager and Zhang's bound on negative β


class State(NamedTuple):
    x: Point
    at: Gradient
    W: Cotangent  # the gradient, preconditioned
    square: float  # ⟨∇f, W⟩
    aim: Aim  # along D
    first: float  # the first step to try along D; 0 where nothing is known
    gamma: float = 0.0  # length of the last step in units of its gradient
    k: int = 0  # steps since the last restart
    restarted: bool = False
    watch: Watch = Watch()
    failure: Status | None = None


class Products(NamedTuple):
    """Inner products at X_{t+1} from which every rule is computed."""

    zg: float  # ⟨z, ∇f_{t+1}⟩
    yz: float
    dg: float  # ⟨d, ∇f_{t+1}⟩
    dy: float
    slope: float  # ⟨D_t, ∇f_t⟩ < 0
    dd: float  # ‖D_t‖²
    old: float  # ⟨∇f_t, W_t⟩
    new: float  # ⟨∇f_{t+1}, W_{t+1}⟩


@dataclass(frozen=True)
class ConjugateGradient:
    """Riemannian conjugate gradients with a Wolfe search.

    Parameters
    ----------
    rule : {"hestenes-stiefel", "hager-zhang", "polak-ribiere", "dai-yuan"}
        How much of the last direction is kept; the first one needed the fewest evaluations on the
        paper's problem.
    sufficient_decrease : float
        The number c₁ of the Wolfe conditions.
    curvature : float
        The number c₂ of the Wolfe conditions.
    initial_length : float
        The length ‖αD‖_g* of the first step tried.

    Examples
    --------
    >>> import numpy as np, stiefel
    >>> objective = stiefel.objectives.Brockett(np.arange(1.0, 21.0), [1.0, 2.0])
    >>> X0 = stiefel.random_point(20, 2, seed=0)
    >>> stiefel.minimize(objective, X0, method=stiefel.ConjugateGradient(rule="dai-yuan")).success
    True
    """

    rule: str = "hestenes-stiefel"
    sufficient_decrease: float = 1e-4  # c₁
    curvature: float = 0.1  # c₂
    initial_length: float = 0.1

    def __post_init__(self) -> None:
        check_choice(self, "rule", BETA_RULES)
        check_positive(self, "initial_length")
        check_open_interval(self, "sufficient_decrease", 0.0, 0.5)
        check_open_interval(self, "curvature", self.sufficient_decrease, 1.0)

    def init(self, problem: Problem, x: Point) -> State:
        at = problem.gradient(x)
        W, square = problem.steepest(x, at)
        return State(x, at._replace(aux=None), W, square, problem.against(x, W, square), 0.0)

    def step(self, problem: Problem, s: State) -> State:
        if not s.at.norm * s.aim.curve.squared_norm > 0:  # or nothing of it is along the manifold
            return s._replace(failure=Status.ROUNDING_LIMIT)
        length = math.sqrt(s.aim.curve.squared_norm)
        longest = s.aim.curve.bounded_length
        first = min(
            s.first or self.initial_length / length,
            LONGEST_FIRST_TRIAL / longest if longest else math.inf,
        )
        found = self._search(problem, s.at, s.aim, first, s.watch)
        if isinstance(found, Lost):
            return self._recover(problem, s._replace(watch=found.watch))
        new = self._arrive(problem, s, found)
        return new._replace(gamma=found.t * length / s.at.norm, watch=found.watch)

    @cached_property
    def _search(self) -> Wolfe:
        return Wolfe(self.sufficient_decrease, self.curvature)

    def _arrive(self, problem: Problem, s: State, found: Found) -> State:
        geometry, x, at = problem.geometry, found.X, found.at
        W, square = problem.steepest(x, at)
        d = s.aim.curve.transport(found.t, s.aim.direction)
        products = self._products(problem, s, found, W, square, d)
        beta = self._beta(products)
        D = geometry.combine(-1.0, W, beta, d)
        slope = beta * products.dg - square
        k, restarted = s.k + 1, False
        size = geometry.norm(x, D) if math.isfinite(beta) else math.inf
        aim = Aim(D, slope, geometry.ray(x, D))
        descends = slope < -LEAST_COSINE * at.norm * size
        cancelled = not (
            at.norm * size > CANCELLED * square and aim.curve.length > CANCELLED * size
        )
        if cancelled or not descends:
            aim, k, restarted = problem.against(x, W, square), 0, True
        # A quadratic has its minimum along D where the last one would have had it.
        first = found.t * s.aim.slope / aim.slope if aim.slope else 0.0  # zero: ∇f vanishes exactly
        at = at._replace(aux=None)
        return State(x, at, W, square, aim, first, k=k, restarted=restarted)

    def _products(
        self,
        problem: Problem,
        s: State,
        found: Found,
        W: Cotangent,
        square: float,
        d: Cotangent,
    ) -> Products:
        geometry, x, G, curve = problem.geometry, found.X, found.at.G, s.aim.curve
        y = geometry.combine(1.0, G, -1.0, curve.transport(found.t, s.at.G))
        z = y
        if problem.precond is not None:
            z = geometry.combine(1.0, W, -1.0, curve.transport(found.t, s.W))
        dg = geometry.inner(x, d, G)
        return Products(
            geometry.inner(x, z, G),
            geometry.inner(x, y, z),
            dg,
            dg - s.aim.slope,  # T is an isometry
            s.aim.slope,
            curve.squared_norm,
            s.square,
            square,
        )

    def _beta(self, p: Products) -> float:
        if self.rule == "polak-ribiere":
            return max(p.zg / p.old, 0.0)
        if not p.dy > 0:  # only steps that were not accepted for their curvature
            return 0.0
        if self.rule == "hestenes-stiefel":
            return max(p.zg / p.dy, 0.0)
        if self.rule == "dai-yuan":
            return p.new / p.dy
        beta = p.zg / p.dy - 2.0 * (p.yz / p.dy) * (p.dg / p.dy)
        return max(beta, ETA * p.slope / p.dd)

    def _recover(self, problem: Problem, s: State) -> State:
        """No step was found: try the gradient, or give up."""
        if s.k == 0:
            return s._replace(failure=_why(problem, s, self.initial_length))
        aim = problem.against(s.x, s.W, s.square)
        first = s.gamma * s.at.norm / math.sqrt(aim.curve.squared_norm)
        return s._replace(aim=aim, first=first, k=0, restarted=True)


def _why(problem: Problem, s: State, length: float) -> Status:
    """Why no step was found along −W: rounding hides it, or f contradicts its gradient."""
    predicted = s.square * length / max(s.at.norm, math.ulp(0.0))
    limit = s.watch.blind or predicted <= max(s.watch.noise, problem.noise.level(s.at.f))
    return Status.ROUNDING_LIMIT if limit else Status.STEP_NOT_FOUND
