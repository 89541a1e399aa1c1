"""Five localised functions that nearly span what five eigenfunctions span.

A second argument is a file for the picture: ``python compressed_modes.py modes.png``.
"""

import sys

import numpy as np
import scipy.linalg

from stiefel.applications.compressed_modes import (
    compressed_modes,
    hamiltonian,
    largest_angle,
    plot,
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
    if mu == 50.0 and len(sys.argv) > 1:
        plot(modes, sys.argv[1])

assert angle < 1e-2
