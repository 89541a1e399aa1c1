"""Kernels for JAX arrays: the same formulas, compiled once per function and shape."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg
import numpy as np

from stiefel.types import Array

from .base import Kernels


class JaxKernels(Kernels):
    compiles = True

    def __init__(self) -> None:
        super().__init__(jnp)
        self._compiled: dict[Any, Callable[..., Any]] = {}  # shared by weighted copies

    def run(self, formula: Callable[..., Any], *arguments: Any) -> Any:
        key = (formula, self._weigh, self._sharpen)
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compiled[key] = jax.jit(partial(self._apply, formula))
        return compiled(self.weights, *arguments)

    def _apply(self, function: Callable[..., Any], weights: Any, *arguments: Any) -> Any:
        """`function` while it is traced: the weights are arguments, not constants."""
        traced = copy.copy(self)
        traced.weights = weights
        return function(traced, *arguments)

    def factorise(self, M: Array) -> tuple[Any, Callable[[Any, Array], Array]]:
        L = jnp.linalg.cholesky(M)
        if not self.finite(L):
            raise np.linalg.LinAlgError("M is not positive definite")
        return L, _cholesky_solve

    def device(self, A: Array) -> Any:
        return None  # JAX places results beside their operands, also inside compiled code

    def constant(self, A: Array) -> Array:
        return jax.lax.stop_gradient(A)

    def write_row(self, block: Array, i: int, C: Array) -> Array:
        return block.at[i].set(C)

    def numbers(self, scalars: Sequence[Array]) -> list[float]:
        return list(map(float, jax.device_get(list(scalars))))

    def expm(self, A: Array) -> Array:
        return jax.scipy.linalg.expm(A)


def _cholesky_solve(L: Array, G: Array) -> Array:
    """Of a stack as of one wide matrix, so that L is not copied for each of its matrices."""
    n, m = G.shape[-2], G.shape[-1]
    wide = jnp.moveaxis(G, -2, 0)
    solved = jax.scipy.linalg.cho_solve((L, True), wide.reshape(n, -1))
    return jnp.moveaxis(solved.reshape(wide.shape), 0, -2) if G.ndim > 2 else solved.reshape(n, m)
