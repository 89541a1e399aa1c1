"""Constraints on orthonormal matrices: the augmented Lagrangian against SciPy's two methods.

    python benchmarks/constrained.py [problems] [starts] [first seed]

SciPy gets the same function, gradients and Jacobians, with the orthonormality as further equations.
All end points are judged by one measure that belongs to none of them: multipliers by bounded least
squares on what is active, and ‖∇f + Jᵀλ‖∞, the violation of the constraints and ‖XᵀX − I‖∞.
SciPy's gradients are counted up to the first iterate at which all three are ≤ 1e-6, ours to the end
of the run; a dash is a run that never gets there.
"""

from __future__ import annotations

import sys
import warnings
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import NonlinearConstraint, lsq_linear, minimize

import stiefel

KKT = 1e-6
MOST_GRADIENTS = 1000


@dataclass(frozen=True)
class Constrained:
    """min f(X) + ⟨slope, s⟩ over orthonormal X and free s, with c(X, s) ≥ 0 or c = 0."""

    manifold: Any
    X0: Any
    fun: Any  # (X, s) -> value, gradient in X, gradient in s
    constraint: Any  # (X, s) -> c, Jacobian in X (m, ...), Jacobian in s (m, len(s))
    equal: bool
    slack: int = 0

    def split(self, x):
        return x[: self.X0.size].reshape(self.X0.shape), x[self.X0.size :]

    def start(self):
        return np.concatenate([self.X0.ravel(), np.zeros(self.slack)])

    def value(self, x):
        f, G, g = self.fun(*self.split(x))
        return f, np.concatenate([G.ravel(), g])

    def c(self, x):
        return self.constraint(*self.split(x))[0]

    def jac(self, x):
        c, J, j = self.constraint(*self.split(x))
        return np.hstack([J.reshape(len(c), -1), j.reshape(len(c), self.slack)])

    def orthonormality(self, x):
        """What must vanish of XᵀX − I, or of the squares of unit vectors, and its Jacobian."""
        X, _ = self.split(x)
        rest = np.zeros((1, self.slack))
        if isinstance(self.manifold, stiefel.Sphere):
            rows = X.reshape(-1, X.shape[-1])
            J = np.zeros((len(rows), *rows.shape))
            J[np.arange(len(rows)), np.arange(len(rows))] = 2 * rows
            E = np.sum(rows**2, axis=1) - 1
        else:
            k = X.shape[1]
            pairs = [(i, j) for i in range(k) for j in range(i + 1)]
            E = np.array([X[:, i] @ X[:, j] - (i == j) for i, j in pairs])
            J = np.zeros((len(pairs), *X.shape))
            for q, (i, j) in enumerate(pairs):
                J[q, :, i] += X[:, j]
                J[q, :, j] += X[:, i]
        return E, np.hstack([J.reshape(len(E), -1), np.repeat(rest, len(E), axis=0)])

    def residuals(self, x):
        """(stationarity, violation, ‖XᵀX − I‖∞), from x alone."""
        _, g = self.value(x)
        c, J = self.c(x), self.jac(x)
        E, N = self.orthonormality(x)
        violation = np.abs(c).max() if self.equal else max(0.0, -c.min())
        active = np.full(len(c), True) if self.equal else c <= 1e-5
        A = np.hstack([N.T, -J[active].T])
        low = [-np.inf] * len(E) + [-np.inf if self.equal else 0.0] * int(active.sum())
        found = lsq_linear(A, -g, bounds=(low, np.inf), tol=1e-14)
        return np.abs(A @ found.x + g).max(), violation, np.abs(E).max()


# -- the problems ---------------------------------------------------------------------------------


