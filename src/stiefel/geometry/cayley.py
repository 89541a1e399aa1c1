"""The Cayley retraction as a ray, its inverse, and extrapolation between two points.

Section 2.1, eq. (R1), and Section 4.2 of the paper.  With W a cotangent at X,

    R(X, φ(tW)) = Q(t)X,    Q(t) = (I − tΩ/2)⁻¹ (I + tΩ/2),    Ω = W Xᴴ − X Wᴴ

(the paper prints W Xᵀ − Xᵀ W, whose shapes do not match).  In the span of X and W this is eq. (R1)
with 2k×2k matrices.

In floating point: the Gram matrices XᴴX, XᴴW and WᴴW are always the measured ones.  The algebra
invites XᴴX = I, which would halve the small solve; together with momentum that is exponentially
unstable (the defect grows by 1.7 an iteration).  With the true Grams the map is an orthogonal
map applied to X, and the defect performs a random walk.  One Newton–Schulz factor, folded into
the k×k coefficients, takes even that away and costs no tall work.

How the generator of a Cayley ray acts on the span of its two tall matrices.

A ray leaves X along a cotangent W in the span of X and of another tall matrix U: W itself, a
tangent T with W = T − XM, or a second point Y with W = YM − Xs.  With a number σ and a matrix B,

    Z = [X, σW] = [X, U] B,    Ω = W Xᴴ − X Wᴴ = Z J Zᴴ/σ,    J = [0 −I; I 0],

so that Ω Z = Z K with K = A Γ B, A = J Bᴴ/σ and Γ the Gram matrix of [X, U].  Everything that a
ray needs is then one small matrix, the displacement

    N = (I − tK/2)⁻¹ tK,    Q(t) Z = Z (I + N),    (I − tΩ/2)⁻¹ Z = Z (I + N/2).

It is as small as the step, and known to its own last digits, not to those of I.  σ makes σU about
as large as X, so that tK does not depend on how large W is and how small t; where it is a power of
two, rounding does not either.  Between two points σ is 1.

Vectors that move along a ray: its velocity, and an isometric transport.

The Cayley ray X(t) = Q(t)X has Q(t) = (I − tΩ/2)⁻¹(I + tΩ/2) with Ω = WXᴴ − XWᴴ.  Q is a function
of Ω, so that it commutes with Ω:

    Q'(t) = (I − tΩ/2)⁻¹ Ω (I − tΩ/2)⁻¹,           X'(t) = Q'(t)X
    V ↦ Q(t)V takes cotangents at X to cotangents at X(t), keeps every inner product of g*, and
    takes W to the cotangent −lift(X(t), X)/t, whose generator is the same Ω.

Q(t)W is not lowered X'(t): Q'Qᴴ = Ω(I − t²Ω²/4)⁻¹, and the two differ by O(t²).  A line search
needs X', a secant equation Q.  Both cost Gram matrices of size k and one tall update, once the
displacement N is known.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from stiefel.backends.base import Kernels, kernel
from stiefel.types import Array

from . import vector

# -- the frame


class Grams(NamedTuple):
    """XᴴX, XᴴU and UᴴU of a point X and a second tall matrix U."""

    XX: Array
    XU: Array
    UU: Array


class Frame(NamedTuple):
    """Ω on the span of X and U."""

    gram: Array  # Γ of [X, U], as measured
    basis: Array  # B; its first columns are those of I; None for I itself, with σ = 1
    cobasis: Array  # A = J Bᴴ/σ; None for J
    generator: Array  # K


def frame(k: Kernels, grams: Grams, basis: Array, sigma: Array | float) -> Frame:
    a, b, c = grams
    gram = k.assemble([[a, b], [k.adjoint(b), c]])
    upper, lower = halves(k.adjoint(basis) / sigma)
    cobasis = k.assemble([[-lower], [upper]])
    return Frame(gram, basis, cobasis, cobasis @ (gram @ basis))


def unit_frame(k: Kernels, grams: Grams) -> Frame:
    """The frame of the ray along U itself, which is about as large as X: B = I and K = JΓ."""
    a, b, c = grams
    bh = k.adjoint(b)
    return Frame(k.assemble([[a, b], [bh, c]]), None, None, k.assemble([[-bh, -c], [a, b]]))


def in_basis(frame: Frame, C: Array) -> Array:
    """B C."""
    return C if frame.basis is None else frame.basis @ C


def in_cobasis(k: Kernels, frame: Frame, upper: Array, lower: Array) -> Array:
    """A [upper; lower]."""
    if frame.cobasis is None:
        return k.assemble([[-lower], [upper]])
    return frame.cobasis @ k.assemble([[upper], [lower]])


def scale_of(k: Kernels, squares: Array) -> Array:
    """σ for matrices with these traces of UᴴU, one for each of a stack.

    A constant, because no curve depends on it and its derivative overflows for a small U.
    """
    tiny = float(k.xp.finfo(squares.dtype).smallest_normal)
    return k.constant((squares + tiny) ** -0.5)[..., None, None]


@kernel
def displacement(k: Kernels, frame: Frame, t: Array | float) -> Array:
    """N = (I − tK/2)⁻¹ tK.  The solve is well conditioned: K is skew in the inner product of Z."""
    tK = t * frame.generator
    return k.solve(k.eye(tK) - 0.5 * tK, tK)


@kernel
def point_coefficients(k: Kernels, frame: Frame, t: Array | float) -> tuple[Array, Array]:
    """C with Q(t)X = [X, U] C, and N."""
    N = displacement(k, frame, t)
    size = N.shape[-1] // 2
    B = k.eye(N) if frame.basis is None else frame.basis
    C = B[..., :size] + in_basis(frame, N[..., :size])
    return orthonormalised(k, frame.gram, C), N


def orthonormalised(k: Kernels, gram: Array, C: Array) -> Array:
    """One Newton–Schulz step on [X, U] C, done on its coefficients."""
    E = k.adjoint(C) @ (gram @ C)
    return C @ (1.5 * k.eye(E) - 0.5 * E)


def velocity_of(frame: Frame) -> tuple[Array, Array]:
    """C with φ(W) = ΩX = [X, U] C, and Γ C."""
    C = in_basis(frame, frame.generator[..., : frame.generator.shape[-1] // 2])
    return C, frame.gram @ C


def halves(C: Array) -> tuple[Array, Array]:
    """P and Q with [X, U] C = X P + U Q."""
    size = C.shape[-2] // 2
    return C[..., :size, :], C[..., size:, :]


# -- points and cotangents between them


@kernel
def point(k: Kernels, X: Array, U: Array, frame: Frame, t: Array | float) -> tuple[Array, Array]:
    """R(X, φ(tW)), and the displacement N; 4nk² + O(k³)."""
    C, N = point_coefficients(k, frame, t)
    P, Q = halves(C)
    return k.combine(X, P, U, Q), N


@kernel
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


@kernel
def extrapolate(k: Kernels, X: Array, Y: Array, tau: Array | float) -> Array:
    """R(X, φ(τV)) with V = lift(X, Y), without forming V; 10nk² + O(k³)."""
    if X.shape[-1] == 1:
        return vector.extrapolate(k, X, Y, tau)
    return point(k, X, Y, frame_between(k, Grams(*k.grams(X, Y))), tau)[0]


@kernel
def frame_between(k: Kernels, grams: Grams) -> Frame:
    """The frame of the ray from X to Y = Q(1)X, along YM − Xs."""
    m = grams.XU
    M = _twice_inverse(k, m)
    s = k.hermitian(m @ M)
    return frame(k, grams, k.assemble([[k.eye(m) + 0.0 * m, -s], [0.0 * m, M]]), 1.0)


def _twice_inverse(k: Kernels, m: Array) -> Array:
    """2(I + m)⁻¹; well conditioned for close points by Lemma 4.2, NaN for opposite ones."""
    one = k.eye(m)
    M = k.solve(one + m, 2.0 * one + 0.0 * m)
    # No curve leads to the opposite point: what rounding makes of I + m is none.
    largest = k.xp.max(k.xp.abs(M), axis=(-2, -1), keepdims=True)
    # The NaN is a constant: as a multiple of M it would make every derivative of M a NaN.
    return k.xp.where(largest < k.xp.finfo(M.dtype).eps ** -0.5, M, math.nan * one)


@kernel
def prepare(k: Kernels, X: Array, W: Array) -> tuple[Frame, Array, Array]:
    """The frame of the ray along W, ‖W‖²_g* and the squared defect of X; 6nk²."""
    grams = Grams(*k.grams(X, W))
    a, b, c = grams
    # ‖W‖²_g* = Tr Wᴴ(I + XXᴴ)W, from the Grams of the projected W: nothing is subtracted.
    square = k.trace(c) + k.squared_frobenius(b)
    return _along(k, grams, 0.0 * b), square, k.squared_frobenius(a - k.eye(a))


@kernel
def prepare_tangent(
    k: Kernels, X: Array, T: Array, theta: float
) -> tuple[Frame, Array, Array, Array]:
    """The frame of the ray along W = T − XM, squared defect of X, `squared_speed`, and ‖T‖²; 6nk².

    M = herm(XᴴT) + θ skew(XᴴT).
    """
    grams = Grams(*k.grams(X, T))
    a, b, c = grams
    made = _along(k, grams, (0.5 + 0.5 * theta) * b + (0.5 - 0.5 * theta) * k.adjoint(b))
    return made, k.squared_frobenius(a - k.eye(a)), squared_speed(k, made), k.trace(c)


def _along(k: Kernels, grams: Grams, M: Array) -> Frame:
    """The frame of W = U − XM."""
    sigma = scale_of(k, k.real(k.xp.linalg.trace(grams.UU)))
    one, zero = k.eye(M), 0.0 * M
    basis = k.assemble([[one + zero, -(sigma * M)], [zero, sigma * one + zero]])
    return frame(k, grams, basis, sigma)


# -- what moves along a ray


@kernel
def velocity(k: Kernels, X: Array, U: Array, frame: Frame, N: Array) -> Array:
    """X'(t) = Z (I + N/2) K (I + N/2) [I; 0], a tangent at X(t); 4nk² + O(k³)."""
    size, half = X.shape[-1], k.eye(N) + 0.5 * N
    P, Q = halves(in_basis(frame, half @ (frame.generator @ half[..., :size])))
    return k.combine(X, P, U, Q)


