"""The average of rotations: the rotation nearest to all of them, for a whole stack at once."""

import numpy as np

import stiefel

rng = np.random.default_rng(0)
angles = 0.7 + 0.2 * rng.standard_normal(100)
data = np.moveaxis(
    np.array([[np.cos(angles), -np.sin(angles)], [np.sin(angles), np.cos(angles)]]), -1, 0
)

result = stiefel.minimize(
    lambda R: (np.sum((R - data) ** 2), 2 * np.sum(R - data, axis=0)),
    np.eye(2),
    manifold=stiefel.SpecialOrthogonal(),
)

print(result)
mean = np.angle(np.mean(np.exp(1j * angles)))
assert result.success
assert np.isclose(np.arctan2(result.x[1, 0], result.x[0, 0]), mean, atol=1e-5)
