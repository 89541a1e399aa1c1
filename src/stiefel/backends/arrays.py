"""Which array library an array belongs to, asked once per solve.

The rest of the package sees arrays only through the `Kernels` object returned here.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import array_api_compat
import numpy as np

from stiefel.types import Array

from .base import Kernels
from .numpy import NumpyKernels
from .rank_kernels import over_ranks
from .ranks import ALONE, Alone, Ranks


def is_array(x: Any) -> bool:
    return bool(array_api_compat.is_array_api_obj(x)) and not isinstance(x, np.generic)


def is_true(x: Any) -> bool:
    """Whether x is True, in whichever library; numbers and larger arrays are not."""
    if isinstance(x, (bool, np.bool_)):
        return bool(x)
    return is_array(x) and tuple(x.shape) == () and "bool" in str(x.dtype) and bool(x)


def is_floating(x: Array) -> bool:
    xp = array_api_compat.array_namespace(x)
    return bool(xp.isdtype(x.dtype, ("real floating", "complex floating")))


def library(x: Array) -> str:
    """'numpy', 'torch', 'jax', or the name of another array-API library."""
    if isinstance(x, np.ndarray):
        return "numpy"
    if array_api_compat.is_torch_array(x):
        return "torch"
    if array_api_compat.is_jax_array(x):
        return "jax"
    return type(x).__module__.partition(".")[0]


def kernels_for(x: Array, ranks: Alone | Ranks = ALONE) -> Kernels:
    """The kernels of the library that x belongs to, with sums over ``ranks`` if there are any."""
    kernels = _kernels(library(x))
    return over_ranks(kernels, ranks) if isinstance(ranks, Ranks) else kernels


@cache
def _kernels(name: str) -> Kernels:
    if name == "numpy":
        return NumpyKernels()
    if name == "torch":
        from .torch import TorchKernels

        return TorchKernels()
    if name == "jax":
        from .jax import JaxKernels

        return JaxKernels()
    return Kernels(importlib.import_module(name))


def in_native_order(x: Array) -> Array:
    """x with its bytes in the order of the machine, which is all that BLAS and LAPACK know."""
    if isinstance(x, np.ndarray) and not x.dtype.isnative:
        return x.astype(x.dtype.newbyteorder("="))
    return x


def own_copy(x: Array) -> Array:
    """A contiguous copy of x in its own memory order, which no one else will write to."""
    if isinstance(x, np.ndarray):
        return np.array(x, order="K", subok=False)
    return x.detach().clone() if library(x) == "torch" else x


def to_numpy(x: Array) -> np.ndarray[Any, Any]:
    """The entries of x as a NumPy array, in the memory order that x has; for saving."""
    if isinstance(x, np.ndarray):
        return x
    if library(x) == "torch":
        return x.detach().cpu().resolve_conj().resolve_neg().numpy()
    return np.asarray(x)


def describe(x: Any) -> str:
    """What x is, for error messages."""
    if is_array(x):
        return f"an array of shape {tuple(x.shape)} and dtype {x.dtype} ({library(x)})"
    if x is None:
        return "None"
    return f"{type(x).__name__} {x!r}" if np.isscalar(x) else f"a {type(x).__name__}"
