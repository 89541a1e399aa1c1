"""Points without a problem: random ones, the nearest one, and those between and beyond two."""

from __future__ import annotations

from typing import Any

import numpy as np

from stiefel.backends.arrays import describe, kernels_for
from stiefel.geometry.checks import check_array, check_finite
from stiefel.geometry.feasibility import feasible
from stiefel.types import Array, LibraryManifold

from .geometry import Stiefel

LOST = 1e-3  # a defect that no rounding explains


def random_point(
    *shape: int,
    seed: int | np.random.Generator | None = None,
    dtype: Any = np.float64,
    like: Array | None = None,
    manifold: LibraryManifold | None = None,
) -> Array:
    """A uniformly distributed orthonormal matrix (n, k), or a stack (..., n, k) of them.

    ‖XᴴX − I‖ ≤ 10·eps·√k, as every returned point promises.

    Parameters
    ----------
    *shape : int
        The shape of the point.
    seed : int or numpy.random.Generator, optional
        The seed; the same seed gives the same point.
    dtype : dtype, optional
        A real or complex floating-point dtype, for NumPy.
    like : array, optional
        An array whose library, dtype and device the point gets.
    manifold : manifold, optional
        `Stiefel()` unless given.

    Returns
    -------
    array
        The point.

    Raises
    ------
    ValueError
        If there is no point of that shape.
    TypeError
        If the dtype is not a floating-point one.

    Examples
    --------
    >>> import numpy as np, stiefel
    >>> X = stiefel.random_point(5, 2, seed=0)
    >>> bool(np.allclose(X.T @ X, np.eye(2)))
    True
    """
    manifold = manifold or Stiefel()
    X = manifold.random(*shape, seed=seed, dtype=dtype, like=like)
    manifold.check_point(X, f"a point of shape {shape}")
    return feasible(manifold, X)


def nearest(A: Array, *, manifold: LibraryManifold | None = None) -> Array:
    """The point of the manifold nearest to A; for orthonormal matrices its polar factor.

    ‖XᴴX − I‖ ≤ 10·eps·√k, as every returned point promises.

    Parameters
    ----------
    A : array
        Finite numbers of the shape of a point.
    manifold : manifold, optional
        `Stiefel()` unless given.

    Returns
    -------
    array
        The nearest point.

    Raises
    ------
    TypeError, ValueError
        If A is not an array of finite numbers, or there is no point of its shape.

    Examples
    --------
    >>> import numpy as np, stiefel
    >>> stiefel.nearest(np.array([[3.0, 0.0], [0.0, 2.0], [0.0, 0.0]]))
    array([[1., 0.],
           [0., 1.],
           [0., 0.]])
    """
    manifold = manifold or Stiefel()
    check_array(A, "A")
    check_finite(kernels_for(A), A, "A")
    X = manifold.nearest(A)
    manifold.check_point(X, "the point nearest to A")
    return feasible(manifold, X)  # an SVD of 500 columns loses twice as much as is promised


def interpolate(
    X: Array, Y: Array, alpha: float, *, manifold: LibraryManifold | None = None
) -> Array:
    """The point that stands for (1 − α)X + αY, on the manifold; Section 4.2 of the paper.

    X at α = 0, Y at α = 1, an average in between.  Costs O(nk²), without a factorisation.

    Parameters
    ----------
    X : array
        The point at 0.
    Y : array
        The point at 1, of the same shape, dtype and library.
    alpha : float
        The number α.
    manifold : manifold, optional
        `Stiefel()` unless given.

    Returns
    -------
    array
        A point of the manifold.

    Raises
    ------
    ValueError
        If X or Y is not a point, they do not fit together, or no Cayley curve joins them.

    Examples
    --------
    >>> import numpy as np, stiefel
    >>> X, Y = np.array([[1.0], [0.0]]), np.array([[0.0], [1.0]])
    >>> M = stiefel.interpolate(X, Y, 0.5)
    >>> bool(np.allclose(np.linalg.norm(M), 1)), bool(M[0, 0] > 0.5 and M[1, 0] > 0.5)
    (True, True)
    """
    return extrapolate(X, Y, alpha, manifold=manifold)


def extrapolate(
    X: Array, Y: Array, tau: float, *, manifold: LibraryManifold | None = None
) -> Array:
    """The point at τ on the Cayley curve from X (τ = 0) through Y (τ = 1): momentum for τ > 1.

    Parameters
    ----------
    X : array
        The point at 0.
    Y : array
        The point at 1, of the same shape, dtype and library.
    tau : float
        The number τ.
    manifold : manifold, optional
        `Stiefel()` unless given.

    Returns
    -------
    array
        A point of the manifold.

    Raises
    ------
    ValueError
        If X or Y is not a point, they do not fit together, or no Cayley curve joins them.

    Examples
    --------
    >>> import numpy as np, stiefel
    >>> X, Y = np.array([[1.0], [0.0]]), np.array([[0.8], [0.6]])
    >>> bool(np.allclose(stiefel.extrapolate(X, Y, 1.0), Y))
    True
    """
    manifold = manifold or Stiefel()
    for name, point in (("X", X), ("Y", Y)):
        manifold.check_point(point, name)
    if X.shape != Y.shape or X.dtype != Y.dtype:
        raise ValueError(
            f"X is {describe(X)} and Y is {describe(Y)}; expected two points of the same shape "
            "and dtype"
        )
    point = manifold.extrapolate(X, Y, tau)
    if not manifold.defect(point) <= LOST:
        raise ValueError(
            "no Cayley curve leads from X to Y: I + XᴴY is singular, as for Y = −X; expected two "
            "points that are closer to each other"
        )
    return feasible(manifold, point)
