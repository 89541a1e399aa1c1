"""Parameters in bfloat16 and float16 that are trained in float32.

A step of 1e-4 is lost when it is added to a bfloat16 of size 1.  So the state keeps what the
parameters p cannot hold, the low part l of the master P = p + l in float32, and the inner rule
sees masters only.  With P' the new master and ○ rounding to p's type, the updates and the new low
part are

    u = ○(○(P') − p),    l' = P' − ○(p + u).

Adding u gives the parameters that l' was computed for, also where u itself was rounded, so that
p + l is the master to rounding of float32 for ever.  A parameter that somebody else has set is
what counts: what is left of the old low part is below its rounding.

○ is `jax.lax.reduce_precision`, because XLA may leave out a conversion to bfloat16 and back.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from stiefel.types import Array

finfo: Any = jnp.finfo


class MastersState(NamedTuple):
    """The low parts (`optax.MaskedNode()` for a parameter that has none), and the inner state."""

    low: Any
    inner: Any


def with_masters(
    inner: optax.GradientTransformationExtraArgs,
) -> optax.GradientTransformationExtraArgs:
    """``inner``, with parameters of 16 bits raised to masters in float32."""

    def init(params: Any) -> MastersState:
        return MastersState(jax.tree.map(_no_low_part, params), inner.init(raised_tree(params)))

    def update(
        grads: Any, state: MastersState, params: Any = None, **extra: Any
    ) -> tuple[Any, MastersState]:
        structure = structure_of(params)
        p = structure.flatten_up_to(params)
        P = [_master(a, b) for a, b in zip(p, structure.flatten_up_to(state.low), strict=True)]
        steps, inner_state = inner.update(
            raised_tree(grads), state.inner, structure.unflatten(P), **extra
        )
        u = structure.flatten_up_to(steps)
        pairs = [_rounded(*triple) for triple in zip(p, P, u, strict=True)]
        updates, low = (structure.unflatten([pair[i] for pair in pairs]) for i in (0, 1))
        return updates, MastersState(low, inner_state)

    return optax.GradientTransformationExtraArgs(init, update)


def structure_of(tree: Any) -> Any:
    return jax.tree.structure(tree)


def is_low(p: Array) -> bool:
    return p.dtype in (jnp.bfloat16, jnp.float16)


def in_working_precision(p: Array) -> Array:
    """p in the precision that rules compute in: float32 for what is less."""
    return p.astype(jnp.float32) if is_low(p) else p


def raised_tree(tree: Any) -> Any:
    return jax.tree.map(in_working_precision, tree)


def _no_low_part(p: Array) -> Array:
    return jnp.zeros_like(p, jnp.float32) if is_low(p) else optax.MaskedNode()


def _master(p: Array, low: Array) -> Array:
    return in_working_precision(p) + low if is_low(p) else p


def _rounded(p: Array, P: Array, step: Array) -> tuple[Array, Array]:
    """u and l' of the top of the file; the step itself where p is its own master."""
    if not is_low(p):
        return step, optax.MaskedNode()
    bits = finfo(p.dtype)
    around = partial(jax.lax.reduce_precision, exponent_bits=bits.nexp, mantissa_bits=bits.nmant)
    p, new = in_working_precision(p), P + step
    u = around(around(new) - p)
    return u.astype(bits.dtype), new - around(p + u)
