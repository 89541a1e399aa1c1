"""The inverse of a Hessian V ↦ A V M − V C from what is known of A; small matrices only.

With D = M⁻¹, D½CD½ = Q c Qᴴ, W = D½Q and V = v Wᴴ, a normal part V is taken to A v − v c, one
shifted operator for each column.  With Ritz pairs (θ, U) of A on X⊥, e = 1/(θ − c_i) and
γ_i = 1/(σ − c_i), the inverse of column i is the block BFGS formula

    H_i = (I − U e (Z − Uc_i)ᴴ) γ_i (I − (Z − Uc_i) e Uᴴ) + U e Uᴴ,

positive definite for θ, σ > c: Ritz vectors below the largest c are left out, and so are those
that the errors of the images have made useless.  σ is such that ⟨y, H₀y⟩ = ⟨s, y⟩ for the newest
block.

A rotation X → X exp Ω has the curvature −(Λ_i − Λ_j)(μ_i − μ_j) in Ω_ij, in the eigenbasis of
M = diag(μ), with Λ = XᴴAX, if the gradient is A X M.  If it is A X M + C₀ the rotations are coupled
to each other and, by R = AX − XΛ, to the normal part.  With Ω = W ω Wᴴ, F = UᴴR W and the normal
part eliminated, ω solves skew([Q_j ω_j]) = …, where

    Q_j = WᴴΛW − c_j WᴴW − Fᴴ e_j F.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from stiefel.types import NumpyArray

from .row_memory import Normal, SubspaceGrams

DEPENDENT = 1e-6  # eigenvalues of a Gram matrix below this, relative to the largest, are dropped
UNRELIABLE = 0.1  # the skew part of K that a Ritz vector may have, relative to θ − c
SOFTEST = 1e-4  # curvature of a rotation, relative to the largest

Weights = tuple[NumpyArray, NumpyArray, NumpyArray, NumpyArray, NumpyArray]


class RitzPairs(NamedTuple):
    """T and θ: the Ritz vectors are U°T."""

    T: NumpyArray
    theta: NumpyArray


class Columns(NamedTuple):
    """The columns in which the Hessian is one shifted operator each: q ↦ q W, V = v Wᴴ."""

    D: NumpyArray  # of determinant one
    values: NumpyArray  # of D …
    vectors: NumpyArray  # … and its eigenvectors
    c: NumpyArray  # the shifts, rising
    W: NumpyArray  # D½Q
    F: NumpyArray  # D^{-½}Q, for tangents

    @classmethod
    def of(cls, D: NumpyArray, level: NumpyArray) -> Columns:
        return cls(D, *np.linalg.eigh(D), *(D,) * 3).at(level)

    def at(self, level: NumpyArray) -> Columns:
        """The same D at a point with another C."""
        vectors, root = self.vectors, np.sqrt(self.values)
        left, right = vectors * root, vectors.conj().T
        half = left.dot(right)
        c, Q = np.linalg.eigh(half.dot(level).dot(half))
        return self._replace(c=c, W=left.dot(right.dot(Q)), F=(vectors / root).dot(right.dot(Q)))


class Seen(NamedTuple):
    """A cotangent in these columns: inner products of its normal part, and its rotation part."""

    Uq: NumpyArray
    Zq: NumpyArray
    AXq: NumpyArray
    rotation: NumpyArray


def ritz_pairs(normal: Normal, highest: float) -> RitzPairs:
    """TᴴUU T = I and Tᴴherm(UZ)T = diag(θ), θ above the highest shift; see `_reliable`."""
    T = _orthonormal(normal.UU)
    K = T.conj().T.dot(normal.UZ).dot(T)
    theta, vectors = np.linalg.eigh(0.5 * (K + K.conj().T))
    keep = theta > highest
    theta, vectors = theta[keep], vectors[:, keep]
    skew = 0.5 * (K - K.conj().T)
    if len(theta) and np.linalg.norm(skew) > UNRELIABLE * (theta[0] - highest):
        keep = _reliable(vectors.conj().T.dot(skew).dot(vectors), theta - highest)
        theta, vectors = theta[keep], vectors[:, keep]
    return RitzPairs(T.dot(vectors), theta)


def _orthonormal(UU: NumpyArray) -> NumpyArray:
    """T with TᴴUU T = I; vectors that are zero or depend on others are dropped."""
    squares = np.diagonal(UU).real
    scale = np.where(squares > 0, 1.0 / np.sqrt(np.where(squares > 0, squares, 1.0)), 0.0)
    values, vectors = np.linalg.eigh(UU * scale * scale[:, None])
    keep = values > DEPENDENT * values[-1]
    return np.asarray(scale[:, None] * vectors[:, keep] / np.sqrt(values[keep]))


def _reliable(skew: NumpyArray, above: NumpyArray) -> NumpyArray:
    """Which Ritz vectors are left when those with the largest errors are dropped one by one.

    K = UᴴZ is Hermitian but for errors of the images.  A row of its skew part, in units of the
    curvatures (θ_i − c)^½(θ_j − c)^½ that the inverse divides by, is the error of that vector.
    """
    root = 1.0 / np.sqrt(above)
    squares = np.abs(skew * root * root[:, None]) ** 2
    keep, sums = np.ones(len(above), bool), squares.sum(axis=1)
    while keep.any():
        worst = int(np.argmax(np.where(keep, sums, -1.0)))
        if sums[worst] <= UNRELIABLE**2:
            break
        keep[worst] = False
        sums = sums - squares[worst]
    return keep


def lowest_and_newest(ritz: RitzPairs, normal: Normal, lowest: int, size: int) -> NumpyArray:
    """Orthonormal combinations of U°: the lowest Ritz vectors, and the newest block."""
    held = len(ritz.theta)
    low = np.eye(held, min(lowest, held))
    new = ritz.T.conj().T.dot(normal.UU[:, -size:])
    return ritz.T.dot(np.linalg.qr(np.concatenate((low, new), axis=1))[0])


def apart(
    ritz: RitzPairs, normal: Normal, grams: SubspaceGrams, columns: Columns, seen: Seen
) -> Weights:
    """−H q of the normal part alone, as weights of U, Z, q, AX and X."""
    (T, theta), (UU, UZ, ZZ), c, W = ritz, normal, columns.c, columns.W
    gamma, UX = 1.0 / (_sigma(normal, columns, theta) - c), grams.UX
    Uq, Zq = seen.Uq, seen.Zq - UX.dot(seen.AXq)
    e, TH = 1.0 / (theta[:, None] - c), T.conj().T
    a = e * TH.dot(Uq)
    b, bc = T.dot(a), T.dot(a * c)
    Uv = gamma * (Uq - UZ.dot(b) + UU.dot(bc))
    Zv = gamma * (Zq - ZZ.dot(b) + UZ.conj().T.dot(bc))
    last = T.dot(a - e * TH.dot(Zv - Uv * c))
    return _weights(grams, W, gamma * bc + last, -gamma * b, gamma, np.zeros_like(c * W))


def together(
    ritz: RitzPairs, normal: Normal, grams: SubspaceGrams, columns: Columns, seen: Seen
) -> tuple[Weights, NumpyArray]:
    """−H of the normal part q and of the rotation together, where ∇f = A X M + C₀; also −Ω."""
    (T, theta), (UU, UZ, ZZ), c, W = ritz, normal, columns.c, columns.W
    UX, L, LL = grams.UX, grams.XAX, grams.AXAX
    gamma, TH = 1.0 / (_sigma(normal, columns, theta) - c), T.conj().T
    RR = LL - L.conj().T.dot(L)
    UR, ZR = grams.UAX - UX.dot(L), grams.ZAX - grams.ZX.dot(L) - UX.dot(RR)
    Uq, Zq, Rq = seen.Uq, seen.Zq - UX.dot(seen.AXq), seen.AXq
    F, e = TH.dot(UR).dot(W), 1.0 / (theta[:, None] - c)
    inverse = _rotations(W.conj().T.dot(0.5 * (L + L.conj().T)).dot(W), W.conj().T.dot(W), F, e, c)

    def solve(rotation: NumpyArray, u: NumpyArray) -> tuple[NumpyArray, NumpyArray]:
        omega = inverse(rotation - F.conj().T.dot(e * u))
        return omega, e * (u - F.dot(omega))

    omega, a = solve(W.conj().T.dot(seen.rotation).dot(W), TH.dot(Uq))
    b, bc, r = T.dot(a), T.dot(a * c), W.dot(omega)
    Uv = gamma * (Uq - UZ.dot(b) + UU.dot(bc) - UR.dot(r))
    Zv = gamma * (Zq - ZZ.dot(b) + UZ.conj().T.dot(bc) - ZR.dot(r))
    Rv = gamma * (Rq - ZR.conj().T.dot(b) + UR.conj().T.dot(bc) - RR.dot(r))
    again, a2 = solve(W.conj().T.dot(Rv), TH.dot(Zv - Uv * c))
    weights = _weights(grams, W, gamma * bc + T.dot(a - a2), -gamma * b, gamma, -gamma * r)
    return weights, -W.dot(omega - again).dot(W.conj().T)


def _weights(
    grams: SubspaceGrams,
    W: NumpyArray,
    u: NumpyArray,
    z: NumpyArray,
    gamma: NumpyArray,
    r: NumpyArray,
) -> Weights:
    """−(U°u + Z°z + qγ + R r)Wᴴ in terms of U, Z, q, AX and X, orthogonal to X."""
    XU, WH = grams.UX.conj().T, W.conj().T
    x = r - XU.dot(z)  # of AX
    along = XU.dot(u) + grams.ZX.conj().T.dot(z) + grams.XAX.dot(x)
    return -u.dot(WH), -z.dot(WH), -gamma[:, None] * WH, -x.dot(WH), along.dot(WH)


def uncoupled_rotation(columns: Columns, L: NumpyArray, rotation: NumpyArray) -> NumpyArray:
    """−Ω with ½|Λ_i − Λ_j||μ_i − μ_j| Ω_ij = (XᴴG)_ij in the eigenbasis of M."""
    vectors, mu = columns.vectors, 1.0 / columns.values
    adjoint = vectors.conj().T
    levels = np.diagonal(adjoint.dot(L).dot(vectors)).real
    h = np.abs(0.5 * (levels[:, None] - levels) * (mu[:, None] - mu))
    if not h.max() > 0:  # equal weights: rotations change nothing
        return np.zeros_like(rotation)
    h = np.maximum(h, SOFTEST * h.max())
    return np.asarray(-vectors.dot(adjoint.dot(rotation).dot(vectors) / h).dot(adjoint))


def agreement(ritz: RitzPairs, normal: Normal, columns: Columns) -> float:
    """⟨s, y⟩/⟨y, Hy⟩ of the newest block: one where H knows it, and where nothing is left out.

    With y_i = z_i − c_i s_i in the columns of H and g what H does not see of the block,
    ⟨y_i, H_i y_i⟩ = γ_i‖Z g_i − c_i U g_i‖² + Σ e|Uᴴy_i|².
    """
    (T, theta), (UU, UZ, ZZ), c = ritz, normal, columns.c
    block = np.zeros((len(UU), len(c)), UU.dtype)
    block[-len(c) :] = columns.F
    Uy = UZ.dot(block) - UU.dot(block * c)
    sy = float(np.vdot(block, Uy).real)
    a = T.conj().T.dot(Uy)
    e = 1.0 / (theta[:, None] - c)
    g = block - T.dot(e * a)
    gc = g * c
    squares = g.conj() * (ZZ.dot(g) - UZ.conj().T.dot(gc)) - gc.conj() * (UZ.dot(g) - UU.dot(gc))
    gamma = 1.0 / (_sigma(normal, columns, theta) - c)
    yHy = float(np.sum(gamma * squares.real) + np.sum(e * np.abs(a) ** 2))
    return sy / yHy if yHy > 0 else 0.0


def _sigma(normal: Normal, columns: Columns, theta: NumpyArray) -> float:
    """σ with Σ‖y_i‖²/(σ − c_i) = Σ⟨s_i, y_i⟩ for the newest block; Newton's method from below."""
    c, F = columns.c, columns.F
    last = slice(-len(c), None)
    uu, uz, zz = (np.sum(F.conj() * K[last, last].dot(F), axis=0).real for K in normal)
    yy, sy = zz - 2.0 * c * uz + c * c * uu, float(np.sum(uz - c * uu))
    if not sy > 0:  # the newest step saw no positive curvature: the largest that is known
        return float(max(theta[-1:], default=c[-1])) + 1e-3 * float(np.abs(c).max())
    sigma = float(np.max(c + yy / sy))
    for _ in range(50):
        g = yy / (sigma - c)
        excess = float(np.sum(g)) - sy
        if excess <= 1e-3 * sy:
            break
        sigma += excess / float(np.sum(g / (sigma - c)))
    return sigma


