"""The report of a benchmark: a summary, a table for each problem, the profiles."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from stiefel.experiments.records import write_bytes, write_text

from .measures import Cell, Cost, best, cells, evaluations, higher, seconds, shared_starts
from .plots import MEASURES, draw
from .problems import PROBLEMS
from .runs import Record, run_of
from .solvers import ALL

SUMMARY = ("problem", "auto: evaluations", "auto: CPU s", "fewest evaluations", "auto / fewest",
           "other libraries' fewest", "other libraries' fastest", "fastest / auto")  # fmt: skip
DETAIL = ("solver", "converged", "evaluations", "values", "gradients", "Hessian products",
          "CPU s", "CPU s in f", "‖XᵀX − I‖")  # fmt: skip
WORDS = {
    "STOPPED": "stopped by itself",
    "TIME_LIMIT": "not within the limit",
    "FAILED": "failed",
}
NEAR = 10.0
Table = dict[tuple[str, str], Cell]


@dataclass(frozen=True)
class Report:
    """What the command line shows; the same is in the files."""

    summary: list[list[str]]
    verdicts: list[str]


def write_report(records: Sequence[Record], out: Path) -> tuple[Report, list[Path]]:
    """bench.md and the two profiles, as PNG and SVG."""
    table = cells(records)
    shared = cells(shared_starts(records))
    report = Report(summary(shared), verdicts(table, shared))
    text = [
        "# Results\n",
        *(f"- {verdict}" for verdict in report.verdicts),
        "",
        markdown(SUMMARY, report.summary),
        *(_detail(problem, table, records) for problem in problems_of(table)),
        "Measured with\n",
        *_environments(records),
    ]
    files = [out / "bench.md"]
    write_text(files[0], "\n".join(text) + "\n")
    for measure in MEASURES:
        for suffix, data in draw(records, measure).items():
            files.append(out / f"profile-{measure}.{suffix}")
            write_bytes(files[-1], data)
    return report, files


def problems_of(table: Table) -> list[str]:
    return list(dict.fromkeys(problem for problem, _ in table))


def summary(table: Table) -> list[list[str]]:
    """One row a problem: `auto` beside the best general-purpose method and the best of others."""
    rows = []
    for problem in problems_of(table):
        auto = table.get((problem, "auto"))
        fewest = best(problem, table, evaluations, lambda s: s.general)
        theirs = best(problem, table, evaluations, lambda s: s.general and not s.ours)
        fastest = best(problem, table, seconds, lambda s: s.general and not s.ours)
        spent = _spent(problem, table) if fastest is None else 0.0
        rows.append(
            [
                problem,
                _count(auto, evaluations),
                _time(auto),
                f"{_count(fewest, evaluations)} {_name(fewest)}",
                _ratio(auto, fewest, evaluations),
                f"{_count(theirs, evaluations)} {_name(theirs)}",
                f"none within {spent:g} s" if spent else f"{_time(fastest)} {_name(fastest)}",
                _bound(spent, auto) if spent else _ratio(fastest, auto, seconds),
            ]
        )
    return rows


def _spent(problem: str, table: Table) -> float:
    """The CPU seconds that the other libraries' methods had, where none of them succeeded."""
    return max(
        (
            run_of(record).limit
            for (name, solver), cell in table.items()
            if name == problem and ALL[solver].general and not ALL[solver].ours
            for record in cell.records
            if record["status"] == "TIME_LIMIT"
        ),
        default=0.0,
    )


def _bound(spent: float, auto: Cell | None) -> str:
    return "–" if auto is None or not auto.good else f"> {spent / auto.median(seconds):.3g}"


def verdicts(table: Table, shared: Table) -> list[str]:
    """The claims that the records can decide: convergence from all starts, ratios from shared."""
    problems = [p for p in problems_of(table) if (p, "auto") in table]
    failed = [p for p in problems if not table[p, "auto"].always]
    ratios, behind = [], []
    for problem in problems:
        least = best(problem, shared, evaluations, lambda s: s.general)
        if least is not None:
            ratio = shared[problem, "auto"].median(evaluations) / least.median(evaluations)
            ratios.append(ratio)
            behind += [f"{problem} ({ratio:.2f}×)"] if ratio > 1.5 else []
    if not ratios:
        return ["`auto` was not run"]
    near = sum(ratio <= 1.5 for ratio in ratios)
    return [
        f"`auto` converged on every start of {len(problems) - len(failed)} problems of "
        f"{len(problems)}" + (f"; not on {', '.join(failed)}" if failed else ""),
        f"`auto` is within 1.5× of the fewest evaluations of any general-purpose method on {near} "
        f"problems of {len(ratios)}" + (f"; behind on {', '.join(behind)}" if behind else ""),
        _near_misses(table),
    ]


