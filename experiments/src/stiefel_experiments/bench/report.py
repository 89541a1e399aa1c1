"""The report of a benchmark: losses first, a summary, a table for each problem, the profiles."""

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
)
from .problems import PROBLEMS
from .runs import FORMAT, Extent, Run, execute, lost, plan, run_of
from .solvers import ALL

SUMMARY = ("problem", "starts", "auto: evaluations", "auto: CPU s", "fewest evaluations",
           "auto / fewest", "other libraries' fewest", "other libraries' fastest",
           "fastest / auto")  # fmt: skip
DETAIL = ("solver", "converged", "evaluations", "values", "gradients", "Hessian products",
          "CPU s", "CPU s in f", "‖XᵀX − I‖")  # fmt: skip
COSTS = ("values", "gradients", "hessian_products", "cpu_seconds", "function_seconds")
WORDS = {"STOPPED": "stopped by itself", "TIME_LIMIT": "time limit", "FAILED": "failed"}
BEHIND = 1.1  # times the best: less is called equal
NEAR = 10.0
NOTES = (
    "Medians are over the starts that converged.  "
    "¹ solves eigenproblems only: shown for scale, in no comparison.  "
    "² told the largest curvature at the solution.  "
    "³ ended at a stationary point with a higher value than another solver's, on some start.  "
    "Numbers in brackets were spent without success on the first start."
)
COLOURS = {"pymanopt": "#d55e00", "geoopt": "#009e73", "cdopt": "#cc79a7", "scipy": "#555555"}
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
        last = (_cost(fastest, seconds), _ratio(fastest, auto, seconds))
        if fastest is None and (spent := _seconds_without_success(problem, table)):
            bound = "–" if not (auto and auto.good) else f"> {spent / auto.median(seconds):.3g}"
            last = (f"none within {spent:g} s", bound)
        starts = str(len(auto.records)) if auto else "–"
        own = [_cost(auto, cost).split(" ")[0] for cost in (evaluations, seconds)]
        rows.append((problem, starts, *own, _cost(fewest, evaluations),
                     _ratio(auto, fewest, evaluations), _cost(theirs, evaluations),
                     *last))  # fmt: skip
    return rows


def _seconds_without_success(problem: str, table: Cells) -> float:
    """The CPU seconds that the other libraries' methods had, where none of them succeeded."""
    rivals = [c for (p, s), c in table.items() if p == problem and ALL[s].rival]
    late = [r for cell in rivals for r in cell.records if r["status"] == "TIME_LIMIT"]
    return max((run_of(record).limit for record in late), default=0.0)


def verdicts(table: Cells, shared: Cells) -> list[str]:
    """What the records decide, losses first: ratios from shared starts, convergence from all."""
    autos = {p: table[p, "auto"] for p in problems_of(table) if (p, "auto") in table}
    if not autos:
        return ["`auto` was not run"]
    failed = [p for p, cell in autos.items() if len(cell.good) < len(cell.records)]
    lines = [_behind(shared, *MEASURES[measure]) for measure in ("cpu", "evaluations")]
    return [
        *lines,
        f"`auto` converged on every start of {len(autos) - len(failed)} problems of "
        f"{len(autos)}" + (f"; not on {', '.join(failed)}" if failed else ""),
        _near_misses(table),
    ]


def _behind(shared: Cells, cost: Cost, words: str) -> str:
    """On how many problems `auto` needs more than the best of all the methods, ours included."""
    worse, compared = [], 0
    for problem in problems_of(shared):
        auto, first = (
            shared.get((problem, "auto")),
            best(problem, shared, cost, lambda s: s.general),
        )
        if auto is not None and auto.good and first is not None:
            compared += 1
            if (ratio := auto.median(cost) / max(first.median(cost), 1e-9)) > BEHIND:
                worse.append(f"{problem} ({ratio:.2f}× {ALL[first.solver].label})")
    return (
        f"{words}: `auto` is more than {BEHIND:g}× behind the best general-purpose method on "
        f"{len(worse)} problems of {compared}" + (f": {', '.join(worse)}" if worse else "")
    )


def _near_misses(table: Cells) -> str:
    """How many of the others' misses are a matter of the last digits, and how many of time."""
    missed = [
        (record, PROBLEMS[problem].rtol)
        for (problem, solver), cell in table.items() if ALL[solver].rival
        for record in cell.records if record["status"] != "CONVERGED"
    ]  # fmt: skip
    late = sum(record["status"] == "TIME_LIMIT" for record, _ in missed)
    near = sum((r["relative_gradient"] or 1.0) <= NEAR * rtol for r, rtol in missed)
    return (
        f"of {len(missed)} runs of other libraries that did not reach the tolerance, {late} met "
        f"their time limit, which is no failure of the method; {near} came within {NEAR:g}× of the "
        "tolerance, where differences of f are rounding"
    )


