"""Functions tr(XᵀAXM) recognised from a few gradients, and the points where they are least.

Small matrices show all of A soon: with ∇f(X) = A X M and D = M⁻¹,

    A X_j = ∇f(X_j) D,    K_jl D = D K_ljᵀ    with K_jl = X_jᵀ∇f(X_l)

at all points j, l where f was evaluated, accepted or not.  The second set of equations is linear in
D, and has no other solution but multiples of it; the first one is a least-squares problem for A
once the points span all rows.  If both are solved to many digits, f is least where the columns of X
are eigenvectors of A and of D: those of the lowest values of A where M is positive, the largest M
with the lowest, and those of the highest where it is negative.  Equal values of M leave a rotation
open, which is the nearest one to x.

The next evaluation is there, and that point is taken if f is lower: a function that is not what it
seems loses one evaluation, and its search goes on.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from stiefel.types import Array

from .numpy_many import Side, empty, stored

SPARE_POINTS = 1.25  # times those that span all rows: points of a descent lie near each other
MOST_POINTS = 2  # times those for the first look
GATE = 1e-7  # the part of K_jl D, and of A, that may be asymmetric
LARGEST_N = 40  # rows; an eigenproblem of this size costs as much as 20 evaluations
EQUAL_M = 1e-6  # values of M that differ by less, relative to the largest


class TraceModel(NamedTuple):
    """What is known about the structure of every problem."""

    points: Array  # (B, P, n, k), until they are enough
    gradients: Array  # Euclidean and scaled
    count: Array  # of points, a number
    target: Array  # the points where functions are least
    leaps: Array  # (B,), whether the next evaluation is there
    open: Array  # (B,), whether the structure is looked for

    def seen(self, X: Array, E: Array, scale: Array) -> TraceModel:
        """With one more point, written into its place."""
        stored(self.points)[self.count] = stored(X)
        np.multiply(stored(E), scale, out=stored(self.gradients)[self.count])
        return self._replace(count=self.count + 1)

    def closed(self) -> TraceModel:
        """Without the points, which are not needed any more."""
        if self.points.shape[1] == 0:
            return self
        nothing = self.points[:, :0].copy()
        return self._replace(points=nothing, gradients=nothing)


def nothing_seen(x: Array, none: Array) -> TraceModel:
    count, n, k = x.shape
    room = (count, MOST_POINTS * points_needed(n, k), n, k)
    points, gradients = (empty(room, float).view(Side) for _ in range(2))
    return TraceModel(points, gradients, np.intp(0), x, none, ~none)


def points_needed(n: int, k: int) -> int:
    """For a first look: one more than can span all rows, so that few problems need a second."""
    return max(math.ceil(n / k) + 1, math.ceil(SPARE_POINTS * n / k))


def recognised(X: Array, E: Array, x: Array) -> tuple[Array, Array, Array]:
    """Where f is least, near x, whether that is known, and whether f has the symmetry at least.

    X and E have shape (B, P, n, k).
    """
    U, V, D, fits = columns(X.mT, E.mT)
    A, known = operator(U, D[:, None] @ V)
    Y, regular = minimum(A, D, x)
    return Y, fits & known & regular, fits


def columns(U: Array, V: Array) -> tuple[Array, Array, Array, Array]:
    """X_jᵀ and ∇f(X_j)ᵀ, (B, P, k, n), where they are finite; D, and whether it explains them."""
    xp = U.__array_namespace__()
    finite = xp.isfinite(_norm(U) + _norm(V))
    U, V = (xp.where(finite[:, None, None, None], a, 0.0) for a in (U, V))
    D, _, left = symmetrising_columns(U, V)
    return U, V, D, finite & (left <= GATE)


def minimum(A: Array, D: Array, x: Array) -> tuple[Array, Array]:
    """Where f is least, near x, and whether there is such a point."""
    xp = A.__array_namespace__()
    values, Q = xp.linalg.eigh(D)
    regular = xp.all(values != 0, axis=1)
    Y = least(xp.linalg.eigh(A)[1], 1.0 / xp.where(regular[:, None], values, 1.0), Q, x)
    return Y, regular & xp.isfinite(Y).all(axis=(1, 2))


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


def operator(U: Array, Z: Array) -> tuple[Array, Array]:
    """The A with U_j A = Z_j nearly, made symmetric, and whether it was that to many digits."""
    xp = U.__array_namespace__()
    Q, R = xp.linalg.qr(_tall(U))
    diagonal = xp.abs(xp.einsum("bii->bi", R))
    least = np.finfo(float).eps * xp.max(diagonal, axis=1, keepdims=True) + 1e-300
    R = R + xp.where(diagonal < least, least, 0.0)[:, :, None] * xp.eye(R.shape[-1])
    A = np.linalg.solve(R, Q.mT @ _tall(Z))
    size, skew = _norm(A), _norm(A - A.mT)
    A = xp.where(xp.isfinite(size)[:, None, None], 0.5 * (A + A.mT), 0.0)
    return A, skew <= GATE * _positive(size)


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
    return V @ left @ right @ Q.mT


def _tall(U: Array) -> Array:
    """All points of a problem in one matrix of n columns."""
    return U.reshape(U.shape[0], -1, U.shape[-1])


def _norm(A: Array) -> Array:
    xp, squares = A.__array_namespace__(), (A * A).reshape(A.shape[0], -1)
    return xp.sqrt(squares @ xp.ones(squares.shape[1]))


def _positive(size: Array) -> Array:
    return size.__array_namespace__().where(size > 0, size, np.nan)
