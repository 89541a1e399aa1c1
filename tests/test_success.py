"""By default success means digits of f, not only a gradient smaller than that of the start."""

from __future__ import annotations

import numpy as np
import pytest

import stiefel
from stiefel import Status
from stiefel.solvers import METHODS

N, K = 40, 3
LAPLACE = (N + 1) ** 2 * (2.0 * np.eye(N) - np.eye(N, k=1) - np.eye(N, k=-1))
Q = stiefel.random_point(N, N, seed=7)
WIDE = (Q * np.geomspace(1e-4, 1e4, N)) @ Q.T
PENCIL = (Q * np.geomspace(1.0, 1e5, N)) @ Q.T


def trace(A, scale=1.0, constant=0.0):
    def fun(X):
        AX = A @ X
        return scale * (0.5 * float(np.vdot(X, AX)) + constant), scale * AX

    return fun


def minimum(A):
    return 0.5 * np.linalg.eigvalsh(A)[:K].sum()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("A", [LAPLACE, WIDE, PENCIL], ids=["laplace", "wide", "pencil"])
def test_success_means_six_digits(A, method):
    assert_six_digits(A, method, seed=0)


def assert_six_digits(A, method, seed):
    X0 = stiefel.random_point(N, K, seed=seed)
    result = stiefel.minimize(trace(A), X0, method=method, maxiter=1500)
    if result.success:
        assert result.fun - minimum(A) <= 1e-6 * abs(minimum(A)), result.message
        assert "expected to fall" in result.message
    else:
        assert result.status in (Status.MAX_ITERATIONS, Status.ROUNDING_LIMIT)


@pytest.mark.parametrize("method", ["auto", "lbfgs"])
def test_six_digits_from_many_starts(method):
    for seed in range(1, 7):
        assert_six_digits(PENCIL, method, seed)
        assert_six_digits(WIDE, method, seed)


@pytest.mark.parametrize("method", ["auto", "cg", "trust-region", "accelerated"])
def test_the_laplacian_is_solved(method):
    X0 = stiefel.random_point(N, K, seed=1)
    assert stiefel.minimize(trace(LAPLACE), X0, method=method).success


@pytest.mark.parametrize(("scale", "constant"), [(1e-9, 0.0), (1e9, 0.0), (1.0, 1e4), (1.0, -30.0)])
def test_neither_scale_nor_constant_matters(scale, constant):
    X0 = stiefel.random_point(N, K, seed=2)
    plain = stiefel.minimize(trace(LAPLACE), X0)
    other = stiefel.minimize(trace(LAPLACE, scale, constant), X0)
    assert plain.success and other.success
    assert other.nfev == pytest.approx(plain.nfev, rel=0.25)


def test_a_minimum_at_zero_is_reached():
    B = stiefel.random_point(N, K, seed=3)
    fun = lambda X: (0.5 * float(np.sum((X - B) ** 2)), X - B)
    result = stiefel.minimize(fun, stiefel.random_point(N, K, seed=4))
    assert result.success and result.nfev < 60 and result.fun < 1e-11


def test_tolerances_that_are_given_mean_what_they_say():
    X0 = stiefel.random_point(N, K, seed=5)
    result = stiefel.minimize(trace(WIDE), X0, rtol=1e-4)
    norms = result.history["gradient_norm"]
    assert result.success and np.all(norms[:-1] > 1e-4 * norms[0]) and norms[-1] <= 1e-4 * norms[0]


def test_the_model_is_honest_near_the_end():
    """½⟨g, Hg⟩ is what f still loses, to an order of magnitude, on a well-conditioned problem."""
    A = np.diag(np.linspace(1.0, 3.0, N))
    result = stiefel.minimize(trace(A), stiefel.random_point(N, K, seed=6), rtol=1e-10)
    history = result.history
    expected, left = history["expected_decrease"], history["value"] - minimum(A)
    seen = (left > 1e-11) & np.isfinite(expected)
    ratios = expected[seen][5:] / left[seen][5:]
    assert 0.05 < np.median(ratios) < 5.0


def test_small_decreases_are_relative_to_what_was_gained():
    X0 = stiefel.random_point(N, K, seed=8)
    runs = [stiefel.minimize(trace(LAPLACE, s), X0, rtol=0, ftol=1e-9) for s in (1.0, 2.0**-40)]
    assert runs[0].success and runs[0].nfev == runs[1].nfev
