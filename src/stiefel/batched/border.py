"""From the user's batch to the solver's leaves and back.

A batch is an array (B, n, k), or a nested dict, list or tuple of arrays with that leading axis;
the solver sees a tuple of leaves (B, ..., n, k), columns for vectors, rows for free numbers.
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Any

from stiefel.types import Array, Leaves, Manifold, Manifolds

from .compiled import compiled_leaf
from .kernels import PerProblem
from .leaves import Free, Leaf, Matrices
from .libraries import kernels_of
from .shared import (
    DEFAULT_RTOL,
    SINGLE_PRECISION_RTOL,
    Euclidean,
    Grassmann,
    Sphere,
    Stiefel,
    Tree,
    describe,
    kernels_for,
    library,
)
from .state import Limits


@dataclass(frozen=True)
class Border:
    """The structure of a batch, and the manifold of each of its leaves."""

    tree: Tree
    leaves: tuple[Leaf, ...]
    shapes: tuple[tuple[int, ...], ...]  # of the user's leaves, without the leading axis
    inner: tuple[tuple[int, ...], ...]  # of the solver's

    @property
    def k(self) -> PerProblem:
        return self.leaves[0].k

    def enter(self, tree: Any, what: str = "x0") -> Leaves:
        """The leaves of a batch in the solver's shape."""
        parts = (tree,) if self.tree.is_leaf else self.tree.flatten(tree, what)
        return tuple(
            self.k.xp.reshape(part, (part.shape[0], *shape))
            for part, shape in zip(parts, self.inner, strict=True)
        )

    def leave(self, leaves: Leaves) -> Any:
        """A batch as the user gave it."""
        parts = tuple(
            self.k.xp.reshape(self.k.shown(leaf), (leaf.shape[0], *shape))
            for leaf, shape in zip(leaves, self.shapes, strict=True)
        )
        return parts[0] if self.tree.is_leaf else self.tree.unflatten(parts)


def border_of(x0: Any, manifold: Manifolds | None) -> Border:
    """The border of a batch x0; points themselves are not looked at."""
    tree = Tree(x0)
    arrays = tree.flatten(x0)
    if not arrays:
        raise ValueError("x0 has no arrays")
    manifold = Stiefel() if manifold is None else manifold
    if isinstance(manifold, (dict, list, tuple)):
        factors = tree.flatten(manifold, "manifold")
    else:
        factors = (manifold,) * len(arrays)
    _check_batch(arrays, tree)
    made = [_leaf(*part) for part in zip(factors, arrays, tree.paths, strict=True)]
    leaves, shapes = zip(*made, strict=True)
    if len(leaves) == 1:
        shape = (arrays[0].shape[0], *shapes[0])
        leaves = (compiled_leaf(leaves[0], arrays[0].dtype, shape),)
    return Border(tree, leaves, tuple(tuple(a.shape[1:]) for a in arrays), shapes)


def _check_batch(arrays: tuple[Any, ...], tree: Tree) -> None:
    for array, path in zip(arrays, tree.paths, strict=True):
        if not hasattr(array, "shape") or len(array.shape) == 0:
            raise TypeError(f"x0{path} is {describe(array)}; expected an array with a leading axis")
        if array.shape[0] == 0:
            raise ValueError(f"x0{path} has shape {tuple(array.shape)}: it holds no problem")
        if array.shape[0] != arrays[0].shape[0]:
            raise ValueError(
                f"x0{path} has {array.shape[0]} problems and x0{tree.paths[0]} has "
                f"{arrays[0].shape[0]}; expected one leading axis for all leaves"
            )


def _leaf(factor: Manifold, x: Array, path: str) -> tuple[Leaf, tuple[int, ...]]:
    k, shape = kernels_of(x), tuple(x.shape[1:])
    if isinstance(factor, Euclidean):
        return Free(k), shape or (1,)
    if not isinstance(factor, Stiefel):
        raise TypeError(
            f"manifold is {describe(factor)}; expected Stiefel(), Grassmann(), Sphere(), "
            "SpecialOrthogonal() or Euclidean()"
        )
    if isinstance(factor, Sphere) and not (len(shape) >= 2 and shape[-1] == 1):
        shape = (*shape, 1)
    if len(shape) < 2:
        raise ValueError(
            f"x0{path} has shape {tuple(x.shape)}; expected (B, n, k): the first axis counts "
            "problems.  For one problem call stiefel.minimize"
        )
    if factor.B is not None:
        k = _weighted(k, factor, k.xp.reshape(x, (x.shape[0], *shape)))
    n, columns = shape[-2:]
    return Matrices(k, 1 < columns < n, isinstance(factor, Grassmann)), shape


def _weighted(k: PerProblem, factor: Stiefel, X: Array) -> PerProblem:
    """The kernels with inner products of columns in B, which is checked and factorised once."""
    kernels = factor._resolve(X)
    assert kernels._weigh is not None and kernels._sharpen is not None
    return k.weighted(kernels._weigh, kernels._sharpen, kernels.weights)  # type: ignore[return-value]


def limits_of(
    border: Border,
    eps: float,
    size: int,
    rtol: Any,
    gtol: Any,
    ftol: Any,
    maxiter: Any,
    maxfun: Any,
    like: Array,
) -> Limits:
    """All limits and tolerances, each a number or an array of one number a problem."""
    if rtol is None:
        rtol = DEFAULT_RTOL if eps < 1e-10 else SINGLE_PRECISION_RTOL
    given = {"rtol": rtol, "gtol": gtol, "ftol": ftol}
    read = {name: tolerance(value, name, size, border.k, like) for name, value in given.items()}
    if not any(_positive(value) for value in given.values()):
        raise ValueError("rtol, gtol and ftol are all zero; one of them must be positive")
    ftol = read["ftol"] if _positive(ftol) else None
    most = math.inf if maxfun is None else _limit(maxfun, "maxfun", 1)
    return Limits(read["rtol"], read["gtol"], ftol, _limit(maxiter, "maxiter", 0), most)


def _positive(value: Any) -> bool:
    if isinstance(value, numbers.Real):
        return float(value) > 0
    return library(value) == "jax" or bool(kernels_for(value).xp.any(value > 0))


def tolerance(value: Any, name: str, size: int, k: PerProblem, like: Array) -> Any:
    """A number ≥ 0, or an array of them, one a problem."""
    if isinstance(value, numbers.Real):
        if not 0 <= float(value) < math.inf:
            raise ValueError(f"{name} is {value!r}; expected a finite number ≥ 0")
        return float(value)
    if tuple(getattr(value, "shape", ())) != (size,):
        raise TypeError(
            f"{name} is {describe(value)}; expected a number ≥ 0, or an array of shape ({size},)"
        )
    found = k.xp.asarray(value, dtype=like.dtype, device=k.device(like))
    if library(value) != "jax" and not bool(k.xp.all((found >= 0) & k.xp.isfinite(found))):
        raise ValueError(f"{name} has entries that are negative or not finite")
    return found


def _limit(value: Any, name: str, least: int) -> float:
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"{name} is {describe(value)}; expected an integer ≥ {least}")
    if not float(value) >= least or float(value) % 1 > 0:
        raise ValueError(f"{name} is {value!r}; expected an integer ≥ {least}")
    return float(value)
