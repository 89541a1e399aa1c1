"""Principal components with orthonormal sparse loadings, as a scikit-learn estimator.

    max  tr(VᵀCV) − α λ₁ h(V)   subject to   VᵀV = I,      C the covariance, λ₁ its largest
    eigenvalue

with h(V) = ‖V‖₁ (single loadings vanish) or Σ‖rows of V‖ (features vanish from all components).
Loadings that are not zero are exact, and V is orthonormal to rounding, so that scores are
projections and explained variances add up.
"""

from __future__ import annotations

from typing import Self

import numpy as np
import scipy.linalg

import stiefel
from stiefel.types import Array

try:
    from sklearn.base import BaseEstimator, TransformerMixin
    from sklearn.base import ClassNamePrefixFeaturesOutMixin as Names
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError as error:  # pragma: no cover
    raise ModuleNotFoundError(
        "stiefel.applications.sparse_pca needs scikit-learn: pip install scikit-learn"
    ) from error


WEIGHT_AT_ZERO = 100.0  # a weight, against λ₁ = 1, that keeps a loading at zero
PENALTIES = {"loadings": stiefel.L1, "features": stiefel.RowNorms}


class OrthogonalSparsePCA(Names, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Sparse principal components that are orthonormal.

    Parameters
    ----------
    n_components : number of components; as many as features or samples allow unless given.
    alpha : weight of the penalty against the largest eigenvalue of the covariance; 0 gives PCA.
    penalty : "loadings" makes single loadings zero, "features" drops whole features.
    refit : maximise the variance alone once the zeros are found; the penalty then decides which
        loadings vanish, and does not shrink the others.
    tol : stationarity, against the largest eigenvalue, at which the fit ends.
    max_iter : the largest number of iterations.

    Attributes
    ----------
    components_ (n_components, n_features): orthonormal rows with exact zeros.
    explained_variance_, explained_variance_ratio_ : of the scores; they add up.
    mean_, n_iter_, n_features_in_.
    selected_ : True for features with a loading that is not zero.
    converged_ : whether ``tol`` was met.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from stiefel.applications.sparse_pca import OrthogonalSparsePCA
    >>> X, _ = load_digits(return_X_y=True)
    >>> model = OrthogonalSparsePCA(n_components=3, alpha=0.1).fit(X)
    >>> bool((model.components_ == 0).mean() > 0.3)
    True
    """

    def __init__(
        self,
        n_components: int | None = None,
        alpha: float = 0.1,
        penalty: str = "loadings",
        refit: bool = True,
        tol: float = 1e-8,
        max_iter: int = 2000,
    ) -> None:
        self.n_components = n_components
        self.alpha = alpha
        self.penalty = penalty
        self.refit = refit
        self.tol = tol
        self.max_iter = max_iter

    def fit(self, X: Array, y: Array = None) -> Self:
        X = validate_data(self, X, dtype=np.float64, ensure_min_samples=2)
        n, d = X.shape
        k = min(n - 1, d) if self.n_components is None else self.n_components
        if not 1 <= k <= d:
            raise ValueError(f"n_components is {k}; expected 1 to {d}, the features")
        if self.penalty not in PENALTIES:
            raise ValueError(f"penalty is {self.penalty!r}; expected 'loadings' or 'features'")
        self.mean_ = X.mean(axis=0)
        A = (X - self.mean_) / np.sqrt(n - 1)
        V, largest = _leading(A, k)
        V = self._fitted(A, V, largest) if largest > 0 else self._trivial(V)
        self._describe(A, V)
        return self

    def _trivial(self, V: Array) -> Array:
        self.n_iter_, self.converged_ = 0, True
        return V

    def _fitted(self, A: Array, V: Array, largest: float) -> Array:
        A = A / np.sqrt(largest)  # so that λ₁ = 1

        def fun(V: Array) -> tuple[float, Array]:
            AV = A @ V
            return -float(np.vdot(AV, AV)), -2.0 * (A.T @ AV)

        def solved(V: Array, term: stiefel.L1 | stiefel.RowNorms) -> stiefel.Result:
            return stiefel.minimize(
                fun,
                V,
                nonsmooth=term,
                hessp=lambda V, W: -2.0 * (A.T @ (A @ W)),
                rtol=0.0,
                gtol=self.tol,
                maxiter=self.max_iter,
            )

        result = solved(V, PENALTIES[self.penalty](float(self.alpha)))
        self.n_iter_, self.converged_ = max(result.nit, 1), bool(result.success)
        if self.refit and not result.support.all():
            result = solved(result.x, stiefel.L1(np.where(result.support, 0.0, WEIGHT_AT_ZERO)))
            self.n_iter_ += result.nit
            self.converged_ &= bool(result.success)
        return result.x

    def _describe(self, A: Array, V: Array) -> None:
        variances = np.sum((A @ V) ** 2, axis=0)
        order = np.argsort(-variances, kind="stable")
        V, variances = V[:, order], variances[order]
        signs = np.sign(V[np.abs(V).argmax(axis=0), np.arange(V.shape[1])])
        self.components_ = (V * signs).T + 0.0  # no negative zeros
        self.explained_variance_ = variances
        total = float(np.sum(A**2))
        self.explained_variance_ratio_ = variances / total if total > 0 else 0 * variances
        self.selected_ = np.any(self.components_ != 0, axis=0)
        self._n_features_out = V.shape[1]

    def transform(self, X: Array) -> Array:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return (X - self.mean_) @ self.components_.T

    def inverse_transform(self, X: Array) -> Array:
        """The points of the components' span with these scores."""
        check_is_fitted(self)
        return np.asarray(X) @ self.components_ + self.mean_


def _leading(A: Array, k: int) -> tuple[Array, float]:
    """The k leading right singular vectors of A, completed if A has fewer, and λ₁."""
    full = k > min(A.shape)
    _, s, Vt = scipy.linalg.svd(A, full_matrices=full)
    return np.ascontiguousarray(stiefel.nearest(Vt[:k].T)), float(s[0] ** 2) if len(s) else 0.0
