"""Vectors that move along a ray: its velocity, and an isometric transport.

The Cayley ray X(t) = Q(t)X has Q(t) = (I − tΩ/2)⁻¹(I + tΩ/2) with Ω = WXᴴ − XWᴴ.  Q is a function
of Ω, so that it commutes with Ω:

    Q'(t) = (I − tΩ/2)⁻¹ Ω (I − tΩ/2)⁻¹,           X'(t) = Q'(t)X
    V ↦ Q(t)V takes cotangents at X to cotangents at X(t), keeps every inner product of g*, and
    takes W to the cotangent −lift(X(t), X)/t, whose generator is the same Ω.

Q(t)W is not lowered X'(t): Q'Qᴴ = Ω(I − t²Ω²/4)⁻¹, and the two differ by O(t²).  A line search
needs X', a secant equation Q.  Both cost Gram matrices of size k and one tall update.
"""

from __future__ import annotations

from typing import Any

from .kernels import Array, Kernels


def velocity(k: Kernels, X: Array, W: Array, grams: Any, t: Array | float) -> Array:
    """X'(t), a tangent at X(t): the coefficients of R1, differentiated; 4nk² + O(k³)."""
    a, b, c = grams
    h = 0.5 * t
    if X.shape[-1] == 1:
        P, Q = _column_velocity(k, a, b, c, t)
        return k.axpby(P, X, Q, W)
    size = a.shape[-1]
    bH = k.adjoint(b)
    matrix = system(k, grams, h)
    S = k.solve(matrix, k.block([[a], [-h * bH]]))
    up, low = S[..., :size, :], S[..., size:, :]
    # M S' = r' − (dM/dt) S
    right = k.block([[0.5 * (b @ up)], [-0.5 * bH - h * (c @ up) - 0.5 * (bH @ low)]])
    dS = k.solve(matrix, right)
    return k.combine(X, 2.0 * dS[..., size:, :], W, up + t * dS[..., :size, :])


def transport(k: Kernels, X: Array, W: Array, grams: Any, t: Array | float, V: Array) -> Array:
    """Q(t)V, a cotangent at X(t); 8nk² + O(k³)."""
    a, b, c = grams
    h = 0.5 * t
    if X.shape[-1] == 1:
        p, q = k.column_gram(X, V), -h * k.column_gram(W, V)
        minus, plus = 1.0 - h * b, 1.0 + h * k.conj_number(b)
        determinant = minus * plus + (h * h) * (a * c)
        up, low = (plus * p + a * q) / determinant, (minus * q - (h * h) * c * p) / determinant
        return V + k.axpby(2.0 * low, X, t * up, W)
    size, MV = a.shape[-1], k.weigh(V)
    XV, WV = k.reduce(k._product(X, MV), k._product(W, MV))
    S = k.solve(system(k, grams, h), k.block([[XV], [-h * WV]]))
    return V + k.combine(X, 2.0 * S[..., size:, :], W, t * S[..., :size, :])


def carried(k: Kernels, X: Array, W: Array, grams: Any, t: Array | float) -> Array:
    """Q(t)φ(W), a tangent at X(t), from the Grams at hand; 4nk² + O(k³).

    φ(W) = W + Xb with b = XᴴW, and QX, QW are both in the span of X and W.
    """
    a, b, c = grams
    if X.shape[-1] == 1:
        return transport(k, X, W, grams, t, k.axpby(b, X, 1.0, W))
    h, size = 0.5 * t, X.shape[-1]
    bH = k.adjoint(b)
    S = k.solve(system(k, grams, h), k.block([[b + a @ b], [-h * (c + bH @ b)]]))
    one = k.eye(a)
    return k.combine(X, 2.0 * S[..., size:, :] + b, W, one + t * S[..., :size, :])


def longest(k: Kernels, X: Array, grams: Any) -> Array:
    """The largest ‖φ(W)‖²_F of the matrices of a stack: tr c + 3‖b‖² up to the defect of X."""
    _, b, c = grams
    if X.shape[-1] == 1:
        return k.largest_number(c + 3.0 * (b * k.conj_number(b)))
    squares = k.xp.sum(k.real(k.conj(b) * b), axis=(-2, -1))
    return k.xp.max(k.real(k.xp.linalg.trace(c)) + 3.0 * squares)


def system(k: Kernels, grams: Any, h: Array | float) -> Array:
    """I − ZᴴU of eq. (R1)."""
    a, b, c = grams
    one = k.eye(a)
    return k.block([[one - h * b, -a], [(h * h) * c, one + h * k.adjoint(b)]])


def _column_velocity(k: Kernels, a: Any, b: Any, c: Any, t: Any) -> tuple[Any, Any]:
    """The derivatives of P = (|1 − hb|² − h²ac)/D and Q = ta/D, D = (1 − hb)(1 + hb̄) + h²ac."""
    h, b_ = 0.5 * t, k.conj_number(b)
    minus, plus = 1.0 - h * b, 1.0 + h * b_
    minus_ = k.conj_number(minus)
    D = minus * plus + (h * h) * (a * c)
    dD = 0.5 * (minus * b_ - b * plus) + h * (a * c)
    P = (minus * minus_ - (h * h) * (a * c)) / D
    dN = -0.5 * (b * minus_ + minus * b_) - h * (a * c)
    return (dN - P * dD) / D, (a - t * a / D * dD) / D


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
