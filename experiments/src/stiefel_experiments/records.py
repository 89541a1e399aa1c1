"""Records: one line of JSON a run, appended when it ends, complete or not there at all.

Records come from files: every field that a report uses has its type, or the line is refused.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from stiefel.cli.output import write_bytes

Record = dict[str, Any]
Test = Callable[[Any], bool]

LARGEST = 10**15  # of a count: beyond it floats skip integers


class RecordError(ValueError):
    """A record file that cannot be used."""


@dataclass(frozen=True)
class Run:
    """What to run: a frozen dataclass whose fields JSON can hold; a record keeps it as "run"."""

    limit = math.inf  # CPU seconds

    @property
    def cost(self) -> float:
        """A guess, for a progress bar."""
        return 1.0

    @property
    def lane(self) -> str:
        """Runs of different lanes never share a process."""
        return "stiefel"

    @property
    def key(self) -> Any:
        """Its identity: two runs with one key are the same run."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def order(self) -> Any:
        """Its place in a finished record."""
        return self.key

    def replaces(self, record: Record) -> bool:
        """Whether to run it again although there is this record of it."""
        return False


R = TypeVar("R", bound=Run)


@dataclass(frozen=True)
class Format(Generic[R]):
    """What makes a line a record, and which run it is a record of."""

    run: Callable[..., R]
    run_fields: Mapping[str, Test]  # names, with blanks between them, and what they must pass
    fields: Mapping[str, Test]
    more: Callable[[Record], None] = lambda record: None  # raises ValueError

    def run_of(self, record: Record) -> R:
        return self.run(**record["run"])

    def check(self, record: Any) -> None:
        check(record, self.fields)
        check(record["run"], self.run_fields, exactly=True)
        self.more(record)

    def load(self, path: Path) -> list[Record]:
        """The records of a file in their order; of two of the same run the later one.

        A last line that was cut short by a crash is dropped.
        """
        try:
            text = path.read_text(encoding="utf-8") if path.exists() else ""
        except (OSError, UnicodeDecodeError) as error:
            raise RecordError(f"{path} cannot be read: {error}") from None
        found: dict[Any, Record] = {}
        for number, line in enumerate(text.splitlines(keepends=True), 1):
            try:
                record = json.loads(line, parse_constant=_refuse_constant)
                self.check(record)
            except (ValueError, RecursionError) as error:
                if not line.endswith("\n"):
                    break
                why = " ".join(str(error).split())[:100]
                raise RecordError(f"{path}, line {number} is not a record ({why}); delete the "
                                  "line, or choose another --out") from None  # fmt: skip
            found[self.run_of(record).key] = record
        return self.sort(found.values())

    def sort(self, records: Iterable[Record]) -> list[Record]:
        return sorted(records, key=lambda record: self.run_of(record).order)


def append(path: Path, record: Record) -> None:
    """Add one line and wait until it is on the disk."""
    with path.open("a", encoding="utf-8") as file:
        file.write(_line(record))
        file.flush()
        os.fsync(file.fileno())


def store(path: Path, records: Iterable[Record]) -> None:
    """Replace the file by these records."""
    write_bytes(path, "".join(map(_line, records)).encode())


def set_aside(path: Path) -> Path | None:
    """Move a record out of the way of a new one: nothing measured is ever overwritten."""
    if not path.exists():
        return None
    number = 1
    while (other := path.with_suffix(f".{number}.jsonl")).exists():
        number += 1
    return path.rename(other)


def _line(record: Record) -> str:
    return json.dumps(record, allow_nan=False) + "\n"


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def check(found: Any, fields: Mapping[str, Test], exactly: bool = False) -> None:
    """A ValueError that names the first field of ``found`` which is missing or wrong."""
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    tests = {name: test for names, test in fields.items() for name in names.split()}
    for name, test in tests.items():
        if name not in found:
            raise ValueError(f"it has no {name!r}")
        if not test(found[name]):
            raise ValueError(f"its {name!r} is {str(found[name])[:40]!r}")
    if exactly and (extra := [name for name in found if name not in tests]):
        raise ValueError(f"it has a field {extra[0][:40]!r} that is not known")


def count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST


def positive_count(value: Any) -> bool:
    return count(value) and value > 0


def number(value: Any) -> bool:
    """Finite, and no larger than a float."""
    return type(value) in (int, float) and abs(value) <= 1e308 and math.isfinite(value)


def positive(value: Any) -> bool:
    return number(value) and value > 0


def text(value: Any) -> bool:
    return isinstance(value, str)


def mapping(value: Any) -> bool:
    return isinstance(value, dict)


def one_of(*names: str) -> Test:
    return lambda value: isinstance(value, str) and value in names


def finite(value: float) -> float | None:
    """Four digits for a record; None, which JSON knows, for what is not finite."""
    return float(f"{value:.3e}") if math.isfinite(value) else None
