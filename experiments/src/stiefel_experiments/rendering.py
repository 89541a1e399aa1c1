"""Tables as text and figures as files, from values and nothing else."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

FORMATS: dict[str, dict[str, Any]] = {"png": {}, "svg": {"metadata": {"Date": None}}}


@dataclass(frozen=True)
class Table:
    """A heading and cells, all text."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def markdown(self) -> str:
        lines = [self.header, ("---",) * len(self.header), *self.rows]
        return "".join("| " + " | ".join(line) + " |\n" for line in lines)

    def csv(self) -> str:
        buffer = io.StringIO()
        csv.writer(buffer, lineterminator="\n").writerows([self.header, *self.rows])
        return buffer.getvalue()


def bullets(lines: Iterable[Any]) -> str:
    return "".join(f"- {line}\n" for line in lines)


def new_axes(width: float, height: float) -> Any:
    """Axes of a new matplotlib figure on the Agg canvas; nothing is shown."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.grid(True, which="major", color="#dddddd", linewidth=0.7)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return axes


def save(name: str, axes: Any, dpi: int) -> dict[str, bytes]:
    """The figure in each format, by file name; the same data give the same bytes."""
    import matplotlib

    out = {}
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        for suffix, options in FORMATS.items():
            buffer = io.BytesIO()
            axes.figure.savefig(buffer, format=suffix, dpi=dpi, **options)
            out[f"{name}.{suffix}"] = buffer.getvalue()
    return out
