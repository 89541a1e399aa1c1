"""CPU milliseconds beside the user's function: `auto`, a Cayley–Barzilai–Borwein loop, pymanopt.

    python benchmarks/beside.py [--rounds 3] [--cost usual] [name ...]

One thread; every entry is the least of so many rounds, in which the contestants take turns; f's
own time is taken off.  First a call that takes no step, then small sizes, then the libraries.  What
is asked of each line stands beside it as a ratio.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before NumPy is loaded

import cayley_bb  # noqa: E402
import numpy as np  # noqa: E402

import stiefel  # noqa: E402
from stiefel import Euclidean, Oblique, SpecialOrthogonal, Sphere, Stiefel  # noqa: E402

Array = Any


class Timed:
    """A function that keeps its own CPU time and counts its calls."""

    def __init__(self, fun: Callable[[Any], Any]) -> None:
        self.fun, self.seconds, self.calls = fun, 0.0, 0

    def __call__(self, X: Any) -> Any:
        start = time.process_time()
        result = self.fun(X)
        self.seconds += time.process_time() - start
        self.calls += 1
        return result


@dataclass(frozen=True)
class Case:
    """A function, its start, and what is asked of the work beside it."""

    fun: Any
    start: Any
    manifold: Any = Stiefel()  # noqa: RUF009 - a frozen record
    iterations: int = 100
    loop: Any = "choose"  # the loop's curve; None where it does not apply
    peer: tuple[Any, ...] = ()  # pymanopt's manifold and its sizes
    unit: str = "evaluation"


def quadratic(*shape: int, seed: int = 0) -> Any:
    """½Σ w_j x_jᵀAx_j + ⟨B, X⟩, one A for a whole stack: cheap, and without a closed form."""
    rng = np.random.default_rng(seed)
    n, k = shape[-2:]
    a = np.linspace(1.0, 30.0, n)[:, None]
    w, B = np.linspace(1.0, 2.0, k), rng.standard_normal(shape)

    def fun(X: Array) -> tuple[float, Array]:
        AX = a * X * w
        return 0.5 * float(np.vdot(X, AX)) + float(np.vdot(B, X)), AX + B

    return fun


def brockett(n: int, k: int) -> Any:
    """½Tr XᵀAXN with a dense A: f costs a product, as it does for most users."""
    rng = np.random.default_rng(1)
    A = rng.standard_normal((n, n))
    A, w = (A + A.T) / np.sqrt(n), np.linspace(1.0, 2.0, k)

    def fun(X: Array) -> tuple[float, Array]:
        G = (A @ X) * w
        return 0.5 * float(np.vdot(X, G)), G

    return fun


def leaves(library: str) -> tuple[Any, Any, Any]:
    """A tree of six small leaves (three for NumPy): two orthonormal matrices beside free ones."""
    rng = np.random.default_rng(2)
    shapes = {"W": (16, 8), "b": (8,), "V": (8, 4), "c": (4,), "U": (4, 3), "d": (3,)}
    if library == "numpy":
        shapes = {"W": (16, 8), "b": (8,), "V": (8, 4)}
    start = {key: rng.standard_normal(shape) for key, shape in shapes.items()}
    where = {key: Stiefel() if key in "WV" else Euclidean() for key in shapes}
    start = {k: stiefel.nearest(x) if k in "WV" else x for k, x in start.items()}
    targets = {key: rng.standard_normal(shape) for key, shape in shapes.items()}
    scales = {key: 1.0 + i for i, key in enumerate(shapes)}
    if library == "torch":
        import torch

        start, targets = ({k: torch.as_tensor(x) for k, x in t.items()} for t in (start, targets))
    return start, where, (targets, scales)


def tree_numpy() -> Case:
    start, where, (targets, scales) = leaves("numpy")

    def fun(p: Any) -> Any:
        R = {key: x - targets[key] + 0.1 * x**3 for key, x in p.items()}
        G = {key: scales[key] * R[key] * (1 + 0.3 * p[key] ** 2) for key in p}
        return 0.5 * sum(scales[key] * float(np.vdot(r, r)) for key, r in R.items()), G

    return Case(fun, start, where, loop=None)


def tree_torch() -> Case:
    start, where, (targets, scales) = leaves("torch")

    def fun(p: Any) -> Any:
        R = {key: x - targets[key] + 0.1 * x**3 for key, x in p.items()}
        G = {key: scales[key] * R[key] * (1 + 0.3 * p[key] ** 2) for key in p}
        return 0.5 * sum(scales[key] * (r * r).sum() for key, r in R.items()), G

    return Case(fun, start, where, loop=None)


def sphere(n: int) -> Case:
    a = np.linspace(1.0, 40.0, n)
    fun = lambda x: (0.5 * float(x @ (a * x)), a * x)
    where = Sphere()
    return Case(fun, where.random(n, seed=0), where, loop="vector", peer=("Sphere", n))


def unit(n: int, k: int) -> Case:
    fun = quadratic(n, k)
    where = Oblique()
    start = where.random(n, k, seed=0)
    return Case(fun, start, where, loop="unit", peer=("Oblique", n, k))


def stack(count: int, n: int) -> Case:
    """The same vectors as rows."""
    columns, where = quadratic(n, count), Sphere()

    def fun(X: Array) -> tuple[float, Array]:
        f, G = columns(np.ascontiguousarray(X.T))
        return f, np.ascontiguousarray(G.T)

    return Case(fun, where.random(count, n, seed=0), where, loop=None)


def tall(n: int, k: int, iterations: int = 100) -> Case:
    point = stiefel.random_point(n, k, seed=0)
    return Case(quadratic(n, k), point, iterations=iterations, peer=("Stiefel", n, k))


def dense(n: int, k: int, iterations: int) -> Case:
    point = stiefel.random_point(n, k, seed=0)
    return Case(brockett(n, k), point, iterations=iterations, loop=None, unit="QR")


def stacked(count: int, n: int, iterations: int = 60) -> Case:
    where = SpecialOrthogonal()
    start = where.random(count, n, n, seed=0)
    return Case(quadratic(count, n, n), start, where, iterations=iterations)


CASES: dict[str, Callable[[], Case]] = {
    "square 60": lambda: tall(60, 60),
    "square 120": lambda: tall(120, 120),
    "500x500": lambda: dense(500, 500, 25),
    "1000x500": lambda: dense(1000, 500, 40),
    "1000x900": lambda: dense(1000, 900, 25),
    "500x120": lambda: tall(500, 120, 40),
    "2000 rotations": lambda: stacked(2000, 3),
    "20000 rotations": lambda: stacked(20000, 3, 30),
    "200 of 64x64": lambda: stacked(200, 64, 12),
    "vector 16384": lambda: sphere(16384),
    "2000 unit vectors": lambda: unit(20, 2000),
    "2000 vectors as rows": lambda: stack(2000, 20),
    "torch tree": tree_torch,
    "numpy tree": tree_numpy,
    "100x5": lambda: tall(100, 5, 200),
    "1000x10": lambda: tall(1000, 10, 150),
    "million x2": lambda: tall(1_000_000, 2, 8),
}
LOOPS = {"choose": None, "unit": cayley_bb.unit_columns}


def ours(case: Case, cost: str) -> tuple[float, float]:
    """Milliseconds beside f, an evaluation and an iteration."""
    fun = Timed(case.fun)
    options: dict[str, Any] = {"rtol": 1e-30, "gtol": 1e-300, "maxiter": case.iterations}
    options |= {"jac": True, "options": {"cost": cost}}
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = stiefel.minimize(fun, case.start, manifold=case.manifold, **options)
    beside = 1e3 * (time.process_time() - start - fun.seconds)
    return beside / fun.calls, beside / max(result.nit, 1)


def unmoved(calls: int = 200) -> float:
    """Milliseconds of a call that takes no step, f included; 40×4."""
    fun, X = quadratic(40, 4), stiefel.random_point(40, 4, seed=0)
    start = time.process_time()
    for _ in range(calls):
        stiefel.minimize(fun, X, maxiter=0)
    return 1e3 * (time.process_time() - start) / calls


def looped(case: Case) -> float:
    fun, X = Timed(case.fun), case.start
    leave = LOOPS.get(case.loop)
    if case.loop == "vector":  # a column
        X, leave = X[:, None], cayley_bb.unit_columns
        fun = Timed(lambda x: (lambda f, g: (f, g[:, None]))(*case.fun(x[:, 0])))
    start = time.process_time()
    cayley_bb.minimise(fun, X, case.iterations, leave)
    return 1e3 * (time.process_time() - start - fun.seconds) / fun.calls


def peer(case: Case) -> float:
    import pymanopt
    from pymanopt.optimizers import ConjugateGradient

    kind, *sizes = case.peer
    manifold = getattr(pymanopt.manifolds, kind)(*sizes)
    cost = Timed(lambda X: case.fun(X)[0])
    slope = Timed(lambda X: case.fun(X)[1])
    marked = pymanopt.function.numpy(manifold)
    problem = pymanopt.Problem(manifold, marked(cost), euclidean_gradient=marked(slope))
    solver = ConjugateGradient(max_iterations=case.iterations, verbosity=0, min_gradient_norm=0)
    start = time.process_time()
    solver.run(problem, initial_point=case.start)
    used = time.process_time() - start - cost.seconds - slope.seconds
    return 1e3 * used / max(cost.calls, 1)


def factorised(case: Case) -> float:
    """One QR of the start."""
    start = time.process_time()
    np.linalg.qr(case.start)
    return 1e3 * (time.process_time() - start)


def line(name: str, case: Case, rounds: int, cost: str) -> str:
    found: dict[str, list[float]] = {}

    def note(key: str, measure: Callable[[], float]) -> None:
        found.setdefault(key, []).append(measure())

    for _ in range(rounds):
        call, iteration = ours(case, cost)
        note("call", lambda c=call: c)
        note("iteration", lambda i=iteration: i)
        if case.loop is not None:
            note("loop", lambda: looped(case))
        if case.peer and find_spec("pymanopt"):
            note("pymanopt", lambda: peer(case))
        if case.unit == "QR":
            note("QR", lambda: factorised(case))
    least = {key: min(values) for key, values in found.items()}
    mine, whole = least.pop("call"), least.pop("iteration")
    text = f"{name:20} auto {mine:9.3f} a call {whole:9.3f} an iteration"
    for key, value in least.items():
        text += f" | {key} {value:.3f}, ratio {(whole if key == 'QR' else mine) / value:.2f}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cost", default="usual", help="the option of `auto`")
    given = parser.parse_args()
    if not given.names or "call" in given.names:
        print(f"{'a call, no step':18} auto {min(unmoved() for _ in range(given.rounds)):9.3f}")
    for name, make in CASES.items():
        if not given.names or any(word in name for word in given.names):
            print(line(name, make(), given.rounds, given.cost), flush=True)


if __name__ == "__main__":
    main()
