"""Rotations: square orthonormal matrices of determinant one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from stiefel.backends.arrays import kernels_for
from stiefel.backends.base import Kernels, kernel
from stiefel.types import Array

from . import checks
from .stiefel import Stiefel


@dataclass(frozen=True)
class SpecialOrthogonal(Stiefel):
    """Rotations, or stacks ``(..., n, n)`` of them; unitary matrices when complex.

    O(n) has two components and no curve joins them: an optimiser started at determinant −1
    stays there.  This manifold is the component of determinant +1.
    """

    rows_on_ranks: ClassVar[bool] = False  # with comm=; see `layout`

    def nearest(self, A: Array) -> Array:
        """The rotation nearest to A (Kabsch): the smallest singular direction is reflected."""
        return _nearest_rotation(self.kernels_at(A), A)

    def check_point(self, X: Array, name: str = "X0") -> None:
        checks.check_matrix(X, name)
        if X.shape[-1] != X.shape[-2]:
            raise ValueError(
                f"{name} has shape {tuple(X.shape)}; SpecialOrthogonal() needs square matrices: "
                "use Stiefel()"
            )
        super().check_point(X, name)
        k = self.kernels_at(X)
        if not k.is_complex(X) and float(k.xp.min(k.xp.linalg.det(X))) < 0:
            raise ValueError(
                f"{name} has a matrix of determinant −1, a reflection; SpecialOrthogonal() "
                f"needs rotations: pass SpecialOrthogonal().nearest({name})"
            )


@kernel
def _nearest_rotation(k: Kernels, A: Array) -> Array:
    xp = k.xp
    U, _, Vh = xp.linalg.svd(A, full_matrices=False)
    if k.is_complex(A):
        return U @ Vh
    sign = xp.linalg.det(U @ Vh)[..., None, None]
    last = xp.arange(A.shape[-1], device=k.device(A)) == A.shape[-1] - 1
    return (U * xp.where(last, sign, xp.ones_like(sign))) @ Vh


def determinant_signs(X: Array) -> str | None:
    """'+1', '−1' or 'both signs' of a (stack of) real square X; None if X is complex."""
    k = kernels_for(X)
    if k.is_complex(X):
        return None
    determinants = k.xp.linalg.det(X)
    lowest, highest = float(k.xp.min(determinants)), float(k.xp.max(determinants))
    return "+1" if lowest > 0 else "−1" if highest < 0 else "both signs"


def determinants(tree: Any, x: Any) -> Any:
    """The signs of the determinants of real square leaves, in the structure of x.

    1.0 or −1.0, or an array of them for a stack; None for other leaves, and if all are others.
    """
    signs = tuple(_signs(leaf) for leaf in tree.flatten(x))
    if all(s is None for s in signs):
        return None
    return signs[0] if tree.is_leaf else tree.unflatten(signs)


def _signs(X: Array) -> Any:
    if len(X.shape) < 2 or X.shape[-1] != X.shape[-2] or X.shape[-1] == 1:
        return None
    k = kernels_for(X)
    if k.is_complex(X):
        return None
    signs = k.xp.sign(k.xp.linalg.det(X))
    return float(signs) if len(signs.shape) == 0 else signs
