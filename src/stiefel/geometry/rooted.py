"""The constraint XᴴBX = I with a dense or small B, in a variable without B: Z = UX with B = UᴴU.

Z has orthonormal columns, and the geometry of `constraint` at X is the standard one at Z.  A method
takes the same steps in both variables, up to rounding; but in Z no Gram matrix needs B, and a step
has the kernels of a matrix without one.  What is left of B is one solve with the triangle U where
the user sees a point, and one with Uᴴ where a gradient comes in:

    X = U⁻¹Z,      ∇f(U⁻¹Z) = U⁻ᴴ∇f(X)

The defect of XᴴBX is then one of rounding in the product with B itself, eps ‖B‖‖B⁻¹‖, as it is for
every X that is computed at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from stiefel.backends.arrays import kernels_for
from stiefel.types import Array

from .grassmann import Grassmann
from .ray import Lowered
from .stiefel import Stiefel

PLAIN, ADJOINT = 0, 2  # forms of a triangle, as BLAS counts them
SMALL_SPARSE = 400  # rows up to which a sparse B is as good as a dense one: its calls cost more


@dataclass(frozen=True)
class Rooted:
    """What the manifolds of Z have beside the standard ones.

    Parameters
    ----------
    manifold : Stiefel
        That of the user's points, bound to their array library.
    """

    manifold: Stiefel = field(kw_only=True)

    @cached_property
    def _triangle(self) -> tuple[Any, Any]:
        """BLAS's solver, and U."""
        from scipy.linalg import get_blas_funcs

        U = np.asfortranarray(np.triu(triangle(self.manifold)))
        return get_blas_funcs("trsm", (U,)), U

    # -- the border ------------------------------------------------------------------------

    def completed(self, X: Array) -> Array:
        """Z = UX of a point of the user's."""
        return np.ascontiguousarray(self._triangle[1] @ X)

    def seen(self, Z: Array) -> Array:
        """The user's point X = U⁻¹Z."""
        return self._solved(Z, PLAIN)

    def ambient(self, Z: Array, G: Array) -> Array:
        """A cotangent as `constraint` has it."""
        return self._solved(G, PLAIN)

    def inward(self, E: Array) -> Array:
        """U⁻ᴴE, the Euclidean gradient by Z."""
        return self._solved(E, ADJOINT)

    def _solved(self, A: Array, form: int) -> Array:
        """U⁻¹A or U⁻ᴴA; a real U sees twice as many real columns of a complex A."""
        solve, U = self._triangle
        if U.dtype == A.dtype:
            return np.ascontiguousarray(solve(1.0, U, A, trans_a=form))
        found = solve(1.0, U, np.ascontiguousarray(A).view(U.dtype), trans_a=form)
        return np.ascontiguousarray(found).view(A.dtype)

    # -- what is said of the user's arrays ---------------------------------------------------

    def project(self, X: Array, G: Array) -> Array:
        return super().project(X, self.inward(G))  # type: ignore[misc,no-any-return]

    def gradient(self, X: Array, E: Array) -> Lowered:
        return super().gradient(X, self.inward(E))  # type: ignore[misc,no-any-return]

    def defect(self, X: Array) -> float:
        """That of the user's point."""
        return self.manifold.defect(self.seen(X))

    def allowed_defect(self, X: Array) -> float:
        return self.manifold.allowed_defect(self.seen(X))


@dataclass(frozen=True)
class RootedStiefel(Rooted, Stiefel):
    """`Stiefel` in Z."""


@dataclass(frozen=True)
class RootedSpan(Rooted, Grassmann):
    """`Grassmann` in Z."""

    def vertical_part(self, X: Array, G: Array) -> float:
        return super().vertical_part(X, self.inward(G))


ROOTED: dict[type, type[RootedStiefel | RootedSpan]] = {
    Stiefel: RootedStiefel,
    Grassmann: RootedSpan,
}


def has_triangle(manifold: Stiefel) -> bool:
    """Whether B of a bound manifold was factorised by NumPy, or is sparse and small."""
    weights = getattr(manifold.kernels, "weights", None)
    if not isinstance(weights, tuple) or weights[0] is None:
        return False
    return isinstance(weights[0], np.ndarray) or weights[0].shape[0] <= SMALL_SPARSE


def triangle(manifold: Stiefel) -> Array:
    """U, above other numbers."""
    B, factors = manifold.kernels.weights  # type: ignore[union-attr]
    if isinstance(B, np.ndarray):
        factor, lower = factors
        return factor.conj().T if lower else factor
    return np.linalg.cholesky(B.toarray()).conj().T


def rooted(manifold: Stiefel, X: Array) -> Rooted | None:
    """The manifold of Z; None where there is none: for stacks, ranks, other forms of B."""
    kind = ROOTED.get(type(manifold))
    k = manifold.kernels_at(X)
    if kind is None or manifold.B is None or not k.fuses or not k.whole or X.ndim != 2:
        return None
    if X.shape[-1] < 2 or X.dtype.char not in "dD" or not has_triangle(manifold):
        return None
    return kind(manifold=manifold, kernels=kernels_for(X))
