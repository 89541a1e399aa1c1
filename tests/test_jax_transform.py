"""`stiefel.jax.accelerated`: Algorithm 2 as a compiled pair of functions."""

from itertools import islice

import numpy as np
import pytest

import oracles

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")
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


# -- derivatives through an update ---------------------------------------------------------------


def after(rate, X0, strength=1.0, steps=3):
    """The loss after a few fixed steps on ``strength * loss``, as a function of the step."""
    method = stiefel.jax.accelerated(0.1)
    state = method.init(X0)._replace(gamma=jnp.asarray(rate, jnp.finfo(X0.dtype).dtype))
    X = X0
    for _ in range(steps):
        updates, state = method.update(jax.grad(lambda X: strength * loss(X))(X), state, X)
        X = optax.apply_updates(X, updates)
    return loss(X)


@pytest.mark.parametrize(("k", "dtype"), [(1, float), (K, float), (K, complex)])
def test_the_derivative_of_a_trajectory_is_its_difference_quotient(k, dtype):
    X0 = jnp.asarray(oracles.random_point(np.random.default_rng(1), N, K, dtype))[:, :k]
    run = jax.jit(lambda rate: after(rate, X0))
    h = 1e-6
    quotient = (run(0.02 + h) - run(0.02 - h)) / (2 * h)
    np.testing.assert_allclose(jax.grad(run)(0.02), quotient, rtol=1e-6)


@pytest.mark.parametrize("strength", [0.0, 1e-30])
def test_a_small_or_missing_gradient_has_a_derivative(strength):
    """In float32 the derivative of ‖G‖^-1 overflows below 1e-13: the scale is a constant."""
    X0 = jnp.asarray(oracles.random_point(np.random.default_rng(1), N, K), jnp.float32)
    slope = jax.jit(jax.grad(lambda c: after(0.02, X0, c, steps=1)))
    assert float(slope(strength)) == pytest.approx(float(slope(1e-5)), rel=1e-2)  # linear there


def test_the_lift_has_a_derivative_and_still_no_curve_to_the_opposite_point():
    rng = np.random.default_rng(2)
    X, Y, H = (jnp.asarray(oracles.random_point(rng, N, K)) for _ in range(3))
    lift = jax.jit(lambda Z: stiefel.Stiefel().lift(X, Z))
    derivative = jnp.sum(jax.grad(lambda Z: jnp.sum(lift(Z) * X[::-1]))(Y) * H)
    h = 1e-6
    change = (lift(Y + h * H) - lift(Y - h * H)) / (2 * h)
    np.testing.assert_allclose(derivative, jnp.sum(change * X[::-1]), rtol=1e-6)
    pair = lift(jnp.stack([Y, -X]))
    np.testing.assert_allclose(pair[0], lift(Y), atol=1e-14)
    assert bool(jnp.all(jnp.isnan(pair[1])))


def test_a_derivative_passes_a_line_search():
    X0 = jnp.asarray(oracles.random_point(np.random.default_rng(3), N, K))
    method = stiefel.jax.accelerated(0.1)

    def one_step(X):
        grads = jax.grad(loss)(X)
        return method.update(grads, method.init(X0), X, value_fn=loss)

    gamma = jax.jit(one_step)(X0)[1].gamma
    fixed = lambda X: method.update(
        jax.grad(loss)(X), method.init(X0)._replace(gamma=gamma), X, value=0.0
    )
    given, expected = (
        jax.jit(jax.grad(lambda X, step=step: jnp.sum(step(X)[0] ** 2)))(X0)
        for step in (one_step, fixed)
    )
    assert bool(jnp.all(jnp.isfinite(given)))
    np.testing.assert_allclose(given, expected, atol=1e-12)


# -- as a transformation of optax ----------------------------------------------------------------


def tree_of_two():
    rng = np.random.default_rng(0)
    return {"X": jnp.asarray(oracles.random_point(rng, N, K)), "c": jnp.zeros(2)}


def total(p):
    return loss(p["X"]) + jnp.sum((p["c"] - 2.0) ** 2)


def trained(method, steps=300):
    def body(_, carry):
        params, state = carry
        updates, state = method.update(jax.grad(total)(params), state, params)
        return optax.apply_updates(params, updates), state

    params = tree_of_two()
    state = jax.jit(method.init)(params)  # traced
    return jax.jit(lambda p, s: jax.lax.fori_loop(0, steps, body, (p, s)))(params, state)[0]


def test_manifolds_by_path_and_inside_other_transformations():
    by_path = stiefel.jax.accelerated(
        0.01, manifold=lambda path, x: stiefel.Stiefel() if path == "X" else None
    )
    by_tree = stiefel.jax.accelerated(0.01, manifold={"X": stiefel.Stiefel(), "c": None})
    split = optax.partition(
        {"on": stiefel.jax.accelerated(0.01), "off": optax.sgd(0.01)}, {"X": "on", "c": "off"}
    )
    chained = optax.chain(optax.clip_by_global_norm(1e3), by_path)
    results = [trained(m) for m in (by_path, by_tree, chained)]
    for result in results[1:]:
        np.testing.assert_allclose(result["X"], results[0]["X"], atol=1e-12)
    for result in (results[0], trained(split)):
        assert float(stiefel.Stiefel().defect(result["X"])) < 1e-13
        assert float(total(result)) == pytest.approx(MINIMUM, abs=1e-3)


def test_a_traced_init_factorises_the_constraint():
    B = np.diag(np.linspace(1.0, 2.0, N))
    manifold = stiefel.Stiefel(B=B)
    X = jnp.asarray(manifold.random(N, K, seed=0))
    method = stiefel.jax.accelerated(0.01, manifold=manifold)

    @jax.jit
    def run(X):
        updates, _ = method.update(jax.grad(loss)(X), method.init(X), X)
        return X + updates

    assert float(manifold.defect(run(X))) < 1e-13
    assert float(loss(run(X))) < float(loss(X))


def test_misuse_in_a_tree_is_named():
    params = tree_of_two()
    with pytest.raises(ValueError, match="'Y', and no parameter has this path; expected some of X"):
        stiefel.jax.accelerated(manifold={"Y": stiefel.Stiefel()}).init(params)
    with pytest.raises(ValueError, match="the parameter 'X'"):
        stiefel.jax.accelerated(manifold={"X": stiefel.Stiefel()}).init(
            params | {"X": jnp.ones((4, 2))}
        )
    with pytest.raises(ValueError, match="needs the parameters"):
        stiefel.jax.accelerated().update(params["X"], None)
    with pytest.raises(TypeError, match="bfloat16"):
        stiefel.jax.accelerated().init(jnp.eye(4, 2, dtype=jnp.bfloat16))
