"""Performance profiles as PNG and SVG."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from .measures import Cost, evaluations, profile, seconds, staircase
from .runs import Record, run_of
from .solvers import ALL

COLOURS = {
    "stiefel": ("#0072b2", "#56b4e9", "#003f6b", "#7a9cc6", "#3d6a99", "#9ecae1", "#08519c",
                "#4292c6", "#6baed6"),
    "pymanopt": ("#d55e00", "#e69f00", "#a63603", "#fdae6b"),
    "geoopt": ("#009e73", "#66c2a4"),
    "cdopt": ("#cc79a7", "#8e4585"),
    "scipy": ("#555555",),
}  # fmt: skip
MEASURES: dict[str, tuple[Cost, str]] = {
    "evaluations": (evaluations, "evaluations (points and Hessian products)"),
    "cpu": (seconds, "CPU seconds"),
}
END = 100.0


def draw(records: Sequence[Record], measure: str) -> dict[str, bytes]:
    """The profile in each format, by suffix; no global state is touched."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    cost, words = MEASURES[measure]
    present = {run_of(record).solver for record in records}
    solvers = [s.name for s in ALL.values() if s.general and s.name in present]
    curves = profile(records, cost, solvers)
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": measure}):
        figure = Figure(figsize=(9.0, 5.2), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        used: dict[str, int] = {}
        for name, (ratios, total) in curves.items():
            library = ALL[name].library
            shade = used.setdefault(library, 0)
            used[library] += 1
            palette = COLOURS[library]
            axes.plot(
                *staircase([r for r in ratios if r < END], total, END),
                color=palette[shade % len(palette)],
                linewidth=2.6 if name == "auto" else 1.3,
                linestyle="-" if ALL[name].ours else "--",
                label=f"{ALL[name].label} ({len(ratios)}/{total})",
            )
        _finish(axes, words)
        return _save(figure)


def _finish(axes: Any, words: str) -> None:
    axes.set_xscale("log")
    axes.set_xlim(1.0, END)
    axes.set_ylim(0.0, 1.02)
    axes.set_xlabel(f"τ: {words} as a multiple of the best solver's")
    axes.set_ylabel("share of the problems solved within τ")
    axes.grid(True, which="major", color="#dddddd", linewidth=0.7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _save(figure: Any) -> dict[str, bytes]:
    out = {}
    for suffix, options in (("png", {"dpi": 130}), ("svg", {"metadata": {"Date": None}})):
        buffer = io.BytesIO()
        figure.savefig(buffer, format=suffix, **options)
        out[suffix] = buffer.getvalue()
    return out
