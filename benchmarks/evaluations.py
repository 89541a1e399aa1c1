"""Evaluations of `auto` and of everybody else on problems of many kinds.

    python benchmarks/evaluations.py                         every problem and method, half an hour
    python benchmarks/evaluations.py --ours                  without the peers
    python benchmarks/evaluations.py --arnt                  the ARNT set to 1e-6 and to 1e-10
    python benchmarks/evaluations.py --only Kohn tree --methods auto lbfgs-10 --starts 5 6 7
    python benchmarks/evaluations.py --save counts.json      counts are read and added to the file
    python benchmarks/evaluations.py --compare runs.jsonl    evaluations and CPU of everybody
    python benchmarks/evaluations.py --record runs.jsonl     the page that is made of them

An evaluation is a value with its gradient; a product with the Hessian is made of two gradients and
counts as one evaluation.  Every run ends when a gradient that was asked for is small enough, or f
where that was asked for, and is given up after --most evaluations.  The table has the sum over the
starts, and beside it by what factor the best one is better; counts are deterministic.  CPU is
measured with --compare only.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import evaluation_peers as peers
import numpy as np
from evaluation_problems import ARNT_SETUPS, ARNT_TIGHT, PROBLEMS, Task

import stiefel
from stiefel import LBFGS
from stiefel.solvers import METHODS

AUTO = METHODS["auto"]
OURS: dict[str, Any] = {
    "auto": AUTO,
    "auto-rows": replace(AUTO, rows=None),
    "lbfgs-5": LBFGS(memory=5),
    "lbfgs-10": LBFGS(memory=10),
    "lbfgs-30": LBFGS(memory=30),
    "cg": "cg",
    "accelerated": "accelerated",
    "trust-region": "trust-region",
}
# The same method without a part of it is no competitor.
COMPETITORS = [name for name in OURS if name != "auto-rows"] + list(peers.SOLVERS)
FAILED = math.inf


def ours(method: Any) -> Callable[[peers.Meter, Any], None]:
    def solve(meter: peers.Meter, x0: Any) -> None:
        tolerances = (
            {"gtol": 1e-300} if meter.task.value is not None else {"rtol": meter.task.rtol / 2}
        )
        limits = {"maxiter": 10**6, "maxfun": 10**6}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            manifold = meter.task.manifold
            result = stiefel.minimize(
                meter, x0, method=method, manifold=manifold, **tolerances, **limits
            )
        meter.message = result.message

    return solve


def count(task: Task, solve: Callable[[peers.Meter, Any], None], start: int, most: int) -> float:
    """Evaluations until the target, or infinity."""
    return spent(task, solve, start, most)[0]


def spent(
    task: Task, solve: Callable[[peers.Meter, Any], None], start: int, most: int
) -> tuple[float, float]:
    """Evaluations and CPU seconds until the target; infinity, or nan if the library has no way."""
    x0 = task.start(start)
    meter = peers.Meter(task, x0, most)
    began = time.process_time()
    evaluations = _evaluations(meter, solve, x0)
    seconds = time.process_time() - began - meter.own_seconds
    return evaluations, seconds if math.isfinite(evaluations) else evaluations


def _evaluations(meter: peers.Meter, solve: Callable[[peers.Meter, Any], None], x0: Any) -> float:
    try:
        solve(meter, x0)
    except peers.Reached:
        return meter.count
    except peers.TooMany:
        return FAILED
    except peers.NotForThis:
        return math.nan
    return FAILED


def table(
    names: dict[str, Any], methods: list[str], starts: list[int], most: int, saved: dict
) -> dict:
    """Counts by problem and method, a list over the starts; the file's where there are any."""
    solvers = {**{name: ours(method) for name, method in OURS.items()}, **peers.SOLVERS}
    counts: dict[str, dict[str, list[float]]] = {}
    for name, make in names.items():
        task, counts[name] = None, {}
        for method in methods:
            row = []
            for start in starts:
                key = f"{name}|{method}|{start}"
                if key not in saved or method in OURS:
                    task = task or make()
                    saved[key] = count(task, solvers[method], start, most)
                row.append(saved[key])
            counts[name][method] = row
        show(name, counts[name])
    return counts


def show(name: str, row: dict[str, list[float]]) -> None:
    best = min(
        (sum(c) for m, c in row.items() if m in COMPETITORS and sum(c) > 0), default=math.nan
    )
    cells = []
    for counts in row.values():
        total = sum(counts)
        cell = (
            "—" if math.isnan(total) else "∞" if math.isinf(total) else f"{total / len(counts):.0f}"
        )
        cells.append(f"{cell:>9}")
    auto = row.get("auto")
    ratio = f"{sum(auto) / best:6.2f}" if auto else ""
    print(f"{name:36}", *cells, ratio, flush=True)


