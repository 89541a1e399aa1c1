"""The Cayley retraction as a ray, its inverse, and extrapolation between two points.

Section 2.1, eq. (R1), and Section 4.2 of the paper.  With W a cotangent at X, U = [W/2, X] and
Z = [X, −W/2],

    R(X, φ(tW)) = (I − tΩ/2)⁻¹ (I + tΩ/2) X = X + 2U(I − ZᴴU)⁻¹ZᴴX,    Ω = W Xᴴ − X Wᴴ

(the paper prints W Xᵀ − Xᵀ W, whose shapes do not match).

In floating point: the Gram matrices XᴴX, XᴴW and WᴴW are always the measured ones.  The algebra
invites XᴴX = I, which would halve the small solve; together with momentum that is exponentially
unstable (the defect grows by 1.7 an iteration).  With the true Grams the map is an orthogonal
map applied to X, and the defect performs a random walk.  One Newton–Schulz factor, folded into
the k×k coefficients, takes even that away and costs no tall work.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from . import transport as moving
from . import vector
from .kernels import Array, Kernels


class Grams(NamedTuple):
    """XᴴX, XᴴW and WᴴW of a point X and a second tall matrix W."""

    XX: Array
    XW: Array
    WW: Array


def squared_norm(k: Kernels, grams: Grams) -> Array:
    """‖W‖²_g* = Tr Wᴴ(I + XXᴴ)W, from the Grams of the *projected* W: nothing is subtracted."""
    return k.trace(grams.WW) + k.squared_frobenius(grams.XW)


def point(k: Kernels, X: Array, W: Array, grams: Grams, t: Array | float) -> Array:
    """R(X, φ(tW)); one 2k×2k solve and one tall update, 4nk² + O(k³)."""
    if X.shape[-1] == 1:
        return vector.point(k, X, W, grams, t)
    P, Q = _coefficients(k, grams, t)
    P, Q = _orthonormalised(k, grams, P, Q)
    return k.combine(X, P, W, Q)


def lift(k: Kernels, X: Array, Y: Array) -> Array:
    """The cotangent V at X with R(X, φ(V)) = Y; eq. (vector_solve), 4nk² + O(k³).

    V = 2Y(I + XᴴY)⁻¹, projected.  Algorithms 1 and 2 print the transpose of the small matrix,
    which does not lead back to Y.
    """
    if X.shape[-1] == 1:
        return vector.lift(k, X, Y)
    m = k.gram(X, Y)
    M = _twice_inverse(k, m)
    return k.combine(X, -k.hermitian(m @ M), Y, M)


def extrapolate(k: Kernels, X: Array, Y: Array, tau: Array | float) -> Array:
    """R(X, φ(τV)) with V = lift(X, Y), without forming V; 10nk² + O(k³)."""
    if X.shape[-1] == 1:
        return vector.extrapolate(k, X, Y, tau)
    a, m, d = k.grams(X, Y)
    M = _twice_inverse(k, m)
    mM = m @ M
    s = k.hermitian(mM)  # V = Y M − X s
    aS = a @ s
    cross = k.adjoint(mM) @ s
    XV = mM - aS
    VV = k.adjoint(M) @ d @ M - cross - k.adjoint(cross) + s @ aS
    P, Q = _coefficients(k, Grams(a, XV, VV), tau)  # X P + V Q = X (P − s Q) + Y (M Q)
    P, Q = _orthonormalised(k, Grams(a, m, d), P - s @ Q, M @ Q)
    return k.combine(X, P, Y, Q)


def _coefficients(k: Kernels, grams: Grams, t: Array | float) -> tuple[Array, Array]:
    """(P, Q) with R(X, φ(tW)) = X P + W Q; eq. (R1) with the measured Grams."""
    a, b, c = grams
    one = k.eye(a)
    h = 0.5 * t
    hb = h * b
    hbH = k.adjoint(hb)
    size = a.shape[-1]
    left = k.block([[one - hb, -a], [(h * h) * c, one + hbH]])  # I − ZᴴU
    S = k.solve(left, k.block([[a], [-hbH]]))
    return one + 2.0 * S[..., size:, :], t * S[..., :size, :]


def _orthonormalised(k: Kernels, grams: Grams, P: Array, Q: Array) -> tuple[Array, Array]:
    """One Newton–Schulz step on X P + W Q, done on its coefficients."""
    a, b, c = grams
    PbQ = k.adjoint(P) @ b @ Q
    E = k.adjoint(P) @ a @ P + PbQ + k.adjoint(PbQ) + k.adjoint(Q) @ c @ Q
    correction = 1.5 * k.eye(a) - 0.5 * E
    return P @ correction, Q @ correction


def _twice_inverse(k: Kernels, m: Array) -> Array:
    """2(I + m)⁻¹; well conditioned for close points by Lemma 4.2."""
    one = k.eye(m)
    return k.solve(one + m, 2.0 * one + 0.0 * m)


class Ray:
    """The curve t ↦ R(X, φ(tW)).  Grams are computed once; each point costs one small solve."""

    def __init__(self, kernels: Kernels, X: Array, W: Array) -> None:
        self._kernels = kernels
        self._X, self._W = X, W
        self._grams, self._squared_norm = kernels.call(_prepare, X, W)

    @property
    def squared_norm(self) -> float:
        """‖W‖²_g*."""
        return float(self._squared_norm)

    @property
    def defect(self) -> float:
        """‖XᴴX − I‖_F, of the whole stack, from the Gram matrix at hand."""
        E = self._grams.XX - (1.0 if self._X.shape[-1] == 1 else self._kernels.eye(self._grams.XX))
        if not hasattr(E, "shape"):
            return abs(E)
        return math.sqrt(float(self._kernels.squared_frobenius(E)))

    def __call__(self, t: float) -> Any:
        return self._kernels.call(point, self._X, self._W, self._grams, t)

    def velocity(self, t: float) -> Any:
        """X'(t), a tangent at X(t)."""
        return self._kernels.call(moving.velocity, self._X, self._W, self._grams, t)

    def transport(self, t: float, V: Array) -> Any:
        """The cotangent V at X, carried isometrically to X(t)."""
        return self._kernels.call(moving.transport, self._X, self._W, self._grams, t, V)


def _prepare(k: Kernels, X: Array, W: Array) -> tuple[Grams, Array]:
    if X.shape[-1] == 1:
        grams = Grams(*k.column_grams(X, W))
        return grams, k.sum_numbers(grams.WW + k.real_number(grams.XW * k.conj_number(grams.XW)))
    grams = Grams(*k.grams(X, W))
    return grams, squared_norm(k, grams)
