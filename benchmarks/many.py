"""Many small problems: CPU time of one call against a loop, counted in one run.

    python benchmarks/many.py [problems]

Brockett functions of 12×3 matrices, condition numbers 1 to 1,000, scales 1e-3 to 1e3.  The loop is
measured on a sample of the problems and extrapolated.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import stiefel


def problems(count: int, n: int = 12, k: int = 3, seed: int = 0):
    rng = np.random.default_rng(seed)
    sizes = rng.permutation(np.geomspace(1e-3, 1e3, count))
    A = np.empty((count, n, n))
    for b, condition in enumerate(np.geomspace(1.1, 1e3, count)):
        Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
        A[b] = sizes[b] * (Q * np.geomspace(1, condition, n)) @ Q.T
    return A, np.arange(k, 0, -1.0), stiefel.Stiefel().random(count, n, k, seed=seed + 1)


def main(count: int) -> None:
    A, weights, x0 = problems(count)

    def fun(X, index):
        AX = (A if len(index) == count else A[index]) @ X * weights
        return np.einsum("bij,bij->b", X, AX), 2 * AX

    started = time.process_time()
    found = stiefel.minimize_many(fun, x0, rtol=1e-6)
    together = time.process_time() - started
    sample = np.linspace(0, count - 1, min(count, 200)).astype(int)
    started, counts = time.process_time(), []
    for b in sample:
        M = A[b]
        counts.append(
            stiefel.minimize(
                lambda X, M=M: (float(np.vdot(X, M @ X * weights)), 2 * (M @ X) * weights),
                x0[b],
                rtol=1e-6,
            ).nfev
        )
    loop = (time.process_time() - started) * count / len(sample)
    print(found)
    print(f"evaluations: {found.nfev[sample].sum()} together, {sum(counts)} in a loop")
    print(f"CPU: {together:.2f} s together, {loop:.2f} s in a loop, ratio {loop / together:.1f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
