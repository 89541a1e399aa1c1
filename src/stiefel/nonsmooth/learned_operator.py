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
from typing import Any, NamedTuple

import numpy as np
import scipy

from stiefel.backends.arrays import kernels_for
from stiefel.types import Array

from .composite import Composite, ProximalPoint, Value
from .space import Space

ASYMMETRY = 1e-6  # of K: more, and f is not of this kind
NEW = 1e-3  # of a column that lies outside the span: less would show rounding more than A
EPS = float(np.finfo(float).eps)
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
        W = self.T.dot(S)
        W /= self.theta[:, None]
        return self.T.T.dot(W)

    def extended(self, Q: Array, R: Array) -> NystromModel:
        """Â that is exact for the rows of Q too, with R = (A − Â)Q, rows as well."""
        return self.with_rows(*_squares_of(Q, R))

    def with_rows(self, T: Array, theta: Array) -> NystromModel:
        """Â + TᵀΘ⁻¹T, without what is rounding."""
        both = np.concatenate((self.theta, theta))
        sizes = np.abs(both)
        kept = sizes > len(both) * EPS * sizes.max(initial=0.0)  # as in any pseudo-inverse
        kept[: len(self.theta)] = True
        T = np.concatenate((self.T, T))
        return NystromModel(T, both) if kept.all() else NystromModel(T[kept], both[kept])


def _squares_of(Q: Array, R: Array) -> tuple[Array, Array]:
    """T and Θ with Rᵀ(QRᵀ)⁻¹R = TᵀΘ⁻¹T."""
    K = R.dot(Q.T)
    theta, V = _eigh(0.5 * (K + K.T))
    return V.T.dot(R), theta


def _eigh(A: Array) -> tuple[Array, Array]:
    """Eigenvalues and vectors of a small matrix; NumPy's wrapper costs more than the work."""
    if len(A) == 1:
        return A[0], _ONE
    values, vectors, _ = scipy.linalg.lapack.dsyevd(A)
    return values, vectors


_ONE = np.ones((1, 1))


_NOTHING = np.zeros((0, 0))


class Lesson(NamedTuple):
    """What a step shows of A."""

    error: float  # of Â
    Q: Array = _NOTHING  # new directions, orthonormal rows
    P: Array = _NOTHING  # AQ
    T: Array = _NOTHING  # rows that Â grows by
    theta: Array = _NOTHING
    asymmetry: float = 0.0  # of the new rows of K, squared
    squares: float = 0.0  # of the new rows of K


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
        fast = kernels_for(step).compiled
        lesson = self._lesson(S, Y) if fast is None else self._compiled_lesson(fast, S, Y)
        if lesson.error <= KNOWN:
            return self._replace(error=lesson.error)
        squares = self.squares + lesson.squares
        symmetric = lesson.asymmetry <= ASYMMETRY**2 * squares
        if not symmetric or len(self.Q) + len(lesson.Q) > MOST_BLOCKS * S.shape[1]:
            return NO_OPERATOR
        Q, P = np.concatenate((self.Q, lesson.Q)), np.concatenate((self.P, lesson.P))
        model = self.model.with_rows(lesson.T, lesson.theta)
        return LearnedOperator(Q, P, model, squares, lesson.error)

    def _lesson(self, S: Array, Y: Array) -> Lesson:
        """What the columns of a step show."""
        R = Y - self.model.times(S)
        error = _ratio(R, Y) if len(self.Q) else math.inf
        if error <= KNOWN:
            return Lesson(error)
        Q, P, R = self._new_columns(S, Y, R)
        aside, own = Q.dot(self.P.T), Q.dot(P.T)
        wrong = _square(aside - P.dot(self.Q.T)) + _square(own - own.T)
        return Lesson(error, Q, P, *_squares_of(Q, R), wrong, 2.0 * _square(aside) + _square(own))

    def _compiled_lesson(self, kernels: Any, S: Array, Y: Array) -> Lesson:
        """The same by `src/compiled/learned.c`."""
        n, k = S.shape
        (Q, P, T), theta = np.empty((3, k, n)), np.empty(k)
        known = self.Q, self.P, self.model.T, self.model.theta
        error, new, wrong, squares = kernels.learn_columns(
            *known, S, Y, k, KNOWN, NEW, Q, P, T, theta
        )
        if new < 0:
            return Lesson(error)
        return Lesson(error, Q[:new], P[:new], T[:new], theta[:new], wrong, squares)

    def _new_columns(self, S: Array, Y: Array, R: Array) -> tuple[Array, Array, Array]:
        """The new directions of the columns of S, as orthonormal rows, and A and A − Â of them.

        Â is exact for Q, so that (A − Â)S is that of what is new in S.  One projection is enough:
        its rounding is enlarged by 1/NEW at most.
        """
        sizes = np.sqrt(S.T.dot(S).diagonal())
        sizes[sizes == 0.0] = 1.0
        if len(self.Q):
            C = self.Q.dot(S)
            S, Y = S - self.Q.T.dot(C), Y - self.P.T.dot(C)
        squares, V = _eigh(S.T.dot(S) / np.multiply.outer(sizes, sizes))
        new = squares > NEW**2
        if not new.all():
            squares, V = squares[new], V[:, new]
        V = V / (sizes[:, None] * np.sqrt(squares))
        return V.T.dot(S.T), V.T.dot(Y.T), V.T.dot(R.T)


NO_OPERATOR = LearnedOperator(_NOTHING, _NOTHING, NystromModel.nothing(0), possible=False)


def _square(A: Array) -> float:
    return float(np.vdot(A, A))


def _ratio(part: Array, whole: Array) -> float:
    size = _square(whole)
    return math.sqrt(_square(part) / size) if size > 0 else 0.0


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


def surrogate(
    problem: Composite, at: ProximalPoint, operator: LearnedOperator, target: float
) -> Surrogate:
    """f̂ + h around ``at``, to be minimised until χ is at its target."""
    given = {f.name: getattr(problem, f.name) for f in fields(problem)}
    given |= {"_newest": [], "target": target}
    model = NystromModel.nothing(operator.Q.shape[1]).extended(operator.Q, operator.P)
    return Surrogate(**given, centre=at, model=model)
