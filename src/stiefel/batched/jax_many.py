"""Kernels of a batch for JAX arrays, to be compiled as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from .kernels import PerProblem
from stiefel.interop.jax_kernels import JaxKernels

Array = Any


class JaxMany(PerProblem, JaxKernels):
    @property
    def number(self) -> Any:  # type: ignore[override]
        """Double, or single while JAX computes in single precision."""
        return jnp.zeros(()).dtype

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(self, *arguments)

    def some(self, mask: Array) -> bool:
        return True

    def on_some(
        self, mask: Array, function: Callable[..., Any], arrays: tuple[Array, ...], default: Any
    ) -> Any:
        def found() -> Any:
            return self.choose(mask, function(*arrays), default)

        return jax.lax.cond(jnp.any(mask), found, lambda: default)

    def _exact_power(self, exponent: Array) -> Array:
        return jnp.ldexp(jnp.ones_like(exponent), exponent.astype(int))

    def frexp(self, a: Array) -> tuple[Array, Array]:
        mantissa, exponent = jnp.frexp(a)
        return mantissa, jnp.ldexp(jnp.ones_like(a), exponent)

    def last_bit(self, mantissa: Array, bits: int) -> Array:
        digits = (jnp.abs(mantissa) * 2.0**bits).astype(jnp.zeros((), int).dtype)
        return (digits & -digits).astype(mantissa.dtype) * 2.0**-bits
