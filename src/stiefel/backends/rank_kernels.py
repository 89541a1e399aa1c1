"""Kernels whose sums over rows go on over the ranks that hold the other rows.

A rank holds some rows of every tall matrix, possibly none.  Products of tall matrices are summed
in one message per call of `reduce`; k×k matrices are the same on every rank and are not summed
again.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np

from stiefel.types import Array

from .base import Kernels
from .ranks import Ranks


def over_ranks(kernels: Kernels, ranks: Ranks) -> Kernels:
    """``kernels`` with sums over rows completed by the other ranks."""
    result = copy.copy(kernels)
    result.__class__ = _joined(type(kernels))  # type: ignore[arg-type]
    result.ranks, result.compiled = ranks, None  # type: ignore[attr-defined]
    return result


@cache
def _joined(library: type[Kernels]) -> type[Kernels]:
    return type(f"Distributed{library.__name__}", (DistributedKernels, library), {})


class DistributedKernels(Kernels):
    """What differs from the kernels of one machine, for any array library."""

    ranks: Ranks
    pure_numpy = whole = False

    def run(self, formula: Callable[..., Any], *arguments: Any) -> Any:
        if self.xp.__name__ == "jax.numpy":
            return formula(self, *arguments)  # messages cannot be compiled
        return super().run(formula, *arguments)

    # -- sums over rows --------------------------------------------------------------------

    def reduce(self, *local: Array) -> Sequence[Array]:
        parts = [_to_numpy(a) for a in local]
        totals = self.ranks.sum([_as_reals(part) for part in parts])
        return [self._like(_from_reals(t, p), a) for t, p, a in zip(totals, parts, local)]

    def grams(self, A: Array, B: Array) -> Sequence[Array]:
        """(AᴴA, AᴴB, BᴴB); of the Hermitian ones only a triangle travels."""
        MA, MB = self.weigh(A), self.weigh(B)
        products = (self._product(A, MA), self._product(A, MB), self._product(B, MB))
        aa, ab, bb = (_to_numpy(p) for p in products)
        rows, columns = _triangle(A.shape[-1])
        parts = [aa[..., rows, columns], ab, bb[..., rows, columns]]
        totals = self.ranks.sum([_as_reals(part) for part in parts])
        small = [_from_reals(t, p) for t, p in zip(totals, parts)]
        full = (_from_triangle(small[0], aa.shape), small[1], _from_triangle(small[2], bb.shape))
        return [self._like(values, p) for values, p in zip(full, products)]

    def _like(self, values: np.ndarray[Any, Any], a: Array) -> Array:
        if isinstance(a, np.ndarray):
            return values
        if isinstance(a, np.generic):
            return values[()]
        return self.asarray(values, a)

    def rows(self, X: Array) -> int:
        return round(self.ranks.total(X.shape[-2]))

    def together(self) -> AbstractContextManager[None]:
        return self.ranks.together()

    def weigh(self, A: Array) -> Array:
        weigh = super().weigh
        return A if self._weigh is None else self.ranks.guard(lambda: weigh(A), lambda: 0.0 * A)

    def sharpen(self, G: Array) -> Array:
        sharpen = super().sharpen
        return G if self._sharpen is None else self.ranks.guard(lambda: sharpen(G), lambda: 0.0 * G)

    def finite(self, A: Array) -> bool:
        return self.ranks.total(not bool(self.xp.all(self.xp.isfinite(A)))) == 0

    # -- small matrices: exactly rounded sums, so that ranks on different processors, whose BLAS
    # -- add in different orders, take the same decisions -----------------------------------

    def trace(self, A: Array) -> Array:
        return math.fsum(np.trace(_to_numpy(A), axis1=-2, axis2=-1).real.ravel().tolist())

    def squared_frobenius(self, A: Array) -> Array:
        return self.small_inner(A, A)

    def small_inner(self, A: Array, B: Array) -> Array:
        return math.fsum((_to_numpy(A).conj() * _to_numpy(B)).real.ravel().tolist())

    # -- the nearest point -----------------------------------------------------------------

    def nearest(self, A: Array) -> Array:
        """The polar factor of the matrix whose rows are spread over the ranks.

        A_r = Q_r R_r on every rank; the polar factor of the stacked R_r, of which each rank
        keeps its block, multiplied by Q_r.  No Gram matrix, hence no squared condition number.
        """
        if self._weigh is not None:
            return self._weighted_polar(A)
        Q, R = self.xp.linalg.qr(A)
        here = _to_numpy(R)
        k, ranks = A.shape[-1], self.ranks
        padded = np.zeros((*here.shape[:-2], ranks.size, k, k), here.dtype)
        padded[..., ranks.rank, : here.shape[-2], :] = here
        stacked = _from_reals(ranks.sum([_as_reals(padded)])[0], padded)
        U, _, Vh = np.linalg.svd(
            stacked.reshape(*here.shape[:-2], ranks.size * k, k), full_matrices=False
        )
        block = (U @ Vh)[..., ranks.rank * k : ranks.rank * k + here.shape[-2], :]
        return Q @ self.asarray(block, A)


@cache
def _triangle(size: int) -> tuple[Any, Any]:
    return np.triu_indices(size)


def _from_triangle(values: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    rows, columns = _triangle(shape[-1])
    full = np.empty(shape, values.dtype)
    full[..., columns, rows] = values.conj()
    full[..., rows, columns] = values
    return full


def _to_numpy(a: Array) -> np.ndarray[Any, Any]:
    if isinstance(a, (np.ndarray, np.generic)):
        return np.asarray(a)
    if hasattr(a, "resolve_conj"):
        a = a.detach().cpu().resolve_conj()
    return np.asarray(a)


def _as_reals(a: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Flat and in double precision: single-precision runs sum over ranks without a loss."""
    if a.dtype.kind == "c":
        return np.ascontiguousarray(a, dtype=np.complex128).ravel().view(np.float64)
    return a.ravel()


def _from_reals(values: np.ndarray[Any, Any], like: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if like.dtype.kind == "c":
        values = values.view(np.complex128)
    return values.astype(like.dtype, copy=False).reshape(like.shape)
