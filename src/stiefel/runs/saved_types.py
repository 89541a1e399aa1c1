"""Whether what was read from a checkpoint has the types of what was written.

A file whose checksum fits may still be a forgery, or of a version with other fields: better
refused when it is read than a surprise in the middle of the run.
"""

from __future__ import annotations

import math
import typing
from typing import Any

from .archive import ArchiveError
from .ledger import COUNTERS, Ledger


def check_saved(body: Any) -> None:
    """An `ArchiveError` that names the first value of another type than a run saves."""
    for name in ("nfev", "njev"):
        _expect(_is_count(body[name]), name, body[name])
    for name in ("scale", "seconds"):
        _expect(_is_number(body[name]) and body[name] >= 0, name, body[name])
    _expect(body["scale"] > 0, "scale", body["scale"])
    found = body["counters"]
    _expect(isinstance(found, dict) and set(found) == set(COUNTERS), "counters", "another set")
    for name in COUNTERS:
        example = Ledger.__dataclass_fields__[name].default
        if isinstance(example, float):
            _expect(_is_number(found[name], finite=False), name, found[name])
        elif isinstance(example, int):
            _expect(_is_count(found[name]), name, found[name])
        else:
            _expect(found[name] is None or hasattr(found[name], "_fields"), name, found[name])
            check_record(found[name])
    _expect(hasattr(body["state"], "_fields"), "state", body["state"])
    check_record(body["state"])


def check_record(record: Any) -> None:
    """Numbers are where a NamedTuple's annotations want numbers."""
    if not hasattr(record, "_fields"):
        return
    hints = typing.get_type_hints(type(record))
    for name, value in zip(record._fields, record, strict=True):
        hint = hints.get(name)
        if hint is float:
            _expect(_is_number(value, finite=False), name, value)
        elif hint is int:
            _expect(_is_count(value), name, value)
        elif hint is bool:
            _expect(isinstance(value, bool), name, value)
        elif isinstance(hint, type) and hasattr(hint, "_fields"):
            _expect(isinstance(value, hint), name, value)
        check_record(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: Any, finite: bool = True) -> bool:
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    return good and (math.isfinite(value) or not finite)


def _expect(condition: bool, name: str, value: Any) -> None:
    if not condition:
        raise ArchiveError(f"its {name} is {str(value)[:40]!r}, which is not what a run saves")
