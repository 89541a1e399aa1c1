"""Maximally localised Wannier functions of a group of bands (Marzari and Vanderbilt).

    found = wannierize(mf)                 # a PySCF object with k-points, its occupied bands
    found.spread, found.centers, found.orbitals

    mesh = uniform_mesh((16,), 2 * np.pi)  # or a model of your own
    found = wannierize(model_overlaps(vectors, mesh))

The gauge of the bands, a unitary matrix for every k-point, is one complex stack on
`stiefel.Unitary`; the spread of the Wannier functions is minimised over it.
"""

from .mesh import Mesh, uniform_mesh
from .overlaps import Overlaps, band_overlaps, model_overlaps
from .run import Wannier, wannierize
from .spread import MeanPhases, Spread

__all__ = [
    "MeanPhases",
    "Mesh",
    "Overlaps",
    "Spread",
    "Wannier",
    "band_overlaps",
    "model_overlaps",
    "uniform_mesh",
    "wannierize",
]
