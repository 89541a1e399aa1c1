"""Gradients by PyTorch and JAX, in this library's convention f(X+H) = f(X) + Re⟨G, H⟩ + o(H).

PyTorch's gradient of a real function of complex entries is ∂f/∂Re + i ∂f/∂Im, which is G.
JAX's `grad` is the conjugate of that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .arrays import describe
from .trees import Tree

Differentiated = tuple[Callable[[Any], Any], Callable[[Any], tuple[Any, Any, Any]]]


def differentiate(fun: Callable[[Any], Any], library: str, tree: Tree) -> Differentiated:
    """(value, pair) of a function that returns a scalar, or (scalar, aux)."""
    return _torch(fun, tree) if library == "torch" else _jax(fun)


def _check_scalar(value: Any) -> None:
    if isinstance(value, tuple):
        raise TypeError(
            f"fun(X) returned a tuple of {len(value)}; with autodiff it returns a scalar: "
            "pass jac=True if it returns (value, gradient)"
        )
    if tuple(getattr(value, "shape", ())) != ():
        raise TypeError(f"fun(X) returned {describe(value)}; expected a real scalar")


def _torch(fun: Callable[[Any], Any], tree: Tree) -> Differentiated:
    import torch

    def value(X: Any) -> Any:
        with torch.no_grad():
            f = fun(X)
        _check_scalar(f)
        return f

    def pair(X: Any) -> tuple[Any, Any, Any]:
        leaves = (X,) if tree.is_leaf else tree.flatten(X)
        tracked = tuple(leaf.detach().requires_grad_(True) for leaf in leaves)
        with torch.enable_grad():
            f = fun(tracked[0] if tree.is_leaf else tree.unflatten(tracked))
        _check_scalar(f)
        if not torch.is_tensor(f) or not f.requires_grad:
            raise TypeError(
                "the value of fun does not depend on X through PyTorch operations; "
                "pass jac= if it is computed another way"
            )
        gradients = torch.autograd.grad(f, tracked, allow_unused=True)
        parts = tuple(
            torch.zeros_like(leaf) if g is None else g
            for g, leaf in zip(gradients, leaves, strict=True)
        )
        return f.detach(), parts[0] if tree.is_leaf else tree.unflatten(parts), None

    return value, pair


def _jax(fun: Callable[[Any], Any]) -> Differentiated:
    import jax
    import jax.numpy as jnp

    def checked(X: Any) -> Any:
        f = fun(X)
        _check_scalar(f)
        return f

    both = jax.value_and_grad(checked)

    def pair(X: Any) -> tuple[Any, Any, Any]:
        f, gradient = both(X)
        return f, jax.tree_util.tree_map(jnp.conj, gradient), None

    return checked, pair
