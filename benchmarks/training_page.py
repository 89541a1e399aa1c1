"""The tables and curves of docs/guide/training.md, from the record of benchmarks/training.py."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent / "docs"
TITLES = {
    "mlp": "MLP on digits: loss on the training set",
    "attention": "Attention: accuracy (larger is better)",
    "copying": "Copying, delay 100: loss",
    "streaming_pca": "Streaming weighted PCA: excess of f",
    "quantisation": "Rotation for quantisation: relative 4-bit error",
    "fine_tuning": "Orthogonal fine-tuning: loss on held-out digits",
}
NOTES = {
    "random": "A random rotation gives",
    "without a rotation": "No rotation gives",
    "before": "Before fine-tuning the loss is",
}


def number(x: float | None) -> str:
    return "diverged" if x is None else f"{x:.3g}"


def table(task: str, methods: dict[str, Any]) -> str:
    sign = -1 if task == "attention" else 1

    def rank(found: dict[str, Any]) -> float:
        scores = [s["score"] for s in found["seeds"]]
        return math.inf if None in scores else sign * sum(scores) / len(scores)

    lines = [f"**{TITLES[task]}**", "", "| method | best rate | three seeds | time of a step |"]
    lines.append("|---|---|---|---|")
    base = min(
        (s["ms"] for s in methods.get("geoopt SGD", {}).get("seeds", ()) if "ms" in s), default=0
    )
    for name, found in sorted(methods.items(), key=lambda item: rank(item[1])):
        scores = " · ".join(number(s["score"]) for s in found["seeds"])
        ms = [s["ms"] for s in found["seeds"] if "ms" in s]
        ratio = f"{min(ms) / base:.2f} × geoopt SGD" if ms and base else "–"
        lines.append(f"| {name} | {found['best']} | {scores} | {ratio} |")
    notes = next((s["notes"] for m in methods.values() for s in m["seeds"] if s.get("notes")), {})
    if notes:
        lines += ["", "  ".join(f"{NOTES[key]} {number(value)}." for key, value in notes.items())]
    return "\n".join(lines)


def online(found: dict[str, Any]) -> str:
    lines = ["| k | n | method | epochs to 1e-2 of the first gap, best rate | time of a step |"]
    lines.append("|---|---|---|---|---|")
    for k, at in sorted(found.items(), key=lambda item: int(item[0])):
        for name, run in at.items():
            if isinstance(run, dict):
                reached = [e for e in run["epochs"].values() if e is not None]
                epochs = (
                    f"{min(reached)}" if reached else "not in ten" if run["epochs"] else "not run"
                )
                lines.append(
                    f"| {k} | {at['n']} | {name} | {epochs} | {run['time']:.2f} × landing |"
                )
    return "\n".join(lines)


def curves(record: dict[str, Any]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    tasks = [t for t in TITLES if t in record]
    figure, axes = pyplot.subplots(2, 3, figsize=(13, 7))
    for axis, task in zip(axes.flat, tasks, strict=False):
        for name, found in record[task].items():
            curve = found["seeds"][0].get("curve")
            if curve:
                ours = name.startswith("stiefel")
                axis.plot(curve, label=name, lw=2.2 if ours else 0.9, alpha=1 if ours else 0.7)
        axis.set_title(TITLES[task].split(":")[0])
        axis.set_ylabel("loss of a batch")
        if task != "streaming_pca":
            axis.set_yscale("log")
    handles = {h.get_label(): h for a in axes.flat for h in a.get_legend_handles_labels()[0]}
    figure.legend(handles.values(), handles.keys(), loc="lower center", ncol=7, fontsize=8)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    figure.savefig(DOCS / "benchmarks" / "training.svg")


def render(record: dict[str, Any]) -> None:
    parts = [table(task, record[task]) for task in TITLES if task in record]
    page = DOCS / "guide" / "training.md"
    text = page.read_text(encoding="utf-8")
    for name, body in (("tables", "\n\n".join(parts)), ("online", online(record["online_pca"]))):
        mark = f"<!-- {name} -->"
        replaced = f"{mark}\n\n{body}\n\n{mark}"
        text = re.sub(f"{mark}.*?{mark}", lambda _, r=replaced: r, text, flags=re.S)
    page.write_text(text, encoding="utf-8")
    curves(record)
