"""Decisions near rounding, as rates: how many of sixty runs reach 10⁻¹² within a budget.

One start that failed once tells little: the next change moves it elsewhere.  A wrong decision
beneath the noise of f is seen in the number of runs that end in time.  A line of ``RATES`` is a
method, a kind of function, the most evaluations, and how many of the sixty runs must succeed.

    python tests/test_rates.py     how many evaluations the runs need now
"""

import sys
import zlib
from typing import Any

import numpy as np
import pytest

import stiefel
from stiefel import AcceleratedGradient, GradientDescent

N, K = 24, 3
A = np.linspace(1.0, 4.0, N)[:, None]
WEIGHTS = np.arange(1.0, K + 1)
MINIMUM = float(A[:K, 0] @ WEIGHTS[::-1])


def smooth(X: Any) -> tuple[float, Any]:
    G = A * X * WEIGHTS
    return float(np.vdot(X, G)), 2 * G


def shifted(c: float) -> Any:
    return lambda X: (smooth(X)[0] + c, smooth(X)[1])


def noisy(size: float) -> Any:
    """Noise in [−size, size] from every bit of X: the same point has the same noise."""
    noise = lambda X: zlib.crc32(np.ascontiguousarray(X).tobytes()) / 2**31 - 1
    return lambda X: (smooth(X)[0] + size * noise(X), smooth(X)[1])


def rounded(digits: int) -> Any:
    return lambda X: (round(smooth(X)[0], digits), smooth(X)[1])


# Rounding hides decreases early where a constant is added, late where the minimum is zero.
KINDS = {
    "rounding": (smooth, shifted(-MINIMUM), shifted(1e8)),
    "noise": (noisy(1e-10), noisy(1e-6)),
    "digits": (rounded(6), rounded(3)),
}
METHODS = {
    "auto": "auto",
    "lbfgs": "lbfgs",
    "cg": "cg",
    "accelerated": "accelerated",
    "accelerated-0.7": AcceleratedGradient(growth_threshold=0.7),
    "accelerated-gradient-restart": "accelerated-gradient-restart",
    "gradient-descent": GradientDescent(growth_threshold=0.7),
    "trust-region": "trust-region",
}
RUNS = 60
RATES = [
    ("auto", "rounding", 110, 58),
    ("auto", "noise", 125, 57),
    ("lbfgs", "rounding", 175, 58),
    ("lbfgs", "noise", 185, 58),
    ("cg", "rounding", 430, 58),
    ("cg", "noise", 420, 58),
    ("cg", "digits", 420, 57),
    ("accelerated", "rounding", 760, 58),
    ("accelerated", "noise", 1000, 56),
    ("accelerated-0.7", "rounding", 850, 55),
    ("accelerated-0.7", "noise", 850, 56),
    ("accelerated-gradient-restart", "rounding", 720, 58),
    ("accelerated-gradient-restart", "noise", 920, 56),
    ("gradient-descent", "rounding", 2800, 56),
    ("trust-region", "rounding", 200, 58),
    ("trust-region", "noise", 200, 58),
]


def needed(method: str, kind: str, most: int) -> list[int]:
    """Evaluations of the runs that succeed, in order."""
    functions = KINDS[kind]
    runs = (
        stiefel.minimize(
            functions[seed % len(functions)],
            stiefel.random_point(N, K, seed=seed),
            method=METHODS[method],
            rtol=1e-12,
            maxfun=most,
        )
        for seed in range(RUNS)
    )
    return sorted(run.nfev for run in runs if run.success)


@pytest.mark.parametrize(("method", "kind", "most", "least"), RATES)
def test_so_many_of_sixty_runs_converge_in_time(
    method: str, kind: str, most: int, least: int
) -> None:
    assert len(needed(method, kind, most)) >= least


# -- wrong gradients are not noise ------------------------------------------------------------

SLOPE = np.cos(np.arange(N * K)).reshape(N, K)
WRONG = (lambda X: (smooth(X)[0], -smooth(X)[1]), lambda X: (smooth(X)[0], SLOPE))


@pytest.mark.parametrize("method", METHODS)
def test_a_wrong_gradient_is_named(method: str) -> None:
    """At least 18 of 20 runs say that no step descends, and none that it has converged."""
    found = []
    for seed in range(20):
        X0 = stiefel.random_point(N, K, seed=seed)
        found.append(stiefel.minimize(WRONG[seed % 2], X0, method=METHODS[method], maxiter=200))
    assert not any(result.success for result in found)
    assert sum(result.status.name == "STEP_NOT_FOUND" for result in found) >= 18


def main() -> None:
    for method in METHODS:
        for kind in KINDS:
            counts = needed(method, kind, 20_000)
            picked = {i: counts[i - 1] for i in (30, 50, 55, 57, 58, 59, 60) if i <= len(counts)}
            print(f"{method:30} {kind:9} {len(counts)} of {RUNS}; in order {picked}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
