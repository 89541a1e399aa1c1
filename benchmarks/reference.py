"""`reference.cpp`, compiled for this machine with the BLAS that SciPy brings along."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.linalg
import threadpoolctl

import stiefel
from stiefel.objectives import Brockett

Array = Any
# Iterations over which the traces of both must agree; rounding has not grown much by then.
COMPARED, AGREEMENT = 60, 1e-9


class Reference:
    """Algorithm 1 and L-BFGS in C++ on Table 1's problem."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        for name in ("run_accelerated", "run_lbfgs"):
            getattr(self._library, name).restype = ctypes.c_double

    def accelerated(self, X0: Array, iterations: int) -> tuple[float, Array]:
        """CPU seconds without those of f, and f at the point of each iteration."""
        return self._run(self._library.run_accelerated, X0, iterations)

    def lbfgs(self, X0: Array, iterations: int, memory: int = 5) -> tuple[float, Array]:
        """The same, with the identity in the place of the learned D, for which it does the work."""
        metric = ctypes.c_int(memory), _pointer(np.eye(X0.shape[1])), ctypes.c_double(2.0)
        return self._run(self._library.run_lbfgs, X0, iterations, *metric)

    @staticmethod
    def _run(function: Any, X0: Array, iterations: int, *more: Any) -> tuple[float, Array]:
        (n, k), X, trace = X0.shape, X0.copy(), np.empty(iterations)
        problem = Brockett.table(n, k)
        a, w = _pointer(np.asarray(problem.A)), _pointer(np.asarray(problem.weights))
        seconds = function(n, k, a, w, _pointer(X), iterations, *more, _pointer(trace))
        return seconds, trace

    def check(self, n: int, k: int) -> None:
        """Raise unless the iterates are those of the library."""
        X0, fun = stiefel.random_point(n, k, seed=3), Brockett.table(n, k)
        methods: list[tuple[Any, Callable[..., tuple[float, Array]]]] = [
            (stiefel.AcceleratedGradient(initial_step=1e-4), self.accelerated),
            (stiefel.LBFGS(memory=5), self.lbfgs),
        ]
        for method, run in methods:
            ours = stiefel.minimize(fun, X0, method=method, rtol=1e-30, maxiter=COMPARED)
            values, theirs = ours.history["value"][:COMPARED], run(X0, COMPARED)[1]
            if not np.allclose(values, theirs, rtol=AGREEMENT, atol=0.0):
                raise AssertionError(f"{method}: the reference takes other steps than the library")


def compiled() -> Reference | None:
    """None where there is no g++, or SciPy's BLAS is not its own OpenBLAS."""
    compiler, blas = shutil.which("g++"), _openblas()
    if compiler is None or blas is None:
        return None
    folder = Path(tempfile.mkdtemp(prefix="stiefel-reference-"))
    try:
        library = folder / "reference.so"
        source = Path(__file__).with_name("reference.cpp")
        flags = ["-O3", "-march=native", "-shared", "-fPIC", "-DBLAS(name)=scipy_##name"]
        link = [str(blas), f"-Wl,-rpath,{blas.parent}"]
        subprocess.run([compiler, *flags, str(source), "-o", str(library), *link], check=True)
        return Reference(library)
    finally:
        shutil.rmtree(folder)  # it is loaded by now


def _openblas() -> Path | None:
    assert scipy.linalg  # loads it
    found = (Path(each["filepath"]) for each in threadpoolctl.threadpool_info())
    return next((path for path in found if path.name.startswith("libscipy_openblas-")), None)


def _pointer(A: Array) -> Any:
    assert A.flags.c_contiguous and A.dtype == float
    return A.ctypes.data_as(ctypes.POINTER(ctypes.c_double))
