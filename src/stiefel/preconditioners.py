"""Preconditioners to pass as ``stiefel.minimize(..., precond=...)``.

What ``precond(X, G)`` is given and gives back lives in the space of points: G is the projected
gradient as the library holds it (B⁻¹ times the Euclidean gradient, projected, under a constraint
XᴴBX = I), and the W returned is any array of the shape of X.  The library projects W, moves along
the tangent φ(W) = (I + XXᴴB)W, uses ⟨G, W⟩_g* as the squared norm in its step and restart tests,
and takes the gradient instead where that is not positive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from stiefel.backends.arrays import describe, is_array, kernels_for
from stiefel.backends.base import Kernels
from stiefel.types import Array, LibraryManifold

from .geometry import Grassmann, Stiefel


@dataclass(frozen=True)
class QuadraticPreconditioner:
    """The tangent T that minimises −⟨G, T⟩ + ½⟨T, P T⟩, as a direction of ascent.

    P is any Hermitian positive definite n×n matrix, given by its inverse.  With a Hermitian k×k
    multiplier S (any k×k one on Grassmann) the solution is T = P⁻¹(BG − BX S), where

        M S + S M = 2 herm(Xᴴ B P⁻¹ B G),     M = Xᴴ B P⁻¹ B X;

    two applications of P⁻¹ to n×k matrices, 8nk² and one k×k eigenproblem.

    Parameters
    ----------
    inverse
        ``inverse(Y)`` = P⁻¹Y for an array Y of the shape of X.  If P changes with X, make the
        preconditioner inside of your own ``precond`` function.
    manifold
        The manifold of the problem: it says what a tangent is.
    """

    inverse: Callable[[Array], Array]
    manifold: LibraryManifold = field(default_factory=Stiefel)

    def __call__(self, X: Array, G: Array) -> Array:
        k = self.manifold.kernels_at(X)
        PX, PG = self.inverse(k.weigh(X)), self.inverse(k.weigh(G))
        small = _horizontal if isinstance(self.manifold, Grassmann) else _tangent
        T = k.subtract(PG, PX, small(k, X, PX, PG))
        return self.manifold.lower_index(X, T)


def diagonal(d: Array, manifold: LibraryManifold | None = None) -> QuadraticPreconditioner:
    """The quadratic preconditioner for P = diag(d): d is a vector of n positive numbers."""
    if not is_array(d) or len(d.shape) != 1:
        raise TypeError(f"d is {describe(d)}; expected a vector of n positive numbers")
    if not float(kernels_for(d).xp.min(d)) > 0:
        raise ValueError("d has an entry that is not positive; expected the diagonal of a P > 0")
    column = d[:, None]
    return QuadraticPreconditioner(lambda Y: Y / column, manifold or Stiefel())


def _tangent(k: Kernels, X: Array, PX: Array, PG: Array) -> Array:
    """S = Sᴴ with M S + S M = 2 herm(XᴴB PG), through the eigenvectors of M."""
    M, R = k.hermitian(k.gram(X, PX)), k.hermitian(k.gram(X, PG))
    values, U = k.xp.linalg.eigh(M)
    sums = k.xp.astype(0.5 * (values[..., :, None] + values[..., None, :]), R.dtype)
    return U @ ((k.adjoint(U) @ R @ U) / sums) @ k.adjoint(U)


def _horizontal(k: Kernels, X: Array, PX: Array, PG: Array) -> Array:
    return k.solve(k.gram(X, PX), k.gram(X, PG))