def _detail(problem: str, table: Cells, found: Sequence[Record]) -> str:
    mine = [cell for (name, _), cell in table.items() if name == problem]
    mine.sort(key=lambda cell: (not cell.good, cell.median(evaluations)))
    rows, spec = tuple(_row(cell, found) for cell in mine), PROBLEMS[problem]
    return (
        f"## {problem}\n\n{spec.title}; to {spec.rtol:g} of the first gradient norm.\n\n"
        f"{Table(DETAIL, rows).markdown()}"
    )


def _row(cell: Cell, found: Sequence[Record]) -> tuple[str, ...]:
    solver, good = ALL[cell.solver], cell.good
    notes = ["¹"] * (not solver.general) + ["²"] * solver.oracle
    notes += ["³"] * any(higher(record, found) for record in good)
    label, share = solver.label + "".join(notes), f"{len(good)}/{len(cell.records)}"
    missed = [record for record in cell.records if record not in good]
    late = [run_of(r).limit for r in missed if r["status"] == "TIME_LIMIT"]
    share += f", {len(late)} × time limit of {max(late):g} CPU s" if late else ""
    if not good:
        return (label, *_unsolved(cell.records[0], share))
    columns = [median(float(record[name]) for record in good) for name in COSTS]
    defect = max(float(record["feasibility"]) for record in good)
    return (label, share, *map(_number, (cell.median(evaluations), *columns)), f"{defect:.0e}")


def _unsolved(record: Record, share: str) -> list[str]:
    """What was spent, and how far it led."""
    if record["status"] != "TIME_LIMIT":
        share += f", {WORDS.get(record['status'], record['status'])}"
    if record["relative_gradient"] is not None:
        share += f", reached {record['relative_gradient']:.1e}"
    spent = [evaluations(record), *(record[name] for name in COSTS)]
    return [share, *(f"({_number(x)})" if x is not None else "" for x in spent), ""]


def _environments(found: Sequence[Record]) -> list[str]:
    lines: dict[str, None] = {}
    for record in found:
        about = record.get("environment") or {}
        versions, machine = about.get("versions", {}), about.get("machine", {})
        text = ", ".join(f"{name} {version}" for name, version in versions.items())
        lines[f"{text}; {machine.get('processor')}, {machine.get('blas')}, one thread"] = None
    return list(lines)


def _cost(cell: Cell | None, cost: Cost) -> str:
    if cell is None or not cell.good:
        return "–"
    return f"{_number(cell.median(cost))} ({ALL[cell.solver].label})"


def _ratio(a: Cell | None, b: Cell | None, cost: Cost) -> str:
    if a is None or b is None or not a.good or not b.good:
        return "–"
    return f"{a.median(cost) / max(b.median(cost), 1e-9):.2f}"


def _number(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return ""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def drawn(found: Sequence[Record]) -> list[str]:
    """`auto`, `lbfgs` and, of each other library, the solver that solved most: six curves."""
    solved: dict[str, tuple[int, str]] = {}
    for cell in cells(found).values():
        solved[cell.solver] = (solved.get(cell.solver, (0, ""))[0] + len(cell.good), cell.solver)
    best_of = {
        library: max((solved[s.name] for s in ALL.values() if s.library == library and s.rival
                      and s.name in solved), default=(0, ""))[1]
        for library in COLOURS
    }  # fmt: skip
    return [name for name in ("auto", "lbfgs", *best_of.values()) if name in solved]


def draw(found: Sequence[Record], measure: str) -> Any:
    """Performance profiles: the axes of a new matplotlib figure."""
    cost, words = MEASURES[measure]
    axes = new_axes(9.0, 5.2)
    for name, (ratios, total) in profile(found, cost, drawn(found)).items():
        near = [r for r in ratios if r < END]
        heights = [i / max(total, 1) for i in range(len(near) + 1)]
        label = f"{ALL[name].label} ({len(ratios)}/{total})"
        width, dashes = 2.6 if name == "auto" else 1.3, "-" if ALL[name].ours else "--"
        colour = COLOURS.get(ALL[name].library, "#0072b2")
        axes.step([1.0, *near, END], [*heights, heights[-1]], where="post", color=colour,
                  linestyle=dashes, linewidth=width, label=label)  # fmt: skip
    axes.set_xscale("log")
    axes.set(xlim=(1.0, END), ylim=(0.0, 1.02), ylabel="share of the runs solved within τ",
             xlabel=f"τ: {words} as a multiple of the best solver's")  # fmt: skip
    axes.set_title(f"Performance profile: {words}", fontsize=11, loc="left")
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return axes
