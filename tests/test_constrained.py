"""Constraints, bounds and h(AX): KKT conditions, SciPy's vocabulary, known answers, truth."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import Bounds, LinearConstraint, NonlinearConstraint
from scipy.sparse.linalg import aslinearoperator

import stiefel
from stiefel import L1, Status


def quadratic(n, seed=0):
    A = np.random.default_rng(seed).standard_normal((n, n))
    A = (A + A.T) / np.sqrt(n)
    return A, lambda X: (-float(np.vdot(X, A @ X)), -2.0 * A @ X)


def planted(n, k, seed):
    """Nonnegative PCA with a planted matrix of disjoint nonnegative columns."""
    rng = np.random.default_rng(seed)
    V = np.zeros((n, k))
    V[np.arange(n), rng.integers(k, size=n)] = np.abs(rng.standard_normal(n))
    V /= np.linalg.norm(V, axis=0)
    Z = rng.standard_normal((n, n)) / np.sqrt(n)
    return V, 10 * V @ V.T + 0.3 * (Z + Z.T)


@pytest.mark.parametrize("seed", [0, 1])
def test_nonnegative_pca(seed):
    """X ≥ 0 and XᵀX = I: one entry a row; KKT to 1e-6, and near the planted matrix."""
    V, A = planted(30, 2, seed)
    X0 = stiefel.random_point(30, 2, seed=seed)
    calls = [0]

    def fun(X):
        calls[0] += 1
        return -float(np.vdot(X, A @ X)), -2.0 * A @ X

    result = stiefel.minimize(fun, X0, bounds=(0, None))
    assert result.success, result.message
    X, W = result.x, result.multipliers[0].reshape(30, 2)
    assert X.min() >= -1e-6
    assert np.linalg.norm(X.T @ X - np.eye(2)) < 1e-13
    assert result.nfev == calls[0]
    # Stationarity with the multipliers in the result: −2AX + W is normal, W ≤ 0, W X = 0.
    G = -2.0 * A @ X + W
    M = X.T @ G
    assert np.linalg.norm(G - 0.5 * X @ (M + M.T)) <= 2e-6 * np.linalg.norm(A) * 2
    assert W.max() <= 1e-9
    assert np.abs(np.minimum(-W, X)).max() <= 2e-6
    assert result.stationarity == result.gradient_norm
    assert max(result.constraint_violation, result.complementarity) <= 1e-6
    assert np.abs(X.T @ V).max(axis=0).min() > 0.9


def test_a_sphere_with_a_linear_constraint_has_a_closed_form():
    """max xᵀAx with cᵀx = 0 on the sphere: the projected eigenproblem."""
    A, fun = quadratic(12)
    c = np.random.default_rng(1).standard_normal(12)
    x0 = stiefel.random_point(12, 1, seed=0)
    P = np.eye(12) - np.outer(c, c) / (c @ c)
    best = np.linalg.eigvalsh(P @ A @ P)[-1]
    linear = LinearConstraint(c[None, :], 0, 0)
    nonlinear = NonlinearConstraint(lambda X: c @ X[:, 0], 0, 0, jac=lambda X: c.reshape(1, 12, 1))
    plain = NonlinearConstraint(lambda X: c @ X[:, 0], 0, 0)  # differences
    as_dict = {"type": "eq", "fun": lambda X: c @ X, "jac": lambda X: c[None, :]}
    scipy = stiefel.minimize(fun, x0, constraints=linear, method="SLSQP")
    assert scipy.nfev == stiefel.minimize(fun, x0, constraints=linear).nfev
    for given in (linear, nonlinear, plain, as_dict, [as_dict]):
        result = stiefel.minimize(fun, x0, constraints=given)
        assert result.success, result.message
        assert -result.fun == pytest.approx(best, abs=1e-5)
        assert abs(c @ result.x[:, 0]) <= 1e-6


def test_inequalities_that_do_not_matter_leave_the_answer():
    _A, fun = quadratic(10)
    x0 = stiefel.random_point(10, 2, seed=0)
    free = stiefel.minimize(fun, x0)
    loose = {"type": "ineq", "fun": lambda X: 5.0 - X.sum()}
    result = stiefel.minimize(fun, x0, constraints=loose, bounds=Bounds(-2, 2))
    assert result.success
    assert result.fun == pytest.approx(free.fun, rel=1e-8)
    assert all(np.abs(W).max() < 1e-9 for W in result.multipliers)


def test_max_min_by_a_slack():
    """max s with s ≤ (a_iᵀx)² over unit x and free s; the KKT value is the best of many samples."""
    a = np.random.default_rng(0).standard_normal((4, 3))
    x0 = {"x": stiefel.random_point(3, 1, seed=1), "s": np.zeros(1)}
    fun = lambda p: (-float(p["s"][0]), {"x": np.zeros((3, 1)), "s": -np.ones(1)})

    def gains(p):
        return (a @ p["x"][:, 0]) ** 2 - p["s"]

    def jac(p):
        return {"x": 2 * (a @ p["x"]) * a, "s": -np.ones((4, 1))}

    manifold = {"x": stiefel.Stiefel(), "s": stiefel.Euclidean()}
    samples = np.random.default_rng(1).standard_normal((3, 200_000))
    best = ((a @ (samples / np.linalg.norm(samples, axis=0))) ** 2).min(axis=0).max()
    found = []
    for derivative in (jac, None):
        given = {"type": "ineq", "fun": gains, "jac": derivative}
        results = [
            stiefel.minimize(
                fun,
                x0 | {"x": stiefel.random_point(3, 1, seed=seed)},
                manifold=manifold,
                constraints=given,
                gtol=1e-6,
            )
            for seed in range(8)  # a third of the starts lead to the largest minimum
        ]
        assert all(r.success for r in results), [r.message for r in results]
        assert all(np.abs(r.x["s"] - ((a @ r.x["x"]) ** 2).min()) <= 1e-5 for r in results)
        found.append(max(float(r.x["s"][0]) for r in results))
    np.testing.assert_allclose(found, best, atol=3e-3)
    assert min(found) >= best


@pytest.mark.parametrize("n", [8, 30])
def test_an_orthogonal_dictionary_is_found(n):
    """min ‖YᵀX‖₁ over rotations, Y = QS with sparse S: X = Q up to signs and order."""
    rng = np.random.default_rng(n)
    Q = stiefel.random_point(n, n, seed=1, manifold=stiefel.SpecialOrthogonal())
    S = rng.standard_normal((n, 20 * n)) * (rng.uniform(size=(n, 20 * n)) < 0.3)
    A = (Q @ S).T
    X0 = stiefel.random_point(n, n, seed=2, manifold=stiefel.SpecialOrthogonal())
    nothing = lambda X: (0.0, np.zeros_like(X))
    for of in (A, aslinearoperator(A)):
        result = stiefel.minimize(
            nothing,
            X0,
            nonsmooth=L1(1 / len(A), of=of),
            manifold=stiefel.SpecialOrthogonal(),
            maxfun=1500,
        )
        assert result.success, result.message
        found = np.abs(Q.T @ result.x)
        np.testing.assert_allclose(found.max(axis=0), 1.0, atol=1e-6)
        assert result.nonsmooth == pytest.approx(np.abs(A @ result.x).sum() / len(A))
        assert result.nfev <= 400


def test_infeasible_constraints_are_told():
    _, fun = quadratic(6)
    x0 = stiefel.random_point(6, 1, seed=0)
    result = stiefel.minimize(fun, x0, constraints=LinearConstraint(np.ones((1, 6)), 10, np.inf))
    assert not result.success
    assert result.status is Status.INFEASIBLE
    assert result.constraint_violation > 1
    np.testing.assert_allclose(result.x, np.ones((6, 1)) / np.sqrt(6), atol=1e-2)  # the nearest


@pytest.mark.parametrize(
    "hostile",
    [
        {"type": "ineq", "fun": lambda X: np.nan * X.sum()},
        {"type": "eq", "fun": lambda X: np.inf},
    ],
    ids=["nan", "inf"],
)
def test_hostile_constraints_end_truthfully(hostile):
    _, fun = quadratic(6)
    result = stiefel.minimize(
        fun, stiefel.random_point(6, 2, seed=0), constraints=hostile, maxfun=200
    )
    assert not result.success


def test_limits():
    _V, A = planted(30, 2, 3)
    fun = lambda X: (-float(np.vdot(X, A @ X)), -2.0 * A @ X)
    result = stiefel.minimize(fun, stiefel.random_point(30, 2, seed=0), bounds=(0, None), maxfun=25)
    assert result.status is Status.MAX_EVALUATIONS
    assert result.nfev <= 25
    assert not result.success


def test_misuse():
    _, fun = quadratic(6)
    x0 = stiefel.random_point(6, 2, seed=0)
    call = lambda **given: stiefel.minimize(fun, x0, **given)
    with pytest.raises(ValueError, match="expected 12 columns"):
        call(constraints=LinearConstraint(np.ones((1, 5)), 0, 1))
    with pytest.raises(ValueError, match="type 'equal'"):
        call(constraints={"type": "equal", "fun": np.sum})
    with pytest.raises(TypeError, match="constraints is"):
        call(constraints=3)
    with pytest.raises(TypeError, match="bounds is"):
        call(bounds=3)
    with pytest.raises(ValueError, match="a bound has shape"):
        call(bounds=(np.zeros(5), None))
    with pytest.raises(ValueError, match="above its upper"):
        call(bounds=(1, 0))
    with pytest.raises(ValueError, match="nonsmooth= does not go"):
        call(bounds=(0, None), nonsmooth=L1(0.1))
    with pytest.raises(ValueError, match="unknown option 'rho'"):
        call(bounds=(0, None), options={"rho": 1})
    with pytest.raises(TypeError, match="need a single array"):
        stiefel.minimize(fun, {"X": x0}, bounds=(0, None))
    with pytest.raises(TypeError, match="real NumPy arrays"):
        stiefel.minimize(fun, x0.astype(complex), bounds=(0, None))


def test_a_start_in_single_precision_is_served_in_double():
    rng = np.random.default_rng(5)
    A = rng.standard_normal((8, 8))
    x0 = np.linalg.qr(rng.standard_normal((8, 2)))[0].astype(np.float32)
    result = stiefel.minimize(lambda X: (np.vdot(X, A @ X), (A + A.T) @ X), x0, bounds=(-0.5, 0.5))
    assert result.success and result.x.dtype == np.float64
    np.testing.assert_allclose(result.x.T @ result.x, np.eye(2), atol=1e-13)
    with pytest.raises(ValueError, match="not orthonormal"):
        stiefel.minimize(lambda X: (0.0, X), 2 * x0, bounds=(-0.5, 0.5))
