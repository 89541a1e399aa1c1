"""`stiefel.jax.accelerated`: Algorithm 2 as a compiled pair of functions."""

from itertools import islice

import numpy as np
import pytest

import oracles

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402

import stiefel  # noqa: E402
import stiefel.jax  # noqa: E402

N, K = 12, 3
SPECTRUM = np.arange(1.0, N + 1)
WEIGHTS = np.arange(1.0, K + 1)
MINIMUM = float(np.sum(WEIGHTS[::-1] * SPECTRUM[:K]))


def loss(X):
    return jnp.sum(jnp.abs(X) ** 2 * SPECTRUM[:, None] * WEIGHTS)


@pytest.mark.parametrize("dtype", [float, complex])
def test_with_a_line_search_the_iterates_are_those_of_algorithm_2(dtype):
    rng = np.random.default_rng(0)
    X0 = oracles.random_point(rng, N, K, dtype)
    value, gradient = oracles.brockett(np.diag(SPECTRUM).astype(dtype), WEIGHTS, half=False)
    expected = [s.Y for s in islice(oracles.gradient_restart(value, gradient, X0, c_L=0.9), 25)]

    method = stiefel.jax.accelerated(0.1)
    params = jnp.asarray(X0)
    state = method.init(params)

    @jax.jit
    def step(params, state):
        updates, state = method.update(jax.grad(loss)(params), state, params, value_fn=loss)
        return params + updates, state

    for Y in expected:
        np.testing.assert_allclose(params, Y, atol=1e-9)
        params, state = step(params, state)


def test_a_tree_with_a_fixed_step():
    """Trees with a manifold per leaf, as an optax user has them; one compiled loop."""
    manifold = {"X": stiefel.Stiefel(), "c": stiefel.Euclidean(), "u": stiefel.Sphere()}
    method = stiefel.jax.accelerated(0.01, manifold=manifold)

    def total(p):
        return loss(p["X"]) + jnp.sum((p["c"] - 2.0) ** 2) + jnp.sum(p["u"] ** 2 * SPECTRUM)

    rng = np.random.default_rng(0)
    params = {
        "X": jnp.asarray(oracles.random_point(rng, N, K)),
        "c": jnp.zeros(2),
        "u": jnp.asarray(oracles.random_point(rng, N, 1)[:, 0]),
    }

    def body(_, carry):
        params, state = carry
        updates, state = method.update(jax.grad(total)(params), state, params)
        return jax.tree_util.tree_map(jnp.add, params, updates), state

    run = jax.jit(lambda p, s: jax.lax.fori_loop(0, 600, body, (p, s)))
    params, state = run(params, method.init(params))
    assert float(total(params)) == pytest.approx(MINIMUM + 1.0, abs=1e-6)
    assert float(stiefel.Stiefel().defect(params["X"])) < 1e-13
    assert int(state.k) < 600  # it has restarted


def test_misuse_is_named():
    with pytest.raises(ValueError, match="initial_step"):
        stiefel.jax.accelerated(-1.0)
    with pytest.raises(ValueError, match="not orthonormal"):
        stiefel.jax.accelerated().init(jnp.ones((4, 2)))
