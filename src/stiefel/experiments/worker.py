"""One run in a process of its own: specs come in and records go out as lines of JSON.

Started as ``python -m stiefel.experiments.worker`` with one BLAS thread, see `pool`.  Nothing is
pickled, and a worker whose parent has gone ends at once instead of working for nobody.
"""

from __future__ import annotations

import json
import math
import os
import queue
import sys
import threading
import time
from dataclasses import asdict, fields, is_dataclass
from typing import Any

import numpy as np

import stiefel
from stiefel.objectives import Brockett
from stiefel.solvers import METHODS
from stiefel.types import Array

from .machine import machine, versions
from .specs import Run


def execute(run: Run) -> dict[str, Any]:
    """Do one run; the record holds everything needed to repeat it, and what came out."""
    objective, X0 = problem(run), start_point(run)
    solver = solver_of(run)
    cpu = time.process_time()
    result = stiefel.minimize(objective, X0, method=solver, rtol=run.rtol, maxiter=run.maxiter)
    cpu = time.process_time() - cpu
    initial = float(result.history["gradient_norm"][0])
    return {
        "run": asdict(run),
        "parameters": parameters(solver),
        "condition_number": run.condition_number,
        "status": result.status.name,
        "iterations": int(result.nit),
        "function_evaluations": int(result.nfev),
        "gradient_evaluations": int(result.njev),
        "restarts": int(result.restarts),
        "error": _relative_error(run, float(result.fun)),
        "relative_gradient": _finite(result.gradient_norm / initial if initial else 0.0),
        "feasibility": _finite(result.feasibility),
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


def start_point(run: Run) -> Array:
    """The start depends on seed, n, k and its number only: every method gets the same ones."""
    generator = np.random.default_rng([run.seed, run.n, run.k, run.start])
    return stiefel.random_point(run.n, run.k, seed=generator)


def solver_of(run: Run) -> Any:
    """The method with every parameter of the paper's spelt out."""
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
    return METHODS[run.method]


def parameters(solver: Any) -> dict[str, Any]:
    """The solver's parameters in a form that JSON can hold."""
    values = {"class": type(solver).__name__}
    for field in fields(solver):
        value = getattr(solver, field.name)
        if is_dataclass(value) and not isinstance(value, type):
            value = parameters(value)
        elif not isinstance(value, (bool, int, float, str, type(None))):
            value = getattr(value, "__name__", type(value).__name__)
        values[field.name] = value
    return values


def _relative_error(run: Run, f: float) -> float | None:
    """(f − f*)/|f*| with the known minimum: the run ended where it should have."""
    smallest = problem(run).minimum
    return _finite((f - smallest) / abs(smallest))


def _finite(value: float) -> float | None:
    return float(f"{value:.3e}") if math.isfinite(value) else None


def main() -> None:
    """Answer every line of standard input with a line on standard output."""
    tasks: queue.Queue[str] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            tasks.put(line)
        os._exit(0)  # the parent has closed the pipe, or is no more

    threading.Thread(target=listen, daemon=True).start()
    while True:
        run = Run.from_dict(json.loads(tasks.get()))
        print(json.dumps(execute(run), allow_nan=False), flush=True)


if __name__ == "__main__":
    main()
