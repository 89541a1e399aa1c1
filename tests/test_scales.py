"""Scaling f by a power of two changes nothing but the numbers it is told in."""

from __future__ import annotations

import numpy as np
import pytest

import stiefel
from stiefel import Status
from stiefel.solvers import METHODS

A = np.linspace(1.0, 4.0, 12)[:, None]
WEIGHTS = np.arange(1.0, 4.0)
SCALE_FREE = ("auto", "lbfgs", "cg", "trust-region")


def scaled(factor):
    def fun(X):
        AX = A.astype(X.dtype) * X * WEIGHTS.astype(X.dtype)
        return factor * float(np.vdot(X, AX)), X.dtype.type(2.0 * factor) * AX

    return fun


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("exponent", [-325, -300, -180, -60, -33, 33, 60, 300, 325])
def test_every_method_converges_at_every_scale(method, exponent):
    X0 = stiefel.random_point(12, 3, seed=1)
    result = stiefel.minimize(scaled(2.0**exponent), X0, method=method, rtol=1e-8)
    assert result.success, result.message
    assert result.fun == pytest.approx(2.0**exponent * np.sum(A[:3, 0] * [3, 2, 1]), rel=1e-12)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("exponent", [-60, -33, -17, 17, 40, 60])
def test_every_method_converges_at_every_scale_of_single_precision(method, exponent):
    X0 = stiefel.random_point(12, 3, seed=1, dtype=np.float32)
    result = stiefel.minimize(scaled(2.0**exponent), X0, method=method, rtol=1e-4)
    assert result.success, result.message


@pytest.mark.parametrize("method", SCALE_FREE)
@pytest.mark.parametrize("exponent", [-325, -300, -100, -19, -1, 3, 21, 150, 325])
def test_powers_of_two_give_the_same_bits(method, exponent):
    X0 = stiefel.random_point(12, 3, seed=2)
    plain = stiefel.minimize(scaled(1.0), X0, method=method, rtol=1e-9)
    other = stiefel.minimize(scaled(2.0**exponent), X0, method=method, rtol=1e-9)
    assert np.array_equal(plain.x, other.x)
    assert other.nfev == plain.nfev
    assert other.fun == 2.0**exponent * plain.fun


POINTS = [
    (stiefel.Sphere(), (1,), complex),
    (stiefel.Grassmann(), (3, 3), float),
    (stiefel.Stiefel(), (1, 1), float),
]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("manifold", "shape", "dtype"), POINTS)
def test_a_function_without_a_direction_converges_at_once(method, manifold, shape, dtype):
    X0 = manifold.random(*shape, seed=1, dtype=dtype)
    fun = lambda X: (float(np.vdot(X, X).real), 2 * X)
    result = stiefel.minimize(fun, X0, manifold=manifold, method=method)
    assert result.status is Status.CONVERGED and result.nit <= 1, result.message


@pytest.mark.parametrize("method", METHODS)
def test_the_span_of_everything_has_no_gradient(method):
    """Grassmann with n = k is a point: relative to rounding errors no tolerance would be met."""
    A = np.random.default_rng(7).standard_normal((2, 2))
    fun = lambda X: (float(np.vdot(X, A @ X)), (A + A.T) @ X)
    for seed in range(4):
        X0 = stiefel.random_point(2, 2, seed=seed)
        r = stiefel.minimize(fun, X0, manifold=stiefel.Grassmann(), method=method, rtol=1e-9)
        assert r.success and r.nfev == 1 and r.gradient_norm == 0.0, r.message


@pytest.mark.parametrize("method", METHODS)
def test_a_second_call_from_an_answer_converges(method):
    fun, X0 = scaled(1.0), stiefel.random_point(12, 3, seed=4)
    first = stiefel.minimize(fun, X0, method="trust-region", rtol=1e-15, maxiter=100)
    again = stiefel.minimize(fun, first.x, method=method)
    assert again.success and again.nfev <= 40, again.message


@pytest.mark.parametrize("seed", range(12))
def test_conjugate_gradients_stay_on_one_dimensional_manifolds(seed):
    rng = np.random.default_rng(seed)
    B, w = rng.standard_normal((2, 2)), rng.standard_normal((2, 2))
    size = 10.0 ** rng.uniform(-3, 3)

    def fun(X):
        value = np.vdot(B, X) + np.sum(np.sin(3 * X) * w) / 3
        return size * float(value), size * (B + np.cos(3 * X) * w)

    manifold = stiefel.SpecialOrthogonal()
    X0 = manifold.random(2, 2, seed=seed)
    result = stiefel.minimize(fun, X0, manifold=manifold, method="cg", rtol=1e-8)
    assert result.success and result.feasibility < 1e-14, result.message


@pytest.mark.filterwarnings("ignore:X0 is square")
def test_a_direction_that_cancels_is_not_followed():
    """In one dimension −W + βd is a rounding error, normal to the manifold, and grew to 1e8."""
    for seed in (15, 16, 24, 47):
        rng = np.random.default_rng(seed)
        A, d, C = rng.standard_normal((2, 2)), rng.uniform(0.5, 3, 2), rng.standard_normal((2, 2))
        S, seen = A + A.T, []
        fun = lambda X: (float(np.vdot(X, S @ X * d / 2 + C)), S @ X * d + C)
        note = lambda s: seen.append(np.abs(s.x.T @ s.x - np.eye(2)).max())
        X0 = stiefel.random_point(2, 2, seed=seed)
        r = stiefel.minimize(fun, X0, method="cg", rtol=1e-7, callback=note)
        assert r.success and max(seen) < 1e-14, (seed, r.message)


@pytest.mark.filterwarnings("ignore:X0 is square")
def test_what_cancels_in_single_precision_is_not_followed_either():
    """There the rounding of W itself is more than a thousandth of it: 6 of 200 left O(2)."""
    good = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        A, C = rng.standard_normal((2, 2, 2)).astype(np.float32)
        d, S, seen = rng.uniform(0.5, 3, 2).astype(np.float32), (A + A.T) / 2, []
        fun = lambda X: (
            float(np.vdot(X, S @ X * d / 2 + C) + np.sum(X**4) / 4),
            S @ X * d + C + X**3,
        )
        note = lambda s: seen.append(np.abs(s.x.T @ s.x - np.eye(2)).max())
        X0 = stiefel.random_point(2, 2, seed=seed, dtype=np.float32)
        r = stiefel.minimize(fun, X0, method="cg", callback=note)
        good += r.success and max(seen) < 1e-6
    assert good >= 198


@pytest.mark.parametrize("method", METHODS)
def test_a_gradient_that_is_rounding_ends_the_run(method):
    """f(e^{it}x) = f(x) on the circle: along it nothing of the gradient is left, exactly."""
    for seed in (5, 7, 12, 30):
        a = np.complex64(-0.65 * (1 + seed / 7))
        fun = lambda X: (float(a.real * np.vdot(X, X).real), 2 * a * X)
        X0 = stiefel.random_point(1, 1, seed=seed, dtype=np.complex64)
        result = stiefel.minimize(fun, X0, method=method, rtol=1e-3, maxiter=300)
        assert result.status in (Status.CONVERGED, Status.ROUNDING_LIMIT), result.message
