"""The option ``cost``: how many pairs are kept, and whether rows are modelled; counted."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

import stiefel
from stiefel import LBFGS, Oblique, Sphere
from stiefel.solvers import METHODS, memory, plain_pairs
from stiefel.solvers.plain_pairs import worth_keeping

A = np.linspace(1.0, 500.0, 500)


def quadratic(x):
    return 0.5 * float(x @ (A * x)), A * x


def run(cost, seed=1, fun=quadratic):
    start = Sphere().random(500, seed=seed)
    return stiefel.minimize(fun, start, manifold=Sphere(), options={"cost": cost}, rtol=1e-6)


def pairs_used(result):
    return int(result.history["momentum"].max())


def test_cheap_functions_get_few_pairs_and_dear_ones_many():
    assert pairs_used(run("cheap")) == 4
    assert pairs_used(run("usual")) == 10
    assert pairs_used(run("dear")) == 30


def test_more_pairs_save_evaluations_and_fewer_cost_some():
    spent = {c: sum(run(c, seed).nfev for seed in range(6)) for c in ("cheap", "usual", "dear")}
    assert spent["dear"] < 0.99 * spent["usual"]
    assert spent["usual"] < 0.97 * spent["cheap"] < 0.97 * 1.3 * spent["usual"]


def modes(n, k, seed):
    """Smoothed compressed modes: sums of |x| bend differently wherever an entry is zero."""
    L = 100.0 * (2.0 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1))

    def fun(X):
        LX, root = L @ X, np.sqrt(X * X + 1e-4)
        return 0.5 * float(np.vdot(X, LX)) + 0.5 * float(root.sum()), LX + 0.5 * X / root

    return fun, stiefel.random_point(n, k, seed=seed)


def gauges(points, bands, seed):
    """Of the lowest bands along a ring: −Σ |(U_iᴴ M_i U_{i+1})_jj|², as for Wannier functions."""
    hopping = 0.18 * np.random.default_rng(seed).standard_normal((2 * bands, 4 * bands))
    turns = np.exp(2j * np.pi * np.arange(points) / points)[:, None, None]
    H = np.diag(np.repeat([-2.0, 2.0], bands) + 0.3 * np.tile(np.arange(bands), 2))
    H = H + hopping.view(complex) * turns
    V = np.linalg.eigh(H + H.conj().mT)[1][..., :bands]
    M = V.conj().mT @ np.roll(V, -1, axis=0)

    def fun(U):
        B = M @ np.roll(U, -1, axis=0)
        d = np.einsum("nij,nij->nj", U.conj(), B)[:, None]
        G = B * d.conj() + np.roll(M.conj().mT @ U * d, 1, axis=0)
        return -float(np.vdot(d, d).real), -2.0 * G

    return fun, stiefel.Unitary().random(points, bands, bands, seed=seed)


def vortices(size, seed):
    """A condensate in a trap that turns: H = −½Δ + V − ΩL and repulsion, on a square of 9×9."""
    h = 9.0 / size
    x = (np.arange(size) - size / 2) * h
    q = 2.0 * np.pi * np.fft.fftfreq(size, h)
    waves = np.fft.fft(np.eye(size))
    D, K = (waves.conj().T @ (d[:, None] * waves) / size for d in (q, 0.5 * q * q))
    V, x = 0.5 * (x[:, None] ** 2 + 1.1 * x**2), x[:, None]

    def fun(v):
        P = v.reshape(size, size)
        HP = K @ P + P @ K.T + V * P - 0.5 * (x * (P @ D.T) - x.T * (D @ P))
        density = 80.0 * np.abs(P) ** 2 / h**2
        value = np.vdot(P, HP).real + 0.5 * np.vdot(P, density * P).real
        return float(value), 2.0 * (HP + density * P).ravel()

    return fun, Sphere().random(size * size, seed=seed, dtype=complex)


@pytest.mark.parametrize(
    ("room", "problem", "rtol"),
    [
        ("MATRIX", lambda seed: (*modes(96, 3, seed), stiefel.Stiefel()), 1e-5),
        ("STACKS", lambda seed: (*gauges(40, 4, seed), stiefel.Unitary()), 1e-6),
        ("VECTOR", lambda seed: (*vortices(16, seed), Sphere()), 1e-5),
    ],
    ids=["small_matrix", "stack_keeps", "complex_vector"],
)
def test_more_pairs_save_a_fifth_of_the_evaluations(monkeypatch, room, problem, rtol):
    """And half of them for modes and gauges; thirty pairs of up to 500 entries, 8,000 or 1,000."""

    def total():
        runs = []
        for seed in range(6):
            fun, start, manifold = problem(seed)
            runs.append(stiefel.minimize(fun, start, manifold=manifold, rtol=rtol))
        assert all(run.success for run in runs)
        return sum(run.nfev for run in runs), max(map(pairs_used, runs))

    now, most = total()
    monkeypatch.setattr(memory, f"ROOM_OF_{room}", 0)
    before, few = total()
    assert (most, few) == (30, 10) and now < 0.8 * before, (now, before)


@pytest.mark.parametrize(("shape", "pairs"), [((100, 5), 30), ((150, 5), 20), ((300, 5), 10)])
def test_more_pairs_must_have_room(shape, pairs):
    def kept(shape, most=10, more=True, dtype=float):
        return memory.pairs_worth_keeping(stiefel.Stiefel(), np.zeros(shape, dtype), most, more)

    assert kept(shape) == pairs and kept(shape, more=False) == 10
    assert kept((16, *shape)) == pairs and kept((16, *shape), more=False) == 10
    column = (2 * math.prod(shape), 1)
    assert kept(column, dtype=complex) == pairs == kept(column[:1], dtype=complex)
    assert kept(column) == 10 == kept(column[:1])
    assert kept(shape, 40) == 40


def test_a_cheap_function_has_no_model_of_rows():
    objective = stiefel.objectives.Brockett(np.linspace(1.0, 600.0, 2000), [1.0, 2.0, 3.0])
    start = stiefel.random_point(2000, 3, seed=0)  # too many entries for more pairs than are asked
    cheap = stiefel.minimize(objective, start, options={"cost": "cheap"}, rtol=1e-6)
    plain = stiefel.minimize(objective, start, options={"rows": None, "memory": 4}, rtol=1e-6)
    assert cheap.success and cheap.nfev == plain.nfev
    assert np.array_equal(cheap.x, plain.x)


def test_what_is_chosen_by_size_alone_repeats_every_bit():
    for cost in ("usual", "cheap", "dear"):
        assert np.array_equal(run(cost).x, run(cost).x)
    start = Sphere().random(500, seed=1)
    default = stiefel.minimize(quadratic, start, manifold=Sphere(), rtol=1e-6)
    assert np.array_equal(default.x, run("usual").x)


def test_seconds_decide_where_they_are_to_be_measured():
    method = METHODS["auto"]
    assert method.measured(5e-6, 500).cost == "cheap"
    assert method.measured(5e-4, 500).cost == "usual"
    assert method.measured(5e-3, 500).cost == "dear"
    assert method.measured(5e-3, 1_000_000).cost == "cheap"  # a step takes longer

    def slow(x):
        time.sleep(0.01)
        return quadratic(x)

    options = {"cost": "measure"}
    start = Sphere().random(500, seed=1)
    result = stiefel.minimize(slow, start, manifold=Sphere(), options=options, maxiter=14)
    assert pairs_used(result) > 10


def test_a_cost_that_is_none_is_refused():
    with pytest.raises(ValueError, match=r"LBFGS.cost is 'low'; expected one of 'usual'"):
        LBFGS(cost="low")


def correlation(seed, shape=(4, 150), rtol=1e-8, **options):
    """½‖VᵀV − C‖² over unit columns."""
    i = np.arange(shape[1])
    C = 0.5 + 0.5 * np.exp(-0.05 * np.abs(i[:, None] - i))

    def fun(V):
        R = V.T @ V - C
        return 0.5 * float(np.vdot(R, R)), 2.0 * V @ R

    start = Oblique().random(*shape, seed=seed)
    return stiefel.minimize(fun, start, manifold=Oblique(), options=options, rtol=rtol)


def test_a_short_real_vector_keeps_thirty_pairs(monkeypatch):
    """They save a ninth of the evaluations of an eigenvector; of 500 numbers next to none."""

    def total():
        runs = []
        for seed in range(8):
            B = np.random.default_rng(seed).standard_normal((100, 100))
            start = Sphere().random(100, seed=seed)
            fun = lambda x, A=B + B.T: (0.5 * float(x @ A @ x), A @ x)
            runs.append(stiefel.minimize(fun, start, manifold=Sphere(), rtol=1e-8))
        return sum(run.nfev for run in runs), max(map(pairs_used, runs))

    many, most = total()
    monkeypatch.setattr(memory, "ROOM_OF_REAL_VECTOR", 0)
    few, least = total()
    assert (most, least) == (30, 10)
    assert many < 0.95 * few


def test_many_unit_vectors_keep_more_pairs_where_a_metric_is_learned():
    """There is nothing to learn about them: pairs do what the metric cannot."""
    assert pairs_used(correlation(0)) == 30 and pairs_used(correlation(0, metric=None)) == 10
    kept = [worth_keeping(np.zeros((n, 500)), 10, more=True) for n in (5, 20, 30, 40)]
    assert kept == [30, 30, 20, 4]
    spent = [sum(correlation(s, **o).nfev for s in range(64)) for o in ({}, {"metric": None})]
    assert spent[0] < 0.98 * spent[1]


def test_ten_thousand_numbers_of_unit_vectors_are_worth_thirty_pairs(monkeypatch):
    """Twenty pairs take 1 to 4 % more evaluations, ten 8 % more."""
    runs = [correlation(seed, shape=(20, 500), rtol=1e-10) for seed in range(8)]
    assert pairs_used(runs[0]) == 30
    monkeypatch.setattr(plain_pairs, "ROOM_FOR_MORE", 100_000)
    few = [correlation(seed, shape=(20, 500), rtol=1e-10) for seed in range(8)]
    assert sum(run.nfev for run in runs) < 0.95 * sum(run.nfev for run in few)


def density(n, seed, **options):
    """½ tr XᵀAX with a part of the density, which no operator alone describes."""
    a = np.sqrt(np.arange(1.0, n + 1))[:, None]

    def fun(X):
        rho = (X * X).sum(axis=1, keepdims=True)
        return 0.5 * float((a * X * X).sum()) + 25.0 * float((rho**2).sum()), (a + 100 * rho) * X

    start = stiefel.random_point(n, 4, seed=seed)
    return stiefel.minimize(fun, start, options=options, rtol=1e-5)


def test_long_matrices_keep_few_pairs(monkeypatch):
    """Reading ten takes longer than the rest of a step, and saves a few per cent of them."""
    used = [pairs_used(density(n, 0, rows=None)) for n in (8191, 8192)]
    assert used == [10, 4] and pairs_used(density(8192, 0, cost="dear")) == 30
    few = sum(density(8192, seed).nfev for seed in range(4))
    monkeypatch.setattr(memory, "LONG_MATRIX", 10**9)
    assert few < 1.1 * sum(density(8192, seed, rows=None).nfev for seed in range(4))
