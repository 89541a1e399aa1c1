"""Random small solves of every kind, and every claim of their results checked from outside.

Nothing here asks the library about its own answers: feasibility, values, gradient norms and
counts are computed again from the returned point, with formulas written down here.  A case is one
seed; `solve` draws everything from it: kind of call, manifold, function, method, precision,
scale, tolerance and limits.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import stiefel
from stiefel.runs.checkpoint import CheckpointError
from stiefel.solvers import METHODS

Tally = Counter[str]
Array = Any
SMALL = [(1, 1), (2, 1), (2, 2), (3, 1), (3, 3), (4, 2), (6, 3), (8, 2), (12, 3)]
PROXIMAL = ["proximal-lbfgs", "proximal-newton", "proximal-gradient", "accelerated-proximal"]
# Powers of two that keep f and its gradient in range, by precision.
SCALES = {"f": 60, "F": 60, "d": 325, "D": 325}
WRONG = ("ROUNDING_LIMIT", "STEP_NOT_FOUND", "NOT_FINITE")


class Lie(AssertionError):
    """A result that says what is not so."""


def require(condition: Any, what: str) -> None:
    if not condition:
        raise Lie(what)


# -- functions, with the counter that the result must agree with


class Counted:
    """f(X) = scale · (½ Re⟨X, AXd⟩ + Re⟨C, X⟩ + quartic), counted here."""

    def __init__(self, rng: np.random.Generator, n: int, k: int, dtype: Any, scale: float) -> None:
        draw = lambda *shape: gaussian(rng, dtype, *shape)
        A = draw(n, n)
        self.A, self.d = (A + A.conj().T) / 2, np.sort(rng.uniform(0.5, 3, k)).astype(real(dtype))
        if rng.random() < 0.3:  # a pure trace, of which the minimum is known
            self.d, self.C, self.quartic = np.ones(k, real(dtype)), None, 0.0
        else:
            self.C = draw(n, k) if rng.random() < 0.6 else None
            self.quartic = 0.0 if rng.random() < 0.6 else 1.0
        self.scale, self.calls, self.writes = real(dtype).type(scale), 0, False

    def __call__(self, X: Array) -> tuple[float, Array]:
        self.calls += 1
        if self.writes:
            X *= 2  # what NumPy refuses, because the points shown are read-only
        return self.at(X)

    def at(self, X: Array) -> tuple[float, Array]:
        G = self.A @ X * self.d
        f = 0.5 * np.vdot(X, G).real
        if self.C is not None:
            f, G = f + np.vdot(self.C, X).real, G + self.C
        if self.quartic:
            square = np.abs(X) ** 2
            f, G = f + np.sum(square**2) / 4, G + square * X
        return float(self.scale * f), self.scale * G

    def least(self) -> float | None:
        """Its smallest value on Stiefel, where that is known."""
        if self.C is not None or self.quartic or np.ptp(self.d) or self.d[0] != 1:
            return None
        return float(self.scale) * 0.5 * float(np.linalg.eigvalsh(self.A)[: len(self.d)].sum())


def real(dtype: Any) -> Any:
    return np.dtype(dtype.char.lower())


def gaussian(rng: np.random.Generator, dtype: Any, *shape: int) -> Array:
    A = rng.standard_normal(shape)
    return (A + 1j * rng.standard_normal(shape) if dtype.kind == "c" else A).astype(dtype)


def adjoint(X: Array) -> Array:
    return np.swapaxes(X, -1, -2).conj()


# -- manifolds: how to make one, what feasible means, and ‖G‖ of the Euclidean gradient


def stiefel_norm(X: Array, G: Array) -> float:
    """‖·‖_g* of the projection W = G − X herm(XᴴG): √(‖W‖² + ‖XᴴW‖²)."""
    m = adjoint(X) @ G
    W = G - X @ ((m + adjoint(m)) / 2)
    return math.sqrt(float(np.sum(np.abs(W) ** 2) + np.sum(np.abs(adjoint(X) @ W) ** 2)))


def grassmann_norm(X: Array, G: Array) -> float:
    return float(np.linalg.norm(G - X @ (adjoint(X) @ G)))


def column_norm(X: Array, G: Array) -> float:
    return float(np.linalg.norm(G - X * np.sum(X.conj() * G, axis=0).real))


def gram_defect(X: Array) -> float:
    return float(np.linalg.norm(adjoint(X) @ X - np.eye(X.shape[-1])))


def column_defect(X: Array) -> float:
    return float(np.abs(np.sum(np.abs(X) ** 2, axis=0) - 1).max())


MANIFOLDS: dict[str, tuple[Any, Callable[[Array], float], Callable[[Array, Array], float]]] = {
    "stiefel": (stiefel.Stiefel(), gram_defect, stiefel_norm),
    "grassmann": (stiefel.Grassmann(), gram_defect, grassmann_norm),
    "oblique": (stiefel.Oblique(), column_defect, column_norm),
}


# -- one matrix, every method


def one(rng: np.random.Generator, tally: Tally) -> None:
    """`minimize` on one matrix: sizes from 1×1 on, four precisions, every method, any scale."""
    n, k = SMALL[rng.integers(len(SMALL))]
    dtype = np.dtype(str(rng.choice(["d", "d", "D", "f", "F"])))
    method = str(rng.choice(list(METHODS)))
    name = str(rng.choice(["stiefel", "stiefel", "oblique", "grassmann"]))
    power = int(rng.integers(-SCALES[dtype.char], SCALES[dtype.char] + 1))
    power = power if rng.random() < 0.4 else 0
    f = Counted(rng, n, k, dtype, 2.0**power)
    if name == "grassmann":
        f.d, f.C, f.quartic = np.ones(k, real(dtype)), None, 0.0
    manifold, defect, norm = MANIFOLDS[name]
    x0 = manifold.random(n, k, seed=int(rng.integers(2**31)), dtype=dtype)
    limits: dict[str, Any] = {"maxiter": int(rng.choice([3, 50, 2000, 2000]))}
    if rng.random() < 0.2:
        limits["maxfun"] = int(rng.integers(2, 40))
    if rng.random() < 0.7:
        limits["rtol"] = (
            10 ** rng.uniform(-9, -2) if dtype.char in "dD" else 10 ** rng.uniform(-4, -1)
        )
    f.writes = rng.random() < 0.02
    where = f"{method} on {name} {n}×{k} {dtype} 2^{power} {limits}"
    try:
        r = stiefel.minimize(f, x0, method=method, manifold=manifold, **limits)
    except ValueError as error:
        require(f.writes and "read-only" in str(error), f"{where}: {error}")
        tally["functions that write into X, refused"] += 1
        return
    require(not f.writes, f"{where}: a function wrote into X")
    verify(r, f, defect, norm, x0, limits, where)
    least = f.least() if name != "oblique" else None
    if least is not None:
        room = 100 * np.finfo(dtype).eps * float(f.scale) * np.abs(f.A).sum()
        require(r.fun >= least - room, f"{where}: below the minimum, {r.fun} < {least}")
    tally[f"solves by {method}"] += 1
    tally["solves far from the scale 1"] += power != 0
    tally["solves on manifolds of dimension 0 or 1"] += n * k <= 2


def verify(r: Any, f: Counted, defect: Any, norm: Any, x0: Array, limits: Any, where: str) -> None:
    eps, k = float(np.finfo(x0.dtype).eps), x0.shape[-1]
    where = f"{where}: {r.message}"
    require(r.x.dtype == x0.dtype and r.x.shape == x0.shape, f"{where}: {r.x.dtype} {r.x.shape}")
    require(defect(r.x) <= 10 * eps * math.sqrt(k), f"{where}: feasibility {defect(r.x)}")
    require(r.nfev == f.calls, f"{where}: {r.nfev} evaluations, {f.calls} calls")
    require(r.nit <= limits["maxiter"], f"{where}: {r.nit} iterations")
    require(r.nfev <= limits.get("maxfun", math.inf), f"{where}: {r.nfev} evaluations")
    value, G = f.at(r.x)
    room = 50 * eps * float(f.scale) * (np.abs(f.A).sum() + k)
    require(abs(value - r.fun) <= room, f"{where}: f is {value}, not {r.fun}")
    unit = float(np.abs(G).max()) or 1.0  # squares of 2^±325 are out of range
    size, first = unit * norm(r.x, G / unit), f.at(x0)[1]
    allowed = 1e3 * eps * unit
    require(abs(size - r.gradient_norm) <= 1e-3 * size + allowed, f"{where}: ‖∇f‖ is {size}")
    one = float(np.abs(first).max()) or 1.0
    began = one * norm(x0, first / one)
    tolerance = limits.get("rtol", 1e-6 if eps < 1e-10 else 1e-4)
    if r.success:
        require(size <= tolerance * began * (1 + 1e-3) + allowed, f"{where}: ‖∇f‖ is {size}")
    require(bool(r.success) == (r.status.name == "CONVERGED"), where)
    require(f.at(x0)[0] >= r.fun - room, f"{where}: worse than the start")


# -- other calls


def many(rng: np.random.Generator, tally: Tally, size: int = 60) -> None:
    """`minimize_many`: each problem of a batch is checked by itself."""
    n, k = SMALL[rng.integers(1, len(SMALL))]
    dtype = np.dtype(str(rng.choice(["d", "d", "D", "f"])))
    A, C = gaussian(rng, dtype, size, n, n), gaussian(rng, dtype, size, n, k)
    A = (A + adjoint(A)) / 2
    seen = np.zeros(size, int)

    def at(X: Array, i: Array) -> tuple[Array, Array]:
        AX = A[i] @ X
        f = np.sum((X.conj() * (0.5 * AX + C[i])).real, axis=(1, 2))
        return f, AX + C[i]

    def fun(X: Array, i: Array) -> tuple[Array, Array]:
        seen[i] += 1
        return at(X, i)

    x0 = stiefel.random_point(size, n, k, seed=int(rng.integers(2**31)), dtype=dtype)
    eps, rtol = float(np.finfo(dtype).eps), 1e-7 if dtype.char in "dD" else 1e-3
    r = stiefel.minimize_many(fun, x0, rtol=rtol, maxiter=2000)
    everything = np.arange(size)
    f, G = at(r.x, everything)
    began = at(x0, everything)[1]
    for b in range(size):
        where = f"minimize_many {n}×{k} {dtype}, problem {b} of {size}: {r.status[b]}"
        require(gram_defect(r.x[b]) <= 10 * eps * math.sqrt(k), f"{where}: not feasible")
        require(r.nfev[b] <= seen[b], f"{where}: {r.nfev[b]} evaluations of {seen[b]}")
        require(abs(f[b] - r.fun[b]) <= 50 * eps * np.abs(A[b]).sum(), f"{where}: f")
        norm = stiefel_norm(r.x[b], G[b])
        allowed = 1e3 * eps * float(np.abs(G[b]).max())
        require(abs(norm - r.gradient_norm[b]) <= 1e-3 * norm + allowed, f"{where}: ‖∇f‖")
        first = stiefel_norm(x0[b], began[b])
        require(not r.success[b] or norm <= rtol * first * 1.001 + allowed, f"{where}: success")
    tally["solves in batches"] += size
    tally["solves in batches that converged"] += int(r.success.sum())


def proximal(rng: np.random.Generator, tally: Tally) -> None:
    """f + h: F is computed again, and at success no short proximal step leads down."""
    n, k = SMALL[rng.integers(3, len(SMALL))]
    f = Counted(rng, n, k, np.dtype("d"), 1.0)
    weight = float(rng.uniform(0.05, 1.0))
    term = stiefel.L1(weight) if rng.random() < 0.6 else stiefel.RowNorms(weight)
    x0 = stiefel.random_point(n, k, seed=int(rng.integers(2**31)))
    method = str(rng.choice(["auto", *PROXIMAL]))
    second = {"hessp": differences(f)} if method == "proximal-newton" else {}
    where = f"{method} {n}×{k} {term}"
    r = stiefel.minimize(f, x0, nonsmooth=term, method=method, maxiter=300, **second)
    require(gram_defect(r.x) <= 1e-14 * math.sqrt(k) * 3, f"{where}: not feasible")
    h = np.abs(r.x) if isinstance(term, stiefel.L1) else np.linalg.norm(r.x, axis=1)
    total = f.at(r.x)[0] + weight * float(h.sum())
    require(abs(total - r.fun) <= 1e-10 * (1 + abs(total)), f"{where}: F is {total}, not {r.fun}")
    start = np.abs(x0) if isinstance(term, stiefel.L1) else np.linalg.norm(x0, axis=1)
    before = f.at(x0)[0] + weight * float(start.sum())
    require(r.fun <= before + 1e-9 * (1 + abs(before)), f"{where}: worse than the start")
    require(r.nfev == f.calls or second, f"{where}: {r.nfev} evaluations, {f.calls} calls")
    tally["nonsmooth solves"] += 1
    tally["nonsmooth solves that converged"] += bool(r.success)


def differences(f: Counted) -> Callable[[Array, Array], Array]:
    """Products with the Hessian, by differences; f is quadratic or quartic."""

    def product(X: Array, V: Array) -> Array:
        t = 1e-5 / max(float(np.abs(V).max()), 1e-300)
        return (f.at(X + t * V)[1] - f.at(X - t * V)[1]) / (2 * t)

    return product


def bounded(rng: np.random.Generator, tally: Tally) -> None:
    """Constraints: at success they hold, to the tolerance that the result names."""
    n, k = SMALL[rng.integers(5, len(SMALL))]
    f = Counted(rng, n, k, np.dtype("d"), 1.0)
    x0 = stiefel.random_point(n, k, seed=int(rng.integers(2**31)))
    low = -float(rng.uniform(0.2, 0.9))
    r = stiefel.minimize(f, x0, bounds=(low, None), maxiter=200)
    where = f"bounds ≥ {low:.2f} on {n}×{k}: {r.message}"
    require(gram_defect(r.x) <= 3e-14 * math.sqrt(k), f"{where}: not feasible")
    require(not r.success or float(r.x.min()) >= low - 1e-5, f"{where}: {r.x.min()}")
    require(abs(f.at(r.x)[0] - r.fun) <= 1e-9 * (1 + abs(r.fun)), f"{where}: f")
    tally["solves with bounds"] += 1
    tally["solves with bounds that converged"] += bool(r.success)


def several(rng: np.random.Generator, tally: Tally) -> None:
    """`starts=` and `escape=`: a trace ends in its global minimum from any start."""
    n, k = SMALL[rng.integers(3, len(SMALL))]
    f = Counted(rng, n, k, np.dtype("d"), 1.0)
    f.C, f.quartic, f.d = None, 0.0, np.ones(k)
    vectors = np.linalg.eigh(f.A)[1]
    escaping = rng.random() < 0.5
    x0 = vectors[:, rng.permutation(n)[:k]] if escaping else stiefel.random_point(n, k, seed=1)
    options: dict[str, Any] = {"escape": True} if escaping else {"starts": 3}
    r = stiefel.minimize(f, x0, seed=int(rng.integers(2**31)), **options)
    where = f"{options} on {n}×{k}: {r.message}"
    least = f.least()
    assert least is not None
    eigenvalues = np.linalg.eigvalsh(f.A)
    close = float(np.diff(eigenvalues).min()) < 1e-3  # nearly flat: a saddle may be no saddle
    require(close or (r.success and r.fun <= least + 1e-5 * (1 + abs(least))), f"{where}: {least}")
    require(gram_defect(r.x) <= 3e-14 * math.sqrt(k), f"{where}: not feasible")
    require(r.nfev == f.calls, f"{where}: {r.nfev} evaluations, {f.calls} calls")
    tally["solves from saddles" if escaping else "solves from several starts"] += 1


def resumed(rng: np.random.Generator, tally: Tally) -> None:
    """Stopped by a callback, resumed from the file: the same bits; other functions are refused."""
    n, k = SMALL[rng.integers(4, len(SMALL))]
    f = Counted(rng, n, k, np.dtype(str(rng.choice(["d", "D"]))), 1.0)
    dtype = f.A.dtype
    x0 = stiefel.random_point(n, k, seed=int(rng.integers(2**31)), dtype=dtype)
    method, stop = str(rng.choice(list(METHODS))), int(rng.integers(1, 8))
    whole = stiefel.minimize(f, x0, method=method, rtol=1e-7, maxiter=500)
    with tempfile.TemporaryDirectory() as folder:
        options: dict[str, Any] = {"checkpoint": Path(folder) / "run.npz", "resume": True}
        options |= {"method": method, "rtol": 1e-7, "maxiter": 500}
        asked = lambda s: np.bool_(s.nit >= stop)
        stiefel.minimize(f, x0, callback=asked, **options)
        r = stiefel.minimize(f, x0, **options)
        require(np.array_equal(r.x, whole.x) and r.nfev == whole.nfev, f"{method}: other bits")
        f.A = f.A + np.eye(n, dtype=dtype)[::-1] * 0.1
        try:
            stiefel.minimize(f, x0, **options)
            require(r.nit == 0, f"{method} {n}×{k}: another function was resumed")
        except CheckpointError:
            tally["other functions refused"] += 1
    tally["solves resumed with the same bits"] += 1


KINDS: list[tuple[Callable[[np.random.Generator, Tally], None], float]] = [
    (one, 0.86),
    (many, 0.02),
    (proximal, 0.05),
    (bounded, 0.01),
    (several, 0.03),
    (resumed, 0.03),
]


def solve(seed: int, tally: Tally) -> None:
    """One case; raises `Lie` where a claim is not so."""
    rng = np.random.default_rng([seed, 14])
    kind = KINDS[rng.choice(len(KINDS), p=[p for _, p in KINDS])][0]
    try:
        kind(rng, tally)
    except Exception as error:
        raise Lie(f"{kind.__name__}, case {seed}: {error!r}") from error
