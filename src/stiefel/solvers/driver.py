"""The only loop: clock, counters, stopping, history, callbacks, checkpoints.

A solver is `init` and `step`; everything else that a run needs happens here, so that the columns
of a table mean the same for every solver.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from stiefel.interop.functions import CountedObjective, EvaluationLimit

from .checkpoint import Checkpoint, Saved
from .history import History, Record
from .problem import Local, Problem
from .result import Result, Status
from .stopping import Progress, Reason, Rule

Array = Any

PATIENCE = 100  # iterations without progress, plus half of those done, before giving up
IMPROVEMENT = 0.9  # a gradient norm smaller by this factor is progress
WINDOW = 10  # iterations over which the relative decrease of f is measured
MAX_RESTORATIONS = 3
HINTS = {Status.STEP_NOT_FOUND: " (stiefel.check_gradient tells whether the gradient is right)"}
# What a checkpoint keeps of a run beside state and history.
COUNTERS = (
    "nit",
    "restarts",
    "restorations",
    "initial_f",
    "initial_norm",
    "best",
    "last_progress",
    "reference_norm",
    "reference_f",
)


class SolverState(Protocol):
    """What the driver reads of a solver's state."""

    x: Array
    local: Local
    gamma: float
    k: int
    restarted: bool
    blind: bool
    failure: Status | None


class Solver(Protocol):
    def init(self, problem: Problem, x: Array) -> Any: ...

    def step(self, problem: Problem, s: Any) -> Any: ...


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


