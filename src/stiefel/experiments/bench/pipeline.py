"""A benchmark from beginning to end: plan, run what is missing, record, report from the record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stiefel.experiments.records import RecordError, append, read_lines, set_aside

from .environment import environment
from .plan import Extent, plan
from .pool import Pool
from .runs import Record, Run, check, run_of

Progress = Callable[[Record, int, int], None]  # the record made, runs done, runs in all


@dataclass(frozen=True)
class Request:
    """What to compare, and where to put it."""

    out: Path
    extent: Extent = field(default_factory=Extent)
    resume: bool = False
    redraw: bool = False  # run nothing: report what the record holds

    @property
    def record(self) -> Path:
        return self.out / "bench.jsonl"


@dataclass(frozen=True)
class Outcome:
    """The records, what they show, and the files written."""

    records: list[Record]
    report: Any
    files: list[Path]
    left_out: list[str]
    set_aside: Path | None


def benchmark(request: Request, progress: Progress | None = None) -> Outcome:
    """Run what is missing from the record, then write tables and plots from the record alone."""
    request.out.mkdir(parents=True, exist_ok=True)
    runs, left_out = plan(request.extent)
    aside = None
    if not (request.resume or request.redraw):
        aside = set_aside(request.record)
    records = load(request.record)
    if not request.redraw:
        _complete(request.record, runs, records, progress)
        records = load(request.record)
    if not records:
        raise RecordError(f"{request.record} holds no records; run without --redraw to make some")
    from .report import write_report  # needs matplotlib, which running does not

    report, files = write_report(records, request.out)
    return Outcome(records, report, [request.record, *files], left_out, aside)


def _complete(
    path: Path, runs: list[Run], records: list[Record], progress: Progress | None
) -> None:
    done = {run_of(record).key for record in records}
    missing = [run for run in runs if run.key not in done]
    about = environment()
    with Pool() as pool:
        for number, run in enumerate(missing, 1):
            record = pool.run(run) | {"environment": about}
            append(path, record)
            if progress is not None:
                progress(record, number, len(missing))


def load(path: Path) -> list[Record]:
    """The records of a file in their order; a last line that a crash cut short is dropped."""
    if not path.exists():
        return []
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{path} cannot be read: {error}") from None
    # A later run of the same replaces the earlier.
    records = {run_of(record).key: record for record in read_lines(path, text, check)}
    return sorted(records.values(), key=lambda record: run_of(record).order)
