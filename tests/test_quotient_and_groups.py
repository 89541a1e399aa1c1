"""Grassmann refuses functions of more than the span; square matrices report their determinant."""

import numpy as np
import pytest

import oracles
import stiefel
from stiefel import Euclidean, Grassmann, SpecialOrthogonal, Stiefel
from stiefel.check import check_invariance

A = np.diag(np.arange(1.0, 13.0))


def subspace(X):
    return 0.5 * np.real(np.vdot(X, A @ X)), A @ X


def brockett(X):
    AXw = A @ X * np.array([1.0, 2.0, 3.0])
    return 0.5 * np.real(np.vdot(X, AXw)), AXw


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("with_B", [False, True])
def test_invariance_is_seen_and_its_absence_said(dtype, with_B):
    rng = np.random.default_rng(0)
    B = oracles.random_positive(rng, 12, dtype) if with_B else None
    X = oracles.random_point(rng, 12, 3, dtype, B=B)
    assert check_invariance(subspace, X, B=B)
    verdict = check_invariance(brockett, X, B=B)
    assert not verdict
    assert "not a function of the span" in str(verdict)
    wrong = check_invariance(lambda Y: (subspace(Y)[0], brockett(Y)[1]), X, B=B)
    assert not wrong and "the gradient is wrong" in str(wrong)
    manifold = Grassmann(B=B)
    assert manifold.vertical_part(X, subspace(X)[1]) < 1e-14
    assert manifold.vertical_part(X, brockett(X)[1]) > 1e-3


@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e9])
def test_minimize_refuses_what_is_not_invariant(scale):
    X0 = stiefel.random_point(12, 3, seed=0)
    scaled = lambda X: tuple(scale * v for v in brockett(X))
    with pytest.raises(ValueError, match="not a function of the span of X"):
        stiefel.minimize(scaled, X0, manifold=Grassmann())
    tree = lambda p: (scaled(p["X"])[0], {"X": scaled(p["X"])[1], "c": 0 * p["c"]})
    with pytest.raises(ValueError, match="not a function of the span of X"):
        stiefel.minimize(
            tree, {"X": X0, "c": np.ones(2)}, manifold={"X": Grassmann(), "c": Euclidean()}
        )


def test_an_eigenvector_start_is_not_refused():
    """All of XᴴG is Hermitian there, or rounding; the gradient is zero or nearly so."""
    noise = 1e-12 * np.random.default_rng(0).standard_normal((12, 3))
    X0 = np.eye(12, 3)
    flat = lambda X: (0.0, noise)  # a gradient of rounding errors only is refused by its size
    assert stiefel.minimize(subspace, X0, manifold=Grassmann(), rtol=1e-3).nit == 0
    orthogonal = lambda X: (float(X[5, 0]), np.eye(12)[:, 5:8] + 1e-17 * noise)
    assert Grassmann().vertical_part(X0, orthogonal(X0)[1]) < 1e-6
    assert Grassmann().vertical_part(X0, flat(X0)[1]) > 0.1


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_determinant_is_reported_and_kept(sign):
    rng = np.random.default_rng(1)
    target = SpecialOrthogonal().random(3, 3, seed=2)
    X0 = SpecialOrthogonal().random(3, 3, seed=3) * np.array([sign, 1.0, 1.0])
    fun = lambda X: (-float(np.vdot(target, X)), -target)
    with pytest.warns(UserWarning, match="two components"):
        result = stiefel.minimize(fun, X0)
    assert result.determinant == sign == np.sign(np.linalg.det(result.x))
    if sign > 0:
        np.testing.assert_allclose(result.x, target, atol=1e-5)
    tall = stiefel.minimize(subspace, oracles.random_point(rng, 12, 3), manifold=Grassmann())
    assert tall.determinant is None


def test_determinants_have_the_structure_of_the_point():
    targets = SpecialOrthogonal().random(4, 3, 3, seed=2)

    def fun(p):
        R, c = p["R"], p["c"]
        return -float(np.vdot(targets, R)) + float(c @ c), {"R": -targets, "c": 2 * c}

    x0 = {"R": SpecialOrthogonal().random(4, 3, 3, seed=0), "c": np.ones(2)}
    result = stiefel.minimize(fun, x0, manifold={"R": SpecialOrthogonal(), "c": Euclidean()})
    assert result.determinant["c"] is None
    np.testing.assert_array_equal(result.determinant["R"], np.ones(4))


def test_a_thousand_rotations_are_a_handful_of_calls(monkeypatch):
    """Batched calls: their number does not grow with the stack."""
    counts = []
    for m in (2, 1000):
        targets = SpecialOrthogonal().random(m, 3, 3, seed=2)
        calls = []
        original = np.linalg.solve
        monkeypatch.setattr(np.linalg, "solve", lambda *a: calls.append(1) or original(*a))
        stiefel.minimize(
            lambda X: (-float(np.vdot(targets, X)) / m, -targets / m),
            SpecialOrthogonal().random(m, 3, 3, seed=0),
            manifold=SpecialOrthogonal(),
            method="gradient-descent",
            maxiter=5,
            rtol=1e-12,
        )
        monkeypatch.undo()
        counts.append(len(calls))
    assert counts[1] <= counts[0] + 10 and counts[1] < 60


def test_stiefel_and_grassmann_find_the_same_subspace():
    X0 = stiefel.random_point(12, 3, seed=0)
    a, b = (stiefel.minimize(subspace, X0, manifold=m(), rtol=1e-9) for m in (Stiefel, Grassmann))
    assert a.fun == pytest.approx(b.fun, rel=1e-12)
    assert Grassmann().distance(a.x, b.x) < 1e-6
