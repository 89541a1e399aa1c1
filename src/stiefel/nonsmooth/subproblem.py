"""The proximal step on XᴴX = I, with a quadratic model that has a memory.

    min_Z ⟨G, Z−X⟩ + (1/2t)⟨Z−X, (I + U K Uᵀ)(Z−X)⟩ + h(Z)   subject to  V = Z − X tangent at X

With b = K UᵀV and the multiplier Λ of the constraint,

    Z(b, Λ) = prox_th(X − t(G − XΛ) − Ub)
    E₁ = K⁻¹b − UᵀV = 0,      E₂ = herm(XᴴV) = 0

is solved by a semismooth Newton method in (b, Λ): no iteration over n×k.  With D = prox' the
Jacobian
is [K⁻¹ + UᵀDU, −UᵀDN; −NᵀDU, NᵀDN + δ], N = `normal`, in the unknowns (b, tΛ), all without units.
Small k: Λ is eliminated by a factorisation.  Large k: b is eliminated, and what is left for Λ,
Nᵀ(D − DU(K⁻¹ + UᵀDU)⁻¹UᵀD)N, is positive semidefinite: conjugate gradients.

Between kinks Z may not depend on some entries of Λ, and there the residual says nothing about how
far
to go.  Without a memory the dual function is concave and E₂ is its gradient: where damping does not
make the residual fall, the zero of ⟨E₂, dΛ⟩ along the direction is found by bisection.  With a
memory there is no such function, and a step that is not solved is left to the caller.

Λ here is twice that of XᴴX = I in the Lagrangian f + h − ⟨Λ, XᴴX − I⟩.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy

from stiefel.types import Array

from .normal_system import NormalSystem, semidefinite_solution
from .space import Space, Sum

MOST_INNER_STEPS = 60
# Residuals at which the iteration ends: 0.1‖V‖² for a step, a part of ‖V‖ for its length alone.
FINEST, COARSEST = 1e-13, 1e-4
ROUGHLY = 0.01
HIDDEN = 10.0  # times the residual: the least decrease that a residual may stand beside
LEAST_DAMPING = 1e-3  # damping
BISECTIONS = 40


class LowRankModel(NamedTuple):
    """I + UKUᵀ: the rows of U, and K⁻¹."""

    U: Array
    K_inverse: Array


def no_memory(space: Space) -> LowRankModel:
    return LowRankModel(np.zeros((0, space.points.size)), np.zeros((0, 0)))


class ProximalStep(NamedTuple):
    """The solution: Z = x + v with its multiplier."""

    z: Array
    v: Array
    L: Array  # Λ, in the units of the gradient
    residual: float
    solved: bool
    system: NormalSystem | None = None  # of the last Newton step, at x and nearly with z's zeros

    @property
    def length(self) -> float:
        return math.sqrt(float(self.v @ self.v))


class _Trial(NamedTuple):
    b: Array
    M: Array  # tΛ
    w: Array  # the argument of the proximal map
    z: Array
    v: Array
    E1: Array
    E2: Array
    size: float


def proximal_step(
    h: Sum,
    x: Array,
    g: Array,
    t: float,
    L: Array,
    memory: LowRankModel | None = None,
    roughly: bool = False,
    predicted: Callable[[Array, Array], float] | None = None,
) -> ProximalStep:
    """The step of the model at x; ``L`` is where Λ starts.

    ``roughly``: only to a hundredth of its length.  ``predicted``: the decrease that a step (z, v)
    predicts, which its residual, a part of XΛ, must not hide.
    """
    space = h.space
    base, size = x - t * g, math.sqrt(float(L @ L))
    U, K_inverse = no_memory(space) if memory is None else memory

    def at(b: Array, M: Array) -> _Trial:
        w = base + space.normal(x, M)
        if len(b):
            w -= b @ U
        z = h.prox(w, t)
        v = z - x
        E1, E2 = (K_inverse @ b - U @ v if len(b) else b), space.gather(x, v)
        return _Trial(b, M, w, z, v, E1, E2, math.sqrt(float(E1 @ E1) + float(E2 @ E2)))

    def accurate(now: _Trial) -> bool:
        square = float(now.v @ now.v)
        target = ROUGHLY * math.sqrt(square) if roughly else min(0.1 * square, COARSEST)
        if not now.size <= max(target, FINEST):
            return False
        if predicted is None or now.size <= FINEST:
            return True
        return predicted(now.z, now.v) > HIDDEN * size * now.size

    now, system = at(np.zeros(len(U)), t * L), None
    for _ in range(MOST_INNER_STEPS):
        if accurate(now):
            break
        db, dM, system = _newton(h, x, t, U, K_inverse, now)
        new = _damped(at, now, db, dM)
        if new is None and not len(U):
            new = _bisected(at, now, dM)
        if new is None:
            break
        now = new
    solved = accurate(now) or now.size <= 10.0 * FINEST * math.sqrt(max(len(now.M), 1))
    return ProximalStep(now.z, now.v, now.M / t, now.size, solved, system)


def _newton(
    h: Sum, x: Array, t: float, U: Array, K_inverse: Array, now: _Trial
) -> tuple[Array, Array, NormalSystem]:
    """The Newton direction (db, dM), and its system for Λ."""
    space, D = h.space, h.prox_derivative(now.w, t)
    delta = 0.05 * min(2.0 * now.size, 0.1)
    system = NormalSystem(space, x, D, delta)
    if not len(U):
        return now.b, -_solve(system, now.E2, now.size), system
    DU = D(U)
    A, C = K_inverse + DU @ U.T, space.gather(x, DU)
    if system.dense:
        W = system.solve(np.vstack([C, now.E2]))
        db = _solution(A - C @ W[:-1].T, -now.E1 - C @ W[-1])
        return db, W[:-1].T @ db - W[-1], system
    A_C, A_E = np.linalg.solve(A, C), np.linalg.solve(A, now.E1)
    rhs = -now.E2 - C.T @ A_E
    dM = semidefinite_solution(
        lambda M: system.apply(M) - C.T @ (A_C @ M), rhs, min(1e-2, now.size), 200
    )
    return A_C @ dM - A_E, dM, system


def _solution(A: Array, rhs: Array) -> Array:
    found, singular = scipy.linalg.lapack.dgesv(A, rhs)[2:]
    return rhs if singular else found


def _solve(system: NormalSystem, E: Array, size: float) -> Array:
    if system.dense or not len(E):
        return system.solve(E)
    return semidefinite_solution(system.apply, E, min(1e-2, size), 200)


def _damped(at: Any, now: _Trial, db: Array, dM: Array) -> _Trial | None:
    """Half the direction until the residual falls; None if it does not."""
    s = 1.0
    while s >= LEAST_DAMPING:
        new: _Trial = at(now.b + s * db, now.M + s * dM)
        if new.size <= (1.0 - 1e-3 * s) * now.size:
            return new
        s *= 0.5
    return None


def _bisected(at: Any, now: _Trial, dM: Array) -> _Trial | None:
    """The point along dM where the dual function is largest, nearly; None if it does not rise."""
    slope = float(now.E2 @ dM)
    low, high, new = 0.0, 1.0, None
    if not slope < 0:
        return None
    for _ in range(BISECTIONS):
        s = 0.5 * (low + high) if low or new is not None else high
        new = at(now.b, now.M + s * dM)
        found = float(new.E2 @ dM)
        if abs(found) <= 0.1 * abs(slope):
            return new
        low, high = (s, high) if found < 0 else (low, s)
        if found < 0 and s == 1.0:
            return new
    return new
