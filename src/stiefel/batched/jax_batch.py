"""`minimize_many` for JAX arrays: the whole batch in one compiled loop."""

from __future__ import annotations

import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stiefel.types import Array, Leaves, Manifolds

from .border import Border, limits_of
from .function import takes_index
from .jax_solve import run_loop
from .result import ManyResult, summary
from .shared import check_place, describe


def minimize_batch(
    fun: Any, x0: Any, border: Border, manifold: Manifolds | None, jac: Any, limits: dict[str, Any]
) -> ManyResult:
    """All problems until the last one has ended; ``fun`` is traced."""
    started, tree = time.perf_counter(), border.tree
    check_place(tree, x0, manifold)
    leaves = (x0,) if tree.is_leaf else tree.flatten(x0)
    size = leaves[0].shape[0]
    eps = max(float(np.finfo(leaf.dtype).eps) for leaf in leaves)
    read = limits_of(border, eps, size, like=jnp.zeros(size), **limits)
    told = (jnp.arange(size),) if takes_index(fun) else ()

    def both(X: Leaves) -> tuple[Array, Leaves]:
        point = border.leave(X)
        if jac is None:
            f, G = _differentiated(fun, told, point)
        else:
            f, G = (fun(point, *told), jac(point, *told)) if callable(jac) else fun(point, *told)
        if getattr(f, "shape", None) != (size,):
            raise TypeError(
                f"the values of fun are {describe(f)}; expected an array of shape ({size},), one "
                "value a problem"
            )
        return f, border.enter(G, "the gradient")

    found = jax.jit(lambda x: run_loop(border, read, both, x))(tuple(leaves))
    x = found.x[0] if tree.is_leaf else tree.unflatten(found.x)
    defects = [leaf.feasibility(v) for leaf, v in zip(border.leaves, border.enter(x), strict=True)]
    known = [d for d in defects if d is not None]
    fields = found._asdict() | {"x": x, "restarts": 0 * found.nit}
    return ManyResult(
        **fields,
        feasibility=jnp.max(jnp.stack(known), axis=0) if known else jnp.zeros(size),
        calls=int(found.nfev.max()),
        seconds=time.perf_counter() - started,
        message=summary(np.asarray(found.status)),
    )


def _differentiated(fun: Any, told: tuple[Array, ...], point: Any) -> tuple[Array, Any]:
    """Values and gradients: problems are independent, so that the sum has the gradients of all."""

    def total(X: Any) -> tuple[Array, Array]:
        f = fun(X, *told)
        if isinstance(f, tuple):
            raise TypeError(
                f"fun(X) returned a tuple of {len(f)}; with autodiff it returns values of shape "
                "(B,): pass jac=True if it returns (values, gradients)"
            )
        return jnp.sum(f), f

    (_, f), G = jax.value_and_grad(total, has_aux=True)(point)
    return f, jax.tree_util.tree_map(jnp.conj, G)
