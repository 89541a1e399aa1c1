"""PyTorch and JAX arrays that live in the memory of the host: NumPy arrays inside the solvers.

On the host nothing is faster than BLAS called from NumPy: a small operation of PyTorch takes three
times as long, one of JAX ten times.  So a point of theirs that lives there is solved as a NumPy
array, and only the user's functions see arrays of their library:

    inward     gradients, and whatever else functions return; a view, without a copy
    outward    points for functions, and the result; a copy, to be kept and written to at will

with the dtype and the device of the start.  Arrays on an accelerator or on several devices stay
where they are, and so do arrays of other libraries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from stiefel.types import Array

from .arrays import library, to_numpy

Change = Callable[[Array], Array]


class Passage(NamedTuple):
    """How arrays of one leaf go between the user's functions and the solvers."""

    inward: Change
    outward: Change


def _same(x: Array) -> Array:
    return x


DIRECT = Passage(_same, _same)  # the solvers compute in the user's library


def passage_of(x: Array) -> Passage:
    """The one for points like x."""
    name = library(x)
    if name == "torch":
        return _of_torch(x)
    return _of_jax(x) if name == "jax" else DIRECT


def _of_torch(x: Array) -> Passage:
    import torch

    plain = type(x) in (torch.Tensor, torch.nn.Parameter)  # others have rules of their own
    if not plain or x.device.type != "cpu" or x.layout is not torch.strided:
        return DIRECT

    def copied(a: Array) -> Array:
        return torch.from_numpy(a.copy())

    return Passage(to_numpy, copied)


def _of_jax(x: Array) -> Passage:
    import jax
    import jax.numpy as jnp

    if isinstance(x, jax.core.Tracer) or len(x.devices()) > 1 or jax.process_count() > 1:
        return DIRECT
    if next(iter(x.devices())).platform != "cpu":
        return DIRECT
    place = x.sharding if x.committed else None

    def copied(a: Array) -> Array:
        # A copy of a copy costs nothing: JAX takes over the memory where it can.
        return jnp.asarray(a.copy()) if place is None else jax.device_put(a.copy(), place)

    # Double precision may have been turned off since x was made.
    found = copied(np.zeros(1, to_numpy(x[:0]).dtype)).dtype
    return Passage(to_numpy, copied) if found == x.dtype else DIRECT


__all__ = ["DIRECT", "Passage", "passage_of"]
