"""Independent components: the rotation of whitened mixtures that is furthest from Gaussian."""

import numpy as np

import stiefel

rng = np.random.default_rng(0)
sources = rng.laplace(size=(3, 4000))
X = rng.standard_normal((3, 3)) @ sources
X -= X.mean(axis=1, keepdims=True)
values, vectors = np.linalg.eigh(np.cov(X))
Z = (vectors / np.sqrt(values)).T @ X  # whitened


def contrast(W):  # Σ log cosh of the components, as in FastICA
    Y = W.T @ Z
    return np.mean(np.log(np.cosh(Y)), axis=1).sum(), Z @ np.tanh(Y).T / Z.shape[1]


result = stiefel.minimize(contrast, np.eye(3), manifold=stiefel.Orthogonal(), rtol=1e-5)

print(result)
match = np.abs(np.corrcoef(result.x.T @ Z, sources)[:3, 3:])
assert result.success
assert np.allclose(np.sort(match.max(axis=0)), 1, atol=0.02)  # each source is found
