"""The Cayley retraction as a ray, its inverse, and extrapolation between two points.

Section 2.1, eq. (R1), and Section 4.2 of the paper.  With W a cotangent at X,

    R(X, φ(tW)) = (I − tΩ/2)⁻¹ (I + tΩ/2) X,    Ω = W Xᴴ − X Wᴴ

(the paper prints W Xᵀ − Xᵀ W, whose shapes do not match).  With Z = [X, tW/2] and its Gram matrix
E = ZᴴZ, tΩ/2 = Z J Zᴴ where J = [0 −I; I 0], and f(Z J Zᴴ) Z = Z f(J E): the point is Z C with

    C = (I − JE)⁻¹ (I + JE) [I; 0],

which is eq. (R1) with 2k×2k matrices in the order of Z.

In floating point: the Gram matrices XᴴX, XᴴW and WᴴW are always the measured ones.  The algebra
invites XᴴX = I, which would halve the small solve; together with momentum that is exponentially
unstable (the defect grows by 1.7 an iteration).  With the true Grams the map is an orthogonal
map applied to X, and the defect performs a random walk.  One Newton–Schulz factor, folded into
the k×k coefficients, takes even that away and costs no tall work.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any, NamedTuple

from . import secant as secants
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


def point(
    k: Kernels, X: Array, W: Array, grams: Grams, t: Array | float, M: Array | None = None
) -> Array:
    """R(X, φ(tW)), or R(X, φ(t(W − XM))); one 2k×2k solve and one tall update, 4nk² + O(k³)."""
    if X.shape[-1] == 1:
        return vector.point(k, X, W, grams, t)
    h, size = 0.5 * t, X.shape[-1]
    E = _gram(k, grams.XX, h * grams.XW, (h * h) * grams.WW)
    C = _orthonormalised(k, E, _cayley(k, E))
    P, Q = C[..., :size, :], h * C[..., size:, :]
    return k.combine(X, P if M is None else P - M @ Q, W, Q)


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
    h, one, size = 0.5 * tau, k.eye(a), X.shape[-1]
    # V = Y M − X s, so that [X, hV] = [X, Y] T.
    T = k.block([[one + 0.0 * m, -h * k.hermitian(m @ M)], [0.0 * m, h * M]])
    E = _gram(k, a, m, d)
    C = _orthonormalised(k, E, T @ _cayley(k, k.adjoint(T) @ (E @ T)))
    return k.combine(X, C[..., :size, :], Y, C[..., size:, :])


def _gram(k: Kernels, a: Array, b: Array, c: Array) -> Array:
    """[a b; bᴴ c]: the Gram matrix of two tall matrices side by side."""
    return k.block([[a, b], [k.adjoint(b), c]])


def _cayley(k: Kernels, E: Array) -> Array:
    """C = (I − JE)⁻¹ (I + JE) [I; 0], one solve of size 2k."""
    size = E.shape[-1] // 2
    JE = k.block([[-E[..., size:, :]], [E[..., :size, :]]])
    one = k.eye(E)
    return k.solve(one - JE, one[:, :size] + JE[..., :, :size])


def _orthonormalised(k: Kernels, E: Array, C: Array) -> Array:
    """One Newton–Schulz step on Z C, done on its coefficients; E = ZᴴZ."""
    return C @ (1.5 * k.eye(C) - 0.5 * (k.adjoint(C) @ (E @ C)))


def _twice_inverse(k: Kernels, m: Array) -> Array:
    """2(I + m)⁻¹; well conditioned for close points by Lemma 4.2."""
    one = k.eye(m)
    return k.solve(one + m, 2.0 * one + 0.0 * m)


class Ray:
    """The curve t ↦ R(X, φ(tW)).  Grams are computed once; each point costs one small solve."""

    _M: Array | None = None

    def __init__(self, kernels: Kernels, X: Array, W: Array) -> None:
        self._kernels = kernels
        self._X, self._W = X, W
        self._grams, self._squared_norm, self._squared_defect = kernels.call(prepare, X, W)

    @property
    def squared_norm(self) -> float:
        """‖W‖²_g*."""
        return float(self._squared_norm)

    @property
    def defect(self) -> float:
        """‖XᴴX − I‖_F, of the whole stack, from the Gram matrix at hand."""
        return math.sqrt(float(self._squared_defect))

    def __call__(self, t: float) -> Any:
        return self._kernels.call(point, self._X, self._W, self._grams, t, self._M)

    @cached_property
    def longest(self) -> float:
        """The largest ‖φ(W)‖_F of the matrices of a stack: how far t = 1 would move one."""
        square = float(self._kernels.call(moving.longest, self._X, self._grams))
        return math.sqrt(square) if square > 0 else 0.0

    def velocity(self, t: float) -> Any:
        """X'(t), a tangent at X(t)."""
        return self._kernels.call(moving.velocity, self._X, self._W, self._grams, t)

    def carried(self, t: float) -> Any:
        """The velocity φ(W) at X, carried isometrically to X(t)."""
        return self._kernels.call(moving.carried, self._X, self._W, self._grams, t)

    def transport(self, t: float, V: Array) -> Any:
        """The cotangent V at X, carried isometrically to X(t)."""
        return self._kernels.call(moving.transport, self._X, self._W, self._grams, t, V)

    def secant(self, t: float, old: Any, new: Any) -> secants.Secant:
        """The secant pair of the step to X(t), from the gradients (.G, .turn) at both ends."""
        if old.turn is None or new.turn is None:
            return secants.plain(self, t, old, new)
        ends = old.G, old.turn, new.G, new.turn
        return self._kernels.call(secants.secant, self._X, self._W, self._grams, t, *ends, self._M)


