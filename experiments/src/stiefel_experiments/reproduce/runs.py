"""What to run: each figure and table as a list of runs, by the paper's protocol.

The paper's parameters: γ_0 = 0.1, λ_d = 1.7, c_R = 0.01; c_L = 0.7 and tolerance 1e-10 in the
figures, c_L = 0.9 and 1e-9 in the tables.  f is scale · Σ α_i ⟨x_i, A x_i⟩: the figures use the
scale ½ that is printed, the tables 1, which is what the published counts identify.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any

import numpy as np

import stiefel
from stiefel.cli.machine import machine, versions
from stiefel.objectives import Brockett
from stiefel_experiments import records
from stiefel_experiments.records import Format, Record, finite

ARTEFACTS = ("figure1", "figure2", "table1", "table2", "scale")
LABELS = {
    "function-restart": "accelerated, function restart",
    "lbfgs": "L-BFGS",
    "gradient-restart": "accelerated, gradient restart",
    "cg": "conjugate gradients",
    "auto": "auto",
    "gradient-descent": "gradient descent",
}
METHODS = tuple(LABELS)
FIGURE_METHODS = ("function-restart", "gradient-restart", "gradient-descent")
TABLE_METHODS = METHODS[:5]  # the paper's two, then others of this library
SPECTRA = ("linear", "squares")
SCALES = tuple(round(1 + 0.1 * i, 1) for i in range(8))  # 1, 1.1, …, 1.7: one period of λ_d
UNLUCKY = 1.176  # gives Table 1's problem the lattice that the printed ½ gives Table 2's
ITERATION_LIMIT = 100_000  # tables
FIGURE_LIMIT = 5_000_000


@dataclass(frozen=True)
class Run(records.Run):
    """One minimisation, fully determined: the same run gives the same counts everywhere."""

    spectrum: str  # "linear": λ_j = j; "squares": λ_j = j²/n
    n: int
    k: int
    scale: float  # of f; ½ is the printed factor
    method: str
    growth_threshold: float  # c_L, for the methods with the paper's search
    rtol: float
    maxiter: int
    seed: int
    start: int  # the number of the random start, from 1

    def __str__(self) -> str:
        return f"{self.method}, n = {self.n}, start {self.start}"

    @property
    def order(self) -> tuple[Any, ...]:
        return (self.n, self.k, METHODS.index(self.method), self.scale, self.seed, self.start)

    @property
    def condition_number(self) -> float:
        """κ of the Hessian at the minimiser, the paper's formula with α_i = i."""
        n, k = self.n, self.k
        return float(k * (n - 1)) if self.spectrum == "linear" else k * (n - 1 / n) / (3 / n)

    @property
    def cost(self) -> float:
        """Seconds, roughly."""
        kappa = self.condition_number
        iterations = {
            "gradient-descent": 7 * kappa,
            "auto": 2 * math.sqrt(kappa),
        }.get(self.method, 15 * math.sqrt(kappa))
        return min(iterations, self.maxiter) * (1.5e-4 + 3e-8 * self.n * self.k)


FORMAT = Format(
    Run,
    {
        "spectrum": records.one_of(*SPECTRA),
        "method": records.one_of(*METHODS),
        "n k": records.positive_count,
        "scale": records.positive,
        "growth_threshold rtol": records.number,
        "maxiter seed start": records.count,
    },
    {
        "run": records.mapping,
        "status": records.text,
        "condition_number": records.positive,
        "iterations": records.positive_count,
        "function_evaluations gradient_evaluations restarts": records.count,
        "cpu_seconds": records.number,
    },
)
run_of = FORMAT.run_of


# -- which runs ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Extent:
    """How much of an artefact to run; None is the paper's own extent."""

    quick: bool = False
    starts: int | None = None
    largest: int | None = None  # the largest n of a figure
    descent_largest: int | None = None  # the largest n at which gradient descent runs
    seed: int = 0


def plan(artefact: str, extent: Extent) -> list[Run]:
    """The runs of an artefact, the first start of everything before the second of anything."""
    if artefact not in ARTEFACTS:
        raise ValueError(f"unknown artefact {artefact!r}; known: {', '.join(ARTEFACTS)}")
    make = {"figure": _figure, "table": _table}.get(artefact[:-1], _scale)
    return list(dict.fromkeys(make(artefact, extent)))


def _figure(artefact: str, extent: Extent) -> Iterator[Run]:
    k = 1 if artefact == "figure1" else 10
    starts, largest, descent, points = 3, 3163 if k == 1 else 1000, 1000 if k == 1 else 320, 9
    if not extent.quick:
        # Gradient descent at the largest n of Figure 2 would take days.
        starts, largest, descent, points = 50, 10_000, 10_000 if k == 1 else 1000, 21
    largest = extent.largest or largest
    descent = min(extent.descent_largest or descent, largest)
    sizes = [int(n) for n in np.geomspace(100, 10_000, points).round() if n <= largest]
    for start in range(1, (extent.starts or starts) + 1):
        for n in sizes:
            for method in FIGURE_METHODS:
                if method != "gradient-descent" or n <= descent:
                    yield Run("linear", n, k, 0.5, method, 0.7, 1e-10, FIGURE_LIMIT, extent.seed,
                              start)  # fmt: skip


