"""What an augmented Lagrangian adds to f: functions φ of c(X), each with a proximal map.

    c(X) between bounds:   φ the indicator of [l, u],   prox the projection
    h(AX) = μ‖AX‖₁:        φ = μ‖·‖₁,                   prox the soft threshold

SciPy's constraints are read into the first kind.  c is a vector; its derivative enters only as
y ↦ J(X)ᵀy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy

from stiefel.backends.arrays import describe
from stiefel.function.trees import Tree
from stiefel.types import Array

DIFFERENCE = 6e-6  # of central differences


@dataclass(frozen=True, eq=False)
class ConstraintBlock:
    """φ(c(X)) with l ≤ c ≤ u, or with φ = Σ μ|c| where there are weights μ."""

    name: str
    value: Callable[[Array], Array]  # c(X), a vector
    pull: Callable[[Array, Array], Array]  # (X, y) ↦ J(X)ᵀy, of the shape of X
    jacobian: Callable[[Array], Array]  # J(X), with the entries of all leaves in one row
    lower: Array = -math.inf
    upper: Array = math.inf
    weights: Array | None = None
    calls: list[None] = field(default_factory=list)  # one entry a call of the user's function
    given: Callable[[Array], Array] | None = None  # the user's own J(X)

    def prox(self, y: Array, rho: float) -> Array:
        """The P that minimises φ(P) + ρ/2 ‖P − y‖²."""
        if self.weights is None:
            return np.clip(y, self.lower, self.upper)
        threshold = self.weights / rho
        return y - np.clip(y, -threshold, threshold)

    def phi(self, P: Array) -> float:
        return 0.0 if self.weights is None else float(np.sum(self.weights * np.abs(P)))

    def violation(self, c: Array, P: Array) -> float:
        """How far c is from where it must be; for h(AX) from the P that splits it off."""
        away = c - (np.clip(c, self.lower, self.upper) if self.weights is None else P)
        return float(np.max(np.abs(away), initial=0.0))

    def complementarity(self, c: Array, W: Array) -> float:
        """The largest min(multiplier, slack): zero where each constraint is active or forceless."""
        if self.weights is not None:
            return 0.0
        slack = np.where(W > 0, np.asarray(self.upper) - c, c - np.asarray(self.lower))
        return float(np.max(np.minimum(np.abs(W), np.abs(slack)), initial=0.0))


def blocks_of(constraints: Any, bounds: Any, of: Any, X: Array) -> list[ConstraintBlock]:
    """All of them, read."""
    if constraints is None:
        constraints = ()
    if isinstance(
        constraints, (dict, scipy.optimize.LinearConstraint, scipy.optimize.NonlinearConstraint)
    ):
        constraints = (constraints,)
    if not isinstance(constraints, Sequence):
        raise TypeError(
            f"constraints is {describe(constraints)}; expected a NonlinearConstraint, a "
            "LinearConstraint, a dict with 'type' and 'fun', or a list of them"
        )
    blocks = [_read(c, i, X) for i, c in enumerate(constraints)]
    if (bounds is not None or of is not None) and not isinstance(X, np.ndarray):
        raise TypeError("bounds= and L1(mu, of=A) need a single array; use constraints= for trees")
    if bounds is not None:
        blocks.append(_bounds(bounds, X))
    if of is not None:
        blocks.append(_composed(of, X))
    return blocks


def _read(given: Any, index: int, X: Array) -> ConstraintBlock:
    name = f"constraints[{index}]"
    if isinstance(given, scipy.optimize.LinearConstraint):
        return _linear(given, name, X)
    if isinstance(given, scipy.optimize.NonlinearConstraint):
        return _nonlinear(given.fun, given.jac, (), given.lb, given.ub, name, X)
    if isinstance(given, dict):
        kind = given.get("type")
        if kind not in ("eq", "ineq") or not callable(given.get("fun")):
            raise ValueError(
                f"{name} has type {kind!r} and keys {sorted(given)}; expected "
                "{'type': 'eq' or 'ineq', 'fun': c} for c(X) = 0 or c(X) ≥ 0"
            )
        upper = 0.0 if kind == "eq" else math.inf
        args = tuple(given.get("args", ()))
        return _nonlinear(given["fun"], given.get("jac"), args, 0.0, upper, name, X)
    raise TypeError(
        f"{name} is {describe(given)}; expected a NonlinearConstraint, a LinearConstraint or a dict"
    )


def _linear(given: scipy.optimize.LinearConstraint, name: str, X: Array) -> ConstraintBlock:
    A = given.A
    if not isinstance(X, np.ndarray):
        raise TypeError(f"{name} is linear and needs a single array; use NonlinearConstraint")
    if A.shape[-1] != X.size:
        raise ValueError(
            f"{name} has a matrix of shape {A.shape}; expected {X.size} columns, one for each "
            "entry of X in C order"
        )

    def pull(X: Array, y: Array) -> Array:
        return np.asarray(A.T @ y).reshape(X.shape)

    def value(X: Array) -> Array:
        return np.asarray(A @ X.ravel())

    def dense(X: Array) -> Array:
        return np.asarray(A.toarray() if scipy.sparse.issparse(A) else A, dtype=float)

    return _checked(ConstraintBlock(name, value, pull, dense, given.lb, given.ub), X)


def _nonlinear(
    fun: Any, jac: Any, args: tuple[Any, ...], lower: Any, upper: Any, name: str, X: Array
) -> ConstraintBlock:
    tree = Tree(X)
    calls: list[None] = []
    lengths: list[int] = []

    def value(X: Any) -> Array:
        calls.append(None)
        found = np.atleast_1d(np.asarray(fun(X, *args))).ravel()
        if found.dtype.kind not in "fiub":
            raise TypeError(f"{name} returned {describe(found)}; expected real numbers")
        c = found.astype(float)
        if lengths and len(c) != lengths[0]:
            raise ValueError(
                f"{name} returned {len(c)} values, and {lengths[0]} before; expected as many at "
                "every point"
            )
        lengths[:] = [len(c)]
        return c

    def jacobians(X: Any) -> list[Array]:
        leaves = tree.flatten(X)
        if not callable(jac):
            return list(_differences(value, tree, leaves))
        J = tree.flatten(jac(X, *args), f"the jac of {name}")
        return [_rows(D, x, name) for D, x in zip(J, leaves, strict=True)]

    def pull(X: Any, y: Array) -> Any:
        leaves = tree.flatten(X)
        parts = zip(jacobians(X), leaves, strict=True)
        return tree.unflatten(tuple((y @ D).reshape(x.shape) for D, x in parts))

    def jacobian(X: Any) -> Array:
        return np.hstack(jacobians(X))

    own = jacobian if callable(jac) else None
    block = ConstraintBlock(name, value, pull, jacobian, lower, upper, calls=calls, given=own)
    return _checked(block, X)


def _rows(D: Any, x: Array, name: str) -> Array:
    """The Jacobian of one leaf as a matrix, or an error that says which shape it must have."""
    D = np.asarray(D, dtype=float)
    if D.size == 0 or D.size % x.size:
        raise ValueError(
            f"the jac of {name} returned the shape {D.shape}; expected (m, {x.size}) or "
            f"(m, {', '.join(map(str, x.shape))}) for m constraints"
        )
    return D.reshape(-1, x.size)


def _differences(
    value: Callable[[Any], Array], tree: Tree, leaves: tuple[Array, ...]
) -> tuple[Array, ...]:
    """The Jacobian by central differences, two calls of c for each entry."""

    def column(which: int, entry: int) -> Array:
        ends = []
        for step in (DIFFERENCE, -DIFFERENCE):
            moved = [x.copy() for x in leaves]
            moved[which].reshape(-1)[entry] += step
            ends.append(value(tree.unflatten(tuple(moved))))
        with np.errstate(invalid="ignore"):  # infinite constraints have no derivative
            return (ends[0] - ends[1]) / (2 * DIFFERENCE)

    return tuple(
        np.stack([column(i, j) for j in range(x.size)], axis=-1) for i, x in enumerate(leaves)
    )


def _bounds(bounds: Any, X: Array) -> ConstraintBlock:
    if isinstance(bounds, scipy.optimize.Bounds):
        lower, upper = bounds.lb, bounds.ub
    elif isinstance(bounds, (tuple, list)) and len(bounds) == 2:
        lower, upper = bounds
    else:
        raise TypeError(
            f"bounds is {describe(bounds)}; expected scipy.optimize.Bounds(lower, upper) or a pair "
            "(lower, upper) of numbers, arrays of the shape of X, or None"
        )
    low, high = (_fitted(b, X, default) for b, default in ((lower, -math.inf), (upper, math.inf)))

    def pull(X: Array, y: Array) -> Array:
        return y.reshape(X.shape)

    def identity(X: Array) -> Array:
        return np.eye(X.size)

    return _checked(ConstraintBlock("bounds", lambda X: X.ravel(), pull, identity, low, high), X)


def _fitted(bound: Any, X: Array, default: float) -> Array:
    value = np.asarray(default if bound is None else bound, dtype=float)
    if value.size == X.size:
        return value.ravel()
    try:
        return np.broadcast_to(value, X.shape).ravel()
    except ValueError:
        raise ValueError(
            f"a bound has shape {value.shape}; expected a number or the shape {X.shape} of X"
        ) from None


def _composed(term: Any, X: Array) -> ConstraintBlock:
    A = term.of
    if np.ndim(A) == 2 and A.shape[1] != X.shape[0]:
        raise ValueError(
            f"L1(mu, of=A) has A of shape {tuple(A.shape)}; expected {X.shape[0]} columns, as many "
            f"as X has rows"
        )
    shape = (A @ X).shape
    if np.size(term.mu) > 1 and np.shape(term.mu) != shape:
        raise ValueError(f"L1(mu, of=A) has weights {np.shape(term.mu)}; AX has shape {shape}")
    weights = np.broadcast_to(np.asarray(term.mu, dtype=float), shape).ravel()
    adjoint = A.T if not hasattr(A, "rmatmat") or hasattr(A, "toarray") else A.H

    def pull(X: Array, y: Array) -> Array:
        return np.asarray(adjoint @ y.reshape(shape))

    def unused(X: Array) -> Array:
        raise NotImplementedError("h(AX) is left to the augmented Lagrangian")

    def value(X: Array) -> Array:
        return np.asarray(A @ X).ravel()

    return ConstraintBlock("L1", value, pull, unused, weights=weights)


def _checked(block: ConstraintBlock, X: Array) -> ConstraintBlock:
    c = block.value(X)
    if block.jacobian(X).shape != (len(c), sum(x.size for x in Tree(X).flatten(X))):
        raise ValueError(
            f"the jac of {block.name} returned {len(block.jacobian(X))} rows, and its function "
            f"{len(c)} values; expected as many"
        )
    low, high = (np.asarray(b, dtype=float) for b in (block.lower, block.upper))
    try:
        np.broadcast_shapes(low.shape, high.shape, c.shape)
    except ValueError:
        raise ValueError(
            f"{block.name} returned {c.size} values, and its bounds have shapes {low.shape} and "
            f"{high.shape}; expected as many"
        ) from None
    if np.any(low > high) or np.any(np.isnan(low) | np.isnan(high)):
        raise ValueError(f"{block.name} has a lower bound above its upper bound, or NaN")
    return block
