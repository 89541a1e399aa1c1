"""Weighted principal components

Every entry of the data has its own noise level. The components that fit best in the weighted sense
have no closed form: for given components W the scores of each row are a small least-squares
problem, and W itself is found by `minimize`. The value depends on the span of W only, so that the
manifold is `Grassmann()`. scikit-learn's `PCA` knows nothing of the noise levels.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA

import stiefel

rng = np.random.default_rng(0)
truth = stiefel.random_point(10, 2, seed=1)
clean = (rng.standard_normal((150, 2)) * [4.0, 3.0]) @ truth.T
noise = np.exp(rng.normal(0.0, 1.2, clean.shape))  # a standard deviation for every entry
data = clean + noise * rng.standard_normal(clean.shape)
weights = 1.0 / noise**2


def misfit(W):
    A = np.einsum("ij,jk,jl->ikl", weights, W, W)
    Z = np.linalg.solve(A, ((weights * data) @ W)[..., None])[..., 0]  # the best scores
    R = Z @ W.T - data
    return np.sum(weights * R**2), 2 * (weights * R).T @ Z


plain = PCA(2).fit(data).components_.T
result = stiefel.minimize(misfit, plain, manifold=stiefel.Grassmann())
assert result.success

angle = lambda W: np.degrees(stiefel.Grassmann().distance(W, truth))
print(f"angle to the true plane: PCA {angle(plain):.1f}°, weighted {angle(result.x):.1f}°")
assert angle(result.x) < 0.5 * angle(plain)

fig, ax = plt.subplots(figsize=(4.2, 3.6), layout="constrained")
for W, label, colour in ((plain, "PCA", "0.6"), (result.x, "weighted", "C0")):
    ax.plot((truth @ truth.T).ravel(), (W @ W.T).ravel(), "o", ms=4, color=colour, label=label)
ax.axline((0, 0), slope=1, color="k", lw=0.8)
ax.set(xlabel="entries of the true projector", ylabel="found", title="Weighted PCA")
ax.legend()
