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

from .frame import Frame, Grams, split
from .kernels import Array, Kernels


class Lowered(NamedTuple):
    """A Euclidean gradient as a cotangent G."""

    G: Array
    square: float  # ‖G‖²_g*
    turn: Any = None  # XᴴG, where it came for free


class Curvature(NamedTuple):
    """Small matrices from which a step tells about second derivatives; see `squares`."""

    t: Array | float
    b: Array  # XᴴW and
    c: Array  # WᴴW of the ray
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
    W: Array,
    frame: Frame,
    N: Array,
    t: Array | float,
    grams: Grams,
    G: Array,
    turn: Array,
    G_new: Array,
    turn_new: Array,
    M: Array | None = None,
) -> Secant:
    """The pair of a step, for matrices with several columns; 12nk² + O(k³).

    With M, the direction is W − XM; ``grams`` are those of X and the direction.
    """
    WG = k.gram(W, G) if M is None else k.gram(W, G) - k.adjoint(M) @ turn
    P, Q, p, q = k.call(coefficients, frame, N, t, grams.XW, WG, turn, M)
    s, into = k.combine(X, P, W, Q), k.overwriting()
    y = into.subtract(into.subtract(G_new - G, X, p), W, q)
    return Secant(s, y, Curvature(t, grams.XW, grams.WW, turn_new - turn, k.gram(y, y)))


def coefficients(
    k: Kernels,
    frame: Frame,
    N: Array,
    t: Array | float,
    b: Array,
    WG: Array,
    turn: Array,
    M: Array | None,
) -> tuple[Array, Array, Array, Array]:
    """P, Q, p, q with t Q(t)φ(W) = X P + W Q and Q(t)G = G + X p + W q, or with W − XM for W.

    φ(W) is Z C with C = [b; I/σ], which Q takes to Z (I + N) C, and
    Q G = G + t Z (I + N/2) [−WᴴG; XᴴG/σ].
    """
    one, size = k.eye(b), b.shape[-1]
    C = k.block([[b, -0.5 * WG], [one / frame.sigma + 0.0 * b, (0.5 / frame.sigma) * turn]])
    P, Q = split(frame, t * (N @ C))
    p, q = P[..., size:] - t * WG, Q[..., size:] + t * turn
    P, Q = P[..., :size] + t * b, Q[..., :size] + t * one
    return (P, Q, p, q) if M is None else (P - M @ Q, Q, p - M @ q, q)


def squares(k: Kernels, seen: Curvature) -> Squares:
    t, b, c, B, yy = seen
    bb, BB = k.adjoint(b) @ b, k.adjoint(B) @ B
    SS, TT = (t * t) * (c - bb), yy - BB
    return Squares(SS, TT, k.trace(SS), k.trace(TT), (4.0 * t * t) * k.trace(bb), k.trace(BB))


def plain(ray: Any, t: float, old: Any, new: Any) -> Secant:
    """The pair of a step along any ray; nothing is said of curvature."""
    return Secant(t * ray.carried(t), new.G - ray.transport(t, old.G))
