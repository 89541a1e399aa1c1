"""Thomson's problem: charges on a sphere

Where do N equal charges on a sphere come to rest? The point is an array of N unit vectors, a
stack on `Sphere()`. There are many local minima, so several starts are tried. The usual way with
SciPy is to write the points in angles, which are singular at the poles.
"""

import matplotlib.pyplot as plt
import numpy as np
import scipy.optimize

import stiefel

N = 24
KNOWN = 223.347074  # the lowest energy in the literature


def energy(P):
    D = P[:, None] - P
    r = np.sqrt(np.sum(D**2, axis=-1) + np.eye(N))
    forces = D / r[..., None] ** 3
    return (np.sum(1 / r) - N) / 2, -forces.sum(axis=1)


start = stiefel.Sphere().random(N, 3, seed=0)
result = stiefel.minimize(energy, start, manifold=stiefel.Sphere(), starts=8)
assert result.success and abs(result.fun - KNOWN) < 1e-5


def in_angles(a):
    t, p = a.reshape(2, N)
    return energy(np.stack([np.sin(t) * np.cos(p), np.sin(t) * np.sin(p), np.cos(t)], axis=1))[0]


angles = np.concatenate([np.arccos(start[:, 2]), np.arctan2(start[:, 1], start[:, 0])])
scipy_run = scipy.optimize.minimize(in_angles, angles, method="L-BFGS-B")
print(f"lowest energy {result.fun:.6f} with {result.nfev} evaluations from 8 starts")
print(f"scipy in angles, one start: {scipy_run.fun:.6f} with {scipy_run.nfev} evaluations")

P = result.x
D = np.linalg.norm(P[:, None] - P, axis=-1)
fig = plt.figure(figsize=(3.8, 3.8), layout="constrained")
ax = fig.add_subplot(projection="3d")
for a, b in np.argwhere(np.triu(D < 1.3 * np.sort(D, axis=1)[:, 1].min(), 1)):
    ax.plot(*P[[a, b]].T, color="0.6", lw=1)
ax.scatter(*P.T, color="C0", s=40, depthshade=True)
ax.set(title=f"{N} charges")
ax.set_box_aspect((1, 1, 1))
ax.axis("off")
