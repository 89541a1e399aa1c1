"""``stiefel reproduce`` and ``stiefel bench``: the experiments from the command line."""

from __future__ import annotations

import os
from enum import Enum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer

from stiefel.cli import progress
from stiefel.cli.output import (
    INTERRUPTED,
    NOT_CONVERGED,
    Misuse,
    print_json,
    print_table,
    refusals,
    say,
)

from .bench.report import benchmark
from .bench.runs import Extent as BenchExtent
from .engine import Outcome, Request, Spec, WorkerError, perform
from .records import RecordError
from .reproduce.artefacts import artefact
from .reproduce.runs import ARTEFACTS, Extent

What = Enum("What", {name: name for name in (*ARTEFACTS, "all")}, type=str)  # type: ignore[misc]
Quick = Annotated[bool, typer.Option("--quick", help="Small problems, in minutes.")]
Resume = Annotated[
    bool, typer.Option("--resume", help="Keep the records there are and run the rest.")
]
Redraw = Annotated[bool, typer.Option("--redraw", help="Run nothing; report what is recorded.")]
Out = Annotated[Path, typer.Option(help="Where records and results go.")]
Json = Annotated[bool, typer.Option("--json", help="Write JSON for machines.")]


def register_reproduce(app: typer.Typer) -> None:
    app.command("reproduce")(reproduce)


def register_bench(app: typer.Typer) -> None:
    app.command("bench")(bench)


def reproduce(
    what: Annotated[What, typer.Argument(help="Which figure or table.", show_default=False)],
    quick: Quick = False,
    starts: Annotated[
        int | None, typer.Option(min=1, help="Random starts; the paper has 50 and 10.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the random starts.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at a time, one thread each.")] = 1,
    out: Out = Path("reproduction"),
    resume: Resume = False,
    redraw: Redraw = False,
    largest: Annotated[
        int | None, typer.Option(min=100, help="The largest n of the figures.")
    ] = None,
    descent_largest: Annotated[
        int | None, typer.Option(min=100, help="The largest n for gradient descent in figures.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Regenerate a figure or table of the paper, with its numbers beside ours and a verdict.

    Every run is recorded when it ends, as a line of OUT/WHAT.jsonl; after an interruption --resume
    goes on from there. "scale" is the table of what a constant factor of f does.

    Example:  stiefel reproduce table1 --starts 1
    """
    names = ARTEFACTS if what.value == "all" else (what.value,)
    extent = Extent(quick, starts, largest, descent_largest, seed)
    request = Request(out, min(jobs, os.cpu_count() or 1), resume, redraw)
    outcomes = []
    for name in names:
        outcomes.append(_perform(artefact(name, extent), request))
        if not as_json:
            _show(outcomes[-1])
    if as_json:
        print_json({outcome.name: _document(outcome) for outcome in outcomes})
    _exit(outcomes)


def bench(
    quick: Quick = False,
    problem: Annotated[
        list[str] | None, typer.Option(help="A problem by its name; may be repeated.")
    ] = None,
    solver: Annotated[
        list[str] | None, typer.Option(help="A solver by its name; may be repeated.")
    ] = None,
    starts: Annotated[
        int | None, typer.Option(min=1, help="Random starts of each problem: 10, one with --quick.")
    ] = None,
    patience: Annotated[
        float, typer.Option(help="Multiplies the limits on the CPU seconds of each run.")
    ] = 1.0,
    out: Out = Path("benchmark"),
    resume: Resume = False,
    redraw: Redraw = False,
    as_json: Json = False,
) -> None:
    """Compare every method with those of pymanopt, geoopt, cdopt and SciPy.

    The same starts, the same gradient norm at the end, evaluations counted inside the function,
    CPU seconds of one thread. Libraries that are not installed are skipped. The exit code is 1 if
    "auto" did not converge somewhere.

    Example:  stiefel bench --quick
    """
    with refusals(ValueError):
        extent = BenchExtent(quick, tuple(problem or ()), tuple(solver or ()), starts, patience)
        spec, left_out = benchmark(extent)
    outcome = _perform(spec, Request(out, 1, resume, redraw))
    if as_json:
        findings = list(outcome.report.findings)
        print_json({"records": outcome.records, "verdicts": findings, "left_out": left_out})
    else:
        _show(outcome, left_out)
    _exit([outcome])


def _perform(spec: Spec[Any], request: Request) -> Outcome:
    with refusals(RecordError, WorkerError), progress.bar(spec.name) as show:
        if find_spec("matplotlib") is None:
            raise Misuse("figures need matplotlib, which is missing: pip install 'stiefel[cli]'")
        try:
            return perform(spec, request, show)
        except OSError as error:
            raise Misuse(f"cannot write to {request.out}: {error.strerror or error}") from None
        except KeyboardInterrupt:
            path = request.record(spec.name)
            say(f"interrupted; what was done is in {path}: go on with --resume", stderr=True)
            raise typer.Exit(INTERRUPTED) from None


def _show(outcome: Outcome, left_out: list[str] | None = None) -> None:
    report = outcome.report
    print_table(report.title, report.table.header, report.table.rows)
    say("")
    for line in (*report.findings, *(left_out or ())):
        say(f"- {line}")
    for line in (*report.notes, *outcome.failures):
        say(line)
    if outcome.set_aside is not None:
        say(f"earlier records: {outcome.set_aside}")
    say("files: " + ", ".join(map(str, outcome.files)))
    say("")


def _document(outcome: Outcome) -> dict[str, Any]:
    return outcome.report.data | {
        "records": len(outcome.records),
        "executed": len(outcome.records) - outcome.found_before,
        "not_converged": len(outcome.failures),
        "files": [str(path) for path in outcome.files],
    }


def _exit(outcomes: list[Outcome]) -> None:
    if any(outcome.failures for outcome in outcomes):
        raise typer.Exit(NOT_CONVERGED)
