"""Wannier functions of a large cell

The problem is the lowest band of a periodic potential in a large cell. Its eigenfunctions extend
over the whole cell. The rotation of them that minimises the spread (Marzari and Vanderbilt; at one
k-point a joint diagonalisation of cos and sin of the position) gives one localised function for
each well. In one dimension there is a shortcut, the eigenvectors of the projected position
operator, which this recipe compares with; in two and three dimensions there is none.
"""

import matplotlib.pyplot as plt
import numpy as np
import scipy.linalg

import stiefel

n, wells = 240, 8
x = np.arange(n) * wells / n
kinetic = n**2 / wells**2 / 2
H = np.diag(2 * kinetic - 12 * np.cos(2 * np.pi * x)) - kinetic * (
    np.roll(np.eye(n), 1, 0) + np.roll(np.eye(n), -1, 0)
)
Psi = scipy.linalg.eigh(H, subset_by_index=(0, wells - 1))[1]
phase = 2 * np.pi * x / wells
M = np.stack([Psi.T @ (f(phase)[:, None] * Psi) for f in (np.cos, np.sin)])


def spread(U):  # −Σ_i |⟨w_i| e^{iφ} |w_i⟩|²
    MU = M @ U
    diagonal = np.sum(U * MU, axis=1, keepdims=True)
    return -np.sum(diagonal**2), -4 * np.sum(diagonal * MU, axis=0)


result = stiefel.minimize(spread, np.eye(wells), manifold=stiefel.Orthogonal(), starts=3)
Z = M[0] + 1j * M[1]
shortcut = scipy.linalg.schur(Z, output="complex")[1]
best = -np.sum(np.abs(np.diag(shortcut.conj().T @ Z @ shortcut)) ** 2)
print(f"Σ|⟨e^iφ⟩|² of {wells} functions: eigenfunctions {-spread(np.eye(wells))[0]:.5f}, "
      f"projected position {-best:.5f}, minimize {-result.fun:.5f}")  # fmt: skip
assert result.success and result.fun <= best + 1e-4

fig, axes = plt.subplots(2, 1, figsize=(5.6, 3.4), layout="constrained", sharex=True)
for ax, functions, title in zip(
    axes, (Psi, Psi @ result.x), ("eigenfunctions", "Wannier functions")
):
    ax.plot(x, functions, lw=1)
    ax.set(title=title, yticks=[])
axes[1].set_xlabel("x")
