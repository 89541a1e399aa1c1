"""Sparse principal components

A term λ Σ|W_ij| makes loadings zero, exactly, while the columns of W stay orthonormal.
`nonsmooth=L1(λ)` adds it; the method is then a proximal one. scikit-learn's `SparsePCA` gives
sparse components too, but they are not orthonormal.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import SparsePCA

import stiefel

rng = np.random.default_rng(0)
data = rng.standard_normal((300, 12))
data[:, :5] += 3 * rng.standard_normal((300, 1))  # two overlapping groups of variables
data[:, 3:8] += 2 * rng.standard_normal((300, 1))
data -= data.mean(axis=0)
C = np.cov(data.T)

start = np.linalg.eigh(C)[1][:, -2:]
result = stiefel.minimize(
    lambda W: (-np.sum(W * (C @ W)), -2 * C @ W), start, nonsmooth=stiefel.L1(4.0)
)
assert result.success
assert np.all(result.x[8:] == 0)  # variables of noise have no loadings

other = SparsePCA(2, alpha=10, random_state=0).fit(data).components_.T
for name, W in (("scikit-learn's SparsePCA", other), ("minimize with L1", result.x)):
    defect = np.abs(W.T @ W - np.eye(2)).max()
    print(f"{name:25} {np.mean(W == 0):.2f} of the loadings are zero, |WᵀW − I| = {defect:.0e}")

fig, axes = plt.subplots(1, 3, figsize=(5.4, 3.6), layout="constrained", sharey=True)
for ax, W, title in zip(axes, (start, other, result.x), ("PCA", "SparsePCA", "L1")):
    ax.imshow(W, cmap="RdBu", vmin=-0.7, vmax=0.7, aspect="auto")
    ax.set(title=title, xticks=[0, 1])
axes[0].set_ylabel("variable")