def table_size(artefact: str, quick: bool) -> tuple[int, int]:
    """n and k; the quick ones are the same problem, scaled down."""
    if artefact == "table1":
        return (300, 6) if quick else (1000, 10)
    return (400, 8) if quick else (2000, 20)


def _table(artefact: str, extent: Extent) -> Iterator[Run]:
    n, k = table_size(artefact, extent.quick)
    for start in range(1, (extent.starts or (1 if extent.quick else 10)) + 1):
        for method in TABLE_METHODS:
            yield _table_run(n, k, 1.0, method, extent.seed, start)


def _scale(artefact: str, extent: Extent) -> Iterator[Run]:
    """Function restart on f times a constant: the step lattice 0.1 · 1.7ʲ moves against 1/L."""
    scales: Iterable[float] = SCALES[::2] if extent.quick else SCALES
    for start in range(1, (extent.starts or 1) + 1):
        for table, factors in (("table1", (*scales, UNLUCKY, 0.5)), ("table2", (1.0, 0.5))):
            n, k = table_size(table, extent.quick)
            for scale in factors:
                yield _table_run(n, k, scale, "function-restart", extent.seed, start)


def _table_run(n: int, k: int, scale: float, method: str, seed: int, start: int) -> Run:
    return Run("squares", n, k, scale, method, 0.9, 1e-9, ITERATION_LIMIT, seed, start)


# -- one run -------------------------------------------------------------------------------


def execute(run: Run) -> Record:
    """Do one run; the record holds everything needed to repeat it, and what came out."""
    objective, X0, solver = problem(run), start_point(run), solver_of(run)
    cpu = time.process_time()
    result = stiefel.minimize(objective, X0, method=solver, rtol=run.rtol, maxiter=run.maxiter)
    cpu = time.process_time() - cpu
    initial = float(result.history["gradient_norm"][0])
    error = (float(result.fun) - objective.minimum) / abs(objective.minimum)
    return {
        "run": asdict(run),
        "parameters": parameters(solver),
        "condition_number": run.condition_number,
        "status": result.status.name,
        "iterations": int(result.nit),
        "function_evaluations": int(result.nfev),
        "gradient_evaluations": int(result.njev),
        "restarts": int(result.restarts),
        "error": finite(error),  # against the known minimum: it ended where it should have
        "relative_gradient": finite(result.gradient_norm / initial if initial else 0.0),
        "feasibility": finite(result.feasibility),
        "seconds": round(float(result.seconds), 4),
        "cpu_seconds": round(cpu, 4),
        "versions": versions(),
        "machine": machine(),
    }


def problem(run: Run) -> Brockett:
    """f(X) = scale · Σ_i i ⟨x_i, A x_i⟩; k = 1 is the sphere of Figure 1."""
    j = np.arange(1.0, run.n + 1)
    spectrum = {"linear": j, "squares": j**2 / run.n}[run.spectrum]
    return Brockett(spectrum, run.scale * np.arange(1.0, run.k + 1))


def start_point(run: Run) -> Any:
    """The start depends on seed, n, k and its number only: every method gets the same ones."""
    generator = np.random.default_rng([run.seed, run.n, run.k, run.start])
    return stiefel.random_point(run.n, run.k, seed=generator)


def solver_of(run: Run) -> Any:
    """The method with every parameter of the paper's spelt out; `auto` by its name."""
    search: dict[str, Any] = {
        "initial_step": 0.1,
        "growth": 1.7,
        "growth_threshold": run.growth_threshold,
    }
    if run.method == "gradient-descent":
        return stiefel.GradientDescent(**search)
    if run.method in ("function-restart", "gradient-restart"):
        restart = run.method.removesuffix("-restart")
        return stiefel.AcceleratedGradient(restart=restart, least_decrease=0.01, **search)
    return {"lbfgs": stiefel.LBFGS(), "cg": stiefel.ConjugateGradient()}.get(run.method, run.method)


def parameters(solver: Any) -> dict[str, Any]:
    """The solver's parameters in a form that JSON can hold."""
    if isinstance(solver, str):
        return {"method": solver}
    values = {"class": type(solver).__name__}
    for field in fields(solver):
        value = getattr(solver, field.name)
        if is_dataclass(value) and not isinstance(value, type):
            value = parameters(value)
        elif not isinstance(value, (bool, int, float, str, type(None))):
            value = getattr(value, "__name__", type(value).__name__)
        values[field.name] = value
    return values
