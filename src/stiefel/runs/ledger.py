"""What a run has counted and found: history, progress, the best point, the result from them.

The numbers here are the user's: a function that was scaled is unscaled again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from stiefel.backends.ranks import ALONE, Alone, Ranks
from stiefel.function.counted import CountedObjective
from stiefel.geometry.feasibility import examined, feasible
from stiefel.geometry.frames import ambient
from stiefel.solvers.noise import Watch
from stiefel.solvers.problem import Problem
from stiefel.types import Array, Gradient, Point

from .result import Result, Status
from .stopping import Progress, Reason

IMPROVEMENT = 0.9  # a gradient norm smaller by this factor is progress
# What a checkpoint keeps of a run beside state and history.
COUNTERS = (
    "nit",
    "restarts",
    "restorations",
    "initial_f",
    "initial_norm",
    "initial_gradient",
    "best",
    "last_progress",
    "reference_norm",
    "reference_f",
)
NEW_ROWS = 256  # of a history, before they are written: as tuples they take five times the room
WINDOW = 10  # iterations over which the relative decrease of f is measured
# Success by default: what a method expects to gain, relative to f or to what was gained so far,
# whichever is smaller (but not smaller than SMALL_VALUE of the latter: f may vanish).
SETTLED = 1e-9  # with 1e-8 half of 24 runs of lbfgs had six digits; test_success.py
SMALL_VALUE = 1e-7


class SolverState(Protocol):
    """What the driver reads of a solver's state."""

    x: Point
    at: Gradient
    gamma: float
    k: int
    restarted: bool
    watch: Watch
    failure: Status | None


class Snapshot(NamedTuple):
    """What a callback sees."""

    x: Any
    fun: float
    gradient_norm: float
    step: float
    nit: int
    nfev: int
    njev: int
    restarts: int
    seconds: float


class Best(NamedTuple):
    """The best point seen: the smallest value, and among equal values the smallest gradient."""

    x: Array
    f: float
    norm: float
    G: Array


DTYPE = np.dtype(  # of one iteration; the first row is the start
    [
        ("value", "f8"),  # f at the point whose gradient was tested
        ("gradient_norm", "f8"),  # ‖∇f‖_g* there
        ("step", "f8"),  # γ
        ("momentum", "i8"),  # steps since the last restart
        ("nfev", "i8"),
        ("njev", "i8"),
        ("seconds", "f8"),
        ("restart", "?"),
        ("defect", "f8"),  # ‖XᴴX − I‖_F
        ("nhev", "i8"),
        ("expected_decrease", "f8"),  # what the method expects f to lose from there on
    ]
)


class History:
    """A growing table of iterations, 81 bytes each."""

    def __init__(self, rows: np.ndarray[Any, Any] | None = None) -> None:
        self._written = np.zeros(0, DTYPE) if rows is None else rows.copy()
        self._size = len(self._written)
        self._new: list[tuple[float, ...]] = []  # a row of the table takes as long as ten of these

    def append(self, row: tuple[float, ...]) -> None:
        """One more iteration, in the order of the columns."""
        self._new.append(row)
        if len(self._new) == NEW_ROWS:
            self._rows()

    def _rows(self) -> np.ndarray[Any, Any]:
        """The table, with the new rows written."""
        size = self._size + len(self._new)
        if size > len(self._written):
            table = np.zeros(max(2 * size, 64), DTYPE)
            table[: self._size] = self._written[: self._size]
            self._written = table
        if self._new:
            self._written[self._size : size] = self._new
            self._size, self._new = size, []
        return self._written[:size]

    def as_array(self) -> np.ndarray[Any, Any]:
        """A structured array with one row per iteration."""
        return self._rows().copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self.as_array()

    def __len__(self) -> int:
        return self._size + len(self._new)

    def __getitem__(self, key: str) -> np.ndarray[Any, Any]:
        """A column, by name."""
        if key not in DTYPE.fields:  # type: ignore[operator]
            raise KeyError(f"history has no column {key!r}; it has {', '.join(DTYPE.names or ())}")
        return self._rows()[key].copy()

    def last(self, key: str, count: int) -> np.ndarray[Any, Any]:
        """The newest entries of a column."""
        return self._rows()[key][-count:]

    def newest(self) -> tuple[float, ...] | None:
        """The newest iteration, in the order of the columns."""
        if not self._new:
            return tuple(self._written[self._size - 1].tolist()) if self._size else None
        return self._new[-1]

    def rows(self, key: str) -> np.ndarray[Any, Any]:
        """A column, not to be written to."""
        return self._rows()[key]

    def first(self, key: str) -> Any:
        """The oldest entry of a column."""
        return self._rows()[key][0]

    def __repr__(self) -> str:
        return f"History of {max(len(self) - 1, 0)} iterations: {', '.join(DTYPE.names or ())}"


