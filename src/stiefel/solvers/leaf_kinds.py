"""What φ is on the leaves of a tree, for kernels that take all of them in one call.

The numbers are those of `src/compiled/leaves.c`.
"""

from __future__ import annotations

import math

from stiefel.geometry.euclidean import FlatMetric
from stiefel.geometry.framed import Framed
from stiefel.geometry.metric import CANONICAL
from stiefel.geometry.product import Product
from stiefel.geometry.real_vector import is_real_vector
from stiefel.geometry.sphere import Sphere
from stiefel.geometry.stiefel import Stiefel
from stiefel.geometry.turns import FramedRotations
from stiefel.types import Array, Leaves, Manifold

SMALL_TREE = 8192  # entries of a tree whose leaves share one array: calls cost more than copies
# The identity; a matrix with orthonormal columns or a stack of them, and a span; coordinates of a
# frame, and of rotations; unit vectors one after the other.
FLAT, MATRIX, SPAN, FRAMED, TURNS, UNITS = range(6)


def leaf_kinds(geometry: Product, X: Leaves) -> tuple[int, ...] | None:
    """The kinds of all leaves of a small tree, found once; None where one has no kernels."""
    facts = geometry.facts
    if "kinds" not in facts:
        kinds = tuple(_kind(factor, x) for factor, x in zip(geometry.factors, X, strict=True))
        small = None not in kinds and sum(x.size for x in X) <= SMALL_TREE
        facts["kinds"] = kinds if small else None
        facts["sizes"] = tuple(map(matrices_of, kinds, X))
    return facts["kinds"]  # type: ignore[no-any-return]


def has_stacks(geometry: Product) -> bool:
    """Whether matrices of a leaf have scales of their own; after `leaf_kinds`."""
    return max(geometry.facts["sizes"]) > 1


def stack_kind(geometry: Manifold, X: Array) -> int | None:
    """The kind of a small stack of matrices, as of the one leaf of a tree."""
    if X.ndim < 3 or X.size > SMALL_TREE:
        return None
    kind = _kind(geometry, X)
    return kind if kind in (MATRIX, SPAN) else None


def matrices_of(kind: int | None, x: Array) -> int:
    """How many parts of a leaf have a scale of their own."""
    return math.prod(x.shape[:-2]) if kind in (MATRIX, SPAN) else 1


def _kind(factor: Manifold, x: Array) -> int | None:
    """None also for a class of the user's with a φ of its own."""
    k, kind = getattr(factor, "kernels", None), type(factor)
    if k is None or k.compiled is None or x.dtype.char not in "dD" or not x.dtype.isnative:
        return None
    if isinstance(factor, Framed):
        return TURNS if isinstance(factor, FramedRotations) else FRAMED if x.ndim == 2 else None
    raised = getattr(kind, "raise_onto", None)
    if raised is FlatMetric.raise_onto:
        return FLAT
    if not isinstance(factor, Stiefel) or raised not in (Stiefel.raise_onto, Sphere.raise_onto):
        return None
    if is_real_vector(k, x):
        return FLAT
    if factor.has_plain_metric(x):
        return None if factor.learns else UNITS  # columns of a stack have scales of their own
    if x.ndim < 2 or x.shape[-1] == 1 or kind.ray_along is not Stiefel.ray_along:
        return None
    if x.ndim > 2 and not (factor.learns and x.size):
        return None
    return SPAN if factor.rotation_left_out(CANONICAL) == 1.0 else MATRIX
