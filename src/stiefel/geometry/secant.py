"""The secant pair of a step along a ray, and what it says about curvature.

A step from X with gradient G to X⁺ = Q(t)X with gradient G⁺ gives

    s = t Q(t)φ(W),      y = G⁺ − Q(t)G

with Q the isometric transport of the ray; see `transport`.  The rotation parts of both and the
Gram matrix of s are known before any tall work, because Q keeps Gram matrices:

    X⁺ᴴs = 2t XᴴW,   sᴴs = t²(WᴴW + 3 (XᴴW)ᴴ(XᴴW)),   X⁺ᴴy = X⁺ᴴG⁺ − XᴴG

so that curvature costs one Gram matrix, yᴴy.  Grams of normal parts are differences here: they
lose relative accuracy where rotations are larger by 1e8, and with it their meaning.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from . import transport as moving
from .kernels import Array, Kernels


class Lowered(NamedTuple):
    """A Euclidean gradient as a cotangent G."""

    G: Array
    square: float  # ‖G‖²_g*
    turn: Any = None  # XᴴG, where it came for free


class Curvature(NamedTuple):
    """What a step s and the change y of the gradient along it say about second derivatives."""

    SS: Array  # SᴴS of the normal part S of s
    TT: Array  # TᴴT of the normal part T of y
    BB: Array  # BᴴB of the rotation part B of y
    normal_step: Array  # ‖S‖²
    normal_change: Array  # ‖T‖²
    turn_step: Array  # ‖A‖² of the rotation part A of s
    turn_change: Array  # ‖B‖²


class Secant(NamedTuple):
    """A pair (s, y) at the end of a step."""

    s: Array  # a tangent
    y: Array  # a cotangent
    curvature: Any = None  # `Curvature`, or a tuple of them; None where nothing can be learned


def secant(
    k: Kernels,
    X: Array,
    W: Array,
    grams: Any,
    t: Array | float,
    G: Array,
    turn: Array,
    G_new: Array,
    turn_new: Array,
) -> Secant:
    """The pair of a step, for matrices with several columns; 12nk² + O(k³)."""
    a, b, c = grams
    h, size, bH = 0.5 * t, X.shape[-1], k.adjoint(b)
    WG = k.gram(W, G)
    upper = k.block([[b + a @ b, turn]])
    lower = k.block([[-h * (c + bH @ b), -h * WG]])
    S = k.solve(moving.system(k, grams, h), k.block([[upper], [lower]]))
    up, low = S[..., :size, :], S[..., size:, :]
    s = k.combine(
        X, t * (2.0 * low[..., :size] + b), W, t * (k.eye(a) + t * up[..., :size])
    )
    y = (G_new - G) - k.combine(X, 2.0 * low[..., size:], W, t * up[..., size:])
    return Secant(s, y, curvature(k, grams, t, k.gram(y, y), turn_new - turn))


def curvature(k: Kernels, grams: Any, t: Array | float, yy: Array, B: Array) -> Curvature:
    """From the Grams of the ray, yᴴy, and the rotation part B of y; nothing tall."""
    _, b, c = grams
    bb = k.adjoint(b) @ b
    BB = k.adjoint(B) @ B
    SS, TT = (t * t) * (c - bb), yy - BB
    return Curvature(
        SS, TT, BB, k.trace(SS), k.trace(TT), (4.0 * t * t) * k.trace(bb), k.trace(BB)
    )


def plain(ray: Any, t: float, old: Any, new: Any) -> Secant:
    """The pair of a step along any ray; nothing is said of curvature."""
    return Secant(t * ray.carried(t), new.G - ray.transport(t, old.G))
