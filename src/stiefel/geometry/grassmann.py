"""The Grassmann manifold: functions of the span only, f(XQ) = f(X) for unitary Q.

The quotient of the Stiefel manifold that the paper's conclusion names.  Points are represented
by an orthonormal basis; gradients are horizontal (XᴴW = 0), and two bases are aligned before
they are compared.  The ray is the Cayley retraction, unchanged.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from stiefel.backends.base import Kernels, kernel
from stiefel.types import Array, Manifold, Metric

from . import compiled
from . import hessian as second_order
from . import metric as metrics
from .compiled import faster
from .metric import CANONICAL
from .ray import Lowered
from .stiefel import Stiefel

INVARIANCE_TOLERANCE = 1e-4  # of the gradient; gradients by differences are no better


@dataclass(frozen=True)
class Grassmann(Stiefel):
    """Subspaces spanned by k orthonormal columns, or stacks ``(..., n, k)`` of them.

    For functions of the span only, f(XQ) = f(X); others are refused.

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
    >>> A = np.diag(np.arange(1.0, 9.0))
    >>> fun = lambda X: (np.sum(X * (A @ X)), 2 * A @ X)
    >>> X0 = stiefel.random_point(8, 2, seed=0)
    >>> round(stiefel.minimize(fun, X0, manifold=stiefel.Grassmann()).fun, 6)
    3.0
    """

    def project(self, X: Array, G: Array) -> Array:
        """The horizontal cotangent (I − XXᴴ)G; 4nk²."""
        return _project(self.kernels_at(X), X, G)

    def gradient(self, X: Array, E: Array) -> Lowered:
        k = self.kernels_at(X)
        fast = faster(k, X, E) is compiled and not is_everything(k, X)
        lower = compiled.lower_span_gradient if fast else lower_span_gradient
        G, square, rotation, level = lower(k, X, E)
        if X.shape[-1] == 1:
            return Lowered(G, float(square))
        return Lowered(G, float(square), rotation, level)

    def project_direction(self, X: Array, W: Array) -> Array:
        return _project_direction(self.kernels_at(X), X, W)

    def cotangent_of(self, X: Array, T: Array, metric: Metric = CANONICAL) -> Array:
        return metrics.horizontal(self.kernels_at(X), X, T)

    def rotation_left_out(self, metric: Metric) -> float:
        return 1.0

    def hessian(self, X: Array, gradient: Array, W: Array, E: Array) -> Array:
        """The Riemannian Hessian times a horizontal W; ``E`` is the Euclidean one times W."""
        return second_order.grassmann_hessian(self.kernels_at(X), X, gradient, W, E)

    def vertical_part(self, X: Array, G: Array) -> float:
        """How much of the gradient G turns the basis: ‖skew(XᴴG)‖/‖XᴴG‖, 0 if f sees the span only.

        f(XQ) = f(X) for all unitary Q near I means Re⟨G, XA⟩ = 0 for all skew A.
        """
        return math.sqrt(float(_vertical_part(self.kernels_at(X), X, G)))

    def align(self, X: Array, Y: Array) -> Array:
        """The basis YQ of span Y that is nearest to the basis X."""
        return _align(self.kernels_at(X), X, Y)

    def lift(self, X: Array, Y: Array) -> Array:
        """The horizontal cotangent V at X for which R(X, φ(V)) spans what Y spans."""
        return super().lift(X, self.align(X, Y))

    def extrapolate(self, X: Array, Y: Array, tau: float) -> Array:
        return super().extrapolate(X, self.align(X, Y), tau)

    def dimension(self, X: Array) -> int:
        """k(n − k) for each subspace, twice that if complex: turning the basis is no freedom."""
        n, k = X.shape[-2:]
        real = math.prod(X.shape[:-2]) * k * (n - k)
        return 2 * real if self.kernels_at(X).is_complex(X) else real

    def distance(self, X: Array, Y: Array) -> float:
        """The geodesic distance (Σ θ_i²)^{1/2} of the principal angles θ_i."""
        return float(_distance(self.kernels_at(X), X, Y))


def check_invariant_gradient(manifold: Manifold, X: Any, gradient: Any) -> None:
    """Refuse a function on a Grassmann manifold whose gradient sees more than the span.

    The part of the gradient that turns the basis would be dropped, and a point that is not
    stationary called converged.
    """
    if hasattr(manifold, "factors"):
        for factor, x, g in zip(manifold.factors, X, gradient, strict=True):
            check_invariant_gradient(factor, x, g)
        return
    if not isinstance(manifold, Grassmann):
        return
    part, eps = manifold.vertical_part(X, gradient), manifold.eps(X)
    if part > max(INVARIANCE_TOLERANCE, 1e3 * eps):
        raise ValueError(
            f"f is not a function of the span of X: {100 * part:.2g} % of XᴴG at X0 turns the "
            "basis, where f(XQ) = f(X) gives none; use manifold=Stiefel(), or see "
            "stiefel.check.check_invariance(fun, X0)"
        )


@kernel
def _project(k: Kernels, X: Array, G: Array) -> Array:
    if is_everything(k, X):
        return 0.0 * G
    return k.subtract(k.sharpen(G), X, k.pairing(X, G))


def is_everything(k: Kernels, X: Array) -> bool:
    """Whether X spans the whole space: a single point, whose gradients would be rounding errors."""
    return k.whole and X.shape[-2] == X.shape[-1]


@kernel
def lower_span_gradient(k: Kernels, X: Array, E: Array) -> tuple[Array, Array, Array, Array]:
    m = k.pairing(X, E)
    G = 0.0 * E if is_everything(k, X) else k.subtract(k.sharpen(E), X, m)
    return G, k.dot(G, G), 0.0 * m, k.hermitian(m)


@kernel
def _project_direction(k: Kernels, X: Array, W: Array) -> Array:
    return k.subtract(W, X, k.gram(X, W))


@kernel
def _vertical_part(k: Kernels, X: Array, G: Array) -> Array:
    XG = k.pairing(X, G)
    total = k.squared_frobenius(XG)
    # All of XᴴG at rounding level says nothing: a gradient that is orthogonal to X is invariant.
    least = k.squared_frobenius(k.eye(XG)) * float(k.xp.finfo(XG.dtype).eps) * _size(k, G)
    return k.squared_frobenius(k.skew(XG)) / (
        total + least + float(k.xp.finfo(XG.dtype).smallest_normal)
    )


def _size(k: Kernels, G: Array) -> Array:
    return k.reduce(k._dot(G, G))[0]


@kernel
def _align(k: Kernels, X: Array, Y: Array) -> Array:
    return Y @ k.polar(k.gram(Y, X))


@kernel
def _distance(k: Kernels, X: Array, Y: Array) -> Array:
    """θ from sines and cosines together: arccos alone loses half the digits near zero."""
    xp = k.xp
    m = k.gram(X, Y)
    N = k.subtract(Y, X, m)
    cosines = xp.linalg.svdvals(m)  # falling, as the angles rise
    sines = xp.sqrt(xp.clip(xp.linalg.eigvalsh(k.hermitian(k.gram(N, N))), 0.0, None))
    angles = xp.atan2(sines, cosines)
    return xp.sqrt(xp.sum(angles * angles))
