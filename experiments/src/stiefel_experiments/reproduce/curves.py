"""Figures 1 and 2: mean log(iterations) against log κ with a fitted line, and their drawing."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from stiefel_experiments.records import Record
from stiefel_experiments.rendering import new_axes

from .runs import FIGURE_METHODS, LABELS, run_of

# Three hues that stay apart for colour-blind readers and in grey; shapes tell them apart as well.
STYLE = {
    "function-restart": {"color": "#0072b2", "marker": "o"},
    "gradient-restart": {"color": "#e69f00", "marker": "s"},
    "gradient-descent": {"color": "#333333", "marker": "^"},
}
OFFSET = {"function-restart": 0.985, "gradient-restart": 1.015}  # the two lie on each other
TITLES = {
    "figure1": "One eigenvector: the sphere, A = diag(1, …, n)",
    "figure2": "Ten eigenvectors: Brockett cost, A = diag(1, …, n), α_i = i",
}


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


def curves(found: Sequence[Record]) -> list[Curve]:
    """One curve a method; only runs that converged are counted."""
    mine = {m: [r for r in found if run_of(r).method == m] for m in FIGURE_METHODS}
    return [_curve(method, of_method) for method, of_method in mine.items() if of_method]


def _curve(method: str, found: Sequence[Record]) -> Curve:
    logs: dict[tuple[int, float], list[float]] = defaultdict(list)
    for record in found:
        if record["status"] == "CONVERGED":
            key = (run_of(record).n, float(record["condition_number"]))
            logs[key].append(math.log(record["iterations"]))
    points = tuple(
        Point(n, kappa, float(np.mean(y)), float(np.std(y, ddof=1)) if len(y) > 1 else 0.0, len(y))
        for (n, kappa), y in sorted(logs.items())
    )
    unconverged = sum(record["status"] != "CONVERGED" for record in found)
    return Curve(method, points, fit_line(points), unconverged)


def fit_line(points: Sequence[Point]) -> Fit | None:
    """Ordinary least squares, every n with the same weight as in the paper."""
    if len(points) < 3:
        return None
    x = np.log([p.condition_number for p in points])
    y = [p.mean_log_iterations for p in points]
    (slope, intercept), covariance = np.polyfit(x, y, 1, cov=True)
    return Fit(float(slope), float(covariance[0, 0] ** 0.5), float(intercept))


def ratio_range(fast: Curve, slow: Curve) -> tuple[float, float] | None:
    """The least and greatest ratio of mean iterations, slow/fast, over the n that both have."""
    mean = {p.n: p.mean_log_iterations for p in fast.points}
    ratios = [math.exp(p.mean_log_iterations - mean[p.n]) for p in slow.points if p.n in mean]
    return (min(ratios), max(ratios)) if ratios else None


def extent_lines(found: Sequence[Curve]) -> list[str]:
    """How many starts each method had at which n: the figure says what it was made from."""
    lines = []
    for curve in found:
        pieces = [(s, [p.n for p in same]) for s, same in groupby(curve.points, lambda p: p.starts)]
        if len(pieces) > 3:  # the record and the table beside the figure have the details
            counts, sizes = [s for s, _ in pieces], [p.n for p in curve.points]
            text = f"{min(counts)} to {max(counts)} starts at n = {sizes[0]}–{sizes[-1]}"
        else:
            text = ", ".join(_piece(starts, n[0], n[-1]) for starts, n in pieces)
        note = f"; {curve.unconverged} not converged" if curve.unconverged else ""
        lines.append(f"{LABELS[curve.method]}: {text or 'no run'}{note}")
    return lines


def _piece(starts: int, first: int, last: int) -> str:
    sizes = f"{first}–{last}" if last > first else f"{first}"
    return f"{starts} start{'s' * (starts > 1)} at n = {sizes}"


def draw(artefact: str, found: Sequence[Curve]) -> Any:
    """The axes of a new matplotlib figure."""
    axes = new_axes(7.2, 5.0)
    for curve in found:
        _draw_curve(axes, curve)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("condition number κ of the Hessian at the minimiser")
    axes.set_ylabel("iterations to ‖∇f‖ ≤ 10⁻¹⁰ ‖∇f(X₀)‖  (geometric mean)")
    axes.set_title(TITLES[artefact], fontsize=11, loc="left")
    axes.grid(True, which="minor", axis="y", color="#eeeeee", linewidth=0.4)
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    note = axes.text(
        0.99, 0.015, "\n".join(extent_lines(found)), transform=axes.transAxes, fontsize=7.5,
        color="#555555", ha="right", va="bottom", linespacing=1.35,
    )  # fmt: skip
    note.set_in_layout(False)  # a long note must not squeeze the axes
    low, high = axes.get_ylim()
    axes.set_ylim(low / 1.8, high * 3)  # room for the legend above and the note beneath
    return axes


def _draw_curve(axes: Any, curve: Curve) -> None:
    style, label = STYLE[curve.method], LABELS[curve.method]
    kappa = np.array([p.condition_number for p in curve.points])
    if curve.fit is not None:
        label += f": slope {curve.fit.slope:.3f} ± {curve.fit.slope_error:.3f}"
        ends = kappa[[0, -1]]
        heights = [curve.fit.iterations(end) for end in ends]
        axes.plot(ends, heights, color=style["color"], linewidth=1.2, alpha=0.7, zorder=2)
    mean = np.exp([p.mean_log_iterations for p in curve.points])
    spread = np.exp([p.deviation for p in curve.points])
    axes.errorbar(
        kappa * OFFSET.get(curve.method, 1.0), mean,
        yerr=[mean - mean / spread, mean * spread - mean], linestyle="none", markersize=5,
        markeredgecolor="white", markeredgewidth=0.6, elinewidth=1.0, capsize=2, label=label,
        zorder=3, **style,
    )  # fmt: skip
