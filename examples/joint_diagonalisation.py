"""Joint diagonalisation: separating sources by their spectra

The whitened mixtures of uncorrelated sources have covariances at several delays that one rotation
makes diagonal, all at once. `JointDiagonalizer` finds it (the method is known as SOBI). The
classical shortcut, AMUSE, takes the eigenvectors of a single delay, and depends on which one.
"""

import matplotlib.pyplot as plt
import numpy as np

from stiefel.applications.data import JointDiagonalizer

rng = np.random.default_rng(2)
t = np.arange(3000)
sources = np.stack([np.sin(0.11 * t), np.sin(0.023 * t + 1), np.sin(0.057 * t + 2)])
sources = sources + 0.8 * rng.standard_normal(sources.shape)
X = rng.standard_normal((3, 3)) @ sources
values, vectors = np.linalg.eigh(np.cov(X))
Z = (vectors / np.sqrt(values)).T @ (X - X.mean(axis=1, keepdims=True))

C = np.stack([Z[:, d:] @ Z[:, :-d].T / t.size for d in range(1, 40)])
C = (C + C.mT) / 2
model = JointDiagonalizer().fit(C)
V = model.components_.T
single = np.linalg.eigh(C[0])[1]
match = lambda Y: np.abs(np.corrcoef(Y, sources)[:3, 3:]).max(axis=0)
print("correlation with the sources, one delay (AMUSE):", match(single.T @ Z).round(3))
print("correlation with the sources, 39 delays:        ", match(V.T @ Z).round(3))
assert match(V.T @ Z).min() > match(single.T @ Z).min()

fig, axes = plt.subplots(1, 2, figsize=(5.4, 2.8), layout="constrained")
for ax, W, title in zip(axes, (single, V), ("one delay", "39 delays")):
    image = ax.imshow(np.sqrt(np.mean((W.T @ C @ W) ** 2, axis=0)), cmap="Blues", vmin=0)
    ax.set(title=title, xticks=[], yticks=[])
fig.colorbar(image, label="root mean square of VᵀCV")
