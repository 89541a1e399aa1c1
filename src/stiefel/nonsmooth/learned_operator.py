"""The operator of a quadratic f, learned from the columns of its steps.

If ∇f(X + S) − ∇f(X) = AS with one symmetric A for all columns and all points, every step shows k
products of A.  With Q an orthonormal basis of the columns seen, P = AQ and K = QᵀP,

    Â = P K⁺ Pᵀ,      f̂(Y) = f(X) + ⟨G, Y−X⟩ + ½⟨Y−X, Â(Y−X)⟩

is exact once Q has as many columns as A has rank.  Two numbers decide, both taken before a step is
learned from: the asymmetry of K says whether f has an operator at all, and ‖ΔG − ÂS‖/‖ΔG‖, the
error of what Â foretells, whether it is known.  An affine part of ∇f does not matter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np

from stiefel.types import Array

from .composite import Composite, ProximalPoint, Value
from .space import Space

ASYMMETRY = 1e-6  # of K: more, and f is not of this kind
NEW = 1e-3  # of a column that lies outside the span: less would show rounding more than A
KNOWN = 1e-6  # an error at which there is nothing more to learn
MOST_BLOCKS = 20  # blocks of k columns: then A has no small rank, and is left alone


class LearnedOperator(NamedTuple):
    """What is known of A."""

    Q: Array  # (p, n), orthonormal rows
    P: Array  # AQ, likewise
    error: float = math.inf  # of the last step foretold
    possible: bool = True

    @classmethod
    def unknown(cls, space: Space) -> LearnedOperator:
        """Nothing known yet; of one real matrix something can be."""
        if space.matrix is None:
            return NO_OPERATOR
        empty = np.zeros((0, space.matrix[0]))
        return cls(empty, empty)

    def model(self) -> NystromModel:
        return NystromModel(self.Q, self.P)

    def after(self, step: Array, change: Array) -> LearnedOperator:
        """What is known after a step of f with its change of gradient, as flat vectors."""
        if not self.possible:
            return self
        n = self.Q.shape[1]
        S, Y = (v.reshape(n, -1).T for v in (step, change))
        error = _ratio(Y - self.model().times(S), Y) if len(self.Q) else math.inf
        if error <= KNOWN:
            return self._replace(error=error)
        Q, P = _extended(self.Q, self.P, S, Y)
        K = Q @ P.T
        symmetric = _ratio(K - K.T, K) <= ASYMMETRY
        if not symmetric or len(Q) > MOST_BLOCKS * len(S):
            return NO_OPERATOR
        return LearnedOperator(Q, P, error)


NO_OPERATOR = LearnedOperator(np.zeros((0, 0)), np.zeros((0, 0)), possible=False)


class NystromModel:
    """S ↦ ÂS for rows S."""

    def __init__(self, Q: Array, P: Array) -> None:
        K = Q @ P.T
        theta, V = np.linalg.eigh(0.5 * (K + K.T))
        rounding = len(K) * np.finfo(float).eps  # as in any pseudo-inverse
        kept = np.abs(theta) > rounding * np.abs(theta).max(initial=0.0)
        self._T, self._inverse = V[:, kept].T @ P, 1.0 / theta[kept]

    def times(self, S: Array) -> Array:
        return ((S @ self._T.T) * self._inverse) @ self._T


def _extended(Q: Array, P: Array, S: Array, Y: Array) -> tuple[Array, Array]:
    """Q and P with the directions of S that are new."""
    sizes = np.linalg.norm(S, axis=1, keepdims=True)
    kept = sizes[:, 0] > 0
    S, Y = S[kept] / sizes[kept], Y[kept] / sizes[kept]
    for _ in range(2):
        C = S @ Q.T
        S, Y = S - C @ Q, Y - C @ P
    U, s, Vt = np.linalg.svd(S, full_matrices=False)
    new = s > NEW
    return np.vstack([Q, Vt[new]]), np.vstack([P, (U.T @ Y)[new] / s[new, None]])


def _ratio(part: Array, whole: Array) -> float:
    size = float(np.linalg.norm(whole))
    return float(np.linalg.norm(part)) / size if size > 0 else 0.0


@dataclass(frozen=True)
class Surrogate(Composite):
    """f̂ + h around a point: costs no evaluation of f."""

    centre: ProximalPoint = None  # type: ignore[assignment]
    model: NystromModel = None  # type: ignore[assignment]

    def evaluate(self, x: Array) -> Value:
        at, v = self.centre, x - self.centre.x
        Av = self._times(v)
        return Value(at.f + float((at.g + 0.5 * Av) @ v), self._term(x), at.g + Av)

    def product(self, X: Array, W: Array) -> Array:
        """ÂW, in the solvers' form."""
        return self.space.point(self._times(self.space.flat(W)))

    def _times(self, v: Array) -> Array:
        return self.model.times(v.reshape(self.space.matrix).T).T.ravel()


def surrogate(problem: Composite, at: ProximalPoint, operator: LearnedOperator) -> Surrogate:
    """f̂ + h around ``at``, with products by its Hessian."""
    given = {f.name: getattr(problem, f.name) for f in fields(problem)} | {"_newest": []}
    found = Surrogate(**given, centre=at, model=operator.model())
    return replace(found, hessp=found.product)
