"""scikit-learn-shaped estimators: trace-ratio discriminants, Procrustes, joint diagonalisation.

They need scikit-learn, and follow its conventions.  All start from a closed-form guess, so that a
fit is deterministic; L-BFGS, since their evaluations are a few small products.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.linalg

import stiefel
from stiefel.objectives import JointDiagonalization as JointObjective
from stiefel.objectives import Procrustes
from stiefel.types import Array, Manifold

try:
    from sklearn.base import (
        BaseEstimator,
        RegressorMixin,
        TransformerMixin,
    )
    from sklearn.base import ClassNamePrefixFeaturesOutMixin as Names
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ModuleNotFoundError as error:  # pragma: no cover
    raise ModuleNotFoundError(
        "stiefel.applications.data needs scikit-learn: pip install scikit-learn"
    ) from error


class TraceRatioDiscriminantAnalysis(Names, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Orthonormal directions V that maximise tr(VᵀS_bV)/tr(VᵀS_wV).

    S_b and S_w are the scatter between and within classes; S_w is regularised by
    ``shrinkage``·tr(S_w)/d times the identity.

    Parameters
    ----------
    n_components : number of directions; classes − 1 (or features, if fewer) unless given.
    shrinkage : see above; needed where S_w is singular.
    tol : relative gradient at which the fit ends.

    Attributes
    ----------
    components_ (n_components, n_features), mean_, classes_, ratio_, n_iter_.
    """

    def __init__(
        self, n_components: int | None = None, shrinkage: float = 1e-3, tol: float = 1e-8
    ) -> None:
        self.n_components = n_components
        self.shrinkage = shrinkage
        self.tol = tol

    def fit(self, X: Array, y: Array) -> Self:
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("y has 1 class; expected at least two classes to tell apart")
        k = self.n_components or min(len(self.classes_) - 1, X.shape[1])
        if not 1 <= k <= X.shape[1]:
            raise ValueError(f"n_components is {k}; expected 1 to {X.shape[1]}, the features")
        self.mean_ = X.mean(axis=0)
        between, within = class_scatter(X, labels)
        d = X.shape[1]
        within = within + max(self.shrinkage * np.trace(within) / d, 1e-300) * np.eye(d)
        V, self.ratio_, self.n_iter_ = maximise_trace_ratio(between, within, k, self.tol)
        self.components_ = V.T
        self._n_features_out = k
        return self

    def transform(self, X: Array) -> Array:
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        return (X - self.mean_) @ self.components_.T

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


class ProcrustesRegression(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Y ≈ X Q with orthonormal columns of Q: unbalanced orthogonal Procrustes.

    As many outputs as features, or fewer; for fewer there is no closed form.  No intercept.

    Attributes
    ----------
    coef_ (n_features, n_outputs), residual_ = ½‖XQ − Y‖², n_iter_.
    """

    def __init__(self, tol: float = 1e-8) -> None:
        self.tol = tol

    def fit(self, X: Array, y: Array) -> Self:
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        Y = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        if Y.shape[1] > X.shape[1]:
            raise ValueError(
                f"y has {Y.shape[1]} outputs and X {X.shape[1]} features; "
                "orthonormal columns need at most as many outputs as features"
            )
        objective = Procrustes(X, Y)
        Q, self.n_iter_ = stiefel.nearest(X.T @ Y), 0
        if Q.shape[0] > Q.shape[1]:  # square: that is the answer already
            result = _minimise(objective, Q, self.tol)
            Q, self.n_iter_ = result.x, result.nit
        self.coef_ = Q[:, 0] if np.ndim(y) == 1 else Q
        self.residual_ = objective.value(Q)
        return self

    def predict(self, X: Array) -> Array:
        check_is_fitted(self)
        return validate_data(self, X, dtype=np.float64, reset=False) @ self.coef_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = True  # a rotation cannot stretch
        return tags


class JointDiagonalizer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Orthonormal V for which all VᵀC_lV are as diagonal as can be; C of shape (l, n, n).

    Attributes
    ----------
    components_ (n, n): the rows are the common directions; off_diagonal_: the sum of squares left.
    """

    def __init__(self, tol: float = 1e-10) -> None:
        self.tol = tol

    def fit(self, X: Array, y: Array = None) -> Self:
        objective = JointObjective(np.asarray(X, dtype=np.float64))
        # A random mixture of the matrices has the common eigenvectors, if there are any.
        weights = np.random.default_rng(0).standard_normal(len(objective.C))
        start = scipy.linalg.eigh(np.tensordot(weights, objective.C, 1))[1]
        start[:, 0] *= np.sign(np.linalg.det(start))
        scale = float(np.vdot(objective.C, objective.C))
        result = _minimise(objective, start, self.tol, stiefel.SpecialOrthogonal(), scale)
        self.components_, self.off_diagonal_ = result.x.T, result.fun
        self.n_iter_ = result.nit
        return self

    def transform(self, X: Array) -> Array:
        """VᵀC_lV of every matrix."""
        check_is_fitted(self)
        return self.components_ @ np.asarray(X, dtype=np.float64) @ self.components_.T


def class_scatter(X: Array, labels: Array) -> tuple[Array, Array]:
    """(S_b, S_w): the scatter between and within the classes 0, 1, …"""
    counts = np.bincount(labels)
    means = np.stack([X[labels == c].mean(axis=0) for c in range(len(counts))])
    between = (means - X.mean(axis=0)) * np.sqrt(counts)[:, None]
    within = X - means[labels]
    return between.T @ between, within.T @ within


def maximise_trace_ratio(B: Array, W: Array, k: int, tol: float) -> tuple[Array, float, int]:
    """(V, ratio, iterations) for the largest tr(VᵀBV)/tr(VᵀWV); only the span of V counts.

    f = −b/w has the gradient −(2/w)(BV − (b/w)WV).
    """

    def fun(V: Array) -> tuple[float, Array]:
        BV, WV = B @ V, W @ V
        w = float(np.vdot(V, WV))
        ratio = float(np.vdot(V, BV)) / w
        return -ratio, (-2.0 / w) * (BV - ratio * WV)

    d = len(B)
    mean = float(np.trace(B)) / float(np.trace(W))
    start = scipy.linalg.eigh(B - mean * W, subset_by_index=(d - k, d - 1))[1]
    result = _minimise(fun, start, tol, stiefel.Grassmann())
    return result.x, -result.fun, result.nit


def _minimise(
    fun: Any, start: Array, tol: float, manifold: Manifold | None = None, scale: float = 1.0
) -> stiefel.Result:
    """To a gradient that is small against the first one, or against the problem's own scale."""
    return stiefel.minimize(
        fun,
        np.ascontiguousarray(start),
        manifold=stiefel.Stiefel() if manifold is None else manifold,
        method="lbfgs",
        rtol=tol,
        gtol=1e-2 * tol * scale,
        maxiter=10_000,
    )
