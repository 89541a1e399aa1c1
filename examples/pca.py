"""Principal components: the orthonormal W that keeps the most of the variance of the data."""

import numpy as np

import stiefel

data = np.random.default_rng(0).standard_normal((200, 8)) * np.arange(1.0, 9.0)
data -= data.mean(axis=0)
C = data.T @ data / len(data)

W0 = stiefel.random_point(8, 2, seed=0)
result = stiefel.minimize(lambda W: (-np.sum(W * (C @ W)), -2 * C @ W), W0)

print(result)
assert result.success
assert np.isclose(-result.fun, np.linalg.eigvalsh(C)[-2:].sum())
