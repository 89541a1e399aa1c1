"""The user's function of a batch, in whatever form, as values and gradients of leaves.

A function that is not told which problems it sees is shown all of them at every call: those that
have ended stand at their last points.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from stiefel.types import Array, Leaves

from .border import Border
from .shared import describe, is_array, library, own_copy, validated_gradient


class BatchFunction:
    """Values (B,) and Euclidean gradients at the points of the problems in ``index``."""

    def __init__(self, fun: Any, jac: Any, border: Border, x: Leaves) -> None:
        if not callable(fun):
            raise TypeError(f"fun is {describe(fun)}; expected a function of X, or of (X, index)")
        if jac not in (None, True) and not callable(jac):
            raise TypeError(f"jac is {jac!r}; expected a function of X, True or None")
        self.calls = 0
        self._fun, self._jac, self._border = fun, jac, border
        self._told = takes_index(fun)
        self._automatic = jac is None and library(x[0]) == "torch"
        self._size = x[0].shape[0]
        self._all = tuple(own_copy(border.k.shown(leaf)) for leaf in x)

    def __call__(self, X: Leaves, index: Array) -> tuple[Array, Leaves]:
        self.calls += 1
        if self._told:
            return self._called(X, (index,))
        if index.shape[0] == self._size:
            return self._called(X, ())
        for whole, leaf in zip(self._all, X, strict=True):
            whole[index] = leaf
        f, E = self._called(tuple(map(own_copy, self._all)), ())
        return f[index], tuple(e[index] for e in E)

    def dropped(self, index: Array, X: Leaves) -> None:
        """These problems have ended, at X."""
        for whole, leaf in zip(self._all, X, strict=True):
            whole[index] = leaf

    def _called(self, X: Leaves, told: tuple[Array, ...]) -> tuple[Array, Leaves]:
        if self._automatic:
            return self._differentiated(X, told)
        point = self._border.leave(X)
        if callable(self._jac):
            f, G = self._fun(point, *told), self._jac(point, *told)
        else:
            f, G = self._pair(self._fun(point, *told))
        return self._values(f, X), self._gradients(G, point)

    def _pair(self, returned: Any) -> tuple[Any, Any]:
        if isinstance(returned, tuple) and len(returned) == 2:
            return returned
        what = describe(returned)
        what += f" of {len(returned)}" if isinstance(returned, (tuple, list)) else ""
        raise TypeError(
            f"fun(X) returned {what}; expected the tuple (values, gradients): return the "
            "gradients too, or pass them as jac="
        )

    def _values(self, f: Any, X: Leaves) -> Array:
        size = X[0].shape[0]
        shape = tuple(getattr(f, "shape", ()))
        if not is_array(f) or library(f) != library(X[0]) or shape != (size,):
            raise TypeError(
                f"the values of fun are {describe(f)}; expected an array of shape ({size},), one "
                f"value a problem ({library(X[0])})"
            )
        if self._border.k.is_complex(f) or "bool" in str(f.dtype):
            raise TypeError(f"the values of fun are {describe(f)}; expected real numbers")
        return f

    def _gradients(self, G: Any, point: Any) -> Leaves:
        tree = self._border.tree
        if tree.is_leaf:
            return self._border.enter(validated_gradient(G, point, "the gradient"))
        parts = zip(tree.flatten(G, "the gradient"), tree.flatten(point), tree.paths, strict=True)
        checked = tuple(validated_gradient(g, p, f"the gradient at {path}") for g, p, path in parts)
        return self._border.enter(tree.unflatten(checked))

    def _differentiated(self, X: Leaves, told: tuple[Array, ...]) -> tuple[Array, Leaves]:
        """By PyTorch: problems are independent, so that the sum has the gradients of all."""
        import torch

        tree = self._border.tree
        given = self._border.leave(X)
        leaves = tuple(
            leaf.detach().requires_grad_(True)
            for leaf in ((given,) if tree.is_leaf else tree.flatten(given))
        )
        with torch.enable_grad():
            f = self._fun(leaves[0] if tree.is_leaf else tree.unflatten(leaves), *told)
            if isinstance(f, tuple):
                raise TypeError(
                    f"fun(X) returned a tuple of {len(f)}; with autodiff it returns values of "
                    "shape (B,): pass jac=True if it returns (values, gradients)"
                )
            f = self._values(f, X)
            found = torch.autograd.grad(f.sum(), leaves, allow_unused=True)
        parts = tuple(
            torch.zeros_like(leaf) if g is None else g
            for g, leaf in zip(found, leaves, strict=True)
        )
        return f.detach(), self._border.enter(parts[0] if tree.is_leaf else tree.unflatten(parts))


def takes_index(fun: Callable[..., Any]) -> bool:
    """Whether fun wants to know which problems it sees: a second argument without default."""
    try:
        parameters = inspect.signature(fun).parameters.values()
    except (TypeError, ValueError):
        return False
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = [p for p in places if p.default is p.empty]
    return len(required) >= 2 or any(p.name == "index" for p in places[1:])
