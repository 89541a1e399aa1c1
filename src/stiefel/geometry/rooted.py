"""The constraint XᴴBX = I with a dense B, in a variable without B: Z = UX with B = UᴴU.

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
    def _triangle(self) -> tuple[Any, Any, Any]:
        """BLAS's solver, U, and its conjugate."""
        from scipy.linalg import get_blas_funcs

        found = triangle(self.manifold)
        assert found is not None
        U = np.asfortranarray(np.triu(found))
        return get_blas_funcs("trsm", (U,)), U, U.conj() if U.dtype.kind == "c" else U

    # -- the border ------------------------------------------------------------------------

    def completed(self, X: Array) -> Array:
        """Z = UX of a point of the user's."""
        return np.ascontiguousarray(self._triangle[1] @ X)

    def seen(self, Z: Array) -> Array:
        """The user's point X = U⁻¹Z."""
        solve, U, _ = self._triangle
        return _transposed(lambda Zt: solve(1.0, U, Zt, side=1, trans_a=1), Z, U)

    def ambient(self, Z: Array, G: Array) -> Array:
        """A cotangent as `constraint` has it."""
        return self.seen(G)

    def inward(self, E: Array) -> Array:
        """U⁻ᴴE, the Euclidean gradient by Z."""
        solve, U, conjugate = self._triangle
        return _transposed(lambda Et: solve(1.0, conjugate, Et, side=1), E, U)

    # -- what is said of the user's arrays ---------------------------------------------------

    def project(self, X: Array, G: Array) -> Array:
        return super().project(X, self.inward(G))  # type: ignore[misc,no-any-return]

    def gradient(self, X: Array, E: Array) -> Lowered:
        return super().gradient(X, self.inward(E))  # type: ignore[misc,no-any-return]

    def defect(self, X: Array) -> float:
        """That of the user's point."""
        return self.manifold.defect(self.seen(X))


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


def triangle(manifold: Stiefel) -> Array | None:
    """U of a bound manifold whose B is dense and was factorised in NumPy, above other numbers."""
    weights = getattr(manifold.kernels, "weights", None)
    if not isinstance(weights, tuple) or not isinstance(weights[0], np.ndarray):
        return None
    factor, lower = weights[1]
    return None if lower else factor


def rooted(manifold: Stiefel, X: Array) -> Rooted | None:
    """The manifold of Z; None where there is none: for stacks, ranks, other forms of B."""
    kind = ROOTED.get(type(manifold))
    k = manifold.kernels_at(X)
    if kind is None or manifold.B is None or not k.fuses or not k.whole or X.ndim != 2:
        return None
    if X.shape[-1] < 2 or X.dtype.char not in "dD" or triangle(manifold) is None:
        return None
    return kind(manifold=manifold, kernels=kernels_for(X))


def _transposed(solve: Any, A: Array, U: Array) -> Array:
    """``solve`` for the columns of A, as rows; a real one sees twice as many real columns."""
    real = U.dtype.kind != "c" and A.dtype.kind == "c"
    A = np.ascontiguousarray(A)
    found = solve((A.view(U.dtype) if real else A).T).T
    return found.view(A.dtype) if real else found
