"""Complex unit vectors as real ones of twice the length: the same sphere, with fewer operations.

A real vector has its real and its imaginary parts side by side, or, in unit columns, below each
other.  Real inner products are Re⟨x, y⟩, tangents and the gradient of f are the same, and a
gradient is measured as in the space around it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from stiefel.backends.host import Passage
from stiefel.types import Array, Manifold

from .sphere import Sphere
from .unit import Oblique

REAL = {"D": np.float64, "F": np.float32}


@dataclass(frozen=True)
class Doubled(Sphere):
    """Of complex unit vectors."""


def doubled(manifold: Manifold, x: Array) -> tuple[Passage, Manifold] | None:
    """How points like x go to and from real arrays, and where; None if they stay as they are."""
    if type(x) is not np.ndarray or x.dtype.char not in REAL or not x.dtype.isnative:
        return None
    kind: type = type(manifold)  # a class of the user's sees what it is given
    if kind is Sphere and getattr(manifold, "B", None) is None:
        return _side_by_side(x), Doubled()
    return (_one_below_another(x), manifold) if kind is Oblique else None


def _side_by_side(x: Array) -> Passage:
    shape, kind, real = x.shape, x.dtype, REAL[x.dtype.char]
    is_column = x.ndim > 1 and shape[-1] == 1
    whole = (*shape[:-2], 2 * shape[-2], 1) if is_column else (*shape[:-1], 2 * shape[-1])

    def inward(g: Array) -> Array:
        return np.ascontiguousarray(g).view(real).reshape(whole)

    def outward(a: Array) -> Array:
        return np.array(a, order="C").reshape(-1).view(kind).reshape(shape)

    return Passage(inward, outward)


def _one_below_another(x: Array) -> Passage:
    shape, n, kind = x.shape, x.shape[-2], x.dtype

    def inward(g: Array) -> Array:
        return np.concatenate((g.real, g.imag), axis=-2)

    def outward(a: Array) -> Array:
        made = np.empty(shape, kind)
        made.real, made.imag = a[..., :n, :], a[..., n:, :]
        return made

    return Passage(inward, outward)
