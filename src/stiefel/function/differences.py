"""Gradients from values alone, as in SciPy.

    2-point    G_e ≈ (f(X + hE) − f(X))/h          one value an entry, error O(h) + rounding/h
    3-point    G_e ≈ (f(X + hE) − f(X − hE))/2h    two values an entry, error O(h²) + rounding/h
    cs         G_e = Im f(X + ihE)/h               one value an entry, no error to speak of

for every entry e, with E the matrix that is one there.  h is √eps, eps^{1/3} or eps times
max(1, |X_e|).  A complex entry has two parts, and needs twice as many values.  The points X + hE
are not orthonormal: f must be a formula that does not mind.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from stiefel.backends.arrays import kernels_for, to_numpy
from stiefel.types import Array

from .trees import Tree

DIFFERENCE_RULES = ("2-point", "3-point", "cs")
MANY = 500  # entries from which on autodiff is recommended
EXPONENT = {"2-point": 1 / 2, "3-point": 1 / 3, "cs": 1.0}


class Differences:
    """Value and gradient of a function that returns its value; every call of it is counted."""

    def __init__(
        self, fun: Callable[[Any], Any], rule: str, tree: Tree, leaves: tuple[Array, ...]
    ) -> None:
        self._fun, self._rule, self._tree = fun, rule, tree
        self._last: tuple[tuple[Array, ...], Any] | None = None
        self.count: Callable[[], None] = lambda: None
        complex_ = any(np.iscomplexobj(to_numpy(leaf)) for leaf in leaves)
        if rule == "cs" and complex_:
            raise TypeError('jac="cs" needs a real X0, and this one is complex: pass jac="3-point"')
        self._hint(sum(leaf.size if isinstance(leaf, np.ndarray) else 0 for leaf in leaves))

    def _hint(self, entries: int) -> None:
        if entries > MANY:
            calls = entries * (2 if self._rule == "3-point" else 1)
            warnings.warn(
                f'jac="{self._rule}" calls fun {calls} times for every gradient; written with JAX '
                'or PyTorch, and with jac="jax" or jac="torch", it would be about three times',
                stacklevel=9,
            )

    def value(self, X: Any) -> Any:
        """fun(X), remembered for the gradient at the same X."""
        f = self._fun(X)
        self._last = self._tree.flatten(X), f
        return f

    def gradient(self, X: Any) -> Any:
        """The gradient at X, in the structure of X."""
        leaves = self._tree.flatten(X)
        parts = [self._leaf(leaves, i, self._base(leaves)) for i in range(len(leaves))]
        return parts[0] if self._tree.is_leaf else self._tree.unflatten(tuple(parts))

    def _base(self, leaves: tuple[Array, ...]) -> float:
        """f(X) where the rule needs it."""
        if self._rule != "2-point":
            return 0.0
        held = self._last
        if held is None or any(a is not b for a, b in zip(held[0], leaves)):
            self.count()
            self._last = held = leaves, self._fun(self._show(leaves))
        return float(held[1])

    def _leaf(self, leaves: tuple[Array, ...], i: int, base: float) -> Array:
        """The gradient with respect to one leaf."""
        x = to_numpy(leaves[i])
        step = float(np.finfo(x.dtype).eps) ** EXPONENT[self._rule]
        G = np.zeros_like(x)
        for index in np.ndindex(*x.shape):
            h = step * max(1.0, float(abs(x[index])))
            for unit in (1.0, 1j) if np.iscomplexobj(x) else (1.0,):
                G[index] += unit * self._slope(leaves, i, index, h, unit, base)
        return kernels_for(leaves[i]).asarray(G, leaves[i])

    def _slope(
        self, leaves: tuple[Array, ...], i: int, index: Any, h: float, unit: Any, base: float
    ) -> float:
        def at(step: Any) -> Any:
            self.count()
            return self._fun(self._show(_displaced(leaves, i, index, step)))

        if self._rule == "cs":
            return _imaginary(at(1j * h)) / h
        if self._rule == "3-point":
            return (float(at(h * unit)) - float(at(-h * unit))) / (2.0 * h)
        return (float(at(h * unit)) - base) / h

    def _show(self, leaves: tuple[Array, ...]) -> Any:
        return leaves[0] if self._tree.is_leaf else self._tree.unflatten(leaves)


def _displaced(leaves: tuple[Array, ...], i: int, index: Any, step: Any) -> tuple[Array, ...]:
    x = to_numpy(leaves[i])
    moved = x.astype(np.result_type(x, np.complex64)) if isinstance(step, complex) else x.copy()
    if not np.iscomplexobj(x):
        step = step if step.imag else step.real
    moved[index] += step
    like = leaves[i]
    arrays: Iterator[Array] = (
        (moved if isinstance(like, np.ndarray) else kernels_for(like).asarray(moved, like))
        if j == i
        else leaf
        for j, leaf in enumerate(leaves)
    )
    return tuple(arrays)


def _imaginary(value: Any) -> float:
    if not np.iscomplexobj(value):
        raise TypeError(
            'jac="cs" evaluates fun at complex X, and fun returned a real number: write fun '
            'without abs, .real, conj, vdot and norm, or pass jac="3-point"'
        )
    return float(np.imag(value))
