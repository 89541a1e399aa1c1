"""The Grassmann manifold: functions of the span only, f(XQ) = f(X) for unitary Q.

The quotient of the Stiefel manifold that the paper's conclusion names.  Points are represented
by an orthonormal basis; gradients are horizontal (XᴴW = 0), and two bases are aligned before
they are compared.  The ray is the Cayley retraction, unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass

from . import cayley, second_order
from .kernels import Array, Kernels
from .stiefel import Stiefel


@dataclass(frozen=True)
class Grassmann(Stiefel):
    """Subspaces spanned by k orthonormal columns, or stacks ``(..., n, k)`` of them."""

    def project(self, X: Array, G: Array) -> Array:
        """The horizontal cotangent (I − XXᴴ)G; 4nk²."""
        return self._k(X).call(_project, X, G)

    def project_direction(self, X: Array, W: Array) -> Array:
        return self._k(X).call(_project_direction, X, W)

    def from_coordinates(self, X: Array, C: Array) -> Array:
        """On horizontal cotangents φ is the identity: only the projection is left."""
        return self.project_direction(X, C)

    def hessian(self, X: Array, gradient: Array, W: Array, E: Array) -> Array:
        """The Riemannian Hessian times a horizontal W; ``E`` is the Euclidean one times W."""
        return self._k(X).call(second_order.grassmann_hessian, X, gradient, W, E)

    def align(self, X: Array, Y: Array) -> Array:
        """The basis YQ of span Y that is nearest to the basis X."""
        return self._k(X).call(_align, X, Y)

    def lift(self, X: Array, Y: Array) -> Array:
        """The horizontal cotangent V at X for which R(X, φ(V)) spans what Y spans."""
        return super().lift(X, self.align(X, Y))

    def extrapolate(self, X: Array, Y: Array, tau: float) -> Array:
        return self._k(X).call(_extrapolate, X, Y, tau)

    def distance(self, X: Array, Y: Array) -> float:
        """The geodesic distance (Σ θ_i²)^{1/2} of the principal angles θ_i."""
        return float(self._k(X).call(_distance, X, Y))


def _project(k: Kernels, X: Array, G: Array) -> Array:
    return k.subtract(k.sharpen(G), X, k.pairing(X, G))


def _project_direction(k: Kernels, X: Array, W: Array) -> Array:
    return k.subtract(W, X, k.gram(X, W))


def _align(k: Kernels, X: Array, Y: Array) -> Array:
    return Y @ k.polar(k.gram(Y, X))


def _extrapolate(k: Kernels, X: Array, Y: Array, tau: float) -> Array:
    return cayley.extrapolate(k, X, _align(k, X, Y), tau)


def _distance(k: Kernels, X: Array, Y: Array) -> Array:
    """θ from sines and cosines together: arccos alone loses half the digits near zero."""
    xp = k.xp
    m = k.gram(X, Y)
    N = k.subtract(Y, X, m)
    cosines = xp.linalg.svdvals(m)
    sines = xp.flip(xp.sqrt(xp.clip(xp.linalg.eigvalsh(k.gram(N, N)), 0.0, None)), axis=-1)
    angles = xp.atan2(xp.flip(sines, axis=-1), cosines)
    return xp.sqrt(xp.sum(angles * angles))
