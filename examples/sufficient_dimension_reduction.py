"""Sufficient dimension reduction

Which few linear combinations of the predictors contain all that they say about the response? The
data are cut into slices by the response. *Likelihood acquired directions* compare the covariances
within the slices with the covariance of all data; the subspace that maximises the likelihood is
found on `Grassmann()`. The classical closed form, sliced inverse regression, uses the means of the
slices only and is blind to symmetric dependence such as y = x².
"""

import matplotlib.pyplot as plt
import numpy as np
import scipy.linalg

import stiefel

rng = np.random.default_rng(0)
X = rng.standard_normal((2000, 8)) @ rng.standard_normal((8, 8))
truth = stiefel.random_point(8, 1, seed=3)
y = ((X @ truth)[:, 0] ** 2) + 0.3 * rng.standard_normal(len(X))

slices = np.array_split(np.argsort(y), 8)
total = np.cov(X.T)
within = [np.cov(X[s].T) for s in slices]


def likelihood(W):  # Σ p_s log det WᵀC_sW − log det WᵀCW
    value, gradient = 0.0, np.zeros_like(W)
    for C, share in [(total, -1.0), *((C, 1 / len(within)) for C in within)]:
        S = W.T @ C @ W
        value += share * np.linalg.slogdet(S)[1]
        gradient += 2 * share * C @ W @ np.linalg.inv(S)
    return value, gradient


start = stiefel.random_point(8, 1, seed=0)
result = stiefel.minimize(likelihood, start, manifold=stiefel.Grassmann(), starts=6)
assert result.success

means = np.cov(np.stack([X[s].mean(axis=0) for s in slices]).T)
classical = scipy.linalg.eigh(means, total)[1][:, -1:]
seen = lambda W: abs(np.corrcoef((X @ W)[:, 0], (X @ truth)[:, 0])[0, 1])
print(f"correlation with the true predictor: sliced inverse regression {seen(classical):.3f}, "
      f"likelihood {seen(result.x):.3f}")  # fmt: skip
assert seen(result.x) > 0.98 > seen(classical)

fig, axes = plt.subplots(1, 2, figsize=(6, 3), layout="constrained", sharey=True)
for ax, W, title in zip(axes, (classical, result.x), ("sliced inverse regression", "likelihood")):
    ax.plot(X @ W, y, ".", ms=2)
    ax.set(title=title, xlabel="the combination found")
axes[0].set_ylabel("response")