def _near_misses(table: Table) -> str:
    """How many of the others' failures are a matter of the last digits."""
    failures = [
        (record, PROBLEMS[problem].rtol)
        for (problem, solver), cell in table.items()
        if ALL[solver].general and not ALL[solver].ours
        for record in cell.records
        if record["status"] != "CONVERGED"
    ]
    near = sum((r["relative_gradient"] or 1.0) <= NEAR * rtol for r, rtol in failures)
    late = sum(r["status"] == "TIME_LIMIT" for r, _ in failures)
    return (
        f"of {len(failures)} runs of other libraries that did not reach the tolerance, {near} came "
        f"within {NEAR:g}× of it, where differences of f are rounding; {late} met their limit"
    )


def _detail(problem: str, table: Table, records: Sequence[Record]) -> str:
    mine = [cell for (name, _), cell in table.items() if name == problem]
    mine.sort(key=lambda cell: (not cell.good, cell.median(evaluations)))
    rows = [_row(cell, records) for cell in mine]
    spec = PROBLEMS[problem]
    starts = max(len(cell.records) for cell in mine)
    return (
        f"\n## {problem}\n\n{spec.title}; to {spec.rtol:g} of the first gradient norm; "
        f"{starts} start{'s' * (starts > 1)}.\n\n{markdown(DETAIL, rows)}"
    )


def _row(cell: Cell, records: Sequence[Record]) -> list[str]:
    solver = ALL[cell.solver]
    notes = ["¹"] * (not solver.general) + ["²"] * solver.oracle
    notes += ["³"] * any(higher(record, records) for record in cell.good)
    label = solver.label + "".join(notes)
    if not cell.good:
        return [label, *_unsolved(cell.records[0])]
    names = ("values", "gradients", "hessian_products", "cpu_seconds", "function_seconds")
    columns = [median(float(record[name]) for record in cell.good) for name in names]
    defect = max(float(record["feasibility"]) for record in cell.good)
    share = f"{len(cell.good)}/{len(cell.records)}"
    return [label, share, *map(_number, (cell.median(evaluations), *columns)), f"{defect:.0e}"]


def _unsolved(record: Record) -> list[str]:
    """What was spent, and how far it led."""
    words = str(WORDS.get(record["status"], record["status"]))
    if record["status"] == "TIME_LIMIT":
        words += f" of {run_of(record).limit:g} CPU s"
    if record["relative_gradient"] is not None:
        words += f", reached {record['relative_gradient']:.1e}"
    names = ("values", "gradients", "hessian_products", "cpu_seconds", "function_seconds")
    spent = [evaluations(record), *(record[name] for name in names)]
    return [words, *(f"({_number(x)})" if x is not None else "" for x in spent), ""]


def _environments(records: Sequence[Record]) -> list[str]:
    lines: dict[str, None] = {}
    for record in records:
        about = record.get("environment") or {}
        found = about.get("versions", {})
        text = ", ".join(f"{name} {version}" for name, version in found.items())
        machine = about.get("machine", {})
        lines[f"- {text}; {machine.get('processor')}, {machine.get('blas')}, one thread"] = None
    notes = [
        "",
        "¹ solves eigenproblems only: shown for scale, in no comparison.  "
        "² told the largest curvature at the solution.  "
        "³ ended at a stationary point with a higher value than another solver's, on some start.  "
        "Numbers in brackets were spent without success.",
    ]
    return [*lines, *notes]


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [" | ".join(header), " | ".join("---" for _ in header), *(" | ".join(r) for r in rows)]
    return "\n".join(f"| {line} |" for line in lines)


def _name(cell: Cell | None) -> str:
    return "" if cell is None else f"({ALL[cell.solver].label})"


def _count(cell: Cell | None, cost: Cost) -> str:
    return "–" if cell is None or not cell.good else _number(cell.median(cost))


def _time(cell: Cell | None) -> str:
    return "–" if cell is None or not cell.good else _number(cell.median(seconds))


def _ratio(a: Cell | None, b: Cell | None, cost: Cost) -> str:
    if a is None or b is None or not a.good or not b.good:
        return "–"
    return f"{a.median(cost) / max(b.median(cost), 1e-9):.2f}"


def _number(value: float | None) -> str:
    if value is None or not math.isfinite(value):
        return ""
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
