"""Sparse principal components: scikit-learn's checks, its own estimator, and planted features."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA, SparsePCA
from sklearn.utils.estimator_checks import parametrize_with_checks

from stiefel.applications.sparse_pca import OrthogonalSparsePCA


@parametrize_with_checks([OrthogonalSparsePCA(), OrthogonalSparsePCA(penalty="features")])
@pytest.mark.filterwarnings("ignore")
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)


def explained(X, components):
    """The part of the variance that the span of the rows explains."""
    centred = X - X.mean(axis=0)
    Q = np.linalg.qr(components.T)[0]
    return np.sum((centred @ Q) ** 2) / np.sum(centred**2)


def test_explains_more_than_scikit_learn_at_equal_sparsity():
    """Of the digits, six components: the penalty is bisected to at least the peer's zeros."""
    X, _ = load_digits(return_X_y=True)
    X = X[:, X.var(axis=0) > 1.0]
    peer = SparsePCA(n_components=6, alpha=40, max_iter=100, random_state=0).fit(X)
    zeros = np.mean(peer.components_ == 0)
    low, high = 0.0, 1.0
    for _ in range(12):
        alpha = 0.5 * (low + high)
        model = OrthogonalSparsePCA(n_components=6, alpha=alpha).fit(X)
        low, high = (alpha, high) if np.mean(model.components_ == 0) < zeros else (low, alpha)
    model = OrthogonalSparsePCA(n_components=6, alpha=high).fit(X)
    assert model.converged_
    assert np.mean(model.components_ == 0) >= zeros > 0.2
    assert explained(X, model.components_) > explained(X, peer.components_)
    np.testing.assert_allclose(model.components_ @ model.components_.T, np.eye(6), atol=1e-14)


def test_without_penalty_it_is_pca():
    X = np.random.default_rng(0).standard_normal((60, 8)) * np.arange(1, 9)
    model, peer = OrthogonalSparsePCA(3, alpha=0.0).fit(X), PCA(3).fit(X)
    assert explained(X, model.components_) == pytest.approx(explained(X, peer.components_))
    assert model.explained_variance_.sum() == pytest.approx(peer.explained_variance_.sum())


def test_features_are_selected():
    """Four of thirty features carry two factors."""
    rng = np.random.default_rng(1)
    X = 0.3 * rng.standard_normal((200, 30))
    X[:, :4] += rng.standard_normal((200, 2)) @ np.array([[2, 2, 0.5, 0], [0, 0.5, 2, 2]])
    model = OrthogonalSparsePCA(2, alpha=0.2, penalty="features").fit(X)
    assert np.array_equal(np.flatnonzero(model.selected_), np.arange(4))
    assert model.explained_variance_ratio_.sum() == pytest.approx(
        explained(X, model.components_), rel=1e-10
    )


def test_misuse():
    with pytest.raises(ValueError, match="n_components is 9"):
        OrthogonalSparsePCA(9).fit(np.eye(5, 4))
    with pytest.raises(ValueError, match="penalty is 'rows'"):
        OrthogonalSparsePCA(2, penalty="rows").fit(np.eye(5, 4))
