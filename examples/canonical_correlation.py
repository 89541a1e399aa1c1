"""Canonical correlations of two, three or more data sets

The canonical directions of data sets X_1, …, X_m maximise the sum of all correlations between
them, subject to W_aᵀ C_aa W_a = I with the covariance C_aa of each set. Each set has its own
matrix and its own constraint: the point is a list, and so is the manifold. For two sets this is
classical, and scikit-learn's `CCA` gives the same correlations; for three it has no closed form.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cross_decomposition import CCA

import stiefel

rng = np.random.default_rng(0)
latent = rng.standard_normal((400, 2))
sets = [latent @ rng.standard_normal((2, p)) + rng.standard_normal((400, p)) for p in (6, 5, 4)]
sets = [X - X.mean(axis=0) for X in sets]
C = [[X.T @ Y / len(X) for Y in sets] for X in sets]


def correlations(W):  # −Σ_{a<b} tr W_aᵀ C_ab W_b
    G = [-sum(C[a][b] @ W[b] for b in range(len(W)) if b != a) for a in range(len(W))]
    return 0.5 * sum(np.sum(w * g) for w, g in zip(W, G)), G


def solve(count):
    manifold = [stiefel.Stiefel(B=C[a][a]) for a in range(count)]
    start = [m.random(len(C[a][a]), 2, seed=a) for a, m in enumerate(manifold)]
    result = stiefel.minimize(correlations, start, manifold=manifold)
    assert result.success
    return result.x


pair, three = solve(2), solve(3)
a, b = CCA(2, scale=False, max_iter=5000, tol=1e-10).fit_transform(*sets[:2])
classical = sum(abs(np.corrcoef(a[:, i], b[:, i])[0, 1]) for i in range(2))
print(
    f"sum of correlations of two sets: CCA {classical:.6f}, minimize {-correlations(pair)[0]:.6f}"
)
print(f"sum over all pairs of three sets: {-correlations(three)[0]:.4f} (at most 6)")
assert abs(classical + correlations(pair)[0]) < 1e-4

fig, axes = plt.subplots(1, 2, figsize=(6, 3), layout="constrained")
for ax, (i, j) in zip(axes, ((0, 1), (0, 2))):
    for k in range(2):
        ax.plot(
            (sets[i] @ three[i])[:, k], (sets[j] @ three[j])[:, k], ".", ms=3, label=f"pair {k}"
        )
    ax.set(xlabel=f"set {i}", ylabel=f"set {j}")
axes[0].legend()
