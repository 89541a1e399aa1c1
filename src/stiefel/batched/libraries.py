"""The kernels of a batch for the library that its arrays belong to."""

from __future__ import annotations

from functools import cache

from stiefel.types import Array

from .kernels import PerProblem
from .numpy_many import NumpyMany
from .shared import library


def kernels_of(x: Array) -> PerProblem:
    """The kernels for problems like x; libraries other than the three are refused."""
    return _kernels(library(x))


@cache
def _kernels(name: str) -> PerProblem:
    if name == "numpy":
        return NumpyMany()
    if name == "torch":
        from .torch_many import TorchMany

        return TorchMany()
    if name == "jax":
        from .jax_many import JaxMany

        return JaxMany()
    raise TypeError(f"arrays of {name} are not supported here; expected NumPy, PyTorch or JAX")
