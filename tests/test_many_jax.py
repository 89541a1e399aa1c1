"""A whole solve inside `jax.jit` and `jax.vmap`, against the solver outside."""

from dataclasses import replace

import numpy as np
import pytest

import stiefel
from stiefel.solvers import METHODS

jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402

import stiefel.jax  # noqa: E402


@pytest.fixture(autouse=True)
def _double():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def problems(count, n=10, k=2, seed=0):
    A = np.random.default_rng(seed).standard_normal((count, n, n))
    return A + A.mT, np.arange(k, 0, -1.0), stiefel.Stiefel().random(count, n, k, seed=seed + 1)


def solve(A, x0, weights, rtol=1e-8):
    return stiefel.jax.minimize(lambda X: jnp.sum(X * (A @ X) * weights), x0, rtol=rtol)


def test_mapped_solves_are_those_of_the_scalar_solver(monkeypatch):
    monkeypatch.setattr("stiefel.batched.jax_solve.recogniser", lambda leaves, limits, x: None)
    monkeypatch.setattr(
        "stiefel.solvers.memory.ROOM_OF_MATRIX", 0
    )  # as many pairs as a batch keeps
    A, weights, x0 = problems(12)
    mapped = jax.vmap(lambda a, x: solve(a, x, weights))
    text = str(jax.make_jaxpr(mapped)(A, x0))
    assert "callback" not in text and text.count("while[") >= 1
    found = jax.jit(mapped)(A, x0)
    counts = []
    for a, x, f in zip(A, x0, found.fun):
        single = stiefel.minimize(
            lambda X: (float(np.vdot(X, a @ X * weights)), 2 * a @ X * weights),
            x,
            method=replace(METHODS["auto"], rows=None),  # a batch has no row model
            rtol=1e-8,
        )
        counts.append(single.nfev)
        assert float(f) == pytest.approx(single.fun, rel=1e-10)
    assert bool(found.success.all())
    assert stiefel.Status(int(found.status[0])) is stiefel.Status.CONVERGED
    assert abs(int(found.nfev.sum()) / sum(counts) - 1) < 0.1


def test_a_nest_of_maps_is_one_batch():
    A, weights, x0 = problems(6)
    nested = jax.vmap(jax.vmap(lambda a, x: solve(a, x, weights).fun, in_axes=(None, 0)), (0, None))
    found = jax.jit(nested)(A[:3], x0)
    exact = np.sum(np.linalg.eigvalsh(A[:3])[:, :2] * weights, axis=1)
    np.testing.assert_allclose(found, np.broadcast_to(exact[:, None], (3, 6)), rtol=1e-8)


def test_minimize_many_takes_jax_arrays():
    A, weights, x0 = problems(8)
    found = stiefel.minimize_many(
        lambda X: jnp.sum(X * (A @ X) * weights, axis=(1, 2)), jnp.asarray(x0), rtol=1e-8
    )
    assert bool(found.success.all()) and "8 of 8" in found.message
    exact = np.sum(np.linalg.eigvalsh(A)[:, :2] * weights, axis=1)
    np.testing.assert_allclose(found.fun, exact, rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "complex64", "complex128"])
def test_precisions(dtype):
    rng = np.random.default_rng(3)
    H = rng.standard_normal((8, 8)) + (1j * rng.standard_normal((8, 8)) if "c" in dtype else 0)
    H = H + H.conj().T
    x0 = stiefel.Stiefel().random(8, 2, seed=1, dtype=complex if "c" in dtype else float)
    M = jnp.asarray(H.astype(dtype))
    found = jax.jit(lambda x: stiefel.jax.minimize(lambda X: jnp.real(jnp.vdot(X, M @ X)), x))(
        jnp.asarray(x0.astype(dtype))
    )
    assert bool(found.success) and found.x.dtype == dtype
    exact = np.linalg.eigvalsh(H)[:2].sum()
    assert float(found.fun) == pytest.approx(exact, rel=1e-5 if "64" in dtype else 1e-4)


@pytest.mark.slow
def test_trees_spheres_and_rotations():
    rng = np.random.default_rng(4)
    M, v, c = rng.standard_normal((3, 3)), rng.standard_normal(5), rng.standard_normal(2)
    start = {"R": jnp.eye(3), "u": jnp.ones(5) / 5**0.5, "b": jnp.zeros(2)}
    manifold = {
        "R": stiefel.SpecialOrthogonal(),
        "u": stiefel.Sphere(),
        "b": stiefel.Euclidean(),
    }
    found = jax.jit(
        lambda s: stiefel.jax.minimize(
            lambda p: -jnp.sum(M * p["R"]) - v @ p["u"] + jnp.sum((p["b"] - c) ** 2),
            s, manifold=manifold, rtol=1e-9,
        )
    )(start)  # fmt: skip
    assert bool(found.success)
    np.testing.assert_allclose(found.x["u"], v / np.linalg.norm(v), atol=1e-7)
    np.testing.assert_allclose(found.x["b"], c, atol=1e-7)
    np.testing.assert_allclose(jnp.linalg.det(found.x["R"]), 1.0)


def test_a_function_that_is_no_scalar_is_refused():
    with pytest.raises(TypeError, match="expected a real scalar"):
        stiefel.jax.minimize(lambda X: X, jnp.eye(4)[:, :2])


@pytest.mark.slow
def test_few_slots_give_what_all_at_once_give(monkeypatch):
    """Problems that end at once, or not at all, pass through the slots like the others."""
    A, weights, x0 = problems(11)
    A[2], A[7] = 0.0, np.nan
    A[9] *= 1e12

    def solved(slots):
        monkeypatch.setattr("stiefel.batched.jax_pool.WIDTH", slots)
        monkeypatch.setattr("stiefel.batched.jax_pool.REFILL", 2)
        mapped = jax.vmap(lambda a, x: solve(a, x, weights))
        text = str(jax.make_jaxpr(mapped)(A, x0))
        return jax.jit(mapped)(A, x0), text

    (few, inner), (whole, outer) = solved(4), solved(64)
    assert "callback" not in inner and inner != outer
    np.testing.assert_array_equal(few.status, whole.status)
    np.testing.assert_array_equal(few.nfev, whole.nfev)
    np.testing.assert_allclose(few.fun, whole.fun, rtol=1e-12)
    np.testing.assert_allclose(few.x, whole.x, atol=1e-6)
    assert stiefel.Status(int(few.status[7])) is stiefel.Status.NOT_FINITE
    assert int(few.nfev[2]) == 1 and bool(few.success[2])
    assert bool(few.success[jnp.array([0, 1, 3, 4, 5, 6, 8, 9, 10])].all())
