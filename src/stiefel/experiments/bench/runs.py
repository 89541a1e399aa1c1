"""One run of one solver on one problem from one start, and the record of it."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import asdict, dataclass
from typing import Any

from stiefel.experiments import checked

from .meter import NORM_TOLERANCE, Meter, OutOfTime, Reached
from .problems import PROBLEMS
from .solvers import ALL

Record = dict[str, Any]

RUN_FIELDS: dict[str, checked.Test] = {
    "problem": checked.one_of(*PROBLEMS),
    "solver": checked.text,
    "start": checked.count,
    "limit": checked.number,
}
MEASURED = ("points", "values", "gradients", "hessian_products", "iterations", "cpu_seconds",
            "function_seconds", "value", "relative_gradient", "feasibility")  # fmt: skip
FIELDS: dict[str, checked.Test] = {
    "run": checked.mapping,
    "status": checked.text,
    "message": checked.text,
    **dict.fromkeys(MEASURED, checked.number_or_none),
}
OF_A_POINT = dict.fromkeys(("value", "relative_gradient", "feasibility"), checked.number)


@dataclass(frozen=True)
class Run:
    """What to run; `limit` is in CPU seconds."""

    problem: str
    solver: str
    start: int
    limit: float

    @property
    def key(self) -> tuple[str, str, int]:
        return (self.problem, self.solver, self.start)

    @property
    def order(self) -> tuple[int, int, int]:
        """Where it belongs in a finished record."""
        problems, solvers = list(PROBLEMS), list(ALL)
        known = self.solver in solvers
        return (
            problems.index(self.problem),
            solvers.index(self.solver) if known else len(solvers),
            self.start,
        )


def run_of(record: Record) -> Run:
    return Run(**record["run"])


def check(record: Any) -> None:
    """A ValueError that says what a line of a file lacks to be a record."""
    checked.check(record, FIELDS)
    checked.check(record["run"], RUN_FIELDS, exactly=True)
    if record["status"] == "CONVERGED":
        checked.check(record, OF_A_POINT)
    about = record.get("environment") or {}
    checked.check(about, {})
    checked.check(about, {n: checked.mapping for n in ("versions", "machine") if n in about})


def blank(run: Run, status: str, message: str) -> Record:
    """The record of a run that gave nothing."""
    return {"run": asdict(run), "status": status, "message": message} | dict.fromkeys(MEASURED)


def warm_up(solver: str) -> None:
    """What a library loads at its first use is not on the clock of its first run."""
    if ALL[solver].general:
        execute(Run("quick-procrustes", solver, 0, 1.0))


def execute(run: Run) -> Record:
    """Run it in this process.

    status: CONVERGED (the point meets the tolerance, as measured here), STOPPED (the solver ended
    by itself at a point that does not), TIME_LIMIT or FAILED (an exception).
    """
    problem, solver = PROBLEMS[run.problem], ALL[run.solver]
    solve = solver.load()
    X0 = problem.start(run.start)
    meter = Meter(problem, X0, run.limit, stops=not solver.ours and solver.general)
    X, status, message = None, "STOPPED", ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            X = solve(meter, X0.copy())
    except Reached:
        X = meter.x
    except OutOfTime:
        status, message = "TIME_LIMIT", f"more than {run.limit:g} CPU seconds"
    except Exception as error:  # whatever a library raises is its result
        status, message = "FAILED", f"{type(error).__name__}: {error}"
    seconds = meter.cpu_seconds
    record = blank(run, status, message or meter.message)
    record |= {
        "points": meter.points,
        "values": meter.values,
        "gradients": meter.gradients,
        "hessian_products": round(meter.hessian_products, 1),
        "iterations": meter.iterations,
        "cpu_seconds": round(seconds, 4),
        "function_seconds": round(meter.function_seconds, 4),
        "relative_gradient": _finite(meter.least),
    }
    if X is not None:
        record |= _judge(meter, X, record)
    return record


def _judge(meter: Meter, X: Any, record: Record) -> Record:
    """What is true of the returned point, measured here for every solver alike."""
    relative = meter.relative_norm(X)
    met = relative <= NORM_TOLERANCE * meter.problem.rtol
    return {
        "status": "CONVERGED" if met else record["status"],
        "message": "" if met else record["message"],
        "value": float(meter.problem.objective.value(X)),
        "relative_gradient": _finite(relative),
        "feasibility": _finite(meter.problem.manifold.defect(X)),
    }


def _finite(value: float) -> float | None:
    return float(f"{value:.3e}") if math.isfinite(value) else None


def dump(record: Record) -> str:
    """One line of JSON; what is not finite is null."""
    clean = {k: None if isinstance(v, float) and not math.isfinite(v) else v
             for k, v in record.items()}  # fmt: skip
    return json.dumps(clean, allow_nan=False, ensure_ascii=False)
