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
from .frame import Frame, Grams, frame, moved, orthonormalised
from .kernels import Array, Kernels
from .transport import longest


def squared_norm(k: Kernels, grams: Grams) -> Array:
    """‖W‖²_g* = Tr Wᴴ(I + XXᴴ)W, from the Grams of the *projected* W: nothing is subtracted."""
    return k.trace(grams.WW) + k.squared_frobenius(grams.XW)


def point(
    k: Kernels,
    X: Array,
    W: Array,
    grams: Grams,
    frame: Frame,
    t: Array | float,
    M: Array | None = None,
) -> tuple[Array, Array]:
    """R(X, φ(tW)), or R(X, φ(t(W − XM))), and N of `frame`; 4nk² + O(k³)."""
    P, Q, N = k.call(moved, frame, t)
    P, Q = k.call(orthonormalised, grams, P, Q)
    return k.combine(X, P if M is None else P - M @ Q, W, Q), N


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
    ends = Grams(*k.grams(X, Y))
    M, s, grams = k.call(lifted, ends)
    P, Q, _ = k.call(moved, k.call(frame, grams), tau)
    # The Grams of the lift are differences: only those of X and Y are good enough here.
    P, Q = k.call(orthonormalised, ends, P - s @ Q, M @ Q)
    return k.combine(X, P, Y, Q)


def lifted(k: Kernels, ends: Grams) -> tuple[Array, Array, Grams]:
    """M and s with lift(X, Y) = Y M − X s, and the Grams of X and the lift."""
    a, m, d = ends
    M = _twice_inverse(k, m)
    mM = m @ M
    s = k.hermitian(mM)
    b = mM - a @ s
    return M, s, Grams(a, b, k.adjoint(M) @ (d @ M) - k.adjoint(mM) @ s - s @ b)


def _twice_inverse(k: Kernels, m: Array) -> Array:
    """2(I + m)⁻¹; well conditioned for close points by Lemma 4.2, NaN for opposite ones."""
    one = k.eye(m)
    M = k.solve(one + m, 2.0 * one + 0.0 * m)
    # No curve leads to the opposite point: what rounding makes of I + m is none.
    largest = k.xp.max(k.xp.abs(M), axis=(-2, -1), keepdims=True)
    return k.xp.where(largest < k.xp.finfo(M.dtype).eps ** -0.5, M, math.nan * M)


def prepare(k: Kernels, X: Array, W: Array) -> tuple[Grams, Frame, Array, Array]:
    """What a ray is made of: Grams, frame, ‖W‖²_g* and the squared defect of X; 6nk²."""
    grams = Grams(*k.grams(X, W))
    return grams, k.call(frame, grams), squared_norm(k, grams), squared_defect(k, grams)


def prepare_tangent(
    k: Kernels, X: Array, T: Array, theta: float
) -> tuple[Grams, Frame, Array, Array, Array, Array]:
    """Grams and frame of X and W = T − XM, M, the squared defect of X, `longest`, and ‖T‖²."""
    before = Grams(*k.grams(X, T))
    grams, M = k.call(shifted, before, theta)
    lengths = k.call(longest, grams), k.trace(before.WW)
    return grams, k.call(frame, grams), M, squared_defect(k, grams), *lengths


def squared_defect(k: Kernels, grams: Grams) -> Array:
    return k.squared_frobenius(grams.XX - k.eye(grams.XX))


def shifted(k: Kernels, grams: Grams, theta: float) -> tuple[Grams, Array]:
    """The Grams of X and W = T − XM from those of X and T, and M; no tall work."""
    a, B, C = grams
    M = (0.5 + 0.5 * theta) * B + (0.5 - 0.5 * theta) * k.adjoint(B)
    b = B - a @ M
    # WᴴW = TᴴT − MᴴXᴴT − (TᴴX − MᴴXᴴX)M
    return Grams(a, b, C - k.adjoint(M) @ B - k.adjoint(b) @ M), M
