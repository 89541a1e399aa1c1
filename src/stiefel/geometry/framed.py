"""Square and nearly square matrices, 2k > n, in a frame that moves with the point.

A point is the whole n×n unitary matrix Q = [X, X⊥]; the user sees its first k columns.  Cotangents
and tangents at Q are their coordinates QᴴW = [A; N], n×k arrays with a skew k×k matrix A and
(n − k)×k rows N.  In the frame the generator of a Cayley ray along W = [A; N] is

    K = [2A  −Nᴴ]       Q(t) = Q (I − tK/2)⁻¹ (I + tK/2)
        [N    0 ]

and because the frame moves with it, transport along a ray is the identity: a secant pair is a
difference of coordinates.  Elimination of the lower block, with H = tN/2 and S = I − tA + HᴴH,

    Z = (X + X⊥H) S⁻¹,    X(t) = 2Z − X,    X⊥(t) = X⊥ − 2ZHᴴ

so that a step costs k×k algebra and products of Q: for n = k one solve, 8n³/3, beside the 2n³ of
QᴴE.  The Hermitian part of S is at least I: the solve is well conditioned for every t.

How the frame is kept unitary stands with its rays, in `framed_ray`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from stiefel.backends.base import Kernels, kernel
from stiefel.types import Array, Metric

from . import compiled
from .compiled import faster
from .framed_ray import CompiledFramedRay, FramedRay, blocks, longest, stacked, weighted_inner
from .ray import Lowered
from .stiefel import Stiefel


@dataclass(frozen=True)
class Framed:
    """The Stiefel manifold in coordinates of a frame; see the module.

    Parameters
    ----------
    manifold : Stiefel
        That of the user's points, bound to their array library.
    rows, columns : int
        n and k.
    """

    manifold: Stiefel
    rows: int
    columns: int

    @property
    def learns(self) -> bool:
        """Whether rotations can be weighed against normal directions: there are such."""
        return self.columns < self.rows

    @cached_property
    def kernels(self) -> Kernels:
        found = self.manifold.kernels
        assert found is not None
        return found

    # -- the border ------------------------------------------------------------------------

    def completed(self, X: Array) -> Array:
        """The frame Q = [X, X⊥] of a point of the user's."""
        return X if X.shape[-1] == X.shape[-2] else _completed(self.kernels, X)

    def seen(self, Q: Array) -> Array:
        """The user's point X."""
        return Q if self.columns == self.rows else _first(self.kernels, Q, self.columns)

    def ambient(self, Q: Array, C: Array) -> Array:
        """QC: a cotangent or tangent as an array of the shape of X."""
        return Q @ C

    def coordinates(self, Q: Array, W: Array) -> Array:
        """QᴴW of a cotangent or tangent that is an array of the shape of X."""
        return self.kernels.gram(Q, W)

    # -- cotangents and tangents -----------------------------------------------------------

    def project(self, Q: Array, E: Array) -> Array:
        """The coordinates of the cotangent that acts as the Euclidean gradient E; 2n²k."""
        return _lowered(self.kernels, Q, E)[0]

    def gradient(self, Q: Array, E: Array) -> Lowered:
        fast = faster(self.kernels, Q, E) is compiled
        lowered = compiled.framed_gradient if fast else _lowered
        G, square, rotation = lowered(self.kernels, Q, E)
        return Lowered(G, float(square), rotation)

    def project_direction(self, Q: Array, W: Array) -> Array:
        """The cotangent whose coordinates are nearest to any n×k array."""
        return _skewed(self.kernels, W)

    def inner(self, Q: Array, V: Array, W: Array) -> float:
        return float(weighted_inner(self.kernels, V, W, 2.0))

    def norm(self, Q: Array, W: Array) -> float:
        return math.sqrt(self.inner(Q, W, W))

    def inner_tangent(self, Q: Array, S: Array, T: Array) -> float:
        return float(weighted_inner(self.kernels, S, T, 0.5))

    def dot(self, C: Array, D: Array) -> float:
        return float(self.kernels.dot(C, D))

    def pair(self, Q: Array, W: Array, T: Array) -> float:
        return self.dot(W, T)

    def dual(self, C: Array) -> Array:
        return C

    def raise_index(self, Q: Array, W: Array, metric: Metric | None = None) -> Array:
        """φ([A; N]) = [ωA; N], ω = 2 in the canonical metric."""
        if metric is None:
            return _turned(self.kernels, W, 2.0)
        return _turned(self.kernels, W, 0.0 if metric.horizontal else metric.omega)

    def raise_onto(self, Q: Array, W: Array, metric: Metric) -> Array:
        return self.raise_index(Q, W, metric)

    def lower_index(self, Q: Array, T: Array) -> Array:
        return _turned(self.kernels, T, 0.5)

    def cotangent_of(self, Q: Array, T: Array, metric: Metric | None = None) -> Array:
        return self.lower_index(Q, self._nearest_tangent(T, metric))

    def bounded_length(self, T: Array) -> float:
        return math.sqrt(float(longest(self.kernels, T)))

    def combine(self, a: float, V: Array, b: float, W: Array) -> Array:
        return self.kernels.axpby(a, V, b, W)

    def scale(self, a: float, V: Array) -> Array:
        return a * V

    # -- moving ----------------------------------------------------------------------------

    def ray(self, Q: Array, W: Array) -> FramedRay:
        return self.ray_along(Q, self.raise_index(Q, W))

    def ray_along(self, Q: Array, T: Array, metric: Metric | None = None) -> FramedRay:
        if faster(self.kernels, Q, T) is compiled:
            return CompiledFramedRay(self.kernels, Q, T, metric is not None and metric.horizontal)
        return FramedRay(self.kernels, Q, self._nearest_tangent(T, metric))

    def _nearest_tangent(self, T: Array, metric: Metric | None) -> Array:
        if metric is not None and metric.horizontal:
            return _turned(self.kernels, T, 0.0)
        return _skewed(self.kernels, T)

    def lift(self, Q: Array, Y: Array) -> Array:
        """V with ray(Q, V)(1) = Y: 2QᴴY(I + XᴴY)⁻¹ with the upper block made skew."""
        return _inverse_ray(self.kernels, Q, self.seen(Y))

    def extrapolate(self, Q: Array, Y: Array, tau: float) -> Array:
        return self.ray(Q, self.lift(Q, Y))(tau)

    # -- what a point must be --------------------------------------------------------------

    def defect(self, Q: Array) -> float:
        """That of the user's point."""
        return self.manifold.defect(self.seen(Q))

    def allowed_defect(self, Q: Array) -> float:
        return 10.0 * self.eps(Q) * math.sqrt(self.columns)

    def restore(self, Q: Array) -> Array:
        return self.manifold.restore(Q)

    def nearest(self, A: Array) -> Array:
        return self.manifold.nearest(A)

    def eps(self, Q: Array) -> float:
        return self.manifold.eps(Q)

    def dimension(self, Q: Array) -> int:
        return self.manifold.dimension(self.seen(Q))


