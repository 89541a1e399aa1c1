"""How many tall arrays (n × k) a run holds at its peak, beside the user's.

    python benchmarks/memory.py [--n 100000] [--k 20] [--iterations 25] [method ...]

NumPy tells tracemalloc of its arrays.  The start, the data of the function and the gradient that
it returns are the user's.  The count does not depend on n once small matrices do not matter; 10⁶
rows of 20 columns need 0.16 GB an array.
"""

from __future__ import annotations

import argparse
import tracemalloc
from typing import Any

import numpy as np

import stiefel
from stiefel.solvers import METHODS

Array = Any


def tall_arrays(method: str, n: int, k: int, iterations: int) -> float:
    """The peak of all allocations in units of an n × k array, less the user's gradient."""
    d = np.linspace(1.0, 100.0, n)[:, None]
    weights = np.arange(1.0, k + 1)
    X0 = stiefel.random_point(n, k, seed=1)

    def fun(X: Array) -> tuple[float, Array]:
        G = d * X
        G *= weights
        f = float(np.vdot(X, G))
        G *= 2.0
        return f, G

    tracemalloc.start()
    try:
        stiefel.minimize(fun, X0, method=method, rtol=1e-14, maxiter=iterations)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return peak / (8 * n * k) - 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*", default=["auto"])
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--k", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=25)
    given = parser.parse_args()
    names = [name for name in METHODS if name != "trust-region"]  # a thousand calls an iteration
    for method in names if given.methods == ["all"] else given.methods:
        count = tall_arrays(method, given.n, given.k, given.iterations)
        print(f"{method}: {count:.1f} tall arrays beside the user's (n = {given.n}, k = {given.k})")


if __name__ == "__main__":
    main()