def summary(counts: dict[str, dict[str, list[float]]]) -> None:
    """On how many runs each method is within a factor of the best one, problems × starts."""
    rows = [list(zip(*(r[m] for m in r if m in COMPETITORS))) for r in counts.values()]
    names = [[m for m in r if m in COMPETITORS] for r in counts.values()]
    runs = [dict(zip(n, run)) for n, row in zip(names, rows) for run in row]
    print(f"\n{'runs':36} {len(runs)}   within 1.03, 1.1, 1.3, 1.5 of the best, and failed")
    for method in sorted({m for run in runs for m in run}, key=COMPETITORS.index):
        own = [
            run[method] / np.nanmin(list(run.values()))
            for run in runs
            if not math.isnan(run[method])
        ]
        own = np.array(own)
        within = [f"{100 * np.sum(own <= f) / len(runs):4.0f} %" for f in (1.03, 1.1, 1.3, 1.5)]
        print(f"{method:36}", *within, f"{int(np.sum(np.isinf(own))):4}")


def compare(names: dict[str, Any], methods: list[str], starts: list[int], path: Path) -> None:
    """Evaluations and CPU of everybody beside `auto`, one JSON line a run; see `record`.

    Each is given up after fifteen times the evaluations of `auto`.  A run is repeated where it
    takes less than a fifth of a second, and the fastest one counts.
    """
    solvers = {**{name: ours(method) for name, method in OURS.items()}, **peers.SOLVERS}
    with path.open("a") as file:
        for name, make in names.items():
            task = make()
            for start in starts:
                row, most = {}, 10_000
                for method in ["auto", *(m for m in methods if m != "auto")]:
                    try:
                        row[method] = spent(task, solvers[method], start, most)
                        if row[method][1] < 0.2:
                            again = spent(task, solvers[method], start, most)
                            row[method] = row[method][0], min(row[method][1], again[1])
                    except Exception as error:
                        print(name, method, repr(error)[:100], flush=True)
                        row[method] = math.inf, math.inf
                    if method == "auto" and math.isfinite(row["auto"][0]):
                        most = int(15 * row["auto"][0]) + 100
                file.write(json.dumps({"problem": name, "start": start, "spent": row}) + "\n")
                file.flush()
                print(name, start, row, flush=True)


def record(path: Path) -> None:
    """The comparison as a page: shares first, then the losses."""
    lines = map(json.loads, path.read_text().splitlines())
    rows = list({(row["problem"], row["start"]): row for row in lines}.values())
    for i, unit in enumerate(("evaluations", "CPU")):
        ratios = []
        for row in rows:
            runs = {m: v[i] for m, v in row["spent"].items() if m in COMPETITORS}
            finite = {m: v for m, v in runs.items() if math.isfinite(v)}
            best = min(finite, key=lambda m: finite[m])
            ratios.append((runs["auto"] / finite[best], row["problem"], row["start"], best))
        shares = [100 * sum(r[0] <= f for r in ratios) / len(ratios) for f in (1.0, 1.1, 1.5, 2.0)]
        print(f"\n## {unit}: {len(ratios)} runs, `auto` within 1, 1.1, 1.5 and 2 of the best on "
              + ", ".join(f"{share:.0f} %" for share in shares) + "\n")  # fmt: skip
        print("| problem | seed of the start | auto/best | best |\n|---|---|---|---|")
        for ratio, problem, start, best in sorted(ratios, reverse=True):
            print(f"| {problem} | {start} | {ratio:.2f} | {best} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--ours", action="store_true")
    parser.add_argument("--arnt", action="store_true")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--methods", nargs="*", default=[])
    parser.add_argument("--starts", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--most", type=int, default=10_000)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--compare", type=Path, help="write evaluations and CPU to this file")
    parser.add_argument("--record", type=Path, help="read them and print the page")
    arguments = parser.parse_args()
    problems = {n: PROBLEMS[n] for n in ARNT_SETUPS} | ARNT_TIGHT if arguments.arnt else PROBLEMS
    if arguments.only:
        problems = {n: p for n, p in problems.items() if any(w in n for w in arguments.only)}
    methods = arguments.methods or [*OURS, *([] if arguments.ours else peers.SOLVERS)]
    if arguments.record:
        return record(arguments.record)
    if arguments.compare:
        return compare(problems, methods, arguments.starts, arguments.compare)
    path = arguments.save
    saved = json.loads(path.read_text()) if path and path.exists() else {}
    print(f"{'evaluations, mean of the starts':36}", *(f"{m[:9]:>9}" for m in methods), "auto/best")
    began = time.process_time()
    try:
        summary(table(problems, methods, arguments.starts, arguments.most, saved))
    finally:
        if path:
            path.write_text(json.dumps(saved))
    print(f"{time.process_time() - began:.0f} CPU s")


if __name__ == "__main__":
    main()
