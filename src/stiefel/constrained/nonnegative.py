"""X ≥ 0 on XᵀX = I: a row has one positive entry at most, so that every column owns its rows.

Linearised, the zeros of such an X can never move, and an augmented Lagrangian alone needs thousands
of gradients, because the multipliers are not unique.  But after a few of its gradients the largest
entry of a row tells which column owns it.  With owners given, the columns are nonnegative unit
vectors of their own rows, for which `sequential` is quick.  A row that its owner leaves zero, and
that another column would take, changes its owner, and all is done once more.

Such an X meets the KKT conditions ∇f = XΛ + N, N ≥ 0 where X = 0 and N = 0 elsewhere:
Λ_jj = ⟨X_j, ∇f_j⟩, and the other entries of the symmetric Λ may be as far beneath zero as N ≥ 0
asks for.  Zero rows ask for ∇f ≥ 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from stiefel.geometry import Sphere
from stiefel.types import Array, Status

from .blocks import ConstraintBlock
from .sequential_run import SequentialRun

Smooth = Callable[[Any], tuple[float, tuple[Array, ...]]]

# Of the size √(k/n) that entries have: a violation at which the largest entries tell the owners.
# With ten times as much the minima are worse: test_nonnegative_matrices_of_noise.
NEARLY_NONNEGATIVE = 0.02


class OwnedPoint(NamedTuple):
    """A nonnegative X with ∇f = XΛ + N up to a remainder."""

    X: Array
    f: float
    N: Array
    remainder: Array
    runs: tuple[SequentialRun, ...]


@dataclass(frozen=True)
class Owners:
    """The rows of every column."""

    n: int
    rows: Sequence[Array]

    @classmethod
    def of(cls, own: Array, k: int) -> Owners:
        return cls(len(own), [np.flatnonzero(own == j) for j in range(k)])

    def parts(self, X: Array) -> list[Array]:
        """The columns of X on their rows."""
        return [X[rows, j] for j, rows in enumerate(self.rows)]

    def whole(self, parts: Sequence[Array]) -> Array:
        X = np.zeros((self.n, len(self.rows)))
        for j, (rows, part) in enumerate(zip(self.rows, parts)):
            X[rows, j] = part
        return X

    def block(self) -> ConstraintBlock:
        """All entries ≥ 0."""
        ends = np.cumsum([len(rows) for rows in self.rows])[:-1]
        return ConstraintBlock(
            "entries", np.concatenate, lambda x, y: np.split(y, ends), lambda x: np.eye(self.n), 0.0
        )


def is_nearly_nonnegative(X: Array, violation: float) -> bool:
    n, k = X.shape
    return bool(violation <= NEARLY_NONNEGATIVE * np.sqrt(k / n))


def asks_for_nonnegative(blocks: Sequence[ConstraintBlock], X: Any) -> bool:
    """Whether X ≥ 0 is all that is asked for, of two columns or more."""
    if len(blocks) != 1 or blocks[0].name != "bounds" or X.ndim != 2 or X.shape[1] < 2:
        return False
    return bool(np.all(np.equal(blocks[0].lower, 0)) and np.all(np.equal(blocks[0].upper, np.inf)))


def whole_points(callback: Any, whole: Callable[[Any], Array] | None) -> Any:
    """The callback, told of X instead of its parts."""
    if callback is None or whole is None:
        return callback
    return lambda told: callback(told._replace(x=whole(told.x)))


def owned_minimum(
    smooth: Smooth, start: Callable[..., SequentialRun], X: Array, target: float, tolerance: float
) -> OwnedPoint | Status | None:
    """The minimum with the owners that X tells; the status of a run that met a limit, or None.

    ``start`` makes a run of a function of the parts, with blocks, a manifold, and the map from
    parts to X.
    """
    own, runs, last = X.argmax(axis=1), [], math.inf
    while True:
        owners = Owners.of(own, X.shape[1])
        X = _unit_columns(owners.whole(owners.parts(X)))
        if not np.all(np.isfinite(X)):
            return None

        def of_parts(parts: Any, owners: Owners = owners) -> tuple[float, tuple[Array, ...]]:
            f, (G,) = smooth(owners.whole(parts))
            return f, tuple(owners.parts(G))

        run = start(of_parts, [owners.block()], Sphere(), owners.whole)
        parts = owners.parts(X)
        if not run.prepare(parts):
            return None
        state, _, status = run(parts, 0.5 * target, 0.5 * tolerance)
        runs.append(run)
        if status is not Status.CONVERGED:
            return status
        if run.evaluations() >= run.most_evaluations:
            return Status.MAX_EVALUATIONS
        X = _unit_columns(owners.whole(run.user_point(state.at.x)))
        f, (G,) = smooth(X)
        wanted = ~X.any(axis=1) & (G.min(axis=1) < -0.5 * target)
        if not wanted.any():
            return _with_multipliers(X, f, G, tuple(runs))
        if not f < last:
            return None
        own, last = np.where(wanted, G.argmin(axis=1), own), f


def _unit_columns(X: Array) -> Array:
    X = np.maximum(X, 0.0)
    with np.errstate(invalid="ignore"):
        return X / np.sqrt(np.sum(X**2, axis=0))


def _with_multipliers(X: Array, f: float, G: Array, runs: tuple[SequentialRun, ...]) -> OwnedPoint:
    k = X.shape[1]
    positive = X > 0
    L = np.diag(np.sum(X * G, axis=0))
    for j in range(k):
        ratios = G[positive[:, j]] / X[positive[:, j], j][:, None]
        L[j] = np.where(np.arange(k) == j, L[j], np.minimum(L[j], ratios.min(axis=0)))
    off = ~np.eye(k, dtype=bool)
    L = np.where(off, np.minimum(L, L.T), L)
    N = np.where(positive, 0.0, np.maximum(G - X @ L, 0.0))
    empty = ~positive.any(axis=1, keepdims=True)  # in other rows G ≥ XΛ, by the choice of Λ
    remainder = np.where(positive, G - X * np.diagonal(L), np.where(empty, np.minimum(G, 0.0), 0.0))
    return OwnedPoint(X, f, N, remainder, runs)
