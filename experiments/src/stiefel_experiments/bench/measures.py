"""From records to comparisons: costs over starts, ratios to the best, performance profiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from stiefel_experiments.records import Record

from .problems import PROBLEMS
from .runs import run_of
from .solvers import ALL, Solver

HIGHER = 1e-6  # a value higher by more than this, relatively, is another stationary point

Cost = Callable[[Record], float]
Profile = dict[str, tuple[list[float], int]]


def evaluations(record: Record) -> float:
    """Points at which f or its gradient was evaluated, plus products with the Hessian."""
    return float(record["points"] or 0) + float(record["hessian_products"] or 0)


def seconds(record: Record) -> float:
    return float(record["cpu_seconds"] or 0.0)


def converged(record: Record) -> bool:
    return bool(record["status"] == "CONVERGED")


@dataclass(frozen=True)
class Cell:
    """All starts of one solver on one problem; medians over the starts that converged."""

    problem: str
    solver: str
    records: tuple[Record, ...]

    @property
    def good(self) -> list[Record]:
        return [r for r in self.records if converged(r)]

    def median(self, cost: Cost) -> float:
        return median(map(cost, self.good)) if self.good else math.inf


Cells = dict[tuple[str, str], Cell]  # by problem and solver


def cells(found: Sequence[Record]) -> Cells:
    """In the order of the records."""
    by_key: dict[tuple[str, str], list[Record]] = {}
    for record in found:
        run = run_of(record)
        if run.solver in ALL and run.problem in PROBLEMS:
            by_key.setdefault((run.problem, run.solver), []).append(record)
    return {key: Cell(*key, tuple(value)) for key, value in by_key.items()}


def shared_starts(found: Sequence[Record]) -> list[Record]:
    """The records whose start every general-purpose solver that converges ran on that problem.

    Comparisons use these only: no solver is compared on a start that another one did not have.  A
    solver that converged on no start of a problem is never the best there: it need not be repeated.
    """
    starts: dict[str, dict[str, set[int]]] = {}
    for (problem, solver), cell in cells(found).items():
        if ALL[solver].general and cell.good:
            ran = {run_of(record).start for record in cell.records}
            starts.setdefault(problem, {})[solver] = ran
    common = {problem: set.intersection(*ran.values()) for problem, ran in starts.items()}
    return [r for r in found if run_of(r).start in common.get(run_of(r).problem, set())]


def best(problem: str, table: Cells, cost: Cost, accept: Callable[[Solver], bool]) -> Cell | None:
    """The cell of least median cost among the solvers accepted, if one of them converged."""
    candidates = [
        cell
        for (name, solver), cell in table.items()
        if name == problem and accept(ALL[solver]) and cell.good
    ]
    return min(candidates, key=lambda cell: cell.median(cost), default=None)


def higher(record: Record, found: Sequence[Record]) -> bool:
    """Whether another run of the same problem and start ended at a clearly smaller value."""
    run = run_of(record)
    same = [
        float(r["value"])
        for r in found
        if converged(r) and (run_of(r).problem, run_of(r).start) == (run.problem, run.start)
    ]
    if not same or record["value"] is None:
        return False
    return bool(record["value"] > min(same) + HIGHER * max(abs(min(same)), 1e-12))


def profile(found: Sequence[Record], cost: Cost, solvers: Sequence[str]) -> Profile:
    """Dolan and Moré's performance profiles; an instance is a problem and a start.

    For each solver the sorted ratios of its cost to the best solver's, over the instances it
    solved, and the number of instances in all: ρ(τ) is the share of ratios ≤ τ.  Instances that one
    of the solvers did not run are left out, unless it cannot be applied: that is not solved.
    """
    costs: dict[tuple[str, int], dict[str, float]] = {}
    for record in found:
        run = run_of(record)
        if run.solver in solvers:
            value = cost(record) if converged(record) else math.inf
            costs.setdefault((run.problem, run.start), {})[run.solver] = value
    full = [
        {solver: row.get(solver, math.inf) for solver in solvers}
        for (problem, _), row in costs.items()
        if all(s in row or ALL[s].refuses(PROBLEMS[problem]) for s in solvers)
    ]
    out: Profile = {}
    for solver in solvers:
        ratios = (
            row[solver] / max(min(row.values()), 1e-12) for row in full if row[solver] < math.inf
        )
        out[solver] = sorted(ratios), len(full)
    return out
