"""Independent components

Mixtures of independent signals are whitened; what is left is a rotation, the one that makes the
components furthest from Gaussian. The contrast is that of FastICA. scikit-learn's `FastICA` runs a
fixed-point iteration for the same function and gives the same components; here the run has a
tolerance on the gradient and says whether it was met.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import FastICA

import stiefel

rng = np.random.default_rng(0)
t = np.linspace(0, 8, 2000)
sources = np.stack([np.sign(np.sin(3 * t)), (2 * t) % 2 - 1, rng.laplace(size=t.size)])
X = rng.standard_normal((3, 3)) @ sources
X -= X.mean(axis=1, keepdims=True)
values, vectors = np.linalg.eigh(np.cov(X))
Z = (vectors / np.sqrt(values)).T @ X  # whitened


def contrast(W):  # −Σ (E log cosh y − 0.3746)², largest for signals far from Gaussian ones
    Y = W.T @ Z
    excess = np.mean(np.log(np.cosh(Y)), axis=1) - 0.3746
    return -np.sum(excess**2), -2 * (Z @ np.tanh(Y).T / Z.shape[1]) * excess


result = stiefel.minimize(contrast, np.eye(3), manifold=stiefel.Orthogonal(), starts=4)
assert result.success

fast = FastICA(3, whiten="unit-variance", random_state=0, tol=1e-8).fit_transform(X.T).T
match = lambda Y: np.abs(np.corrcoef(Y, sources)[:3, 3:]).max(axis=0)
print("correlation with the sources, scikit-learn's FastICA:", match(fast).round(3))
print("correlation with the sources, minimize:              ", match(result.x.T @ Z).round(3))
assert match(result.x.T @ Z).min() > 0.95

fig, axes = plt.subplots(3, 2, figsize=(6.4, 3.6), layout="constrained", sharex=True)
for column, signals, title in zip(axes.T, (X, result.x.T @ Z), ("mixtures", "components")):
    for ax, signal in zip(column, signals):
        ax.plot(t[:600], signal[:600], lw=0.8)
        ax.set(yticks=[])
    column[0].set_title(title)
