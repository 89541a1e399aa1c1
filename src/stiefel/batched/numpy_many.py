"""Kernels of a batch for NumPy: problems lie side by side in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stiefel.types import Array

from .kernels import UNROLLED_EIGH, UNROLLED_SOLVE, PerProblem, jacobi
from .shared import Kernels, NumpyKernels, load_compiled

FEW = 0.125  # of the problems, which are cheaper to gather than to mask
FEW_MATRICES = 300  # matrices, for which LAPACK takes less time


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
    stack = A.shape[:-2] if A.ndim > B.ndim else B.shape[:-2]
    dtype = A.dtype if A.dtype == B.dtype else np.result_type(A, B)
    out = empty((*stack, A.shape[-2], B.shape[-1]), dtype)
    np.einsum("...ij,...jk->...ik", A.view(np.ndarray), B.view(np.ndarray), out=out)
    return out.view(Side)


def empty(shape: tuple[int, ...], dtype: Any) -> Any:
    """An array in the layout of `Side`."""
    return _first_axis_last(np.empty((*shape[1:], shape[0]), dtype))


def _first_axis_last(a: Any) -> Any:
    """A view of a, stored with the batch last, that shows the batch first."""
    last = a.ndim - 1
    return a.transpose(last, *range(last))


def stored(a: Any) -> Any:
    """A view of a with the batch last, as it lies in memory."""
    return a.view(np.ndarray).transpose(*range(1, a.ndim), 0)


def side_by_side(a: Any) -> Any:
    """A copy of a in the layout of `Side`."""
    a = np.asarray(a)
    stored = np.ascontiguousarray(a.transpose(*range(1, a.ndim), 0))
    return _first_axis_last(stored).view(Side)


_LETTERS = "ijklmn"


class NumpyMany(PerProblem, NumpyKernels):
    number = np.dtype(np.float64)

    def __init__(self) -> None:
        super().__init__()
        self.compiled = load_compiled()

    def run(self, formula: Callable[..., Any], *arguments: Any) -> Any:
        return formula(self, *arguments)

    pure_numpy = fuses = False  # NumPy's own versions are for one problem
    dot, gram, grams, pairing = Kernels.dot, Kernels.gram, Kernels.grams, Kernels.pairing

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

    def assemble(self, rows: Any) -> Array:
        stack = np.broadcast_shapes(*(part.shape[:-2] for row in rows for part in row))
        height = sum(row[0].shape[-2] for row in rows)
        width = sum(part.shape[-1] for part in rows[0])
        out, top = empty((*stack, height, width), rows[0][-1].dtype), 0
        for row in rows:
            left, bottom = 0, top + row[0].shape[-2]
            for part in row:
                out[..., top:bottom, left : left + part.shape[-1]] = part
                left += part.shape[-1]
            top = bottom
        return out.view(Side)

    def _dot(self, A: Array, B: Array) -> Array:
        inner = _LETTERS[: A.ndim - 1]
        A, B = A.view(np.ndarray), B.view(np.ndarray)
        A = A.conj() if A.dtype.kind == "c" else A
        return self.numbers(np.einsum(f"b{inner},b{inner}->b", A, B).real)

    def matrix_dots(self, A: Array, B: Array) -> Array:
        A, B = A.view(np.ndarray), B.view(np.ndarray)
        A = A.conj() if A.dtype.kind == "c" else A
        return np.einsum("...ij,...ij->...", A, B).real

    def numbers(self, a: Array) -> Array:
        return np.asarray(a, dtype=self.number)

    def pair_dtype(self, leaf: Array) -> Any:
        """Single precision: half the memory, and directions need no more digits."""
        return np.dtype(np.complex64 if leaf.dtype.kind == "c" else np.float32)

    def block_dot(self, block: Array, C: Array) -> Array:
        C = self.flat(self.weigh(C)).view(np.ndarray).astype(block.dtype, order="K", copy=False)
        block = block.conj() if block.dtype.kind == "c" else block
        out = empty(block.shape[:2], block.dtype)
        np.einsum("bmi,bi->bm", block.view(np.ndarray), C, out=out)
        return self.numbers(out.real)

    def block_sum(self, block: Array, weights: Array, like: Array) -> Array:
        weights = np.asarray(weights, dtype=block.real.dtype)
        out = empty(block.shape[::2], block.dtype)
        np.einsum("bm,bmi->bi", weights, block.view(np.ndarray), out=out)
        return out.reshape(like.shape).view(Side)

    def times_vector(self, A: Array, b: Array) -> Array:
        out = empty(b.shape, b.dtype)
        np.einsum("bij,bj->bi", A.view(np.ndarray), b.view(np.ndarray), out=out)
        return out

    def choose(self, mask: Array, a: Any, b: Any) -> Any:
        hits, size = np.count_nonzero(mask), len(mask)
        if a is None or hits == size:
            return a
        if hits == 0:
            return b
        if hits <= FEW * size:
            return self._patched(np.nonzero(mask)[0], mask, a, b)
        if hits >= (1.0 - FEW) * size:
            return self._patched(np.nonzero(~mask)[0], ~mask, b, a)
        return self._patched(None, mask, a, b)

    def _patched(self, index: Any, mask: Array, a: Any, b: Any) -> Any:
        """b with a where the mask is set, at ``index`` if these are few."""
        if a is b:
            return a
        if isinstance(a, tuple):
            parts = [self._patched(index, mask, u, v) for u, v in zip(a, b, strict=True)]
            return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
        if not isinstance(a, Side):
            return np.where(mask.reshape((-1,) + (1,) * (a.ndim - 1)), a, b)
        out = b.copy(order="K")
        if index is None:
            np.copyto(out, a, where=mask.reshape((-1,) + (1,) * (a.ndim - 1)))
        else:
            stored(out)[..., index] = np.take(stored(a), index, axis=-1)
        return out

    def some(self, mask: Array) -> bool:
        return bool(np.count_nonzero(mask))  # np.any takes ten times as long

    def kept(self, mask: Array, a: Array) -> Array:
        return a if np.count_nonzero(mask) == len(mask) else self.choose(mask, a, np.zeros_like(a))

    def _put(self, old: Array, index: Array, new: Array) -> Array:
        out = old.copy(order="K")
        out[index] = new
        return out

    def take(self, a: Any, index: Array) -> Any:
        if isinstance(a, Side):
            return _first_axis_last(np.take(stored(a), index, axis=-1)).view(Side)
        return super().take(a, index)

    def own(self, a: Array) -> Array:
        return side_by_side(a)

    def zeros(self, shape: tuple[int, ...], dtype: Any, like: Array) -> Array:
        return _first_axis_last(np.zeros((*shape[1:], shape[0]), dtype)).view(Side)

    def shown(self, a: Array) -> Array:
        return np.array(a, order="C", subok=False) if isinstance(a, Side) else a

    def solve(self, A: Array, B: Array) -> Array:
        size = A.shape[-1]
        if size > UNROLLED_SOLVE:
            return super().solve(A, B)
        M = self.assemble([[A, B]]).view(np.ndarray)
        products = np.empty_like(M)
        for j in range(size):
            rest, some = M[..., j + 1 :], products[..., j + 1 :]
            row = rest[..., j : j + 1, :] / M[..., j : j + 1, j : j + 1]
            np.multiply(M[..., j : j + 1], row, out=some)
            np.subtract(rest, some, out=rest)
            rest[..., j : j + 1, :] = row
        return M[..., size:].view(Side)

    def eigh(self, A: Array) -> tuple[Array, Array]:
        if len(A) >= FEW_MATRICES and A.shape[-1] <= UNROLLED_EIGH:
            return jacobi(self, A)
        values, vectors = np.linalg.eigh(np.ascontiguousarray(A))
        return side_by_side(values), side_by_side(vectors)

    def entries(self, A: Array) -> list[list[Array]]:
        return super().entries(A.view(np.ndarray))

    def assembled(self, entries: Sequence[Sequence[Array]], axes: int) -> Array:
        first = entries[0][0]
        out = empty((len(first), *first.shape[1:], len(entries), len(entries[0])), first.dtype)
        for i, row in enumerate(entries):
            for j, entry in enumerate(row):
                out[..., i, j] = entry
        return out[..., 0, :].view(Side) if axes == 1 else out.view(Side)

    def _exact_power(self, exponent: Array) -> Array:
        return np.ldexp(1.0, exponent.astype(int))

    def frexp(self, a: Array) -> tuple[Array, Array]:
        mantissa, exponent = np.frexp(a)
        return mantissa, np.ldexp(1.0, exponent)

    def last_bit(self, mantissa: Array, bits: int) -> Array:
        digits = (np.abs(mantissa) * 2.0**bits).astype(np.int64)
        return (digits & -digits) * 2.0**-bits
