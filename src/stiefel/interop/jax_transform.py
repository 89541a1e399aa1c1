"""Algorithm 2 as a pair of pure functions that JAX can compile; public as `stiefel.jax`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from stiefel.geometry import Euclidean, Sphere, Stiefel
from stiefel.geometry.stiefel import _inner, _pair
from stiefel.solvers.accelerated import AcceleratedGradient
from stiefel.types import Array

_finfo: Any = jnp.finfo

MOST_TRIALS = 40
ROUNDING = 10.0  # ulps of f


class Transformation(NamedTuple):
    """A pair of the shape of `optax.GradientTransformationExtraArgs`."""

    init: Callable[..., Any]
    update: Callable[..., Any]


class State(NamedTuple):
    """The last accepted point, the step and the number of steps since the last restart."""

    X: Any
    gamma: Array
    k: Array


def accelerated(
    learning_rate: float = 0.1,
    *,
    manifold: Any = None,
    growth: float = 1.7,  # λ_d
    growth_threshold: float = 0.9,  # c_L
) -> Transformation:
    """Accelerated gradient descent with gradient restarts (Algorithm 2), for optax-like loops.

    ``params`` is a pytree of arrays with orthonormal columns, ``manifold`` one instance or a
    pytree of the same structure.  ``update(grads, state, params)`` takes the step
    ``learning_rate`` and keeps it; with ``value_fn=`` (and ``value=``, if it is known) the step
    comes from the paper's two-sided line search.  ``grads`` is what `jax.grad` gives.  The
    updates are to be added to the parameters, which then are the next Y_t.
    """
    # One place knows which parameters make sense.
    AcceleratedGradient(
        "gradient", initial_step=learning_rate, growth=growth, growth_threshold=growth_threshold
    )

    def init(params: Any) -> State:
        for m, x in _leaves(manifold, params):
            m.check_point(x, "a parameter")  # also factorises B, which cannot be done in a trace
        real = _finfo(jax.tree_util.tree_leaves(params)[0].dtype).dtype
        return State(params, jnp.asarray(learning_rate, real), jnp.asarray(0))

    def update(
        grads: Any,
        state: State,
        params: Any,
        *,
        value: Array | None = None,
        value_fn: Callable[[Any], Array] | None = None,
        **_: Any,
    ) -> tuple[Any, State]:
        leaves, structure = jax.tree_util.tree_flatten(params)
        factors = [m for m, _ in _leaves(manifold, params)]
        G = [
            m.project(y, jnp.conj(g))
            for m, y, g in zip(factors, leaves, jax.tree_util.tree_leaves(grads), strict=True)
        ]
        rays = [_ray(m, y, g) for m, y, g in zip(factors, leaves, G, strict=True)]
        slope = sum(_pair(m, y, g, g) for m, y, g in zip(factors, leaves, G, strict=True))

        def at(gamma: Array) -> Any:
            return jax.tree_util.tree_unflatten(structure, [ray(-gamma) for ray in rays])

        gamma = state.gamma
        if value_fn is not None:
            f_Y = value_fn(params) if value is None else value
            gamma = _search(value_fn, at, f_Y, slope, gamma, growth, growth_threshold)
        accepted = jax.tree_util.tree_leaves(state.X)
        new = jax.tree_util.tree_leaves(at(gamma))

        # ⟨∇f(Y_t), W_t⟩ < −γ‖∇f(Y_t)‖² with W_t = lift(Y_t, X_t)
        away = sum(
            _pair(m, y, g, m.lift(y, x))
            for m, y, g, x in zip(factors, leaves, G, accepted, strict=True)
        )
        restart = (state.k > 0) & (away < -gamma * slope)
        tau = (1.0 + state.k / (state.k + 3.0)).astype(gamma.dtype)
        ahead = [m.extrapolate(x, z, tau) for m, x, z in zip(factors, accepted, new, strict=True)]
        Y, X = (
            [jnp.where(restart, x, z) for x, z in zip(accepted, points, strict=True)]
            for points in (ahead, new)
        )
        steps = [y - p for y, p in zip(Y, leaves, strict=True)]
        unflatten = jax.tree_util.tree_unflatten
        k = jnp.where(restart, 0, state.k + 1)
        return unflatten(structure, steps), State(unflatten(structure, X), gamma, k)

    return Transformation(init, update)


def _leaves(manifold: Any, params: Any) -> list[tuple[Any, Array]]:
    arrays = jax.tree_util.tree_leaves(params)
    if manifold is None or hasattr(manifold, "check_point"):
        return [(manifold or Stiefel(), x) for x in arrays]
    return list(zip(jax.tree_util.tree_leaves(manifold), arrays, strict=True))


def _ray(m: Any, X: Array, W: Array) -> Callable[[Array], Array]:
    return (lambda t: X + t * W) if isinstance(m, Euclidean) else m.ray(X, W)


def _pair(m: Any, X: Array, V: Array, W: Array) -> Array:
    """g*(V, W) as an array: the manifold's own `inner` is a Python number."""
    if isinstance(m, Euclidean):
        return _pair(m.kernels_at(X), V, W)
    if isinstance(m, Sphere) and not (X.ndim >= 2 and X.shape[-1] == 1):
        X, V, W = X[..., None], V[..., None], W[..., None]
    return _inner(m.kernels_at(X), X, V, W)


def _search(
    value_fn: Callable[[Any], Array],
    at: Callable[[Array], Any],
    f_Y: Array,
    slope: Array,
    gamma: Array,
    growth: float,
    growth_threshold: float,
) -> Array:
    """The two loops of the paper's search, bounded; see `stiefel.solvers.line_search`."""
    noise = ROUNDING * _finfo(gamma.dtype).eps * jnp.abs(f_Y)

    def loop(gamma: Array, go_on: Callable[[Array, Array], Array], factor: float) -> Array:
        def condition(s: tuple[Array, Array, Array]) -> Array:
            return go_on(s[1], s[0]) & (s[2] < MOST_TRIALS)

        def body(s: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            gamma = s[0] * factor
            return gamma, value_fn(at(gamma)).astype(f_Y.dtype), s[2] + 1

        start = gamma, value_fn(at(gamma)).astype(f_Y.dtype), jnp.asarray(0)
        return jax.lax.while_loop(condition, body, start)[0]

    gamma = loop(gamma, lambda f, g: f < f_Y - growth_threshold * g * slope - noise, growth)
    # A value that is not a number is not small enough either.
    return loop(gamma, lambda f, g: ~(f <= f_Y - 0.5 * g * slope + noise), 1.0 / growth)
