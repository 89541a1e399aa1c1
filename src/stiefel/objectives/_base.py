"""What every objective shares: the call, inner products, data in the precision of X."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from stiefel.types import NumpyArray as Array

REAL_TYPE = {"f": "f4", "d": "f8", "F": "f4", "D": "f8"}  # of each dtype that X may have


class Objective(ABC):
    """A function f of an array X, with its Euclidean gradient G.

    The convention is ``f(X + H) = f(X) + Re⟨G, H⟩ + o(‖H‖)`` with ``⟨G, H⟩ = Σ conj(G) H``, real or
    complex. Values are Python floats; gradients have the dtype and the shape of X.
    """

    @abstractmethod
    def value(self, X: Array) -> float:
        """f(X)."""

    @abstractmethod
    def value_and_gradient(self, X: Array) -> tuple[float, Array]:
        """f(X) and the Euclidean gradient at X."""

    def __call__(self, X: Array) -> tuple[float, Array]:
        """The same as `value_and_gradient`: what `stiefel.minimize` calls."""
        return self.value_and_gradient(X)


def real_inner(X: Array, Y: Array) -> float:
    """Re⟨X, Y⟩. One BLAS dot; two column-major arrays are read in place instead of being copied."""
    if X.flags.f_contiguous and Y.flags.f_contiguous:
        X, Y = X.T, Y.T
    return float(np.vdot(X, Y).real)


def row_inner(X: Array, Y: Array) -> Array:
    """The vector of Re⟨X_i, Y_i⟩ over the rows of (n, k) arrays, without an (n, k) temporary."""
    if X.dtype.kind == "c":
        return np.asarray(
            np.einsum("ij,ij->i", X.real, Y.real) + np.einsum("ij,ij->i", X.imag, Y.imag)
        )
    return np.asarray(np.einsum("ij,ij->i", X, Y))


def real_type(dtype: np.dtype[Any]) -> str:
    """The real type of the precision of `dtype`; refuses what has none, integers above all."""
    try:
        return REAL_TYPE[dtype.char]
    except KeyError:
        raise TypeError(
            f"X has dtype {dtype}; expected float32, float64, complex64 or complex128: "
            "convert it with X.astype(float)"
        ) from None


class Cast:
    """A matrix, dense or sparse, in each precision it is asked for; converted once, then kept.

    Real data stay real beside a complex X (see `matrix_product`); complex data refuse a real X,
    because the answer would silently be restricted to real matrices.
    """

    def __init__(self, matrix: Any) -> None:
        self.matrix = matrix
        self._kept: dict[np.dtype[Any], Any] = {}

    def __call__(self, dtype: np.dtype[Any]) -> Any:
        """The matrix in the precision of `dtype`."""
        try:
            return self._kept[dtype]
        except KeyError:
            return self._kept.setdefault(dtype, self._convert(dtype))

    def _convert(self, dtype: np.dtype[Any]) -> Any:
        real = real_type(dtype)
        if self.matrix.dtype.kind != "c":
            return self.matrix.astype(real, copy=False)
        if dtype.kind != "c":
            raise TypeError(
                f"the data are complex ({self.matrix.dtype}) and X is real ({dtype}); "
                "start from a complex X, for example X.astype(complex)"
            )
        return self.matrix.astype(dtype, copy=False)


def matrix_product(A: Any, X: Array) -> Array:
    """``A @ X``; a real A acts on a complex X as on the 2k real columns of its two parts.

    NumPy and SciPy would make A complex first: a copy of A and twice the flops.
    """
    if X.dtype.kind != "c" or A.dtype.kind == "c":
        return np.asarray(A @ X)
    columns = np.ascontiguousarray(X if X.ndim > 1 else X[:, None])
    pairs = np.ascontiguousarray(A @ columns.view(columns.real.dtype))
    return pairs.view(X.dtype).reshape(pairs.shape[:1] + X.shape[1:])
