"""Array operations for many problems at once: the first axis counts problems, and is never summed.

`PerProblem` turns the kernels of an array library into those of a batch: inner products and traces
have shape (B,), a decision is a mask of shape (B,), and a choice is `choose`.  Small systems and
small eigenproblems are solved by text that is elementwise in the batch, in place of one call of
LAPACK for each matrix.  What a library can skip when a mask is empty it may skip: `some` and
`on_some` ask; a compiler answers that it cannot know.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from stiefel.types import Array

from .shared import Kernels

UNROLLED_SOLVE = 12  # rows of a system that is eliminated elementwise
UNROLLED_EIGH = 4  # columns of a matrix that is diagonalised elementwise
SWEEPS = 4  # of Jacobi's method; three give six digits of a 4×4 matrix


class PerProblem(Kernels):
    """Sums for each problem; decisions are arrays."""

    number: Any  # the dtype of decisions: double where the library has it

    # -- sums -------------------------------------------------------------------------------

    def _dot(self, A: Array, B: Array) -> Array:
        return self.numbers(self.xp.sum(self.real(self.conj(A) * B), axis=_inner_axes(A)))

    def trace(self, A: Array) -> Array:
        found = self.real(self.xp.linalg.trace(A))
        return self.numbers(
            self.xp.sum(found, axis=_inner_axes(found)) if found.ndim > 1 else found
        )

    def squared_frobenius(self, A: Array) -> Array:
        return self._dot(A, A)

    def small_inner(self, A: Array, B: Array) -> Array:
        return self._dot(A, B)

    def matrix_dots(self, A: Array, B: Array) -> Array:
        """Re⟨A, B⟩ of every matrix of a batch, or of a batch of stacks, in their precision."""
        return self.xp.sum(self.real(self.conj(A) * B), axis=(-2, -1))

    def largest(self, a: Array) -> Array:
        return self.numbers(self.xp.max(a, axis=_inner_axes(a)) if a.ndim > 1 else a)

    def numbers(self, a: Array) -> Array:
        """(B,) numbers in the precision of decisions."""
        return a if a.dtype == self.number else self.xp.astype(a, self.number)

    def integers(self, a: Array) -> Array:
        return self.xp.astype(a, self.xp.int32)

    # -- blocks (B, m, N) of vectors --------------------------------------------------------

    def pair_dtype(self, leaf: Array) -> Any:
        """Of the pairs in memory of a leaf."""
        return leaf.dtype

    def flat(self, C: Array) -> Array:
        """The numbers of every problem in one row, (B, N)."""
        return self.xp.reshape(C, (C.shape[0], -1))

    def block_dot(self, block: Array, C: Array) -> Array:
        """Re⟨block_i, C⟩ for all i, shape (B, m)."""
        products = self.conj(block) @ self.flat(self.weigh(C))[:, :, None]
        return self.numbers(self.real(products[:, :, 0]))

    def block_sum(self, block: Array, weights: Array, like: Array) -> Array:
        """Σ_i weights_i block_i, in the shape of ``like``."""
        weights = self.xp.astype(weights, block.dtype)
        return self.xp.reshape((weights[:, None, :] @ block)[:, 0, :], tuple(like.shape))

    def put(self, a: Array, axis: int, i: Array, C: Array) -> Array:
        """``a`` with C in place of its part i along an axis, 1 or 2; in place where it can be."""
        if axis == 1:
            a[:, i] = C
        else:
            a[:, :, i] = C
        return a

    def times_vector(self, A: Array, b: Array) -> Array:
        """A b for small matrices (B, m, m) and numbers (B, m)."""
        return self.xp.sum(A * b[:, None, :], axis=-1)

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

    def kept(self, mask: Array, a: Array) -> Array:
        """a where the mask is set, else zero."""
        return self.choose(mask, a, self.xp.zeros_like(a))

    def some(self, mask: Array) -> bool:
        """False only if it is known that no problem is in the mask."""
        return bool(self.xp.any(mask))

    def once(self, a: Any) -> Any:
        """Arrays that several others are made of: a compiler may not compute them for each."""
        return a

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
        """The problems in ``index``; of arrays, or of tuples of them.  A single number stays."""
        if a is None:
            return None
        if isinstance(a, tuple):
            parts = [self.take(u, index) for u in a]
            return type(a)(*parts) if hasattr(a, "_fields") else tuple(parts)
        return a[index] if a.ndim else a

    def power_of_two(self, a: Array) -> Array:
        """The power of two next to 1/a, which rounds nothing; 1 where a is 0 or not finite."""
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

    def zeros(self, shape: tuple[int, ...], dtype: Any, like: Array) -> Array:
        """In the memory layout of the solver, on the device of ``like``."""
        return self.xp.zeros(shape, dtype=dtype, device=self.device(like))

    def shown(self, a: Array) -> Array:
        """``a`` as the user sees it."""
        return a

    def repeat(self, times: int, function: Callable[[Any], Any], state: Any) -> Any:
        """``function`` applied so many times."""
        for _ in range(times):
            state = function(state)
        return state

    def entries(self, A: Array) -> list[list[Array]]:
        """The entries of matrices, each an array over the batch."""
        size = range(A.shape[-1])
        return [[A[..., i, j] for j in size] for i in size]

    def assembled(self, entries: Sequence[Sequence[Array]], axes: int) -> Array:
        """Matrices (axes = 2) or one row of them (axes = 1) from their entries."""
        rows = [self.xp.stack(row, axis=-1) for row in entries]
        return rows[0] if axes == 1 else self.xp.stack(rows, axis=-2)

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

    After the phase e of a_pq has been taken off column q, the rotation that annihilates a_pq has
    tan θ = t with t = 2|a_pq| sgn d/(|d| + √(d² + 4|a_pq|²)), d = a_qq − a_pp: a_pp falls by
    t|a_pq|, a_qq rises by it.
    """
    size = A.shape[-1]
    flat = k.entries(A)
    d = tuple(k.real(flat[i][i]) for i in range(size))
    a = {(i, j): flat[i][j] for i in range(size) for j in range(i + 1, size)}
    one = k.xp.ones_like(flat[0][0])
    v = tuple(tuple(one if i == j else 0.0 * one for j in range(size)) for i in range(size))
    d, _, v = k.repeat(SWEEPS if size > 2 else 1, lambda state: _sweep(k, *state), (d, a, v))
    return k.assembled([d], 1), k.assembled(v, 2)


