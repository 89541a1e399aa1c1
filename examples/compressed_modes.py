"""Compressed modes

Compressed modes are localised functions with exactly compact support that nearly span what the
lowest eigenfunctions span. The parameter μ weighs localisation against energy. The incumbent is
the eigenfunctions themselves, which extend over the whole box.
"""

import matplotlib.pyplot as plt
import numpy as np
import scipy.linalg

from stiefel.applications.compressed_modes import (
    compressed_modes,
    hamiltonian,
    largest_angle,
    wells,
)

shape, lengths = (120,), (50.0,)
potential = wells(shape, lengths, (5,), depth=1.0, width=1.5)

print("     μ   support   angle to the eigenfunctions   evaluations")
for mu in (5.0, 50.0, 1e3, 1e5):
    modes = compressed_modes(shape, lengths, 5, mu, potential=potential)
    H = hamiltonian(modes.objective) @ np.eye(modes.objective.n)
    angle = largest_angle(modes, scipy.linalg.eigh(H, subset_by_index=(0, 4))[1])
    print(f"{mu:6g}   {modes.extents().mean():7.2f}   {angle:27.1e}   {modes.evaluations:11d}")
    if mu == 50.0:
        shown = modes.functions

assert angle < 1e-2

eigenfunctions = scipy.linalg.eigh(H, subset_by_index=(0, 4))[1]
fig, axes = plt.subplots(2, 1, figsize=(5.6, 3.6), layout="constrained", sharex=True)
x = np.linspace(0, lengths[0], shape[0], endpoint=False)
axes[0].plot(x, eigenfunctions, lw=1)
axes[0].set(title="eigenfunctions", yticks=[])
axes[1].plot(x, shown.T, lw=1)
axes[1].set(title="compressed modes, μ = 50", yticks=[], xlabel="x")
