"""Proximal methods against ManPG and ManPG-Ada on the grids of their authors.

    python benchmarks/nonsmooth.py [rows] [starts] [first seed]     sparse PCA
    python benchmarks/nonsmooth.py modes [starts] [first seed]      compressed modes

The two peers are ports of the published methods (Chen, Ma, So, Zhang, SIAM J. Optim. 30, 2020),
with their starts (500 Riemannian subgradient steps), tolerances and inner solver: ManPG ends at
‖V/t‖² ≤ 1e-8 nr, ManPG-Ada when its F is that of ManPG to 1e-7.  Counts are exact; times are CPU
ratios within one run.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import stiefel

ROWS = [
    (100, 5, 0.8),
    (200, 5, 0.8),
    (500, 5, 0.8),
    (1000, 5, 0.8),
    (500, 10, 0.6),
    (500, 1, 0.8),
]


def polar(X):
    w, U = np.linalg.eigh(X.T @ X)
    return X @ ((U / np.sqrt(w)) @ U.T)


def sparse_pca(n, r, mu, seed):
    """(A·, L, start) of F = −⟨X, AX⟩ + μ‖X‖₁ with A = BᵀB, B 50×n centred with unit columns."""
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((50, n))
    B -= B.mean(axis=0)
    B /= np.linalg.norm(B, axis=0)
    apply = lambda X: B.T @ (B @ X)
    X = np.linalg.svd(rng.standard_normal((n, r)), full_matrices=False)[0]
    return apply, 2 * np.linalg.norm(B, 2) ** 2, subgradient_start(apply, mu, X, 500)


def modes(n, r, mu, seed, length=50.0):
    """The same for −A = −½Δ on a periodic grid: ManPG's compressed modes."""
    rng = np.random.default_rng(seed)
    c = 0.5 * (n / length) ** 2
    apply = lambda X: c * (np.roll(X, 1, 0) + np.roll(X, -1, 0) - 2 * X)
    X = np.linalg.svd(rng.standard_normal((n, r)), full_matrices=False)[0]
    return apply, 8 * c, subgradient_start(apply, mu, X, n * r)


def subgradient_start(apply, mu, X, steps):
    for i in range(2, steps + 2):
        G = 2 * apply(X) - mu * np.sign(X)
        M = X.T @ G
        X = polar(X + i**-0.75 * (G - 0.5 * X @ (M + M.T)))
    X[np.abs(X) <= 1e-5] = 0
    return polar(X)


class Inner:
    """The peers' semismooth Newton method for Λ, in the coordinates of symmetric matrices."""

    def __init__(self, r):
        rows, cols = np.tril_indices(r)
        self.duplicate = np.zeros((r * r, len(rows)))
        for q, (i, j) in enumerate(zip(rows, cols)):
            self.duplicate[i * r + j, q] = self.duplicate[j * r + i, q] = 1.0
        count = self.duplicate.sum(axis=0)
        self.eliminate = (self.duplicate / count).T
        self.r = r

    def __call__(self, X, base, t, mu, Lam, tolerance):
        r, eye = self.r, np.eye(self.r)
        arg = base + 2 * t * X @ Lam
        Z, R = self._residual(X, arg, t * mu, eye)
        size, steps = np.linalg.norm(R), 0
        while size**2 > tolerance and steps <= 100:
            active = np.abs(arg) > t * mu
            g = np.zeros((r, r, r, r))
            for j in range(r):
                g[:, j, :, j] = X.T @ (active[:, j : j + 1] * X)
            G = 4 * t * self.eliminate @ g.reshape(r * r, r * r) @ self.duplicate
            G += 0.2 * max(min(size, 0.1), 1e-11) * np.eye(len(G))
            d = (self.duplicate @ np.linalg.solve(G, -self.eliminate @ R.ravel())).reshape(r, r)
            s, step = 1.0, 2 * t * X @ d
            while True:
                Z, R_new = self._residual(X, arg + s * step, t * mu, eye)
                new = np.linalg.norm(R_new)
                if new**2 < size**2 * (1 - 1e-3 * s) or s <= 1e-3:
                    break
                s *= 0.5
            Lam, arg, R, size, steps = Lam + s * d, arg + s * step, R_new, new, steps + 1
        return Z, Lam

    def _residual(self, X, arg, threshold, eye):
        Z = np.sign(arg) * np.maximum(np.abs(arg) - threshold, 0)
        M = Z.T @ X
        return Z, M + M.T - 2 * eye