def nonnegative_pca(n, k, seed):
    """max ⟨X, AX⟩ with X ≥ 0 (Montanari and Richard): a planted nonnegative matrix and noise."""
    rng = np.random.default_rng(seed)
    V = np.zeros((n, k))
    V[np.arange(n), rng.integers(k, size=n)] = np.abs(rng.standard_normal(n))
    V /= np.linalg.norm(V, axis=0)
    Z = rng.standard_normal((n, n)) / np.sqrt(n)
    A = 10 * V @ V.T + 0.3 * (Z + Z.T)
    fun = lambda X, s: (-float(np.vdot(X, A @ X)), -2 * A @ X, s)
    identity = np.eye(n * k)
    bound = lambda X, s: (X.ravel(), identity, np.zeros((n * k, 0)))
    X0 = stiefel.random_point(n, k, seed=seed + 1)
    return Constrained(stiefel.Stiefel(), X0, fun, bound, False)


def balanced_cut(n, k, seed):
    """min −¼⟨X, LX⟩ over unit rows with Σ rows = 0 (Liu and Boumal, 2020); L of a random graph."""
    rng = np.random.default_rng(seed)
    W = np.triu(rng.uniform(size=(n, n)) < 0.2, 1).astype(float)
    W = W + W.T
    L = np.diag(W.sum(axis=0)) - W
    fun = lambda X, s: (0.25 * float(np.vdot(X, L @ X)), 0.5 * L @ X, s)
    J = np.kron(np.ones((1, n)), np.eye(k))
    balance = lambda X, s: (X.sum(axis=0), J, np.zeros((k, 0)))
    X0 = stiefel.random_point(n, k, seed=seed + 1, manifold=stiefel.Sphere())
    return Constrained(stiefel.Sphere(), X0, fun, balance, True)


def fair_pca(n, k, seed, groups=4):
    """max min_g ‖A_g X‖² (Samadi and others, 2018), with a slack for the least variance."""
    rng = np.random.default_rng(seed)
    scales = [np.exp(rng.uniform(-1, 1, n)) for _ in range(groups)]
    samples = [d[:, None] * rng.standard_normal((n, 60)) for d in scales]
    C = [S @ S.T / 60 for S in samples]
    return max_min(C, stiefel.random_point(n, k, seed=seed + 1), stiefel.Stiefel())


def beamforming(antennas, users, seed):
    """max min_i |h_iᴴw|² over unit w (multicast; Sidiropoulos and others, 2006), as reals."""
    rng = np.random.default_rng(seed)
    H = rng.standard_normal((users, antennas)) + 1j * rng.standard_normal((users, antennas))
    rows = [np.array([np.r_[h.real, h.imag], np.r_[-h.imag, h.real]]) for h in H]
    X0 = stiefel.random_point(2 * antennas, 1, seed=seed + 1)
    return max_min([R.T @ R / antennas for R in rows], X0, stiefel.Stiefel())


def max_min(C, X0, manifold):
    fun = lambda X, s: (-float(s[0]), np.zeros_like(X), -np.ones(1))

    def gains(X, s):
        products = [A @ X for A in C]
        c = np.array([np.vdot(X, P) for P in products]) - s[0]
        return c, np.stack([2 * P for P in products]), -np.ones((len(C), 1))

    return Constrained(manifold, X0, fun, gains, False, slack=1)


PROBLEMS = {
    "nonnegative PCA 100×1": lambda seed: nonnegative_pca(100, 1, seed),
    "nonnegative PCA 50×3": lambda seed: nonnegative_pca(50, 3, seed),
    "balanced cut 50×3": lambda seed: balanced_cut(50, 3, seed),
    "fair PCA 30×3": lambda seed: fair_pca(30, 3, seed),
    "beamforming 8 antennas, 12 users": lambda seed: beamforming(8, 12, seed),
}


# -- the methods ----------------------------------------------------------------------------------


