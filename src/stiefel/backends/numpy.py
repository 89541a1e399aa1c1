"""Kernels for NumPy arrays: BLAS and LAPACK called directly on single matrices.

At n = 1000, k = 10 an iteration is a few hundred microseconds, so that every temporary of size
n×k and every wrapper around a 20×20 solve shows.  Results do not depend on which path is taken
beyond rounding.
"""

from __future__ import annotations

import importlib
import os
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np
import scipy

from stiefel.types import Array

from .base import Kernels

Routines = dict[np.dtype[Any], Any]

_GEMM: Routines = {}
_AXPY: Routines = {}
_GEMV: Routines = {}
_GESV: Routines = {}
_EIGH: Routines = {}
_GEQRF: Routines = {}
_ORGQR: Routines = {}
_PSTRF: Routines = {}
_TRTRI: Routines = {}
_POTRF: Routines = {}
_POCON: Routines = {}
_POTRS: Routines = {}


def _load() -> None:
    """Fill the tables above; scipy.linalg takes 0.15 s to import, and waits for the first array."""
    for letter, kind in zip("sdcz", (np.float32, np.float64, np.complex64, np.complex128)):
        dtype: np.dtype[Any] = np.dtype(kind)
        for table, name in ((_GEMM, "gemm"), (_AXPY, "axpy"), (_GEMV, "gemv")):
            table[dtype] = getattr(scipy.linalg.blas, letter + name)
        eigh, orgqr = ("syevd", "orgqr") if letter in "sd" else ("heevd", "ungqr")
        for table, name in (
            (_GESV, "gesv"), (_EIGH, eigh), (_GEQRF, "geqrf"), (_ORGQR, orgqr),
            (_PSTRF, "pstrf"), (_TRTRI, "trtri"), (_POTRF, "potrf"),
            (_POCON, "pocon"), (_POTRS, "potrs"),
        ):  # fmt: skip
            table[dtype] = getattr(scipy.linalg.lapack, letter + name)


def _load_compiled() -> ModuleType | None:
    """The compiled kernels, unless STIEFEL_COMPILED=0 says that they be left aside."""
    if os.environ.get("STIEFEL_COMPILED") == "0":
        return None
    try:
        return importlib.import_module("stiefel.backends._compiled")
    except ImportError:  # no C compiler was there, or SciPy publishes its BLAS in another way
        return None


CHUNK = 1 << 20  # bytes; larger matrices are overwritten piece by piece


