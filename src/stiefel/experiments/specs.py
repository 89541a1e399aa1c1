"""What to run: each figure and table as a list of runs, by the paper's protocol.

The paper's parameters: γ_0 = 0.1, λ_d = 1.7, c_R = 0.01; c_L = 0.7 and tolerance 1e-10 in the
figures, c_L = 0.9 and 1e-9 in the tables.  f is scale · Σ α_i ⟨x_i, A x_i⟩: the figures use the
scale ½ that is printed, the tables 1, which is what the published counts identify.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

ARTEFACTS = ("figure1", "figure2", "table1", "table2", "scale")

FIGURE_METHODS = ("function-restart", "gradient-restart", "gradient-descent")
TABLE_METHODS = ("function-restart", "lbfgs", "gradient-restart", "cg")
METHODS = (*TABLE_METHODS, "gradient-descent")
SPECTRA = ("linear", "squares")
SCALES = tuple(round(1 + 0.1 * i, 1) for i in range(8))  # 1, 1.1, …, 1.7: one period of λ_d
UNLUCKY = 1.176  # gives Table 1's problem the lattice that the printed ½ gives Table 2's
ITERATION_LIMIT = 100_000  # tables
FIGURE_LIMIT = 5_000_000


@dataclass(frozen=True)
class Run:
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

    @property
    def key(self) -> str:
        """The identity of the run, as canonical JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def order(self) -> tuple[Any, ...]:
        """Where the run belongs in a finished record."""
        return (self.n, self.k, METHODS.index(self.method), self.scale, self.seed, self.start)

    @property
    def condition_number(self) -> float:
        """κ of the Hessian at the minimiser, the paper's formula with α_i = i."""
        n, k = self.n, self.k
        if self.spectrum == "linear":
            return float(k * (n - 1))
        return k * (n - 1 / n) / (3 / n)

    @property
    def cost(self) -> float:
        """A guess of the seconds it takes, good enough for a progress bar."""
        kappa = self.condition_number
        iterations = 7 * kappa if self.method == "gradient-descent" else 15 * math.sqrt(kappa)
        return min(iterations, self.maxiter) * (1.5e-4 + 3e-8 * self.n * self.k)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Run:
        return cls(**data)


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
    makers = {"figure1": _figure, "figure2": _figure, "table1": _table, "table2": _table}
    if artefact not in ARTEFACTS:
        raise ValueError(f"unknown artefact {artefact!r}; known: {', '.join(ARTEFACTS)}")
    runs = makers.get(artefact, _scale)(artefact, extent)
    return list(dict.fromkeys(runs))


def _starts(count: int) -> range:
    return range(1, count + 1)


def _figure(artefact: str, extent: Extent) -> Iterator[Run]:
    k = 1 if artefact == "figure1" else 10
    starts, largest, descent = (3, 3163 if k == 1 else 1000, 1000 if k == 1 else 320)
    points = 9
    if not extent.quick:
        # Gradient descent at the largest n of Figure 2 would take days.
        starts, largest, descent, points = (50, 10_000, 10_000 if k == 1 else 1000, 21)
    largest = extent.largest or largest
    descent = min(extent.descent_largest or descent, largest)
    sizes = [n for n in np.geomspace(100, 10_000, points).round().astype(int) if n <= largest]
    for start in _starts(extent.starts or starts):
        for n in sizes:
            for method in FIGURE_METHODS:
                if method != "gradient-descent" or n <= descent:
                    yield Run(
                        "linear", int(n), k, 0.5, method, 0.7, 1e-10, FIGURE_LIMIT,
                        extent.seed, start,
                    )  # fmt: skip


def table_size(artefact: str, quick: bool) -> tuple[int, int]:
    """n and k; the quick ones are the same problem, scaled down."""
    if artefact == "table1":
        return (300, 6) if quick else (1000, 10)
    return (400, 8) if quick else (2000, 20)


def _table(artefact: str, extent: Extent) -> Iterator[Run]:
    n, k = table_size(artefact, extent.quick)
    for start in _starts(extent.starts or (1 if extent.quick else 10)):
        for method in TABLE_METHODS:
            yield _table_run(n, k, 1.0, method, extent.seed, start)


def _scale(artefact: str, extent: Extent) -> Iterator[Run]:
    """Function restart on f times a constant: the step lattice 0.1 · 1.7ʲ moves against 1/L."""
    scales: Iterable[float] = SCALES[::2] if extent.quick else SCALES
    for start in _starts(extent.starts or 1):
        n, k = table_size("table1", extent.quick)
        for scale in (*scales, UNLUCKY, 0.5):
            yield _table_run(n, k, scale, "function-restart", extent.seed, start)
        n, k = table_size("table2", extent.quick)
        for scale in (1.0, 0.5):
            yield _table_run(n, k, scale, "function-restart", extent.seed, start)


def _table_run(n: int, k: int, scale: float, method: str, seed: int, start: int) -> Run:
    return Run("squares", n, k, scale, method, 0.9, 1e-9, ITERATION_LIMIT, seed, start)
