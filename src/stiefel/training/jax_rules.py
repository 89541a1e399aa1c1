"""SGD, Adam and Muon as optax transformations; public as `stiefel.jax.sgd`, `adam` and `muon`.

At an orthonormal parameter X with gradient G and momentum M, with P the projection onto the tangent
space at X and g = P(G), the directions D of `jax_manifold` are

    SGD    M' = μP(M) + (1−δ)g,          D = M',  or g + μM' (Nesterov)
    Adam   M' = β₁P(M) + (1−β₁)g,        D = M'/(1−β₁ᵗ) / (√(v'/(1−β₂ᵗ)) + ε),
           v' = β₂v + (1−β₂) mean |g|²   one number for each matrix, so that D is tangent
    Muon   M' = μP(M) + g,               D = the steepest direction of M', or of g + μM' (Nesterov)

Free parameters follow optax's own rules.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from . import formulas
from .jax_manifold import Array, Memory, Number, Place, Rate, Rule, as_number, on_manifold
from .jax_marks import Marks
from .jax_masters import finfo, with_masters

# Below the square of any gradient that matters in float32; it gives √v a derivative at v = 0.
EPS_ROOT = 1e-36


def sgd(
    learning_rate: Rate,
    orthonormal: Any,
    *,
    momentum: Number = 0.0,  # μ
    dampening: Number = 0.0,  # δ
    nesterov: bool = False,
    weight_decay: Number = 0.0,
) -> optax.GradientTransformationExtraArgs:
    """Stochastic gradient descent with momentum."""

    def rule(at: Place, G: Array, memory: Memory, t: Array) -> tuple[Array, Memory]:
        mu, keep = as_number(momentum, G), _kept(dampening, t, G)
        g = at.tangent(G)
        M = mu * at.tangent(memory.momentum) + keep * g
        return (g + mu * M if nesterov else M), Memory(M, memory.square)

    free = optax.chain(
        optax.add_decayed_weights(weight_decay),
        _trace(momentum, dampening, nesterov),
        optax.scale_by_learning_rate(learning_rate),
    )
    return _assembled(orthonormal, rule, learning_rate, free)


def adam(
    learning_rate: Rate,
    orthonormal: Any,
    *,
    b1: Number = 0.9,  # β₁
    b2: Number = 0.999,  # β₂
    eps: Number = 1e-8,  # ε
    eps_root: Number = EPS_ROOT,
    weight_decay: Number = 0.0,
) -> optax.GradientTransformationExtraArgs:
    """Adam."""

    def rule(at: Place, G: Array, memory: Memory, t: Array) -> tuple[Array, Memory]:
        beta1, beta2 = (as_number(b, G) for b in (b1, b2))
        g = at.tangent(G)
        M = beta1 * at.tangent(memory.momentum) + (1 - beta1) * g
        v = beta2 * memory.square + (1 - beta2) * formulas.second_moment(g)
        t = t.astype(v.dtype)
        root = jnp.sqrt(v / (1 - beta2**t) + as_number(eps_root, G)) + as_number(eps, G)
        return M / ((1 - beta1**t) * root), Memory(M, v)

    free = optax.adamw(
        learning_rate, b1=b1, b2=b2, eps=eps, eps_root=eps_root, weight_decay=weight_decay
    )
    return _assembled(orthonormal, rule, learning_rate, free)


def muon(
    learning_rate: Rate,
    orthonormal: Any,
    *,
    momentum: Number = 0.95,  # μ
    nesterov: bool = True,
    free_learning_rate: Rate | None = None,
    b1: Number = 0.9,
    b2: Number = 0.999,
    eps: Number = 1e-8,
    eps_root: Number = EPS_ROOT,
    weight_decay: Number = 0.0,
) -> optax.GradientTransformationExtraArgs:
    """Muon."""

    def rule(at: Place, G: Array, memory: Memory, t: Array) -> tuple[Array, Memory]:
        mu, g = as_number(momentum, G), at.tangent(G)
        M = mu * at.tangent(memory.momentum) + g
        return _steepest(at, g + mu * M if nesterov else M), Memory(M, memory.square)

    free = optax.adamw(
        learning_rate if free_learning_rate is None else free_learning_rate,
        b1=b1,
        b2=b2,
        eps=eps,
        eps_root=eps_root,
        weight_decay=weight_decay,
    )
    return _assembled(orthonormal, rule, learning_rate, free)


def _steepest(at: Place, M: Array) -> Array:
    """`formulas.muon`, which does not depend on the size of M: that is taken out as a constant.

    Its derivative with respect to the size is zero, and would be computed as infinity times zero
    for a small M.  For M = 0 the direction and its derivative are zero.
    """
    size = jax.lax.stop_gradient(jnp.max(jnp.abs(M), axis=(-2, -1), keepdims=True))
    tiny = finfo(M.dtype).tiny
    n, k = M.shape[-2:]
    anything = jnp.cos(jnp.arange(1.0, n * k + 1, dtype=size.dtype)).reshape(n, k)
    M = jnp.where(size > 0, M / jnp.maximum(size, tiny), anything.astype(M.dtype))
    return jnp.where(size > 0, formulas.muon(at.X, M, at.one, at.scale), 0)


def _kept(dampening: Number, t: Array, like: Array) -> Number:
    """1 − δ, but 1 at the first step, where there is nothing to dampen; as PyTorch's SGD."""
    delta = as_number(dampening, like)
    return 1 - jnp.where(t > 1, delta, 0).astype(like.real.dtype)


def _trace(momentum: Number, dampening: Number, nesterov: bool) -> optax.GradientTransformation:
    """The momentum of free parameters, M' = μM + (1−δ)g."""

    def init(params: Any) -> TraceState:
        return TraceState(jnp.zeros([], jnp.int32), jax.tree.map(jnp.zeros_like, params))

    def update(grads: Any, state: TraceState, params: Any = None) -> tuple[Any, TraceState]:
        t = optax.safe_increment(state.count)
        M = jax.tree.map(
            lambda m, g: as_number(momentum, g) * m + _kept(dampening, t, g) * g,
            state.momentum,
            grads,
        )
        ahead = jax.tree.map(lambda m, g: g + as_number(momentum, g) * m, M, grads)
        return (ahead if nesterov else M), TraceState(t, M)

    return optax.GradientTransformation(init, update)


class TraceState(NamedTuple):
    """The number of steps, and the momentum."""

    count: Array
    momentum: Any


def _assembled(
    orthonormal: Any,
    rule: Rule,
    learning_rate: Rate,
    free: optax.GradientTransformation,
) -> optax.GradientTransformationExtraArgs:
    """``rule`` for the marked parameters and ``free`` for the others."""
    marks = Marks(orthonormal)
    inner = with_masters(
        optax.partition(
            {"orthonormal": on_manifold(marks, rule, learning_rate), "free": free}, marks.labels
        )
    )

    def init(params: Any) -> Any:
        marks.check(params)
        return inner.init(params)

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        if params is None:
            raise ValueError(
                "orthonormal parameters move from where they are: call "
                "update(grads, state, params), not update(grads, state)"
            )
        # jax.grad gives the conjugate of the direction of steepest ascent.
        return inner.update(jax.tree.map(jnp.conj, grads), state, params, **extra)

    return optax.GradientTransformationExtraArgs(init, update)