@dataclass
class Run:
    """Everything about a run that is not the solver's business."""

    problem: Problem
    solver: Solver
    stop: Rule
    objective: CountedObjective
    callback: Callable[[Snapshot], Any] | None = None
    observer: Callable[[Snapshot], None] | None = None
    checkpoint: Checkpoint | None = None
    ranks: Any = None  # of a run on several machines
    history: History = field(default_factory=History)
    nit: int = 0
    restarts: int = 0
    restorations: int = 0
    seconds_before: float = 0.0  # of earlier, interrupted parts of the run
    initial_f: float = math.nan
    initial_norm: float = math.nan
    best: Best | None = None
    last_progress: int = 0
    reference_norm: float = math.inf  # as of the last progress
    reference_f: float = math.inf

    def __post_init__(self) -> None:
        self._clock: Callable[[], float] = self.ranks.clock if self.ranks else time.perf_counter
        self._started = self._clock()
        self._completed: tuple[Any, dict[str, Any], int] | None = None

    @property
    def seconds(self) -> float:
        return self.seconds_before + self._clock() - self._started

    # -- the loop --------------------------------------------------------------------------

    def start(self, x0: Array) -> Result:
        """Minimise from x0."""
        return self._guard(lambda: self._loop(self._begin(x0)))

    def resume(self, saved: Saved) -> Result:
        """Go on after the iteration that was saved."""
        for name in COUNTERS:
            setattr(self, name, saved.counters[name])
        self.history, self.seconds_before = saved.history, saved.seconds
        self._note_completed(saved.state)
        return self._guard(lambda: self._loop(saved.state))

    def _begin(self, x0: Array) -> SolverState:
        state = self.solver.init(self.problem, x0)
        self.initial_f, self.initial_norm = state.local.f, state.local.norm
        self._record(state)
        return state

    def _guard(self, run: Callable[[], Result]) -> Result:
        """However the run ends, its last completed iteration is saved."""
        try:
            result = run()
        except BaseException as error:
            if self.ranks is None or self.ranks.raised_everywhere(error):
                self._attach_best(error)
                self._save()  # otherwise both would wait for ranks that are not coming
            raise
        self._save()
        if self.checkpoint is not None and self.checkpoint.error is not None:
            result.message += f" (the checkpoint was not written: {self.checkpoint.error})"
        return result

    def _loop(self, state: SolverState) -> Result:
        while (reason := self._reason(state)) is None:
            if self.checkpoint is not None and self.checkpoint.due():
                self._save()
            try:
                state = self.solver.step(self.problem, state)
            except EvaluationLimit:
                return self._result(state, self._evaluations_reached())
            self.nit += 1
            self.restarts += state.restarted
            self._record(state)
        if reason.status is Status.CONVERGED:
            return self._confirm(state, reason)
        return self._result(state, reason)

    def _reason(self, state: SolverState) -> Reason | None:
        local = state.local
        if not local.finite:
            return Reason(
                Status.NOT_FINITE,
                f"f = {local.f}, gradient norm {local.norm} in iteration {self.nit}",
            )
        if reason := self.stop.reason(self._progress(local)):
            return reason
        if state.failure is not None:
            hint = HINTS.get(state.failure, "")
            return Reason(state.failure, f"{state.failure.value}{hint}: {self._reached()}")
        if self.nit - self.last_progress > PATIENCE + self.nit // 2:
            # Where f could be read, rounding is no excuse.
            return Reason(
                Status.ROUNDING_LIMIT if state.blind else Status.STEP_NOT_FOUND,
                f"no measurable progress in {self.nit - self.last_progress} iterations: "
                + self._reached(),
            )
        if self.callback is not None and self.callback(self.snapshot(state)) is True:
            return Reason(Status.STOPPED_BY_CALLBACK, "the callback returned True")
        return None

    def _confirm(self, state: SolverState, reason: Reason) -> Result:
        """Success only if the point to be returned is feasible and meets the tolerance itself."""
        geometry = self.problem.geometry
        if is_feasible(geometry, state.x):
            return self._result(state, reason)
        if self.restorations >= MAX_RESTORATIONS:
            return self._result(state, Reason(Status.ROUNDING_LIMIT, self._reached()))
        try:
            state = self.solver.init(self.problem, feasible(geometry, state.x))
        except EvaluationLimit:
            return self._result(state, self._evaluations_reached())
        self.restorations += 1
        self._record(state)
        return self._loop(state)

    # -- bookkeeping -----------------------------------------------------------------------

    def _record(self, state: SolverState) -> None:
        local, scale = state.local, self.objective.scale
        self.history.append(
            Record(
                local.f / scale,
                local.norm / scale,
                state.gamma * scale,
                state.k,
                self.objective.nfev,
                self.objective.njev,
                self.seconds,
                state.restarted,
                local.ray.defect,
                self.objective.nhev,
            )
        )
        self._keep_best(state)
        self._note_completed(state)
        if self.observer is not None:
            self.observer(self.snapshot(state))

    def _note_completed(self, state: SolverState) -> None:
        """One assignment, so that an interrupt finds this iteration or the one before."""
        if self.checkpoint is not None:
            counters = {name: getattr(self, name) for name in COUNTERS}
            self._completed = state, counters, len(self.history)

    def _save(self) -> None:
        if self.checkpoint is None or self._completed is None:
            return
        state, counters, size = self._completed
        rows = self.history.as_array()[:size]
        # Evaluations of an iteration that was cut short will be made, and counted, again.
        nfev, njev = int(rows["nfev"][-1]), int(rows["njev"][-1])
        scale, seconds = self.objective.scale, self.seconds
        self.checkpoint.save(Saved(state, History(rows), counters, nfev, njev, scale, seconds))

    def _keep_best(self, state: SolverState) -> None:
        local = state.local
        if not local.finite:
            return
        noise = max(self.problem.noise(local.f), getattr(state, "noise", 0.0))
        fell = not state.blind and local.f < self.reference_f - noise
        if fell or local.norm < IMPROVEMENT * self.reference_norm:
            self.last_progress = self.nit
            self.reference_f = min(local.f, self.reference_f)
            self.reference_norm = min(local.norm, self.reference_norm)
        best = self.best
        if (
            best is None
            or local.f < best.f - noise
            or (local.f <= best.f + noise and local.norm < best.norm)
        ):
            self.best = Best(state.x, local.f, local.norm, local.G)

    def _progress(self, local: Local) -> Progress:
        decrease = math.inf
        if self.nit >= WINDOW:
            values = self.history._rows["value"][: len(self.history)]
            f = values[-1]
            decrease = (values[-1 - WINDOW :].max() - f) / max(abs(f), 1.0)
        scale = self.objective.scale
        return Progress(
            self.nit,
            self.objective.nfev,
            self.seconds,
            local.f / scale,
            local.norm / scale,
            self.initial_norm / scale,
            decrease,
        )

    def _evaluations_reached(self) -> Reason:
        message = f"{self.objective.nfev} evaluations reached the limit"
        return Reason(Status.MAX_EVALUATIONS, message)

    def _reached(self) -> str:
        norm = self.best.norm if self.best is not None else math.nan
        relative = norm / self.initial_norm if self.initial_norm else 0.0
        norm /= self.objective.scale
        return f"the gradient norm reached {norm:.2e}, {relative:.1e} of the initial one"

    def snapshot(self, state: SolverState) -> Snapshot:
        scale = self.objective.scale
        return Snapshot(
            self.objective.user_point(state.x),
            state.local.f / scale,
            state.local.norm / scale,
            state.gamma * scale,
            self.nit,
            self.objective.nfev,
            self.objective.njev,
            self.restarts,
            self.seconds,
        )

    # -- results ---------------------------------------------------------------------------

    def _result(self, state: SolverState, reason: Reason) -> Result:
        local = state.local
        best = Best(state.x, local.f, local.norm, local.G)
        if reason.status is not Status.CONVERGED and self.best is not None:
            best = self.best
        return self._package(best, reason)

    def _package(self, best: Best, reason: Reason) -> Result:
        objective, geometry = self.objective, self.problem.geometry
        x, note = best.x, ""
        if not is_feasible(geometry, x):
            # Only unconverged points come here, and the function is not called any more.
            x = feasible(geometry, x)
            note = f" (value and gradient: before a restoration from {geometry.defect(best.x):.1e})"
            self.restorations += 1
        gradient = best.G
        if objective.scale != 1.0:
            gradient = geometry.combine(1.0 / objective.scale, best.G, 0.0, best.G)
        return Result(
            x=objective.user_point(x),
            fun=best.f / objective.scale,
            grad=objective.user_point(gradient),
            gradient_norm=best.norm / objective.scale,
            feasibility=geometry.defect(x),
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
            seconds=self.seconds,
        )

    def _attach_best(self, error: BaseException) -> None:
        """An exception propagates with the best point as ``error.partial_result``."""
        if self.best is None:
            return
        message = f"{type(error).__name__} in iteration {self.nit}: {self._reached()}"
        reason = Reason(Status.INTERRUPTED, message)
        error.partial_result = self._package(self.best, reason)  # type: ignore[attr-defined]
        error.add_note(
            f"stiefel: iteration {self.nit}; the best point so far is in the exception's "
            "partial_result attribute"
        )


def is_feasible(geometry: Any, x: Array) -> bool:
    """Whether every matrix of x keeps the promise ‖XᴴX − I‖ ≤ 10 eps √k of its own precision."""
    factors = getattr(geometry, "factors", None)
    if factors is None:
        return bool(geometry.defect(x) <= geometry.allowed_defect(x))
    return all(map(is_feasible, factors, x))


def feasible(geometry: Any, x: Array) -> Array:
    """x, brought back where it must be: cheaply, or by the polar factor."""
    factors = getattr(geometry, "factors", None)
    if factors is not None:
        return tuple(map(feasible, factors, x))
    if is_feasible(geometry, x):
        return x
    restored = geometry.restore(x)
    return restored if is_feasible(geometry, restored) else geometry.restore(geometry.nearest(x))
