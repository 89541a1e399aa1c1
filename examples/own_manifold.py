"""A manifold of your own

Every solver sees a manifold through one list of functions. Here the constraint is that a vector of
weights sums to one, which the library does not have. In a flat space only three things
differ from `Euclidean()`: how a gradient is projected, how far a point is off, and which point is
nearest. `check_manifold` tries the laws that a manifold must obey. SciPy's `SLSQP` takes the
constraint as a function and serves as a check.
"""

from dataclasses import dataclass

import matplotlib.pyplot as plt
import numpy as np
import scipy.optimize

import stiefel
from stiefel.geometry.euclidean import FlatMetric
from stiefel.testing import check_manifold


@dataclass(frozen=True)
class SumsToOne(FlatMetric):
    def project(self, X, G):
        return G - G.mean()

    project_direction = project

    def hessian(self, X, gradient, W, E):
        return self.project(X, E)

    def defect(self, X):
        return abs(float(X.sum()) - 1.0)

    def allowed_defect(self, X):
        return 1e-12

    def nearest(self, A):
        return A + (1.0 - A.sum()) / A.size

    restore = nearest

    def dimension(self, X):
        return X.size - 1


rng = np.random.default_rng(0)
returns = rng.standard_normal((250, 8)) @ rng.standard_normal((8, 8)) * 0.02 + 0.01
mean, C = returns.mean(axis=0), np.cov(returns.T)


def risk(w, appetite=0.05):  # variance, minus a share of the expected return
    return 0.5 * w @ C @ w - appetite * mean @ w, C @ w - appetite * mean


start = np.full(8, 1 / 8)
check_manifold(SumsToOne(), start)
result = stiefel.minimize(risk, start, manifold=SumsToOne(), rtol=1e-8)
slsqp = scipy.optimize.minimize(
    risk, start, jac=True, method="SLSQP", tol=1e-12,
    constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
)  # fmt: skip
print(f"minimize {result.fun:.9f}, sum {result.x.sum():.12f}; SLSQP {slsqp.fun:.9f}")
assert result.success and abs(result.fun - slsqp.fun) < 1e-8

fig, ax = plt.subplots(figsize=(4.6, 2.8), layout="constrained")
ax.bar(np.arange(8) - 0.2, result.x, 0.4, label="minimize")
ax.bar(np.arange(8) + 0.2, slsqp.x, 0.4, label="SLSQP")
ax.set(title="weights that sum to one")
ax.legend()
