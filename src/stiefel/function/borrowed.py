"""Gradients by JAX or PyTorch for points that are NumPy arrays: ``jac="jax"``, ``jac="torch"``.

The user's function is written with that library; points go there on the way in, and values,
gradients and Hessian products come back as NumPy arrays of the dtype of the point.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from stiefel.backends.arrays import library, to_numpy
from stiefel.types import Array

from .autodiff import Differentiated, differentiate, differentiate_twice
from .trees import Tree

LIBRARIES = ("jax", "torch")


class Borrowed:
    """The library by which a function of NumPy points is differentiated."""

    def __init__(self, name: str, tree: Tree, leaves: tuple[Array, ...]) -> None:
        found = {library(leaf) for leaf in leaves}
        if found != {"numpy"}:
            raise TypeError(
                f'jac="{name}" is for NumPy points, and X0 is of {", ".join(sorted(found))}: leave '
                "jac out if fun is written with that library, and gradients come from autodiff"
            )
        self.name, self._tree = name, tree
        self._double = any(leaf.dtype in (np.float64, np.complex128) for leaf in leaves)
        try:
            self._library = importlib.import_module(name)
        except ModuleNotFoundError as error:
            package = {"jax": "JAX", "torch": "PyTorch"}[name]
            raise ImportError(
                f'jac="{name}" needs {package}, which is not installed: pip install {name}'
            ) from error

    def functions(self, fun: Callable[[Any], Any]) -> Differentiated:
        """(value, pair) of NumPy points."""
        value, pair = differentiate(fun, self.name, self._tree)

        def both(X: Any) -> tuple[Any, Any, Any]:
            with self._precision():
                f, G, aux = pair(self._there(X))
            return float(f), self._back(G), aux

        def only(X: Any) -> float:
            with self._precision():
                return float(value(self._there(X)))

        return only, both

    def hessian_product(self, fun: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
        product = differentiate_twice(fun, self.name, self._tree)

        def apply(X: Any, V: Any) -> Any:
            with self._precision():
                return self._back(product(self._there(X), self._there(V)))

        return apply

    def _there(self, X: Any) -> Any:
        asarray = self._library.numpy.asarray if self.name == "jax" else self._library.tensor
        return self._map(asarray, X)

    def _back(self, G: Any) -> Any:
        return self._map(lambda g: np.array(to_numpy(g)), G)

    def _map(self, function: Callable[[Any], Any], X: Any) -> Any:
        parts = tuple(map(function, self._tree.flatten(X)))
        return parts[0] if self._tree.is_leaf else self._tree.unflatten(parts)

    def _precision(self) -> AbstractContextManager[Any]:
        """JAX computes in float32 unless told otherwise; a float64 point tells it."""
        if self.name != "jax" or not self._double:
            return nullcontext()
        enable = getattr(self._library, "enable_x64", None)
        if enable is None:
            enable = importlib.import_module("jax.experimental").enable_x64
        return enable(True)
