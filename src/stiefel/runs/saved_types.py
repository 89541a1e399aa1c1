"""A record of arrays and numbers as one flat dict, and back.

    freeze(State(x, Gradient(f, G, …), doubts=(…)), "state")
        {"state.x": array, "state.at.f": 1.5, "state.at.G": array, …, "state.doubts": 2,
         "state.doubts.0.gap": 1e-9, …}
    thaw(State, flat, "state")      the same record

A record is a NamedTuple; its fields hold numbers, arrays, names (enums), None, further records, and
tuples of these, of which the dict also holds the length.  What belongs where is not in the dict but
in the annotations of the record's class: no class is looked up by a name from a file, and a value
of another type than its annotation is refused.  Fields annotated
as ``Annotated[…, "rebuilt"]`` are left out, and are None afterwards.

The law: a state that was frozen and thawed takes the same next step, bit for bit.  So nothing may
depend on which object an array is.
"""

from __future__ import annotations

import types
import typing
from enum import Enum
from functools import cache
from typing import Any

import numpy as np

from stiefel.backends.arrays import is_array

from .archive import ArchiveError

Flat = dict[str, Any]
NONE = type(None)


def freeze(value: Any, name: str) -> Flat:
    """``value`` under ``name``, and what it is made of under names that begin with it."""
    if isinstance(value, tuple):
        parts = _fields(value) if is_record(type(value)) else dict(enumerate(value))
        flat: Flat = {} if is_record(type(value)) else {name: len(value)}
        for key, part in parts.items():
            flat |= freeze(part, f"{name}.{key}")
        return flat
    if isinstance(value, Enum):
        return {name: value.name}
    if value is None or isinstance(value, (bool, int, float, np.generic)) or is_array(value):
        return {name: value}
    raise TypeError(f"a checkpoint cannot hold {name}, a {type(value).__qualname__}")


def thaw(hint: Any, flat: Flat, name: str) -> Any:
    """The value of type ``hint`` that was frozen under ``name``; its parts are taken out."""
    if is_record(hint):
        return hint(*(thaw(h, flat, f"{name}.{field}") for field, h in _hints(hint).items()))
    if _is_rebuilt(hint):
        return None
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return _thaw_one_of(typing.get_args(hint), flat, name)
    if typing.get_origin(hint) is tuple:
        return _thaw_tuple(typing.get_args(hint), flat, name)
    value = _take(flat, name)
    if hint is Any and type(value) is int:  # a point of several matrices
        return tuple(thaw(Any, flat, f"{name}.{i}") for i in range(value))
    return _checked(hint, value, name)


def _thaw_one_of(hints: tuple[Any, ...], flat: Flat, name: str) -> Any:
    """A union is read as the type that its entry, or the lack of one, points to."""
    if name in flat and flat[name] is None and NONE in hints:
        return flat.pop(name)
    others = [hint for hint in hints if hint is not NONE]
    if name not in flat:
        others = [hint for hint in others if is_record(hint)]
    elif len(others) > 1:
        others = [hint for hint in others if not is_record(hint)]
    if len(others) != 1:
        raise ArchiveError(f"its {name} is missing, or not what a run saves")
    return thaw(others[0], flat, name)


def _thaw_tuple(hints: tuple[Any, ...], flat: Flat, name: str) -> tuple[Any, ...]:
    size = _take(flat, name)
    any_size = len(hints) == 2 and hints[1] is Ellipsis
    if not _is_count(size) or not (any_size or size == len(hints)):
        raise _wrong(name, size)
    each = (hints[0] if any_size else hints[i] for i in range(size))
    return tuple(thaw(hint, flat, f"{name}.{i}") for i, hint in enumerate(each))


def _checked(hint: Any, value: Any, name: str) -> Any:
    """``value``, if it is what the annotation says."""
    if isinstance(hint, type) and issubclass(hint, Enum):
        if not isinstance(value, str) or value not in hint.__members__:
            raise _wrong(name, value)
        return hint[value]
    good = {
        float: isinstance(value, (int, float, np.floating)) and not isinstance(value, bool),
        int: _is_count(value),
        bool: isinstance(value, (bool, np.bool_)),
        Any: value is None or is_array(value) or isinstance(value, np.generic),
    }.get(hint, is_array(value))
    if not good:
        raise _wrong(name, value)
    return value


def _take(flat: Flat, name: str) -> Any:
    if name not in flat:
        raise ArchiveError(f"it has no {name}")
    return flat.pop(name)


def _wrong(name: str, value: Any) -> ArchiveError:
    return ArchiveError(f"its {name} is {str(value)[:40]!r}, which is not what a run saves")


def _is_count(value: Any) -> bool:
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    return whole and bool(value >= 0)


def is_record(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")


def _fields(record: Any) -> dict[str, Any]:
    cls: Any = type(record)
    hints = _hints(cls)
    return {k: v for k, v in zip(record._fields, record) if not _is_rebuilt(hints[k])}


def _is_rebuilt(hint: Any) -> bool:
    return "rebuilt" in getattr(hint, "__metadata__", ())


@cache
def _hints(record: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(record, include_extras=True)
    return {name: hints[name] for name in record._fields}
