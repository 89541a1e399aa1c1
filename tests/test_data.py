"""The estimators against scikit-learn's checks, fixed-point iterations and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from stiefel.applications.data import (
    JointDiagonalizer,
    ProcrustesRegression,
    TraceRatioDiscriminantAnalysis,
    class_scatter,
)


@parametrize_with_checks([TraceRatioDiscriminantAnalysis(), ProcrustesRegression()])
@pytest.mark.filterwarnings("ignore")
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    """The pixels that vary: those of variance above one."""
    X, y = load_digits(return_X_y=True)
    return X[:, X.var(axis=0) > 1.0], y


def test_trace_ratio_of_the_digits(digits):
    model = TraceRatioDiscriminantAnalysis(n_components=9, shrinkage=1e-3).fit(*digits)
    assert model.ratio_ == pytest.approx(4.573250276861, abs=1e-10)
    V = model.components_
    np.testing.assert_allclose(V @ V.T, np.eye(9), atol=1e-12)


def test_trace_ratio_agrees_with_the_eigenvalue_iteration(digits):
    X, y = digits
    B, W = class_scatter(X, y)
    W = W + 1e-2 * np.trace(W) / len(W) * np.eye(len(W))
    ratio = 0.0
    for _ in range(50):
        V = scipy.linalg.eigh(B - ratio * W)[1][:, -4:]
        ratio = np.trace(V.T @ B @ V) / np.trace(V.T @ W @ V)
    model = TraceRatioDiscriminantAnalysis(n_components=4, shrinkage=1e-2).fit(X, y)
    assert model.ratio_ == pytest.approx(ratio, abs=1e-10)
    assert scipy.linalg.subspace_angles(model.components_.T, V)[0] < 1e-5


def test_scatter_adds_up(digits):
    X, y = digits
    B, W = class_scatter(X, y)
    np.testing.assert_allclose(B + W, (len(X) - 1) * np.cov(X.T), rtol=1e-9, atol=1e-6)


def test_discriminants_in_a_pipeline(digits):
    X, y = digits
    Z = make_pipeline(StandardScaler(), TraceRatioDiscriminantAnalysis()).fit_transform(X, y)
    assert Z.shape == (len(X), 9)


def test_procrustes_recovers_a_planted_matrix():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 8)) * np.linspace(1, 3, 8)
    Q = np.linalg.qr(rng.standard_normal((8, 3)))[0]
    model = ProcrustesRegression().fit(X, X @ Q)
    np.testing.assert_allclose(model.coef_, Q, atol=1e-7)
    assert model.residual_ < 1e-12
    np.testing.assert_allclose(model.predict(X), X @ Q, atol=1e-6)


def test_balanced_procrustes_is_scipys():
    rng = np.random.default_rng(1)
    X, Y = rng.standard_normal((2, 30, 5))
    expected = scipy.linalg.orthogonal_procrustes(X, Y)[0]
    np.testing.assert_allclose(ProcrustesRegression().fit(X, Y).coef_, expected, atol=1e-7)


def test_procrustes_is_stationary_and_better_than_its_start():
    rng = np.random.default_rng(2)
    X, Y = rng.standard_normal((40, 7)) * np.arange(1, 8), rng.standard_normal((40, 2))
    model = ProcrustesRegression(tol=1e-10).fit(X, Y)
    Q = model.coef_
    multiplier = Q.T @ X.T @ (X @ Q - Y)
    np.testing.assert_allclose(multiplier, multiplier.T, atol=1e-6)
    np.testing.assert_allclose(X.T @ (X @ Q - Y), Q @ multiplier, atol=1e-5)
    U, _, Vh = np.linalg.svd(X.T @ Y, full_matrices=False)
    assert model.residual_ < 0.5 * np.sum((X @ (U @ Vh) - Y) ** 2)


def test_joint_diagonalisation():
    rng = np.random.default_rng(3)
    Q = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    C = np.stack([(Q * d) @ Q.T for d in rng.standard_normal((4, 6))])
    model = JointDiagonalizer().fit(C)
    assert model.off_diagonal_ < 1e-12
    np.testing.assert_allclose(np.abs(model.components_ @ Q).max(axis=0), 1.0, atol=1e-8)
    noisy = C + 0.01 * rng.standard_normal(C.shape)
    noisy = noisy + noisy.swapaxes(1, 2)
    model = JointDiagonalizer().fit(noisy)
    T = model.transform(noisy)
    off = T - np.einsum("lii->li", T)[:, :, None] * np.eye(6)
    assert np.sum(off**2) == pytest.approx(model.off_diagonal_, rel=1e-6)
    assert 0 < model.off_diagonal_ < 0.1


def test_misuse(digits):
    X, y = digits
    with pytest.raises(ValueError, match="n_components is 99"):
        TraceRatioDiscriminantAnalysis(n_components=99).fit(X, y)
    with pytest.raises(ValueError, match="at most as many outputs"):
        ProcrustesRegression().fit(np.ones((4, 1)), np.ones((4, 2)))
