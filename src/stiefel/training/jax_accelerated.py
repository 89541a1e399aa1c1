"""Algorithm 2 as a pair of pure functions that JAX can compile; public as `stiefel.jax`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import optax

from stiefel.geometry import Euclidean, Sphere, Stiefel
from stiefel.geometry.stiefel import _inner
from stiefel.geometry.stiefel import _pair as _dot
from stiefel.solvers.accelerated import AcceleratedGradient
from stiefel.solvers.noise import ROUNDING
from stiefel.types import Array, Manifold

from .jax_trees import Choice, leaves_with_paths, path_name

_finfo: Any = jnp.finfo

MOST_TRIALS = 40


Transformation: TypeAlias = optax.GradientTransformationExtraArgs


class State(NamedTuple):
    """The last accepted point, the step and the number of steps since the last restart."""

    X: Any
    gamma: Array
    k: Array


def accelerated(
    learning_rate: float = 0.1,
    *,
    manifold: Manifold | None = None,
    growth: float = 1.7,  # λ_d
    growth_threshold: float = 0.9,  # c_L
) -> Transformation:
    """Accelerated gradient descent with gradient restarts (Algorithm 2), for optax loops.

    This is a method for a loss that does not change from step to step.  ``update(grads, state,
    params)`` takes the step ``learning_rate`` and keeps it; with ``value_fn=`` (and ``value=``,
    if it is known) the step comes from the paper's two-sided line search.  ``grads`` is what
    `jax.grad` gives.  The updates are to be added to the parameters, which then are the next Y_t.
    Derivatives pass through an update; the step that a line search has found counts as a constant
    in them.

    Parameters
    ----------
    learning_rate
        The step, or with ``value_fn=`` the first step that is tried.
    manifold
        One manifold for every parameter, a tree of manifolds, or a function
        ``(path, parameter) -> manifold``.  By default every parameter is on `stiefel.Stiefel()`;
        a parameter for which a tree or function gives None is free.
    growth, growth_threshold
        Constants of the line search.

    Returns
    -------
    optax.GradientTransformationExtraArgs
        The pair ``init``, ``update``.

    Raises
    ------
    ValueError
        If a constant makes no sense, or in ``init`` if a parameter is not on its manifold.  Where
        ``init`` is traced by JAX, only shapes and types are checked.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, optax, stiefel, stiefel.jax
    >>> loss = lambda X: jnp.sum(jnp.arange(1.0, 7.0)[:, None] * X**2)
    >>> method = stiefel.jax.accelerated(0.1)
    >>> X = stiefel.random_point(6, 2, seed=0, like=jnp.zeros(1, jnp.float32))
    >>> state = method.init(X)
    >>> @jax.jit
    ... def step(X, state):
    ...     updates, state = method.update(jax.grad(loss)(X), state, X, value_fn=loss)
    ...     return optax.apply_updates(X, updates), state
    >>> for _ in range(60):
    ...     X, state = step(X, state)
    >>> round(float(loss(X)), 3)
    3.0
    """
    # One place knows which parameters make sense.
    AcceleratedGradient(
        "gradient", initial_step=learning_rate, growth=growth, growth_threshold=growth_threshold
    )

    choice = Choice(Stiefel() if manifold is None else manifold, Euclidean())

    def init(params: Any) -> State:
        choice.check_paths(params)
        listed = leaves_with_paths(params)
        for m, (path, x) in zip(_factors(choice, params), listed, strict=True):
            _check(m, x, f"the parameter {path_name(path)!r}" if path else "the parameter")
        real = jnp.result_type(jnp.bfloat16, *(_finfo(x.dtype).dtype for _, x in listed))
        return State(params, jnp.asarray(learning_rate, real), jnp.asarray(0))

    def update(
        grads: Any,
        state: State,
        params: Any = None,
        *,
        value: Array | None = None,
        value_fn: Callable[[Any], Array] | None = None,
        **_: Any,
    ) -> tuple[Any, State]:
        if params is None:
            raise ValueError("accelerated needs the parameters: call update(grads, state, params)")
        leaves, structure = jax.tree_util.tree_flatten(params)
        factors = _factors(choice, params)
        G = [
            m.project(y, jnp.conj(g))
            for m, y, g in zip(factors, leaves, jax.tree_util.tree_leaves(grads), strict=True)
        ]
        slope = sum(_inner_product(m, y, g, g) for m, y, g in zip(factors, leaves, G, strict=True))
        gamma = state.gamma
        if value_fn is not None:
            f_Y = value_fn(params) if value is None else jnp.asarray(value)
            # JAX cannot differentiate a search in reverse: the step it finds is a constant.
            held = jax.lax.stop_gradient((leaves, G, f_Y, slope, gamma))
            at = _points(factors, *held[:2], structure)
            gamma = _search(value_fn, at, *held[2:], growth, growth_threshold)
        accepted = jax.tree_util.tree_leaves(state.X)
        new = jax.tree_util.tree_leaves(_points(factors, leaves, G, structure)(gamma))

        # ⟨∇f(Y_t), W_t⟩ < −γ‖∇f(Y_t)‖² with W_t = lift(Y_t, X_t)
        away = sum(
            _inner_product(m, y, g, m.lift(y, x))
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


def _factors(choice: Choice, params: Any) -> list[Any]:
    """The manifold of each leaf."""
    chosen = [choice(path, x) for path, x in leaves_with_paths(params)]
    return [Euclidean() if m is None else m for m in chosen]


def _check(m: Any, x: Array, name: str) -> None:
    """A traced parameter has no entries yet: a random point of its shape and type stands in."""
    if x.dtype in (jnp.bfloat16, jnp.float16):
        raise TypeError(
            f"{name} is {x.dtype}; accelerated solves small linear systems, which JAX has in "
            "float32 and float64 only: use stiefel.jax.sgd, adam or muon"
        )
    with jax.ensure_compile_time_eval():  # B is factorised here, outside of any trace
        if isinstance(x, jax.core.Tracer):
            x = m.random(*x.shape, seed=0, like=jnp.zeros(1, x.dtype))
        m.check_point(x, name)


def _points(
    factors: list[Any], leaves: list[Array], G: list[Array], structure: Any
) -> Callable[[Array], Any]:
    """γ ↦ the points R(Y, −γφ(G)), as a tree."""
    rays = [_ray(m, y, g) for m, y, g in zip(factors, leaves, G, strict=True)]
    return lambda gamma: jax.tree_util.tree_unflatten(structure, [ray(-gamma) for ray in rays])


def _ray(m: Any, X: Array, W: Array) -> Callable[[Array], Array]:
    return (lambda t: X + t * W) if isinstance(m, Euclidean) else m.ray(X, W)


def _inner_product(m: Any, X: Array, V: Array, W: Array) -> Array:
    """g*(V, W) as an array: the manifold's own `inner` is a Python number."""
    if isinstance(m, Euclidean):
        return _dot(m.kernels_at(X), V, W)
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
