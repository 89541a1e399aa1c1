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

import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from stiefel.types import Array

from .arrays import library

Change = Callable[[Array], Array]


class Passage(NamedTuple):
    """How arrays of one leaf go between the user's functions and the solvers."""

    inward: Change
    outward: Change
    compiled: Change | None = None  # outward for compiled functions, where that takes less time


def _same(x: Array) -> Array:
    return x


def joined(outer: Passage, inner: Passage) -> Passage:
    """Inward by ``outer`` first; outward by it last."""
    inward, outward = outer.inward, outer.compiled or outer.outward
    return Passage(
        lambda g: inner.inward(inward(g)),
        lambda a: outer.outward(inner.outward(a)),
        lambda a: outward(inner.outward(a)),
    )


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

    def inward(g: Array) -> Array:
        try:
            return g.numpy()
        except (RuntimeError, TypeError):  # it has a history, or bits of which NumPy has none
            return g.numpy(force=True)

    return Passage(inward, lambda a: torch.from_numpy(a.copy()))


def _of_jax(x: Array) -> Passage:
    import jax
    import jax.numpy as jnp

    if isinstance(x, jax.core.Tracer) or len(x.devices()) > 1 or jax.process_count() > 1:
        return DIRECT
    if next(iter(x.devices())).platform != "cpu":
        return DIRECT
    place = x.sharding if x.committed else None

    def copied(a: Array) -> Array:
        # `device_put` takes over the memory of a where it can, `array` never does.
        return jnp.array(a) if place is None else jax.device_put(a.copy(), place)

    found = jax.dtypes.canonicalize_dtype(x.dtype)  # double precision may be turned off by now
    # A compiled function makes a JAX array of a NumPy array faster than JAX does before the call.
    compiled = np.copy if place is None else copied
    return Passage(np.asarray, copied, compiled) if found == x.dtype else DIRECT


def are_compiled(functions: Iterable[Any]) -> bool:
    """Whether all functions went through `jax.jit`."""
    jax = sys.modules.get("jax")
    return jax is not None and all(isinstance(f, jax.stages.Wrapped) for f in functions)


__all__ = ["DIRECT", "Passage", "are_compiled", "joined", "passage_of"]
