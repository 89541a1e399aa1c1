"""Factor rotation: the varimax family, from many starts

Factor loadings are determined up to a rotation. Varimax chooses the one whose squared loadings
vary most within each column; γ = 0 is quartimax, γ = 1 varimax, γ = k/2 equamax. These functions
may have several optima. `starts=20` solves from twenty rotations and lists the optima that were
found. scikit-learn's `FactorAnalysis` rotates by an iteration from one start.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import FactorAnalysis

import stiefel

X = load_digits().data
X = X[:, X.std(axis=0) > 2.0]
raw = FactorAnalysis(6, random_state=0).fit(X).components_.T
theirs = FactorAnalysis(6, rotation="varimax", random_state=0).fit(X).components_.T


def criterion(L, gamma=1.0):
    return -np.sum(L**4) + gamma / len(L) * np.sum(np.sum(L**2, axis=0) ** 2)


def rotated(Q, gamma=1.0):
    L = raw @ Q
    G = -4 * L**3 + 4 * gamma / len(L) * L * np.sum(L**2, axis=0)
    return criterion(L, gamma), raw.T @ G


result = stiefel.minimize(rotated, np.eye(6), manifold=stiefel.Orthogonal(), starts=20)
print(result.starts)
print(f"varimax: scikit-learn {criterion(theirs):.4f}, best of twenty starts {result.fun:.4f}")
assert result.success and result.fun <= criterion(theirs) + 1e-6 * abs(result.fun)

fig, axes = plt.subplots(1, 2, figsize=(6, 4), layout="constrained", sharey=True)
for ax, L, title in zip(axes, (raw, raw @ result.x), ("as computed", "varimax")):
    ax.imshow(L, cmap="RdBu", vmin=-4, vmax=4, aspect="auto", interpolation="nearest")
    ax.set(title=title, xlabel="factor")
axes[0].set_ylabel("pixel")
