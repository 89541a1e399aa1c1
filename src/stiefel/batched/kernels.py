"""Array operations for many problems at once: the first axis counts problems, and is never summed.

`PerProblem` turns the kernels of an array library into those of a batch: inner products and traces
have shape (B,), a decision is a mask of shape (B,), and a choice is `choose`.  Small systems and
small eigenproblems are solved by text that is elementwise in the batch, in place of one call of
LAPACK for each matrix.  What a library can skip when a mask is empty it may skip: `some` and
`on_some` ask; a compiler answers that it cannot know.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .shared import Kernels, NumpyKernels

Array = Any

UNROLLED_SOLVE = 12  # rows of a system that is eliminated elementwise
UNROLLED_EIGH = 4  # columns of a matrix that is diagonalised elementwise
SWEEPS = 5  # of Jacobi's method; three give six digits of a 4×4 matrix


class PerProblem(Kernels):
    """Sums for each problem; decisions are arrays."""

    number: Any  # the dtype of decisions: double where the library has it

    # -- sums -------------------------------------------------------------------------------

    def _dot(self, A: Array, B: Array) -> Array:
        return self.numbers(self.xp.sum(self.real(self.conj(A) * B), axis=_inner_axes(A)))

    def trace(self, A: Array) -> Array:
        found = self.real(self.xp.linalg.trace(A))
        return self.numbers(self.xp.sum(found, axis=_inner_axes(found)) if found.ndim > 1 else found)

    def squared_frobenius(self, A: Array) -> Array:
        return self._dot(A, A)

    def small_inner(self, A: Array, B: Array) -> Array:
        return self._dot(A, B)

    def largest(self, a: Array) -> Array:
        return self.numbers(self.xp.max(a, axis=_inner_axes(a)) if a.ndim > 1 else a)

    def numbers(self, a: Array) -> Array:
        """(B,) numbers in the precision of decisions."""
        return a if a.dtype == self.number else self.xp.astype(a, self.number)

    def integers(self, a: Array) -> Array:
        return self.xp.astype(a, self.xp.int32)

    # -- blocks (B, m, ...) of vectors ------------------------------------------------------

    def block_dot(self, block: Array, C: Array) -> Array:
        """Re⟨block_i, C⟩ for all i, shape (B, m)."""
        products = self.real(self.conj(block) * self.weigh(C)[:, None, ...])
        return self.numbers(self.xp.sum(products, axis=tuple(range(2, block.ndim))))

    def block_sum(self, block: Array, weights: Array) -> Array:
        """Σ_i weights_i block_i."""
        return self.xp.sum(self.spread_out(weights, block) * block, axis=1)

    def write(self, block: Array, row: Array, mask: Array, C: Array) -> Array:
        """``block`` with C in row ``row`` of the problems in the mask."""
        rows = self.xp.arange(block.shape[1], device=self.device(row))
        here = mask[:, None] & (row[:, None] == rows)
        shape = tuple(here.shape) + (1,) * (block.ndim - 2)
        return self.xp.where(self.xp.reshape(here, shape), C[:, None, ...], block)

    # -- decisions --------------------------------------------------------------------------

    def spread_out(self, a: Array, like: Array) -> Array:
        """Numbers (B,) or (B, m) so that they multiply ``like``, in its precision."""
        real = like.real.dtype if self.is_complex(like) else like.dtype
        a = a if a.dtype == real else self.xp.astype(a, real)
        return self.xp.reshape(a, tuple(a.shape) + (1,) * (like.ndim - a.ndim))

    def choose(self, mask: Array, a: Any, b: Any) -> Any:
        """a where the mask is set, else b; of arrays, or of tuples of them."""
        if a is None:
            return None
        if isinstance(a, tuple):
            parts = [self.choose(mask, u, v) for u, v in zip(a, b, strict=True)]
            return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
        return self.xp.where(self.xp.reshape(mask, (-1,) + (1,) * (a.ndim - 1)), a, b)

    def some(self, mask: Array) -> bool:
        """False only if it is known that no problem is in the mask."""
        return bool(self.xp.any(mask))

    def on_some(
        self, mask: Array, function: Callable[..., Any], arrays: tuple[Array, ...], default: Any
    ) -> Any:
        """``function`` of the arrays for the problems in the mask, ``default`` for the others."""
        (index,) = self.xp.nonzero(mask)
        if index.shape[0] == 0:
            return default
        if index.shape[0] == mask.shape[0]:
            return function(*arrays)
        found = function(*(self.take(a, index) for a in arrays))
        return tuple(self._put(old, index, new) for old, new in zip(default, found, strict=True))

    def _put(self, old: Array, index: Array, new: Array) -> Array:
        out = self.xp.asarray(old, copy=True)
        out[index] = new
        return out

    def take(self, a: Any, index: Array) -> Any:
        """The problems in ``index``; of arrays, or of tuples of them."""
        if a is None:
            return None
        if isinstance(a, tuple):
            parts = [self.take(u, index) for u in a]
            return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
        return a[index]

    def power_of_two(self, a: Array) -> Array:
        """The power of two next to 1/a, with which nothing is rounded; 1 where a is 0 or no number."""
        xp = self.xp
        usable = xp.isfinite(a) & (a > 0)
        most = math.log2(float(xp.finfo(a.dtype).max)) - 24
        exponent = xp.clip(-xp.round(xp.log2(xp.where(usable, a, xp.ones_like(a)))), -most, most)
        return self._exact_power(exponent)

    def _exact_power(self, exponent: Array) -> Array:
        return 2.0**exponent

    def frexp(self, a: Array) -> tuple[Array, Array]:
        """m and 2^e with a = m 2^e, 1/2 ≤ |m| < 1."""
        raise NotImplementedError

    def last_bit(self, mantissa: Array, bits: int) -> Array:
        """The place value of the last bit of 1/2 ≤ |mantissa| < 1 that is not zero."""
        raise NotImplementedError

    def own(self, a: Array) -> Array:
        """``a`` in the memory layout of the solver."""
        return a

    def shown(self, a: Array) -> Array:
        """``a`` as the user sees it."""
        return a

    def arranged(self, a: Array) -> Array:
        """``a``, just assembled from its entries, in the memory layout of the solver."""
        return a

    # -- small matrices ---------------------------------------------------------------------

    def solve(self, A: Array, B: Array) -> Array:
        """A⁻¹B.  Without pivoting where it is small: A = I − tK/2 with a short step; see `frame`.

        The Hermitian part of A is then near I, of every Schur complement too.
        """
        if A.shape[-1] > UNROLLED_SOLVE:
            return super().solve(A, B)
        one, M = self.eye(A), self.xp.concat([A, B + 0.0 * A], axis=-1)
        for j in range(A.shape[-1]):
            column, row = M[..., :, :1] - one[:, j : j + 1], M[..., j : j + 1, :]
            M = M[..., :, 1:] - column * (row[..., 1:] / row[..., :1])
        return M

    def eigh(self, A: Array) -> tuple[Array, Array]:
        return jacobi(self, A) if A.shape[-1] <= UNROLLED_EIGH else super().eigh(A)


def _inner_axes(A: Array) -> tuple[int, ...]:
    return tuple(range(1, A.ndim))


def jacobi(k: PerProblem, A: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors by Jacobi's cyclic rotations, elementwise in the batch.

    The rotation that annihilates a_pq has tan θ = t with t = 2|a_pq| sgn d/(|d| + √(d² + 4|a_pq|²)),
    d = a_qq − a_pp, after the phase of a_pq has been taken off column q.
    """
    size = A.shape[-1]
    a = [[A[..., i, j] for j in range(size)] for i in range(size)]
    one = k.xp.ones_like(a[0][0])
    v = [[one if i == j else 0.0 * one for j in range(size)] for i in range(size)]
    for _ in range(SWEEPS if size > 2 else 1):
        for p in range(size):
            for q in range(p + 1, size):
                c, s, e = _rotation(k, a[p][p], a[q][q], a[p][q])
                for row in (*a, *v):  # columns
                    rest = e * row[q]
                    row[p], row[q] = c * row[p] - s * rest, s * row[p] + c * rest
                for j in range(size):  # rows
                    rest = k.conj(e) * a[q][j]
                    a[p][j], a[q][j] = c * a[p][j] - s * rest, s * a[p][j] + c * rest
    values = k.xp.stack([k.real(a[i][i]) for i in range(size)], axis=-1)
    vectors = k.xp.stack([k.xp.stack(row, axis=-1) for row in v], axis=-2)
    return k.arranged(values), k.arranged(vectors)


