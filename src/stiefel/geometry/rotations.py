"""Rotations: square orthonormal matrices of determinant one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

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

    Parameters
    ----------
    B : array, sparse matrix or LinearOperator, optional
        The matrix of a generalised constraint XᴴBX = I, Hermitian positive definite.  It is
        factorised once and must not be changed afterwards.
    solve : callable, optional
        ``solve(G)`` = B⁻¹G.  By default B is factorised once, or inverted by conjugate gradients
        when it is an operator.
    kernels : Kernels, optional
        Set by `bind`; not for users.

    Examples
    --------
    >>> import numpy as np, stiefel
    >>> A = np.array([[0.0, -2.0], [1.0, 0.0]])
    >>> fun = lambda R: (-np.sum(A * R), -A)  # the rotation nearest to A
    >>> result = stiefel.minimize(fun, np.eye(2), manifold=stiefel.SpecialOrthogonal())
    >>> bool(np.allclose(result.x, [[0, -1], [1, 0]], atol=1e-5))
    True
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


@dataclass(frozen=True)
class Orthogonal(Stiefel):
    """Orthogonal matrices ``(..., n, n)`` of either determinant; unitary ones when complex.

    No curve joins the matrices of determinant +1 with those of −1: a run stays in the component it
    starts in.  ``result.determinant`` says which one it was; start again from `reflected` to try
    the other.

    Parameters
    ----------
    B : array, sparse matrix or LinearOperator, optional
        The matrix of a generalised constraint XᴴBX = I, Hermitian positive definite.  It is
        factorised once and must not be changed afterwards.
    solve : callable, optional
        ``solve(G)`` = B⁻¹G.  By default B is factorised once, or inverted by conjugate gradients
        when it is an operator.
    kernels : Kernels, optional
        Set by `bind`; not for users.

    Examples
    --------
    >>> import numpy as np, stiefel
    >>> A = np.diag([3.0, 2.0, -1.0])
    >>> fun = lambda Q: (np.sum((Q - A) ** 2), 2 * (Q - A))  # the nearest orthogonal matrix
    >>> O = stiefel.Orthogonal()
    >>> one = stiefel.minimize(fun, np.eye(3), manifold=O)
    >>> other = stiefel.minimize(fun, O.reflected(np.eye(3)), manifold=O)
    >>> one.determinant, other.determinant, round(one.fun, 6), round(other.fun, 6)
    (1.0, -1.0, 9.0, 5.0)
    """

    rows_on_ranks: ClassVar[bool] = False  # with comm=; see `layout`
    name: ClassVar[str] = "Orthogonal()"

    def check_point(self, X: Array, name: str = "X0") -> None:
        """Raise an error that says what is wrong with X as a point, or return."""
        checks.check_matrix(X, name)
        if X.shape[-1] != X.shape[-2]:
            raise ValueError(
                f"{name} has shape {tuple(X.shape)}; {self.name} needs square matrices: "
                "use Stiefel()"
            )
        super().check_point(X, name)

    def reflected(self, X: Array) -> Array:
        """X with the sign of its last column changed: a point of the other component.

        Parameters
        ----------
        X : array
            Orthogonal matrices ``(..., n, n)``.

        Returns
        -------
        array
            Orthogonal matrices of the opposite determinants.

        Examples
        --------
        >>> import numpy as np, stiefel
        >>> stiefel.Orthogonal().reflected(np.eye(2))
        array([[ 1., -0.],
               [ 0., -1.]])
        """
        k = self.kernels_at(X)
        last = k.xp.arange(X.shape[-1], device=k.device(X)) == X.shape[-1] - 1
        return k.xp.where(last, -X, X)


@dataclass(frozen=True)
class Unitary(Orthogonal):
    """Unitary matrices ``(..., n, n)``, which are connected: no component is out of reach.

    Parameters
    ----------
    B : array, sparse matrix or LinearOperator, optional
        The matrix of a generalised constraint XᴴBX = I, Hermitian positive definite.  It is
        factorised once and must not be changed afterwards.
    solve : callable, optional
        ``solve(G)`` = B⁻¹G.  By default B is factorised once, or inverted by conjugate gradients
        when it is an operator.
    kernels : Kernels, optional
        Set by `bind`; not for users.

    Examples
    --------
    >>> import numpy as np, stiefel
    >>> A = np.array([[1.0, 2.0j], [0.5, 1.0]])
    >>> fun = lambda U: (-np.vdot(A, U).real, -A)  # the polar factor of A
    >>> result = stiefel.minimize(fun, np.eye(2, dtype=complex), manifold=stiefel.Unitary())
    >>> result.success, bool(np.isclose(-result.fun, np.linalg.svd(A)[1].sum()))
    (True, True)
    """

    name: ClassVar[str] = "Unitary()"

    def check_point(self, X: Array, name: str = "X0") -> None:
        """Raise an error that says what is wrong with X as a point, or return."""
        checks.check_array(X, name)
        if not self.kernels_at(X).is_complex(X):
            raise TypeError(
                f"{name} has dtype {X.dtype}; Unitary() needs complex matrices: pass "
                f"{name}.astype(complex), or use Orthogonal()"
            )
        super().check_point(X, name)

    def random(
        self,
        *shape: int,
        seed: int | np.random.Generator | None = None,
        dtype: Any = np.complex128,
        like: Array | None = None,
    ) -> Array:
        """Uniformly distributed unitary matrices."""
        dtype = dtype if np.dtype(dtype).kind == "c" else np.complex128
        return super().random(*shape, seed=seed, dtype=dtype, like=like)


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
