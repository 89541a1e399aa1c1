"""Many small problems: evaluations and CPU time of one call against a loop, counted in one run.

    python benchmarks/many.py [problems] [seed]

Brockett functions of 12×3 matrices, condition numbers 1 to 1,000, scales 1e-3 to 1e3; then mapped
solves and derivatives in JAX, where it is installed.  Loops are measured on a sample of the
problems and extrapolated.  Times are ratios of CPU time within this process.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import importlib.util
import sys
import time
from dataclasses import replace

import numpy as np

import stiefel
from stiefel.solvers import METHODS


def problems(count: int, n: int = 12, k: int = 3, seed: int = 0, scales: float = 1e3):
    rng = np.random.default_rng(seed)
    sizes = rng.permutation(np.geomspace(1 / scales, scales, count))
    A = np.empty((count, n, n))
    for b, condition in enumerate(np.geomspace(1.1, 1e3, count)):
        Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
        A[b] = sizes[b] * (Q * np.geomspace(1, condition, n)) @ Q.T
    return A, np.arange(k, 0, -1.0), stiefel.Stiefel().random(count, n, k, seed=seed + 1)


def together(A, weights, x0, **options):
    def fun(X, index):
        AX = (A if len(index) == len(A) else A[index]) @ X * weights
        return np.einsum("bij,bij->b", X, AX), 2 * AX

    started = time.process_time()
    found = stiefel.minimize_many(fun, x0, **options)
    return found, time.process_time() - started


def alone(A, weights, x0, **options):
    def fun(M):
        def value_and_gradient(X):
            MX = (M @ X) * weights
            return float(np.vdot(X, MX)), 2 * MX

        return value_and_gradient

    started = time.process_time()
    found = [stiefel.minimize(fun(M), x, **options) for M, x in zip(A, x0)]
    return found, time.process_time() - started


def forty(seed: int) -> None:
    A, weights, x0 = problems(40, seed=seed)
    found, _ = together(A, weights, x0, rtol=1e-8)
    single, _ = alone(A, weights, x0, rtol=1e-8, method=replace(METHODS["auto"], rows=None))
    print(
        f"40 problems: {found.success.sum()} solved, at most {found.nfev.max()} evaluations; the "
        f"hardest one alone {max(r.nfev for r in single)}"
    )

    def summed(scales):
        def fun(X):
            AX = scales[:, None, None] * A @ X * weights
            return float(np.sum(X * AX)), 2 * AX

        return stiefel.minimize(fun, x0, rtol=1e-8)

    raw, scaled = summed(np.ones(40)), summed(1 / np.linalg.eigvalsh(A)[:, 0])
    print(
        f"  as one summed function: raw {raw.nfev} evaluations ({raw.status.name}), scaled by hand "
        f"{scaled.nfev} ({scaled.status.name})"
    )


def hundred(seed: int) -> None:
    A, weights, x0 = problems(100, seed=seed, scales=1e2)
    found, whole = together(A, weights, x0, rtol=1e-8)
    _, loop = alone(A, weights, x0, rtol=1e-8)
    print(f"100 problems: {found.success.sum()} solved, 1/{loop / whole:.1f} of the loop's CPU")


def large(count: int, seed: int) -> None:
    A, weights, x0 = problems(count, seed=seed)
    sample = np.linspace(0, count - 1, min(count, 200)).astype(int)
    single, before = alone(A[sample[::2]], weights, x0[sample[::2]], rtol=1e-6)
    found, whole = together(A, weights, x0, rtol=1e-6)
    more, after = alone(A[sample[1::2]], weights, x0[sample[1::2]], rtol=1e-6)
    loop = (before + after) * count / len(sample)
    print(f"{count:,} problems: {found.message}")
    print(
        f"  CPU {whole:.2f} s, in a loop {loop:.0f} s: 1/{loop / whole:.1f}; evaluations "
        f"{found.nfev.mean():.0f} each, in a loop {np.mean([r.nfev for r in single + more]):.0f}; "
        f"{whole / found.nfev.sum() * 1e6:.1f} µs each"
    )
    print(f"  verified from outside: {int(verified(A, weights, x0, found, 1e-6).sum()):,}")
    tolerances = np.where(np.arange(count) % 2, 1e-14, 1e-6)
    longer, _ = together(A, weights, x0, rtol=tolerances)
    same = [np.array_equal(a, b) for a, b in zip(found.x, longer.x)]
    early = tolerances == 1e-6
    print(f"  {np.sum(np.array(same) & early):,} of {early.sum():,} that end first: the same bits")


def general(count: int, seed: int) -> None:
    """Functions that no model recognises: the same with the fourth powers of all entries."""
    A, weights, x0 = problems(count, seed=seed, scales=1.0)
    sample = np.linspace(0, count - 1, min(count, 100)).astype(int)

    def fun(X, index):
        AX, cubes = (A if len(index) == len(A) else A[index]) @ X * weights, X * X * X
        return np.einsum("bij,bij->b", X, AX + cubes), 2 * AX + 4 * cubes

    def one(M):
        def value_and_gradient(X):
            MX, cubes = (M @ X) * weights, X * X * X
            return float(np.vdot(X, MX + cubes)), 2 * MX + 4 * cubes

        return value_and_gradient

    started = time.process_time()
    single = [stiefel.minimize(one(A[b]), x0[b], rtol=1e-6) for b in sample]
    loop = (time.process_time() - started) * count / len(sample)
    started = time.process_time()
    found = stiefel.minimize_many(fun, x0, rtol=1e-6)
    whole = time.process_time() - started
    print(
        f"{count:,} with fourth powers: {found.message}; 1/{loop / whole:.1f} of the loop's CPU, "
        f"{whole / found.nfev.sum() * 1e6:.1f} µs an evaluation; evaluations "
        f"{found.nfev.mean():.0f} each, in a loop {np.mean([r.nfev for r in single]):.0f}"
    )


def verified(A, weights, x0, found, rtol):
    """Whether the projected gradient at every point is as small as it was asked to be."""

    def norms(X):
        E = 2 * A @ X * weights
        S = X.mT @ E
        G = E - X @ (S + S.mT) / 2
        skew = (S - S.mT) / 2
        return np.sqrt(np.sum(G**2, axis=(1, 2)) + np.sum(skew**2, axis=(1, 2)))

    defect = np.linalg.norm(found.x.mT @ found.x - np.eye(x0.shape[-1]), axis=(1, 2))
    true = (norms(found.x) <= 1.001 * rtol * norms(x0)) & (defect < 1e-13)
    return true & found.success


def mapped(seed: int, count: int = 1000) -> None:
    import jax
    import jax.numpy as jnp

    import stiefel.jax

    jax.config.update("jax_enable_x64", True)
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((count, 30, 30))
    A = A + A.mT
    x0 = stiefel.Stiefel().random(count, 30, 3, seed=seed)
    weights = np.arange(3, 0, -1.0)

    def solve(M, start):
        return stiefel.jax.minimize(
            lambda X: jnp.sum(X * (M @ X) * jnp.asarray(weights)), start, rtol=1e-8
        )

    print("JAX, 30×3 to 1e-8:")
    calls = "callback" in str(jax.make_jaxpr(jax.vmap(solve))(A[:100], x0[:100]))
    one, all_ = jax.jit(solve), jax.jit(jax.vmap(solve))
    _, first = alone(A[:25], weights, x0[:25], rtol=1e-8)
    single = timed(lambda: [one(M, x).fun for M, x in zip(A[:50], x0[:50])], jax) / 50
    whole = timed(lambda: all_(A, x0).fun, jax) / count
    _, second = alone(A[25:50], weights, x0[25:50], rtol=1e-8)
    loop = (first + second) / 50
    solved = int(all_(A, x0).success.sum())
    print(
        f"  {count:,} mapped solves: {solved:,} solved, {whole * 1e3:.2f} ms each, 1/"
        f"{loop / whole:.0f} of a loop over stiefel.minimize ({loop * 1e3:.1f} ms each); "
        f"one compiled solve {single * 1e3:.2f} ms; host callbacks: {'some' if calls else 'none'}"
    )


def timed(run, jax) -> float:
    """CPU time of the second run; the first one compiles."""
    jax.block_until_ready(run())
    started = time.process_time()
    jax.block_until_ready(run())
    return time.process_time() - started


def derivative(library: str, seed: int) -> None:
    """The derivative of a loss of the minimiser by the weights, against central differences."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((8, 8))
    A, second, C = A + A.T, np.diag(np.arange(8.0)), rng.standard_normal((8, 3))
    x0, theta = stiefel.Stiefel().random(8, 3, seed=seed), np.array([3.0, 2.0, 1.0])
    v = rng.standard_normal(3)
    loss = (jax_loss if library == "jax" else torch_loss)(A, second, C, x0)
    h, values = 2e-3, {j: loss(theta + j * 2e-3 * v)[0] for j in (-3, -2, -1, 1, 2, 3)}
    g = [values[j] - values[-j] for j in (1, 2, 3)]
    expected = (45 * g[0] - 9 * g[1] + g[2]) / (60 * h)
    error = abs(np.vdot(loss(theta)[1], v) / expected - 1)
    print(f"{library}: derivative of a solution, relative error {error:.0e}")


