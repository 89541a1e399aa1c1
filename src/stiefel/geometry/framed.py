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

Products of nearly unitary matrices drift from being unitary, by a few roundings a step.  The Gram
matrix E + I of X is measured when a ray is made, and a Newton–Schulz step brings X back every few
steps.  X⊥, which nobody sees, may drift ten times as far: Qᴴ(Qz) − z for one vector z tells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from stiefel.backends.base import Kernels, kernel
from stiefel.backends.numpy import divided_in_place
from stiefel.types import Array, Metric

from . import compiled
from .compiled import faster
from .ray import Lowered, Secant
from .stiefel import Stiefel

DRIFT = 6.0  # eps √k: an X that is further from orthonormal is brought back …
FRAME_DRIFT = 20.0  # … and here, in eps √n, all of Q


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
        return float(_weighted(self.kernels, V, W, 2.0))

    def norm(self, Q: Array, W: Array) -> float:
        return math.sqrt(self.inner(Q, W, W))

    def inner_tangent(self, Q: Array, S: Array, T: Array) -> float:
        return float(_weighted(self.kernels, S, T, 0.5))

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
        return math.sqrt(float(_longest(self.kernels, T)))

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


class Split(NamedTuple):
    """How much of a step, and of the change of the gradient, is normal and how much a rotation."""

    normal_step: float
    normal_change: float
    rotation_step: float
    rotation_change: float

    @property
    def square(self) -> float:
        """‖y‖²."""
        return self.squared_change(1.0)

    def squared_change(self, omega: float) -> float:
        """⟨y, φ(y)⟩."""
        return self.normal_change + omega * self.rotation_change


class FramedRay:
    """The ray that leaves Q with the velocity T = [2A; N]."""

    def __init__(self, kernels: Kernels, Q: Array, T: Array) -> None:
        probe = probe_of(T)
        drift = 0.0 if probe is None else float(_frame_drift(kernels, Q, kernels.asarray(probe, Q)))
        self._set_out(kernels, Q, T, *_drift(kernels, Q, T), drift)

    def _set_out(
        self,
        kernels: Kernels,
        Q: Array,
        T: Array,
        E: Array,
        square: Any,
        largest: Any,
        drift: float,
    ) -> None:
        """From Q, brought back if it has drifted: X by E, which has these squares, or the frame."""
        self._kernels, self._Q, self._T = kernels, Q, T
        eps = kernels.eps(Q)
        self.defect = math.sqrt(float(square))
        if float(largest) > (DRIFT * eps) ** 2 * T.shape[-1]:
            self._Q = _straightened(kernels, Q, E)
        if drift > (FRAME_DRIFT * eps) ** 2 * T.shape[-2]:
            self._Q = _restored(kernels, Q)

    def __call__(self, t: float) -> Array:
        single = self._kernels.pure_numpy and self._Q.ndim == 2
        return (_point_in_place if single else _point)(self._kernels, self._Q, self._T, t)

    @cached_property
    def bounded_length(self) -> float:
        return math.sqrt(float(_longest(self._kernels, self._T)))

    @property
    def length(self) -> float:
        return self.bounded_length

    @cached_property
    def squared_norm(self) -> float:
        return float(_weighted(self._kernels, self._T, self._T, 0.5))

    def velocity(self, t: float) -> Array:
        """K(I − t²K²/4)⁻¹ in the frame at X(t)."""
        return _velocity(self._kernels, self._T, t)

    def transported_velocity(self, t: float) -> Array:
        return self._T

    def transport(self, t: float, V: Array) -> Array:
        return V

    def secant_pair(self, t: float, old: Any, new: Any) -> Secant:
        s, y = t * self._T, new.G - old.G
        if s.shape[-2] == s.shape[-1]:
            return Secant(s, y)
        return Secant(s, y, Split(*map(float, _split(self._kernels, s, y))))


