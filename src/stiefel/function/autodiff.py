"""Gradients by PyTorch and JAX, in this library's convention f(X+H) = f(X) + Re⟨G, H⟩ + o(H).

PyTorch's gradient of a real function of complex entries is ∂f/∂Re + i ∂f/∂Im, which is G.
JAX's `grad` is the conjugate of that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stiefel.backends.arrays import describe

from .trees import Tree

Differentiated = tuple[Callable[[Any], Any], Callable[[Any], tuple[Any, Any, Any]]]


def differentiate(fun: Callable[[Any], Any], library: str, tree: Tree) -> Differentiated:
    """(value, pair) of a function that returns a scalar, or (scalar, aux)."""
    return _torch(fun, tree) if library == "torch" else _jax(fun)


def differentiate_twice(
    fun: Callable[[Any], Any], library: str, tree: Tree
) -> Callable[[Any, Any], Any]:
    """(X, V) ↦ ∇²f(X)[V]: the gradient of Re⟨∇f(X), V⟩, or forward over reverse in JAX."""
    return _torch_twice(fun, tree) if library == "torch" else _jax_twice(fun)


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

    def checked(X: Any) -> Any:
        f = fun(X)
        _check_scalar(f)
        return f

    def both(X: Any) -> tuple[Any, Any]:
        f, gradient = jax.value_and_grad(checked)(X)
        return f, _conjugate(gradient)

    compiled = _compiled_if(fun, both)

    def pair(X: Any) -> tuple[Any, Any, Any]:
        return *compiled(X), None

    return checked, pair


def _compiled_if(fun: Callable[..., Any], derivative: Callable[..., Any]) -> Callable[..., Any]:
    """``derivative`` compiled if the user compiled ``fun``.

    Differentiating compiled code anew at every call would cost milliseconds.  A plain function is
    left plain: it may count or print.
    """
    import jax

    return jax.jit(derivative) if isinstance(fun, jax.stages.Wrapped) else derivative


def _conjugate(gradient: Any) -> Any:
    """JAX's gradient in this library's convention; nothing to do for real entries."""
    import jax
    import jax.numpy as jnp

    return jax.tree_util.tree_map(lambda g: g.conj() if jnp.iscomplexobj(g) else g, gradient)


def _torch_twice(fun: Callable[[Any], Any], tree: Tree) -> Callable[[Any, Any], Any]:
    import torch

    def leaves_of(X: Any) -> tuple[Any, ...]:
        return (X,) if tree.is_leaf else tree.flatten(X)

    def product(X: Any, V: Any) -> Any:
        tracked = tuple(leaf.detach().requires_grad_(True) for leaf in leaves_of(X))
        with torch.enable_grad():
            f = fun(tracked[0] if tree.is_leaf else tree.unflatten(tracked))
            gradients = torch.autograd.grad(f, tracked, create_graph=True, allow_unused=True)
            parts = [
                torch.sum((g.conj() * v).real)
                for g, v in zip(gradients, leaves_of(V), strict=True)
                if g is not None and g.requires_grad  # a constant gradient has none of its own
            ]
        zeros = tuple(map(torch.zeros_like, tracked))
        if not parts:
            return zeros[0] if tree.is_leaf else tree.unflatten(zeros)
        found = torch.autograd.grad(torch.stack(parts).sum(), tracked, allow_unused=True)
        products = tuple(z if h is None else h for h, z in zip(found, zeros, strict=True))
        return products[0] if tree.is_leaf else tree.unflatten(products)

    return product


def _jax_twice(fun: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    import jax

    def gradient(X: Any) -> Any:
        return _conjugate(jax.grad(fun)(X))

    return _compiled_if(fun, lambda X, V: jax.jvp(gradient, (X,), (V,))[1])
