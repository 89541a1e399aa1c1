"""The paper's figures and tables as experiments: from records to curves, tables and verdicts."""

from __future__ import annotations

import math
import textwrap
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from stiefel_experiments.engine import Report, Spec
from stiefel_experiments.records import Record
from stiefel_experiments.rendering import Table, bullets, new_axes, save

from .runs import (
    ARTEFACTS,
    FIGURE_METHODS,
    FORMAT,
    LABELS,
    TABLE_METHODS,
    Extent,
    Run,
    execute,
    plan,
    run_of,
    table_size,
)

# Three hues that stay apart for colour-blind readers and in grey; shapes tell them apart as well.
STYLE = dict(zip(FIGURE_METHODS, (("#0072b2", "o"), ("#e69f00", "s"), ("#333333", "^"))))
OFFSET = {"function-restart": 0.985, "gradient-restart": 1.015}  # the two lie on each other
TITLES = {
    "figure1": "One eigenvector: the sphere, A = diag(1, …, n)",
    "figure2": "Ten eigenvectors: Brockett cost, A = diag(1, …, n), α_i = i",
}
COLUMNS = {
    "iterations": "iterations",
    "function_evaluations": "function evals",
    "gradient_evaluations": "gradient evals",
    "cpu_seconds": "CPU time (s)",  # the paper's: on the author's machine
}
PRINTED = {  # means over ten starts, in the order of COLUMNS; "lbfgs" is ROPTLIB's L-RBFGS
    (1000, 10, "function-restart"): (17266.2, 43513.4, 17267.2, 17.8),
    (1000, 10, "lbfgs"): (31027.4, 32528.9, 31028.4, 26.3),
    (2000, 20, "function-restart"): (28758.8, 93747.8, 28759.8, 64.5),
    (2000, 20, "lbfgs"): (84767.2, 89013.8, 84768.2, 169.4),
}


@dataclass(frozen=True)
class Verdict:
    """A claim, whether it holds here, and the numbers."""

    claim: str
    holds: bool | None  # None: the record cannot tell
    numbers: str

    def __str__(self) -> str:
        word = {True: "holds", False: "does not hold", None: "cannot be told"}[self.holds]
        return f"{self.claim}: {word} ({self.numbers})"


def artefact(name: str, extent: Extent | None = None) -> Spec[Run]:
    """One of `ARTEFACTS`, by default to the paper's own extent."""
    make = {"figure": _figure, "table": _table}.get(name[:-1], _scale)
    # Non-convergence is what the table of scales is about.
    return Spec(name, plan(name, extent or Extent()), FORMAT, execute, partial(make, name),
                must_converge=lambda run: name != "scale",
                borrows=[other for other in ARTEFACTS if other != name])  # fmt: skip


def _report(
    name: str, title: str, table: Table, said: list[Verdict], notes: list[str], data: Any,
    pictures: dict[str, bytes] | None = None,
) -> Report:  # fmt: skip
    parts = [f"# {title}\n", *([f"![{title}]({name}.png)\n"] if pictures else [])]
    parts += [table.markdown(), bullets(said), "".join(f"{note}\n" for note in notes)]
    texts = {f"{name}.csv": table.csv().encode(), f"{name}.md": "\n".join(parts).encode()}
    document = {"title": title, "data": data, "verdicts": [asdict(v) for v in said], "notes": notes}
    return Report(title, table, said, notes, (pictures or {}) | texts, document)


# -- figures: mean log(iterations) against log κ, with a fitted line --------------------------


class Point(NamedTuple):
    """All starts at one n."""

    n: int
    condition_number: float
    mean_log_iterations: float
    deviation: float  # standard deviation of log(iterations) over the starts; 0 for one start
    starts: int


class Fit(NamedTuple):
    """log(iterations) = intercept + slope · log κ, by least squares on the means."""

    slope: float
    slope_error: float  # its standard error
    intercept: float


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
    return Curve(method, points, _fit(points), len(found) - sum(p.starts for p in points))


def _fit(points: Sequence[Point]) -> Fit | None:
    """Ordinary least squares, every n with the same weight as in the paper."""
    if len(points) < 3:
        return None
    x = np.log([p.condition_number for p in points])
    line, covariance = np.polyfit(x, [p.mean_log_iterations for p in points], 1, cov=True)
    return Fit(float(line[0]), float(covariance[0, 0] ** 0.5), float(line[1]))


