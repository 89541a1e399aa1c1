"""The report of a benchmark: a summary, a table for each problem, the profiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median
from typing import Any

from stiefel_experiments.engine import Report, Spec
from stiefel_experiments.records import Record
from stiefel_experiments.rendering import Table, bullets, new_axes, save

from .measures import (
    Cell,
    Cells,
    Cost,
    best,
    cells,
    evaluations,
    higher,
    profile,
    seconds,
    shared_starts,
    staircase,
)
from .problems import PROBLEMS
from .runs import FORMAT, Extent, Run, execute, lost, plan, run_of
from .solvers import ALL

SUMMARY = ("problem", "auto: evaluations", "auto: CPU s", "fewest evaluations", "auto / fewest",
           "other libraries' fewest", "other libraries' fastest", "fastest / auto")  # fmt: skip
DETAIL = ("solver", "converged", "evaluations", "values", "gradients", "Hessian products",
          "CPU s", "CPU s in f", "‖XᵀX − I‖")  # fmt: skip
COSTS = ("values", "gradients", "hessian_products", "cpu_seconds", "function_seconds")
WORDS = {
    "STOPPED": "stopped by itself",
    "TIME_LIMIT": "not within the limit",
    "FAILED": "failed",
}
NEAR = 10.0
NOTES = (
    "¹ solves eigenproblems only: shown for scale, in no comparison.  "
    "² told the largest curvature at the solution.  "
    "³ ended at a stationary point with a higher value than another solver's, on some start.  "
    "Numbers in brackets were spent without success."
)
COLOURS = {
    "stiefel": ("#0072b2", "#56b4e9", "#003f6b", "#7a9cc6", "#3d6a99", "#9ecae1", "#08519c",
                "#4292c6", "#6baed6"),
    "pymanopt": ("#d55e00", "#e69f00", "#a63603", "#fdae6b"),
    "geoopt": ("#009e73", "#66c2a4"),
    "cdopt": ("#cc79a7", "#8e4585"),
    "scipy": ("#555555",),
}  # fmt: skip
MEASURES: dict[str, tuple[Cost, str]] = {
    "evaluations": (evaluations, "evaluations (points and Hessian products)"),
    "cpu": (seconds, "CPU seconds"),
}
END = 100.0


def benchmark(extent: Extent | None = None) -> tuple[Spec[Run], list[str]]:
    """The comparison as an experiment; and what is left out of it, in sentences."""
    runs, left_out = plan(extent or Extent())
    spec = Spec("bench", runs, FORMAT, execute, report, lambda run: run.solver == "auto", lost)
    return spec, left_out


def report(found: Sequence[Record]) -> Report:
    """bench.md and the two profiles, as PNG and SVG."""
    table, shared = cells(found), cells(shared_starts(found))
    summary, said = Table(SUMMARY, tuple(summary_rows(shared))), verdicts(table, shared)
    parts = ["# Results\n", bullets(said), summary.markdown()]
    parts += [_detail(problem, table, found) for problem in problems_of(table)]
    text = "\n".join([*parts, "Measured with\n", bullets(_environments(found)) + f"\n{NOTES}\n"])
    files = {"bench.md": text.encode()}
    for measure in MEASURES:
        files |= save(f"profile-{measure}", draw(found, measure), dpi=130)
    return Report("Benchmark", summary, said, (), files)


def problems_of(table: Cells) -> list[str]:
    return list(dict.fromkeys(problem for problem, _ in table))


def summary_rows(table: Cells) -> list[tuple[str, ...]]:
    """One row a problem: `auto` beside the best general-purpose method and the best of others."""
    rows: list[tuple[str, ...]] = []
    for problem in problems_of(table):
        auto = table.get((problem, "auto"))
        fewest = best(problem, table, evaluations, lambda s: s.general)
        theirs = best(problem, table, evaluations, lambda s: s.rival)
        fastest = best(problem, table, seconds, lambda s: s.rival)
        last = (f"{_cost(fastest, seconds)} {_name(fastest)}", _ratio(fastest, auto, seconds))
        if fastest is None and (spent := _seconds_without_success(problem, table)):
            bound = "–" if not (auto and auto.good) else f"> {spent / auto.median(seconds):.3g}"
            last = (f"none within {spent:g} s", bound)
        rows.append((
            problem,
            _cost(auto, evaluations),
            _cost(auto, seconds),
            f"{_cost(fewest, evaluations)} {_name(fewest)}",
            _ratio(auto, fewest, evaluations),
            f"{_cost(theirs, evaluations)} {_name(theirs)}",
            *last,
        ))  # fmt: skip
    return rows


def _seconds_without_success(problem: str, table: Cells) -> float:
    """The CPU seconds that the other libraries' methods had, where none of them succeeded."""
    rivals = [c for (p, s), c in table.items() if p == problem and ALL[s].rival]
    late = [r for cell in rivals for r in cell.records if r["status"] == "TIME_LIMIT"]
    return max((run_of(record).limit for record in late), default=0.0)


