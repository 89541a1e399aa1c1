"""Checks of solver parameters: what was given, what was expected."""

from __future__ import annotations

import math
from typing import Any


def check_positive(record: object, name: str) -> None:
    value = getattr(record, name)
    if not (_is_number(value) and 0 < value < math.inf):
        raise ValueError(f"{_of(record, name)} is {value!r}; expected a positive number")


def check_open_interval(record: object, name: str, low: float, high: float) -> None:
    value = getattr(record, name)
    if not (_is_number(value) and low < value < high):
        raise ValueError(
            f"{_of(record, name)} is {value!r}; expected a number between {low:g} and {high:g}"
        )


def check_choice(record: object, name: str, choices: tuple[str, ...]) -> None:
    value = getattr(record, name)
    if value not in choices:
        allowed = ", ".join(repr(c) for c in choices)
        raise ValueError(f"{_of(record, name)} is {value!r}; expected one of {allowed}")


def check_integer(record: object, name: str, least: int) -> None:
    value = getattr(record, name)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{_of(record, name)} is {value!r}; expected an integer ≥ {least}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _of(record: object, name: str) -> str:
    return f"{type(record).__name__}.{name}"
