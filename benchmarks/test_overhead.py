"""What iterations of Algorithm 1 and of `auto` cost against their bare BLAS, LAPACK and f calls.

Run on one thread; CPU time is measured, so that a busy machine disturbs little:

    OPENBLAS_NUM_THREADS=1 python -m pytest benchmarks/test_overhead.py -s

Targets: at most 2 (2.2 for `auto`) at n = 1000, k = 10, and 1.2 at n = 100,000, k = 20.  The
ratio is printed and kept in the benchmark's ``extra_info``; nothing asserts a time.
"""

import time
from typing import NamedTuple

import numpy as np
import pytest
from scipy.linalg import blas, lapack

from stiefel import LBFGS, AcceleratedGradient, Stiefel, random_point
from stiefel.function.counted import CountedObjective
from stiefel.function.trees import Tree
from stiefel.objectives import Brockett
from stiefel.solvers.learned_metric import LearnedMetric
from stiefel.solvers.problem import Problem


class Work(NamedTuple):
    """How often an iteration needs each call, on average."""

    gradients: float
    trials: float  # values computed by the line search
    extrapolations: float


def prepared(n, k, warm=12):
    objective = Brockett.table(n, k)
    X0 = random_point(n, k, seed=0)
    counted = CountedObjective(objective, None, Tree(X0), X0)
    problem = Problem(Stiefel().bind(X0), counted)
    solver = AcceleratedGradient()
    state = solver.init(problem, X0)
    for _ in range(warm):
        state = solver.step(problem, state)
    return objective, counted, problem, solver, state


def run(solver, problem, state, steps):
    for _ in range(steps):
        state = solver.step(problem, state)
    return state


def work_of(solver, problem, counted, state, steps):
    nfev, njev, momentum = counted.nfev, counted.njev, 0
    for _ in range(steps):
        state = solver.step(problem, state)
        momentum += state.x is not state.X
    gradients = counted.njev - njev
    trials = counted.nfev - nfev - gradients
    return Work(gradients / steps, trials / steps, momentum / steps)


def bare(objective, n, k, work, repetitions):
    """Seconds of the products, solves and objective calls alone; the least of several rounds."""
    rng = np.random.default_rng(1)
    X, W = random_point(n, k, seed=1), rng.standard_normal((n, k)) / n
    S, P, Q = (rng.standard_normal((k, k)) / k for _ in range(3))
    big = np.asfortranarray(np.eye(2 * k) + 0.1 * rng.standard_normal((2 * k, 2 * k)))
    right = np.asfortranarray(rng.standard_normal((2 * k, k)))
    small = np.asfortranarray(np.eye(k) + 0.1 * rng.standard_normal((k, k)))

    def gram(A, B):
        return A.T @ B

    def update(G, A, C):
        """G − A C in one pass, into a new array."""
        out = G.copy()
        return blas.dgemm(-1.0, C.T, A.T, beta=1.0, c=out.T, overwrite_c=True)

    def combine():
        out = X @ P
        return blas.dgemm(1.0, Q.T, W.T, beta=1.0, c=out.T, overwrite_c=True)

    def gradient():
        objective.value_and_gradient(X)
        gram(X, W), update(W, X, S)  # projection
        gram(X, X), gram(X, W), gram(W, W)  # the ray's Grams

    def trial():
        lapack.dgesv(big, right), combine()
        objective.value(X)

    def extrapolation():
        gram(X, X), gram(X, W), gram(W, W)
        lapack.dgesv(small, np.eye(k)), lapack.dgesv(big, right), combine()

    total = 0.0
    calls = (
        (gradient, work.gradients),
        (trial, work.trials),
        (extrapolation, work.extrapolations),
    )
    for call, count in calls:
        total += count * least(call, repetitions)
    return total


