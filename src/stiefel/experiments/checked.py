"""Records come from files: every field that a report uses has its type, or the line is refused."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

Test = Callable[[Any], bool]

LARGEST = 10**15  # of a count: beyond it floats skip integers


def count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST


def positive_count(value: Any) -> bool:
    return count(value) and value > 0


def number(value: Any) -> bool:
    """Finite, and no larger than a float."""
    return type(value) in (int, float) and abs(value) <= 1e308 and math.isfinite(value)


def positive(value: Any) -> bool:
    return number(value) and value > 0


def number_or_none(value: Any) -> bool:
    return value is None or number(value)


def text(value: Any) -> bool:
    return isinstance(value, str)


def mapping(value: Any) -> bool:
    return isinstance(value, dict)


def one_of(*names: str) -> Test:
    return lambda value: isinstance(value, str) and value in names


def check(found: Any, fields: Mapping[str, Test], exactly: bool = False) -> None:
    """A ValueError that names the first field of ``found`` which is missing or wrong."""
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    for name, test in fields.items():
        if name not in found:
            raise ValueError(f"it has no {name!r}")
        if not test(found[name]):
            raise ValueError(f"its {name!r} is {str(found[name])[:40]!r}")
    extra = [name for name in found if name not in fields] if exactly else []
    if extra:
        raise ValueError(f"it has a field {extra[0][:40]!r} that is not known")