def _rotation(k: PerProblem, app: Array, aqq: Array, apq: Array) -> tuple[Array, Array, Array]:
    xp, tiny = k.xp, float(k.xp.finfo(apq.dtype).smallest_normal)
    d = k.real(aqq) - k.real(app)
    if k.is_complex(apq):
        size = xp.abs(apq)
        e = xp.where(size > tiny, k.conj(apq) / xp.astype(size + tiny, apq.dtype), 1.0 + 0.0 * apq)
    else:
        size, e = apq, xp.ones_like(apq)
    sign = xp.where(d < 0, -xp.ones_like(d), xp.ones_like(d))
    t = 2.0 * size * sign / (xp.abs(d) + xp.sqrt(d * d + 4.0 * size * size) + tiny)
    c = 1.0 / xp.sqrt(1.0 + t * t)
    if k.is_complex(apq):
        return xp.astype(c, apq.dtype), xp.astype(t * c, apq.dtype), e
    return c, t * c, e


# -- NumPy: problems lie side by side in memory -------------------------------------------------


class Side(np.ndarray[Any, Any]):
    """A stack (B, ..., n, k) whose first axis is the fastest in memory.

    Elementwise operations keep the layout by themselves; products are sums of long vectors, in
    place of B calls of BLAS.
    """

    def __matmul__(self, other: Any) -> Any:
        return _product(self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return _product(other, self)


def _product(A: Any, B: Any) -> Any:
    A, B = A.view(np.ndarray), B.view(np.ndarray)
    return np.einsum("...ij,...jk->...ik", A, B, order="K").view(Side)


def side_by_side(a: Any) -> Any:
    """A copy of a in the layout of `Side`."""
    moved = np.ascontiguousarray(np.moveaxis(np.asarray(a), 0, -1))
    return np.moveaxis(moved, -1, 0).view(Side)


_LETTERS = "ijklmn"


class NumpyMany(PerProblem, NumpyKernels):
    number = np.dtype(np.float64)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(self, *arguments)

    def adjoint(self, A: Array) -> Array:
        return A.conj().mT if A.dtype.kind == "c" else A.mT

    def overwriting(self) -> Kernels:
        return self

    def _product(self, A: Array, B: Array) -> Array:
        return self.adjoint(A) @ B

    def combine(self, X: Array, P: Array, U: Array, Q: Array) -> Array:
        out = X @ P
        out += U @ Q
        return out

    def subtract(self, G: Array, X: Array, S: Array) -> Array:
        return G - X @ S

    def block(self, rows: Any) -> Array:
        return np.concatenate([np.concatenate(row, axis=-1) for row in rows], axis=-2)

    def _dot(self, A: Array, B: Array) -> Array:
        inner = _LETTERS[: A.ndim - 1]
        A, B = A.view(np.ndarray), B.view(np.ndarray)
        A = A.conj() if A.dtype.kind == "c" else A
        return self.numbers(np.einsum(f"b{inner},b{inner}->b", A, B).real)

    def numbers(self, a: Array) -> Array:
        return np.asarray(a, dtype=self.number)

    def block_dot(self, block: Array, C: Array) -> Array:
        inner = _LETTERS[: C.ndim - 1]
        block, C = block.view(np.ndarray), self.weigh(C).view(np.ndarray)
        block = block.conj() if block.dtype.kind == "c" else block
        return self.numbers(np.einsum(f"by{inner},b{inner}->by", block, C).real)

    def block_sum(self, block: Array, weights: Array) -> Array:
        inner = _LETTERS[: block.ndim - 2]
        weights = np.asarray(weights, dtype=block.real.dtype)
        found = np.einsum(f"by,by{inner}->b{inner}", weights, block.view(np.ndarray), order="K")
        return found.view(Side)

    def write(self, block: Array, row: Array, mask: Array, C: Array) -> Array:
        for i in range(block.shape[1]):  # mostly one row, as most problems keep step
            here = mask & (row == i)
            if here.any():
                np.copyto(block[:, i], C, where=here.reshape((-1,) + (1,) * (C.ndim - 1)))
        return block

    def choose(self, mask: Array, a: Any, b: Any) -> Any:
        if mask.all():
            return a
        return super().choose(mask, a, b) if mask.any() else b

    def take(self, a: Any, index: Array) -> Any:
        if isinstance(a, Side):
            return np.moveaxis(np.moveaxis(a, 0, -1)[..., index], -1, 0).view(Side)
        return super().take(a, index)

    def own(self, a: Array) -> Array:
        return side_by_side(a)

    def shown(self, a: Array) -> Array:
        return np.array(a, order="C", subok=False)

    def arranged(self, a: Array) -> Array:
        return side_by_side(a)

    def _exact_power(self, exponent: Array) -> Array:
        return np.ldexp(1.0, exponent.astype(int))

    def frexp(self, a: Array) -> tuple[Array, Array]:
        mantissa, exponent = np.frexp(a)
        return mantissa, np.ldexp(1.0, exponent)

    def last_bit(self, mantissa: Array, bits: int) -> Array:
        digits = (np.abs(mantissa) * 2.0**bits).astype(np.int64)
        return (digits & -digits) * 2.0**-bits
