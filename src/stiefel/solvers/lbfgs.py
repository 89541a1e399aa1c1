"""Limited-memory BFGS on a manifold (the paper's L-RBFGS), with a learned metric.

    D_t = −H_t ∇f(X_t),    X_{t+1} = X(α_t) on the Cayley ray along D_t
    s_t = α_t Q D_t,       y_t = ∇f(X_{t+1}) − Q ∇f(X_t)

H_t takes cotangents to tangents, so that pairs (s, y) live in dual spaces and their pairing is the
plain inner product.  Q is the isometric transport of the ray itself, so that the secant equation
is the one of the curve that was walked; older pairs are left as they are and only the final
direction is projected.  The pairs stand in two tall blocks S and Y, oldest first; with
U = triu(SᵀY) the two-loop recursion is four products with a block and two small solves:

    a = U⁻¹ Sᵀg,   q = g − Y a,   r = γ φ(q),   c = U⁻ᵀ(diag(U) a − Yᵀr),   H g = r + S c.

H₀ = γφ with γ = ⟨s, y⟩/⟨y, φ(y)⟩ and φ the preconditioner, or the learned metric.  The first step
has a given length, so that nothing depends on the scale of f.  Cost: 8mnk + 40nk² an iteration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg.lapack import dtrtrs

from .metric import (
    Learned,
    LearnedMetric,
    first_scale,
    metric_of,
    parts_of,
    raised,
    still_invariant,
)
from .parameters import check_integer, check_open_interval, check_positive
from .problem import Gradient, Local, Problem
from .result import Status
from .secant_search import SecantSearch, Step

Array = Any

LARGE = 4_000_000  # entries of a point; from here on memory is scarcer than evaluations …
FEW = 3  # … and so many pairs must do
LEAST_COSINE = 1e-10  # between −D and the gradient; less is not a descent direction


class Pairs(NamedTuple):
    """Rows low:high of two append-only blocks; a row once written is never changed.

    States that came before stay valid, and rows move only when the blocks are full.
    """

    S: Array
    Y: Array
    U: np.ndarray[Any, Any]  # ⟨s_i, y_j⟩ for i ≤ j
    most: int  # pairs that are kept
    low: int = 0
    high: int = 0

    @property
    def held(self) -> int:
        return self.high - self.low


class State(NamedTuple):
    x: Array
    local: Local  # W is the search direction D, a cotangent; slope is ⟨∇f, φ(D)⟩ < 0
    pairs: Pairs
    learned: tuple[Learned, ...]
    gamma: float = 0.0  # γ of H₀; 0 before the first pair
    k: int = 0  # pairs in use
    restarted: bool = False
    noise: float = 0.0
    blind: bool = False
    failure: Status | None = None


@dataclass(frozen=True)
class LBFGS:
    """Riemannian L-BFGS.

    Parameters
    ----------
    memory : number m of pairs kept; at most 3 for points of more than four million entries.
    metric : how the initial Hessian is learned; None for the canonical metric.
    sufficient_decrease, curvature : c₁ and c₂ of the line search.
    initial_length : length of the first step, for a column.
    longest : no step moves a matrix further than this.
    caution : a pair is kept if ⟨s, y⟩ > caution ‖s‖‖y‖.
    """

    memory: int = 10
    metric: LearnedMetric | None = None
    sufficient_decrease: float = 1e-4
    curvature: float = 0.9
    initial_length: float = 0.01
    longest: float = 1.0
    caution: float = 1e-10

    def __post_init__(self) -> None:
        check_integer(self, "memory", 1)
        check_positive(self, "initial_length")
        check_positive(self, "longest")
        check_positive(self, "caution")
        check_open_interval(self, "sufficient_decrease", 0.0, 0.5)
        check_open_interval(self, "curvature", self.sufficient_decrease, 1.0)

    def init(self, problem: Problem, x: Array) -> State:
        geometry, at = problem.geometry, problem.gradient(x)
        learned = (self.metric or LearnedMetric()).init(geometry, x, at)
        large = sum(math.prod(part.shape) for part in parts_of(x)) > LARGE
        most = min(self.memory, FEW) if large else self.memory
        rows = most + 1 if large else 2 * most
        blocks = geometry.block(x, rows), geometry.block(x, rows)
        pairs = Pairs(*blocks, np.zeros((rows, rows)), most)
        return self._aimed(problem, x, at, pairs, learned, 0.0)

    def step(self, problem: Problem, s: State) -> State:
        ray, slope = s.local.ray, s.local.slope
        taken = self._search(problem, s.local.f, slope, ray, ray.longest, s.noise)
        if taken is None:
            return self._recover(problem, s)
        return self._arrive(problem, s, taken)

    @cached_property
    def _search(self) -> SecantSearch:
        return SecantSearch(self.sufficient_decrease, self.curvature, self.longest)

    def _arrive(self, problem: Problem, s: State, taken: Step) -> State:
        """Keep the pair of the step taken, learn from it, and aim again."""
        geometry, x, at = problem.geometry, taken.X, taken.gradient
        pairs, gamma, learned = s.pairs, s.gamma, s.learned
        step = geometry.scale(taken.t, taken.moved)
        old = s.local.ray.transport(taken.t, s.local.G)
        change = geometry.combine(1.0, at.G, -1.0, old)
        learned, kept = still_invariant(geometry, x, at, learned)
        if not kept:
            pairs = pairs._replace(low=pairs.high)
        if self.metric is not None and problem.precond is None:
            learned = self.metric.observe(geometry, x, step, change, learned)
        sy, ss, yy = (
            geometry.dot(step, change),
            geometry.dot(step, step),
            geometry.dot(change, change),
        )
        if sy > self.caution * math.sqrt(ss * yy):
            pairs = self._remember(geometry, pairs, step, change)
            gamma = sy / geometry.dot(change, raised(problem, x, change, learned, at.aux))
        new = self._aimed(problem, x, at, pairs, learned, gamma)
        return new._replace(noise=taken.noise, blind=not taken.readable)

    def _remember(self, geometry: Any, pairs: Pairs, s: Array, y: Array) -> Pairs:
        S, Y, U, most, low, high = pairs
        rows = len(U)
        if high == rows:
            kept = slice(max(low, high - most + 1), high)
            low, high = 0, kept.stop - kept.start
            moved = geometry.block(s, rows), geometry.block(y, rows)
            S, Y = (
                geometry.block_fill(new, geometry.block_rows(b, kept))
                for new, b in zip(moved, (S, Y), strict=True)
            )
            old, U = U[kept, kept], np.zeros_like(U)
            U[:high, :high] = old
        S, Y = geometry.block_write(S, high, s), geometry.block_write(Y, high, y)
        high += 1
        low = max(low, high - most)
        U[low:high, high - 1] = geometry.block_dot(geometry.block_rows(S, slice(low, high)), y)
        return Pairs(S, Y, U, most, low, high)

    def _aimed(
        self,
        problem: Problem,
        x: Array,
        at: Gradient,
        pairs: Pairs,
        learned: tuple[Learned, ...],
        gamma: float,
    ) -> State:
        """The state at x with its search direction; memory that does not descend is forgotten."""
        geometry, forgot = problem.geometry, False
        if at.norm == 0 or not at.finite:
            local = Local(at.f, at.G, at.norm, at.G, 0.0, geometry.ray(x, at.G))
            return State(x, local, pairs, learned, gamma)
        T = self._direction(problem, x, at, pairs, learned, gamma)
        slope = geometry.dot(at.G, T)
        if not slope < -LEAST_COSINE * at.norm * math.sqrt(geometry.dot(T, T)):
            pairs, forgot = pairs._replace(low=pairs.high), pairs.held > 0
            T = self._direction(problem, x, at, pairs, learned, gamma)
            slope = geometry.dot(at.G, T)
        if not slope < 0:  # a preconditioner that does not descend
            T = geometry.scale(-1.0, at.G)
            slope = geometry.dot(at.G, T)
        D = geometry.cotangent_of(x, T, metric_of(geometry, learned))
        local = Local(at.f, at.G, at.norm, D, slope, geometry.ray(x, D))
        return State(x, local, pairs, learned, gamma, pairs.held, forgot)

    def _direction(
        self,
        problem: Problem,
        x: Array,
        at: Gradient,
        pairs: Pairs,
        learned: tuple[Learned, ...],
        gamma: float,
    ) -> Array:
        """−H ∇f, a direction that is tangent up to the parts of old pairs."""
        geometry, g = problem.geometry, at.G
        if pairs.held == 0:
            r = raised(problem, x, g, learned, at.aux)
            scale = gamma or first_scale(problem, x, r, self.initial_length, self.longest)
            return geometry.scale(-scale, r)
        rows = slice(pairs.low, pairs.high)
        S, Y = geometry.block_rows(pairs.S, rows), geometry.block_rows(pairs.Y, rows)
        U = pairs.U[rows, rows]
        a = dtrtrs(U, geometry.block_dot(S, g))[0]
        q = geometry.combine(1.0, g, -1.0, geometry.block_sum(Y, a))
        r = raised(problem, x, q, learned, at.aux)
        right = np.diagonal(U) * a - gamma * geometry.block_dot(Y, r)
        c = dtrtrs(U, right, trans=1)[0]
        return geometry.combine(-gamma, r, -1.0, geometry.block_sum(S, c))

    def _recover(self, problem: Problem, s: State) -> State:
        """No step was found: forget the pairs and try H₀ alone, or give up."""
        if s.pairs.held == 0:
            limit = s.blind or abs(s.local.slope) <= problem.noise(s.local.f)
            return s._replace(failure=Status.ROUNDING_LIMIT if limit else Status.STEP_NOT_FOUND)
        at = problem.gradient(s.x)
        pairs = s.pairs._replace(low=s.pairs.high)
        new = self._aimed(problem, s.x, at, pairs, s.learned, s.gamma)
        return new._replace(restarted=True, noise=s.noise, blind=s.blind)
