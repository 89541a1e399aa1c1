"""Averages of rotations, with outliers

The mean of rotations minimises the sum of squared distances, and SciPy has it:
`Rotation.mean`. Outliers pull it away. The *median* minimises the sum of the distances
themselves. It has no closed form, and is one call on `SpecialOrthogonal()`.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial.transform import Rotation

import stiefel

truth = Rotation.from_rotvec([0.3, -0.8, 0.5])
noise = Rotation.from_rotvec(0.1 * np.random.default_rng(0).standard_normal((60, 3)))
data = (truth * noise).as_matrix()
data[:15] = Rotation.from_rotvec([[2.5, 0.5, 0.0]] * 15).as_matrix()  # outliers


def total(R, delta=0.02):
    difference = R - data
    length = np.sqrt(np.sum(difference**2, axis=(1, 2), keepdims=True) + delta**2)
    return length.sum(), np.sum(difference / length, axis=0)


mean = Rotation.from_matrix(data).mean().as_matrix()
result = stiefel.minimize(total, mean, manifold=stiefel.SpecialOrthogonal())
assert result.success
error = lambda R: np.degrees((truth.inv() * Rotation.from_matrix(R)).magnitude())
print(f"error: scipy's mean {error(mean):.1f}°, median {error(result.x):.1f}°")
assert error(result.x) < 0.3 * error(mean)

# %%
# A stack of rotations `(m, 3, 3)` is one point, so that thousands of medians are found in one call;
# see also the recipe about voxels.

fig = plt.figure(figsize=(4, 3.6), layout="constrained")
ax = fig.add_subplot(projection="3d")
for R, colour, size in ((data, "0.6", 0.5), (mean[None], "C3", 2.5), (result.x[None], "C0", 2.5)):
    for axis in range(3):
        for r in R:
            ax.plot(*np.stack([np.zeros(3), r[:, axis]], axis=1), color=colour, lw=size)
ax.set(title="mean (red) and median (blue)", xticks=[], yticks=[], zticks=[])