def extent_lines(found: Sequence[Curve]) -> list[str]:
    """How many starts each method had at which n: the figure says what it was made from."""
    lines = []
    for curve in found:
        pieces = [(s, [p.n for p in same]) for s, same in groupby(curve.points, lambda p: p.starts)]
        if len(pieces) > 3:  # the record and the table beside the figure have the details
            counts, sizes = [s for s, _ in pieces], [p.n for p in curve.points]
            text = f"{min(counts)} to {max(counts)} starts at n = {sizes[0]}–{sizes[-1]}"
        else:
            text = ", ".join(
                f"{s} start{'s' * (s > 1)} at n = {'–'.join(map(str, sorted({n[0], n[-1]})))}"
                for s, n in pieces
            )
        note = f"; {curve.unconverged} not converged" if curve.unconverged else ""
        lines.append(f"{LABELS[curve.method]}: {text or 'no run'}{note}")
    return lines


def _figure(name: str, found: Sequence[Record]) -> Report:
    lines = curves(found)
    header = ("method", "n", "κ", "starts", "geometric mean of iterations", "spread (factor)")
    rows = tuple(
        (LABELS[c.method], str(p.n), f"{p.condition_number:g}", str(p.starts),
         f"{math.exp(p.mean_log_iterations):.1f}", f"{math.exp(p.deviation):.3f}")
        for c in lines for p in c.points
    )  # fmt: skip
    notes = [f"- {line}" for line in extent_lines(lines)]
    data = [{"method": c.method, "points": [p._asdict() for p in c.points],
             "fit": c.fit and c.fit._asdict(), "unconverged": c.unconverged}
            for c in lines]  # fmt: skip
    return _report(name, f"Figure {name[-1]}. {TITLES[name]}", Table(header, rows),
                   judge_figure(lines), notes, data,
                   save(name, draw(name, lines), dpi=150))  # fmt: skip


def draw(name: str, found: Sequence[Curve]) -> Any:
    """The axes of a new matplotlib figure."""
    axes = new_axes(7.2, 5.0)
    for curve in found:
        _draw_curve(axes, curve)
    axes.set(xscale="log", yscale="log",
             xlabel="condition number κ of the Hessian at the minimiser",
             ylabel="iterations to ‖∇f‖ ≤ 10⁻¹⁰ ‖∇f(X₀)‖  (geometric mean)")  # fmt: skip
    axes.set_title(TITLES[name], fontsize=11, loc="left")
    axes.grid(True, which="minor", axis="y", color="#eeeeee", linewidth=0.4)
    axes.legend(frameon=False, fontsize=9, loc="upper left")
    lines = [part for line in extent_lines(found) for part in textwrap.wrap(line, 115)]
    axes.figure.supxlabel("\n".join(lines), fontsize=7.5, color="#555555", linespacing=1.35)
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * 3)  # room for the legend
    return axes


def _draw_curve(axes: Any, curve: Curve) -> None:
    (colour, marker), label = STYLE[curve.method], LABELS[curve.method]
    kappa = np.array([p.condition_number for p in curve.points])
    if curve.fit is not None:
        label += f": slope {curve.fit.slope:.3f} ± {curve.fit.slope_error:.3f}"
        heights = np.exp(curve.fit.intercept + curve.fit.slope * np.log(kappa[[0, -1]]))
        axes.plot(kappa[[0, -1]], heights, color=colour, linewidth=1.2, alpha=0.7, zorder=2)
    mean = np.exp([p.mean_log_iterations for p in curve.points])
    spread = np.exp([p.deviation for p in curve.points])
    axes.errorbar(
        kappa * OFFSET.get(curve.method, 1.0), mean,
        yerr=[mean - mean / spread, mean * spread - mean], linestyle="none", markersize=5,
        markeredgecolor="white", markeredgewidth=0.6, elinewidth=1.0, capsize=2, label=label,
        zorder=3, color=colour, marker=marker,
    )  # fmt: skip


