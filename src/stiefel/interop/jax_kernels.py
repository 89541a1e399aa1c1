"""Kernels for JAX arrays: the same text, compiled once per function and shape."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg

from stiefel.geometry.kernels import Array, Kernels


class JaxKernels(Kernels):
    def __init__(self) -> None:
        super().__init__(jnp)
        self._compiled: dict[Callable[..., Any], Callable[..., Any]] = {}

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        compiled = self._compiled.get(function)
        if compiled is None:
            compiled = self._compiled[function] = jax.jit(partial(function, self))
        return compiled(*arguments)

    def weighted(
        self, weigh: Callable[[Array], Array], sharpen: Callable[[Array], Array]
    ) -> Kernels:
        result = super().weighted(weigh, sharpen)
        result._compiled = {}  # type: ignore[attr-defined]  # compiled code holds the weights
        return result

    def device(self, A: Array) -> Any:
        return None  # JAX places results beside their operands, also inside compiled code

    def expm(self, A: Array) -> Array:
        return jax.scipy.linalg.expm(A)
