"""The generalised constraint XᴴBX = I.

With X̃ = B^{1/2}X the problem is the standard one, and every formula of the standard geometry
needs only Gram matrices: X̃ᴴX̃ = XᴴBX.  So the same formulas work on X itself with weighted Grams.
A cotangent is represented by W = B^{-1/2}W̃, which for a Euclidean gradient G is B⁻¹G, projected.
B^{1/2} is never formed; B is applied once per tall factor of a Gram matrix, B⁻¹ once per gradient.
Where B is dense, `rooted` moves a variable without B instead.

B must be Hermitian and positive definite, and is refused otherwise.  A dense B is proved so by
its Cholesky factorisation, a sparse one by an elimination that never leaves the diagonal, an
operator by a solve with conjugate gradients whose pivots are all positive.  Where ``solve`` is
given, B itself is only probed: a few dozen products.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import matmul
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

from stiefel.backends.arrays import describe, is_array, library, to_numpy
from stiefel.backends.base import Kernels
from stiefel.types import Array

from .positive import NotPositive, conjugate_gradients

Apply = Callable[[Any, Array], Array]

SYMMETRY_TOLERANCE = 1e-10
CG_TOLERANCE = 1e-14
PROBE_PRODUCTS = 50  # products spent on a B that comes with its own solve
SOLVE_TOLERANCE = 1e-6  # of a solve that was given, on a probe


def weighted(kernels: Kernels, B: Any, solve: Callable[[Array], Array] | None, X: Array) -> Kernels:
    """``kernels`` with inner products of columns taken in B."""
    with kernels.together():
        B = _converted(kernels, B, X)
        _check_entries(kernels, B, X)
    weights, apply = _product(B)
    probe = kernels.asarray(np.random.default_rng(0).standard_normal((X.shape[-2], 2)), X)
    _check_hermitian(kernels, B, lambda A: apply(weights, A), probe)
    if solve is not None:
        _check_solve(kernels, lambda A: apply(weights, A), solve, probe)
        return kernels.weighted(apply, lambda _, G: solve(G), weights)
    try:
        factors, inverse = _factorised(kernels, B, probe)
    except NotPositive:
        raise _indefinite() from None
    return kernels.weighted(_With(apply, 0), _With(inverse, 1), (weights, factors))


@dataclass(frozen=True)
class _With:
    """``function`` with one of the weights; equal ones share their compiled code."""

    function: Apply
    which: int

    def __call__(self, weights: Any, A: Array) -> Array:
        return self.function(weights[self.which], A)


def _is_operator(B: Any) -> bool:
    return isinstance(B, scipy.sparse.linalg.LinearOperator)


def _converted(k: Kernels, B: Any, X: Array) -> Any:
    """B in the array library and precision of X; real stays real beside a complex NumPy X."""
    n, sparse = X.shape[-2], scipy.sparse.issparse(B)
    if not (_is_operator(B) or sparse or is_array(B)):
        raise TypeError(
            f"B is {describe(B)}; expected an array, a scipy.sparse matrix or a LinearOperator"
        )
    if tuple(B.shape) != (n, n):
        raise ValueError(f"B has shape {tuple(B.shape)}; expected {(n, n)}, as X has {n} rows")
    if (_is_operator(B) or sparse) and library(X) != "numpy":
        raise TypeError(
            f"B is {describe(B)} and X an array of {library(X)}; expected a dense B, "
            f"or X as a NumPy array"
        )
    complex_B = _is_complex(B)
    if complex_B and not k.is_complex(X):
        raise TypeError(
            f"B is complex ({B.dtype}) and X is real ({X.dtype}); start from a complex X, "
            "for example X.astype(complex)"
        )
    if _is_operator(B):
        return B
    if library(X) == "numpy":
        dtype = X.dtype if complex_B else X.real.dtype
        return scipy.sparse.csc_matrix(B, dtype=dtype) if sparse else np.asarray(to_numpy(B), dtype)
    if library(B) == library(X):
        return k.xp.astype(B, X.dtype) if B.dtype != X.dtype else B
    return k.asarray(np.asarray(B), X)


def _is_complex(B: Any) -> bool:
    if isinstance(B, np.ndarray) or _is_operator(B) or scipy.sparse.issparse(B):
        return np.issubdtype(B.dtype, np.complexfloating)
    return "complex" in str(B.dtype)


def _product(B: Any) -> tuple[Any, Apply]:
    """(weights, apply) with apply(weights, A) = B A."""
    if _is_operator(B):
        return None, lambda _, A: _columns(B.matmat, A)
    if isinstance(B, np.ndarray) or scipy.sparse.issparse(B):
        real = B.dtype.kind != "c"
        return B, lambda M, A: _columns(lambda C: M @ C, A, real)
    return B, matmul


def _columns(function: Callable[[Array], Array], A: Array, real: bool = False) -> Array:
    """``function`` of an n×m matrix, applied to a stack of matrices as one wide matrix.

    A real function sees the 2m real columns of a complex A: SciPy would make B complex instead.
    """
    wide = A if A.ndim == 2 else np.moveaxis(A, -2, 0)
    flat = np.ascontiguousarray(wide).reshape(A.shape[-2], -1)
    if real and A.dtype.kind == "c":
        flat = np.ascontiguousarray(function(flat.view(flat.real.dtype))).view(A.dtype)
    else:
        flat = function(flat)
    result = np.asarray(flat, dtype=A.dtype).reshape(wide.shape)
    return result if A.ndim == 2 else np.moveaxis(result, 0, -2)


def _factorised(k: Kernels, B: Any, probe: Array) -> tuple[Any, Apply]:
    """(factors, solve), made once; `NotPositive` or LinAlgError if B is not definite."""
    if _is_operator(B):
        _solve_operator(k, B, probe)  # the proof of definiteness
        return None, lambda _, G: _columns(lambda M: _solve_operator(k, B, M), G)
    with k.together():
        try:
            factors, solve = _factorised_here(k, B)
        except (np.linalg.LinAlgError, NotPositive):
            raise _indefinite() from None
    return factors, solve


def _factorised_here(k: Kernels, B: Any) -> tuple[Any, Apply]:
    if 0 in B.shape:  # a rank without rows
        return None, lambda _, G: G
    if scipy.sparse.issparse(B):
        factor = _sparse_factor(B)
        return factor, lambda f, G: _columns(f.solve, G, B.dtype.kind != "c")
    factors, solve = k.factorise(B)
    if isinstance(B, np.ndarray):
        return factors, lambda f, G: _columns(lambda M: solve(f, M), G, B.dtype.kind != "c")
    return factors, solve


def _sparse_factor(B: Any) -> Any:
    """B = P L D Lᴴ Pᵀ by an elimination on the diagonal: B is definite if and only if D is.

    With threshold 0 SuperLU leaves the diagonal only where it is exactly zero.
    """
    try:
        factor = scipy.sparse.linalg.splu(
            B,
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            options={"SymmetricMode": True},
        )
    except RuntimeError as error:  # "Factor is exactly singular"
        raise NotPositive from error
    on_diagonal = np.array_equal(factor.perm_r, factor.perm_c)
    if not on_diagonal or not np.all(factor.U.diagonal().real > 0):
        raise NotPositive
    return factor


def _solve_operator(k: Kernels, B: Any, M: Array) -> Array:
    double = np.result_type(M.dtype, np.float64)  # a residual of 1e-10 has no meaning in float32
    x, residual = conjugate_gradients(
        B.matmat, M.astype(double, copy=False), CG_TOLERANCE, 10 * k.rows(M), k
    )
    if residual > 1e-10:  # NaN is that of a gradient with NaN or infinity, which the run will tell
        raise ValueError(
            f"conjugate gradients reached a relative residual of {residual:.1e} with B (1e-10 is "
            "needed); B is too ill-conditioned: pass Stiefel(B=..., solve=...) with your own solver"
        )
    return x


def rounding_of_product(k: Kernels, X: Array) -> float:
    """‖B‖‖X‖²/k, the units of rounding that XᴴBX loses; 0 where no entries of B are at hand.

    With B of condition c it is up to c: no X in this precision has a smaller defect.  Without it
    runs with c = 10³ ended in ROUNDING_LIMIT; test_generalised.py.
    """
    weights = getattr(k, "weights", None)
    B = weights[0] if isinstance(weights, tuple) else weights
    if B is None or not k.whole:
        return 0.0
    if scipy.sparse.issparse(B):
        norm = float(abs(B).sum(axis=1).max())
    else:
        norm = float(k.xp.max(k.xp.sum(k.xp.abs(B), axis=-1)))
    squares = k.xp.sum(k.xp.abs(X) ** 2, axis=(-2, -1))
    return norm * float(k.xp.max(squares)) / X.shape[-1]


# -- what B must be ------------------------------------------------------------------------


def _check_hermitian(k: Kernels, B: Any, apply: Callable[[Array], Array], probe: Array) -> None:
    """An operator is asked for xᴴBy and (Bx)ᴴy; entries have been compared already."""
    Bp = apply(probe)
    if not k.finite(Bp):
        raise ValueError("B contains NaN or infinity; expected finite entries")
    if not _is_operator(B):
        return
    pairs = np.asarray(k.reduce(k._product(probe, Bp))[0])
    _compare(k, abs(pairs - pairs.conj().T).max(), abs(pairs).max(), probe)


def _check_entries(k: Kernels, B: Any, X: Array) -> None:
    if _is_operator(B) or 0 in B.shape:
        return
    if scipy.sparse.issparse(B):
        gap, scale = abs(B - B.conj().T).max(), abs(B).max()
    else:
        gap, scale = (float(k.xp.max(k.xp.abs(M))) for M in (B - _adjoint(k, B), B))
    if np.isfinite(scale):
        _compare(k, gap, scale, X)


def _compare(k: Kernels, gap: float, scale: float, like: Array) -> None:
    eps = float(k.xp.finfo(like.dtype).eps)
    if gap > max(SYMMETRY_TOLERANCE, 1e3 * eps) * scale:
        raise ValueError(
            f"B is not Hermitian: B − Bᴴ has entries of {gap:.1e} where B has {scale:.1e}; "
            "expected B = Bᴴ, positive definite"
        )


def _adjoint(k: Kernels, B: Array) -> Array:
    return B.conj().T if isinstance(B, np.ndarray) else k.adjoint(B)


def _check_solve(
    k: Kernels, apply: Callable[[Array], Array], solve: Callable[[Array], Array], probe: Array
) -> None:
    """Fifty steps of conjugate gradients find a negative direction, if it is not well hidden."""
    error = apply(solve(probe)) - probe
    ratio = k.reduce(k._dot(error, error), k._dot(probe, probe))
    relative = (float(ratio[0]) / float(ratio[1])) ** 0.5
    eps = float(k.xp.finfo(probe.dtype).eps)
    allowed = max(SOLVE_TOLERANCE, 1e3 * eps)
    if not relative <= allowed:
        raise ValueError(
            f"solve(G) is not B⁻¹G: B solve(G) and G differ by {relative:.1e} (relative) on a "
            f"random G; expected less than {allowed:.0e}"
        )
    try:
        conjugate_gradients(apply, probe, max(CG_TOLERANCE, eps), PROBE_PRODUCTS, k)
    except NotPositive:
        raise _indefinite() from None


def _indefinite() -> ValueError:
    return ValueError(
        "B is not positive definite; XᴴBX = I has a solution with any start only for a "
        "Hermitian positive definite B"
    )
