"""The runs of a benchmark: one solver on one problem from one start, and the record of it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata
from typing import Any

from stiefel.cli.machine import machine, versions
from stiefel_experiments import records
from stiefel_experiments.records import Format, Record, finite

from .meter import NORM_TOLERANCE, Meter, OutOfTime, Reached
from .problems import PROBLEMS
from .solvers import ALL

MEASURED = ("points", "values", "gradients", "hessian_products", "iterations", "cpu_seconds",
            "function_seconds", "value", "relative_gradient", "feasibility")  # fmt: skip
PEERS = ("pymanopt", "geoopt", "torch", "cdopt")
STARTS = 10
# CPU seconds of a run that any other program disturbs: it is repeated, and its least time counts.
SHORT, REPETITIONS = 0.1, 5


@dataclass(frozen=True)
class Run(records.Run):
    """What to run; `limit` is in CPU seconds."""

    problem: str
    solver: str
    start: int
    limit: float

    def __str__(self) -> str:
        return f"{self.problem}, {self.solver}, start {self.start}"

    @property
    def key(self) -> tuple[str, str, int]:
        return (self.problem, self.solver, self.start)

    @property
    def order(self) -> tuple[int, int, int]:
        solvers = [*ALL, self.solver]  # a solver that is no longer known comes last
        return (list(PROBLEMS).index(self.problem), solvers.index(self.solver), self.start)

    @property
    def lane(self) -> str:
        return ALL[self.solver].library

    def replaces(self, record: Record) -> bool:
        """A run that met a shorter limit than it has now is run again."""
        return bool(record["status"] == "TIME_LIMIT" and record["run"]["limit"] < self.limit)


def _check_more(record: Record) -> None:
    if record["status"] == "CONVERGED":
        records.check(record, {"value relative_gradient feasibility": records.number})
    about = record.get("environment") or {}
    records.check({"environment": about}, {"environment": records.mapping})
    records.check(about, {n: records.mapping for n in ("versions", "machine") if n in about})


FORMAT = Format(
    Run,
    {"problem": records.one_of(*PROBLEMS), "solver": records.text, "start": records.count,
     "limit": records.number},
    {"run": records.mapping, "status message": records.text,
     " ".join(MEASURED): lambda value: value is None or records.number(value)},
    _check_more,
)  # fmt: skip
run_of = FORMAT.run_of


@dataclass(frozen=True)
class Extent:
    """What to compare; empty sequences mean everything, and no number of starts the protocol's."""

    quick: bool = False
    problems: Sequence[str] = ()
    solvers: Sequence[str] = ()
    starts: int | None = None
    patience: float = 1.0  # times every limit

    def __post_init__(self) -> None:
        for kind, given, known in (
            ("problem", self.problems, list(PROBLEMS)),
            ("solver", self.solvers, list(ALL)),
        ):
            if unknown := [name for name in given if name not in known]:
                raise ValueError(f"unknown {kind} {unknown[0]!r}; known: {', '.join(known)}")
        if not self.patience > 0:
            raise ValueError("the patience must be positive")


def plan(extent: Extent) -> tuple[list[Run], list[str]]:
    """The runs, the first start of everything first; and what is left out, in sentences."""
    asked = [s for s in ALL.values() if not extent.solvers or s.name in extent.solvers]
    left_out = dict.fromkeys(why for s in asked if (why := s.missing()) is not None)
    problems = [p for p in PROBLEMS.values() if p.name in extent.problems
                or (not extent.problems and p.quick == extent.quick)]  # fmt: skip
    pairs = []
    for problem in problems:
        for solver in (s for s in asked if s.missing() is None):
            if (why := solver.refuses(problem)) is not None and problem.peers:
                left_out[f"{why}."] = None
            elif solver.ours or problem.peers:
                pairs.append((problem.name, solver.name, problem.limit * extent.patience))
    starts = range(extent.starts or (1 if extent.quick else STARTS))
    return [Run(p, s, start, limit) for start in starts for p, s, limit in pairs], list(left_out)


def blank(run: Run, status: str, message: str) -> Record:
    """The record of a run that gave nothing."""
    about = {"versions": versions() | _peers(), "machine": machine() | {"threads": "1"}}
    head = {"run": asdict(run), "status": status, "message": message}
    return head | dict.fromkeys(MEASURED) | {"environment": about}


def lost(run: Run, why: str) -> Record:
    """A process that hangs or dies costs its run and nothing else."""
    return blank(run, "FAILED", f"the process gave no result: {why}")


def _peers() -> dict[str, str]:
    found = {}
    for package in PEERS:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def execute(run: Run) -> Record:
    """Run it in this process; what a library loads at its first use is not on the clock."""
    if ALL[run.solver].general:
        _warm_up(run.solver)
    record = measure(run)
    if record["status"] != "CONVERGED" or record["cpu_seconds"] > SHORT:
        return record
    others = (measure(run) for _ in range(REPETITIONS - 1))
    return min((record, *others), key=lambda r: r["cpu_seconds"])


@cache
def _warm_up(solver: str) -> None:
    measure(Run("quick-procrustes", solver, 0, 1.0))


def measure(run: Run) -> Record:
    """The record of a run.

    status: CONVERGED (the point meets the tolerance, as measured here), STOPPED (the solver ended
    by itself at a point that does not), TIME_LIMIT or FAILED (an exception).
    """
    problem, solver = PROBLEMS[run.problem], ALL[run.solver]
    solve, X0 = solver.load(), problem.start(run.start)
    meter = Meter(problem, X0, run.limit, stops=solver.rival)
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
    record = blank(run, status, message or meter.message) | {
        "points": meter.points,
        "values": meter.values,
        "gradients": meter.gradients,
        "hessian_products": round(meter.hessian_products, 1),
        "iterations": meter.iterations,
        "cpu_seconds": round(seconds, 4),
        "function_seconds": round(meter.function_seconds, 4),
        "relative_gradient": finite(meter.least),
    }
    return record if X is None else record | _judge(meter, X, record)


def _judge(meter: Meter, X: Any, record: Record) -> Record:
    """What is true of the returned point, measured here for every solver alike."""
    relative = meter.relative_norm(X)
    met = relative <= NORM_TOLERANCE * meter.problem.rtol
    value = float(meter.problem.objective.value(X))
    return {
        "status": "CONVERGED" if met else record["status"],
        "message": "" if met else record["message"],
        "value": value if math.isfinite(value) else None,
        "relative_gradient": finite(relative),
        "feasibility": finite(meter.problem.manifold.defect(X)),
    }
