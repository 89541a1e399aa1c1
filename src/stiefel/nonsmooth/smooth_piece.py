"""A quasi-Newton step along the orthonormal matrices with the zeros of x, for terms that bend.

Row norms and the moduli of complex numbers have a curvature h'' of their own where they are not
zero, and there f alone may have none that is positive: `quasi_newton` leaves such pairs out and
creeps.  On M_S, with the zeros of x, F = f + h is smooth, and its pairs are

    s ↦ P(ΔG + h''(x)[s] − sΛ),    Λ the multiplier of M_S at x,  P the projection to its tangents

of which the usual inverse BFGS matrix is made.  One evaluation a step, as everywhere.
"""

from __future__ import annotations

import math

import numpy as np

from stiefel.types import Array

from .composite import Composite, ProximalPoint
from .pattern import Tangents

STEADY = 3  # steps for which the zeros have held


def piece_direction(
    problem: Composite, at: ProximalPoint, S: Array, Y: Array, caution: float
) -> tuple[Array, float]:
    """(D, ⟨∇F, D⟩) on the matrices with the zeros of x; S and Y are raw pairs, the newest last."""
    h, space, x = problem.h, problem.space, at.x
    tangents = Tangents(space, x, h.support(x))
    total = at.g + h.gradient(x)
    L, gradient = tangents.multiplier(total), tangents.project(total)
    pairs, gamma = [], 0.0
    for s, y in zip(S, Y):
        p = tangents.project(s)
        q = tangents.project(y + h.hessian(x, s) - space.normal(s, L))
        pq, pp, qq = float(p @ q), float(p @ p), float(q @ q)
        if pq > caution * math.sqrt(pp * qq) > 0:
            pairs.append((p, q, pq))
            gamma = pq / qq
    if not pairs:
        return np.zeros_like(x), 0.0
    d = -_inverse_product(pairs, gamma, gradient)
    return d, float(gradient @ d)


def _inverse_product(pairs: list[tuple[Array, Array, float]], gamma: float, v: Array) -> Array:
    v, parts = v.copy(), []
    for p, q, pq in reversed(pairs):
        a = float(p @ v) / pq
        v -= a * q
        parts.append(a)
    v *= gamma
    for (p, q, pq), a in zip(pairs, reversed(parts)):
        v += (a - float(q @ v) / pq) * p
    return v
