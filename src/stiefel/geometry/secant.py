"""The secant pair of a step along a ray, and what it says about curvature.

A step from X with gradient G to X⁺ = Q(t)X with gradient G⁺ gives

    s = t Q(t)φ(W),      y = G⁺ − Q(t)G

with Q the isometric transport of the ray; see `transport`.  The rotation parts of both and the
Gram matrix of s are known before any tall work, because Q keeps Gram matrices:

    X⁺ᴴs = t Xᴴφ(W),   sᴴs = t² φ(W)ᴴφ(W),   X⁺ᴴy = X⁺ᴴG⁺ − XᴴG

so that curvature costs one Gram matrix, yᴴy.  Grams of normal parts are differences here: they
lose relative accuracy where rotations are larger by 1e8, and with it their meaning.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .frame import Frame, halves, velocity_of
from .kernels import Array, Kernels


class Lowered(NamedTuple):
    """A Euclidean gradient as a cotangent G."""

    G: Array
    square: float  # ‖G‖²_g*
    turn: Any = None  # XᴴG, where it came for free


class Curvature(NamedTuple):
    """Small matrices from which a step tells about second derivatives; see `squares`."""

    t: Array | float
    frame: Frame  # of the ray
    B: Array  # the rotation part of y
    yy: Array  # yᴴy


class Squares(NamedTuple):
    """Normal parts S, T and rotation parts A, B of a step s and of the change y along it."""

    SS: Array  # SᴴS
    TT: Array  # TᴴT
    normal_step: Array  # ‖S‖²
    normal_change: Array  # ‖T‖²
    turn_step: Array  # ‖A‖²
    turn_change: Array  # ‖B‖²


class Secant(NamedTuple):
    """A pair (s, y) at the end of a step."""

    s: Array  # a tangent
    y: Array  # a cotangent
    curvature: Any = None  # `Curvature`, or a tuple of them; None where nothing can be learned


def secant(
    k: Kernels,
    X: Array,
    U: Array,
    frame: Frame,
    N: Array,
    t: Array | float,
    G: Array,
    turn: Array,
    G_new: Array,
    turn_new: Array,
) -> Secant:
    """The pair of a step, for matrices with several columns; 12nk² + O(k³)."""
    P, Q, p, q = k.call(coefficients, frame, N, t, turn, k.gram(U, G))
    s, into = k.combine(X, P, U, Q), k.overwriting()
    y = into.subtract(into.subtract(G_new - G, X, p), U, q)
    seen = Curvature(t, frame, turn_new - turn, k.gram(y, y))
    return Secant(s, y, seen)


def coefficients(
    k: Kernels, frame: Frame, N: Array, t: Array | float, XG: Array, UG: Array
) -> tuple[Array, Array, Array, Array]:
    """P, Q, p, q with t Q(t)φ(W) = X P + U Q and Q(t)G = G + X p + U q.

    tφ(W) is Z tK[I; 0], which Q takes to Z (I + N) tK[I; 0] = Z (2N − tK)[I; 0], and
    Q G = G + t Z (I + N/2) A [X, U]ᴴG.
    """
    size = XG.shape[-1]
    C = 2.0 * N[..., :size] - t * frame.generator[..., :size]
    c = frame.cobasis @ k.block([[t * XG], [t * UG]])
    return *halves(frame.basis @ C), *halves(frame.basis @ (c + 0.5 * (N @ c)))


def squares(k: Kernels, seen: Curvature) -> Squares:
    t, frame, B, yy = seen
    C, gram_C = velocity_of(frame)
    C, gram_C = t * C, t * gram_C
    A = gram_C[..., : B.shape[-1], :]
    AA, BB = k.adjoint(A) @ A, k.adjoint(B) @ B
    SS, TT = k.adjoint(C) @ gram_C - AA, yy - BB
    return Squares(SS, TT, k.trace(SS), k.trace(TT), k.trace(AA), k.trace(BB))


def plain(ray: Any, t: float, old: Any, new: Any) -> Secant:
    """The pair of a step along any ray; nothing is said of curvature."""
    return Secant(t * ray.carried(t), new.G - ray.transport(t, old.G))


def pairs_of(pair: Secant) -> list[Secant]:
    """The secant pairs of the leaves."""
    if not isinstance(pair.s, tuple):
        return [pair]
    return [Secant(*leaf) for leaf in zip(*pair, strict=True)]
