"""Functions tr(XᵀAXM) recognised from two gradients, and the points where they are least.

With ∇f(X) = A X M for symmetric A and M, and D = M⁻¹,

    A X_j = ∇f(X_j) D,    K_jl D = D K_ljᵀ    with K_jl = X_jᵀ∇f(X_l)

at all points j, l where f was evaluated.  The second set of equations is linear in D: the start and
a trial give 2k² − k of them for the k(k + 1)/2 − 1 ratios of its entries.  Where some D solves them
to many digits, the search waits, and f is evaluated at the points that complete the start to an
orthonormal basis.  All of A is then known, A = Σ ∇f(X_j) D X_jᵀ, and n(n − 1)/2 equations say once
more whether f is what it seems.  It is least where the columns of X are eigenvectors of A and of D:
those of the lowest values of A where M is positive, the largest M with the lowest, and those of the
highest where it is negative.  Equal values of M leave a rotation open, which is the nearest one to
the start.

The next evaluation is there, and that point is taken if f is lower: otherwise the search goes on
with the trial at which it waits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np

from stiefel.types import Array

from .kernels import PerProblem
from .numpy_many import Side, empty, stored

GATE = 1e-10  # the part of all K_jl D that may be asymmetric
LARGEST_N = 40  # rows; an eigenproblem of this size costs as much as 20 evaluations
EQUAL_M = 1e-6  # values of M that differ by less, relative to the largest
FEW_POINTS = 20  # which cost less than a search; before more of them it has as many evaluations


class TraceModel(NamedTuple):
    """What is known about the structure of every problem."""

    points: Array  # (B, P, n, k): the start, and what completes it to a basis
    gradients: Array  # Euclidean and scaled
    count: Array  # of evaluations; a number, or (B,) where problems are not in step
    target: Array  # where problems leap to: the next of their points, or where f is least
    leaps: Array  # (B,), whether the next evaluation is there
    open: Array  # (B,), whether f may have the structure
    gamma: Array  # (B,), the inverse of the largest curvature

    @property
    def complete(self) -> Array:
        """Whether targets are where functions are least."""
        P = self.points.shape[1]
        return self.count >= evaluations_before(P) + P

    def closed(self) -> TraceModel:
        """Without the points, which are not needed any more."""
        nothing = self.points[:, :0].copy()
        return self._replace(points=nothing, gradients=nothing)


@dataclass(frozen=True)
class Recogniser:
    """What one evaluation after the other says about the structure of functions."""

    k: PerProblem

    def start(self, x: Array, none: Array) -> TraceModel:
        count, n, k = x.shape
        room = (count, points_needed(n, k), n, k)
        points, gradients = (empty(room, float).view(Side) for _ in range(2))
        stored(points)[0] = stored(x)
        return TraceModel(points, gradients, np.intp(0), x, none, ~none, 0.0 * none)

    def after(
        self, model: TraceModel, X: Array, E: Array, scale: Array, running: Array
    ) -> TraceModel:
        """``model`` after gradients scale·E at X: the start, some trials, then the points."""
        points, gradients, count = model.points, model.gradients, int(model.count)
        look, none = model.open & running, running & ~running
        if not self.k.some(look):
            return model.closed() if points.shape[1] else model
        seen = count - evaluations_before(points.shape[1])  # points beside the start
        model = model._replace(count=model.count + 1)
        if count == 0 or seen > 0:
            np.multiply(stored(E), scale, out=stored(gradients)[max(seen, 0)])
        if seen == 0:
            both = points, gradients[:, 0], X, E, scale
            points, look = self.k.on_some(look, self.points, both, (points, none))
            model = model._replace(points=points, open=look)
        if model.complete:
            default = X, none, model.gamma
            target, look, gamma = self.k.on_some(look, self.targets, (points, gradients), default)
            return model._replace(target=target, leaps=look, open=look, gamma=gamma)
        return model._replace(target=points[:, seen + 1], leaps=look) if seen >= 0 else model

    def points(
        self, points: Array, G: Array, X: Array, E: Array, scale: Array
    ) -> tuple[Array, Array]:
        """Points to be seen from the first of them on; whether G there and scale·E at X fit."""
        x, G, X = map(self.k.shown, (points[:, 0], G, X))
        E = self.k.spread_out(scale, E) * E
        fit = fits(np.stack([x, X], axis=1), np.stack([G, E], axis=1))
        return self.k.own(completed(x)), fit

    def targets(self, points: Array, gradients: Array) -> tuple[Array, Array, Array]:
        target, known, gamma = recognised(*map(self.k.shown, (points, gradients)))
        return self.k.own(target), known, gamma


def points_needed(n: int, k: int) -> int:
    return math.ceil(n / k)


def evaluations_before(points: int) -> int:
    """Of the start and of trials, before points are asked for; the last of them is looked at."""
    return 1 if points <= FEW_POINTS else points


def evaluations_needed(n: int, k: int) -> int:
    """Until f is evaluated where it is least."""
    return points_needed(n, k) + evaluations_before(points_needed(n, k)) + 1


def completed(x: Array) -> Array:
    """x and the points that complete it to a basis, (B, P, n, k); the last repeats columns of x."""
    xp, (n, k), P = x.__array_namespace__(), x.shape[1:], points_needed(*x.shape[1:])
    others = xp.linalg.qr(x, mode="complete")[0][..., k:]
    Q = xp.concat([x, others, x[..., : P * k - n]], axis=2)
    return Q.reshape(-1, n, P, k).transpose(0, 2, 1, 3)


def fits(X: Array, E: Array) -> Array:
    """Whether gradients E at points X, both (B, P, n, k), are those of some A and M."""
    return symmetrising_columns(*_transposed(X, E))[2] <= GATE


def recognised(X: Array, E: Array) -> tuple[Array, Array, Array]:
    """Where f is least, near X[:, 0], whether that is known, and 1/max curvature.

    X, as `completed` made it, and E have shape (B, P, n, k).
    """
    (U, V), x, n = _transposed(X, E), X[:, 0], X.shape[2]
    D, K, left = symmetrising_columns(U, V)
    H, Q = K[:, :n, :n], _tall(U)[:, :n].mT  # A in the basis Q
    Y, regular, gamma = minimum(0.5 * (H + H.mT), Q, D, x)
    return Y, regular & (left <= GATE), gamma


def _transposed(X: Array, E: Array) -> tuple[Array, Array]:
    """X_jᵀ and ∇f(X_j)ᵀ, (B, P, k, n), of problems where all are finite, or zero."""
    xp = X.__array_namespace__()
    finite = xp.isfinite(_norm(X) + _norm(E))[:, None, None, None]
    return xp.where(finite, X, 0.0).mT, xp.where(finite, E, 0.0).mT


def minimum(H: Array, basis: Array, D: Array, x: Array) -> tuple[Array, Array, Array]:
    """Where f is least, near x; whether there is such a point; 1/max curvature.

    H is A in the basis.  Second derivatives of f are differences of values of A, times values of M.
    """
    xp = H.__array_namespace__()
    of_D, Q = xp.linalg.eigh(D)
    regular = xp.all(of_D != 0, axis=1)
    mu = 1.0 / xp.where(regular[:, None], of_D, 1.0)
    values, V = xp.linalg.eigh(H)
    Y = least(basis @ V, mu, Q, x)
    most = xp.max(xp.abs(mu), axis=1) * (values[:, -1] - values[:, 0])
    known = regular & (most > 0) & xp.isfinite(Y).all(axis=(1, 2))
    return Y, known, 1.0 / xp.where(most > 0, most, 1.0)


def symmetrising_columns(U: Array, V: Array) -> tuple[Array, Array, Array]:
    """D of norm one with K_jl D = D K_ljᵀ, all K_jl D in one matrix, and its asymmetric part.

    ½ Σ‖K_jl D − D K_ljᵀ‖² = Σ Tr(D K_jlᵀK_jl D) − Σ Tr(K_jl D K_lj D) is a form in the entries of
    D; the sums over j and l are one matrix of k² rows each.
    """
    xp, (count, P, k, _) = U.__array_namespace__(), U.shape
    K = _tall(U) @ _tall(V).mT
    blocks = K.reshape(count, P, k, P, k)
    there, back = (
        xp.permute_dims(blocks, axes).reshape(count, P * P, k * k)
        for axes in ((0, 1, 3, 2, 4), (0, 3, 1, 2, 4))
    )
    S, first, second = _forms(k)
    form = (there.mT @ there).reshape(count, -1) @ xp.asarray(first)
    form = form - (there.mT @ back).reshape(count, -1) @ xp.asarray(second)
    form = form.reshape(count, len(S), len(S))
    v = xp.linalg.eigh(form + form.mT)[1][..., 0]
    D = (v @ xp.asarray(S.reshape(len(S), -1))).reshape(count, k, k)
    KD = (K.reshape(count, P * k * P, k) @ D).reshape(K.shape)
    return D, KD, _norm(KD - KD.mT) / _positive(_norm(KD))


@cache
def _forms(k: int) -> tuple[Array, Array, Array]:
    """A basis S of symmetric matrices; what Tr(S_r KᵀK S_s) and Tr(K S_r K' S_s) are made of."""
    rows, cols = np.triu_indices(k)
    S = np.zeros((len(rows), k, k))
    S[range(len(rows)), rows, cols] = S[range(len(rows)), cols, rows] = 1.0
    one = np.eye(k)
    first = np.einsum("xy,rzc,scw->xwyzrs", one, S, S)  # K_xw K_yz, x = y
    second = np.einsum("rcd,sea->acders", S, S)  # K_ac K'_de
    return S, first.reshape(k**4, -1), second.reshape(k**4, -1)


def least(V: Array, mu: Array, Q: Array, x: Array) -> Array:
    """The point with eigenvectors V of A in the columns of M = Q μ Qᵀ that is nearest to x."""
    xp, (n, k) = x.__array_namespace__(), x.shape[1:]
    order = xp.argsort(-mu, axis=1)
    mu, Q = xp.take_along_axis(mu, order, 1), xp.take_along_axis(Q, order[:, None], 2)
    place = xp.arange(k) + xp.where(mu > 0, 0, n - k)
    V = xp.take_along_axis(V, place[:, None], 2)
    equal = xp.abs(mu[:, :, None] - mu[:, None])
    equal = equal <= EQUAL_M * xp.max(xp.abs(mu), axis=1)[:, None, None]
    left, _, right = xp.linalg.svd(xp.where(equal, V.mT @ x @ Q, 0.0))
    Y = V @ left @ right @ Q.mT
    return 1.5 * Y - 0.5 * Y @ (Y.mT @ Y)  # some rounding errors nearer to the manifold


def _tall(U: Array) -> Array:
    """All points of a problem in one matrix of n columns."""
    return U.reshape(U.shape[0], -1, U.shape[-1])


def _norm(A: Array) -> Array:
    xp, squares = A.__array_namespace__(), (A * A).reshape(A.shape[0], -1)
    return xp.sqrt(squares @ xp.ones(squares.shape[1]))


def _positive(size: Array) -> Array:
    return size.__array_namespace__().where(size > 0, size, np.nan)
