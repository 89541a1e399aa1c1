"""Figures 1 and 2 from their curves, as PNG and SVG."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .fits import Curve
from .paper import LABELS

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


def make_figure(artefact: str, curves: Sequence[Curve]) -> Any:
    """A matplotlib figure on the Agg canvas; nothing is shown and no global state is touched."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.2, 5.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for curve in curves:
        _draw_curve(axes, curve)
    _finish(axes, artefact, curves)
    return figure


def draw(artefact: str, curves: Sequence[Curve]) -> dict[str, bytes]:
    """The figure in each format, by suffix."""
    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": artefact}):
        figure, out = make_figure(artefact, curves), {}
        for suffix, options in (("png", {"dpi": 150}), ("svg", {"metadata": {"Date": None}})):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=suffix, **options)  # type: ignore[arg-type]
            out[suffix] = buffer.getvalue()
    return out


def _draw_curve(axes: Any, curve: Curve) -> None:
    style = STYLE[curve.method]
    label = LABELS[curve.method]
    if curve.fit is not None:
        label += f": slope {curve.fit.slope:.3f} ± {curve.fit.slope_error:.3f}"
        ends = np.array([curve.points[0].condition_number, curve.points[-1].condition_number])
        heights = [curve.fit.iterations(kappa) for kappa in ends]
        axes.plot(ends, heights, color=style["color"], linewidth=1.2, alpha=0.7, zorder=2)
    kappa = np.array([p.condition_number for p in curve.points])
    mean = np.exp([p.mean_log_iterations for p in curve.points])
    spread = np.exp([p.deviation for p in curve.points])
    axes.errorbar(
        kappa * OFFSET.get(curve.method, 1.0),
        mean,
        yerr=[mean - mean / spread, mean * spread - mean],
        linestyle="none",
        markersize=5,
        markeredgecolor="white",
        markeredgewidth=0.6,
        elinewidth=1.0,
        capsize=2,
        label=label,
        zorder=3,
        **style,
    )


def _finish(axes: Any, artefact: str, curves: Sequence[Curve]) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("condition number κ of the Hessian at the minimiser")
    axes.set_ylabel("iterations to ‖∇f‖ ≤ 10⁻¹⁰ ‖∇f(X₀)‖  (geometric mean)")
    axes.set_title(TITLES[artefact], fontsize=11, loc="left")
    axes.grid(True, which="major", color="#dddddd", linewidth=0.7)
    axes.grid(True, which="minor", axis="y", color="#eeeeee", linewidth=0.4)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    note = axes.text(
        0.99, 0.015, "\n".join(extent_lines(curves)), transform=axes.transAxes, fontsize=7.5,
        color="#555555", ha="right", va="bottom", linespacing=1.35,
    )  # fmt: skip
    note.set_in_layout(False)  # a long note must not squeeze the axes
    low, high = axes.get_ylim()
    axes.set_ylim(low / 1.8, high * 3)  # room for the legend above and the note beneath


def extent_lines(curves: Sequence[Curve]) -> list[str]:
    """How many starts each method had at which n: the figure says what it was made from."""
    lines = []
    for curve in curves:
        pieces: list[list[int]] = []  # [starts, first n, last n]
        for point in curve.points:
            if pieces and pieces[-1][0] == point.starts:
                pieces[-1][2] = point.n
            else:
                pieces.append([point.starts, point.n, point.n])
        if len(pieces) > 3:  # the record and the table beside the figure have the details
            counts = [p.starts for p in curve.points]
            low, high, a, b = min(counts), max(counts), curve.points[0].n, curve.points[-1].n
            text = f"{low} to {high} starts at n = {a}–{b}"
        else:
            text = ", ".join(_piece(*piece) for piece in pieces)
        note = f"; {curve.unconverged} not converged" if curve.unconverged else ""
        lines.append(f"{LABELS[curve.method]}: {text or 'no run'}{note}")
    return lines


def _piece(starts: int, first: int, last: int) -> str:
    sizes = f"{first}–{last}" if last > first else f"{first}"
    return f"{starts} start{'s' * (starts > 1)} at n = {sizes}"


def ratio_range(fast: Curve, slow: Curve) -> tuple[float, float] | None:
    """The least and greatest ratio of mean iterations, slow/fast, over the n that both have."""
    mean = {p.n: p.mean_log_iterations for p in fast.points}
    ratios = [math.exp(p.mean_log_iterations - mean[p.n]) for p in slow.points if p.n in mean]
    return (min(ratios), max(ratios)) if ratios else None