def least(call, repetitions, rounds=7):
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(repetitions):
            call()
        best = min(best, (time.process_time() - start) / repetitions)
    return best


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize(
    ("n", "k", "steps", "target"), [(1000, 10, 60, 2.0), (100_000, 20, 4, 1.2)], ids=str
)
def test_iteration_against_bare_calls(benchmark, n, k, steps, target):
    objective, counted, problem, solver, state = prepared(n, k)
    work = work_of(solver, problem, counted, state, steps)
    needed = bare(objective, n, k, work, repetitions=20 if n < 10_000 else 1)
    benchmark.pedantic(run, (solver, problem, state, steps), rounds=7, warmup_rounds=1)
    # Both are the least of seven rounds, so that a busy machine disturbs both alike.
    spent = benchmark.stats.stats.min / steps
    ratio = spent / needed
    benchmark.extra_info.update(ratio=ratio, target=target, **work._asdict())
    print(
        f"\nn = {n}, k = {k}: {1e6 * spent:.0f} µs an iteration with {work.trials:.2f} trials, "
        f"{1e6 * needed:.0f} µs of bare calls: ratio {ratio:.2f} (target {target})"
    )


# -- auto -----------------------------------------------------------------------------------------


def prepared_auto(n, k, warm=150):  # looks at every fourth step from the hundredth on
    objective = Brockett.table(n, k)
    X0 = random_point(n, k, seed=0)
    counted = CountedObjective(objective, None, Tree(X0), X0)
    problem = Problem(Stiefel().bind(X0), counted)
    solver = LBFGS(memory=5, metric=LearnedMetric())
    return objective, counted, problem, solver, run(solver, problem, solver.init(problem, X0), warm)


def bare_auto(objective, n, k, memory, repetitions):
    """Seconds of one iteration with one trial, written down call by call without any checks."""
    rng = np.random.default_rng(1)
    X, W = random_point(n, k, seed=1), rng.standard_normal((n, k)) / n
    G, S, Y = (rng.standard_normal((*size, n, k)) for size in ((), (memory + 1,), (memory + 1,)))
    P, Q = (rng.standard_normal((k, k)) / k for _ in range(2))
    big = np.asfortranarray(np.eye(2 * k) + 0.1 * rng.standard_normal((2 * k, 2 * k)))
    right = np.asfortranarray(rng.standard_normal((2 * k, 3 * k)))
    weights = rng.standard_normal(memory + 1)
    rows, changes = S.reshape(memory + 1, -1), Y.reshape(memory + 1, -1)

    def add(out, A, C):
        return blas.dgemm(1.0, C.T, A.T, beta=1.0, c=out.T, overwrite_c=True).T

    def add_rows(out, block):
        blas.dgemv(1.0, block.T, weights, beta=1.0, y=out.reshape(-1), overwrite_y=True)
        return out

    def iteration():
        W.T @ G, lapack.dgesv(big, right)
        new = add(X @ P, W, Q)
        E = objective.value_and_gradient(new)[1]
        new.T @ E
        gradient = add(E.copy(), new, P)
        s, y = add(X @ P, W, Q), gradient - G
        y = add(add(y, X, P), W, Q)
        S[0], Y[0] = s, y
        y.T @ y, np.vdot(gradient, s), np.vdot(s, s), np.vdot(y, y)
        rows @ y.reshape(-1), rows @ gradient.reshape(-1)
        q = add_rows(gradient.copy(), changes)
        new.T @ q
        r = add(q @ P, new, Q)
        changes @ r.reshape(-1)
        T = add_rows(r, rows)
        np.vdot(gradient, T), np.vdot(T, T)
        new.T @ new, new.T @ T, T.T @ T

    return least(iteration, repetitions)


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize(
    ("n", "k", "steps", "target"), [(1000, 10, 60, 2.2), (100_000, 20, 4, 1.2)], ids=str
)
def test_auto_against_bare_calls(benchmark, n, k, steps, target):
    objective, counted, problem, solver, state = prepared_auto(n, k)
    before = counted.nfev
    run(solver, problem, state, steps)
    trials = (counted.nfev - before) / steps
    repetitions = 20 if n < 10_000 else 1
    needed = bare_auto(objective, n, k, solver.memory, repetitions)
    benchmark.pedantic(run, (solver, problem, state, steps), rounds=7, warmup_rounds=1)
    needed = min(needed, bare_auto(objective, n, k, solver.memory, repetitions))
    spent = benchmark.stats.stats.min / steps
    benchmark.extra_info.update(ratio=spent / needed, target=target, trials=trials)
    print(
        f"\nauto, n = {n}, k = {k}: {1e6 * spent:.0f} µs an iteration with {trials:.2f} trials, "
        f"{1e6 * needed:.0f} µs of bare calls: ratio {spent / needed:.2f} (target {target})"
    )