def judge_figure(found: Sequence[Curve]) -> list[Verdict]:
    """The claims of Section 5's figures."""
    by_method = {curve.method: curve for curve in found}
    fast = [by_method.get(method) for method in FIGURE_METHODS[:2]]
    descent = by_method.get("gradient-descent")
    verdicts = [_slope(curve, "scales no worse than √κ", -1.0, 0.5) for curve in fast]
    verdicts.append(_slope(descent, "scales about as κ", 0.9, 1.05))
    for method, curve in zip(FIGURE_METHODS, fast):
        claim = f"{LABELS[method]} outperforms gradient descent at every n"
        mean = {p.n: p.mean_log_iterations for p in curve.points} if curve else {}
        ratios = [math.exp(p.mean_log_iterations - mean[p.n])
                  for p in (descent.points if descent else ()) if p.n in mean]  # fmt: skip
        numbers = "no n has both"
        if ratios:
            numbers = f"{min(ratios):.1f} to {max(ratios):.1f} times fewer iterations"
        verdicts.append(Verdict(claim, min(ratios) > 1 if ratios else None, numbers))
    return verdicts


def _slope(curve: Curve | None, claim: str, low: float, high: float) -> Verdict:
    if curve is None or curve.fit is None:
        return Verdict(f"a method {claim}", None, "fewer than three n")
    fit = curve.fit
    # Outside the bounds by less than two standard errors is no evidence, for or against.
    inside = low <= fit.slope <= high
    beyond = max(low - fit.slope, fit.slope - high)
    holds = None if not inside and beyond <= 2 * fit.slope_error else inside
    numbers = f"slope {fit.slope:.3f} ± {fit.slope_error:.3f}, expected "
    numbers += f"at most {high:g}" if low < 0 else f"{low:g} to {high:g}"
    return Verdict(f"{LABELS[curve.method]} {claim}", holds, numbers)


# -- tables: means beside the printed numbers --------------------------------------------------


@dataclass(frozen=True)
class Mean:
    """A row of ours: means over the starts that converged."""

    method: str
    n: int
    k: int
    iterations: float
    function_evaluations: float
    gradient_evaluations: float
    cpu_seconds: float
    starts: int
    unconverged: int

    @property
    def printed(self) -> dict[str, float] | None:
        row = PRINTED.get((self.n, self.k, self.method))
        return dict(zip(COLUMNS, row)) if row else None


def means(found: Sequence[Record]) -> list[Mean]:
    """One row a method, in the order of the paper, then ours."""
    rows = []
    for method in TABLE_METHODS:
        mine = [r for r in found if run_of(r).method == method]
        done = [r for r in mine if r["status"] == "CONVERGED"]
        if mine:
            run, failed = run_of(mine[0]), len(mine) - len(done)
            values = {c: float(np.mean([r[c] for r in done])) if done else np.nan for c in COLUMNS}
            rows.append(Mean(method, run.n, run.k, starts=len(done), unconverged=failed, **values))
    return rows


def comparison(rows: Sequence[Mean]) -> Table:
    """Ours, with the paper's number in the next column."""
    header = [word for title in COLUMNS.values() for word in (title, "paper")]
    header[-1] = "paper's time (s), its machine"
    cells = []
    for row in rows:
        failed = f" (+{row.unconverged} not converged)" if row.unconverged else ""
        line = [LABELS[row.method], f"{row.starts}{failed}"]
        for column in COLUMNS:
            theirs = f"{row.printed[column]:.1f}" if row.printed else "–"
            line += [f"{getattr(row, column):.1f}", theirs]
        cells.append(tuple(line))
    return Table(("method", "starts", *header), tuple(cells))


def _table(name: str, found: Sequence[Record]) -> Report:
    # A quick run and a full one may share a record; the full one, if there, is the table.
    n, k = size = max((run_of(r).n, run_of(r).k) for r in found)
    rows = means([r for r in found if (run_of(r).n, run_of(r).k) == size])
    notes = [
        "f = Σ α_i ⟨x_i, A x_i⟩ without the printed ½; A = diag(j²/n), α_i = i; tolerance 1e-9.",
        "Times are CPU seconds of one thread; compare those that were measured together only.",
        '"auto" is this library\'s default method, L-BFGS with a learned metric; it is not in the '
        "paper.",
    ]
    if size != table_size(name, quick=False):
        notes.append("This is the scaled-down problem of a quick run: the paper has no such row.")
    title = f"Table {name[-1]}. Brockett cost, n = {n}, k = {k}"
    data = [asdict(row) for row in rows]
    return _report(name, title, comparison(rows), judge_table(rows), notes, data)


