"""Ten thousand rotations in one call

Every voxel has twenty directions that were measured before and after a deformation, some of them
wrongly. The rotation that fits best in a robust norm has no closed form: 10,000 small problems,
solved together by `minimize_many`. The closed form of Kabsch for least squares is the start, and
the comparison.
"""

import matplotlib.pyplot as plt
import numpy as np

import stiefel

rng = np.random.default_rng(0)
voxels, directions = 10_000, 20

before = rng.standard_normal((voxels, directions, 3))
truth = stiefel.SpecialOrthogonal().nearest(rng.standard_normal((voxels, 3, 3)))
after = before @ truth + 0.02 * rng.standard_normal(before.shape)
after[:, :4] = rng.standard_normal((voxels, 4, 3))  # outliers


def fun(R, index):
    """Σ √(‖a R − b‖² + δ²): wrong directions pull with a bounded force."""
    residual = before[index] @ R - after[index]
    length = np.sqrt(np.sum(residual**2, axis=2, keepdims=True) + 0.05**2)
    return np.sum(length, axis=(1, 2)), before[index].mT @ (residual / length)


# The start: the best rotation in the least-squares sense (Kabsch).
start = stiefel.SpecialOrthogonal().nearest(before.mT @ after)
result = stiefel.minimize_many(
    fun, start, manifold=stiefel.SpecialOrthogonal(), rtol=1e-5, progress=True
)
print(result)

angle = np.rad2deg(np.arccos(np.clip((np.sum(truth * result.x, axis=(1, 2)) - 1) / 2, -1, 1)))
first = np.rad2deg(np.arccos(np.clip((np.sum(truth * start, axis=(1, 2)) - 1) / 2, -1, 1)))
print(f"median error {np.median(first):.2f}° before, {np.median(angle):.2f}° after")
assert result.success.all()
assert np.median(angle) < 0.2 * np.median(first)

bins = np.geomspace(0.05, 100, 60)
plt.hist(first, bins, alpha=0.6, label="closed form (Kabsch, least squares)")
plt.hist(angle, bins, alpha=0.6, label="robust fit")
plt.xscale("log")
plt.xlabel("error of the rotation (degrees)")
plt.ylabel("voxels")
plt.legend()
