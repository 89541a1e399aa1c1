"""Gradients by PyTorch and JAX, in this library's convention f(X+H) = f(X) + Re⟨G, H⟩ + o(H).

PyTorch's gradient of a real function of complex entries is ∂f/∂Re + i ∂f/∂Im, which is G.
JAX's `grad` is the conjugate of that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, ref

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
    if library == "torch":
        return _torch_twice(fun, tree)
    return _compiled_with(fun, _hessian_product)


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
    both = _compiled_with(fun, _value_and_gradient)

    def pair(X: Any) -> tuple[Any, Any, Any]:
        return *both(X), None

    return partial(_scalar, fun), pair


def _scalar(fun: Callable[[Any], Any], X: Any) -> Any:
    f = fun(X)
    _check_scalar(f)
    return f


def _value_and_gradient(fun: Callable[[Any], Any], X: Any) -> tuple[Any, Any]:
    import jax

    f, gradient = jax.value_and_grad(partial(_scalar, fun))(X)
    return f, _conjugate(gradient)


def _hessian_product(fun: Callable[[Any], Any], X: Any, V: Any) -> Any:
    import jax

    return jax.jvp(lambda X: _conjugate(jax.grad(fun)(X)), (X,), (V,))[1]


Derivative = Callable[..., Any]
_compiled: WeakKeyDictionary[Any, dict[Derivative, Any]] = WeakKeyDictionary()


def _compiled_with(fun: Callable[..., Any], derivative: Derivative) -> Callable[..., Any]:
    """``derivative`` of ``fun``, compiled if the user compiled ``fun``: once for all runs.

    Differentiating compiled code anew at every call would cost milliseconds, compiling it anew in
    every run a tenth of a second.  A plain function is left plain: it may count or print.  What was
    compiled lives as long as ``fun``, which it must not keep alive.
    """
    import jax

    if not isinstance(fun, jax.stages.Wrapped):
        return partial(derivative, fun)
    known = _compiled.setdefault(fun, {})
    if derivative not in known:
        alive = ref(fun)
        known[derivative] = jax.jit(lambda *points: derivative(alive(), *points))
    return known[derivative]


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
