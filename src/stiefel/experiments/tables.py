"""Tables 1 and 2, and the table of scales, from records; as Markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .paper import LABELS, TABLES, Row
from .records import Record, run_of
from .specs import TABLE_METHODS


@dataclass(frozen=True)
class Table:
    """A heading and cells, all text."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        lines = [self.header, ("---",) * len(self.header), *self.rows]
        return "".join("| " + " | ".join(line) + " |\n" for line in lines)

    def csv(self) -> str:
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows([self.header, *self.rows])
        return buffer.getvalue()


@dataclass(frozen=True)
class Mean:
    """A row of ours: means over the starts that converged."""

    method: str
    n: int
    k: int
    iterations: float
    function_evaluations: float
    gradient_evaluations: float
    cpu_seconds: float
    starts: int
    unconverged: int


COLUMNS = ("iterations", "function_evaluations", "gradient_evaluations", "cpu_seconds")


def means(records: Sequence[Record]) -> list[Mean]:
    """One row a method, in the order of the paper, then ours."""
    rows = []
    for method in TABLE_METHODS:
        mine = [r for r in records if run_of(r).method == method]
        done = [r for r in mine if r["status"] == "CONVERGED"]
        if not mine:
            continue
        run = run_of(mine[0])
        averages = [float(np.mean([r[c] for r in done])) if done else float("nan") for c in COLUMNS]
        values = dict(zip(COLUMNS, averages))
        failed = len(mine) - len(done)
        rows.append(Mean(method, run.n, run.k, starts=len(done), unconverged=failed, **values))
    return rows


def comparison(rows: Sequence[Mean]) -> Table:
    """Ours, with the paper's number in the next column."""
    header: tuple[str, ...] = ("method", "starts")
    for title in ("iterations", "function evals", "gradient evals"):
        header += (title, "paper")
    header += ("CPU time (s)", "paper's time (s), its machine")
    cells = []
    for row in rows:
        printed: Row | None = TABLES.get((row.n, row.k), {}).get(row.method)
        line = [LABELS[row.method], starts_text(row.starts, row.unconverged)]
        for column in COLUMNS[:3]:
            line += [f"{getattr(row, column):.1f}", _paper(printed, column)]
        line += [f"{row.cpu_seconds:.1f}", _paper(printed, "seconds")]
        cells.append(tuple(line))
    return Table(header, tuple(cells))


def scales(records: Sequence[Record]) -> Table:
    """How the count moves as f is multiplied by a constant."""
    header = ("n", "k", "scale of f", "γL on the lattice", "start", "iterations", "function evals",
              "restarts", "status")  # fmt: skip
    ordered = sorted(records, key=lambda r: (run_of(r).n, run_of(r).scale, run_of(r).start))
    return Table(header, tuple(_scale_row(record) for record in ordered))


def _scale_row(record: Record) -> tuple[str, ...]:
    run = run_of(record)
    return (
        str(run.n), str(run.k),
        "0.5 (the printed ½)" if run.scale == 0.5 else f"{run.scale:g}",
        ", ".join(f"{g:.2f}" for g in lattice(run.n, run.k, run.scale)),
        str(run.start), str(record["iterations"]), str(record["function_evaluations"]),
        str(record["restarts"]), record["status"].lower().replace("_", " "),
    )  # fmt: skip


def lattice(n: int, k: int, scale: float) -> list[float]:
    """The steps γ = 0.1 · 1.7ʲ that lie near 1/L, as γL; L = 2 · scale · α_k (λ_n − λ_1)."""
    L = 2 * scale * k * (n - 1 / n)
    steps = 0.1 * 1.7 ** np.arange(-60.0, 20.0) * L
    return [float(g) for g in steps[(steps >= 0.8) & (steps < 0.8 * 1.7**3)]]


def starts_text(done: int, failed: int) -> str:
    return f"{done}" + (f" (+{failed} not converged)" if failed else "")


def _paper(row: Row | None, column: str) -> str:
    return "–" if row is None else f"{getattr(row, column):.1f}"
