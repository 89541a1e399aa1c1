"""An experiment from beginning to end: run what is missing, record it, report from the record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic

from stiefel.cli.output import write_bytes

from . import records
from .pool import Lost, run_all
from .records import Format, R, Record, RecordError
from .rendering import Table

Progress = Callable[[str, float, float], None]  # the run that ended, guessed cost done and in all


class WorkerError(RuntimeError):
    """A process ended without an answer, and an answer was needed."""


def no_record(run: Any, why: str) -> Record:
    raise WorkerError(f"{run} gave no result: {why}; the other records are kept")


@dataclass(frozen=True)
class Report:
    """What the records show, and the files that say so."""

    title: str
    table: Table
    findings: Sequence[Any]  # sentences, or what prints as one
    notes: Sequence[str] = ()
    files: dict[str, bytes] = field(default_factory=dict)  # by name
    data: Any = None  # for machines


@dataclass(frozen=True)
class Spec(Generic[R]):
    """An experiment: which runs, how to do one, what makes a record, what the records show."""

    name: str  # the record is NAME.jsonl
    runs: Sequence[R]
    format: Format[R]
    execute: Callable[[R], Record]  # called in another process
    report: Callable[[Sequence[Record]], Report]
    must_converge: Callable[[R], bool]  # whether it is a failure if the run does not
    lost: Callable[[R, str], Record] = no_record  # for a run whose process gave none, and why
    borrows: Sequence[str] = ()  # other experiments whose records may hold runs of this one


@dataclass(frozen=True)
class Request:
    """Where to put an experiment, and how."""

    out: Path
    jobs: int = 1
    resume: bool = False  # keep the records there are and run the rest
    redraw: bool = False  # run nothing: report what the record holds

    def record(self, name: str) -> Path:
        return self.out / f"{name}.jsonl"


@dataclass(frozen=True)
class Outcome:
    """What came out, and the files written."""

    name: str
    records: list[Record]
    found_before: int  # records there before
    report: Report
    failures: list[str]
    files: list[Path]
    set_aside: Path | None


def perform(spec: Spec[Any], request: Request, progress: Progress | None = None) -> Outcome:
    """Run what is missing from the record, then write the report from the record alone."""
    request.out.mkdir(parents=True, exist_ok=True)
    path = request.record(spec.name)
    aside = None if request.resume or request.redraw else records.set_aside(path)
    kept = spec.format.load(path)
    found_before = len(kept)
    if not request.redraw:
        kept = _complete(spec, request, kept, progress)
    if not kept:
        raise RecordError(f"{path} holds no records; run without --redraw to make some")
    report = spec.report(kept)
    files = [path]
    for name, data in report.files.items():
        files.append(request.out / name)
        write_bytes(files[-1], data)
    failures = _failures(spec, request, kept)
    return Outcome(spec.name, kept, found_before, report, failures, files, aside)


def _complete(
    spec: Spec[Any], request: Request, kept: list[Record], progress: Progress | None
) -> list[Record]:
    path, run_of = request.record(spec.name), spec.format.run_of
    wanted = {run.key: run for run in spec.runs}
    found = {run_of(record).key: record for record in kept}
    again = {k for k, run in wanted.items() if k in found and run.replaces(found[k])}
    for other in spec.borrows:
        for record in spec.format.load(request.record(other)):
            if (key := run_of(record).key) in wanted:
                found.setdefault(key, record)
    records.store(path, spec.format.sort(found.values()))  # drops a line that a crash cut short
    missing = [run for key, run in wanted.items() if key not in found or key in again]
    total, spent = sum(run.cost for run in missing), 0.0
    for run, answer in run_all(spec.execute, missing, request.jobs):
        record = spec.lost(run, answer.why) if isinstance(answer, Lost) else answer
        records.append(path, record)
        found[run.key] = record
        spent += run.cost
        if progress is not None:
            progress(f"{run}: {record['status']}, {record['cpu_seconds']} CPU s", spent, total)
    ordered = spec.format.sort(found.values())
    records.store(path, ordered)
    return ordered


def _failures(spec: Spec[Any], request: Request, kept: list[Record]) -> list[str]:
    """A sentence for each run asked for that should have converged and did not."""
    wanted = {run.key for run in spec.runs}
    bad = [(spec.format.run_of(r), r["status"]) for r in kept if r["status"] != "CONVERGED"]
    return [
        f"not converged: {run}: {status}"
        for run, status in bad
        if spec.must_converge(run) and (request.redraw or run.key in wanted)
    ]
