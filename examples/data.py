"""Estimators for discriminant analysis and joint diagonalisation

Directions that tell the digits apart, and a matrix that diagonalises several matrices, with the
interface of scikit-learn.
"""

import numpy as np
from sklearn.datasets import load_digits

from stiefel.applications.data import JointDiagonalizer, TraceRatioDiscriminantAnalysis

X, y = load_digits(return_X_y=True)
X = X[:, X.var(axis=0) > 1.0]  # the pixels that vary
model = TraceRatioDiscriminantAnalysis(n_components=9).fit(X, y)
print(f"digits: trace ratio {model.ratio_:.12f} after {model.n_iter_} iterations")
assert abs(model.ratio_ - 4.573250276861) < 1e-10

rng = np.random.default_rng(0)
Q = np.linalg.qr(rng.standard_normal((6, 6)))[0]
C = np.stack([(Q * d) @ Q.T for d in rng.standard_normal((4, 6))])
diagonal = JointDiagonalizer().fit(C)
print(f"joint diagonalisation: sum of squares off the diagonals {diagonal.off_diagonal_:.1e}")
assert diagonal.off_diagonal_ < 1e-12