# -- formulas --------------------------------------------------------------------------------


@kernel
def _lowered(k: Kernels, Q: Array, E: Array) -> tuple[Array, Array, Array]:
    """G, ‖G‖²_g* and A of a Euclidean gradient."""
    C = k.gram(Q, E)
    A = k.skew(blocks(C)[0])
    G = stacked(k, A, C)
    return G, k.dot(G, G) + k.dot(A, A), A


@kernel
def _skewed(k: Kernels, C: Array) -> Array:
    return stacked(k, k.skew(blocks(C)[0]), C)


@kernel
def _turned(k: Kernels, C: Array, omega: Any) -> Array:
    return stacked(k, omega * blocks(C)[0], C)


@kernel
def _inverse_ray(k: Kernels, Q: Array, Y: Array) -> Array:
    C = k.gram(Q, Y)
    V = 2.0 * k.divide(C, k.eye(C) + blocks(C)[0])
    return stacked(k, k.skew(blocks(V)[0]), V)


@kernel
def _completed(k: Kernels, X: Array) -> Array:
    """[X, X⊥] with X itself, and the last columns of a complete QR factorisation."""
    rest = k.xp.linalg.qr(X, mode="complete")[0][..., X.shape[-1] :]
    return k.xp.concat([X, rest], axis=-1)


def _first(k: Kernels, Q: Array, columns: int) -> Array:
    return k.contiguous(Q[..., :columns])
