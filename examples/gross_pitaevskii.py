"""Gross–Pitaevskii: a condensate by finite differences, with a preconditioner

The ground state ψ of a trapped Bose gas minimises ½∫|∇ψ|² + ∫Vψ² + (g/2)∫ψ⁴ over ψ of norm one: a
point of `Sphere()`. The finer the grid, the worse the condition of the problem; the preconditioner
(−½Δ + shift)⁻¹, a fast sine transform, removes that. The usual method is imaginary time, which is
gradient descent with a fixed step.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.fft import dstn, idstn

import stiefel

m, box, g = 64, 12.0, 100.0
h = box / (m + 1)
x = h * np.arange(1, m + 1) - box / 2
V = 0.5 * (x[:, None] ** 2 + 1.5 * x**2) + 3 * np.exp(-(x[:, None] ** 2) - x**2)
waves = 2 / h**2 * np.sin(np.pi * np.arange(1, m + 1) / (2 * (m + 1))) ** 2
kinetic = waves[:, None] + waves  # eigenvalues of −½Δ with zero boundary values

in_waves = lambda u, factor: idstn(dstn(u.reshape(m, m), type=1) * factor, type=1).ravel()


def energy(u):  # u = h ψ has norm one
    Hu = in_waves(u, kinetic) + V.ravel() * u
    density = u**2 / h**2
    return u @ Hu + 0.5 * g * (density @ u**2), 2 * Hu + 2 * g * density * u


precond = lambda u, G: in_waves(G, 1 / (kinetic + 5.0)) / 2
start = np.exp(-0.1 * (x[:, None] ** 2 + x**2)).ravel()
start /= np.linalg.norm(start)
runs = {
    "L-BFGS": stiefel.minimize(energy, start, manifold=stiefel.Sphere(), method="lbfgs"),
    "with preconditioner": stiefel.minimize(
        energy, start, manifold=stiefel.Sphere(), method="lbfgs", precond=precond
    ),
}
u, step = start, 0.9 / kinetic.max()
for count in range(1, 1501):  # imaginary time
    u = u - step * energy(u)[1] / 2
    u /= np.linalg.norm(u)
for name, run in runs.items():
    print(f"{name:20} {run.fun:.9f} in {run.nfev} evaluations")
    assert run.success
print(f"{'imaginary time':20} {energy(u)[0]:.9f} in {count} evaluations")
best = runs["with preconditioner"]
assert best.nfev < runs["L-BFGS"].nfev and best.fun < energy(u)[0] + 1e-9

fig, axes = plt.subplots(1, 2, figsize=(6.6, 3), layout="constrained")
axes[0].imshow((best.x**2 / h**2).reshape(m, m), cmap="magma", extent=(-6, 6, -6, 6))
axes[0].set(title="density")
for name, run in runs.items():
    axes[1].semilogy(run.history["nfev"], run.history["gradient_norm"], label=name)
axes[1].set(xlabel="evaluations", title="gradient")
axes[1].legend()