def verdicts(table: Cells, shared: Cells) -> list[str]:
    """The claims that the records can decide: convergence from all starts, ratios from shared."""
    autos = {p: table[p, "auto"] for p in problems_of(table) if (p, "auto") in table}
    failed = [p for p, cell in autos.items() if len(cell.good) < len(cell.records)]
    least = {p: best(p, shared, evaluations, lambda s: s.general) for p in autos}
    ratios = {
        p: shared[p, "auto"].median(evaluations) / cell.median(evaluations)
        for p, cell in least.items()
        if cell is not None
    }
    if not ratios:
        return ["`auto` was not run"]
    behind = [f"{problem} ({ratio:.2f}×)" for problem, ratio in ratios.items() if ratio > 1.5]
    return [
        f"`auto` converged on every start of {len(autos) - len(failed)} problems of "
        f"{len(autos)}" + (f"; not on {', '.join(failed)}" if failed else ""),
        f"`auto` is within 1.5× of the fewest evaluations of any general-purpose method on "
        f"{len(ratios) - len(behind)} problems of {len(ratios)}"
        + (f"; behind on {', '.join(behind)}" if behind else ""),
        _near_misses(table),
    ]


def _near_misses(table: Cells) -> str:
    """How many of the others' failures are a matter of the last digits."""
    failures = [
        (record, PROBLEMS[problem].rtol)
        for (problem, solver), cell in table.items()
        if ALL[solver].rival
        for record in cell.records
        if record["status"] != "CONVERGED"
    ]
    near = sum((r["relative_gradient"] or 1.0) <= NEAR * rtol for r, rtol in failures)
    late = sum(r["status"] == "TIME_LIMIT" for r, _ in failures)
    return (
        f"of {len(failures)} runs of other libraries that did not reach the tolerance, {near} came "
        f"within {NEAR:g}× of it, where differences of f are rounding; {late} met their limit"
    )


def _detail(problem: str, table: Cells, found: Sequence[Record]) -> str:
    mine = [cell for (name, _), cell in table.items() if name == problem]
    mine.sort(key=lambda cell: (not cell.good, cell.median(evaluations)))
    rows, spec = tuple(_row(cell, found) for cell in mine), PROBLEMS[problem]
    starts = max(len(cell.records) for cell in mine)
    return (
        f"## {problem}\n\n{spec.title}; to {spec.rtol:g} of the first gradient norm; "
        f"{starts} start{'s' * (starts > 1)}.\n\n{Table(DETAIL, rows).markdown()}"
    )


def _row(cell: Cell, found: Sequence[Record]) -> tuple[str, ...]:
    solver, good = ALL[cell.solver], cell.good
    notes = ["¹"] * (not solver.general) + ["²"] * solver.oracle
    notes += ["³"] * any(higher(record, found) for record in good)
    label = solver.label + "".join(notes)
    if not good:
        return (label, *_unsolved(cell.records[0]))
    columns = [median(float(record[name]) for record in good) for name in COSTS]
    defect = max(float(record["feasibility"]) for record in good)
    share, costs = f"{len(good)}/{len(cell.records)}", (cell.median(evaluations), *columns)
    return (label, share, *map(_number, costs), f"{defect:.0e}")


def _unsolved(record: Record) -> list[str]:
    """What was spent, and how far it led."""
    words = str(WORDS.get(record["status"], record["status"]))
    if record["status"] == "TIME_LIMIT":
        words += f" of {run_of(record).limit:g} CPU s"
    if record["relative_gradient"] is not None:
        words += f", reached {record['relative_gradient']:.1e}"
    spent = [evaluations(record), *(record[name] for name in COSTS)]
    return [words, *(f"({_number(x)})" if x is not None else "" for x in spent), ""]


def _environments(found: Sequence[Record]) -> list[str]:
    lines: dict[str, None] = {}
    for record in found:
        about = record.get("environment") or {}
        versions, machine = about.get("versions", {}), about.get("machine", {})
        text = ", ".join(f"{name} {version}" for name, version in versions.items())
        lines[f"{text}; {machine.get('processor')}, {machine.get('blas')}, one thread"] = None
    return list(lines)


def _name(cell: Cell | None) -> str:
    return "" if cell is None else f"({ALL[cell.solver].label})"


def _cost(cell: Cell | None, cost: Cost) -> str:
    return "–" if cell is None or not cell.good else _number(cell.median(cost))


def _ratio(a: Cell | None, b: Cell | None, cost: Cost) -> str:
    if a is None or b is None or not a.good or not b.good:
        return "–"
    return f"{a.median(cost) / max(b.median(cost), 1e-9):.2f}"


def _number(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return ""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def draw(found: Sequence[Record], measure: str) -> Any:
    """Performance profiles: the axes of a new matplotlib figure."""
    cost, words = MEASURES[measure]
    present = {run_of(record).solver for record in found}
    solvers = [s.name for s in ALL.values() if s.general and s.name in present]
    axes, used = new_axes(9.0, 5.2), dict.fromkeys(COLOURS, 0)
    for name, (ratios, total) in profile(found, cost, solvers).items():
        solver = ALL[name]
        palette, shade = COLOURS[solver.library], used[solver.library]
        used[solver.library] += 1
        axes.plot(
            *staircase([r for r in ratios if r < END], total, END),
            color=palette[shade % len(palette)], linewidth=2.6 if name == "auto" else 1.3,
            linestyle="-" if solver.ours else "--", label=f"{solver.label} ({len(ratios)}/{total})",
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_xlim(1.0, END)
    axes.set_ylim(0.0, 1.02)
    axes.set_xlabel(f"τ: {words} as a multiple of the best solver's")
    axes.set_ylabel("share of the problems solved within τ")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return axes
