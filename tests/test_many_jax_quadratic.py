"""Functions tr(XᵀAXM) inside compiled code: recognised from a few gradients, and no others."""

import math

import numpy as np
import pytest

import stiefel

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

import stiefel.jax  # noqa: E402
from stiefel.batched import jax_quadratic, jax_solve  # noqa: E402
from stiefel.batched.quadratic import completed, evaluations_needed, recognised  # noqa: E402
from stiefel.batched.state import Limits  # noqa: E402


@pytest.fixture(autouse=True)
def double_on_one_processor(monkeypatch):
    if jax.default_backend() != "cpu" or jax.device_count() > 1:
        pytest.skip("functions are recognised on one processor only")
    with jax.enable_x64(True):
        yield


def matrices(count, n, seed=0, condition=100.0):
    Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((count, n, n)))[0]
    return (Q * np.geomspace(-1.0, -condition, n)[::-1]) @ Q.mT + 0.3 * condition * np.eye(n)


def solved(A, M, x0, extra=lambda X: 0.0, rtol=1e-8, **options):
    def one(a, x):
        fun = lambda X: 0.5 * jnp.sum(X * (a @ X @ M)) + extra(X)
        return stiefel.jax.minimize(fun, x, rtol=rtol, **options)

    return jax.jit(jax.vmap(one))(jnp.asarray(A), jnp.asarray(x0))


def lowest(A, M):
    mu, values = np.sort(np.linalg.eigvalsh(M))[::-1], np.linalg.eigvalsh(A)
    n, k = A.shape[-1], len(mu)
    pairs = [values[:, i] if m > 0 else values[:, n - k + i] for i, m in enumerate(mu)]
    return 0.5 * sum(m * v for m, v in zip(mu, pairs))


@pytest.mark.parametrize(
    ("n", "M"),
    [
        (30, np.diag([3.0, 2.0, 1.0])),
        (12, np.array([[2.0, 0.5, 0.1], [0.5, 1.0, 0.2], [0.1, 0.2, 3.0]])),
        (8, np.diag([2.0, -1.0])),
        (6, np.diag([3.0, 2.0, 1.0])),
    ],
)
def test_the_minimum_is_found_in_few_evaluations(n, M):
    """The start, a trial, what completes the start, and the minimum; in more than one pool."""
    A, k = matrices(110, n, seed=n), len(M)
    x0 = stiefel.Stiefel().random(110, n, k, seed=1)
    found = solved(A, M, x0)
    assert found.success.all()
    np.testing.assert_allclose(found.fun, lowest(A, M), rtol=1e-9, atol=1e-9 * np.abs(A).max())
    assert np.median(found.nfev) == evaluations_needed(n, k)
    assert found.nfev.max() <= evaluations_needed(n, k) + 3
    x = np.asarray(found.x)
    assert np.abs(x.mT @ x - np.eye(k)).max() < 1e-14


def test_other_functions_are_minimised_as_ever(monkeypatch):
    A, M = matrices(20, 12), np.diag([3.0, 2.0, 1.0])
    x0 = stiefel.Stiefel().random(20, 12, 3, seed=1)
    extra = lambda X: 1e-3 * jnp.sum(X**4)
    found = solved(A, M, x0, extra)
    monkeypatch.setattr(jax_solve, "recogniser", lambda leaves, limits, x: None)
    searched = solved(A, M, x0, extra)
    assert found.success.all()
    assert np.array_equal(found.nfev, searched.nfev)


def test_where_it_is_looked_for():
    def looked_for(x, maxfun=math.inf):
        limits = Limits(1e-8, 0.0, None, 100, maxfun)
        return jax_quadratic.recogniser(jax_solve.border_of(x, None).leaves, limits, (x,))

    assert looked_for(jnp.zeros((2, 9, 2))) and looked_for(jnp.zeros((2, 9, 2)), 7)
    assert looked_for(jnp.zeros((2, 9, 2)), 6) is None
    for shape, dtype in (((2, 9, 2), "float32"), ((2, 9, 2), complex), ((2, 3, 3), float)):
        assert looked_for(jnp.zeros(shape, dtype)) is None
    assert looked_for(jnp.zeros((2, 41, 2))) is None
    assert looked_for(jnp.zeros((2, 5, 9, 2))) is None