class NumpyKernels(Kernels):
    pure_numpy = True
    fuses = True

    def __init__(self) -> None:
        super().__init__(np)
        if not _GEMM:
            _load()
        self.compiled = _load_compiled() if self.pure_numpy else None
        self._eyes: dict[tuple[int, Any], Array] = {}
        self._overwriting: NumpyKernels | None = None

    def adjoint(self, A: Array) -> Array:
        return A.conj().mT if A.dtype.kind == "c" else A.mT

    def overwriting(self) -> Kernels:
        if type(self) is not NumpyKernels or self._weigh is not None:
            return self
        if self._overwriting is None:
            self._overwriting = Overwriting()
        return self._overwriting

    def is_complex(self, A: Array) -> bool:
        return bool(A.dtype.kind == "c")

    def eye(self, like: Array) -> Array:
        key = (like.shape[-1], like.dtype)
        one = self._eyes.get(key)
        if one is None:
            one = self._eyes[key] = np.eye(key[0], dtype=key[1])
            one.flags.writeable = False
        return one

    def _product(self, A: Array, B: Array) -> Array:
        return product(self.adjoint(A), B)

    def trace(self, A: Array) -> Array:
        if A.ndim == 2:  # ten times faster than the general way
            return np.vdot(self.eye(A), A).real
        return np.trace(A, axis1=-2, axis2=-1).real.sum()

    def _dot(self, A: Array, B: Array) -> Array:
        return np.vdot(A, B).real  # five times faster than (A * B).sum()

    def squared_frobenius(self, A: Array) -> Array:
        return np.vdot(A, A).real

    def largest_square(self, A: Array) -> Array:
        squares = (A.conj() * A).real if A.dtype.kind == "c" else A * A
        # `sum` and `max` take twice as long for small ones.
        return np.maximum.reduce(np.add.reduce(squares, axis=(-2, -1)), axis=None)

    def small_inner(self, A: Array, B: Array) -> Array:
        return np.vdot(A, B).real

    def combine(self, X: Array, P: Array, U: Array, Q: Array) -> Array:
        return add_product(product(X, P), 1.0, U, Q)

    def subtract(self, G: Array, X: Array, S: Array) -> Array:
        return add_product(np.array(G, order="C"), -1.0, X, S)

    def block_dot(self, block: Array, C: Array) -> Array:
        if C.dtype.kind == "c":
            return super().block_dot(block, C)
        found = block.reshape(len(block), -1).dot(C.reshape(-1))
        found = found if self.pure_numpy else self.reduce(found)[0]
        return found if found.dtype == np.float64 else found.astype(np.float64)

    def block_add(
        self, a: float, C: Array, block: Array, weights: Any, overwrite: bool = False
    ) -> Array:
        gemv = _GEMV.get(C.dtype) if C.flags.c_contiguous and C.size else None
        rows = block.reshape(len(block), -1)
        weights = weights if weights.dtype == block.dtype else weights.astype(block.dtype)
        if gemv is None:
            return a * C + (weights @ rows).reshape(C.shape)
        out = C if overwrite and self.pure_numpy else C.copy()
        gemv(1.0, rows.T, weights, beta=a, y=out.reshape(-1), overwrite_y=True)
        return out

    def write_row(self, block: Array, i: int, C: Array) -> Array:
        block[i] = C
        return block

    def dot(self, A: Array, B: Array) -> Array:
        return np.vdot(A, B).real if self.pure_numpy else super().dot(A, B)

    def gram(self, A: Array, B: Array) -> Array:
        return product(self.adjoint(A), B) if self.pure_numpy else super().gram(A, B)

    def assemble(self, rows: Any) -> Array:
        # Column-major, as LAPACK wants it; np.block and concatenate cost three times as much.
        height = sum(row[0].shape[-2] for row in rows)
        width = sum(part.shape[-1] for part in rows[0])
        parts = [part for row in rows for part in row]
        batch: tuple[int, ...] = ()
        if any(part.ndim > 2 for part in parts):
            batch = np.broadcast_shapes(*(part.shape[:-2] for part in parts))
        dtype = parts[-1].dtype
        out = np.empty((*batch, width, height), dtype).mT
        top = 0
        for row in rows:
            bottom, left = top + row[0].shape[-2], 0
            for part in row:
                right = left + part.shape[-1]
                out[..., top:bottom, left:right] = part
                left = right
            top = bottom
        return out

    def solve(self, A: Array, B: Array) -> Array:
        gesv = _GESV.get(A.dtype)
        if A.ndim != 2 or B.ndim != 2 or gesv is None:
            return _solve_stack(A, B)
        return _checked(*gesv(A, B))

    def divide(self, B: Array, A: Array) -> Array:
        if A.ndim != 2 or A.dtype not in _GESV:
            return super().divide(B, A)
        return divided_in_place(np.array(B, order="C"), np.array(A, order="C"))

    def contiguous(self, A: Array) -> Array:
        return np.ascontiguousarray(A)

    # -- one column: Python numbers --------------------------------------------------------

    def column_gram(self, x: Array, y: Array) -> Any:
        if x.ndim != 2:
            return super().column_gram(x, y)
        return self.reduce(np.vdot(x, self.weigh(y)))[0].item()

    def column_grams(self, x: Array, y: Array) -> Any:
        if x.ndim != 2:
            return super().column_grams(x, y)
        wx, wy = self.weigh(x), self.weigh(y)
        a, m, d = self.reduce(np.vdot(x, wx).real, np.vdot(x, wy), np.vdot(y, wy).real)
        return a.item(), m.item(), d.item()

    def conj_number(self, a: Any) -> Any:
        return a.conjugate()

    def real_number(self, a: Any) -> Any:
        return a.real

    def sum_numbers(self, a: Any) -> Any:
        return np.sum(a).real if isinstance(a, np.ndarray) else a.real

    def largest_number(self, a: Any) -> Any:
        return np.max(a).real if isinstance(a, np.ndarray) else a.real

    def axpby(self, p: Any, x: Array, q: Any, y: Array) -> Array:
        out = p * x
        axpy = _AXPY.get(out.dtype)
        scalar = not isinstance(q, np.ndarray)  # a stack of columns has one number for each
        if axpy is None or not (scalar and out.flags.c_contiguous and y.flags.c_contiguous):
            out += q * y
        elif out.size:  # BLAS refuses empty arrays
            axpy(y.reshape(-1), out.reshape(-1), a=q)
        return out

    def to_numpy(self, A: Array) -> Array:
        return A

    def asarray(self, values: Array, like: Array) -> Array:
        return values.astype(like.dtype, copy=False)

    def expm(self, A: Array) -> Array:
        return scipy.linalg.expm(A)

    def factorise(self, M: Array) -> tuple[Any, Any]:
        return scipy.linalg.cho_factor(M), _solve_unchecked

    def finite(self, A: Array) -> bool:
        return bool(np.isfinite(A).all())


