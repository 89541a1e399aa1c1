"""Robust principal components

Ordinary principal components minimise the sum of *squared* distances to a subspace, and a few
outliers turn it. Here the sum of distances itself is minimised, smoothed near zero. The problem
is no eigenvalue problem any more and may have several minima: `starts=4` tries four starts, of
which the first is the ordinary answer.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA

import stiefel

rng = np.random.default_rng(1)
direction = np.array([np.cos(0.5), np.sin(0.5)])
data = rng.normal(0, 3, (100, 1)) * direction + rng.normal(0, 0.3, (100, 2))
data[:12] = rng.normal(0, 1, (12, 2)) + [-4.0, 8.0]  # outliers
data -= np.median(data, axis=0)


def distances(W):
    R = data - (data @ W) @ W.T
    length = np.sqrt(np.sum(R**2, axis=1) + 0.1**2)
    S = R / length[:, None]
    return length.sum(), -(S.T @ (data @ W) + data.T @ (S @ W))


plain = PCA(1).fit(data).components_.T
result = stiefel.minimize(distances, plain, manifold=stiefel.Grassmann(), starts=4)
assert result.success

error = lambda W: np.degrees(np.arccos(min(1.0, abs(direction @ W[:, 0]))))
print(f"error of the direction: PCA {error(plain):.1f}°, robust {error(result.x):.1f}°")
assert error(result.x) < 3 < error(plain)

fig, ax = plt.subplots(figsize=(4.4, 3.4), layout="constrained")
ax.plot(*data.T, ".", color="0.6")
ax.axline((0, 0), plain[:, 0], color="C3", ls="--", label="PCA")
ax.axline((0, 0), result.x[:, 0], color="C0", label="robust")
ax.set(title="Robust PCA", aspect="equal")
ax.legend()
