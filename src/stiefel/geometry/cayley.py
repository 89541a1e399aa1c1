"""The Cayley retraction as a ray, its inverse, and extrapolation between two points.

Section 2.1, eq. (R1), and Section 4.2 of the paper.  With W a cotangent at X,

    R(X, φ(tW)) = Q(t)X,    Q(t) = (I − tΩ/2)⁻¹ (I + tΩ/2),    Ω = W Xᴴ − X Wᴴ

(the paper prints W Xᵀ − Xᵀ W, whose shapes do not match).  In the span of X and W this is eq. (R1)
with 2k×2k matrices; see `frame`.

In floating point: the Gram matrices XᴴX, XᴴW and WᴴW are always the measured ones.  The algebra
invites XᴴX = I, which would halve the small solve; together with momentum that is exponentially
unstable (the defect grows by 1.7 an iteration).  With the true Grams the map is an orthogonal
map applied to X, and the defect performs a random walk.  One Newton–Schulz factor, folded into
the k×k coefficients, takes even that away and costs no tall work.
"""

from __future__ import annotations

import math

from . import vector
from .frame import Frame, Grams, frame, halves, moved, scale_of
from .kernels import Array, Kernels
from .transport import longest


def point(k: Kernels, X: Array, U: Array, frame: Frame, t: Array | float) -> tuple[Array, Array]:
    """R(X, φ(tW)), and N of `frame`; 4nk² + O(k³)."""
    C, N = k.call(moved, frame, t)
    P, Q = halves(C)
    return k.combine(X, P, U, Q), N


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
    return k.call(point, X, Y, k.call(lifted, Grams(*k.grams(X, Y))), tau)[0]


def lifted(k: Kernels, grams: Grams) -> Frame:
    """The frame of the ray from X to Y = Q(1)X, along YM − Xs."""
    m = grams.XU
    M = _twice_inverse(k, m)
    s = k.hermitian(m @ M)
    return frame(k, grams, k.block([[k.eye(m) + 0.0 * m, -s], [0.0 * m, M]]), 1.0)


def _twice_inverse(k: Kernels, m: Array) -> Array:
    """2(I + m)⁻¹; well conditioned for close points by Lemma 4.2, NaN for opposite ones."""
    one = k.eye(m)
    M = k.solve(one + m, 2.0 * one + 0.0 * m)
    # No curve leads to the opposite point: what rounding makes of I + m is none.
    largest = k.xp.max(k.xp.abs(M), axis=(-2, -1), keepdims=True)
    # The NaN is a constant: as a multiple of M it would make every derivative of M a NaN.
    return k.xp.where(largest < k.xp.finfo(M.dtype).eps ** -0.5, M, math.nan * one)


def prepare(k: Kernels, X: Array, W: Array) -> tuple[Frame, Array, Array]:
    """The frame of the ray along W, ‖W‖²_g* and the squared defect of X; 6nk²."""
    grams = Grams(*k.grams(X, W))
    a, b, c = grams
    # ‖W‖²_g* = Tr Wᴴ(I + XXᴴ)W, from the Grams of the projected W: nothing is subtracted.
    square = k.trace(c) + k.squared_frobenius(b)
    return _along(k, grams, 0.0 * b), square, k.squared_frobenius(a - k.eye(a))


def prepare_tangent(
    k: Kernels, X: Array, T: Array, theta: float
) -> tuple[Frame, Array, Array, Array]:
    """The frame of the ray along W = T − XM, the squared defect of X, `longest`, and ‖T‖²; 6nk².

    M = herm(XᴴT) + θ skew(XᴴT).
    """
    grams = Grams(*k.grams(X, T))
    a, b, c = grams
    made = _along(k, grams, (0.5 + 0.5 * theta) * b + (0.5 - 0.5 * theta) * k.adjoint(b))
    return made, k.squared_frobenius(a - k.eye(a)), longest(k, made), k.trace(c)


def _along(k: Kernels, grams: Grams, M: Array) -> Frame:
    """The frame of W = U − XM."""
    sigma = scale_of(k, k.real(k.xp.linalg.trace(grams.UU)))
    one, zero = k.eye(M), 0.0 * M
    basis = k.block([[one + zero, -(sigma * M)], [zero, sigma * one + zero]])
    return frame(k, grams, basis, sigma)
