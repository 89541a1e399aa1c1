"""Conjugate gradients for several right-hand sides, which notice an indefinite matrix.

    α = rᴴr / pᴴBp,   x ← x + αp,   r ← r − αBp,   p ← r + (rᴴr / r₋ᴴr₋) p,

each column on its own, products with B together.  If all pᴴBp are positive until r vanishes, B
has no negative eigenvalue that is present in the right-hand side: the residual is q(B)b with
q(0) = 1, and all zeros of q are positive, so that |q| > 1 at a negative eigenvalue.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stiefel.backends.arrays import kernels_for
from stiefel.backends.base import Kernels
from stiefel.types import Array


class NotPositive(ArithmeticError):
    """pᴴBp ≤ 0 was met."""


def conjugate_gradients(
    apply: Callable[[Array], Array],
    b: Array,
    tolerance: float,
    max_products: int,
    kernels: Kernels | None = None,
) -> tuple[Array, float]:
    """(x, the largest relative residual of a column) with B x ≈ b; one product a step."""
    k = kernels or kernels_for(b)
    x, r = 0.0 * b, b
    p, rho = r, _squares(k, r)
    first = np.where(rho > 0, rho, 1.0)
    for _ in range(max_products):
        active = rho > tolerance**2 * first
        if not active.any():
            break
        Bp = apply(p)
        curvature = _dots(k, p, Bp)
        if not np.all(curvature[active] > 0):
            raise NotPositive
        alpha = np.where(active, rho / np.where(active, curvature, 1.0), 0.0)
        x = x + _scaled(k, alpha, p)
        r = r - _scaled(k, alpha, Bp)
        before, rho = rho, _squares(k, r)
        beta = np.where(active, rho / np.where(active, before, 1.0), 0.0)
        p = r + _scaled(k, beta, p)
    return x, float(np.sqrt(np.max(rho / first)))


def _dots(k: Kernels, a: Array, b: Array) -> np.ndarray:
    """Re aᴴb of each column, as NumPy numbers: decisions are taken on them."""
    (dots,) = k.reduce(k.xp.sum(k.real(k.conj(a) * b), axis=0))
    return np.asarray([float(v) for v in dots])


def _squares(k: Kernels, a: Array) -> np.ndarray:
    return _dots(k, a, a)


def _scaled(k: Kernels, factors: np.ndarray, A: Array) -> Array:
    return k.asarray(factors, A) * A