@dataclass
class Ledger:
    """The books of one run."""

    problem: Problem
    objective: CountedObjective
    ranks: Alone | Ranks = ALONE
    history: History = field(default_factory=History)
    nit: int = 0
    restarts: int = 0
    restorations: int = 0
    seconds_before: float = 0.0  # of earlier, interrupted parts of the run
    initial_f: float = math.nan
    initial_norm: float = math.nan
    initial_gradient: Array = None  # a cotangent; kept for checkpoints only
    best: Best | None = None
    last_progress: int = 0
    reference_norm: float = math.inf  # as of the last progress
    reference_f: float = math.inf

    def __post_init__(self) -> None:
        self._clock: Callable[[], float] = self.ranks.clock
        self._started = self._clock()

    def elapsed(self) -> float:
        """Seconds of the whole run."""
        return self.seconds_before + self._clock() - self._started

    def record(self, state: SolverState) -> None:
        at, objective = state.at, self.objective
        scale, aim = objective.scale, getattr(state, "aim", None)
        self.history.append((
            at.f / scale,
            at.norm / scale,
            state.gamma * scale,
            state.k,
            objective.nfev,
            objective.njev,
            self.elapsed(),
            state.restarted,
            # From the Gram matrices of the state's curve, where it has one.
            self.problem.geometry.defect(state.x) if aim is None else aim.curve.defect,
            objective.nhev,
            self._expected(state) / scale,
        ))  # fmt: skip
        if at.finite:
            self._keep_best(state, at)

    def _expected(self, state: SolverState) -> float:
        """What the method's model expects f to lose from here on.

        First-order methods have no model: their last decreases are continued as a geometric series.
        """
        expected = getattr(state, "expected_decrease", None)
        if expected is not None:
            return float(expected)
        if not hasattr(state, "aim"):
            return math.nan
        values = self.history.last("value", 2 * WINDOW + 1) * self.objective.scale
        if len(values) < 2 * WINDOW + 1:
            return math.inf
        before, now = values[0] - values[WINDOW], values[WINDOW] - values[-1]
        if not 0 < now < before:
            return math.inf if now > 0 else 0.0
        return float(now * now / (before - now))

    def _settled(self, state: SolverState) -> bool:
        """Whether what is still to be gained is small; invariant under f → af + b, a > 0."""
        f, expected = state.at.f, self._expected(state)
        gained = max(self.initial_f - f, 0.0)
        size = max(min(abs(f), gained), SMALL_VALUE * gained)
        noise = max(self.problem.noise.worst(f), state.watch.noise)
        return state.watch.blind or not expected > max(SETTLED * size, noise)

    def _keep_best(self, state: SolverState, at: Gradient) -> None:
        f, norm, watch, best = at.f, at.norm, state.watch, self.best
        noise = max(self.problem.noise.level(f), watch.noise)
        fell = not watch.blind and f < self.reference_f - noise
        if fell or norm < IMPROVEMENT * self.reference_norm:
            self.last_progress = self.nit
            self.reference_f = min(f, self.reference_f)
            self.reference_norm = min(norm, self.reference_norm)
        if best is None or f < best.f - noise or (f <= best.f + noise and norm < best.norm):
            self.best = Best(state.x, f, norm, at.G)

    def progress(self, state: SolverState) -> Progress:
        at, scale = state.at, self.objective.scale
        return Progress(
            self.nit,
            self.objective.nfev,
            self.elapsed,
            at.f / scale,
            at.norm / scale,
            self.initial_norm / scale,
            self._recent_decrease,
            lambda: self._settled(state),
        )

    def noise(self, state: SolverState) -> float:
        """Of f, in the user's units."""
        level = max(self.problem.noise.level(state.at.f), state.watch.noise)
        return level / self.objective.scale

    def _recent_decrease(self) -> float:
        if self.nit < WINDOW:
            return math.inf
        values = self.history.last("value", WINDOW + 1)
        first = float(self.history.first("value"))
        size = max(abs(values[-1]), first - values[-1])
        return float((values.max() - values[-1]) / size) if size else 0.0

    def evaluations_reached(self) -> Reason:
        message = f"{self.objective.nfev} evaluations reached the limit"
        return Reason(Status.MAX_EVALUATIONS, message)

    def reached(self) -> str:
        norm = self.best.norm if self.best is not None else math.nan
        relative = norm / self.initial_norm if self.initial_norm else 0.0
        norm /= self.objective.scale
        return f"the gradient norm reached {norm:.2e}, {relative:.1e} of the initial one"

    def snapshot(self, state: SolverState) -> Snapshot:
        scale = self.objective.scale
        return Snapshot(
            self.objective.shown_point(state.x),
            state.at.f / scale,
            state.at.norm / scale,
            state.gamma * scale,
            self.nit,
            self.objective.nfev,
            self.objective.njev,
            self.restarts,
            self.elapsed(),
        )

    # -- results ---------------------------------------------------------------------------

    def result(self, state: SolverState, reason: Reason) -> Result:
        at = state.at
        best = Best(state.x, at.f, at.norm, at.G)
        if reason.status is not Status.CONVERGED and self.best is not None:
            best = self.best
        return self.package(best, reason)

    def _expected_at(self, best: Best) -> float:
        """In the user's units; of the newest record with the value of the point."""
        f, newest = best.f / self.objective.scale, self.history.newest()
        if newest is not None and newest[0] == f:
            return float(newest[-1])
        same = np.flatnonzero(self.history.rows("value") == f)
        return float(self.history.rows("expected_decrease")[same[-1]]) if len(same) else math.nan

    def package(self, best: Best, reason: Reason) -> Result:
        objective, geometry = self.objective, self.problem.geometry
        x, note = best.x, ""
        kept, defect = examined(geometry, x)
        if not kept:
            # Only unconverged points come here, and the function is not called any more.
            note = f" (value and gradient: before a restoration from {defect:.1e})"
            x = feasible(geometry, x)
            defect = geometry.defect(x)
            self.restorations += 1
        gradient, expected = best.G, self._expected_at(best)
        if reason.status is Status.CONVERGED and math.isfinite(expected):
            note += f"; f is expected to fall by {expected:.1e} more"
        if objective.scale != 1.0:
            gradient = geometry.combine(1.0 / objective.scale, best.G, 0.0, best.G)
        gradient = objective.structured(ambient(geometry, best.x, gradient))
        return Result(
            x=objective.user_point(x),
            fun=best.f / objective.scale,
            grad=gradient,
            jac=gradient,  # SciPy's name for it
            gradient_norm=best.norm / objective.scale,
            feasibility=defect,
            nit=self.nit,
            nfev=objective.nfev,
            njev=objective.njev,
            nhev=objective.nhev,
            restarts=self.restarts,
            restorations=self.restorations,
            success=reason.status is Status.CONVERGED,
            status=reason.status,
            message=f"{reason.status.name}: {reason.message}{note}",
            history=self.history,
            seconds=self.elapsed(),
            expected_decrease=expected,
        )