class TangentRay(Ray):
    """The ray whose velocity is the tangent (or the horizontal one) nearest to T.

    It is that of the cotangent W = T − XM, M = herm(XᴴT) + θ skew(XᴴT), with θ = ½ (or 1); W
    itself is never formed.  Only points, `secant`, `longest` and `defect` are to be had.
    """

    LOSSY = 1e-3  # squared, of the part of T that is used: its Grams are differences

    def __init__(self, kernels: Kernels, X: Array, T: Array, theta: float) -> None:
        self._kernels = kernels
        self._X, self._W = X, T
        prepared = kernels.call(prepare_tangent, X, T, theta)
        self._grams, self._M, self._squared_defect, self._size = prepared

    @property
    def lossy(self) -> bool:
        """Whether so little of T is tangent that W had better be formed."""
        return not self.longest**2 > self.LOSSY * float(self._size)


def prepare(k: Kernels, X: Array, W: Array) -> tuple[Grams, Array, Array]:
    if X.shape[-1] == 1:
        grams = Grams(*k.column_grams(X, W))
        a, b, c = grams
        return grams, k.sum_numbers(c + b * k.conj_number(b)), k.sum_numbers((a - 1.0) ** 2)
    grams = Grams(*k.grams(X, W))
    return grams, squared_norm(k, grams), squared_defect(k, grams)


def prepare_tangent(
    k: Kernels, X: Array, T: Array, theta: float
) -> tuple[Grams, Array, Array, Array]:
    """The Grams of X and W = T − XM, M, the squared defect, and ‖T‖²."""
    before = Grams(*k.grams(X, T))
    grams, M = shifted(k, before, theta)
    return grams, M, squared_defect(k, grams), k.trace(before.WW)


def squared_defect(k: Kernels, grams: Grams) -> Array:
    return k.squared_frobenius(grams.XX - k.eye(grams.XX))


def shifted(k: Kernels, grams: Grams, theta: float) -> tuple[Grams, Array]:
    """The Grams of X and W = T − XM from those of X and T, and M; no tall work."""
    a, B, C = grams
    M = (0.5 + 0.5 * theta) * B + (0.5 - 0.5 * theta) * k.adjoint(B)
    b = B - a @ M
    # WᴴW = TᴴT − MᴴXᴴT − (TᴴX − MᴴXᴴX)M
    return Grams(a, b, C - k.adjoint(M) @ B - k.adjoint(b) @ M), M