@kernel
def transported_velocity(k: Kernels, X: Array, U: Array, frame: Frame, N: Array) -> Array:
    """Q(t)φ(W) = Z (I + N) K [I; 0], a tangent at X(t); 4nk² + O(k³)."""
    K = frame.generator[..., : X.shape[-1]]
    P, Q = halves(in_basis(frame, K + N @ K))
    return k.combine(X, P, U, Q)


@kernel
def transport(
    k: Kernels, X: Array, U: Array, frame: Frame, N: Array, t: Array | float, V: Array
) -> Array:
    """Q(t)V = V + t Z (I + N/2) A [X, U]ᴴV, a cotangent at X(t); 8nk² + O(k³)."""
    MV = k.weigh(V)
    XV, UV = k.reduce(k._product(X, MV), k._product(U, MV))
    C = in_cobasis(k, frame, -t * XV, -t * UV)
    P, Q = halves(in_basis(frame, C + 0.5 * (N @ C)))
    return k.overwriting().subtract(k.subtract(V, X, P), U, Q)


@kernel
def squared_speed(k: Kernels, frame: Frame) -> Array:
    """The largest ‖φ(W)‖²_F of the matrices of a stack."""
    C, gram_C = velocity_of(frame)
    return k.largest(k.xp.sum(k.real(k.conj(C) * gram_C), axis=(-2, -1)))
