"""Records: one line of JSON a run, appended when it ends, complete or not there at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .specs import Run

Record = dict[str, Any]
TIMINGS = ("seconds", "cpu_seconds")  # what differs between two runs of the same spec


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
    records = []
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        try:
            record = json.loads(line)
            run_of(record)
        except (ValueError, TypeError, KeyError, RecursionError):
            if not line.endswith("\n"):
                break
            raise RecordError(
                f"{path}, line {number} is not a record; delete the line, or choose another --out"
            ) from None
        records.append(record)
    return records


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