def _sweep(k: PerProblem, diagonal: Any, upper: Any, vectors: Any) -> tuple[Any, Any, Any]:
    """Every entry above the diagonal is annihilated once."""
    d, a, v = list(diagonal), dict(upper), [list(row) for row in vectors]
    size = len(d)
    for p in range(size):
        for q in range(p + 1, size):
            t, c, s, e = _rotation(k, d[p], d[q], a[p, q])
            change = t * k.xp.abs(a[p, q]) if k.is_complex(a[p, q]) else t * a[p, q]
            d[p], d[q], a[p, q] = d[p] - change, d[q] + change, 0.0 * a[p, q]
            for r in range(size):
                if r not in (p, q):
                    _rotate(k, a, r, p, q, c, s, e)
            for row in v:
                rest = row[q] if e is None else e * row[q]
                row[p], row[q] = c * row[p] - s * rest, s * row[p] + c * rest
    return tuple(d), a, tuple(map(tuple, v))


def _rotate(k: PerProblem, a: Any, r: int, p: int, q: int, c: Array, s: Array, e: Any) -> None:
    """a_rp and a_rq after a rotation; only entries above the diagonal are kept."""
    x = a[r, p] if r < p else k.conj(a[p, r])
    y = a[r, q] if r < q else k.conj(a[q, r])
    y = y if e is None else e * y
    x, y = c * x - s * y, s * x + c * y
    a[min(r, p), max(r, p)] = x if r < p else k.conj(x)
    a[min(r, q), max(r, q)] = y if r < q else k.conj(y)


def _rotation(k: PerProblem, dp: Array, dq: Array, apq: Array) -> tuple[Array, Array, Array, Any]:
    """t, cos θ, sin θ and the phase, which is None of a real matrix."""
    xp, tiny = k.xp, float(k.xp.finfo(apq.dtype).smallest_normal)
    d, size = dq - dp, xp.abs(apq) if k.is_complex(apq) else apq
    root = xp.sqrt(d * d + 4.0 * size * size) + tiny
    t = 2.0 * size / xp.where(d < 0, d - root, d + root)
    c = 1.0 / xp.sqrt(1.0 + t * t)
    if not k.is_complex(apq):
        return t, c, t * c, None
    e = xp.where(size > tiny, k.conj(apq) / xp.astype(size + tiny, apq.dtype), 1.0 + 0.0 * apq)
    return t, xp.astype(c, apq.dtype), xp.astype(t * c, apq.dtype), e
