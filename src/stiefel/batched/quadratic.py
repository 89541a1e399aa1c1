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
from typing import NamedTuple

import numpy as np

from stiefel.types import Array

from .numpy_many import Side, empty, stored

SPARE_POINTS = 1  # trials along one ray have their rows in common
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
    return math.ceil(n / k) + SPARE_POINTS


def recognised(X: Array, E: Array, x: Array) -> tuple[Array, Array, Array]:
    """Where f is least, near x, whether that is known, and whether f has the symmetry at least.

    X and E have shape (B, P, n, k).
    """
    finite = np.isfinite(E).all(axis=(1, 2, 3)) & np.isfinite(X).all(axis=(1, 2, 3))
    X, E = (np.where(finite[:, None, None, None], a, 0.0) for a in (X, E))
    D, left = symmetrising_columns(X, E)
    A, asymmetry = operator(X, E @ D[:, None])
    fits = finite & (left <= GATE)
    values, Q = np.linalg.eigh(D)
    regular: Array = values.all(axis=1)
    Y = least(np.linalg.eigh(A)[1], 1.0 / np.where(regular[:, None], values, 1.0), Q, x)
    return Y, fits & regular & (asymmetry <= GATE) & np.isfinite(Y).all(axis=(1, 2)), fits


def symmetrising_columns(X: Array, E: Array) -> tuple[Array, Array]:
    """D of norm one with K_jl D = D K_ljᵀ, and what is left over, relative to all."""
    k = X.shape[-1]
    rows, columns = np.triu_indices(k)
    S = np.zeros((len(rows), k, k))
    S[range(len(rows)), rows, columns] = S[range(len(rows)), columns, rows] = 1.0
    K = np.einsum("bpia,bqic->bpqac", X, E)
    M = np.einsum("bpqac,rcd->brpqad", K, S) - np.einsum("rac,bqpdc->brpqad", S, K)
    M = M.reshape(len(X), len(S), -1)
    v = np.linalg.eigh(M @ M.mT)[1][..., 0]
    left, size = np.einsum("br,bri->bi", v, M), np.linalg.norm(K.reshape(len(X), -1), axis=1)
    return np.einsum("br,rac->bac", v, S), np.linalg.norm(left, axis=1) / _positive(size)


def operator(X: Array, Z: Array) -> tuple[Array, Array]:
    """The A with A X_j = Z_j nearly, made symmetric, and how much of it was not."""
    count, P, n, k = X.shape
    U, Z = (a.transpose(0, 1, 3, 2).reshape(count, P * k, n) for a in (X, Z))
    Q, R = np.linalg.qr(U)
    diagonal = np.einsum("bii->bi", R)
    least = np.finfo(float).eps * np.abs(diagonal).max(axis=1, keepdims=True) + 1e-300
    diagonal[...] = np.where(np.abs(diagonal) < least, least, diagonal)
    A = np.linalg.solve(R, Q.mT @ Z)
    size = np.linalg.norm(A, axis=(1, 2))
    skew = np.linalg.norm(A - A.mT, axis=(1, 2))
    A = np.where(np.isfinite(size)[:, None, None], 0.5 * (A + A.mT), 0.0)
    return A, skew / _positive(size)


def least(V: Array, mu: Array, Q: Array, x: Array) -> Array:
    """The point with eigenvectors V of A in the columns of M = Q μ Qᵀ that is nearest to x."""
    n, k = x.shape[1:]
    order = np.argsort(-mu, axis=1)
    mu, Q = np.take_along_axis(mu, order, 1), np.take_along_axis(Q, order[:, None], 2)
    place = np.arange(k) + np.where(mu > 0, 0, n - k)
    V = np.take_along_axis(V, place[:, None], 2)
    equal = np.abs(mu[:, :, None] - mu[:, None]) <= EQUAL_M * np.abs(mu).max(axis=1)[:, None, None]
    m = np.where(equal, V.mT @ x @ Q, 0.0)
    left, _, right = np.linalg.svd(m)
    return V @ left @ right @ Q.mT


def _positive(size: Array) -> Array:
    return np.where(size > 0, size, np.nan)
