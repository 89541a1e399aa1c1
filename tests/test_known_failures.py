"""What fails or hurts elsewhere: tall matrices, complex ones, mixed parameters, lists."""

import tracemalloc

import numpy as np
import pytest

import oracles
import stiefel
from stiefel import Euclidean, Grassmann, Sphere, Stiefel


@pytest.mark.parametrize("manifold", [Stiefel(), Grassmann()], ids=["Stiefel", "Grassmann"])
def test_30000_by_50_in_linear_memory(manifold):
    """Some libraries form n×n matrices: 7 GB here.  Some twenty n×k arrays are 240 MB."""
    n, k = 30_000, 50
    d = np.linspace(1.0, 2.0, n)[:, None]
    X0 = stiefel.random_point(n, k, seed=0)

    def fun(X):
        G = d * X
        return 0.5 * np.vdot(X, G), G

    tracemalloc.start()
    try:
        result = stiefel.minimize(fun, X0, manifold=manifold, method="accelerated", maxiter=3)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.fun < fun(X0)[0]
    assert result.feasibility < 1e-13
    assert peak < 20 * X0.nbytes, f"{peak / X0.nbytes:.1f} arrays of the size of X"


def test_complex_projection_is_orthogonal_over_the_reals():
    """The projection uses the adjoint, not the transpose: brute force over a real basis."""
    rng = np.random.default_rng(0)
    X = oracles.random_point(rng, 6, 2, complex)
    G = oracles.gaussian(rng, 6, 2, dtype=complex)
    np.testing.assert_allclose(
        Stiefel().project(X, G), oracles.project_bruteforce(X, G), atol=1e-12
    )


def test_mixed_parameters_in_nested_structures():
    """Dicts, lists, tuples; orthonormal, unit, spanned and free leaves; shapes and dtypes mixed."""
    rng = np.random.default_rng(1)
    d = np.linspace(1.0, 3.0, 9)
    x0 = {
        "frames": [oracles.random_point(rng, 9, 2), oracles.random_point(rng, 9, 3, complex)],
        "rest": (oracles.random_point(rng, 9, 1)[:, 0], {"free": np.zeros((2, 2))}),
    }
    manifold = {
        "frames": [Stiefel(), Grassmann()],
        "rest": (Sphere(), {"free": Euclidean()}),
    }

    def fun(p):
        X, Z = p["frames"]
        u, free = p["rest"][0], p["rest"][1]["free"]
        G, H, g = d[:, None] * X * [1.0, 2.0], d[:, None] * Z, d * u
        f = np.vdot(X, G) + np.vdot(Z, H).real + np.vdot(u, g) + np.sum((free - 1.0) ** 2)
        return f, {"frames": [2 * G, 2 * H], "rest": (2 * g, {"free": 2 * (free - 1.0)})}

    assert stiefel.check_gradient(fun, x0, manifold=manifold)
    result = stiefel.minimize(fun, x0, manifold=manifold, rtol=1e-8)
    assert result.success
    assert result.fun == pytest.approx(2 * d[0] + d[1] + d[:3].sum() + d[0], abs=1e-8)
    for tree in (result.x, result.grad):
        assert isinstance(tree["frames"], list) and isinstance(tree["rest"], tuple)
        assert tree["frames"][1].dtype == complex and tree["frames"][0].dtype == float
    np.testing.assert_allclose(result.x["rest"][1]["free"], 1.0, atol=1e-6)


def test_a_gradient_given_as_a_list():
    """A list of arrays for a tuple of matrices, and nested lists of numbers for an array."""
    d = np.linspace(1.0, 3.0, 6)[:, None]
    X0, Y0 = (stiefel.random_point(6, 2, seed=s) for s in (0, 1))
    w = np.array([1.0, 2.0])

    def pair(p):
        X, Y = p
        return np.vdot(X, d * X * w) + np.vdot(Y, d * Y * w), [2 * d * X * w, 2 * d * Y * w]

    both = stiefel.minimize(pair, (X0, Y0), rtol=1e-8)
    assert both.success and isinstance(both.x, tuple)
    one = stiefel.minimize(
        lambda X: (np.vdot(X, d * X * w), (2 * d * X * w).tolist()), X0, rtol=1e-8
    )
    assert one.success
    assert both.fun == pytest.approx(2 * one.fun, rel=1e-10)
