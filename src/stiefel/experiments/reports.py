"""The files of an artefact, from its records and nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import figures, fits, tables, verdicts
from .paper import LABELS
from .records import Record, run_of, write_bytes, write_text
from .specs import table_size
from .tables import Table
from .verdicts import Verdict


@dataclass(frozen=True)
class Report:
    """What an artefact says: a title, a table, verdicts, and the data behind a figure."""

    title: str
    table: Table
    verdicts: list[Verdict]
    notes: list[str]
    data: list[dict[str, Any]]

    def markdown(self, picture: str | None) -> str:
        parts = [f"# {self.title}\n"]
        if picture:
            parts.append(f"![{self.title}]({picture})\n")
        parts += [self.table.markdown(), "".join(f"- {v}\n" for v in self.verdicts)]
        parts += ["".join(f"{note}\n" for note in self.notes)] if self.notes else []
        return "\n".join(parts)


def write_report(artefact: str, records: Sequence[Record], out: Path) -> tuple[Report, list[Path]]:
    """Write Markdown and CSV, and for a figure PNG and SVG."""
    report, pictures = build_report(artefact, records)
    files = []
    for suffix, data in pictures.items():
        files.append(out / f"{artefact}.{suffix}")
        write_bytes(files[-1], data)
    for suffix, text in (
        ("csv", report.table.csv()),
        ("md", report.markdown(f"{artefact}.png" if pictures else None)),
    ):
        files.append(out / f"{artefact}.{suffix}")
        write_text(files[-1], text)
    return report, files


def build_report(artefact: str, records: Sequence[Record]) -> tuple[Report, dict[str, bytes]]:
    if artefact.startswith("figure"):
        return _figure(artefact, records)
    return (_scale(records) if artefact == "scale" else _table(artefact, records)), {}


def _figure(artefact: str, records: Sequence[Record]) -> tuple[Report, dict[str, bytes]]:
    curves = fits.curves(records)
    header = ("method", "n", "κ", "starts", "geometric mean of iterations", "spread (factor)")
    points = [(curve, point) for curve in curves for point in curve.points]
    rows = tuple(
        (LABELS[c.method], str(p.n), f"{p.condition_number:g}", str(p.starts),
         f"{math.exp(p.mean_log_iterations):.1f}", f"{math.exp(p.deviation):.3f}")
        for c, p in points
    )  # fmt: skip
    notes = [f"- {line}" for line in figures.extent_lines(curves)]
    report = Report(
        f"Figure {artefact[-1]}. {figures.TITLES[artefact]}",
        Table(header, rows),
        verdicts.of_figure(curves),
        notes,
        [asdict(curve) | {"points": [p._asdict() for p in curve.points]} for curve in curves],
    )
    return report, figures.draw(artefact, curves)


def _table(artefact: str, records: Sequence[Record]) -> Report:
    # A quick run and a full one may share a record; the full one, if there, is the table.
    sizes = {(run_of(r).n, run_of(r).k) for r in records}
    size = max(sizes)
    mine = [r for r in records if (run_of(r).n, run_of(r).k) == size]
    rows = tables.means(mine)
    notes = [
        "f = Σ α_i ⟨x_i, A x_i⟩ without the printed ½; A = diag(j²/n), α_i = i; tolerance 1e-9."
    ]
    notes.append("Times are CPU seconds of one thread, to be compared within one table only.")
    if size != table_size(artefact, quick=False):
        notes.append("This is the scaled-down problem of a quick run: the paper has no such row.")
    title = f"Table {artefact[-1]}. Brockett cost, n = {size[0]}, k = {size[1]}"
    data = [asdict(row) for row in rows]
    return Report(title, tables.comparison(rows), verdicts.of_table(rows), notes, data)


def _scale(records: Sequence[Record]) -> Report:
    notes = [
        "The search only ever tries γ = 0.1 · 1.7ʲ, so that a factor of f moves that lattice "
        "against 1/L; column 4 shows the lattice points near 1/L."
    ]
    table = tables.scales(records)
    data = [dict(zip(table.header, row)) for row in table.rows]
    title = "The step lattice: function restart on f times a constant"
    return Report(title, table, verdicts.of_scales(records), notes, data)