def jax_loss(A, second, C, x0):
    import jax
    import jax.numpy as jnp

    import stiefel.jax

    def loss(t):
        fun = lambda X: jnp.sum(X * (A @ X) * t) + jnp.sum(X * (second @ X))
        return jnp.sum(C * stiefel.jax.minimize(fun, jnp.asarray(x0), rtol=1e-13, gtol=1e-12).x)

    compiled = jax.jit(jax.value_and_grad(loss))
    return lambda t: tuple(map(np.asarray, compiled(jnp.asarray(t))))


def torch_loss(A, second, C, x0):
    import torch

    import stiefel.torch

    A, second, C, x0 = map(torch.as_tensor, (A, second, C, x0))

    def loss(t):
        t = torch.as_tensor(t, dtype=torch.float64).requires_grad_(True)
        fun = lambda X: (X * (A @ X) * t).sum() + (X * (second @ X)).sum()
        value = (C * stiefel.torch.minimize(fun, x0, rtol=1e-13, gtol=1e-12).x).sum()
        value.backward()
        return float(value.detach()), t.grad.numpy()

    return loss


def main(count: int = 1000, seed: int = 0) -> None:
    forty(seed)
    hundred(seed)
    large(count, seed)
    general(count, seed)
    if importlib.util.find_spec("jax"):
        mapped(seed)
        derivative("jax", seed)
    if importlib.util.find_spec("torch"):
        derivative("torch", seed)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
