"""CPU microseconds an iteration costs beside the user's function, on one thread.

    python benchmarks/overhead.py [--n 1000] [--k 10] [--iterations 400] [method ...]

The function is Table 1's; its own time is measured inside it and taken off.  The best of many runs
is shown, because everything that disturbs a measurement makes it longer.  Beside it: the same steps
in C++ (`reference.cpp`; its iterates are compared with the library's first), and the bare matrix
products of one iteration of Algorithm 1 with one trial, the least any arrangement must do.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before NumPy is loaded

import numpy as np  # noqa: E402
from reference import Reference, compiled  # noqa: E402

import stiefel  # noqa: E402
from stiefel.objectives import Brockett  # noqa: E402
from stiefel.solvers import METHODS  # noqa: E402

Array = Any
# an iteration of trust-region is a thousand products: it has no place in this table
MEMORY = {"auto": 5, "lbfgs": 10}  # pairs
ROUNDS = 25
FIRST_ORDER = [name for name in METHODS if name != "trust-region"]


class Timed:
    """An objective that keeps the CPU time spent inside it."""

    def __init__(self, objective: Any) -> None:
        self.objective, self.seconds, self.calls = objective, 0.0, 0

    def _time(self, function: Any, X: Array) -> Any:
        start = time.process_time()
        result = function(X)
        self.seconds += time.process_time() - start
        self.calls += 1
        return result

    def value(self, X: Array) -> float:
        return self._time(self.objective.value, X)

    def value_and_gradient(self, X: Array) -> tuple[float, Array]:
        return self._time(self.objective.value_and_gradient, X)


def overhead(method: str, n: int, k: int, iterations: int) -> tuple[float, float, float]:
    """Microseconds beside the function an iteration and a call, and calls an iteration."""
    X0, fun = stiefel.random_point(n, k, seed=7), Timed(Brockett.table(n, k))
    start = time.process_time()
    result = stiefel.minimize(fun, X0, method=method, rtol=1e-30, gtol=1e-300, maxiter=iterations)
    beside = 1e6 * (time.process_time() - start - fun.seconds)
    nit = max(result.nit, 1)
    return beside / nit, beside / fun.calls, fun.calls / nit


def in_cpp(reference: Reference, method: str, n: int, k: int, iterations: int) -> float:
    """Microseconds an iteration of the same steps in C++ takes, without the function."""
    X0 = stiefel.random_point(n, k, seed=7)
    if method == "accelerated":
        return 1e6 * reference.accelerated(X0, iterations)[0] / iterations
    return 1e6 * reference.lbfgs(X0, iterations, MEMORY[method])[0] / iterations


def bare(n: int, k: int) -> float:
    """Microseconds of [X|G]ᵀ[X|G], X S, and [X|W] Q: 16nk² flops, nothing else."""
    rng = np.random.default_rng(0)
    X, XG, out = (rng.standard_normal((n, w)) for w in (k, 2 * k, k))
    S, Q = rng.standard_normal((k, k)), rng.standard_normal((2 * k, k))
    repeats = max(3, int(2e8 / (16 * n * k * k)))
    best = np.inf
    for _ in range(5):
        start = time.process_time()
        for _ in range(repeats):
            XG.T @ XG
            np.matmul(X, S, out=out)
            np.matmul(XG, Q, out=out)
        best = min(best, (time.process_time() - start) / repeats)
    return float(1e6 * best)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*", default=["auto"])
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--iterations", type=int, default=400)
    given = parser.parse_args()
    size = given.n, given.k
    products, reference = bare(*size), compiled()
    print(f"n = {given.n}, k = {given.k}; bare products of one iteration: {products:.0f} µs")
    if reference is None:
        print("no C++ reference: it needs g++ and SciPy's own OpenBLAS")
    else:
        reference.check(*size)
    for method in FIRST_ORDER if given.methods == ["all"] else given.methods:
        ours, theirs = [], []
        for _ in range(ROUNDS):  # in turn, so that a slow minute slows both
            ours.append(overhead(method, *size, given.iterations))
            if reference and (method == "accelerated" or method in MEMORY):
                theirs.append(in_cpp(reference, method, *size, given.iterations))
        iteration, call, calls = min(ours)
        print(
            f"{method}: {iteration:.0f} µs an iteration beside the function, {call:.0f} µs a call, "
            f"{calls:.2f} calls an iteration; {iteration / products:.1f} × the bare products"
        )
        if theirs:
            cpp = min(theirs)
            print(f"    in C++: {cpp:.0f} µs an iteration; ratio {iteration / cpp:.2f}")


if __name__ == "__main__":
    main()