def judge_table(rows: Sequence[Mean]) -> list[Verdict]:
    """Function restart against L-BFGS: gradients, evaluations, seconds; and against the print."""
    ours = {row.method: row for row in rows if row.starts}
    fast, peer = ours.get("function-restart"), ours.get("lbfgs")
    if fast is None:
        return [Verdict("function restart converges", False, "no start did")]
    verdicts = []
    if fast.printed:
        count, theirs = fast.gradient_evaluations, fast.printed["gradient_evaluations"]
        numbers = f"{count:,.0f} here, {theirs:,.1f} in the paper"
        claim = "function restart needs no more gradients than published, within 3 %"
        verdicts.append(Verdict(claim, count <= 1.03 * theirs, numbers))
    for name, column in (("gradients", "gradient_evaluations"),
                         ("function values", "function_evaluations"),
                         ("seconds", "cpu_seconds")):  # fmt: skip
        claim = f"function restart beats L-BFGS in {name}"
        if peer is None:
            verdicts.append(Verdict(claim, None, "L-BFGS was not run or did not converge"))
            continue
        mine, theirs = getattr(fast, column), getattr(peer, column)
        numbers = f"{mine:,.1f} against {theirs:,.1f}, ratio {mine / theirs:.2f}"
        if fast.printed and peer.printed:
            numbers += f"; {fast.printed[column] / peer.printed[column]:.2f} in the paper"
        verdicts.append(Verdict(claim, mine < theirs, numbers))
    return verdicts


# -- what a constant factor of f does -----------------------------------------------------------


def _scale(name: str, found: Sequence[Record]) -> Report:
    notes = [
        "The search only ever tries γ = 0.1 · 1.7ʲ, so that a factor of f moves that lattice "
        "against 1/L; column 4 shows the lattice points near 1/L."
    ]
    header = ("n", "k", "scale of f", "γL on the lattice", "seed", "iterations", "function evals",
              "restarts", "status")  # fmt: skip
    ordered = sorted(found, key=lambda r: (run_of(r).n, run_of(r).scale, run_of(r).start))
    table = Table(header, tuple(map(_scale_row, ordered)))
    data = [dict(zip(table.header, row)) for row in table.rows]
    title = "The step lattice: function restart on f times a constant"
    return _report(name, title, table, judge_scales(found), notes, data)


def _scale_row(record: Record) -> tuple[str, ...]:
    run = run_of(record)
    return (
        str(run.n), str(run.k),
        "0.5 (the printed ½)" if run.scale == 0.5 else f"{run.scale:g}",
        ", ".join(f"{g:.2f}" for g in lattice(run.n, run.k, run.scale)),
        str(run.start), str(record["iterations"]), str(record["function_evaluations"]),
        str(record["restarts"]), record["status"].lower().replace("_", " "),
    )  # fmt: skip


def lattice(n: int, k: int, scale: float) -> list[float]:
    """The steps γ = 0.1 · 1.7ʲ that lie near 1/L, as γL; L = 2 · scale · α_k (λ_n − λ_1)."""
    L = 2 * scale * k * (n - 1 / n)
    steps = 0.1 * 1.7 ** np.arange(-60.0, 20.0) * L
    return [float(g) for g in steps[(steps >= 0.8) & (steps < 0.8 * 1.7**3)]]


def judge_scales(found: Sequence[Record]) -> list[Verdict]:
    """What a constant factor of f does, which should be nothing."""
    verdicts = []
    for n, k in sorted({(run_of(r).n, run_of(r).k) for r in found}):
        mine = [r for r in found if (run_of(r).n, run_of(r).k) == (n, k)]
        counts = [r["iterations"] for r in mine]
        spread = max(counts) / min(counts)
        failed = sum(r["status"] != "CONVERGED" for r in mine)
        numbers = f"{min(counts):,} to {max(counts):,} iterations, a factor of {spread:.1f}"
        numbers += f"; {failed} of {len(mine)} did not converge" if failed else ""
        claim = f"n = {n}, k = {k}: the count does not depend on the scale of f (within 1.5×)"
        one = len({run_of(r).scale for r in mine}) < 2
        holds = None if one else spread < 1.5 and not failed
        verdicts.append(Verdict(claim, holds, "one scale only" if one else numbers))
    return verdicts
