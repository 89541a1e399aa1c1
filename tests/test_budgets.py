"""The library's main claim as a law: how many evaluations each method needs.

"Finds the minimum" is met by almost any descent method; what a wrong decision changes is the
price.  A line of ``budgets.txt`` is a problem, a method, and the calls of the function from three
starts together (for "trust-region" also the products with the Hessian).  A run that needs 15 %
more fails, and so does one that needs 15 % less: write the better number down.

    python tests/test_budgets.py [problem or method …] > tests/budgets.txt    measures anew
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stiefel
from stiefel import Euclidean, Grassmann, Sphere, Stiefel
from stiefel.objectives import (
    Brockett,
    JointDiagonalization,
    KohnSham,
    Procrustes,
    Rayleigh,
)

TABLE = Path(__file__).with_name("budgets.txt")
WITHIN = 0.15
STARTS = (0, 1, 2)
# Gradient descent is here for its line search: three digits show it.
TOLERANCES = {
    "auto": 1e-9,
    "lbfgs": 1e-9,
    "cg": 1e-9,
    "accelerated": 1e-7,
    "accelerated-gradient-restart": 1e-7,
    "gradient-descent": 1e-3,
    "trust-region": 1e-9,
}


@dataclass(frozen=True)
class Task:
    """A function, a start for every seed, and its manifold."""

    fun: Any
    start: Callable[[int], Any]
    manifold: Any = field(default_factory=Stiefel)


def points(*shape: int, **options: Any) -> Callable[[int], Any]:
    return lambda seed: stiefel.random_point(*shape, seed=seed, **options)


def hermitian(n: int, low: float, high: float, seed: int, dtype: Any = float) -> Any:
    U = stiefel.random_point(n, n, seed=seed, dtype=dtype)
    A = (U * np.linspace(low, high, n)) @ U.conj().T
    return (A + A.conj().T) / 2


# -- the problems -----------------------------------------------------------------------------


def brockett() -> Task:
    """A spread spectrum: rotations of the columns are far softer than normal directions."""
    return Task(Brockett.table(100, 4), points(100, 4))


def stiff_rotations() -> Task:
    """f = ½ Tr(NᵀAN) + ½ r ‖skew(TᵀX)‖² with N the part of X normal to T = [I; 0]."""
    n, k, r = 60, 4, 400.0
    a = np.concatenate([np.zeros(k), np.linspace(1.0, 20.0, n - k)])[:, None]

    def fun(X: Any) -> tuple[float, Any]:
        S = (X[:k] - X[:k].T) / 2
        G = a * X
        f = 0.5 * float(np.vdot(X, G)) + 0.5 * r * float(np.vdot(S, S))
        G[:k] += r * S
        return f, G

    def start(seed: int) -> Any:
        noise = np.random.default_rng(seed).standard_normal((n, k))
        return stiefel.nearest(np.eye(n, k) + 0.1 * noise)

    return Task(fun, start)


def sphere() -> Task:
    A = np.linspace(1.0, 40.0, 120)
    return Task(
        lambda x: (0.5 * float(x @ (A * x)), A * x), points(120, manifold=Sphere()), Sphere()
    )


def kohn_sham() -> Task:
    return Task(KohnSham(40, 1.0), points(40, 4))


def procrustes() -> Task:
    rng = np.random.default_rng(4)
    A = rng.standard_normal((30, 30)) * np.geomspace(1.0, 4.0, 30)
    return Task(Procrustes(A, rng.standard_normal((30, 3))), points(30, 3))


def joint_diagonalisation() -> Task:
    """A square matrix: no normal directions at all."""
    rng = np.random.default_rng(6)
    U = stiefel.random_point(8, 8, seed=7)
    C = [(U * rng.standard_normal(8)) @ U.T + 0.02 * hermitian(8, -1, 1, i) for i in range(5)]

    def start(seed: int) -> Any:
        noise = np.random.default_rng(seed).standard_normal((8, 8))
        return stiefel.nearest(U + 0.2 * noise)

    return Task(JointDiagonalization(np.stack([(c + c.T) / 2 for c in C])), start)


def tree() -> Task:
    """½‖Y − X C‖² + ½‖C‖²/10 with free coefficients C, one curvature for them and another for X."""
    rng = np.random.default_rng(8)
    Y = (rng.standard_normal((40, 3)) * [3.0, 2.0, 1.0]) @ rng.standard_normal((3, 25)) / 10
    Y += 0.1 * rng.standard_normal(Y.shape)

    def fun(p: Any) -> tuple[float, Any]:
        X, C = p["X"], p["C"]
        R = X @ C - Y
        f = 0.5 * float(np.vdot(R, R)) + 0.05 * float(np.vdot(C, C))
        return f, {"X": R @ C.T, "C": X.T @ R + 0.1 * C}

    def start(seed: int) -> Any:
        C = np.random.default_rng(seed).standard_normal((3, 25))
        return {"X": stiefel.random_point(40, 3, seed=seed), "C": C}

    return Task(fun, start, {"X": Stiefel(), "C": Euclidean()})


def stack() -> Task:
    A = np.stack([hermitian(24, 1.0, high, i) for i, high in enumerate((10.0, 20.0, 40.0))])
    w = np.arange(1.0, 4.0)

    def fun(X: Any) -> tuple[float, Any]:
        G = (A @ X) * w
        return 0.5 * float(np.vdot(X, G)), G

    return Task(fun, points(3, 24, 3))


def span() -> Task:
    """A function of the span, on its own manifold."""
    return Task(Rayleigh(hermitian(60, 1.0, 30.0, 9), columns=4), points(60, 4), Grassmann())


def complex_trace() -> Task:
    A = hermitian(50, 1.0, 30.0, 10, complex)
    return Task(Brockett(A, np.arange(1.0, 5.0)), points(50, 4, dtype=complex))


def generalised() -> Task:
    B = hermitian(40, 0.5, 5.0, 11)
    task = Brockett(hermitian(40, 1.0, 20.0, 12), np.arange(1.0, 4.0))
    return Task(task, points(40, 3, manifold=Stiefel(B=B)), Stiefel(B=B))


PROBLEMS = (
    brockett,
    stiff_rotations,
    sphere,
    kohn_sham,
    procrustes,
    joint_diagonalisation,
    tree,
    stack,
    span,
    complex_trace,
    generalised,
)


# -- the table ----------------------------------------------------------------------------------


def spent(task: Task, method: str, starts: Any = STARTS) -> tuple[int, ...]:
    """Calls of the function from all starts together, and Hessian products where there are any."""
    options = {"method": method, "rtol": TOLERANCES[method], "manifold": task.manifold}
    runs = [stiefel.minimize(task.fun, task.start(seed), **options) for seed in starts]
    assert all(run.success for run in runs), [run.message for run in runs]
    products = sum(run.nhev for run in runs)
    return (sum(run.nfev for run in runs), *([products] if products else []))


def table() -> dict[tuple[str, str], tuple[int, ...]]:
    rows = (line.split() for line in TABLE.read_text().splitlines())
    return {(row[0], row[1]): tuple(map(int, row[2:])) for row in rows if row and row[0] != "#"}


CASES = [(p, method) for p in PROBLEMS for method in TOLERANCES]


@pytest.mark.parametrize(("problem", "method"), CASES, ids=lambda v: getattr(v, "__name__", v))
@pytest.mark.filterwarnings("ignore:X0 is square")
def test_evaluations_are_what_they_were(problem: Callable[[], Task], method: str) -> None:
    recorded = table()[problem.__name__, method]
    now = spent(problem(), method)
    assert len(now) == len(recorded), (now, recorded)
    for measured, expected in zip(now, recorded):
        assert abs(measured - expected) <= WITHIN * expected, (now, recorded)


def test_every_line_is_tested() -> None:
    assert table().keys() == {(p.__name__, method) for p, method in CASES}


def main(words: list[str]) -> None:
    print("# problem, method, evaluations of f, Hessian products: of three starts together")
    for problem, method in CASES:
        name = problem.__name__
        if not words or name in words or method in words:
            print(f"{name:22} {method:30}", *(f"{count:6}" for count in spent(problem(), method)))


if __name__ == "__main__":
    main(sys.argv[1:])
