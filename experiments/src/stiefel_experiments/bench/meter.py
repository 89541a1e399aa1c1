"""The function that every solver is given: it counts, keeps the time, and says when to stop.

All solvers, ours and others', call the same object, so the columns of a table mean the same for
all of them.  A value or gradient asked for again at the point of the last call, or of the last
gradient, is handed out again and not counted: libraries that ask for value and gradient separately
do not pay twice.  For the others' solvers the meter also tests ‖∇f(X)‖_g* ≤ rtol·‖∇f(X_0)‖_g* at
every point at which a gradient is asked for, and ends the run at the first one that passes.  What
the meter does itself is not on the clock.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from stiefel.types import Array

from .problems import Problem

FEASIBLE = 1e-10  # a larger ‖XᵀX − I‖_F: the norm is measured again at the nearest point
NORM_TOLERANCE = 1.01  # rounding of the norm itself, at 1e-10 of a gradient


class Stop(BaseException):
    """Leaves a solver from inside the function; no `except Exception` of theirs catches it."""


class Reached(Stop):
    """The tolerance was met."""


class OutOfTime(Stop):
    """The limit on CPU seconds was passed."""


class _Evaluation:
    """What is known at one point."""

    def __init__(self, X: Array) -> None:
        self.X = X.copy()
        self.f: float | None = None
        self.G: Array | None = None


class Meter:
    """f with its counts; `stops`: whether to end the run when the tolerance is met."""

    def __init__(self, problem: Problem, X0: Array, limit: float, stops: bool) -> None:
        self.problem, self.limit, self.stops = problem, limit, stops
        self.shape = X0.shape
        self.values = self.gradients = self.points = 0
        self.hessian_products = 0.0  # of n × k matrices; an eigensolver's columns are 1/k each
        self.function_seconds = 0.0
        self.x: Array | None = None  # where the tolerance was met
        self.iterations: int | None = None  # as the solver counts them
        self.message = ""
        self.least = math.inf  # the smallest relative norm seen
        self._geometry = problem.manifold.bind(X0)
        self._norm0 = self.norm(X0)
        self._evaluations: list[_Evaluation] = []
        self._inside, self._start = 0.0, time.process_time()

    # -- what solvers call -------------------------------------------------------------------

    def value(self, X: Array) -> float:
        """f(X)."""
        with self._timed():
            known = self._at(X)
            if known.f is None:
                self.values += 1
                known.f = float(self._work(self.problem.objective.value, X))
            return known.f

    def value_and_gradient(self, X: Array) -> tuple[float, Array]:
        """f(X) and its Euclidean gradient, an array of the caller's own."""
        with self._timed():
            known = self._at(X)
            if known.G is None:
                self.values += known.f is None
                self.gradients += 1
                known.f, known.G = self._work(self.problem.objective.value_and_gradient, X)
            if self.stops and self._reached(known):
                raise Reached
            assert known.f is not None
            return known.f, known.G.copy()

    __call__ = value_and_gradient

    def gradient(self, X: Array) -> Array:
        return self.value_and_gradient(X)[1]

    def hessp(self, X: Array, V: Array) -> Array:
        """The Euclidean Hessian at X times V."""
        return self.product(lambda: self.problem.objective.hessp(X, V), 1.0)

    def product(self, multiply: Callable[[], Array], weight: float) -> Array:
        """A product with a Hessian, or of an eigensolver, `weight` times as wide as a point."""
        with self._timed():
            self.hessian_products += weight
            return self._work(multiply)

    def untimed(self, work: Callable[[], Any]) -> Any:
        """Do something that neither counts nor takes time."""
        with self._timed():
            return work()

    # -- measuring ---------------------------------------------------------------------------

    def norm(self, X: Array, G: Array | None = None) -> float:
        """‖∇f(X)‖_g*, not counted."""
        if G is None:
            G = self.problem.objective.value_and_gradient(X)[1]
        return float(self._geometry.norm(X, self._geometry.project(X, G)))

    @property
    def target(self) -> float:
        return self.problem.rtol * self._norm0

    def relative_norm(self, X: Array) -> float:
        return self.norm(X) / self._norm0

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds since the start without the meter's own."""
        return time.process_time() - self._start - self._inside + self.function_seconds

    def _reached(self, known: _Evaluation) -> bool:
        X = known.X
        norm = self.norm(X, known.G)
        self.least = min(self.least, norm / self._norm0)
        if not norm <= self.target:
            return False
        if not self._geometry.defect(X) <= FEASIBLE:
            # A method that leaves the manifold is judged at the point that its user would take.
            X = self._geometry.nearest(X)
            if not self.norm(X) <= self.target:
                return False
        self.x = X
        return True

    # -- clock and memory --------------------------------------------------------------------

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.process_time()
        if began - self._start - self._inside + self.function_seconds > self.limit:
            raise OutOfTime
        try:
            yield
        finally:
            self._inside += time.process_time() - began

    def _work(self, function: Callable[..., Any], *arguments: Array) -> Any:
        """What is on the clock."""
        began = time.process_time()
        result = function(*arguments)
        self.function_seconds += time.process_time() - began
        return result

    def _at(self, X: Array) -> _Evaluation:
        for known in self._evaluations:
            if np.array_equal(known.X, X):
                return known
        self.points += 1
        new = _Evaluation(X)
        # the last point, and the last one with a gradient
        self._evaluations = [new, *[h for h in self._evaluations if h.G is not None][:1]]
        return new
