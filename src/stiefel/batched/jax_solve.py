"""A whole solve inside one `lax.while_loop`: `stiefel.jax.minimize`.

Everything that the function closes over becomes an argument of the solve, so that `jit`, `vmap`
and `grad` may trace it.  The solve is written for a batch; `vmap` makes the batch larger in place
of mapping over the loop, so that nothing is selected, and many problems share a few slots.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from stiefel.types import Array, Leaves, Manifolds

from .border import Border, border_of, limits_of
from .jax_implicit import attach
from .jax_pool import run_pool, use_pool
from .jax_quadratic import JaxLBFGS, recogniser
from .shared import METHODS, Status, Tree, check_place, describe
from .solver import ManyLBFGS
from .state import CODES, Limits, State


class Solution(NamedTuple):
    """What `stiefel.jax.minimize` returns; a pytree of arrays, each with the axes of `vmap`.

    Attributes
    ----------
    x : the returned point, in the structure of x0.  Its derivatives are those of the solution.
    fun : the value at ``x``.
    success : whether the tolerance is met at ``x``.
    status : why the run ended, an integer; ``stiefel.Status(int(status))`` names it.
    nit, nfev : iterations and evaluations.
    gradient_norm : ‖∇f‖_g* at ``x``.
    expected_decrease : ½⟨∇f, H∇f⟩: by how much the model of f expects it to fall yet.
    """

    x: Any
    fun: Array
    success: Array
    status: Array
    nit: Array
    nfev: Array
    gradient_norm: Array
    expected_decrease: Array


def minimize(
    fun: Callable[..., Any],
    x0: Any,
    *,
    args: tuple[Any, ...] = (),
    manifold: Manifolds | None = None,
    rtol: float | None = None,
    gtol: float = 0.0,
    ftol: float = 0.0,
    maxiter: int = 100_000,
    maxfun: int | None = None,
) -> Solution:
    """Minimise a function of orthonormal matrices inside compiled code.

    The method of ``stiefel.minimize(method="auto")`` without its row model, as one loop that JAX
    compiles: it may be called under ``jax.jit``, ``jax.vmap``, ``jax.grad`` and ``jax.jvp``.

    Parameters
    ----------
    fun
        ``fun(x, *args)``, a real scalar computed by JAX.
    x0
        The start: an array (n, k), or a nested dict, list or tuple of arrays.  The solution does
        not depend on it smoothly, and derivatives by x0 are zero.
    args
        Further arguments of ``fun``.  Derivatives of the solution are taken by them, and by all
        that ``fun`` closes over.
    manifold
        `Stiefel()` by default; an instance, or a structure of instances like x0.
    rtol, gtol, ftol, maxiter, maxfun
        As for `stiefel.minimize`; Python numbers.

    Returns
    -------
    Solution
        A pytree of arrays.

    Raises
    ------
    TypeError, ValueError
        Where an argument is not what is described here, as far as can be told while tracing.

    Notes
    -----
    The derivative of ``x`` is that of the minimiser, by the implicit function theorem: a linear
    system with the projected Hessian, solved by conjugate gradients.  At a point that is no strict
    minimum, up to directions along which f is constant for every argument, it is NaN, with a
    warning.  Derivatives are as accurate as the minimiser: choose rtol accordingly.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, stiefel.jax
    >>> def smallest(d):
    ...     return stiefel.jax.minimize(lambda x: x[:, 0] @ (d * x[:, 0]), x0, rtol=1e-5).fun
    >>> x0 = jnp.array([[0.6], [0.8], [0.0]])
    >>> print(jax.jit(jax.grad(smallest))(jnp.array([1.0, 2.0, 3.0])).round(3))
    [1. 0. 0.]
    """
    tree = Tree(x0)
    leaves = tuple(map(jnp.asarray, tree.flatten(x0)))
    _check_point(tree, leaves, manifold)

    def flat(*parts: Array) -> Array:
        f = fun(parts[0] if tree.is_leaf else tree.unflatten(parts), *args)
        shape, dtype = jnp.shape(f), jnp.result_type(f)
        if isinstance(f, tuple) or shape != () or not jnp.issubdtype(dtype, jnp.floating):
            given = f"a tuple of {len(f)}" if isinstance(f, tuple) else describe(f)
            raise TypeError(f"fun(x) returned {given}; expected a real scalar")
        return f

    closed = jax.make_jaxpr(flat)(*leaves)
    value = _Value(closed.jaxpr)
    with jax.ensure_compile_time_eval():  # the matrix of a constraint is checked and factorised
        border = border_of(_with_axis(tree, leaves), manifold)
    limits = _limits(border, leaves, rtol, gtol, ftol, maxiter, maxfun)
    constants = tuple(map(jnp.asarray, closed.consts))
    inside = jax.lax.stop_gradient((leaves, constants))
    solve = _solver(value, border, limits, (False,) * len(constants))
    found = solve(tuple(x[None] for x in inside[0]), inside[1])
    found = jax.tree_util.tree_map(lambda a: a[0], found)
    x = attach(value, border, found.x, constants, found.success)
    parts = x[0] if tree.is_leaf else tree.unflatten(x)
    return found._replace(x=parts, fun=value(constants, x))


class _Value:
    """The traced function of (constants, leaves)."""

    def __init__(self, jaxpr: Any) -> None:
        self._jaxpr = jaxpr

    def __call__(self, constants: tuple[Array, ...], leaves: Leaves) -> Array:
        return jax.core.eval_jaxpr(self._jaxpr, constants, *leaves)[0]

    def gradient(self, constants: tuple[Array, ...], leaves: Leaves) -> tuple[Array, Leaves]:
        """f and its Euclidean gradient in this library's convention."""
        argument = partial(self.__call__, constants)
        f, G = jax.value_and_grad(argument)(leaves)
        return f, tuple(jnp.conj(g) if jnp.iscomplexobj(g) else g for g in G)


