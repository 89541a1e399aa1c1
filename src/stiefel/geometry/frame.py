"""How the generator of a Cayley ray acts on the span of its two tall matrices.

A ray leaves X along a cotangent W in the span of X and of another tall matrix U: W itself, a
tangent T with W = T − XM, or a second point Y with W = YM − Xs.  With a number σ and a matrix B,

    Z = [X, σW] = [X, U] B,    Ω = W Xᴴ − X Wᴴ = Z J Zᴴ/σ,    J = [0 −I; I 0],

so that Ω Z = Z K with K = A Γ B, A = J Bᴴ/σ and Γ the Gram matrix of [X, U].  Everything that a
ray needs is then one small matrix, the displacement

    N = (I − tK/2)⁻¹ tK,    Q(t) Z = Z (I + N),    (I − tΩ/2)⁻¹ Z = Z (I + N/2).

It is as small as the step, and known to its own last digits, not to those of I.  σ makes σU about
as large as X, so that tK does not depend on how large W is and how small t; where it is a power of
two, rounding does not either.  Between two points σ is 1.
"""

from __future__ import annotations

from typing import NamedTuple

from .kernels import Array, Kernels


class Grams(NamedTuple):
    """XᴴX, XᴴU and UᴴU of a point X and a second tall matrix U."""

    XX: Array
    XU: Array
    UU: Array


class Frame(NamedTuple):
    """Ω on the span of X and U."""

    gram: Array  # Γ of [X, U], as measured
    basis: Array  # B; its first columns are those of I
    cobasis: Array  # A = J Bᴴ/σ
    generator: Array  # K


def frame(k: Kernels, grams: Grams, basis: Array, sigma: Array | float) -> Frame:
    a, b, c = grams
    gram = k.block([[a, b], [k.adjoint(b), c]])
    upper, lower = halves(k.adjoint(basis) / sigma)
    cobasis = k.block([[-lower], [upper]])
    return Frame(gram, basis, cobasis, cobasis @ (gram @ basis))


def scale_of(k: Kernels, squares: Array) -> Array:
    """σ for matrices with these traces of UᴴU, one for each of a stack.

    A constant, because no curve depends on it and its derivative overflows for a small U.
    """
    tiny = float(k.xp.finfo(squares.dtype).smallest_normal)
    return k.constant((squares + tiny) ** -0.5)[..., None, None]


def displacement(k: Kernels, frame: Frame, t: Array | float) -> Array:
    """N = (I − tK/2)⁻¹ tK.  The solve is well conditioned: K is skew in the inner product of Z."""
    tK = t * frame.generator
    return k.solve(k.eye(tK) - 0.5 * tK, tK)


def moved(k: Kernels, frame: Frame, t: Array | float) -> tuple[Array, Array]:
    """C with Q(t)X = [X, U] C, and N."""
    N, B = k.call(displacement, frame, t), frame.basis
    size = B.shape[-1] // 2
    return orthonormalised(k, frame.gram, B[..., :size] + B @ N[..., :size]), N


def orthonormalised(k: Kernels, gram: Array, C: Array) -> Array:
    """One Newton–Schulz step on [X, U] C, done on its coefficients."""
    E = k.adjoint(C) @ (gram @ C)
    return C @ (1.5 * k.eye(E) - 0.5 * E)


def velocity_of(frame: Frame) -> tuple[Array, Array]:
    """C with φ(W) = ΩX = [X, U] C, and Γ C."""
    C = frame.basis @ frame.generator[..., : frame.basis.shape[-1] // 2]
    return C, frame.gram @ C


def halves(C: Array) -> tuple[Array, Array]:
    """P and Q with [X, U] C = X P + U Q."""
    size = C.shape[-2] // 2
    return C[..., :size, :], C[..., size:, :]