class CompiledFramedRay(FramedRay):
    """`FramedRay` along the tangents nearest to T, of NumPy matrices of double precision."""

    def __init__(self, kernels: Kernels, Q: Array, T: Array, horizontal: bool) -> None:
        self._prepared(kernels, Q, *compiled.framed_ray(kernels, Q, T, horizontal, probe_of(T)))

    @classmethod
    def along(cls, kernels: Kernels, Q: Array, *prepared: Any) -> CompiledFramedRay:
        """The ray of what `compiled.framed_ray` returns."""
        ray = cls.__new__(cls)
        ray._prepared(kernels, Q, *prepared)
        return ray

    def _prepared(
        self,
        kernels: Kernels,
        Q: Array,
        T: Array,
        E: Array,
        square: float,
        largest: float,
        fastest: float,
        drift: float,
    ) -> None:
        self._set_out(kernels, Q, T, E, square, largest, drift)
        self.bounded_length = math.sqrt(fastest)

    def __call__(self, t: float) -> Array:
        return compiled.framed_point(self._kernels, self._Q, self._T, t)

    def secant_pair(self, t: float, old: Any, new: Any) -> Secant:
        T = self._T
        n, k = T.shape[-2:]
        head = k * k * (2 if T.dtype.kind == "c" else 1)
        s, y, slope, aa, bb, ss, tt = compiled.straight_pair(
            self._kernels, T, t, old.G, new.G, T.size // (n * k), head
        )
        return Secant(s, y, Split(ss, tt, aa, bb), slope=slope)


# -- formulas --------------------------------------------------------------------------------


def _blocks(C: Array) -> tuple[Array, Array]:
    """A and N."""
    size = C.shape[-1]
    return C[..., :size, :], C[..., size:, :]


def _stacked(k: Kernels, A: Array, C: Array) -> Array:
    """C with A in the place of its upper block."""
    if C.shape[-2] == C.shape[-1]:
        return A
    return k.xp.concat([A, C[..., C.shape[-1] :, :]], axis=-2)


@kernel
def _lowered(k: Kernels, Q: Array, E: Array) -> tuple[Array, Array, Array]:
    """G, ‖G‖²_g* and A of a Euclidean gradient."""
    C = k.gram(Q, E)
    A = k.skew(_blocks(C)[0])
    G = _stacked(k, A, C)
    return G, k.dot(G, G) + k.dot(A, A), A


@kernel
def _skewed(k: Kernels, C: Array) -> Array:
    return _stacked(k, k.skew(_blocks(C)[0]), C)


@kernel
def _turned(k: Kernels, C: Array, omega: Any) -> Array:
    return _stacked(k, omega * _blocks(C)[0], C)


@kernel
def _weighted(k: Kernels, V: Array, W: Array, omega: Any) -> Array:
    """⟨V, φ(W)⟩."""
    A, B = _blocks(V)[0], _blocks(W)[0]
    return k.dot(V, W) + (omega - 1.0) * k.small_inner(A, B)


@kernel
def _split(k: Kernels, s: Array, y: Array) -> tuple[Array, ...]:
    (A, S), (B, T) = _blocks(s), _blocks(y)
    return k.dot(S, S), k.dot(T, T), k.dot(A, A), k.dot(B, B)


@kernel
def _longest(k: Kernels, T: Array) -> Array:
    if T.ndim == 2:
        return k.dot(T, T)
    return k.largest_square(T)


@kernel
def _drift(k: Kernels, Q: Array, T: Array) -> tuple[Array, Array, Array]:
    """E = XᴴX − I, ‖E‖²_F of the whole stack, and of the matrix that is furthest."""
    X = Q[..., : T.shape[-1]]
    E = k.gram(X, X) - k.eye(X)
    if E.ndim == 2:
        square = k.dot(E, E)
        return E, square, square
    squares = k.xp.sum(k.real(k.conj(E) * E), axis=(-2, -1))
    return E, k.xp.sum(squares), k.largest(squares)


