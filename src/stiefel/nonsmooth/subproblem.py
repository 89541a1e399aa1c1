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
from typing import Any, NamedTuple

import numpy as np
import scipy

from stiefel.types import Array

from .compiled import Normals
from .normal_system import (
    CompiledSystem,
    NormalSystem,
    normal_system,
    semidefinite_solution,
)
from .space import Sum

MOST_INNER_STEPS = 60
# Residuals at which the iteration ends: 0.1‖V‖², unless a part of ‖V‖ is enough.
FINEST, COARSEST = 1e-13, 1e-4
ARGUMENT_ROUNDING = 4.0 * np.finfo(float).eps  # of an argument: test_steep_terms_are_no_dearer
LEAST_DAMPING = 1e-3  # damping
BISECTIONS = 40


class LowRankModel(NamedTuple):
    """I + UKUᵀ: the rows of U, and K⁻¹."""

    U: Array
    K_inverse: Array


_NO_MEMORY = LowRankModel(np.zeros((0, 0)), np.zeros((0, 0)))


class ProximalStep(NamedTuple):
    """The solution: Z = x + v with its multiplier."""

    z: Array
    v: Array
    L: Array  # Λ, in the units of the gradient
    E: Array  # herm(XᴴV), which is zero for an exact step
    residual: float
    solved: bool
    system: NormalSystem | None = None  # of the last Newton step, at x and nearly with z's zeros

    @property
    def length(self) -> float:
        return math.sqrt(self.v.dot(self.v))


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
    part: float | None = None,
) -> ProximalStep:
    """The step of the model at x; ``L`` is where Λ starts.

    ``part``: a residual that is such a part of its length is enough.
    """
    space = h.space
    if space.compiled is not None and h.soft_weights is not None:
        return _compiled_step(space.compiled, h, x, g, t, L, memory, part)
    base = x - t * g
    U, K_inverse = _NO_MEMORY if memory is None else memory

    def at(b: Array, M: Array) -> _Trial:
        w = space.normal(x, M)
        w += base
        if memory is None:
            z = h.prox(w, t)
            v = z - x
            E1, E2 = b, space.gather(x, v)
            return _Trial(b, M, w, z, v, E1, E2, math.sqrt(E2.dot(E2)))
        w -= b.dot(U)
        z = h.prox(w, t)
        v = z - x
        E1, E2 = K_inverse.dot(b) - U.dot(v), space.gather(x, v)
        return _Trial(b, M, w, z, v, E1, E2, math.sqrt(E1.dot(E1) + E2.dot(E2)))

    def accurate(now: _Trial) -> bool:
        square = now.v.dot(now.v)
        target = min(0.1 * square, COARSEST) if part is None else part * math.sqrt(square)
        if memory is None or part is None or not now.size <= target:
            # Where h is steep the argument of its proximal map is long, and its rounding shows.
            return bool(
                now.size <= max(target, FINEST, ARGUMENT_ROUNDING * math.sqrt(now.w.dot(now.w)))
            )
        # The step predicts a decrease of at least (‖V‖² + ⟨b, UᵀV⟩)/t, by the convexity of h.
        hidden = now.b.dot(now.E1)
        least = square + now.b.dot(K_inverse.dot(now.b)) - hidden
        return bool(least > abs(hidden) or now.size <= FINEST)

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
    return ProximalStep(now.z, now.v, now.M / t, now.E2, now.size, solved, system)


def _compiled_step(
    kernels: Normals,
    h: Sum,
    x: Array,
    g: Array,
    t: float,
    L: Array,
    memory: LowRankModel | None,
    part: float | None,
) -> ProximalStep:
    found = kernels.step(
        x, g, t, h.soft_weights, L, memory or (None, None), -1.0 if part is None else part
    )
    system = None if found[-1] is None else CompiledSystem(kernels, x, found[-1])
    return ProximalStep(*found[:-1], system)


def _newton(
    h: Sum, x: Array, t: float, U: Array, K_inverse: Array, now: _Trial
) -> tuple[Array, Array, NormalSystem]:
    """The Newton direction (db, dM), and its system for Λ."""
    space, D = h.space, h.prox_derivative(now.w, t)
    delta = 0.05 * min(2.0 * now.size, 0.1)
    system = normal_system(space, x, D, delta)
    if not len(U):
        return now.b, -_solve(system, now.E2, now.size), system
    DU = D(U)
    A, C = K_inverse + DU @ U.T, space.gather(x, DU)
    if system.dense:
        W = system.solve(np.concatenate((C, now.E2[None])))
        CW = C.dot(W.T)
        db = _solution(A - CW[:, :-1], -now.E1 - CW[:, -1])
        return db, db.dot(W[:-1]) - W[-1], system
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
