"""The operator of a quadratic f, learned from the columns of its steps.

If ∇f(X + S) − ∇f(X) = AS with one symmetric A for all columns and all points, every step shows k
products of A.  With Q an orthonormal basis of the columns seen, P = AQ and K = QᵀP,

    Â = P K⁺ Pᵀ,      f̂(Y) = f(X) + ⟨G, Y−X⟩ + ½⟨Y−X, Â(Y−X)⟩

is exact once Q has as many columns as A has rank.  New columns q add to it, by the Schur complement
of K, r (qᵀr)⁺ rᵀ with r = Aq − Âq, so that Â = TᵀΘ⁻¹T grows by a few rows of T a step; where it is
used, all of K is inverted at once, which is more exact.  Two numbers decide, both taken before a
step is learned from: the asymmetry of K says whether f has an operator at all, and
‖ΔG − ÂS‖/‖ΔG‖, the error of what Â foretells, whether it is known.  An affine part of ∇f does not
matter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np

from stiefel.types import Array

from .composite import Composite, ProximalPoint, Value
from .space import Space

ASYMMETRY = 1e-6  # of K: more, and f is not of this kind
NEW = 1e-3  # of a column that lies outside the span: less would show rounding more than A
KNOWN = 1e-6  # an error at which there is nothing more to learn
MOST_BLOCKS = 20  # blocks of k columns: then A has no small rank, and is left alone


class NystromModel(NamedTuple):
    """S ↦ ÂS for the columns of S."""

    T: Array  # (p, n)
    theta: Array

    @classmethod
    def nothing(cls, n: int) -> NystromModel:
        """Â = 0."""
        return cls(np.zeros((0, n)), np.zeros(0))

    def times(self, S: Array) -> Array:
        W = self.T @ S
        W /= self.theta[:, None]
        return self.T.T @ W

    def extended(self, Q: Array, P: Array) -> NystromModel:
        """Â that is exact for the rows of Q too, with P = AQ."""
        R = P - self.times(Q.T).T
        K = R @ Q.T
        theta, V = np.linalg.eigh(0.5 * (K + K.T))
        largest = max(np.abs(theta).max(initial=0.0), np.abs(self.theta).max(initial=0.0))
        rounding = (len(self.theta) + len(K)) * np.finfo(float).eps  # as in any pseudo-inverse
        kept = np.abs(theta) > rounding * largest
        return NystromModel(
            np.vstack([self.T, V[:, kept].T @ R]), np.append(self.theta, theta[kept])
        )


class LearnedOperator(NamedTuple):
    """What is known of A."""

    Q: Array  # (p, n), orthonormal rows
    P: Array  # AQ, likewise
    model: NystromModel
    squares: float = 0.0  # ‖K‖²
    error: float = math.inf  # of the last step foretold
    possible: bool = True

    @classmethod
    def unknown(cls, space: Space) -> LearnedOperator:
        """Nothing known yet; of one real matrix something can be."""
        if space.matrix is None:
            return NO_OPERATOR
        empty = np.zeros((0, space.matrix[0]))
        return cls(empty, empty, NystromModel.nothing(space.matrix[0]))

    def after(self, step: Array, change: Array) -> LearnedOperator:
        """What is known after a step of f with its change of gradient, as flat vectors."""
        if not self.possible:
            return self
        n = self.Q.shape[1]
        S, Y = step.reshape(n, -1), change.reshape(n, -1)
        error = _ratio(Y - self.model.times(S), Y) if len(self.Q) else math.inf
        if error <= KNOWN:
            return self._replace(error=error)
        Q, P = self._new_columns(S.T, Y.T)
        aside, own = Q @ self.P.T, Q @ P.T
        wrong = np.hstack([aside - P @ self.Q.T, own - own.T])
        squares = self.squares + 2.0 * float(np.vdot(aside, aside)) + float(np.vdot(own, own))
        symmetric = float(np.vdot(wrong, wrong)) <= ASYMMETRY**2 * squares
        if not symmetric or len(self.Q) + len(Q) > MOST_BLOCKS * S.shape[1]:
            return NO_OPERATOR
        model = self.model.extended(Q, P)
        return LearnedOperator(
            np.vstack([self.Q, Q]), np.vstack([self.P, P]), model, squares, error
        )

    def _new_columns(self, S: Array, Y: Array) -> tuple[Array, Array]:
        """The directions of the rows of S that are new, orthonormal, and A times them."""
        sizes = np.sqrt(np.einsum("ij,ij->i", S, S))[:, None]
        sizes[sizes == 0.0] = 1.0
        S, Y = S / sizes, Y / sizes
        for _ in range(2 if len(self.Q) else 0):
            C = S @ self.Q.T
            S, Y = S - C @ self.Q, Y - C @ self.P
        squares, V = np.linalg.eigh(S @ S.T)
        new = squares > NEW**2
        V = V[:, new] / np.sqrt(squares[new])
        return V.T @ S, V.T @ Y


_NOTHING = np.zeros((0, 0))
NO_OPERATOR = LearnedOperator(_NOTHING, _NOTHING, NystromModel.nothing(0), possible=False)


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

    def hessian_product(self, X: Array, w: Array) -> Array:
        return self._times(w)

    def _times(self, v: Array) -> Array:
        return self.model.times(v.reshape(self.space.matrix)).ravel()


def surrogate(problem: Composite, at: ProximalPoint, operator: LearnedOperator) -> Surrogate:
    """f̂ + h around ``at``."""
    given = {f.name: getattr(problem, f.name) for f in fields(problem)} | {"_newest": []}
    model = NystromModel.nothing(operator.Q.shape[1]).extended(operator.Q, operator.P)
    return Surrogate(**given, centre=at, model=model)