# -- rotations that are coupled -------------------------------------------------------------------


def _rotations(
    G: NumpyArray, H: NumpyArray, F: NumpyArray, e: NumpyArray, c: NumpyArray
) -> Inverse:
    """ω from skew([Q_j ω_j]), Q_j = G − c_j H − Fᴴ e_j F; curvatures are made positive."""
    Q = G - c[:, None, None] * H - np.einsum("pa,pj,pb->jab", F.conj(), e, F)
    basis = _skew_basis(len(c), Q.dtype.kind == "c")
    images = np.einsum("jac,bcj->baj", Q, basis)
    flat = basis.reshape(len(basis), -1)
    S = flat.conj().dot(images.reshape(len(basis), -1).T).real
    values, vectors = np.linalg.eigh(0.5 * (S + S.T))
    values = np.abs(values)
    values = np.maximum(values, max(SOFTEST * values.max(), np.finfo(float).tiny))
    return Inverse(flat, vectors, values)


class Inverse(NamedTuple):
    """The inverse of a form on skew-Hermitian matrices."""

    basis: NumpyArray
    vectors: NumpyArray
    values: NumpyArray

    def __call__(self, rotation: NumpyArray) -> NumpyArray:
        """ω for the skew part of ``rotation``."""
        right = self.basis.conj().dot(rotation.ravel()).real
        x = self.vectors.dot(self.vectors.T.dot(right) / self.values)
        return x.dot(self.basis).reshape(rotation.shape)


@cache
def _skew_basis(size: int, is_complex: bool) -> NumpyArray:
    """A real basis of the skew-Hermitian matrices, (m, size, size)."""
    rows, columns = np.triu_indices(size, 1)
    count = np.arange(len(rows))
    rotations = np.zeros((len(rows), size, size), complex if is_complex else float)
    rotations[count, rows, columns], rotations[count, columns, rows] = 1.0, -1.0
    if not is_complex:
        return rotations
    phases = np.zeros((len(rows) + size, size, size), complex)
    phases[count, rows, columns] = phases[count, columns, rows] = 1j
    phases[len(rows) + np.arange(size), np.arange(size), np.arange(size)] = 1j
    return np.concatenate((rotations, phases))
