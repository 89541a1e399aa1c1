"""Which leaves of a point are spread over the ranks of a communicator, and which are copied.

By default matrices with orthonormal columns are tall and their rows live on the ranks, while
free parameters and rotations are small and every rank holds them in full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stiefel.types import Manifold


@dataclass(frozen=True)
class Distributed:
    """The rows of this leaf live on the ranks, whatever its manifold's habit."""

    manifold: Manifold


@dataclass(frozen=True)
class Replicated:
    """Every rank holds this leaf in full, whatever its manifold's habit."""

    manifold: Manifold


def layout(factor: Manifold) -> tuple[Any, bool]:
    """(the manifold itself, whether its rows live on the ranks)."""
    if isinstance(factor, (Distributed, Replicated)):
        return factor.manifold, isinstance(factor, Distributed)
    return factor, getattr(factor, "rows_on_ranks", True)
