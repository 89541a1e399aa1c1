"""Sparse principal components: variance kept, minus a smoothed sum of absolute loadings."""

import numpy as np

import stiefel

rng = np.random.default_rng(0)
data = rng.standard_normal((300, 12))
data[:, :4] += 3 * rng.standard_normal((300, 1))  # two groups of variables that go together
data[:, 4:8] += 2 * rng.standard_normal((300, 1))
C = np.cov(data.T)
penalty, smoothing = 2.0, 1e-3


def fun(W):
    size = np.sqrt(W * W + smoothing**2)
    return penalty * size.sum() - np.sum(W * (C @ W)), penalty * W / size - 2 * C @ W


result = stiefel.minimize(fun, np.linalg.eigh(C)[1][:, -2:])

print(np.round(result.x, 2))
assert result.success
assert np.all(np.abs(result.x[8:]) < 0.01)  # noise variables have no loadings
