"""The handful of array operations from which every geometry is built.

A matrix that is tall has n rows; a Gram matrix is k×k.  Tall work is always one of

    gram     AᴴB                 2nk² flops, one sum over rows
    combine  X P + U Q           4nk² flops
    subtract G − X S             2nk² flops

and everything else happens on k×k or 2k×2k matrices.  Arrays may carry leading axes: a stack
``(..., n, k)`` costs the same number of (batched) calls as one matrix.

`Kernels` is written against the array API and serves every array library; the modules beside this
one subclass it where a library offers something faster.  A sum over rows that live on several
machines passes through `Kernels.reduce`, and through nothing else.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, wraps
from typing import Any, TypeVar

import numpy as np
import scipy

from stiefel.types import Array

R = TypeVar("R")


def kernel(formula: Callable[..., R]) -> Callable[..., R]:
    """A pure, branch-free function (k, *arrays) that runs as the array library of k likes it."""

    @wraps(formula)
    def run(k: Kernels, *arguments: Any) -> R:
        return k.run(formula, *arguments)

    return run


@cache
def _eps(xp: Any, dtype: Any) -> float:
    return float(xp.finfo(dtype).eps)


class Kernels:
    """Array operations of one array library, resolved once per solve."""

    pure_numpy = False  # NumPy on one machine, without a constraint's matrix: nothing to ask for
    whole = True  # every row of a matrix is here
    fuses = False  # there are faster versions of the formulas for single matrices
    compiled: Any = None  # the compiled kernels, which know of no constraint's matrix and no ranks
    compiles = False  # formulas are compiled, once for every shape that they meet

    def __init__(self, xp: Any) -> None:
        self.xp = xp

    def run(self, formula: Callable[..., Any], *arguments: Any) -> Any:
        """``formula(self, *arguments)``, compiled where the array library can; see `kernel`."""
        return formula(self, *arguments)

    def eps(self, x: Array) -> float:
        """The distance from 1 to the next number like those of x."""
        return _eps(self.xp, x.dtype)

    # -- sums over rows --------------------------------------------------------------------

    def reduce(self, *local: Array) -> Sequence[Array]:
        """Sums over ranks of sums over this rank's rows; one machine has nothing to do."""
        return local

    def rows(self, X: Array) -> int:
        """n: the rows of X on all ranks."""
        return int(X.shape[-2])

    def together(self) -> AbstractContextManager[None]:
        """Local work that fails on every rank if it fails on one."""
        return nullcontext()

    def pairing(self, A: Array, G: Array) -> Array:
        """AᴴG, for a point or tangent A and a Euclidean gradient G."""
        return self.reduce(self._product(A, G))[0]

    def gram(self, A: Array, B: Array) -> Array:
        """The matrix of inner products of columns, AᴴB (AᴴMB under a constraint XᴴMX = I)."""
        return self.reduce(self._product(A, self.weigh(B)))[0]

    def grams(self, A: Array, B: Array) -> Sequence[Array]:
        """(AᴴA, AᴴB, BᴴB) in one reduction."""
        MA, MB = self.weigh(A), self.weigh(B)
        return self.reduce(self._product(A, MA), self._product(A, MB), self._product(B, MB))

    def dot(self, A: Array, B: Array) -> Array:
        """Re⟨A, B⟩ over all entries, as a zero-dimensional array."""
        return self.reduce(self._dot(A, self.weigh(B)))[0]

    def _product(self, A: Array, B: Array) -> Array:
        return self.adjoint(A) @ B

    def _dot(self, A: Array, B: Array) -> Array:
        return self.xp.sum(self.real(self.conj(A) * B))

    # -- the constraint's matrix M; see geometry.generalized -------------------------------

    weights: Any = None  # what `_weigh` and `_sharpen` compute with: M and its factors
    _weigh: Callable[[Any, Array], Array] | None = None
    _sharpen: Callable[[Any, Array], Array] | None = None

    def weighted(
        self,
        weigh: Callable[[Any, Array], Array],
        sharpen: Callable[[Any, Array], Array],
        weights: Any = None,
    ) -> Kernels:
        """These kernels with inner products of columns taken in M.

        ``weigh(weights, A)`` is M A and ``sharpen(weights, G)`` is M⁻¹G; the arrays they need
        are ``weights``, so that a compiler sees arguments where it would copy constants.
        """
        result = copy.copy(self)
        result.weights, result._weigh, result._sharpen = weights, weigh, sharpen
        result.pure_numpy, result.compiled = False, None
        return result

    def weigh(self, A: Array) -> Array:
        """M A; the identity unless the constraint is XᴴMX = I."""
        return A if self._weigh is None else self._weigh(self.weights, A)

    def sharpen(self, G: Array) -> Array:
        """M⁻¹G: from the space of Euclidean gradients to that of points."""
        return G if self._sharpen is None else self._sharpen(self.weights, G)

    def factorise(self, M: Array) -> tuple[Any, Callable[[Any, Array], Array]]:
        """(factors, solve) with solve(factors, G) = M⁻¹G; ``LinAlgError`` if M is indefinite.

        The array API has no triangular solve: the inverse, and one step of refinement, which
        gives back what inverting loses.
        """
        if not self.finite(self.xp.linalg.cholesky(M)):
            raise np.linalg.LinAlgError("M is not positive definite")
        return (M, self.xp.linalg.inv(M)), _solve_by_inverse

    # -- tall updates ----------------------------------------------------------------------

    def combine(self, X: Array, P: Array, U: Array, Q: Array) -> Array:
        """X P + U Q."""
        return X @ P + U @ Q

    def subtract(self, G: Array, X: Array, S: Array) -> Array:
        """G − X S."""
        return G - X @ S

    def overwriting(self) -> Kernels:
        """These kernels with `combine` and `subtract` free to write over their first argument."""
        return self

    # -- blocks: arrays (m, *shape), one vector a row --------------------------------------

    def block(self, X: Array, rows: int) -> Array:
        """A block of zeros for vectors like X, to be written to."""
        return self.xp.zeros((rows, *X.shape), dtype=X.dtype, device=self.device(X))

    def block_dot(self, block: Array, C: Array) -> np.ndarray[Any, Any]:
        """Re⟨block_i, C⟩ for all i as NumPy doubles: one product, 2mnk."""
        return self.to_numpy(_block_dot(self, block, C)).astype(np.float64, copy=False)

    def block_add(
        self, a: float, C: Array, block: Array, weights: Any, overwrite: bool = False
    ) -> Array:
        """a C + Σ weights_i block_i: one product, 2mnk; with ``overwrite`` perhaps in C's place."""
        return _block_add(self, a, C, block, self.asarray(weights, block))

    def write_row(self, block: Array, i: int, C: Array) -> Array:
        """``block`` with C as its row i; in place where the library allows it."""
        block[i, ...] = C
        return block

    # -- small matrices --------------------------------------------------------------------

    def adjoint(self, A: Array) -> Array:
        """Aᴴ of the last two axes."""
        return self.conj(self.xp.matrix_transpose(A))

    def is_complex(self, A: Array) -> bool:
        return bool(self.xp.isdtype(A.dtype, "complex floating"))

    def conj(self, A: Array) -> Array:
        return self.xp.conj(A) if self.is_complex(A) else A

    def real(self, A: Array) -> Array:
        return self.xp.real(A) if self.is_complex(A) else A

    def trace(self, A: Array) -> Array:
        """Re Tr A, summed over a stack."""
        return self.xp.sum(self.real(self.xp.linalg.trace(A)))

    def squared_frobenius(self, A: Array) -> Array:
        """‖A‖²_F of a small matrix (no sum over ranks)."""
        return self.xp.sum(self.real(self.conj(A) * A))

    def small_inner(self, A: Array, B: Array) -> Array:
        """Re⟨A, B⟩ of small matrices (no sum over ranks)."""
        return self.xp.sum(self.real(self.conj(A) * B))

    def largest(self, a: Array) -> Array:
        """The largest of the numbers that belong to the matrices of a stack."""
        return self.xp.max(a)

    def largest_square(self, A: Array) -> Array:
        """The largest ‖A‖²_F of the small matrices of a stack."""
        return self.largest(self.xp.sum(self.real(self.conj(A) * A), axis=(-2, -1)))

    def eigh(self, A: Array) -> tuple[Array, Array]:
        """Eigenvalues, in any order, and eigenvectors of a small (stack of) Hermitian A."""
        values, vectors = self.xp.linalg.eigh(A)
        return values, vectors

    def hermitian(self, A: Array) -> Array:
        """(A + Aᴴ)/2."""
        return 0.5 * (A + self.adjoint(A))

    def skew(self, A: Array) -> Array:
        """(A − Aᴴ)/2."""
        return 0.5 * (A - self.adjoint(A))

    def eye(self, like: Array) -> Array:
        """The identity that fits the last axis of ``like``."""
        return self.xp.eye(like.shape[-1], dtype=like.dtype, device=self.device(like))

    def device(self, A: Array) -> Any:
        return A.device

    def constant(self, A: Array) -> Array:
        """A, on whose value no result depends: no derivative passes through it."""
        return A

    def solve(self, A: Array, B: Array) -> Array:
        """A⁻¹B for a small (stack of) A."""
        return self.xp.linalg.solve(A, B)

    def divide(self, B: Array, A: Array) -> Array:
        """BA⁻¹ for a small (stack of) A."""
        flip = self.xp.matrix_transpose
        return flip(self.solve(flip(A), flip(B)))

    def contiguous(self, A: Array) -> Array:
        """A, written out where it is a part of something larger."""
        return A

    def assemble(self, rows: Sequence[Sequence[Array]]) -> Array:
        """A matrix from its blocks."""
        xp = self.xp
        return xp.concat([xp.concat(list(row), axis=-1) for row in rows], axis=-2)

    def expm(self, A: Array) -> Array:
        """The exponential of a small (stack of) A; by SciPy unless the library has its own."""
        small = scipy.linalg.expm(np.asarray(A))
        return self.xp.asarray(small, dtype=A.dtype, device=self.device(A))

    def polar(self, A: Array) -> Array:
        """The unitary polar factor U Vᴴ of A = U Σ Vᴴ: the nearest orthonormal matrix."""
        U, _, Vh = self.xp.linalg.svd(A, full_matrices=False)
        return U @ Vh

    def nearest(self, A: Array) -> Array:
        """The orthonormal matrix nearest to a tall A."""
        return self.polar(A) if self._weigh is None else self._weighted_polar(A)

    def _weighted_polar(self, A: Array) -> Array:
        """A(AᴴMA)^{-1/2}, polished to rounding by a second round and a Newton–Schulz step."""
        xp = self.xp
        for _ in range(2):
            values, vectors = xp.linalg.eigh(self.hermitian(self.gram(A, A)))
            root = xp.astype(values**-0.5, A.dtype)
            A = A @ ((vectors * root[..., None, :]) @ self.adjoint(vectors))
        return self.subtract(1.5 * A, A, 0.5 * self.gram(A, A))

    # -- one column: Gram matrices are numbers, here arrays (..., 1, 1); see geometry.vector ----

    def column_gram(self, x: Array, y: Array) -> Any:
        return self.gram(x, y)

    def column_grams(self, x: Array, y: Array) -> Sequence[Any]:
        a, m, d = self.grams(x, y)
        return self.real_number(a), m, self.real_number(d)

    def conj_number(self, a: Any) -> Any:
        return self.conj(a)

    def real_number(self, a: Any) -> Any:
        """The real part, in the dtype of a: promotion rules differ between libraries."""
        return 0.5 * (a + self.conj(a)) if self.is_complex(a) else a

    def sum_numbers(self, a: Any) -> Any:
        return self.xp.sum(self.real(a))

    def largest_number(self, a: Any) -> Any:
        return self.xp.max(self.real(a))

    def axpby(self, p: Any, x: Array, q: Any, y: Array) -> Array:
        """p x + q y."""
        return p * x + q * y

    # -- the border to Python floats -------------------------------------------------------

    def asarray(self, values: np.ndarray[Any, Any], like: Array) -> Array:
        """A NumPy array brought to the library, dtype and device of ``like``."""
        return self.xp.asarray(values, dtype=like.dtype, device=self.device(like))

    def to_numpy(self, A: Array) -> np.ndarray[Any, Any]:
        return np.asarray(A)

    def numbers(self, scalars: Sequence[Array]) -> list[float]:
        """Zero-dimensional arrays as Python floats; on an accelerator in one transfer."""
        return [float(a) for a in scalars]

    def finite(self, A: Array) -> bool:
        return bool(self.xp.all(self.xp.isfinite(A)))


@kernel
def _block_dot(k: Kernels, block: Array, C: Array) -> Array:
    rows = k.xp.reshape(block, (block.shape[0], -1))
    column = k.xp.reshape(k.conj(C), (-1,))
    return k.reduce(k.real(rows @ column))[0]


@kernel
def _block_add(k: Kernels, a: Any, C: Array, block: Array, weights: Array) -> Array:
    rows = k.xp.reshape(block, (block.shape[0], -1))
    return a * C + k.xp.reshape(weights @ rows, block.shape[1:])


def _solve_by_inverse(factors: tuple[Array, Array], G: Array) -> Array:
    M, inverse = factors
    X = inverse @ G
    return X + inverse @ (G - M @ X)
