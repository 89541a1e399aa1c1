"""Which runs a benchmark consists of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .problems import PROBLEMS
from .runs import Run
from .solvers import ALL, Solver


@dataclass(frozen=True)
class Extent:
    """What to compare; empty sequences mean everything."""

    quick: bool = False
    problems: Sequence[str] = ()
    solvers: Sequence[str] = ()
    starts: int = 1
    patience: float = 1.0  # times every limit


def check(extent: Extent) -> None:
    """Raise an error that says which name is wrong."""
    for kind, given, known in (
        ("problem", extent.problems, PROBLEMS),
        ("solver", extent.solvers, ALL),
    ):
        for name in given:
            if name not in known:
                raise ValueError(f"unknown {kind} {name!r}; known: {', '.join(known)}")
    if extent.starts < 1 or not extent.patience > 0:
        raise ValueError("the number of starts and the patience must be positive")


def plan(extent: Extent) -> tuple[list[Run], list[str]]:
    """The runs, the first start of everything first; and what is left out, in sentences."""
    check(extent)
    left_out: dict[str, None] = {}
    solvers = [s for s in ALL.values() if not extent.solvers or s.name in extent.solvers]
    present: list[Solver] = []
    for solver in solvers:
        missing = solver.missing()
        if missing is None:
            present.append(solver)
        else:
            left_out[missing] = None
    runs = []
    for start in range(extent.starts):
        for problem in PROBLEMS.values():
            wanted = problem.name in extent.problems or not extent.problems
            if not wanted or (not extent.problems and problem.quick != extent.quick):
                continue
            for solver in present:
                if not solver.ours and not problem.peers:
                    continue
                refusal = solver.refuses(problem)
                if refusal is not None:
                    left_out.setdefault(refusal + ".")
                    continue
                limit = problem.limit * solver.patience * extent.patience
                runs.append(Run(problem.name, solver.name, start, limit))
    return runs, list(left_out)
