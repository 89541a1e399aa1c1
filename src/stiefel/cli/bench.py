"""``stiefel bench``: our methods beside those of other libraries."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from stiefel.experiments.bench import Extent, Outcome, Request, benchmark
from stiefel.experiments.bench.report import SUMMARY
from stiefel.experiments.bench.runs import Record
from stiefel.experiments.records import RecordError

from .output import INTERRUPTED, NOT_CONVERGED, Misuse, console, print_json, print_table, refusals


def register(app: typer.Typer) -> None:
    app.command("bench")(command)


def command(
    quick: Annotated[
        bool, typer.Option("--quick", help="Small problems, in a minute or two.")
    ] = False,
    problem: Annotated[
        list[str] | None, typer.Option(help="A problem by its name; may be repeated.")
    ] = None,
    solver: Annotated[
        list[str] | None, typer.Option(help="A solver by its name; may be repeated.")
    ] = None,
    starts: Annotated[int, typer.Option(min=1, help="Random starts of each problem.")] = 1,
    patience: Annotated[
        float, typer.Option(help="Multiplies the limits on the CPU seconds of each run.")
    ] = 1.0,
    out: Annotated[Path, typer.Option(help="Where records and results go.")] = Path("benchmark"),
    resume: Annotated[
        bool, typer.Option("--resume", help="Keep the records there are and run the rest.")
    ] = False,
    redraw: Annotated[
        bool, typer.Option("--redraw", help="Run nothing; report what is recorded.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON for machines.")] = False,
) -> None:
    """Compare every method with those of pymanopt, geoopt, cdopt and SciPy.

    The same starts, the same gradient norm at the end, evaluations counted inside the function,
    CPU seconds of one thread. Libraries that are not installed are skipped. The exit code is 1 if
    "auto" did not converge somewhere.

    Example:  stiefel bench --quick
    """
    extent = Extent(quick, tuple(problem or ()), tuple(solver or ()), starts, patience)
    with refusals(RecordError, ValueError):
        outcome = _run(Request(out, extent, resume, redraw))
    if as_json:
        print_json({"records": outcome.records, "verdicts": outcome.report.verdicts,
                    "left_out": outcome.left_out})  # fmt: skip
    else:
        _show(outcome)
    if any(r["run"]["solver"] == "auto" and r["status"] != "CONVERGED" for r in outcome.records):
        raise typer.Exit(NOT_CONVERGED)


def _run(request: Request) -> Outcome:
    try:
        return benchmark(request, _progress)
    except ModuleNotFoundError as error:
        raise Misuse(
            f"plots need {error.name}: pip install 'stiefel[cli]', then --resume"
        ) from None
    except OSError as error:
        raise Misuse(f"cannot write to {request.out}: {error.strerror or error}") from None
    except KeyboardInterrupt:
        sentence = f"interrupted; what was done is in {request.record}: go on with --resume"
        console(stderr=True).print(sentence, markup=False, soft_wrap=True)
        raise typer.Exit(INTERRUPTED) from None


def _progress(record: Record, done: int, total: int) -> None:
    run = record["run"]
    sys.stderr.write(
        f"{done}/{total} {run['problem']}, {run['solver']}, start {run['start']}: "
        f"{record['status']}, {record['points']} points, {record['cpu_seconds']} CPU s\n"
    )
    sys.stderr.flush()


def _show(outcome: Outcome) -> None:
    screen = console()
    print_table("Benchmark", SUMMARY, outcome.report.summary)
    screen.print()
    for line in (*outcome.report.verdicts, *outcome.left_out):
        screen.print(f"- {line}", markup=False, soft_wrap=True)
    if outcome.set_aside is not None:
        screen.print(f"earlier records: {outcome.set_aside}", markup=False, soft_wrap=True)
    screen.print("files: " + ", ".join(map(str, outcome.files)), markup=False, soft_wrap=True)
