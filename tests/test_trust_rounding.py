"""Decisions know the noise of f: the gradient falls by 10⁻¹², or the run says what stopped it."""

import math
import re
import zlib

import numpy as np
import pytest

import stiefel
from stiefel.objectives import Brockett
from stiefel.solvers import METHODS
from stiefel.solvers.noise import Model, last_digit

N, K = 24, 3
A = np.linspace(1.0, 4.0, N)[:, None]
WEIGHTS = np.arange(1.0, K + 1)
MINIMUM = float(np.sort(A[:, 0])[:K] @ WEIGHTS[::-1])
TOLERANCE = 1e-12


def smooth(X):
    AX = A * X * WEIGHTS
    return float(np.vdot(X, AX)), 2 * AX


def noise(X):
    """In [−1, 1], from every bit of X: the same point has the same noise."""
    return zlib.crc32(np.ascontiguousarray(X).tobytes()) / 2**31 - 1


def shifted(c):
    return lambda X: (smooth(X)[0] + c, smooth(X)[1])


def scaled(c):
    return lambda X: (c * smooth(X)[0], c * smooth(X)[1])


def noisy(c):
    return lambda X: (smooth(X)[0] + c * noise(X), smooth(X)[1])


def rounded(digits):
    return lambda X: (round(smooth(X)[0], digits), smooth(X)[1])


def flat(X):
    """A degenerate minimum: the Hessian vanishes there."""
    f, G = smooth(X)
    return (f - MINIMUM) ** 2, 2 * (f - MINIMUM) * G


def linear(X):
    C = np.cos(np.arange(N * K)).reshape(N, K)
    return float(np.vdot(C, X)), C


CONVERGE = {
    "plain": smooth,
    "+1e8": shifted(1e8),
    "-1e8": shifted(-1e8),
    "+1e12": shifted(1e12),
    "minimum at zero": shifted(-MINIMUM),
    "·1e-200": scaled(1e-200),
    "·1e200": scaled(1e200),
    "·1e-8": scaled(1e-8),
    "·1e8": scaled(1e8),
    "noise 1e-10": noisy(1e-10),
    "flat": flat,
    "linear": linear,
}
MAY_STOP = {"noise 1e-6": noisy(1e-6), "six digits": rounded(6), "three digits": rounded(3)}


def solve(fun, method, **options):
    x0 = stiefel.random_point(N, K, seed=3)
    result = stiefel.minimize(fun, x0, method=method, rtol=TOLERANCE, maxiter=5000, **options)
    f, G = fun(result.x)
    # What is reported is true, as far as another order of summation can tell.
    assert result.fun == pytest.approx(f, rel=1e-12, abs=1e-12)
    size = np.abs(G).max()
    norm = stiefel.Stiefel().norm(result.x, stiefel.Stiefel().project(result.x, G / size))
    assert result.gradient_norm / size == pytest.approx(norm, rel=1e-6, abs=1e-15)
    return result


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", CONVERGE)
def test_gradients_fall_to_twelve_digits(name, method):
    result = solve(CONVERGE[name], method)
    assert result.status is stiefel.Status.CONVERGED, result.message
    assert result.gradient_norm <= TOLERANCE * result.history["gradient_norm"][0]


def test_the_last_digit_of_a_value():
    for f, unit in (
        (1.0, 1.0),
        (-6.0, 2.0),
        (0.1, math.ulp(0.1) * 2),
        (3 * 2.0**-1074, 2.0**-1074),
    ):
        assert last_digit(f) == unit
    assert last_digit(0.0) == math.inf
    rng = np.random.default_rng(0)
    for f, q in zip(rng.standard_normal(100), rng.integers(-60, 60, 100), strict=True):
        assert math.fmod(f, last_digit(f)) == 0
        assert last_digit(math.ldexp(float(np.round(f * 1e6) * 2 + 1), int(q))) == 2.0**q


def test_the_noise_of_a_value_in_which_large_terms_cancelled():
    model = Model(magnitude=8.0)
    eps, rng = 2.0**-52, np.random.default_rng(0)
    for _ in range(100):
        f = (8.0 + 1e-12 * rng.standard_normal()) - 8.0  # a few ulps of 8
        assert 4 * eps <= model.level(f) <= 80 * eps
        exact = 1e-12 * rng.standard_normal()
        assert model.level(exact) == 10 * eps * abs(exact)
    assert model.level(0.0) == 80 * eps
    assert model.level(8.0) == 80 * eps
    assert Model(magnitude=8.0, fnoise=1e-3).level(0.0) == 1e-3


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", MAY_STOP)
def test_larger_noise_ends_in_convergence_or_says_what_was_reached(name, method):
    result = solve(MAY_STOP[name], method)
    first = result.history["gradient_norm"][0]
    assert result.gradient_norm < 0.02 * first
    if not result.success:
        assert result.status.name in ("ROUNDING_LIMIT", "STEP_NOT_FOUND")
        reached = float(re.search(r"reached ([\d.e+-]+)", result.message).group(1))
        assert reached == pytest.approx(result.gradient_norm, rel=0.01)


