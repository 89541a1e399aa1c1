"""Second derivatives along the ray, as an operator on cotangents.

The Cayley ray agrees with the geodesic to second order, X(t) = X + tΩX + t²Ω²X/2 + O(t³), so that
with T = φ(W) = ΩX, Euclidean gradient G and E = ∇²f(X)[T] the Riemannian Hessian is the quadratic
form

    d²/dt² f(X(t)) = Re⟨E, T⟩ + Re⟨G, Ω²X⟩.

Polarised, ½Re⟨G, (Ω_V Ω_W + Ω_W Ω_V)X⟩ = ½(−Re⟨φ(V), Ω_W G⟩ + Re⟨V, −T GᴴX + G TᴴX⟩), and read as
g*(V, HW) for every cotangent V,

    HW = P(E) + ½(−P(Ω_W G) + φ⁻¹P(−T GᴴX + G TᴴX)),

P the projection.  Everything is X, W or G times a k×k matrix.  With a = XᴴG, A = XᴴW, c = WᴴG:

    HW = P(E) − W herm(a) − G A + X(½c − ½A aᴴ − herm(m₁ + m₂) − ½ skew(m₂)),
    m₁ = ½(c − A a),  m₂ = −A aᴴ − a A.
"""

from __future__ import annotations

from stiefel.backends.base import Kernels, kernel
from stiefel.types import Array


@kernel
def stiefel_hessian(k: Kernels, X: Array, G: Array, W: Array, E: Array) -> Array:
    a, A = k.pairing(X, G), k.gram(X, W)
    c = k.pairing(W, G)
    AaH = A @ k.adjoint(a)
    m1, m2 = 0.5 * (c - A @ a), -AaH - a @ A
    small = 0.5 * (c - AaH) - k.hermitian(m1 + m2) - 0.5 * k.skew(m2)
    small = small - k.hermitian(k.pairing(X, E))
    return k.sharpen(E) + k.combine(X, small, W, -k.hermitian(a)) - k.sharpen(G) @ A


@kernel
def grassmann_hessian(k: Kernels, X: Array, G: Array, W: Array, E: Array) -> Array:
    """(I − XXᴴ)E − W herm(XᴴG), for a horizontal W."""
    HW = k.subtract(k.sharpen(E), W, k.hermitian(k.pairing(X, G)))
    return k.subtract(HW, X, k.gram(X, HW))
