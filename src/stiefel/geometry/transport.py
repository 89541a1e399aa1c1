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

from .frame import Frame, halves, turned
from .kernels import Array, Kernels


def velocity(k: Kernels, X: Array, U: Array, frame: Frame, N: Array) -> Array:
    """X'(t) = Z (I + N/2) 2K (I + N/2) [I; 0], a tangent at X(t); 4nk² + O(k³)."""
    size, half = X.shape[-1], k.eye(N) + 0.5 * N
    KX = turned(k, frame.inner @ half[..., :size]) / frame.sigma
    P, Q = halves(frame.basis @ (half @ KX))
    return k.combine(X, P, U, Q)


def carried(k: Kernels, X: Array, U: Array, frame: Frame, N: Array) -> Array:
    """Q(t)φ(W), a tangent at X(t); 4nk² + O(k³).

    φ(W) = X XᴴW + W is Z C/σ with C = [σXᴴW; I], which Q takes to Z (I + N) C/σ.
    """
    size = X.shape[-1]
    b = frame.inner[..., :size, size:]
    C = k.block([[b], [k.eye(b) + 0.0 * b]])
    P, Q = halves(frame.basis @ ((C + N @ C) / frame.sigma))
    return k.combine(X, P, U, Q)


def transport(
    k: Kernels, X: Array, U: Array, frame: Frame, N: Array, t: Array | float, V: Array
) -> Array:
    """Q(t)V = V + t Z (I + N/2) J ZᴴV/σ, a cotangent at X(t); 8nk² + O(k³)."""
    MV = k.weigh(V)
    XV, UV = k.reduce(k._product(X, MV), k._product(U, MV))
    C = turned(k, k.adjoint(frame.basis) @ k.block([[XV], [UV]])) * (-t / frame.sigma)
    P, Q = halves(frame.basis @ (C + 0.5 * (N @ C)))
    return k.overwriting().subtract(k.subtract(V, X, P), U, Q)


def longest(k: Kernels, frame: Frame) -> Array:
    """The largest ‖φ(W)‖²_F of a stack: Tr WᴴW + 3‖XᴴW‖² up to the defect of X."""
    size = frame.inner.shape[-1] // 2
    b, c = halves(frame.inner[..., size:])
    squares = k.xp.sum(k.real(k.conj(b) * b), axis=(-2, -1), keepdims=True)
    traces = k.real(k.xp.linalg.trace(c))[..., None, None]
    return k.xp.max((traces + 3.0 * squares) / frame.sigma**2)


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