@pytest.mark.parametrize("method", METHODS)
def test_noise_that_is_given_is_used(method):
    result = solve(noisy(1e-3), method, fnoise=1e-3)
    assert result.gradient_norm < 0.05 * result.history["gradient_norm"][0]
    assert result.status.name in ("CONVERGED", "ROUNDING_LIMIT")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_single_precision_ends_at_its_own_limit(method, dtype):
    a, w = A.astype(dtype), WEIGHTS.astype(dtype)
    fun = lambda X: (float(np.vdot(X, a * X * w).real), 2 * (a * X * w))
    x0 = stiefel.Stiefel().random(N, K, seed=3, dtype=dtype)
    result = stiefel.minimize(fun, x0, method=method, rtol=TOLERANCE, maxiter=5000)
    assert result.status.name in ("CONVERGED", "ROUNDING_LIMIT")
    assert result.gradient_norm < 3e-6 * result.history["gradient_norm"][0]
    default = stiefel.minimize(fun, x0, method=method)
    assert default.success


def test_products_by_differences_in_single_precision_reach_its_limit():
    """Phases of columns are free: noise makes their curvature negative, which is not followed."""
    a, w = A.astype(np.complex64), WEIGHTS.astype(np.complex64)
    fun = lambda X: (float(np.vdot(X, a * X * w).real), 2 * (a * X * w))
    for seed in range(12):
        x0 = stiefel.random_point(N, K, seed=seed, dtype=np.complex64)
        result = stiefel.minimize(fun, x0, method="trust-region", rtol=TOLERANCE, maxiter=500)
        assert result.status.name in ("CONVERGED", "ROUNDING_LIMIT"), seed
        assert result.gradient_norm < 6e-6 * result.history["gradient_norm"][0], seed


@pytest.mark.parametrize("method", METHODS)
def test_a_wall_of_infinite_values_is_avoided(method):
    fun = lambda X: (smooth(X)[0] if X[5, 0] > -0.2 else math.inf, smooth(X)[1])
    x0 = stiefel.random_point(N, K, seed=3)
    result = stiefel.minimize(fun, x0 * np.sign(x0[5, 0]), method=method, rtol=1e-9, maxiter=5000)
    assert result.success


@pytest.mark.parametrize("method", METHODS)
def test_a_jump_is_crossed_or_named(method):
    fun = lambda X: (smooth(X)[0] + np.floor(4 * X[0, 0]), smooth(X)[1])
    result = stiefel.minimize(
        fun, stiefel.random_point(N, K, seed=3), method=method, rtol=1e-9, maxiter=2000
    )
    assert result.status.name in ("CONVERGED", "STEP_NOT_FOUND", "ROUNDING_LIMIT")
    assert result.fun <= fun(stiefel.random_point(N, K, seed=3))[0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", [51, 60])
def test_a_small_minimum_of_large_terms_is_no_fault_of_the_gradient(seed, method):
    """f is small because large terms cancel: its rounding is theirs, and is named if it stops."""
    x0 = stiefel.random_point(N, K, seed=seed)
    base = MINIMUM - 1e-4 * abs(smooth(x0)[0] - MINIMUM)
    fun = lambda X: (smooth(X)[0] - base, smooth(X)[1])
    result = stiefel.minimize(fun, x0, method=method, rtol=TOLERANCE, maxiter=5000)
    assert result.status.name in ("CONVERGED", "ROUNDING_LIMIT"), result.message
    assert result.gradient_norm < 1e-8 * result.history["gradient_norm"][0]


@pytest.mark.slow
@pytest.mark.parametrize(("n", "start"), [(1585, 5), (1995, 10)])
def test_momentum_that_is_slow_is_not_taken_for_an_unstable_step(n, start):
    """Beneath the noise of f gradients stay up for √κ steps; the step must not shrink for ever."""
    objective = Brockett.linear(n, 10, half=True)
    x0 = stiefel.random_point(n, 10, seed=np.random.default_rng([0, n, 10, start]))
    method = stiefel.AcceleratedGradient(growth_threshold=0.7)
    result = stiefel.minimize(objective, x0, method=method, rtol=1e-10, maxiter=20_000)
    assert result.success, result.message


@pytest.mark.parametrize(
    ("n", "start", "restart"),
    [(251, 3, "function"), (126, 10, "gradient"), (126, 26, "gradient"), (158, 10, "gradient"),
     (158, 38, "gradient"), (1000, 20, "function")],
)  # fmt: skip
def test_a_step_beyond_the_stable_one_is_made_shorter(n, start, restart):
    """With γL just beyond 4/3 these runs keep gradients up, where f shows nothing (STABLE)."""
    objective = Brockett.linear(n, 1, half=True)
    x0 = stiefel.random_point(n, 1, seed=np.random.default_rng([0, n, 1, start]))
    method = stiefel.AcceleratedGradient(restart, growth_threshold=0.7)
    result = stiefel.minimize(objective, x0, method=method, rtol=1e-10, maxiter=20_000)
    assert result.success, result.message
    assert result.nit < 25 * np.sqrt(n)
