"""``stiefel demo``: the paper's Table 1 problem, solved by several methods side by side."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

import stiefel
from stiefel.objectives import Brockett
from stiefel.types import Array

from . import progress
from .output import NOT_CONVERGED, Misuse, print_json, print_table, refusals, say

N, K, RTOL = 1000, 10, 1e-7
PICTURE = "stiefel-demo.png"
OURS = {
    "auto": "auto",
    "L-BFGS": "lbfgs",
    "Algorithm 1 of the paper": "accelerated",
}
# Other libraries, where they and the adapters of stiefel-experiments are installed.
THEIRS = {
    "pymanopt, CG": ("pymanopt", "peer_pymanopt", "pymanopt-cg-hs"),
    "cdopt, L-BFGS": ("cdopt", "peer_cdopt", "cdopt-lbfgs"),
}
ShowShare = Callable[[float], None]  # the share of a run that is done


class MethodRun(NamedTuple):
    """What one method did: its curve is the gradient norm, relative, against evaluations."""

    method: str
    evaluations: int
    seconds: float  # of the processor
    converged: bool
    value: float
    curve: tuple[Array, Array]


def register(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(
    picture: Annotated[
        Path | None, typer.Option(help="Where the picture goes.", show_default="a temporary folder")
    ] = None,
    limit: Annotated[float, typer.Option(min=0.1, help="Processor seconds for each method.")] = 6.0,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the random start.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON for machines.")] = False,
) -> None:
    """Solve the paper's Table 1 problem by several methods, in about 15 seconds.

    The ten lowest eigenvectors of a matrix of order 1000 are found by minimising a function of a
    1000 × 10 matrix with orthonormal columns (Brockett's), from one random start.

    Example:  stiefel demo --picture demo.png
    """
    with refusals():
        if find_spec("matplotlib") is None:
            raise Misuse("the picture needs matplotlib, which is missing: pip install matplotlib")
        where = picture or Path(tempfile.gettempdir()) / PICTURE
        runs = run_all(limit, seed)
        draw_runs(runs, where)
    if as_json:
        print_json({"runs": [_document(run) for run in runs], "picture": str(where)})
    else:
        show_runs(runs, where, limit)
    if not runs[0].converged:
        raise typer.Exit(NOT_CONVERGED)


def run_all(limit: float, seed: int) -> list[MethodRun]:
    """Our methods, and those of other libraries that are at hand."""
    problem = Brockett.table(N, K), stiefel.random_point(N, K, seed=seed), limit
    others = {
        title: names
        for title, names in THEIRS.items()
        if find_spec(names[0]) and find_spec("stiefel_experiments")
    }
    total = len(OURS) + len(others)
    runs: list[MethodRun | None] = []
    with progress.bar("demo") as bar:

        def ticks(title: str, done: int) -> ShowShare:
            return lambda share: bar(title, done + share, total)

        for i, (title, method) in enumerate(OURS.items()):
            runs.append(ours(title, method, *problem, ticks(title, i)))
        for i, (title, (_, module, name)) in enumerate(others.items(), len(OURS)):
            runs.append(theirs(title, module, name, *problem, ticks(title, i)))
    return [run for run in runs if run is not None]


def ours(
    title: str, method: str, objective: Brockett, X0: Array, limit: float, tick: ShowShare
) -> MethodRun:
    first: list[float] = []

    def callback(snapshot: Any) -> bool:
        if not first:
            first.append(snapshot.gradient_norm)
        if snapshot.nit % 20 == 0:
            tick(_share(snapshot.gradient_norm / first[0]))
        return time.process_time() - began > limit

    began = time.process_time()
    result = stiefel.minimize(objective, X0, method=method, rtol=RTOL, callback=callback)
    seconds = time.process_time() - began
    table = result.history.as_array()
    curve = table["nfev"], table["gradient_norm"] / table["gradient_norm"][0]
    return MethodRun(title, result.nfev, seconds, result.success, result.fun, curve)


class _Enough(BaseException):
    """Leaves another library's solver from inside the function."""


class Tape:
    """The function as other libraries see it: counts, writes the curve, ends at the tolerance."""

    def __init__(self, objective: Brockett, X0: Array, limit: float, tick: ShowShare) -> None:
        self._objective, self._tick = objective, tick
        self._manifold = stiefel.Stiefel().bind(X0)
        self._end = time.process_time() + limit
        self._first = math.nan
        self._last_evaluation: tuple[Array, float, Array] | None = None
        self.shape, self.calls, self.f = X0.shape, 0, math.nan
        self.iterations, self.message = 0, ""
        self.curve: list[tuple[int, float]] = []

    def value(self, X: Array) -> float:
        return self.value_and_gradient(X)[0]

    def gradient(self, X: Array) -> Array:
        return self.value_and_gradient(X)[1]

    def value_and_gradient(self, X: Array) -> tuple[float, Array]:
        if self._last_evaluation is None or not np.array_equal(self._last_evaluation[0], X):
            self.calls += 1
            self._last_evaluation = X.copy(), *self._objective.value_and_gradient(X)
            self._note(*self._last_evaluation)
        return self._last_evaluation[1], self._last_evaluation[2].copy()

    __call__ = value_and_gradient

    def hessp(self, X: Array, V: Array) -> Array:
        return self._objective.hessp(X, V)

    def untimed(self, work: Callable[[], Any]) -> Any:
        return work()

    def _note(self, X: Array, f: float, G: Array) -> None:
        norm = self._manifold.norm(X, self._manifold.project(X, G))
        self._first = norm if math.isnan(self._first) else self._first
        self.f = f
        self.curve.append((self.calls, norm / self._first))
        if self.calls % 20 == 0:
            self._tick(_share(norm / self._first))
        if norm <= RTOL * self._first or time.process_time() > self._end:
            raise _Enough


def theirs(
    title: str,
    module: str,
    name: str,
    objective: Brockett,
    X0: Array,
    limit: float,
    tick: ShowShare,
) -> MethodRun | None:
    """Another library's run; None where it does not work with what is installed."""
    try:
        solve = import_module(f"stiefel_experiments.bench.{module}").SOLVERS[name]
        tape, began = Tape(objective, X0, limit, tick), time.process_time()
        solve(tape, X0)
    except _Enough:
        pass
    except Exception as error:
        say(f"{title} was left out: {type(error).__name__}: {error}", stderr=True)
        return None
    seconds = time.process_time() - began
    x, y = map(np.array, zip(*tape.curve, strict=True))
    return MethodRun(title, tape.calls, seconds, bool(y[-1] <= RTOL), tape.f, (x, y))


def _share(relative: float) -> float:
    """How far a gradient has fallen on its way to the tolerance, between 0 and 1."""
    return min(max(0.0, math.log(relative) / math.log(RTOL)), 1.0) if relative > 0 else 1.0


def show_runs(runs: list[MethodRun], picture: Path, limit: float) -> None:
    least = runs[0].evaluations
    rows = [
        (
            run.method,
            f"{run.evaluations:,}",
            f"{'' if run.converged else '> '}{run.evaluations / least:.0f}",
            f"{1000 * run.seconds:,.0f}",
            "yes" if run.converged else f"no, in {limit:g} s",
        )
        for run in runs
    ]
    header = ("method", "evaluations", "× auto", "CPU ms", "converged")
    print_table(f"Brockett's function, n = {N}, k = {K} (Table 1 of the paper)", header, rows)
    say("")
    say(conclusion(runs))
    say(f"Picture: {picture}")


def conclusion(runs: list[MethodRun]) -> str:
    """One sentence of what the table shows."""
    auto, *others = runs
    if not auto.converged:
        return "auto was not done within the limit; give it more time with --limit."
    exact = float(Brockett.table(N, K).minimum)
    error = abs(auto.value - exact) / abs(exact)
    best = min(others, key=lambda run: run.evaluations if run.converged else math.inf)
    found = f"auto found the exact minimum to {max(error, 1e-16):.0e} (relative)"
    if not best.converged:
        return f"{found} with {auto.evaluations:,} evaluations; no other method was done in time."
    ratio = best.evaluations / auto.evaluations
    return (
        f"{found} with {auto.evaluations:,} evaluations of the function; the next best method, "
        f"{best.method}, needed {ratio:.1f} times as many."
    )


def draw_runs(runs: list[MethodRun], path: Path) -> None:
    """Gradient norm against evaluations, on a logarithmic scale."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    axis = figure.add_subplot()
    for run in runs:
        x, y = run.curve
        every = max(1, len(x) // 2000)
        lowest = np.minimum.accumulate(y)
        axis.loglog(x[::every], lowest[::every], label=run.method, linewidth=1.5)
    axis.axhline(RTOL, color="grey", linewidth=0.8, linestyle=":")
    axis.set_xlim(left=10)
    axis.set_xlabel("evaluations of the function")
    axis.set_ylabel("lowest gradient norm so far, relative")
    axis.set_title(f"Brockett's function, n = {N}, k = {K}")
    axis.legend(frameon=False, loc="lower left")
    axis.grid(alpha=0.25)
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise Misuse(f"cannot write the picture to {path}: {error}") from None


def _document(run: MethodRun) -> dict[str, Any]:
    return {
        "method": run.method,
        "evaluations": run.evaluations,
        "cpu_seconds": run.seconds,
        "converged": run.converged,
        "value": run.value,
    }