class Overwriting(NumpyKernels):
    """`NumpyKernels` with `combine` and `subtract` free to write over their first argument."""

    def combine(self, X: Array, P: Array, U: Array, Q: Array) -> Array:
        if X.ndim != 2 or X.nbytes <= CHUNK:
            return add_product(product(X, P), 1.0, U, Q)
        rows = max(1, CHUNK // X[:1].nbytes)
        for start in range(0, len(X), rows):
            part = slice(start, start + rows)
            X[part] = add_product(product(X[part], P), 1.0, U[part], Q)
        return X

    def subtract(self, G: Array, X: Array, S: Array) -> Array:
        return add_product(G, -1.0, X, S)


def solve_in_place(A: Array, B: Array) -> Array:
    """A⁻¹B of column-major matrices that nobody needs any more.

    By gesv: OpenBLAS starts threads for a getrs of any size, which takes milliseconds.
    """
    gesv = _GESV.get(A.dtype)
    if gesv is None:
        return _solve_stack(A, B)
    return _checked(*gesv(A, B, overwrite_a=True, overwrite_b=True))


def divided_in_place(B: Array, A: Array) -> Array:
    """BA⁻¹ of row-major matrices that nobody needs any more.

    To LAPACK they are their transposes: Aᵀ(BA⁻¹)ᵀ = Bᵀ.
    """
    return solve_in_place(A.T, B.T).T


# -- small matrices of the host: `numpy.linalg` takes 5 to 15 µs around each of these -----------


def _routine(table: Routines, A: Array) -> Any:
    """LAPACK's, for matrices like A."""
    if not table:
        _load()
    return table[A.dtype]


def eigh(A: Array) -> tuple[Array, Array]:
    """Eigenvalues, rising, and eigenvectors of a Hermitian matrix."""
    values, vectors, info = _routine(_EIGH, A)(A, lower=1)
    if info:
        raise np.linalg.LinAlgError("Eigenvalues did not converge")
    return values, vectors


def cholesky(A: Array) -> Array:
    """The lower triangle L with A = LLᴴ; NaN where there is none."""
    L, info = _routine(_POTRF, A)(A, lower=1)
    return L if info == 0 else np.full_like(L, np.nan)


def well_conditioned_cholesky(A: Array, least: float) -> Array | None:
    """The lower triangle L with A = LLᴴ where no eigenvalue is below ``least`` of the largest.

    By LAPACK's estimate in the 1-norm, which errs on the safe side; None otherwise.
    """
    L, info = _routine(_POTRF, A)(A, lower=1)
    if info:
        return None
    size = np.abs(A).sum(axis=0).max()
    return L if _routine(_POCON, A)(L, size, uplo="L")[0] >= least else None


def solve_cholesky(L: Array, b: Array) -> Array:
    """A⁻¹b of A = LLᴴ."""
    return _routine(_POTRS, L)(L, b, lower=1)[0]


def _solve_unchecked(factors: Any, b: Array) -> Array:
    """NaN and infinity go through, and the run ends with a status: SciPy would raise an error."""
    return scipy.linalg.cho_solve(factors, b, check_finite=False)


def inverse(A: Array) -> Array:
    """A⁻¹; NaN for a singular A."""
    return _checked(*_routine(_GESV, A)(A, _one(len(A))))


def orthonormal_factor(A: Array) -> Array:
    """Q of A = QR."""
    reflectors, tau = _routine(_GEQRF, A)(A)[:2]
    return _routine(_ORGQR, A)(reflectors[:, : len(tau)], tau)[0]


def orthonormalising(gram: Array, least: float) -> Array:
    """T with Tᴴ gram T = I, by Cholesky's method with pivots; in double precision.

    Vectors that are zero, or of which others leave a squared length below ``least``, are dropped.
    Pivots are needed where none is dropped, too: without them errors of the last vectors grow, and
    two runs of 24 on Brockett 200×50 took 380 evaluations instead of 80.
    """
    squares = gram.diagonal().real
    scale = 1.0 / np.sqrt(squares) if squares.min() > 0 else _inverse_roots(squares)
    pstrf, trtri = _routine(_PSTRF, gram), _routine(_TRTRI, gram)
    R, pivots, rank, _ = pstrf(gram * scale * scale[:, None], least)
    T, chosen = np.zeros((len(gram), rank), gram.dtype), pivots[:rank] - 1
    T[chosen] = scale[chosen, None] * (trtri(R[:rank, :rank])[0] * _upper(rank))
    return T


def _inverse_roots(squares: Array) -> Array:
    """Zero for zero, and for what rounding has made of it."""
    return np.where(squares > 0, 1.0 / np.sqrt(np.where(squares > 0, squares, 1.0)), 0.0)


@lru_cache(maxsize=256)
def _one(size: int) -> Array:
    return np.eye(size)


@lru_cache(maxsize=256)
def _upper(size: int) -> Array:
    """Ones on and above the diagonal."""
    return np.triu(np.ones((size, size)))


def _solve_stack(A: Array, B: Array) -> Array:
    try:
        return np.linalg.solve(A, B)
    except np.linalg.LinAlgError:  # as `_checked` does
        return np.full(np.broadcast_shapes(A.shape[:-1] + B.shape[-1:], B.shape), np.nan, B.dtype)


def _checked(lu: Array, pivots: Array, solution: Array, info: int) -> Array:
    # Singular only after an overflow: a point that is not finite is refused as one.
    return solution if info == 0 else np.full_like(solution, np.nan)


def product(A: Array, B: Array) -> Array:
    """A B; ``dot`` takes less time than ``@``, but means something else for stacks."""
    return A.dot(B) if A.ndim == B.ndim == 2 else A @ B


def axpy(a: float, x: Array, out: Array) -> None:
    """out + a x for real or complex vectors, in place."""
    if out.size:  # BLAS refuses empty arrays
        _AXPY[out.dtype](x, out, a=a)


def add_product(out: Array, alpha: float, X: Array, S: Array) -> Array:
    """out + alpha X S, in place: a row-major out is a column-major outᵀ, which BLAS updates."""
    gemm = _GEMM.get(out.dtype) if out.size else None  # BLAS refuses a rank without rows
    if out.ndim != 2 or gemm is None or not out.flags.c_contiguous or not X.flags.c_contiguous:
        out += alpha * (X @ S)
        return out
    if S.size == 1:  # a column: gemm takes ten times as long
        _AXPY[out.dtype](X.reshape(-1), out.reshape(-1), a=alpha * S.item())
        return out
    transposed = gemm(alpha, S.T, X.T, beta=1.0, c=out.T, overwrite_c=True)
    return transposed.T
