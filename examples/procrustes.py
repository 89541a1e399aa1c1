"""Procrustes alignment, with both components

Which orthogonal matrix turns the points A onto the points B? Orthogonal matrices of determinant
+1 and −1 are two components, and no curve leads from one to the other. `Orthogonal()` stays in the
component of its start, so both are tried; `result.determinant` says which one it was. With
`starts=2` the library does the same by itself.

For plain least squares there is a closed form, `scipy.linalg.orthogonal_procrustes`. The robust
version below has none.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.linalg import orthogonal_procrustes

import stiefel

rng = np.random.default_rng(1)
t = np.linspace(0, 5, 40)
A = np.stack([np.cos(t) * (1 + t / 5), np.sin(t)], axis=1)
reflection = np.array([[np.cos(1), np.sin(1)], [np.sin(1), -np.cos(1)]])
B = A @ reflection + 0.05 * rng.standard_normal(A.shape)
B[:5] += [2.5, -2.0]  # wrong correspondences
group = stiefel.Orthogonal()


def misfit(Q, delta=0.05):
    R = A @ Q - B
    length = np.sqrt(np.sum(R**2, axis=1, keepdims=True) + delta**2)
    return length.sum(), A.T @ (R / length)


starts = (np.eye(2), group.reflected(np.eye(2)))
runs = [stiefel.minimize(misfit, Q0, manifold=group) for Q0 in starts]
result = min(runs, key=lambda run: run.fun)
closed, _ = orthogonal_procrustes(A, B)
error = lambda Q: np.linalg.norm(Q - reflection)
print("misfit by determinant:", {run.determinant: round(run.fun, 3) for run in runs})
print(f"error: scipy's closed form {error(closed):.3f}, robust {error(result.x):.3f}")
assert result.success and result.determinant == -1
assert error(result.x) < 0.3 * error(closed)

fig, ax = plt.subplots(figsize=(4.4, 3.4), layout="constrained")
ax.plot(*B.T, "k.", label="B")
ax.plot(*(A @ closed).T, "--", color="C3", label="least squares")
ax.plot(*(A @ result.x).T, color="C0", label="robust")
ax.set(title="Procrustes", aspect="equal")
ax.legend()
