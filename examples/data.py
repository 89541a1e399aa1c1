"""Estimators for discriminant analysis and joint diagonalisation

The first estimator finds directions that tell the digits apart, the second a matrix that
diagonalises several matrices. Both have the interface of scikit-learn. scikit-learn's own
`LinearDiscriminantAnalysis` maximises another ratio, and its directions are not orthonormal; the
trace ratio of their span is printed beside ours.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from stiefel.applications.data import JointDiagonalizer, TraceRatioDiscriminantAnalysis

X, y = load_digits(return_X_y=True)
X = X[:, X.var(axis=0) > 1.0]  # the pixels that vary
model = TraceRatioDiscriminantAnalysis(n_components=9).fit(X, y)
print(f"digits: trace ratio {model.ratio_:.12f} after {model.n_iter_} iterations")
assert abs(model.ratio_ - 4.573250276861) < 1e-10


def trace_ratio(W):
    """Scatter between the classes over scatter within them, in the span of W."""
    Q = np.linalg.qr(W)[0]
    means = np.stack([X[y == label].mean(axis=0) for label in range(10)])[y]
    between, within = (means - X.mean(axis=0)) @ Q, (X - means) @ Q
    return np.sum(between**2) / np.sum(within**2)


lda = LinearDiscriminantAnalysis(n_components=9, solver="eigen").fit(X, y)
print(f"the same ratio for scikit-learn's directions: {trace_ratio(lda.scalings_[:, :9]):.3f}")

rng = np.random.default_rng(0)
Q = np.linalg.qr(rng.standard_normal((6, 6)))[0]
C = np.stack([(Q * d) @ Q.T for d in rng.standard_normal((4, 6))])
diagonal = JointDiagonalizer().fit(C)
print(f"joint diagonalisation: sum of squares off the diagonals {diagonal.off_diagonal_:.1e}")
assert diagonal.off_diagonal_ < 1e-12

plane = model.transform(X)[:, :2]
plt.scatter(*plane.T, c=y, s=4, cmap="tab10")
plt.colorbar(label="digit")
plt.title("Digits along two of the nine directions")
