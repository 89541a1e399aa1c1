"""Nonnegative components, and a dictionary

This recipe adds bounds and an L1 term to XᵀX = I. Three bumps with disjoint supports are seen
through noise: ordinary components mix them, nonnegative ones find them. The second part finds the
rotation in which data are sparsest.
"""

import matplotlib.pyplot as plt
import numpy as np

import stiefel

# Three bumps with disjoint supports, seen through noise: nonnegative components find them.
x = np.linspace(0, 1, 60)
bumps = np.stack([np.maximum(0.15 - np.abs(x - c), 0) for c in (0.17, 0.5, 0.83)], axis=1)
bumps /= np.linalg.norm(bumps, axis=0)
noise = np.random.default_rng(0).standard_normal((60, 60)) / np.sqrt(60)
A = 8 * bumps @ bumps.T + 0.4 * (noise + noise.T)


def fun(X):
    AX = A @ X
    return -float(np.vdot(X, AX)), -2.0 * AX


free = stiefel.minimize(fun, stiefel.random_point(60, 3, seed=1))
parts = stiefel.minimize(fun, stiefel.random_point(60, 3, seed=1), bounds=(0, None))
print(parts)
print(f"stationarity {parts.stationarity:.1e}, violation {parts.constraint_violation:.1e}")
overlap = np.abs(parts.x.T @ bumps).max(axis=0)
print("overlap with the bumps:", overlap.round(3))
assert parts.success
assert parts.x.min() > -1e-6
assert overlap.min() > 0.9

# An orthogonal dictionary: the rotation in which the data are sparsest.
rng = np.random.default_rng(1)
Q = stiefel.random_point(12, 12, seed=2, manifold=stiefel.SpecialOrthogonal())
Y = Q @ (rng.standard_normal((12, 300)) * (rng.uniform(size=(12, 300)) < 0.3))
learned = stiefel.minimize(
    lambda X: (0.0, np.zeros_like(X)),
    stiefel.random_point(12, 12, seed=3, manifold=stiefel.SpecialOrthogonal()),
    nonsmooth=stiefel.L1(1 / 300, of=Y.T),
    manifold=stiefel.SpecialOrthogonal(),
)
error = np.abs(1 - np.abs(Q.T @ learned.x).max(axis=0)).max()
print(f"dictionary: {learned.nfev} evaluations, error {error:.1e}")
assert error < 1e-6

figure = plt.figure(figsize=(8, 3), layout="constrained")
for axes, X, title in zip(
    figure.subplots(1, 2), (free.x, parts.x), ("orthonormal", "orthonormal and X ≥ 0")
):
    axes.plot(x, X)
    axes.set(xlabel="x", title=title)
