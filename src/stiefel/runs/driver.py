"""The only loop: stopping, callbacks, checkpoints; its books are kept in `ledger`.

A solver is `init` and `step`; everything else that a run needs happens here, so that the columns
of a table mean the same for every solver.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from stiefel.backends.arrays import is_true
from stiefel.function.counted import EvaluationLimit
from stiefel.geometry.feasibility import feasible, is_feasible
from stiefel.solvers import doubt
from stiefel.types import Array, Gradient, Solver

from . import kinks
from .checkpoint import Checkpoint, Saved
from .ledger import COUNTERS, History, Ledger, Snapshot, SolverState
from .result import Result, Status
from .stopping import Reason, Rule

PATIENCE = 100  # iterations without progress, plus half of those done, before giving up
MAX_RESTORATIONS = 3
HINTS = {Status.STEP_NOT_FOUND: " (stiefel.check_gradient tells whether the gradient is right)"}


def asks_to_stop(callback: Callable[[Snapshot], Any], snapshot: Snapshot) -> bool:
    """Whether the user's callback returns True, of any library, or raises StopIteration."""
    try:
        answer = callback(snapshot)
    except StopIteration:  # as in SciPy
        return True
    return answer is not None and answer is not False and is_true(answer)


@dataclass
class Run:
    """A solver at work."""

    ledger: Ledger
    solver: Solver
    stop: Rule
    callback: Callable[[Snapshot], Any] | None = None
    observer: Callable[[Snapshot], None] | None = None
    checkpoint: Checkpoint | None = None
    smooth: bool = True  # f is said to be: kinks are worth a word

    def __post_init__(self) -> None:
        self.problem, self.ranks = self.ledger.problem, self.ledger.ranks
        self._completed: tuple[Any, dict[str, Any], int] | None = None
        self._shorter = 0.0  # steps, by this factor, at kinks

    # -- the loop --------------------------------------------------------------------------

    def start(self, box: list[Array]) -> Result:
        """Minimise from the point in the box; it is taken out, so that nobody holds on to it."""
        return self._guard(lambda: self._loop(self._begin(box.pop())))

    def resume(self, saved: Saved) -> Result:
        """Go on after the iteration that was saved."""
        for name in COUNTERS:
            setattr(self.ledger, name, saved.counters[name])
        self.ledger.history, self.ledger.seconds_before = saved.history, saved.seconds
        self._note_completed(saved.state)
        return self._guard(lambda: self._loop(saved.state))

    def _begin(self, x0: Array) -> SolverState:
        state = self.solver.init(self.problem, x0)
        self.ledger.initial_f, self.ledger.initial_norm = state.at.f, state.at.norm
        if self.checkpoint is not None:
            self.ledger.initial_gradient = state.at.G
        self._record(state)
        return state

    def _guard(self, run: Callable[[], Result]) -> Result:
        """However the run ends, its last completed iteration is saved."""
        try:
            result = run()
        except BaseException as error:
            if self.ranks.raised_everywhere(error):
                # On other ranks both would wait for ranks that are not coming.  Nothing that goes
                # wrong here takes the place of the user's exception.
                with suppress(Exception):
                    self._save()
                with suppress(Exception):  # not every exception takes attributes
                    self._attach_best(error)
            raise
        self._save()
        if self.checkpoint is not None and self.checkpoint.error is not None:
            result.message += f" (the checkpoint was not written: {self.checkpoint.error})"
        return result

    def _loop(self, state: SolverState) -> Result:
        ledger, step, problem = self.ledger, self.solver.step, self.problem
        while (reason := self._reason(state)) is None:
            if self.checkpoint is not None and self.checkpoint.due():
                self._save()
            before = state.at
            try:
                state = step(problem, state)
            except EvaluationLimit:
                return ledger.result(state, ledger.evaluations_reached())
            ledger.nit += 1
            ledger.restarts += state.restarted
            self._record(state)
            if self.smooth and not ledger.nit % kinks.KINK_WINDOW:
                self._look_for_kinks(before, state)
            del before  # a tall array
        if reason.status is Status.CONVERGED:
            return self._confirm(state, reason)
        return ledger.result(state, reason)

    def _reason(self, state: SolverState) -> Reason | None:
        at = state.at
        if not at.finite:
            return Reason(
                Status.NOT_FINITE,
                f"f = {at.f}, gradient norm {at.norm} in iteration {self.ledger.nit}",
            )
        if reason := self.stop.reason(self.ledger.progress(state)):
            return reason
        if state.failure is not None:
            hint = HINTS.get(state.failure, "")
            return Reason(state.failure, f"{state.failure.value}{hint}: {self.ledger.reached()}")
        if self._shorter:
            return Reason(Status.STEP_NOT_FOUND, kinks.KINKS_FOUND.format(self._shorter))
        idle = self.ledger.nit - self.ledger.last_progress
        if idle > PATIENCE + self.ledger.nit // 2:
            # Where f could be read, rounding is no excuse.
            return Reason(
                Status.ROUNDING_LIMIT if state.watch.blind else Status.STEP_NOT_FOUND,
                f"no measurable progress in {idle} iterations: {self.ledger.reached()}",
            )
        if self.callback is not None and asks_to_stop(self.callback, self.ledger.snapshot(state)):
            return Reason(Status.STOPPED_BY_CALLBACK, "the callback returned True")
        return None

    def _look_for_kinks(self, before: Gradient, state: SolverState) -> None:
        values, norms = map(self.ledger.history.rows, ("value", "gradient_norm"))
        shorter = kinks.shortening(values, norms, self.ledger.noise(state))
        if shorter >= kinks.SHORTENED and kinks.jumps(self.problem, before, state.at):
            self._shorter = shorter

    def _confirm(self, state: SolverState, reason: Reason) -> Result:
        """Success only if the point to be returned is feasible and meets the tolerance itself."""
        geometry = self.problem.geometry
        if is_feasible(geometry, state.x):
            return self._checked(state, reason)
        if self.ledger.restorations >= MAX_RESTORATIONS:
            return self.ledger.result(state, Reason(Status.ROUNDING_LIMIT, self.ledger.reached()))
        try:
            again = self.solver.init(self.problem, feasible(geometry, state.x))
        except EvaluationLimit:
            return self.ledger.result(state, self.ledger.evaluations_reached())
        self.ledger.restorations += 1
        state = again._replace(watch=state.watch)  # what was seen of f is still true
        self._record(state)
        return self._loop(state)

    def _checked(self, state: SolverState, reason: Reason) -> Result:
        """The result of a run that has converged, unless values contradict its gradient."""
        ledger, at = self.ledger, state.at
        if not doubt.in_doubt(self.problem, at, state.watch):
            return ledger.result(state, reason)
        progress, scale = ledger.progress(state), ledger.objective.scale

        def is_success(norm: float) -> bool:
            found = self.stop.reason(progress._replace(gradient_norm=norm / scale))
            return found is not None and found.status is Status.CONVERGED

        try:
            slope = doubt.contradicting_derivative(self.problem, state.x, at, is_success)
        except EvaluationLimit:
            return ledger.result(state, ledger.evaluations_reached())
        if slope:
            words = doubt.CONTRADICTION.format(at.norm / scale, abs(slope) / scale)
            reason = Reason(Status.STEP_NOT_FOUND, words)
        return ledger.result(state, reason)

    def _record(self, state: SolverState) -> None:
        self.ledger.record(state)
        if self.checkpoint is not None:
            self._note_completed(state)
        if self.observer is not None:
            self.observer(self.ledger.snapshot(state))

    # -- what is left when a run is cut short ----------------------------------------------

    def _note_completed(self, state: SolverState) -> None:
        """One assignment, so that an interrupt finds this iteration or the one before."""
        counters = {name: getattr(self.ledger, name) for name in COUNTERS}
        self._completed = state, counters, len(self.ledger.history)

    def _save(self) -> None:
        if self.checkpoint is None or self._completed is None:
            return
        state, counters, size = self._completed
        rows = self.ledger.history.as_array()[:size]
        # Evaluations of an iteration that was cut short will be made, and counted, again.
        nfev, njev = int(rows["nfev"][-1]), int(rows["njev"][-1])
        scale, seconds = self.ledger.objective.scale, self.ledger.elapsed()
        self.checkpoint.save(Saved(state, History(rows), counters, nfev, njev, scale, seconds))

    def _attach_best(self, error: BaseException) -> None:
        """An exception propagates with the best point as ``error.partial_result``."""
        if self.ledger.best is None:
            return
        message = f"{type(error).__name__} in iteration {self.ledger.nit}: {self.ledger.reached()}"
        reason = Reason(Status.INTERRUPTED, message)
        error.partial_result = self.ledger.package(self.ledger.best, reason)  # type: ignore[attr-defined]
        error.add_note(
            f"stiefel: iteration {self.ledger.nit}; the best point so far is in the exception's "
            "partial_result attribute"
        )
