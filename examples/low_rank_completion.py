"""Low-rank matrix completion

A matrix of low rank is known at some of its entries. Its column space U is a point of
`Grassmann()`; for a given U the rest is least squares, column by column. scikit-learn's imputers
do not know that the matrix has low rank.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.impute import KNNImputer

import stiefel

rng = np.random.default_rng(0)
m, n, rank = 60, 80, 3
truth = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n))
known = rng.random((m, n)) < 0.3
M = np.where(known, truth, 0.0)


def columns(U):  # the best coefficients of every column, from its known entries
    A = np.einsum("ij,ik,il->jkl", known, U, U) + 1e-9 * np.eye(rank)
    return np.linalg.solve(A, (U.T @ M).T[..., None])[..., 0].T


def misfit(U):
    V = columns(U)
    R = np.where(known, U @ V - M, 0.0)
    return 0.5 * np.sum(R**2), R @ V.T


start = np.linalg.svd(M)[0][:, :rank]
result = stiefel.minimize(misfit, start, manifold=stiefel.Grassmann(), rtol=1e-8)
found = result.x @ columns(result.x)
other = KNNImputer(n_neighbors=5).fit_transform(np.where(known, truth, np.nan))
error = lambda X: np.linalg.norm(X - truth) / np.linalg.norm(truth)
print(f"relative error: scikit-learn's KNNImputer {error(other):.2f}, low rank {error(found):.1e}")
assert result.success and error(found) < 1e-5

fig, axes = plt.subplots(1, 3, figsize=(7, 2.4), layout="constrained")
for ax, X, title in zip(
    axes, (np.where(known, M, np.nan), other, found), ("known", "KNN", "found")
):
    ax.imshow(X, cmap="RdBu", vmin=-5, vmax=5)
    ax.set(title=title, xticks=[], yticks=[])
