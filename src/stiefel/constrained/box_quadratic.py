"""A quadratic function on a box: the dual of the steps of `sequential`.

    min ½⟨ν, Mν⟩ + ⟨q, ν⟩   subject to   l ≤ ν ≤ u,      M symmetric and positive semidefinite

Which entries lie at a bound is guessed from the last ν, the others solve a linear system, and the
guess is corrected by the signs of the result, as long as that gets anywhere: two or three systems.
Where it does not, an active-set method that always ends takes over.
"""

from __future__ import annotations

import numpy as np
import scipy

from stiefel.types import Array

DUAL_RIDGE = 1e-15  # of the largest diagonal entry of M: two rows may be one
MOST_GUESSES = 30


def box_minimum(M: Array, q: Array, lower: Array, upper: Array, start: Array) -> Array:
    """The ν that minimises; ``start`` is a guess."""
    if not len(q):
        return start
    size = float(np.max(np.diagonal(M), initial=0.0))
    if not size > 0:
        return np.where(q > 0, lower, np.where(q < 0, upper, np.clip(0.0, lower, upper)))
    M = M + DUAL_RIDGE * size * np.eye(len(M))
    nu, guess = np.clip(start, lower, upper), None
    for _ in range(MOST_GUESSES):
        pull = nu - (M @ nu + q) / size
        at = np.where(pull <= lower, -1, np.where(pull >= upper, 1, 0))
        if guess is not None and np.array_equal(at, guess):
            return nu
        guess = at
        nu = np.where(at < 0, lower, np.where(at > 0, upper, 0.0))
        free = np.flatnonzero(at == 0)
        if len(free):
            rhs = -(q + M @ nu)[free]
            nu[free] = _solution(M[np.ix_(free, free)], rhs)
    return _active_set(M, q, lower, upper)


def _solution(M: Array, rhs: Array) -> Array:
    factor, failed = scipy.linalg.lapack.dpotrf(M, lower=1)
    if failed:
        return np.linalg.lstsq(M, rhs, rcond=None)[0]
    return scipy.linalg.lapack.dpotrs(factor, rhs, lower=1)[0]


def _active_set(M: Array, q: Array, lower: Array, upper: Array) -> Array:
    theta, V = np.linalg.eigh(M)
    theta = np.maximum(theta, DUAL_RIDGE * theta[-1])
    R, target = np.sqrt(theta)[:, None] * V.T, -(V.T @ q) / np.sqrt(theta)
    same = lower == upper
    nu = np.array(lower, dtype=float)
    if not same.all():
        target = target - R[:, same] @ nu[same]
        bounds = lower[~same], upper[~same]
        nu[~same] = scipy.optimize.lsq_linear(R[:, ~same], target, bounds, method="bvls").x
    return nu
