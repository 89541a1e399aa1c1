"""``stiefel reproduce``: the paper's figures and tables, from runs to verdicts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from stiefel.experiments.pipeline import Outcome, Request, reproduce
from stiefel.experiments.pool import WorkerError
from stiefel.experiments.records import RecordError
from stiefel.experiments.specs import ARTEFACTS, Extent

from . import progress
from .output import INTERRUPTED, NOT_CONVERGED, Misuse, console, print_json, print_table, refusals

Artefact = Enum("Artefact", {name: name for name in (*ARTEFACTS, "all")}, type=str)  # type: ignore[misc]


def register(app: typer.Typer) -> None:
    app.command("reproduce")(command)


def command(
    what: Annotated[Artefact, typer.Argument(help="Which figure or table.", show_default=False)],
    quick: Annotated[
        bool, typer.Option("--quick", help="Coarser figures and smaller tables, in minutes.")
    ] = False,
    starts: Annotated[
        int | None, typer.Option(min=1, help="Random starts; the paper has 50 and 10.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the random starts.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time, one thread each.")] = 1,
    out: Annotated[Path, typer.Option(help="Where records and results go.")] = Path("reproduction"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the records there are and run the rest.")
    ] = False,
    redraw: Annotated[
        bool, typer.Option("--redraw", help="Run nothing; draw what is recorded.")
    ] = False,
    largest: Annotated[
        int | None, typer.Option(min=100, help="The largest n of the figures.")
    ] = None,
    descent_largest: Annotated[
        int | None, typer.Option(min=100, help="The largest n for gradient descent in figures.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON for machines.")] = False,
) -> None:
    """Regenerate a figure or table of the paper, with its numbers beside ours and a verdict.

    Every run is recorded when it ends, as a line of OUT/WHAT.jsonl; after an interruption --resume
    goes on from there. "scale" is the table of what a constant factor of f does.

    Example:  stiefel reproduce table1 --starts 1
    """
    names = ARTEFACTS if what.value == "all" else (what.value,)
    extent = Extent(quick, starts, largest, descent_largest, seed)
    outcomes = []
    with refusals():
        if find_spec("matplotlib") is None:
            raise Misuse("figures need matplotlib, which is missing: pip install 'stiefel[cli]'")
    with refusals(RecordError, WorkerError), _readable_errors(out):
        for name in names:
            request = Request(name, out, extent, min(jobs, os.cpu_count() or 1), resume, redraw)
            outcomes.append(_one(request))
            if not as_json:
                _show(outcomes[-1])
    if as_json:
        print_json({outcome.artefact: _document(outcome) for outcome in outcomes})
    if any(outcome.unconverged for outcome in outcomes):
        raise typer.Exit(NOT_CONVERGED)


def _one(request: Request) -> Outcome:
    with progress.bar(request.artefact) as show:
        try:
            return reproduce(request, show)
        except KeyboardInterrupt:
            sentence = f"interrupted; what was done is in {request.record}: go on with --resume"
            console(stderr=True).print(sentence, markup=False, soft_wrap=True)
            raise typer.Exit(INTERRUPTED) from None


@contextmanager
def _readable_errors(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Misuse(f"cannot write to {out}: {error.strerror or error}") from None


def _show(outcome: Outcome) -> None:
    report, screen = outcome.report, console()
    print_table(report.title, report.table.header, report.table.rows)
    screen.print()
    for verdict in report.verdicts:
        screen.print(f"- {verdict}", markup=False, soft_wrap=True)
    for note in report.notes:
        screen.print(note, markup=False, soft_wrap=True)
    for record in outcome.unconverged:
        run = record["run"]
        screen.print(
            f"not converged: {run['method']}, n = {run['n']}, start {run['start']}: "
            f"{record['status']}",
            markup=False,
            soft_wrap=True,
        )
    if outcome.set_aside is not None:
        screen.print(f"earlier records: {outcome.set_aside}", markup=False, soft_wrap=True)
    screen.print("files: " + ", ".join(map(str, outcome.files)), markup=False, soft_wrap=True)
    screen.print()


def _document(outcome: Outcome) -> dict[str, Any]:
    report = outcome.report
    return {
        "title": report.title,
        "data": report.data,
        "verdicts": [asdict(verdict) for verdict in report.verdicts],
        "notes": report.notes,
        "records": outcome.total,
        "executed": outcome.total - outcome.held,
        "not_converged": len(outcome.unconverged),
        "files": [str(path) for path in outcome.files],
    }