@kernel
def _frame_drift(k: Kernels, Q: Array, z: Array) -> Array:
    """‖(QᴴQ − I)z‖², the largest of a stack; for a random z about ‖QᴴQ − I‖²_F."""
    r = k.adjoint(Q) @ (Q @ z) - z
    return k.largest_square(r)


def probe_of(T: Array) -> Any:
    """One vector that tells whether a frame has drifted; None where X is all of it."""
    return None if T.shape[-1] == T.shape[-2] else _probe(T.shape[-2])


@cache
def _probe(size: int) -> Any:
    return np.random.default_rng(size).standard_normal((size, 1))


@kernel
def _straightened(k: Kernels, Q: Array, E: Array) -> Array:
    """Q with one Newton–Schulz step on X: X − XE/2."""
    size = E.shape[-1]
    X = Q[..., :size]
    X = X - X @ (0.5 * E)
    return X if size == Q.shape[-1] else k.xp.concat([X, Q[..., size:]], axis=-1)


@kernel
def _restored(k: Kernels, Q: Array) -> Array:
    """One Newton–Schulz step; what is subtracted is as small as the defect."""
    return k.subtract(Q, Q, 0.5 * (k.gram(Q, Q) - k.eye(Q)))


@kernel
def _point(k: Kernels, Q: Array, T: Array, t: Any) -> Array:
    """Q(t); see the module."""
    A, N = _blocks(T)
    size, H = T.shape[-1], (0.5 * t) * N
    S = k.eye(A) - (0.5 * t) * A
    if T.shape[-2] == size:
        return 2.0 * k.divide(Q, S) - Q
    X, rest = Q[..., :size], Q[..., size:]
    Z = k.divide(X + rest @ H, S + k.adjoint(H) @ H)
    return k.xp.concat([2.0 * Z - X, rest - (2.0 * Z) @ k.adjoint(H)], axis=-1)


def _point_in_place(k: Kernels, Q: Array, T: Array, t: float) -> Array:
    """`_point` of one NumPy matrix: at n = 1000 temporaries take as long as the solve."""
    size = T.shape[1]
    S = T[:size] * (-0.5 * t)
    S.flat[:: size + 1] += 1.0
    if size == len(T):
        Z = divided_in_place(2.0 * Q, S)
        Z -= Q
        return Z
    H, Q_new = T[size:] * (0.5 * t), np.empty_like(Q)
    H_ = k.adjoint(H)
    S += H_.dot(H)
    X, rest = Q[:, :size], Q[:, size:]
    Z = rest.dot(H)
    Z += X
    Z *= 2.0
    Z = divided_in_place(Z, S)
    np.subtract(Z, X, out=Q_new[:, :size])
    np.subtract(rest, Z.dot(H_), out=Q_new[:, size:])
    return Q_new


@kernel
def _velocity(k: Kernels, T: Array, t: Any) -> Array:
    A, N = _blocks(T)
    size, rows = T.shape[-1], T.shape[-2]
    K = A
    if rows > size:
        zero = 0.0 * (N @ k.adjoint(N))
        K = k.assemble([[A, -k.adjoint(N)], [N, zero]])
    half = (0.5 * t) * K
    return k.solve(k.eye(K) - half @ half, K)[..., :size]


@kernel
def _inverse_ray(k: Kernels, Q: Array, Y: Array) -> Array:
    C = k.gram(Q, Y)
    V = 2.0 * k.divide(C, k.eye(C) + _blocks(C)[0])
    return _stacked(k, k.skew(_blocks(V)[0]), V)


@kernel
def _completed(k: Kernels, X: Array) -> Array:
    """[X, X⊥] with X itself, and the last columns of a complete QR factorisation."""
    rest = k.xp.linalg.qr(X, mode="complete")[0][..., X.shape[-1] :]
    return k.xp.concat([X, rest], axis=-1)


def _first(k: Kernels, Q: Array, columns: int) -> Array:
    return k.contiguous(Q[..., :columns])