def test_conditioning_costs_no_evaluation():
    """A search alone takes hundreds of evaluations here."""
    Q = np.linalg.qr(np.random.default_rng(3).standard_normal((20, 30, 30)))[0]
    A = (Q * np.geomspace(1, 1e3, 30)) @ Q.mT
    M, x0 = np.diag([3.0, 2.0, 1.0]), stiefel.Stiefel().random(20, 30, 3, seed=3)
    found = solved(A, M, x0)
    assert found.success.all() and found.nfev.max() <= evaluations_needed(30, 3) + 1
    np.testing.assert_allclose(found.fun, lowest(A, M), rtol=1e-9)


def test_all_points_say_whether_f_is_what_it_seems():
    A, x = jnp.asarray(matrices(7, 8)), jnp.asarray(stiefel.Stiefel().random(7, 8, 2, seed=0))
    X = completed(x)
    E = np.array(A[:, None] @ X @ np.diag([2.0, 1.0]))
    E[1] = 0.0
    E[2, 3] = np.nan
    E[3] = np.inf
    E[4] = E[4] @ np.diag([1.0, 0.0])  # M is singular
    E[5, 3] *= 1.0 + 1e-6  # another function far from the start
    _, known, _ = recognised(X, jnp.asarray(E))
    assert known.tolist() == [True, False, False, False, False, False, True]


@pytest.mark.parametrize("M", [np.diag([2.0, 1.0, 0.0]), np.diag([0.0, -1.0, 0.0])])
def test_a_singular_matrix_of_weights_has_no_inverse(M, monkeypatch):
    """No evaluation is lost with it."""
    A, x0 = matrices(20, 12), stiefel.Stiefel().random(20, 12, 3, seed=1)
    found = solved(A, M, x0)
    monkeypatch.setattr(jax_solve, "recogniser", lambda leaves, limits, x: None)
    assert found.success.all() and np.array_equal(found.nfev, solved(A, M, x0).nfev)


@pytest.mark.parametrize("maxfun", [3, 5, 6])
def test_evaluations_are_not_more_than_allowed(maxfun):
    """No point is asked for if no evaluation is left for the minimum."""
    A, M = matrices(20, 12), np.diag([3.0, 2.0, 1.0])
    found = solved(A, M, stiefel.Stiefel().random(20, 12, 3, seed=1), maxfun=maxfun)
    assert found.nfev.max() <= maxfun
    assert bool(found.success.all()) == (maxfun == 6)


def test_few_are_looked_at_where_few_fit(monkeypatch):
    """`TOGETHER`: an eigenproblem costs as much as 30 evaluations; six of 96 functions fit."""
    looks = []

    def counted(X, E):
        looks.append(len(X))
        return recognised(X, E)

    monkeypatch.setattr(jax_quadratic, "recognised", counted)
    A, M = matrices(96, 12), np.diag([3.0, 2.0, 1.0])
    fourth = jnp.asarray(np.arange(96) % 16 != 0, float)
    x0 = stiefel.Stiefel().random(96, 12, 3, seed=1)

    def one(a, t, x):
        fun = lambda X: 0.5 * jnp.sum(X * (a @ X @ M)) + t * jnp.sum(X**4)
        return stiefel.jax.minimize(fun, x, rtol=1e-8)

    found = jax.jit(jax.vmap(one))(A, fourth, x0)
    assert found.success.all() and np.all((found.nfev == 6) == (fourth == 0))
    assert max(looks) == 16


def test_values_that_are_not_finite():
    """A problem without finite values says so, and others do not notice."""
    A, M = matrices(20, 12), np.diag([3.0, 2.0, 1.0])
    A[3] = np.nan
    found = solved(A, M, stiefel.Stiefel().random(20, 12, 3, seed=1))
    assert stiefel.Status(int(found.status[3])) is stiefel.Status.NOT_FINITE
    others = np.arange(20) != 3
    assert found.success[others].all() and not found.success[3]
    np.testing.assert_allclose(found.fun[others], lowest(A[others], M), rtol=1e-9, atol=1e-7)
