"""What happened in each iteration: numbers only, no copies of points."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Record(NamedTuple):
    """One iteration; the first record is the start."""

    value: float  # f at the point whose gradient was tested
    gradient_norm: float  # ‖∇f‖_g* there
    step: float  # γ
    momentum: int  # steps since the last restart
    nfev: int
    njev: int
    seconds: float
    restart: bool
    defect: float  # ‖XᴴX − I‖_F
    nhev: int = 0


DTYPE = np.dtype(
    [
        ("value", "f8"),
        ("gradient_norm", "f8"),
        ("step", "f8"),
        ("momentum", "i8"),
        ("nfev", "i8"),
        ("njev", "i8"),
        ("seconds", "f8"),
        ("restart", "?"),
        ("defect", "f8"),
        ("nhev", "i8"),
    ]
)


class History:
    """A growing table of `Record`s: 73 bytes an iteration."""

    def __init__(self, rows: np.ndarray[Any, Any] | None = None) -> None:
        self._rows = np.zeros(64, DTYPE) if rows is None else rows.copy()
        self._size = 0 if rows is None else len(rows)

    def append(self, record: Record) -> None:
        if self._size == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros(max(64, self._size), DTYPE)])
        self._rows[self._size] = record
        self._size += 1

    def as_array(self) -> np.ndarray[Any, Any]:
        """A structured array with one row per iteration."""
        return self._rows[: self._size].copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return self.as_array()

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, key: str) -> np.ndarray[Any, Any]:
        """A column, by name."""
        if key not in DTYPE.fields:  # type: ignore[operator]
            raise KeyError(f"history has no column {key!r}; it has {', '.join(DTYPE.names or ())}")
        return self._rows[key][: self._size].copy()

    def last(self, key: str, count: int) -> np.ndarray[Any, Any]:
        """The newest entries of a column."""
        return self._rows[key][max(self._size - count, 0) : self._size]

    def __repr__(self) -> str:
        return f"History of {max(self._size - 1, 0)} iterations: {', '.join(DTYPE.names or ())}"
