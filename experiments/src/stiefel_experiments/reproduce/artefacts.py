"""A figure or table of the paper as an experiment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from stiefel_experiments.engine import Report, Spec
from stiefel_experiments.records import Record
from stiefel_experiments.rendering import Table, bullets, save

from . import curves, tables, verdicts
from .runs import ARTEFACTS, FORMAT, LABELS, Extent, Run, execute, plan, run_of, table_size
from .verdicts import Verdict


def artefact(name: str, extent: Extent | None = None) -> Spec[Run]:
    """One of `ARTEFACTS`, by default to the paper's own extent."""
    make = {"figure": _figure, "table": _table}.get(name[:-1], _scale)
    return Spec(
        name,
        plan(name, extent or Extent()),
        FORMAT,
        execute,
        partial(make, name),
        # Non-convergence is what the table of scales is about.
        must_converge=lambda run: name != "scale",
        borrows=[other for other in ARTEFACTS if other != name],
    )


def _report(
    name: str, title: str, table: Table, said: list[Verdict], notes: list[str], data: Any,
    pictures: dict[str, bytes] | None = None,
) -> Report:  # fmt: skip
    parts = [f"# {title}\n"]
    if pictures:
        parts.append(f"![{title}]({name}.png)\n")
    parts += [table.markdown(), bullets(said), "".join(f"{note}\n" for note in notes)]
    files = (pictures or {}) | {
        f"{name}.csv": table.csv().encode(),
        f"{name}.md": "\n".join(parts).encode(),
    }
    document = {"title": title, "data": data, "verdicts": [asdict(v) for v in said], "notes": notes}
    return Report(title, table, said, notes, files, document)


def _figure(name: str, found: Sequence[Record]) -> Report:
    lines = curves.curves(found)
    header = ("method", "n", "κ", "starts", "geometric mean of iterations", "spread (factor)")
    rows = tuple(
        (LABELS[c.method], str(p.n), f"{p.condition_number:g}", str(p.starts),
         f"{math.exp(p.mean_log_iterations):.1f}", f"{math.exp(p.deviation):.3f}")
        for c in lines for p in c.points
    )  # fmt: skip
    title = f"Figure {name[-1]}. {curves.TITLES[name]}"
    notes = [f"- {line}" for line in curves.extent_lines(lines)]
    data = [asdict(curve) | {"points": [p._asdict() for p in curve.points]} for curve in lines]
    pictures = save(name, curves.draw(name, lines), dpi=150)
    said = verdicts.of_figure(lines)
    return _report(name, title, Table(header, rows), said, notes, data, pictures)


def _table(name: str, found: Sequence[Record]) -> Report:
    # A quick run and a full one may share a record; the full one, if there, is the table.
    n, k = size = max((run_of(r).n, run_of(r).k) for r in found)
    rows = tables.means([r for r in found if (run_of(r).n, run_of(r).k) == size])
    notes = [
        "f = Σ α_i ⟨x_i, A x_i⟩ without the printed ½; A = diag(j²/n), α_i = i; tolerance 1e-9.",
        "Times are CPU seconds of one thread; compare those that were measured together only.",
        '"auto" is this library\'s default method, L-BFGS with a learned metric; it is not in the '
        "paper.",
    ]
    if size != table_size(name, quick=False):
        notes.append("This is the scaled-down problem of a quick run: the paper has no such row.")
    title = f"Table {name[-1]}. Brockett cost, n = {n}, k = {k}"
    said = verdicts.of_table(rows)
    return _report(name, title, tables.comparison(rows), said, notes, [asdict(r) for r in rows])


def _scale(name: str, found: Sequence[Record]) -> Report:
    notes = [
        "The search only ever tries γ = 0.1 · 1.7ʲ, so that a factor of f moves that lattice "
        "against 1/L; column 4 shows the lattice points near 1/L."
    ]
    table = tables.scales(found)
    data = [dict(zip(table.header, row)) for row in table.rows]
    title = "The step lattice: function restart on f times a constant"
    return _report(name, title, table, verdicts.of_scales(found), notes, data)
