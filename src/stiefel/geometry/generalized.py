"""The generalised constraint XᴴBX = I.

With X̃ = B^{1/2}X the problem is the standard one, and every formula of the standard geometry
needs only Gram matrices: X̃ᴴX̃ = XᴴBX.  So the same text runs on X itself with weighted Grams.
A cotangent is represented by W = B^{-1/2}W̃, which for a Euclidean gradient G is B⁻¹G, projected.
No square root of B is ever formed; B is applied once per Gram matrix, B⁻¹ once per gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg

from stiefel.interop.arrays import describe, is_array

from .kernels import Array, Kernels

SYMMETRY_TOLERANCE = 1e-10
CG_TOLERANCE = 1e-14


def weighted(kernels: Kernels, B: Any, solve: Callable[[Array], Array] | None, X: Array) -> Kernels:
    """``kernels`` with inner products of columns taken in B."""
    n = X.shape[-2]
    if isinstance(B, scipy.sparse.linalg.LinearOperator) or scipy.sparse.issparse(B):
        shape = B.shape
    elif is_array(B):
        shape = tuple(B.shape)
    else:
        raise TypeError(
            f"B is {describe(B)}; expected an array, a scipy.sparse matrix or a LinearOperator"
        )
    if shape != (n, n):
        raise ValueError(f"B has shape {shape}; expected {(n, n)}, as X has {n} rows")
    _check_hermitian(kernels, B, X)
    return kernels.weighted(_apply(B), solve or _inverse(kernels, B, X))


def _apply(B: Any) -> Callable[[Array], Array]:
    if isinstance(B, scipy.sparse.linalg.LinearOperator):
        return lambda A: _columns(B.matmat, A)
    if scipy.sparse.issparse(B):
        return lambda A: _columns(lambda M: B @ M, A)
    return lambda A: B @ A


def _columns(function: Callable[[Array], Array], A: Array) -> Array:
    """``function`` of an n×m matrix, applied to a stack of matrices as one wide matrix."""
    if A.ndim == 2:
        return function(A).astype(A.dtype, copy=False)
    wide = np.moveaxis(A, -2, 0)
    result = function(wide.reshape(A.shape[-2], -1)).reshape(wide.shape)
    return np.moveaxis(result, 0, -2).astype(A.dtype, copy=False)


def _check_hermitian(k: Kernels, B: Any, X: Array) -> None:
    """Refuse a B that is not Hermitian, from two probes: O(n²), also for operators."""
    rng = np.random.default_rng(0)
    probe = rng.standard_normal((X.shape[-2], 2))
    x, y = (k.asarray(probe[:, i : i + 1], X) for i in (0, 1))
    apply = _apply(B)
    left, right = k._product(x, apply(y)), k._product(apply(x), y)
    gap = abs(complex(left[0, 0]) - complex(right[0, 0]))
    energy = [complex(k._product(v, apply(v))[0, 0]).real for v in (x, y)]
    eps = float(k.xp.finfo(X.dtype).eps)
    scale = abs(energy[0]) + abs(energy[1]) + abs(complex(left[0, 0]))
    if not np.isfinite(scale):
        raise ValueError("B contains NaN or infinity; expected finite entries")
    if gap > max(SYMMETRY_TOLERANCE, 1e3 * eps) * scale:
        raise ValueError(
            f"B is not Hermitian: xᴴBy and (Bx)ᴴy differ by {gap:.1e} on a random pair; "
            "expected B = Bᴴ, positive definite"
        )
    if min(energy) <= 0:
        raise _indefinite()


def _indefinite() -> ValueError:
    return ValueError(
        "B is not positive definite; XᴴBX = I has a solution with any start only for a "
        "Hermitian positive definite B"
    )


def _inverse(k: Kernels, B: Any, X: Array) -> Callable[[Array], Array]:
    """G ↦ B⁻¹G: a factorisation made once, or conjugate gradients for an operator."""
    if isinstance(B, scipy.sparse.linalg.LinearOperator):
        return lambda G: _columns(lambda M: _conjugate_gradients(B, M), G)
    if scipy.sparse.issparse(B):
        factor = scipy.sparse.linalg.splu(scipy.sparse.csc_matrix(B).astype(X.dtype))
        if np.any(factor.U.diagonal().real <= 0):
            raise _indefinite()
        return lambda G: _columns(factor.solve, G)
    if isinstance(B, np.ndarray):
        try:
            cholesky = scipy.linalg.cho_factor(B.astype(np.result_type(B, X)))
        except np.linalg.LinAlgError:
            raise _indefinite() from None
        return lambda G: _columns(lambda M: scipy.linalg.cho_solve(cholesky, M), G)
    factor = k.xp.linalg.cholesky(B)
    if not k.finite(factor):
        raise _indefinite()
    return lambda G: k.xp.linalg.solve(B, G)


def _conjugate_gradients(B: Any, M: Array) -> Array:
    columns = []
    for column in M.T:
        x, info = scipy.sparse.linalg.cg(B, column, rtol=CG_TOLERANCE, maxiter=10 * len(column))
        if info != 0 and np.linalg.norm(B @ x - column) > 1e-10 * np.linalg.norm(column):
            raise ValueError(
                "conjugate gradients did not solve with B; it may be indefinite: "
                "pass Stiefel(B=..., solve=...) with your own solver"
            )
        columns.append(x)
    return np.stack(columns, axis=-1)