def ours(problem):
    p = problem
    none = np.zeros(0)
    c, jac = (lambda X: p.constraint(X, none)[0]), (lambda X: p.constraint(X, none)[1])
    given = {"rtol": 0.0, "gtol": KKT, "maxfun": 20000, "manifold": p.manifold}
    if not p.slack:
        fun = lambda X: p.fun(X, np.zeros(0))[:2]
        bounded = p.constraint(p.X0, np.zeros(0))[0].size == p.X0.size and not p.equal
        pair = NonlinearConstraint(c, 0, 0 if p.equal else np.inf, jac=jac)
        kind = {"bounds": (0, None)} if bounded else {"constraints": pair}
        result = stiefel.minimize(fun, p.X0, **kind, **given)
        return result, result.x.ravel()
    x0 = {"X": p.X0, "s": np.zeros(p.slack)}

    def fun(x):
        f, G, g = p.fun(x["X"], x["s"])
        return f, {"X": G, "s": g}

    def jac(x):
        _, J, j = p.constraint(x["X"], x["s"])
        return {"X": J, "s": j}

    given["manifold"] = {"X": p.manifold, "s": stiefel.Euclidean()}
    c = {"type": "ineq", "fun": lambda x: p.constraint(x["X"], x["s"])[0], "jac": jac}
    result = stiefel.minimize(fun, x0, constraints=c, **given)
    return result, np.concatenate([result.x["X"].ravel(), result.x["s"]])


class Reached(Exception):
    pass


def scipy_run(problem, method):
    """(gradients to KKT or None, gradients in all, values in all, residuals, f) at the end."""
    count, values, last = [0], [0], [problem.start()]

    def fun(x):
        values[0] += 1
        return problem.value(x)[0]

    def jac(x):
        count[0] += 1
        if count[0] > MOST_GRADIENTS:
            raise Reached
        return problem.value(x)[1]

    def seen(x, *_):
        last[0] = np.array(x)
        if max(problem.residuals(x)) <= KKT:
            raise Reached

    E, N = (lambda x: problem.orthonormality(x)[0]), (lambda x: problem.orthonormality(x)[1])
    upper = 0 if problem.equal else np.inf
    if method == "SLSQP":
        constraints: list[Any] = [
            {"type": "eq", "fun": E, "jac": N},
            {"type": "eq" if problem.equal else "ineq", "fun": problem.c, "jac": problem.jac},
        ]
        options = {"maxiter": MOST_GRADIENTS, "ftol": 1e-15}
    else:
        constraints = [
            NonlinearConstraint(E, 0, 0, jac=N),
            NonlinearConstraint(problem.c, 0, upper, jac=problem.jac),
        ]
        options = {"maxiter": MOST_GRADIENTS, "gtol": 1e-9, "xtol": 1e-14}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with suppress(Reached, ValueError):
            minimize(fun, problem.start(), jac=jac, method=method, constraints=constraints,
                     options=options, callback=seen)  # fmt: skip
    at = problem.residuals(last[0])
    reached = count[0] if max(at) <= KKT else None
    return reached, count[0], values[0], at, problem.value(last[0])[0]


def main(arguments):
    chosen = arguments[0] if arguments else "12345"
    starts = int(arguments[1]) if len(arguments) > 1 else 5
    first = int(arguments[2]) if len(arguments) > 2 else 0
    for name in [list(PROBLEMS)[int(c) - 1] for c in chosen]:
        print(name)
        for seed in range(first, first + starts):
            problem = PROBLEMS[name](seed)
            result, x = ours(problem)
            at = problem.residuals(x)
            print(f"  {seed:4} ours {result.nfev:6} {result.status.name:12} {result.fun:12.6f}"
                  f"   KKT {at[0]:.0e} {at[1]:.0e} {at[2]:.0e}", flush=True)  # fmt: skip
            for method in ("SLSQP", "trust-constr"):
                reached, total, values, at, f = scipy_run(problem, method)
                print(f"       {method:>12} {reached or '-':>6} of {total:5} gradients,"
                      f" {values:5} values {f:12.6f}"
                      f"   KKT {at[0]:.0e} {at[1]:.0e} {at[2]:.0e}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
