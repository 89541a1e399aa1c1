"""Limited-memory BFGS on a manifold (the paper's L-RBFGS).

    D_t = −H_t ∇f(X_t),   X_{t+1} = R(X_t, φ(α_t D_t)),   α_t from the Wolfe search
    s_t = T(α_t D_t),     y_t = ∇f(X_{t+1}) − T(∇f(X_t))

with T the isometric transport along the step (`stiefel.geometry.transport`), which takes α D to
the cotangent that leads back to X_t: the secant equation is the one of the curve that was walked.
The pairs are kept in coordinates in which g* is the plain inner product, as two tall blocks S and
Y, and only the final direction is projected.  With R = triu(SᵀY), D = diag(SᵀY) the two-loop
recursion is four products with a block and two triangular solves:

    a = R⁻¹ Sᵀg,   q = g − Y a,   r = H₀ q,   c = R⁻ᵀ (D a − Yᵀ r),   H g = r + S c.

Cost: 16mnk + O(nk²) an iteration.  H₀ is the preconditioner, or sᵀy/yᵀy times the identity.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from .parameters import check_integer, check_open_interval, check_positive
from .problem import Local, Problem
from .result import Status
from .wolfe import Found, Start, Wolfe, step_failure

Array = Any

LEAST_COSINE = 1e-12  # between −D and the gradient; less is not a descent direction


class Memory(NamedTuple):
    """The last pairs, newest last; rows that are not in use yet are zero."""

    S: Array
    Y: Array
    R: np.ndarray[Any, Any]  # the upper triangle of SᵀY
    scale: float = 1.0  # sᵀy/yᵀy of the newest pair
    pairs: int = 0


class State(NamedTuple):
    x: Array
    local: Local
    D: Array  # the search direction, a cotangent at x
    slope: float  # ⟨∇f, D⟩
    memory: Memory
    gamma: float = 0.0  # length of the last step in units of its gradient
    k: int = 0  # pairs gathered since the last reset
    restarted: bool = False
    noise: float = 0.0
    blind: bool = False
    failure: Status | None = None


@dataclass(frozen=True)
class LBFGS:
    """Riemannian L-BFGS with a Wolfe search.

    Parameters
    ----------
    memory : number m of pairs kept.
    sufficient_decrease, curvature : c₁ and c₂ of the Wolfe conditions.
    initial_length : length of the first step tried, ‖αD‖_g*.
    caution : a pair is kept if sᵀy ≥ caution · ‖s‖‖y‖ (the cautious update, without units).
    metric : an object that maps (x, G) to H₀G, in place of the preconditioner.
    """

    memory: int = 10  # m
    sufficient_decrease: float = 1e-4  # c₁
    curvature: float = 0.9  # c₂
    initial_length: float = 0.1
    caution: float = 1e-8
    metric: Any = None

    def __post_init__(self) -> None:
        check_integer(self, "memory", 1)
        check_positive(self, "initial_length")
        check_positive(self, "caution")
        check_open_interval(self, "sufficient_decrease", 0.0, 0.5)
        check_open_interval(self, "curvature", self.sufficient_decrease, 1.0)

    def init(self, problem: Problem, x: Array) -> State:
        geometry = problem.geometry
        local, aux = problem.local_and_aux(x)
        g = geometry.coordinates(x, local.G)
        memory = self._empty(geometry, x)
        D, slope = self._direction(problem, x, g, memory, aux)
        return State(x, local, D, slope, memory)

    def step(self, problem: Problem, s: State) -> State:
        ray = problem.geometry.ray(s.x, s.D)
        length = math.sqrt(ray.squared_norm)
        first = 1.0 if s.k else self._first_step(problem, length)
        found = self._search(problem, Start(s.local.f, s.slope, ray, s.noise), first)
        if found is None:
            return self._recover(problem, s)
        gamma = found.t * length / s.local.norm
        return self._arrive(problem, s, found, ray, gamma)

    @cached_property
    def _search(self) -> Wolfe:
        return Wolfe(self.sufficient_decrease, self.curvature)

    def _first_step(self, problem: Problem, length: float) -> float:
        """A step of a given length; a preconditioned gradient is not made longer."""
        scaled = self.initial_length / length
        known = problem.precond is not None or self.metric is not None
        return min(1.0, 10.0 * scaled) if known else scaled

    def _arrive(self, problem: Problem, s: State, found: Found, ray: Any, gamma: float) -> State:
        """Gather the pair of an accepted step and choose the next direction."""
        geometry, x, G = problem.geometry, found.X, found.local.G
        g = geometry.coordinates(x, G)
        old = geometry.coordinates(x, ray.transport(found.t, s.local.G))
        step = geometry.coordinates(x, ray.transport(found.t, s.D))
        sy = geometry.combine(found.t, step, 0.0, step), geometry.combine(1.0, g, -1.0, old)
        memory = self._remember(geometry, s.memory, *sy)
        D, slope = self._direction(problem, x, g, memory, found.aux)
        restarted = False
        if not slope < -LEAST_COSINE * found.local.norm * geometry.norm(x, D):
            memory, restarted = self._empty(geometry, x), True
            D, slope = self._direction(problem, x, g, memory, found.aux)
        new = State(x, found.local, D, slope, memory, gamma, memory.pairs, restarted)
        return new._replace(noise=found.noise, blind=not found.readable)

    def _remember(self, geometry: Any, memory: Memory, s: Array, y: Array) -> Memory:
        sy, ss, yy = geometry.dot(s, y), geometry.dot(s, s), geometry.dot(y, y)
        if not sy >= self.caution * math.sqrt(ss * yy) or not sy > 0:
            return memory
        S = geometry.block_push(memory.S, s)
        R = np.eye(self.memory)
        R[:-1, :-1] = memory.R[1:, 1:]
        R[:, -1] = geometry.block_dot(S, y)
        pairs = min(memory.pairs + 1, self.memory)
        return Memory(S, geometry.block_push(memory.Y, y), R, sy / yy, pairs)

    def _empty(self, geometry: Any, x: Array) -> Memory:
        block = geometry.block(x, self.memory)
        return Memory(block, block, np.eye(self.memory))

    def _direction(
        self, problem: Problem, x: Array, g: Array, memory: Memory, aux: Any
    ) -> tuple[Array, float]:
        """(−H g, its slope); g in coordinates, the direction a cotangent."""
        geometry = problem.geometry
        if memory.pairs == 0:
            d = self._initial(problem, x, g, memory.scale, aux)
        else:
            S, Y, R = memory.S, memory.Y, memory.R
            a = scipy.linalg.solve_triangular(R, geometry.block_dot(S, g))
            q = geometry.combine(1.0, g, -1.0, geometry.block_sum(Y, a))
            r = self._initial(problem, x, q, memory.scale, aux)
            right = np.diagonal(R) * a - geometry.block_dot(Y, r)
            c = scipy.linalg.solve_triangular(R, right, trans=1)
            d = geometry.combine(1.0, r, 1.0, geometry.block_sum(S, c))
        D = geometry.from_coordinates(x, d)
        return geometry.combine(-1.0, D, 0.0, D), -geometry.dot(g, d)

    def _initial(self, problem: Problem, x: Array, q: Array, scale: float, aux: Any) -> Array:
        """H₀q in coordinates: the metric's, the preconditioner's, or a multiple of q."""
        geometry = problem.geometry
        if self.metric is None and problem.precond is None:
            return geometry.combine(scale, q, 0.0, q)
        G = geometry.from_coordinates(x, q)
        W = problem.preconditioned(x, G, aux) if self.metric is None else self.metric(x, G)
        r = geometry.coordinates(x, W)
        # A preconditioner that is not positive here is left aside, as in every other method.
        return r if geometry.dot(q, r) > 0 else geometry.combine(scale, q, 0.0, q)

    def _recover(self, problem: Problem, s: State) -> State:
        """No step was found: forget the memory and try the gradient, or give up."""
        if s.memory.pairs == 0:
            return s._replace(failure=step_failure(problem, s, self.initial_length))
        geometry = problem.geometry
        D = geometry.combine(-1.0, s.local.W, 0.0, s.local.W)
        memory = self._empty(geometry, s.x)
        return s._replace(D=D, slope=-s.local.slope, memory=memory, k=0, restarted=True)
