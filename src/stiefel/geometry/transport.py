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

from .frame import Frame, halves, velocity_of
from .kernels import Array, Kernels


def velocity(k: Kernels, X: Array, U: Array, frame: Frame, N: Array) -> Array:
    """X'(t) = Z (I + N/2) K (I + N/2) [I; 0], a tangent at X(t); 4nk² + O(k³)."""
    size, half = X.shape[-1], k.eye(N) + 0.5 * N
    P, Q = halves(frame.basis @ (half @ (frame.generator @ half[..., :size])))
    return k.combine(X, P, U, Q)


def carried(k: Kernels, X: Array, U: Array, frame: Frame, N: Array) -> Array:
    """Q(t)φ(W) = Z (I + N) K [I; 0], a tangent at X(t); 4nk² + O(k³)."""
    K = frame.generator[..., : X.shape[-1]]
    P, Q = halves(frame.basis @ (K + N @ K))
    return k.combine(X, P, U, Q)


def transport(
    k: Kernels, X: Array, U: Array, frame: Frame, N: Array, t: Array | float, V: Array
) -> Array:
    """Q(t)V = V + t Z (I + N/2) A [X, U]ᴴV, a cotangent at X(t); 8nk² + O(k³)."""
    MV = k.weigh(V)
    XV, UV = k.reduce(k._product(X, MV), k._product(U, MV))
    C = frame.cobasis @ k.block([[-t * XV], [-t * UV]])
    P, Q = halves(frame.basis @ (C + 0.5 * (N @ C)))
    return k.overwriting().subtract(k.subtract(V, X, P), U, Q)


def longest(k: Kernels, frame: Frame) -> Array:
    """The largest ‖φ(W)‖²_F of the matrices of a stack."""
    C, gram_C = velocity_of(frame)
    return k.largest(k.xp.sum(k.real(k.conj(C) * gram_C), axis=(-2, -1)))


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
