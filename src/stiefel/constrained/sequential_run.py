"""A run of `sequential` from its start to a status, on the user's points."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stiefel.arguments import bind, leaves_of
from stiefel.backends.ranks import ALONE
from stiefel.function.trees import Tree
from stiefel.nonsmooth.space import Space, space_of
from stiefel.runs.driver import asks_to_stop
from stiefel.runs.ledger import History, Snapshot
from stiefel.runs.progress import ProgressLine
from stiefel.types import Array, Manifold, Manifolds, Status

from .blocks import ConstraintBlock
from .rows import ConstraintRows, RowSet
from .sequential import Evaluated, Measures, SequentialQuadratic, State

MOST_ROWS = 300  # of the dual, which is dense
# Iterations without a smaller KKT residual: test_contradictions_are_told_soon.
WITHOUT_GAIN = 150


class LimitReached(Exception):
    """No evaluation is left."""


@dataclass
class SequentialRun:
    """What the loop needs: the user's functions, limits and callback."""

    smooth: Callable[[Any], tuple[float, tuple[Array, ...]]]
    blocks: Sequence[ConstraintBlock]
    manifold: Manifolds
    evaluations: Callable[[], int]
    most_evaluations: float
    most_iterations: float
    most_seconds: float
    callback: Any
    line: ProgressLine | None = None
    history: History = field(default_factory=History)
    nit: int = 0
    restarts: int = 0

    def prepare(self, X: Any) -> bool:
        """Whether the method is for such points; then it is ready."""
        self.tree = Tree(X)
        self.geometry: Manifold
        self.geometry, point = bind(self.tree, leaves_of(self.tree, X, self.manifold), ALONE)
        try:
            self.space: Space = space_of(self.geometry, point)
        except ValueError:
            return False
        if any(block.weights is not None for block in self.blocks):
            return False
        # X ≥ 0 with two columns or more: linearised, the zeros can never move.
        if self.space.columns > 1 and any(block.name == "bounds" for block in self.blocks):
            return False
        self.rows = RowSet(self.blocks, X)
        self.none = np.zeros((0, self.space.points.size))
        return 0 < len(self.rows.equal) <= MOST_ROWS

    def __call__(
        self, X: Any, target: float, tolerance: float
    ) -> tuple[State, Measures, Status | None]:
        """The last state and its measures; the status is None where another method must go on."""
        began = time.perf_counter()
        method = SequentialQuadratic(self.space, self._evaluate, self._values, self._retract)
        s = method.begin(self._evaluate(self.space.flat(self._solver_form(X)), None))
        best, since = math.inf, 0
        while True:
            s, model, measures = method.model(s)
            self._record(s, measures, time.perf_counter() - began)
            worst = max(measures.violation, measures.complementarity)
            if measures.stationarity <= target and worst <= tolerance:
                return s, measures, Status.CONVERGED
            size = max(measures.stationarity / max(target, 1e-300), worst / tolerance)
            best, since = (size, 0) if size < 0.9 * best else (best, since + 1)
            stuck = measures.violation > 1e2 * tolerance and model.is_stuck()
            status = self._limit(s, measures, time.perf_counter() - began)
            if status is not None or since > WITHOUT_GAIN or stuck:
                return s, measures, status
            try:
                new = method.step(s, model)
                while new.restarted and not new.failed:
                    self.restarts += 1
                    new = method.step(new, model)
            except LimitReached:
                return s, measures, Status.MAX_EVALUATIONS
            self.nit += 1
            if new.failed:
                return s, measures, None
            s = new

    def user_point(self, x: Array) -> Any:
        point = self.space.point(x)
        return self.tree.unflatten(point if self.space.is_tree else (point,))

    def _solver_form(self, X: Any) -> Any:
        leaves = self.tree.flatten(X)
        return leaves if self.space.is_tree else leaves[0]

    def _evaluate(self, x: Array, c: Array | None) -> Evaluated:
        if c is not None and self.evaluations() >= self.most_evaluations:
            raise LimitReached  # not at the start, which is known
        X = self.user_point(x)
        if c is not None and not np.all(np.isfinite(c)):
            nowhere = ConstraintRows(c, self.none, self.rows.equal)
            return Evaluated(x, math.nan, np.full_like(x, math.nan), nowhere)
        f, gradient = self.smooth(X)
        g = self.space.flat(gradient if self.space.is_tree else gradient[0])
        return Evaluated(x, f, g, self.rows.at(X, c))

    def _values(self, x: Array) -> Array:
        return self.rows.values(self.user_point(x))

    def _retract(self, z: Array) -> Array:
        if not np.all(np.isfinite(z)):
            return np.full_like(z, math.nan)
        return self.space.flat(self.geometry.nearest(self.space.point(z)))

    def _record(self, s: State, m: Measures, seconds: float) -> None:
        n = self.evaluations()
        defect = float(np.linalg.norm(self.space.defect(s.at.x)))
        known = s.at.f, m.stationarity, 1.0 / s.factor, 0, n, n, seconds, s.restarted, defect
        self.history.append((*known, 0, math.nan))

    def _limit(self, s: State, m: Measures, seconds: float) -> Status | None:
        if self.callback is not None or self.line is not None:
            n = self.evaluations()
            told = Snapshot(
                self.user_point(s.at.x), s.at.f, m.stationarity, 1.0 / s.factor, self.nit, n, n,
                self.restarts, seconds,
            )  # fmt: skip
            if self.line is not None:
                self.line(told)
            if self.callback is not None and asks_to_stop(self.callback, told):
                return Status.STOPPED_BY_CALLBACK
        if self.evaluations() >= self.most_evaluations:
            return Status.MAX_EVALUATIONS
        if self.nit >= self.most_iterations:
            return Status.MAX_ITERATIONS
        return Status.MAX_TIME if seconds >= self.most_seconds else None
