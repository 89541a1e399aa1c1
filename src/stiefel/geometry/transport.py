"""Vectors that move along a ray: its velocity, and an isometric transport.

The Cayley ray X(t) = Q(t)X has Q(t) = (I − tΩ/2)⁻¹(I + tΩ/2) with Ω = WXᴴ − XWᴴ.  Q is a function
of Ω, so that it commutes with Ω:

    Q'(t) = (I − tΩ/2)⁻¹ Ω (I − tΩ/2)⁻¹,           X'(t) = Q'(t)X
    V ↦ Q(t)V takes cotangents at X to cotangents at X(t), keeps every inner product of g*, and
    takes W to the cotangent −lift(X(t), X)/t, whose generator is the same Ω.

Q(t)W is not lowered X'(t): Q'Qᴴ = Ω(I − t²Ω²/4)⁻¹, and the two differ by O(t²).  A line search
needs X', a secant equation Q.  Both cost Gram matrices of size k and one tall update, once the
displacement N of `frame` is known.
"""

from __future__ import annotations

from typing import Any

from .frame import Frame, Grams, split
from .kernels import Array, Kernels


def velocity(k: Kernels, X: Array, W: Array, frame: Frame, N: Array) -> Array:
    """X'(t) = Z (I + N/2) 2K (I + N/2) [I; 0], a tangent at X(t); 4nk² + O(k³)."""
    size, half = X.shape[-1], k.eye(N) + 0.5 * N
    P, Q = split(frame, 2.0 * (half @ (frame.K @ half[..., :size])))
    return k.combine(X, P, W, Q)


def carried(k: Kernels, X: Array, W: Array, frame: Frame, N: Array, b: Array) -> Array:
    """Q(t)φ(W), a tangent at X(t); 4nk² + O(k³).

    φ(W) = Xb + W with b = XᴴW is Z C, which Q takes to Z (I + N) C.
    """
    C = k.block([[b], [k.eye(b) / frame.sigma + 0.0 * b]])
    P, Q = split(frame, C + N @ C)
    return k.combine(X, P, W, Q)


def transport(
    k: Kernels, X: Array, W: Array, frame: Frame, N: Array, t: Array | float, V: Array
) -> Array:
    """Q(t)V = V + t Z (I + N/2) J ZᴴV/σ, a cotangent at X(t); 8nk² + O(k³)."""
    MV = k.weigh(V)
    XV, WV = k.reduce(k._product(X, MV), k._product(W, MV))
    C = -t * k.block([[-WV], [XV / frame.sigma]])
    P, Q = split(frame, C + 0.5 * (N @ C))
    return k.overwriting().subtract(k.subtract(V, X, P), W, Q)


def longest(k: Kernels, grams: Grams) -> Array:
    """The largest ‖φ(W)‖²_F of the matrices of a stack: tr c + 3‖b‖² up to the defect of X."""
    _, b, c = grams
    squares = k.xp.sum(k.real(k.conj(b) * b), axis=(-2, -1))
    return k.xp.max(k.real(k.xp.linalg.trace(c)) + 3.0 * squares)


# -- blocks: arrays (m, *shape), one vector a row --------------------------------


def block_dot(k: Kernels, block: Array, C: Array) -> Array:
    """Re⟨block_i, C⟩ for all i: one product, 2mnk."""
    rows = k.xp.reshape(block, (block.shape[0], -1))
    column = k.xp.reshape(k.conj(k.weigh(C)), (-1,))
    return k.reduce(k.real(rows @ column))[0]


def block_add(k: Kernels, a: Any, C: Array, block: Array, weights: Array) -> Array:
    """a C + Σ weights_i block_i: one product, 2mnk."""
    rows = k.xp.reshape(block, (block.shape[0], -1))
    return a * C + k.xp.reshape(weights @ rows, block.shape[1:])
