"""An artefact from beginning to end: plan, run what is missing, record, draw from the record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import records
from .pool import run_all
from .records import Record
from .specs import ARTEFACTS, Extent, Run, plan

Progress = Callable[
    [Run, float, float], None
]  # the run that ended, guessed seconds done and in all


@dataclass(frozen=True)
class Request:
    """What to reproduce, and where to put it."""

    artefact: str
    out: Path
    extent: Extent = field(default_factory=Extent)
    jobs: int = 1
    resume: bool = False
    redraw: bool = False  # run nothing: draw what the record holds

    @property
    def record(self) -> Path:
        return self.out / f"{self.artefact}.jsonl"


@dataclass(frozen=True)
class Outcome:
    """What came out: a report (text, tables, verdicts, data) and the files written."""

    artefact: str
    report: Any
    files: list[Path]
    held: int  # records there before
    total: int  # records there now
    set_aside: Path | None
    unconverged: list[Record]


def reproduce(request: Request, progress: Progress | None = None) -> Outcome:
    """Run what is missing from the record, then write tables or figures from the record alone."""
    request.out.mkdir(parents=True, exist_ok=True)
    aside = None
    if not (request.resume or request.redraw):
        aside = records.set_aside(request.record)
    kept = records.load(request.record)
    before = len(kept)
    if not request.redraw:
        kept = _complete(request, kept, progress)
    if not kept:
        raise records.RecordError(
            f"{request.record} holds no records; run without --redraw to make some"
        )
    from .reports import write_report  # needs matplotlib, which running does not

    report, files = write_report(request.artefact, kept, request.out)
    wanted = {run.key for run in plan(request.artefact, request.extent)}
    expected = [r for r in kept if request.redraw or records.run_of(r).key in wanted]
    failed = [r for r in expected if r["status"] != "CONVERGED"]
    return Outcome(
        request.artefact, report, [request.record, *files], before, len(kept), aside,
        # Non-convergence is what the table of scales is about.
        [] if request.artefact == "scale" else failed,
    )  # fmt: skip


def _complete(request: Request, kept: list[Record], progress: Progress | None) -> list[Record]:
    wanted = plan(request.artefact, request.extent)
    kept = kept + _shared(request, kept, wanted)
    done = {records.run_of(record).key for record in kept}
    missing = [run for run in wanted if run.key not in done]
    records.store(request.record, kept)  # also drops a line that a crash cut short
    total = sum(run.cost for run in missing)
    spent = 0.0
    for record in run_all(missing, request.jobs):
        records.append(request.record, record)
        kept.append(record)
        run = records.run_of(record)
        spent += run.cost
        if progress is not None:
            progress(run, spent, total)
    records.store(request.record, kept)
    return sorted(kept, key=lambda record: records.run_of(record).order)


def _shared(request: Request, kept: list[Record], wanted: list[Run]) -> list[Record]:
    """Records that another artefact of the same directory holds already."""
    missing = {run.key for run in wanted} - {records.run_of(record).key for record in kept}
    found: dict[str, Record] = {}
    for artefact in ARTEFACTS:
        if artefact != request.artefact and missing:
            for record in records.load(request.out / f"{artefact}.jsonl"):
                key = records.run_of(record).key
                if key in missing:
                    found.setdefault(key, record)
    return list(found.values())
