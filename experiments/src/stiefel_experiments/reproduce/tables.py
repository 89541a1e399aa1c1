"""Tables 1 and 2 beside the printed numbers, and the table of scales, from records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stiefel_experiments.records import Record
from stiefel_experiments.rendering import Table

from .runs import LABELS, TABLE_METHODS, run_of


class Row(NamedTuple):
    """A row that the paper prints: means over ten starts."""

    iterations: float
    function_evaluations: float
    gradient_evaluations: float
    cpu_seconds: float  # seconds on the author's machine


PRINTED: dict[tuple[int, int], dict[str, Row]] = {
    (1000, 10): {
        "function-restart": Row(17266.2, 43513.4, 17267.2, 17.8),
        "lbfgs": Row(31027.4, 32528.9, 31028.4, 26.3),  # ROPTLIB's L-RBFGS
    },
    (2000, 20): {
        "function-restart": Row(28758.8, 93747.8, 28759.8, 64.5),
        "lbfgs": Row(84767.2, 89013.8, 84768.2, 169.4),
    },
}
COLUMNS = Row._fields


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


def means(found: Sequence[Record]) -> list[Mean]:
    """One row a method, in the order of the paper, then ours."""
    rows = []
    for method in TABLE_METHODS:
        mine = [r for r in found if run_of(r).method == method]
        done = [r for r in mine if r["status"] == "CONVERGED"]
        if mine:
            run, failed = run_of(mine[0]), len(mine) - len(done)
            values = {c: float(np.mean([r[c] for r in done])) if done else np.nan for c in COLUMNS}
            rows.append(Mean(method, run.n, run.k, starts=len(done), unconverged=failed, **values))
    return rows


def comparison(rows: Sequence[Mean]) -> Table:
    """Ours, with the paper's number in the next column."""
    header = ("method", "starts", "iterations", "paper", "function evals", "paper",
              "gradient evals", "paper", "CPU time (s)",
              "paper's time (s), its machine")  # fmt: skip
    cells = []
    for row in rows:
        printed = PRINTED.get((row.n, row.k), {}).get(row.method)
        failed = f" (+{row.unconverged} not converged)" if row.unconverged else ""
        line = [LABELS[row.method], f"{row.starts}{failed}"]
        for column in COLUMNS:
            theirs = "–" if printed is None else f"{getattr(printed, column):.1f}"
            line += [f"{getattr(row, column):.1f}", theirs]
        cells.append(tuple(line))
    return Table(header, tuple(cells))


def scales(found: Sequence[Record]) -> Table:
    """How the count moves as f is multiplied by a constant."""
    header = ("n", "k", "scale of f", "γL on the lattice", "start", "iterations", "function evals",
              "restarts", "status")  # fmt: skip
    ordered = sorted(found, key=lambda r: (run_of(r).n, run_of(r).scale, run_of(r).start))
    return Table(header, tuple(map(_scale_row, ordered)))


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
