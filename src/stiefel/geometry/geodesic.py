"""Exact geodesics of the canonical metric through a small matrix; eq. (stiefel_exact_geodesics).

With U = [W, X] and Z = [X, −W] the skew matrix is Ω = W Xᴴ − X Wᴴ = U Zᴴ, of rank 2k at most, so

    exp(tΩ)X = X + t U φ₁(t ZᴴU) ZᴴX,        φ₁(M) = (eᴹ − I)M⁻¹,

and φ₁(M)C is the upper right block of exp [[M, C], [0, 0]].  Only Gram matrices and one
exponential of size 3k are needed; nothing n×n, and no division by small numbers.
"""

from __future__ import annotations

from stiefel.backends.base import Kernels, kernel
from stiefel.types import Array


@kernel
def geodesic_point(k: Kernels, X: Array, W: Array, t: float | Array) -> Array:
    """exp(t(WXᴴ − XWᴴ))X; 10nk² + O(k³)."""
    xp = k.xp
    a, b, c = k.grams(X, W)
    bH = k.adjoint(b)
    ZU = k.assemble([[b, a], [-c, -bH]])
    ZX = k.assemble([[a], [-bH]])
    below = xp.zeros_like(k.assemble([[ZX[..., : a.shape[-1], :], ZU[..., : a.shape[-1], :]]]))
    E = k.expm(t * k.assemble([[ZU, ZX], [below]]))
    size = a.shape[-1]
    onto_W = E[..., :size, 2 * size :]
    onto_X = E[..., size : 2 * size, 2 * size :]
    return k.combine(X, k.eye(a) + onto_X, W, onto_W)