def manpg(apply, L, mu, X, growth=1.0, target=None, most=30000):
    """(F, iterations, evaluations of A·, history of F) of ManPG, or of ManPG-Ada to a target F."""
    n, r = X.shape
    tol, t0 = 1e-8 * n * r, 1.0 / L
    inner, Lam, t = Inner(r), np.zeros((r, r)), t0
    AX = apply(X)
    F, calls, inexact, alpha, values = _total(X, AX, mu), 1, 0, 1.0, []
    for iteration in range(1, most):
        loose = max(1e-13, min(1e-11, 1e-3 * tol * t**2))
        tight = max(1e-15, min(1e-13, 1e-5 * tol * t**2))
        accuracy = tight if alpha < 1e-4 or inexact > 10 else loose
        Z, Lam = inner(X, X + 2 * t * AX, t, mu, Lam, accuracy)
        V, alpha = Z - X, 1.0
        square = float(np.vdot(V, V))
        while True:
            Y = polar(X + alpha * V)
            AY = apply(Y)
            calls, F_new = calls + 1, _total(Y, AY, mu)
            if F_new < F - 0.5 / t * alpha * square:
                break
            alpha *= 0.5
            if alpha < 1e-4:
                inexact += 1
                break
        if target is None and square / t**2 < tol:
            return F, iteration, calls, values
        X, AX, F = Y, AY, F_new
        values.append(F)
        if target is not None and target + 1e-7 > F:
            return F, iteration, calls, values
        t = t * growth if alpha == 1.0 else max(t0, t / growth)
    return F, most, calls, values


def _total(X, AX, mu):
    return -float(np.vdot(X, AX)) + mu * float(np.abs(X).sum())


def ours(apply, mu, X0, target, **given):
    """The result, and the evaluations that it took to F ≤ target."""
    fun = lambda X: (-float(np.vdot(X, AX := apply(X))), -2 * AX)
    result = stiefel.minimize(
        fun, X0, nonsmooth=stiefel.L1(mu), rtol=0, gtol=1e-8, maxfun=3000, **given
    )
    below = result.history["value"] <= target + 1e-7
    return result, int(result.history["nfev"][np.argmax(below)]) if below.any() else None


def clocked(function, *arguments, **given):
    start = time.process_time()
    found = function(*arguments, **given)
    return found, time.process_time() - start


def compare(problem, case, seeds):
    """One row of the table: medians over the starts."""
    rows = []
    for seed in seeds:
        apply, L, X0 = problem(*case, seed)
        mu = case[2]
        (F, plain, _, _), _ = clocked(manpg, apply, L, mu, X0)
        (F_ada, ada, calls, _), seconds = clocked(manpg, apply, L, mu, X0, 1.01, F)
        (quasi, reached), quasi_seconds = clocked(ours, apply, mu, X0, F_ada)
        hessp = lambda X, V, apply=apply: -2 * apply(V)
        (newton, newton_reached), newton_seconds = clocked(ours, apply, mu, X0, F_ada, hessp=hessp)
        rows.append(
            {
                "ManPG": plain,
                "Ada": ada,
                "Ada calls": calls,
                "to Ada's F": reached or np.inf,
                "to 1e-8": quasi.nfev,
                "N to F": newton_reached or np.inf,
                "N evals": newton.nfev,
                "N products": newton.nhev,
                "no worse": quasi.fun <= F_ada + 1e-6,
                "N no worse": newton.fun <= F_ada + 1e-6,
                "converged": quasi.success and newton.success,
                "CPU": quasi_seconds / seconds,
                "N CPU": newton_seconds / seconds,
            }
        )
    return rows


def main(arguments):
    if arguments[:1] == ["modes"]:
        count, first = (
            (int(a) for a in (*arguments[1:], "5", "0")[:2]) if len(arguments) > 2 else (5, 0)
        )
        cases, problem = [(n, 4, mu) for n in (64, 128) for mu in (0.3, 0.5)], modes
    else:
        chosen = arguments[0] if arguments else "123456"
        count = int(arguments[1]) if len(arguments) > 1 else 10
        first = int(arguments[2]) if len(arguments) > 2 else 0
        cases, problem = [ROWS[int(c) - 1] for c in chosen], sparse_pca
    for case in cases:
        rows = compare(problem, case, range(first, first + count))
        print(case)
        for name in rows[0]:
            values = np.array([row[name] for row in rows], float)
            if name in ("no worse", "N no worse", "converged"):
                print(f"  {name:>12}: {int(values.sum())} of {len(values)}")
            else:
                print(f"  {name:>12}: median {np.median(values):.4g}, most {np.max(values):.4g}")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
