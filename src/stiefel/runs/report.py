"""A result for eyes: text in a terminal, HTML with a small plot in a notebook, a figure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

FIRST = ("success", "status", "fun", "gradient_norm", "feasibility")
COUNTS = ("nit", "nfev", "njev", "nhev", "restarts", "seconds")
WIDTH, HEIGHT, POINTS = 360, 120, 300  # of the small plot: pixels, and points of its line


def as_text(result: Mapping[str, Any]) -> str:
    """One field a line; arrays by their shape."""
    rows = [("message", result.get("message")), *_rows(result)]
    return "\n".join(f"{name:>14}: {short(value)}" for name, value in rows)


def _rows(result: Mapping[str, Any]) -> list[tuple[str, Any]]:
    names = [*FIRST, *(name for name in COUNTS if result.get(name) or name != "nhev")]
    if result.get("determinant") is not None:
        names.append("determinant")
    return [(name, result[name]) for name in (*names, "x") if name in result]


def short(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if hasattr(value, "shape"):
        return f"array of shape {tuple(value.shape)}, {value.dtype}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key!r}: {short(v)}" for key, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        inside = ", ".join(map(short, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    return str(value)


def as_html(result: Mapping[str, Any]) -> str:
    """A table beside the gradient norm against evaluations, for notebooks."""
    rows = "".join(
        f'<tr><th style="text-align:left">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(short(value))}</td></tr>'
        for name, value in _rows(result)
    )
    title = escape(str(result.get("message", "")))
    history = result.get("history")
    plot = "" if history is None else _svg(history["nfev"], history["gradient_norm"])
    return f"<div><b>{title}</b><table>{rows}</table>{plot}</div>"


def _svg(x: np.ndarray[Any, Any], y: np.ndarray[Any, Any]) -> str:
    """A polyline of log₁₀ y against x, with the ends of both axes named."""
    seen = np.isfinite(y) & (y > 0)
    if seen.sum() < 2:
        return ""
    every = max(1, math.ceil(seen.sum() / POINTS))
    keep = np.flatnonzero(seen)[::-1][::every][::-1]  # the last one is always there
    a, b = x[keep].astype(float), np.log10(y[keep])
    left, right = a[0], max(a[-1], a[0] + 1.0)
    low, high = b.min(), max(b.max(), b.min() + 1e-9)
    columns = WIDTH * (a - left) / (right - left)
    lines = 5 + (HEIGHT - 10) * (high - b) / (high - low)
    points = " ".join(f"{u:.1f},{v:.1f}" for u, v in zip(columns, lines))
    return (
        f'<svg width="{WIDTH + 10}" height="{HEIGHT + 20}" role="img" '
        'aria-label="gradient norm against evaluations" '
        'style="background:white;color:black;font:11px sans-serif">'
        f'<polyline points="{points}" fill="none" stroke="#1f77b4" stroke-width="1.5"/>'
        f'<text x="60" y="14">gradient norm {10 ** b[0]:.1e} → {10 ** b[-1]:.1e}</text>'
        f'<text x="0" y="{HEIGHT + 15}">{left:.0f}</text>'
        f'<text x="{WIDTH + 8}" y="{HEIGHT + 15}" text-anchor="end">{right:.0f} evaluations</text>'
        "</svg>"
    )


def draw(result: Mapping[str, Any], path: Any = None) -> Any:
    """Three panels over evaluations: value, gradient norm, step; restarts are marked."""
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError as error:
        raise ImportError(
            "result.plot() needs matplotlib, which is not installed: pip install matplotlib"
        ) from error
    table = result["history"].as_array()
    figure, axes = pyplot.subplots(3, 1, sharex=True, figsize=(6.4, 7.2), layout="constrained")
    above = table["value"] - np.nanmin(table["value"])
    panels = (("f − lowest f", above), ("gradient norm", table["gradient_norm"]))
    for axis, (label, y) in zip(axes, (*panels, ("step", table["step"]))):
        axis.semilogy(table["nfev"], np.where(y > 0, y, np.nan), linewidth=1.2)
        axis.set_ylabel(label)
        axis.grid(alpha=0.3)
        for where in table["nfev"][table["restart"]]:
            axis.axvline(where, color="C1", linewidth=0.6, alpha=0.6)
    marks = int(table["restart"].sum())
    axes[0].set_title(f"{result['status']}" + (f", {marks} restarts (lines)" if marks else ""))
    axes[-1].set_xlabel("evaluations of the function")
    if path is not None:
        figure.savefig(path, dpi=150)
    return figure