def _check_point(tree: Tree, leaves: Leaves, manifold: Manifolds | None) -> None:
    """As `stiefel.minimize` does, where the start is known."""
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        return
    with jax.ensure_compile_time_eval():
        check_place(tree, leaves[0] if tree.is_leaf else tree.unflatten(leaves), manifold)


def _with_axis(tree: Tree, leaves: Leaves) -> Any:
    """A batch of one problem, of which only the shape matters."""
    parts = tuple(jnp.empty((1, *leaf.shape), leaf.dtype) for leaf in leaves)
    return parts[0] if tree.is_leaf else tree.unflatten(parts)


def _limits(
    border: Border, leaves: Leaves, rtol: Any, gtol: Any, ftol: Any, maxiter: Any, maxfun: Any
) -> Limits:
    eps = max(float(np.finfo(leaf.dtype).eps) for leaf in leaves)
    return limits_of(border, eps, -1, rtol, gtol, ftol, maxiter, maxfun, jnp.zeros(1))


def _solver(value: _Value, border: Border, limits: Limits, mapped: tuple[bool, ...]) -> Any:
    """(leaves (B, …), constants) ↦ Solution of arrays (B,); ``mapped`` constants have the axis."""
    axes = tuple(0 if m else None for m in mapped)

    @custom_vmap
    def solve(x: Leaves, constants: tuple[Array, ...]) -> Solution:
        gradient = jax.vmap(value.gradient, in_axes=(axes, 0))

        def evaluate(constants: tuple[Array, ...], X: Leaves) -> tuple[Array, Leaves]:
            f, G = gradient(constants, _shaped(X, border.shapes))
            return f, _shaped(G, border.inner)

        if not use_pool(x[0].shape[0]):
            return run_loop(border, limits, partial(evaluate, constants), x)
        x = _shaped(x, border.inner)
        solver = _method(border, limits, x)
        return run_pool(solver, evaluate, x, constants, mapped, partial(_solution, border))

    @solve.def_vmap
    def larger(size: int, batched: Any, x: Leaves, constants: tuple[Array, ...]) -> Any:
        """A batch of batches is a batch."""
        rows = (x[0].shape[1] if batched[0][0] else x[0].shape[0]) * size

        def merged(a: Array, has_axis: bool) -> Array:
            a = a if has_axis else jnp.broadcast_to(a, (size, *a.shape))
            return a.reshape(-1, *a.shape[2:])

        x = tuple(map(merged, x, batched[0]))
        new = tuple(m or b for m, b in zip(mapped, batched[1], strict=True))
        parts = []
        for c, m, b in zip(constants, mapped, batched[1], strict=True):
            if m:
                c = merged(c, b)
            elif b:
                c = jnp.repeat(c, rows // size, axis=0)
            parts.append(c)
        found = _solver(value, border, limits, new)(x, tuple(parts))
        split = jax.tree_util.tree_map(lambda a: a.reshape(size, -1, *a.shape[1:]), found)
        return split, jax.tree_util.tree_map(lambda _: True, split)

    return solve


def run_loop(border: Border, limits: Limits, evaluate: Any, x: Leaves) -> Solution:
    """The loop; arrays have the axis of problems."""
    x = _shaped(x, border.inner)
    solver = _method(border, limits, x)

    def going(state: State) -> Array:
        return jnp.any(state.status < 0)

    step = partial(solver.step, evaluate)
    return _solution(border, jax.lax.while_loop(going, step, solver.init(x)))


def _method(border: Border, limits: Limits, x: Leaves) -> ManyLBFGS:
    auto = METHODS["auto"]
    return JaxLBFGS(
        border.leaves, limits, None, auto.memory, auto.metric, auto.initial_length, auto.caution,
        recogniser(border.leaves, limits, x),
    )  # fmt: skip


def _solution(border: Border, state: State) -> Solution:
    return Solution(
        x=_shaped(state.best.x, border.shapes),
        fun=state.best.f / state.scale,
        success=state.status == CODES[Status.CONVERGED],
        status=state.status,
        nit=state.books.nit,
        nfev=state.books.nfev,
        gradient_norm=state.best.norm / state.scale,
        expected_decrease=state.best.decrease / state.scale,
    )


def _shaped(leaves: Leaves, shapes: tuple[tuple[int, ...], ...]) -> Leaves:
    return tuple(a.reshape(a.shape[0], *s) for a, s in zip(leaves, shapes, strict=True))


__all__ = ["Solution", "minimize", "run_loop"]
