"""From records to the data of a figure: mean log(iterations) against log κ, and a line."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .records import Record, run_of
from .specs import FIGURE_METHODS


class Point(NamedTuple):
    """All starts at one n."""

    n: int
    condition_number: float
    mean_log_iterations: float
    deviation: float  # standard deviation of log(iterations) over the starts; 0 for one start
    starts: int


@dataclass(frozen=True)
class Fit:
    """log(iterations) = intercept + slope · log κ, by least squares on the means."""

    slope: float
    slope_error: float  # its standard error
    intercept: float

    def iterations(self, condition_number: float) -> float:
        return math.exp(self.intercept + self.slope * math.log(condition_number))


@dataclass(frozen=True)
class Curve:
    """One method of a figure."""

    method: str
    points: tuple[Point, ...]
    fit: Fit | None  # None with fewer than three points: two make no error bar
    unconverged: int


def curves(records: Sequence[Record]) -> list[Curve]:
    """One curve a method; only runs that converged are counted."""
    return [
        _curve(method, [r for r in records if run_of(r).method == method])
        for method in FIGURE_METHODS
        if any(run_of(r).method == method for r in records)
    ]


def _curve(method: str, records: Sequence[Record]) -> Curve:
    logs: dict[tuple[int, float], list[float]] = defaultdict(list)
    for record in records:
        if record["status"] == "CONVERGED":
            key = (run_of(record).n, float(record["condition_number"]))
            logs[key].append(math.log(record["iterations"]))
    points = tuple(
        Point(n, kappa, float(np.mean(y)), float(np.std(y, ddof=1)) if len(y) > 1 else 0.0, len(y))
        for (n, kappa), y in sorted(logs.items())
    )
    unconverged = sum(record["status"] != "CONVERGED" for record in records)
    return Curve(method, points, fit_line(points), unconverged)


def fit_line(points: Sequence[Point]) -> Fit | None:
    """Ordinary least squares, every n with the same weight as in the paper."""
    if len(points) < 3:
        return None
    x = np.log([p.condition_number for p in points])
    y = np.array([p.mean_log_iterations for p in points])
    dx = x - x.mean()
    slope = float(dx @ y / (dx @ dx))
    intercept = float(y.mean() - slope * x.mean())
    residual = y - intercept - slope * x
    error = math.sqrt(float(residual @ residual) / (len(x) - 2) / float(dx @ dx))
    return Fit(slope, error, intercept)
