"""Kernels of a batch for JAX arrays, to be compiled as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from stiefel.backends.jax import JaxKernels
from stiefel.types import Array

from .kernels import PerProblem

UNROLLED = 8  # columns


class JaxMany(PerProblem, JaxKernels):
    @property
    def number(self) -> Any:  # type: ignore[override]
        """Double, or single while JAX computes in single precision."""
        return jnp.zeros(()).dtype

    def run(self, formula: Callable[..., Any], *arguments: Any) -> Any:
        return formula(self, *arguments)

    def some(self, mask: Array) -> bool:
        return True

    def on_some(
        self, mask: Array, function: Callable[..., Any], arrays: tuple[Array, ...], default: Any
    ) -> Any:
        def found() -> Any:
            return self.choose(mask, function(*arrays), default)

        return jax.lax.cond(jnp.any(mask), found, lambda: default)

    def on_few(
        self,
        mask: Array,
        function: Callable[..., Any],
        arrays: tuple[Array, ...],
        default: tuple[Array, ...],
        width: int,
    ) -> Any:
        """As `on_some`, for ``width`` problems at a time: where few are in the mask, and dear."""
        size = mask.shape[0]
        if size <= width:
            return self.on_some(mask, function, arrays, default)

        def body(carry: Any) -> Any:
            left, found = carry
            (index,) = jnp.nonzero(left, size=width, fill_value=size)
            here = jnp.minimum(index, size - 1)
            new = function(*(a[here] for a in arrays))
            put = (a.at[index].set(b, mode="drop") for a, b in zip(found, new, strict=True))
            return left.at[index].set(False, mode="drop"), tuple(put)

        return jax.lax.while_loop(lambda carry: jnp.any(carry[0]), body, (mask, default))[1]

    def once(self, a: Any) -> Any:
        return jax.lax.optimization_barrier(a)  # type: ignore[no-untyped-call]

    # Sums of all entries are products with ones: XLA gives other sums of a processor to a library
    # that takes several times as long for small arrays.

    def _dot(self, A: Array, B: Array) -> Array:
        return self.numbers(_total(self.real(self.conj(A) * B), 1))

    def matrix_dots(self, A: Array, B: Array) -> Array:
        return _total(self.real(self.conj(A) * B), A.ndim - 2)

    def repeat(self, times: int, function: Callable[[Any], Any], state: Any) -> Any:
        return jax.lax.fori_loop(0, times, lambda _, s: function(s), state)

    # Products with a small matrix on the right, as sums of columns times rows: one loop over the
    # batch that XLA fuses with its neighbours, in place of a call for each of its matrices.

    def combine(self, X: Array, P: Array, U: Array, Q: Array) -> Array:
        return _times(X, P) + _times(U, Q)

    def subtract(self, G: Array, X: Array, S: Array) -> Array:
        return G - _times(X, S)

    def block_dot(self, block: Array, C: Array) -> Array:
        products = jnp.einsum("bmi,bi->bm", self.conj(block), self.flat(self.weigh(C)))
        return self.numbers(self.real(products))

    def block_sum(self, block: Array, weights: Array, like: Array) -> Array:
        summed = jnp.einsum("bm,bmi->bi", weights.astype(block.dtype), block)
        return summed.reshape(like.shape)

    def times_vector(self, A: Array, b: Array) -> Array:
        return jnp.einsum("bij,bj->bi", A, b)

    def put(self, a: Array, axis: int, i: Array, C: Array) -> Array:
        # Behind a barrier, or the compiler writes a second time for a second use: a copy each.
        new = jax.lax.dynamic_update_index_in_dim(a, C.astype(a.dtype), i, axis)
        return jax.lax.optimization_barrier(new)  # type: ignore[no-untyped-call]

    def _exact_power(self, exponent: Array) -> Array:
        return jnp.ldexp(jnp.ones_like(exponent), exponent.astype(int))

    def frexp(self, a: Array) -> tuple[Array, Array]:
        mantissa, exponent = jnp.frexp(a)
        return mantissa, jnp.ldexp(jnp.ones_like(a), exponent)

    def last_bit(self, mantissa: Array, bits: int) -> Array:
        digits = (jnp.abs(mantissa) * 2.0**bits).astype(jnp.zeros((), int).dtype)
        return (digits & -digits).astype(mantissa.dtype) * 2.0**-bits


def _total(a: Array, axes: int) -> Array:
    """The sums over all axes but the first so many."""
    flat = a.reshape(*a.shape[:axes], -1)
    return flat @ jnp.ones(flat.shape[-1], a.dtype)


def _times(X: Array, P: Array) -> Array:
    if P.shape[-2] > UNROLLED:
        return X @ P
    terms = [X[..., :, j : j + 1] * P[..., j : j + 1, :] for j in range(P.shape[-2])]
    return sum(terms[1:], terms[0])
