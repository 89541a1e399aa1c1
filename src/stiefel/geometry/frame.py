"""How the generator of a Cayley ray acts on the span of its two tall matrices.

With Ω = W Xᴴ − X Wᴴ and Z = [X, σW], σ a number, Ω = Z J Zᴴ/σ where J = [0 −I; I 0], so that

    (tΩ/2) Z = Z tK,    K = J ZᴴZ/(2σ) = ½ [−bᴴ  −σc; a/σ  b],    a = XᴴX, b = XᴴW, c = WᴴW.

Everything that a ray needs is then one small matrix, the displacement

    N = (I − tK)⁻¹ 2tK,    Q(t) Z = Z (I + N),    (I − tΩ/2)⁻¹ Z = Z (I + N/2).

It is as small as the step, and known to its own last digits, not to those of I.  σ makes σW as
large as X, so that tK does not depend on how large W is and how small t; where it is a power of
two, rounding does not either.
"""

from __future__ import annotations

from typing import NamedTuple

from .kernels import Array, Kernels


class Grams(NamedTuple):
    """XᴴX, XᴴW and WᴴW of a point X and a second tall matrix W."""

    XX: Array
    XW: Array
    WW: Array


class Frame(NamedTuple):
    """How tΩ/2 acts on Z: as tK."""

    K: Array
    sigma: Array | float


def frame(k: Kernels, grams: Grams) -> Frame:
    """K and σ, from the Grams of X and W."""
    a, b, c = grams
    tiny = float(k.xp.finfo(c.dtype).smallest_normal)
    # Not from the trace: c may be a difference of Grams, rounding of either sign.
    sigma = (k.xp.max(k.xp.abs(c), axis=(-2, -1), keepdims=True) + tiny) ** -0.5
    return Frame(0.5 * k.block([[-k.adjoint(b), -(sigma * c)], [a / sigma, b]]), sigma)


def displacement(k: Kernels, frame: Frame, t: Array | float) -> Array:
    """N = (I − tK)⁻¹ 2tK.  The solve is well conditioned: K is skew in the inner product of Z."""
    twice = (2.0 * t) * frame.K
    return k.solve(k.eye(twice) - 0.5 * twice, twice)


def split(frame: Frame, C: Array) -> tuple[Array, Array]:
    """P and Q with Z C = X P + W Q."""
    size = C.shape[-2] // 2
    return C[..., :size, :], frame.sigma * C[..., size:, :]


def moved(k: Kernels, frame: Frame, t: Array | float) -> tuple[Array, Array, Array]:
    """P and Q with Q(t)X = X P + W Q, and N."""
    N = k.call(displacement, frame, t)
    P, Q = split(frame, N[..., : N.shape[-1] // 2])
    return P + k.eye(P), Q, N


def orthonormalised(k: Kernels, grams: Grams, P: Array, Q: Array) -> tuple[Array, Array]:
    """One Newton–Schulz step on X P + W Q, done on its coefficients."""
    a, b, c = grams
    E = k.adjoint(P) @ (a @ P + b @ Q) + k.adjoint(Q) @ (k.adjoint(b) @ P + c @ Q)
    E = 1.5 * k.eye(E) - 0.5 * E
    return P @ E, Q @ E
