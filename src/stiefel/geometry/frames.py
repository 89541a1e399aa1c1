"""Which points the solvers keep in another form than the user's, and how the user sees them."""

from __future__ import annotations

from operator import is_
from typing import Any

from stiefel.types import Array, Manifold

from .framed import Framed
from .product import Product
from .rooted import Rooted, rooted
from .rotations import Orthogonal, SpecialOrthogonal, Unitary
from .stiefel import Stiefel
from .turns import PLANES, FramedRotations

HALF = 30  # columns of an X with 2k = n up to which operators are learned (`solvers.row_model`)
FRAMED_MANIFOLDS = (Stiefel, SpecialOrthogonal, Orthogonal, Unitary)


def framed(geometry: Manifold, X: Any) -> tuple[Any, Any]:
    """The geometry and the point of the solvers: frames of nearly square X, and X without its B.

    The point is X itself where no matrix is changed.
    """
    if isinstance(geometry, Product):
        pairs = [framed(factor, x) for factor, x in zip(geometry.factors, X, strict=True)]
        factors, points = zip(*pairs, strict=True)
        return type(geometry)(factors), X if all(map(is_, points, X)) else points
    if not isinstance(geometry, Stiefel):
        return geometry, X
    if (without_B := rooted(geometry, X)) is not None:
        return without_B, without_B.completed(X)
    if not _fits(geometry, X):
        return geometry, X
    kind = FramedRotations if _is_small(geometry, X) else Framed
    made = kind(geometry, X.shape[-2], X.shape[-1])
    return made, made.completed(X)


def _is_small(manifold: Stiefel, X: Array) -> bool:
    square = X.shape[-1] == X.shape[-2]
    return square and X.shape[-1] in PLANES and not manifold.kernels_at(X).is_complex(X)


def _fits(manifold: Stiefel, X: Array) -> bool:
    """Without a constraint's matrix, rows elsewhere, or functions of a class of the user's."""
    if type(manifold) not in FRAMED_MANIFOLDS:
        return False
    (n, k), here = X.shape[-2:], manifold.B is None and manifold.kernels_at(X).whole
    return here and k > 1 and (2 * k > n or (2 * k == n and k > HALF))


def seen(geometry: Manifold, X: Any) -> Any:
    """The user's point."""
    if isinstance(geometry, Product):
        return tuple(map(seen, geometry.factors, X))
    return geometry.seen(X) if isinstance(geometry, Framed | Rooted) else X


def ambient(geometry: Manifold, X: Any, G: Any) -> Any:
    """A cotangent at X as arrays of the shape of the user's point."""
    if isinstance(geometry, Product):
        return tuple(map(ambient, geometry.factors, X, G))
    return geometry.ambient(X, G) if isinstance(geometry, Framed | Rooted) else G


def cotangent_shapes(geometry: Manifold, X: Any) -> list[tuple[int, ...]]:
    """The shapes of the arrays of a cotangent at X."""
    if isinstance(geometry, Product):
        return [cotangent_shapes(f, x)[0] for f, x in zip(geometry.factors, X, strict=True)]
    if isinstance(geometry, FramedRotations):
        return [(*X.shape[:-2], len(PLANES[geometry.columns]))]
    return [(*X.shape[:-1], geometry.columns) if isinstance(geometry, Framed) else tuple(X.shape)]
