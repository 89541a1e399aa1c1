"""A model of the operator A in ∇²f[S] = A S M, learned from the steps of a run.

Each step S = X⁺ − X shows k secants of one symmetric n×n operator A,

    A S = Y D,    Y = ∇f(X⁺) − ∇f(X),    D = M⁻¹,

exact for a step of any length where f is quadratic.  If also ∇f(X) = A X M, then AX = ∇f(X) D, and
what is known of A is Z = A U on the space of U, which is kept orthogonal to X:

    U ← U − X(XᵀU),    Z ← Z − AX(XᵀU).

The Hessian takes a normal part V to A V M − V C, C = herm(Xᵀ∇f).  With D½CD½ = Q c Qᵀ and
V = v QᵀD½ this is A v − v c, one shifted operator for each column.  With Ritz pairs (θ, U) of A and
e = 1/(θ − c_i), γ_i = 1/(σ − c_i), the inverse of column i is the block BFGS formula

    H_i = (I − U e (Z − Uc_i)ᵀ) γ_i (I − (Z − Uc_i) e Uᵀ) + U e Uᵀ,

positive definite for θ, σ > c.  σ is such that ⟨y, H₀y⟩ = ⟨s, y⟩ for the newest step.  A rotation
X → X exp Ω has curvature −(Λ_i − Λ_j)(μ_i − μ_j) in Ω_ij, in the eigenbasis of M = diag(μ) with
Λ = XᵀAX.

The memory is thick: when it is full, the lowest Ritz vectors and the newest block stay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from stiefel.types import Array, Gradient

from .columns import asymmetry, symmetrising

Small = np.ndarray[Any, Any]


class Rows(NamedTuple):
    """What is known about A.  Vectors are the rows of U and Z; Z is Y while D is not known."""

    U: Array = None
    Z: Array = None
    UU: Array = None  # Gram matrices of the rows
    UZ: Array = None
    ZZ: Array = None
    D: Array = None  # of determinant one
    T: Array = None  # the Ritz vectors are the rows of TᵀU …
    theta: Array = None  # … and these their values
    on: bool = False
    looks: int = 0  # steps looked at while D was not known
    resets: int = 0


OFF = Rows()


class Step(NamedTuple):
    """Where a step began and ended."""

    X0: Array
    at0: Gradient
    X: Array
    at: Gradient


@dataclass(frozen=True)
class RowModel:
    """When the operator is recognised, and how much of it is kept.

    Parameters
    ----------
    blocks : the memory, in blocks of k vectors.
    ritz : how many of them are lowest Ritz vectors once the memory is full.
    gate : the asymmetry up to which a pair is explained.
    looks : steps after which the search for the structure is given up.
    """

    blocks: int = 4
    ritz: int = 2
    gate: float = 1e-6
    looks: int = 60
    pairs: int = 3
    decay: float = 0.1
    rank: float = 1e-6
    skewness: float = 0.3
    rotation_floor: float = 1e-4

    def observe(self, rows: Rows, step: Step) -> Rows:
        """What is known after one more step."""
        if rows.on:
            return self._grown(rows, step)
        if rows.looks >= self.looks:
            return rows
        return self._look(rows, step)

    # -- before D is known -----------------------------------------------------------------

    def _look(self, rows: Rows, step: Step) -> Rows:
        S, Y, error = _differences(step)
        k = S.shape[0]
        if rows.U is not None:
            kept = slice(-(self.pairs - 1) * k, None)
            U, Z = np.concatenate((rows.U[kept], S)), np.concatenate((rows.Z[kept], Y))
            UZ = rows.UZ[kept, kept]
        else:
            U, Z, UZ = S, Y, np.zeros((0, 0))
        UZ = _bordered(UZ, U[:-k].dot(Y.T), S.dot(Z[:-k].T), S.dot(Y.T))
        looks = rows.looks + 1
        gate = self.gate + 100.0 * error
        if rows.D is not None and self._explained(rows.D, U, UZ, gate):
            return self._switched_on(rows._replace(looks=looks), step)
        D = symmetrising(UZ, k) if looks > 1 else None
        return Rows(U, Z, UZ=UZ, D=D, looks=looks)

    def _explained(self, D: Small, U: Small, UZ: Small, gate: float) -> bool:
        """Whether the D of before makes the newest pair symmetric, which was not used for it."""
        k = len(D)
        newest = UZ[-k:, -k:].dot(D)
        return asymmetry(newest, _squares(U[-k:])) <= gate

    def _switched_on(self, rows: Rows, step: Step) -> Rows:
        k = len(rows.D)
        first = Rows(np.empty((0, step.X.shape[0])), np.empty((0, step.X.shape[0])),
            np.zeros((0, 0)), np.zeros((0, 0)), np.zeros((0, 0)), rows.D, np.zeros((0, 0)),
            np.zeros(0), True, rows.looks)
        return self._grown(first, step)

    # -- while it is known -----------------------------------------------------------------

    def _grown(self, rows: Rows, step: Step) -> Rows:
        S, Y, error = _differences(step)
        k = S.shape[0]
        Zs = rows.D.dot(Y)
        X, E = step.X, _euclidean(step.X, step.at)
        AX = rows.D.dot(E.T)
        if len(rows.U) + k > self.blocks * k:
            rows = self._compressed(rows, k)
        S, Zs = _deflated(S, Zs, X, AX)
        U, Z, UU, UZ, ZZ = rows[:5]
        M = U.dot(X)
        XZ = AX.dot(U.T)
        U, Z = U - M.dot(X.T), Z - M.dot(AX)
        UU, UZ, ZZ = U.dot(U.T), U.dot(Z.T), Z.dot(Z.T)
        U1, Z1 = np.concatenate((U, S)), np.concatenate((Z, Zs))
        UU = U1.dot(U1.T)
        UZ = U1.dot(Z1.T)
        ZZ = Z1.dot(Z1.T)
        if asymmetry(UZ, np.diagonal(UU)) > self.decay:
            if asymmetry(UZ[-k:, -k:], np.diagonal(UU)[-k:]) > self.decay:
                return Rows(looks=self.looks)
            U1, Z1, UU, UZ, ZZ = S, Zs, UU[-k:, -k:], UZ[-k:, -k:], ZZ[-k:, -k:]
            rows = rows._replace(resets=rows.resets + 1)
        T, theta = self._ritz(UU, UZ)
        return rows._replace(U=U1, Z=Z1, UU=UU, UZ=UZ, ZZ=ZZ, T=T, theta=theta)

    def _ritz(self, UU: Small, UZ: Small) -> tuple[Small, Small]:
        scale = 1.0 / np.sqrt(np.diagonal(UU))
        values, vectors = np.linalg.eigh(UU * scale * scale[:, None])
        keep = values > self.rank * values[-1]
        T = scale[:, None] * vectors[:, keep] / np.sqrt(values[keep])
        K = T.T.dot(UZ).dot(T)
        theta, W = np.linalg.eigh(0.5 * (K + K.T))
        return T.dot(W), theta

    def _compressed(self, rows: Rows, k: int) -> Rows:
        low = min(self.ritz * k, len(rows.theta))
        newest = rows.T.T.dot(rows.UU[:, -k:])
        basis = np.concatenate((np.eye(len(rows.theta), low), newest), axis=1)
        Q, R = np.linalg.qr(basis)
        C = rows.T.dot(Q)
        return rows._replace(U=C.T.dot(rows.U), Z=C.T.dot(rows.Z), UU=C.T@rows.UU@C, UZ=C.T@rows.UZ@C, ZZ=C.T@rows.ZZ@C)

    # -- the direction ---------------------------------------------------------------------

    def direction(self, rows: Rows, X: Array, at: Gradient, horizontal: bool) -> Array:
        """−H∇f, a tangent."""
        values, vectors = np.linalg.eigh(rows.D)
        root = (vectors * np.sqrt(values)).dot(vectors.T)
        inverse = (vectors / np.sqrt(values)).dot(vectors.T)
        c, Q = np.linalg.eigh(root.dot(at.level).dot(root))
        W, F = root.dot(Q), inverse.dot(Q)
        q = (at.G - X.dot(at.turn)).dot(W)
        theta, T = self._usable(rows, c)
        sigma = _sigma(rows, F, c)
        gamma = 1.0 / (sigma - c)
        Uq, Zq = rows.U.dot(q), rows.Z.dot(q)
        e = 1.0 / (theta[:, None] - c)
        a = e * T.T.dot(Uq)
        b, bc = T.dot(a), T.dot(a * c)
        Uv = gamma * (Uq - rows.UZ.dot(b) + rows.UU.dot(bc))
        Zv = gamma * (Zq - rows.ZZ.dot(b) + rows.UZ.T.dot(bc))
        last = a - e * T.T.dot(Zv - Uv * c)
        v = gamma * q - rows.Z.T.dot(gamma * b) + rows.U.T.dot(gamma * bc + T.dot(last))
        N = v.dot(W.T)
        N -= X.dot(X.T.dot(N))
        if not horizontal:
            N += X.dot(self._rotation(rows, at, values, vectors))
        return -N

    def _usable(self, rows: Rows, c: Small) -> tuple[Small, Small]:
        theta, T = rows.theta, rows.T
        keep = theta > c[-1]
        theta, T = theta[keep], T[:, keep]
        K = T.T.dot(rows.UZ).dot(T)
        scale = 1.0 / np.sqrt(theta - c[-1])
        rough = np.linalg.norm((K - K.T) * 0.5 * scale * scale[:, None], axis=1)
        keep = rough <= self.skewness
        return theta[keep], T[:, keep]

    def _rotation(self, rows: Rows, at: Gradient, values: Small, vectors: Small) -> Small:
        mu = 1.0 / values
        turn = vectors.T.dot(at.turn).dot(vectors)
        Lam = np.diagonal(vectors.T.dot((at.level + at.turn).dot(rows.D)).dot(vectors))
        h = np.abs(0.5 * (Lam[:, None] - Lam) * (mu[:, None] - mu))
        h = np.maximum(h, self.rotation_floor * h.max())
        return vectors.dot(turn / h).dot(vectors.T)


def _euclidean(X: Array, at: Gradient) -> Array:
    """The Euclidean gradient."""
    return at.G + X.dot(at.level)


def _differences(step: Step) -> tuple[Small, Small, float]:
    """Sᵀ, Yᵀ of a step, divided by ‖S‖, and their relative rounding error."""
    E0, E = _euclidean(step.X0, step.at0), _euclidean(step.X, step.at)
    S, Y = step.X - step.X0, E - E0
    length, change = float(np.linalg.norm(S)), float(np.linalg.norm(Y))
    eps = float(np.finfo(S.dtype).eps)
    error = eps * (math.sqrt(S.shape[1]) / length + float(np.linalg.norm(E)) / change)
    return S.T / length, Y.T / length, error


def _deflated(S: Small, Z: Small, X: Array, AX: Small) -> tuple[Small, Small]:
    M = S.dot(X)
    S, Z = S - M.dot(X.T), Z - M.dot(AX)
    size = float(np.linalg.norm(S))
    return S / size, Z / size


def _bordered(K: Small, right: Small, below: Small, corner: Small) -> Small:
    return np.block([[K, right], [below, corner]])


def _squares(S: Small) -> Small:
    return np.einsum("ij,ij->i", S, S)


def _sigma(rows: Rows, F: Small, c: Small) -> float:
    k = len(c)
    last = slice(-k, None)
    uu, uz, zz = (np.einsum("ij,ik,kj->j", F, K[last, last], F) for K in rows[2:5])
    yy = zz - 2.0 * c * uz + c * c * uu
    sy = float(np.sum(uz - c * uu))
    if not sy > 0:
        return float(c[-1] + max(rows.theta[-1] - c[-1], 1e-3 * abs(c[-1])))
    sigma = float(np.max(c + yy / sy))
    for _ in range(50):
        g = yy / (sigma - c)
        excess = float(np.sum(g)) - sy
        if excess <= 1e-3 * sy:
            break
        sigma += excess / float(np.sum(g / (sigma - c)))
    return sigma
