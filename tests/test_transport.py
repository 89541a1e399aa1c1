"""What moves along a ray, and second derivatives: laws on every manifold and array library."""

import numpy as np
import pytest

import oracles
from cases import EVERYWHERE, Case, gap, into, leafwise, out
from stiefel import Grassmann, Sphere, Stiefel
from stiefel.geometry import Product


def combined(a, X, b, Y):
    return leafwise(lambda x, y: a * x + b * y, X, Y)


@pytest.mark.parametrize(("case", "library"), EVERYWHERE)
def test_velocity_is_the_derivative_of_the_ray(case, library):
    rng = np.random.default_rng(1)
    X = case.point(rng)
    W = case.cotangent(rng, X)
    ray = case.build(library).ray(into(library, X), into(library, W))
    t, h = 0.7, 1e-3
    points = [out(ray(t + j * h)) for j in (-2, -1, 1, 2)]
    outer = combined(1 / (12 * h), points[0], -1 / (12 * h), points[3])
    inner = combined(-8 / (12 * h), points[1], 8 / (12 * h), points[2])
    assert gap(out(ray.velocity(t)), combined(1.0, outer, 1.0, inner)) < 1e-10


@pytest.mark.parametrize(("case", "library"), EVERYWHERE)
def test_transport_is_an_isometry_onto_cotangents(case, library):
    rng = np.random.default_rng(2)
    X = case.point(rng)
    W, U, V = (case.cotangent(rng, X) for _ in range(3))
    geometry, t = case.build(library), 0.6
    x = into(library, X)
    ray = geometry.ray(x, into(library, W))
    y = ray(t)
    u, v = (ray.transport(t, into(library, Z)) for Z in (U, V))
    assert geometry.inner(y, u, v) == pytest.approx(
        geometry.inner(x, into(library, U), into(library, V)), abs=1e-13
    )
    assert gap(out(geometry.project_direction(y, u)), out(u)) < 1e-13
    # The direction itself arrives as the one that leads back: the Cayley ray is its own reverse.
    back = geometry.ray(y, ray.transport(t, into(library, W)))(-t)
    assert gap(out(back), X) < 1e-13


MATRICES = [
    Case("stiefel", Stiefel, (9, 3)),
    Case("stiefel-complex", Stiefel, (9, 3), complex),
    Case("square", Stiefel, (4, 4)),
    Case("column", Stiefel, (7, 1), complex),
    Case("stack", Stiefel, (2, 6, 2)),
    Case("vector", Sphere, (6,)),
    Case("generalised", Stiefel, (7, 3), with_B=True),
    Case("grassmann", Grassmann, (8, 3), complex),
]


def sample(case, rng):
    """f(X) = ½Σ w_i ⟨x_i, A x_i⟩ + q Σ|X|⁴ with gradient and Hessian product; invariant on
    quotients, where w = 1 and q = 0."""
    n, k = (case.shape[-1], 1) if case.vectors else case.shape[-2:]
    A = oracles.gaussian(rng, n, n, dtype=case.dtype)
    A = A + A.conj().T
    w, q = (np.ones(k), 0.0) if case.quotient else (np.arange(1.0, k + 1), 0.3)

    def apply(X):
        Y = X[..., None] if case.vectors else X
        return ((A @ Y) * w)[..., 0] if case.vectors else (A @ Y) * w

    def value(X):
        return 0.5 * np.vdot(X, apply(X)).real + q * np.sum(np.abs(X) ** 4)

    def gradient(X):
        return apply(X) + 4 * q * np.abs(X) ** 2 * X

    def hessp(X, V):
        return apply(V) + 4 * q * (np.abs(X) ** 2 * V + 2 * X * (X.conj() * V).real)

    return value, gradient, hessp


@pytest.mark.parametrize("case", MATRICES, ids=str)
def test_hessian_is_the_second_derivative_along_geodesics_and_rays(case):
    rng = np.random.default_rng(3)
    value, gradient, hessp = sample(case, rng)
    X = case.point(rng)
    W, V = case.cotangent(rng, X), case.cotangent(rng, X)
    M = case.build()

    def apply(W):
        return M.hessian(X, gradient(X), W, hessp(X, M.raise_index(X, W)))

    HW, h = apply(W), 2e-3
    for curve in (M.ray(X, W), lambda t: M.geodesic(X, W, t)):
        f = [value(curve(j * h)) for j in (-2, -1, 0, 1, 2)]
        second = (-f[0] + 16 * f[1] - 30 * f[2] + 16 * f[3] - f[4]) / (12 * h**2)
        assert M.inner(X, W, HW) == pytest.approx(second, rel=1e-7, abs=1e-7)
    assert M.inner(X, V, HW) == pytest.approx(M.inner(X, W, apply(V)), abs=1e-11)
    assert gap(M.project_direction(X, HW), HW) < 1e-13


def test_hessian_of_a_product_acts_leaf_by_leaf():
    rng = np.random.default_rng(4)
    cases = MATRICES[0], MATRICES[1]
    X = tuple(c.point(rng) for c in cases)
    W, G, E = (tuple(c.cotangent(rng, x) for c, x in zip(cases, X, strict=True)) for _ in range(3))
    M = Product((Stiefel(), Stiefel()))
    for i, leaf in enumerate(M.hessian(X, G, W, E)):
        assert np.array_equal(leaf, Stiefel().hessian(X[i], G[i], W[i], E[i]))
