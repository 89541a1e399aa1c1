"""What a point must be, said in sentences that name what was given and what to do."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from stiefel.backends.arrays import describe, is_array, is_floating, kernels_for
from stiefel.backends.base import Kernels
from stiefel.types import Array, Manifold

# Looser than rounding: a start written with eight digits is the user's business to accept.
ORTHONORMAL_TOLERANCE = 1e-8
UNSUPPORTED_DTYPES = {
    "float16",
    "bfloat16",
    "float96",
    "float128",
    "complex32",
    "complex192",
    "complex256",
}
ORDINARY_DTYPES = frozenset(map(np.dtype, ("float32", "float64", "complex64", "complex128")))


def check_array(X: Array, name: str, may_be_empty: bool = False) -> None:
    if type(X) is not np.ndarray or X.dtype not in ORDINARY_DTYPES:
        _check_kind(X, name)
    if 0 in X.shape and not may_be_empty:
        raise ValueError(f"{name} has shape {tuple(X.shape)}: it has no entries")


def _check_kind(X: Array, name: str) -> None:
    if not is_array(X):
        raise TypeError(
            f"{name} is {describe(X)}; expected an array (NumPy, PyTorch or JAX), "
            "for example numpy.asarray(..., dtype=float)"
        )
    if isinstance(X, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array; expected all entries: pass {name}.filled(...)")
    if str(X.dtype).removeprefix("torch.") in UNSUPPORTED_DTYPES:
        raise TypeError(
            f"{name} has dtype {X.dtype}; expected float32, float64, complex64 or complex128: "
            "small precisions cannot hold an orthonormal matrix, larger ones have no LAPACK"
        )
    layout = str(getattr(X, "layout", ""))  # JAX has something else of that name
    if layout.startswith("torch.") and layout != "torch.strided":
        raise TypeError(f"{name} is a sparse tensor; expected a dense one: pass {name}.to_dense()")
    if not is_floating(X):
        raise TypeError(
            f"{name} has dtype {X.dtype}; expected a real or complex floating-point dtype: "
            f"convert it, for example {name}.astype(float)"
        )


def check_matrix(X: Array, name: str, kernels: Kernels | None = None) -> None:
    """``kernels`` knows of rows elsewhere."""
    check_array(X, name, may_be_empty=kernels is not None)
    if len(X.shape) < 2:
        raise ValueError(
            f"{name} has shape {tuple(X.shape)}; expected (n, k) or a stack (..., n, k): "
            "if it is a free parameter, its manifold is Euclidean(); if it is a unit vector, "
            f"Sphere(), or {name}.reshape(-1, 1) with Stiefel()"
        )
    n, k = X.shape[-2] if kernels is None else kernels.rows(X), X.shape[-1]
    if n == 0 or k == 0:
        raise ValueError(f"{name} has {n} rows and {k} columns: it has no entries")
    if k > n:
        raise ValueError(
            f"{name} has shape {tuple(X.shape)}: {k} columns of length {n} cannot be "
            "orthonormal; expected at least as many rows as columns (pass the transpose?)"
        )


def check_finite(kernels: Kernels, X: Array, name: str) -> None:
    if kernels.pure_numpy and math.isfinite(np.vdot(X, X).real):
        return  # a sum takes a third of the time; its overflow proves nothing
    if not kernels.finite(X):
        raise ValueError(f"{name} contains NaN or infinity; expected finite entries")


def check_orthonormal(manifold: Manifold, X: Array, name: str) -> None:
    allowed = max(ORTHONORMAL_TOLERANCE, 100.0 * manifold.eps(X) * X.shape[-1])
    defect = manifold.defect(X)
    if not defect <= allowed:
        gram, repair = "XᵀX", f"stiefel.nearest({name})"
        if getattr(manifold, "B", None) is not None:
            gram, repair = "XᵀBX", f"manifold.nearest({name})"
        raise ValueError(
            f"{name} is not orthonormal: ‖{gram} − I‖ = {defect:.1e} (allowed {allowed:.0e}); "
            f"pass {repair}"
        )


def gaussian(
    shape: tuple[int, ...],
    seed: int | np.random.Generator | None,
    dtype: Any,
    like: Array | None,
) -> Array:
    """A Gaussian array, drawn by NumPy and brought to the library of ``like``."""
    rng = np.random.default_rng(seed)
    if like is not None:
        kernels = kernels_for(like)
        values = rng.standard_normal(shape)
        if kernels.is_complex(like):
            values = values + 1j * rng.standard_normal(shape)
        return kernels.asarray(values, like)
    dtype = np.dtype(dtype)
    if dtype.kind not in "fc":
        raise TypeError(f"dtype is {dtype}; expected a real or complex floating-point dtype")
    values = rng.standard_normal(shape)
    if dtype.kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)
