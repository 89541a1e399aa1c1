"""How the generator of a Cayley ray acts on the span of its two tall matrices.

A ray leaves X along a cotangent W in the span of X and of another tall matrix U: W itself, a
tangent T with W = T − XM, or a second point Y with W = YM − Xs.  With a number σ and a matrix B,

    Z = [X, σW] = [X, U] B,    Ω = W Xᴴ − X Wᴴ = Z J Zᴴ/σ,    J = [0 −I; I 0],

so that (tΩ/2) Z = Z tK with K = J ZᴴZ/(2σ).  Everything that a ray needs is then one small
matrix, the displacement

    N = (I − tK)⁻¹ 2tK,    Q(t) Z = Z (I + N),    (I − tΩ/2)⁻¹ Z = Z (I + N/2).

It is as small as the step, and known to its own last digits, not to those of I.  σ makes σW as
large as X, so that tK does not depend on how large W is and how small t; where it is a power of
two, rounding does not either.
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
    """Z = [X, U] B; the first columns of B are those of I."""

    gram: Array  # of [X, U], as measured
    basis: Array  # B
    inner: Array  # ZᴴZ
    sigma: Array | float


def frame(k: Kernels, grams: Grams, basis: Array, sigma: Array | float) -> Frame:
    a, b, c = grams
    gram = k.block([[a, b], [k.adjoint(b), c]])
    return Frame(gram, basis, k.adjoint(basis) @ (gram @ basis), sigma)


def scale_of(k: Kernels, squares: Array) -> Array:
    """σ for matrices with these traces of UᴴU, one for each of a stack."""
    tiny = float(k.xp.finfo(squares.dtype).smallest_normal)
    return ((squares + tiny) ** -0.5)[..., None, None]


def turned(k: Kernels, C: Array) -> Array:
    """J C."""
    size = C.shape[-2] // 2
    return k.block([[-C[..., size:, :]], [C[..., :size, :]]])


def displacement(k: Kernels, frame: Frame, t: Array | float) -> Array:
    """N = (I − tK)⁻¹ 2tK.  The solve is well conditioned: K is skew in the inner product of Z."""
    twice = (t / frame.sigma) * turned(k, frame.inner)
    return k.solve(k.eye(twice) - 0.5 * twice, twice)


def moved(k: Kernels, frame: Frame, t: Array | float) -> tuple[Array, Array]:
    """C with Q(t)X = [X, U] C, and N."""
    N, B = k.call(displacement, frame, t), frame.basis
    size = B.shape[-1] // 2
    return orthonormalised(k, frame.gram, B[..., :size] + B @ N[..., :size]), N


def orthonormalised(k: Kernels, gram: Array, C: Array) -> Array:
    """One Newton–Schulz step on [X, U] C, done on its coefficients."""
    E = k.adjoint(C) @ (gram @ C)
    return C @ (1.5 * k.eye(E) - 0.5 * E)


def halves(C: Array) -> tuple[Array, Array]:
    """P and Q with [X, U] C = X P + U Q."""
    size = C.shape[-2] // 2
    return C[..., :size, :], C[..., size:, :]
