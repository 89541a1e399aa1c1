"""Helpers for runs on many ranks; ``stiefel.minimize(..., comm=MPI.COMM_WORLD)`` is the call.

Needs mpi4py: ``pip install 'stiefel[mpi]'``.
"""

from .geometry.layout import Distributed, Replicated
from .interop.mpi.ranks import RankError
from .interop.mpi.rows import gather, nearest, random_point, row_range, scatter

__all__ = [
    "Distributed",
    "RankError",
    "Replicated",
    "gather",
    "nearest",
    "random_point",
    "row_range",
    "scatter",
]
