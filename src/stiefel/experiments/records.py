"""Records: one line of JSON a run, appended when it ends, complete or not there at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from . import checked
from .specs import METHODS, SPECTRA, Run

Record = dict[str, Any]
TIMINGS = ("seconds", "cpu_seconds")  # what differs between two runs of the same spec


RUN_FIELDS: dict[str, checked.Test] = {
    "spectrum": checked.one_of(*SPECTRA),
    "n": checked.positive_count,
    "k": checked.positive_count,
    "scale": checked.positive,
    "method": checked.one_of(*METHODS),
    "growth_threshold": checked.number,
    "rtol": checked.number,
    "maxiter": checked.count,
    "seed": checked.count,
    "start": checked.count,
}
FIELDS: dict[str, checked.Test] = {
    "run": checked.mapping,
    "condition_number": checked.positive,
    "status": checked.text,
    "iterations": checked.positive_count,
    "function_evaluations": checked.count,
    "gradient_evaluations": checked.count,
    "restarts": checked.count,
    "cpu_seconds": checked.number,
}


class RecordError(ValueError):
    """A record file that cannot be read."""


def run_of(record: Record) -> Run:
    return Run.from_dict(record["run"])


def load(path: Path) -> list[Record]:
    """The records of a file; a last line that was cut short by a crash is dropped."""
    if not path.exists():
        return []
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{path} cannot be read: {error}") from None
    return read_lines(path, text, _check)


def read_lines(path: Path, text: str, check: Callable[[Any], None]) -> list[Record]:
    """One record a line, each of which passes ``check``; a last line cut short is dropped."""
    records = []
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        try:
            record = json.loads(line, parse_constant=_refuse_constant)
            check(record)
        except (ValueError, RecursionError) as error:
            if not line.endswith("\n"):
                break
            why = " ".join(str(error).split())[:100]
            raise RecordError(
                f"{path}, line {number} is not a record ({why}); delete the line, or choose "
                "another --out"
            ) from None
        records.append(record)
    return records


def _check(record: Any) -> None:
    checked.check(record, FIELDS)
    checked.check(record["run"], RUN_FIELDS, exactly=True)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def append(path: Path, record: Record) -> None:
    """Add one line and wait until it is on the disk."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, allow_nan=False) + "\n")
        file.flush()
        os.fsync(file.fileno())


def store(path: Path, records: Iterable[Record]) -> None:
    """Replace the file by these records in their canonical order."""
    ordered = sorted(records, key=lambda record: run_of(record).order)
    write_text(path, "".join(json.dumps(r, allow_nan=False) + "\n" for r in ordered))


def write_text(path: Path, text: str) -> None:
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file so that at every moment there is the old one or the new one, whole."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def set_aside(path: Path) -> Path | None:
    """Move a record out of the way of a new one: nothing measured is ever overwritten."""
    if not path.exists():
        return None
    number = 1
    while (other := path.with_suffix(f".{number}.jsonl")).exists():
        number += 1
    path.rename(other)
    return other
