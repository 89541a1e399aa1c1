"""Fused versions of the geometry's kernels for single NumPy matrices.

The formulas are those of `stiefel.geometry`, to which stacks go back; here small matrices are
written into place instead of being assembled from temporaries, and multiplied by ``dot``, which
takes half the time of ``@`` on 10×10 matrices.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from stiefel.geometry import cayley, metric, secant, transport
from stiefel.geometry import frame as frames
from stiefel.geometry.frame import Frame, Grams
from stiefel.geometry.kernels import Array, Kernels

from .numpy_kernels import GEMV, Overwriting, solve_in_place

TINY = {dtype: float(np.finfo(dtype).smallest_normal) for dtype in map(np.dtype, "fdFD")}


def frame(k: Kernels, grams: Grams) -> Frame:
    a, b, c = grams
    if c.ndim != 2 or c.dtype not in TINY:
        return frames.frame(k, grams)
    size = len(c)
    # A power of two, which rounds nothing; from a sum in double precision, which has the range.
    wide = c.astype(np.complex128 if c.dtype.kind == "c" else np.float64, copy=False)
    norm = math.sqrt(np.vdot(wide, wide).real) + TINY[c.dtype]
    sigma = math.ldexp(1.0, -(math.frexp(norm)[1] // 2)) if norm < math.inf else math.nan
    K = np.empty((2 * size, 2 * size), c.dtype)
    K[:size, :size] = _adjoint(b)
    K[:size, size:] = sigma * c
    K[size:, :size] = (1.0 / sigma) * a
    K[size:, size:] = b
    K *= _Small.of(K).halves
    return Frame(K, sigma)


def displacement(k: Kernels, frame: Frame, t: float) -> Array:
    if frame.K.ndim != 2:
        return frames.displacement(k, frame, t)
    twice = frame.K * (2.0 * t)
    left = twice * -0.5
    left += k.eye(left)
    return _solved(left, twice)


def moved(k: Kernels, frame: Frame, t: float) -> tuple[Array, Array, Array]:
    if frame.K.ndim != 2:
        return frames.moved(k, frame, t)
    N = displacement(k, frame, t)
    size = len(N) // 2
    P = N[:size, :size]
    return P + k.eye(P), N[size:, :size] * frame.sigma, N


def orthonormalised(k: Kernels, grams: Grams, P: Array, Q: Array) -> tuple[Array, Array]:
    a, b, c = grams
    if a.ndim != 2:
        return frames.orthonormalised(k, grams, P, Q)
    upper, lower = a.dot(P), _adjoint(b).dot(P)
    upper += b.dot(Q)
    lower += c.dot(Q)
    E = _adjoint(P).dot(upper)
    E += _adjoint(Q).dot(lower)
    E *= -0.5
    E += _Small.of(E).three_halves
    return P.dot(E), Q.dot(E)


def lifted(k: Kernels, ends: Grams) -> tuple[Array, Array, Grams]:
    a, m, d = ends
    if m.ndim != 2:
        return cayley.lifted(k, ends)
    one = k.eye(m)
    M = _solved(m + one, 2.0 * one)
    if not np.vdot(M, M).real * _Small.of(m).eps < len(M):  # opposite points; see `cayley`
        M = math.nan * M
    mM = m.dot(M)
    s = mM + _adjoint(mM)
    s *= 0.5
    b = mM - a.dot(s)
    c = _adjoint(M).dot(d.dot(M))
    c -= _adjoint(mM).dot(s)
    c -= s.dot(b)
    return M, s, Grams(a, b, c)


def shifted(k: Kernels, grams: Grams, theta: float) -> tuple[Grams, Array]:
    a, B, C = grams
    if B.ndim != 2:
        return cayley.shifted(k, grams, theta)
    M = (0.5 - 0.5 * theta) * _adjoint(B)
    M += (0.5 + 0.5 * theta) * B
    b = B - a.dot(M)
    c = C - _adjoint(M).dot(B)
    c -= _adjoint(b).dot(M)
    return Grams(a, b, c), M


def coefficients(
    k: Kernels,
    frame: Frame,
    N: Array,
    t: float,
    b: Array,
    WG: Array,
    turn: Array,
    M: Array | None,
) -> tuple[Array, Array, Array, Array]:
    if N.ndim != 2:
        return secant.coefficients(k, frame, N, t, b, WG, turn, M)
    size, sigma, one = len(b), frame.sigma, k.eye(b)
    C = np.empty_like(N)
    C[:size, :size] = b
    C[:size, size:] = WG * -0.5
    C[size:, :size] = one * (1.0 / sigma)
    C[size:, size:] = turn * (0.5 / sigma)
    NC = N.dot(C)
    NC *= t
    P, Q = NC[:size], NC[size:] * sigma
    P[:, :size] += t * b
    P[:, size:] -= t * WG
    Q[:, :size] += t * one
    Q[:, size:] += t * turn
    if M is not None:
        P -= M.dot(Q)
    return P[:, :size], Q[:, :size], P[:, size:], Q[:, size:]


def column_part(k: Kernels, m: Array, D: Array, omega: float) -> Array:
    if m.ndim != 2:
        return metric.column_part(k, m, D, omega)
    A = m - _adjoint(m)
    A *= 0.25 * omega
    C = (A - m).dot(D)
    C += D.dot(A)
    return C


def squared_change(k: Kernels, seen: secant.Curvature, D: Array | None, omega: float) -> Any:
    if D is None or D.ndim != 2:
        return metric.squared_change(k, seen, D, omega)
    B = seen.B
    return np.vdot(D, seen.yy).real + (omega - 1.0) * np.vdot(B, B.dot(D)).real


class _Small:
    """Constants that go with a small matrix."""

    _made: ClassVar[dict[tuple[int, Any], _Small]] = {}

    def __init__(self, size: int, dtype: Any) -> None:
        self.eps = float(np.finfo(dtype).eps)
        self.three_halves = 1.5 * np.eye(size, dtype=dtype)
        self.halves = np.full((size, size), 0.5, dtype)
        self.halves[: size // 2] = -0.5

    @classmethod
    def of(cls, A: Array) -> _Small:
        key = A.shape[-1], A.dtype
        found = cls._made.get(key)
        if found is None:
            found = cls._made[key] = cls(*key)
        return found


def _adjoint(A: Array) -> Array:
    return A.conj().T if A.dtype.kind == "c" else A.T


def _solved(A: Array, B: Array) -> Array:
    """A⁻¹B of row-major matrices that commute; both are overwritten.

    LAPACK sees their transposes: what it solves is (BA⁻¹)ᵀ.
    """
    return solve_in_place(A.T, B.T).T


def longest(k: Kernels, grams: Grams) -> Array:
    if grams.WW.ndim != 2:
        return transport.longest(k, grams)
    return k.trace(grams.WW) + 3.0 * k.squared_frobenius(grams.XW)


def block_dot(k: Kernels, block: Array, C: Array) -> Array:
    if k.is_complex(C):
        return transport.block_dot(k, block, C)
    return k.reduce(block.reshape(len(block), -1) @ k.weigh(C).reshape(-1))[0]


def block_add(k: Kernels, a: float, C: Array, block: Array, weights: Array) -> Array:
    gemv = GEMV.get(C.dtype) if C.flags.c_contiguous and C.size else None
    rows = block.reshape(len(block), -1)
    if gemv is None:
        return a * C + (weights @ rows).reshape(C.shape)
    out = C if isinstance(k, Overwriting) else C.copy()
    gemv(1.0, rows.T, weights, beta=a, y=out.reshape(-1), overwrite_y=True)
    return out


TABLE: dict[Callable[..., Any], Callable[..., Any]] = {
    frames.frame: frame,
    frames.displacement: displacement,
    frames.moved: moved,
    frames.orthonormalised: orthonormalised,
    cayley.lifted: lifted,
    cayley.shifted: shifted,
    secant.coefficients: coefficients,
    metric.column_part: column_part,
    metric.squared_change: squared_change,
    transport.longest: longest,
    transport.block_dot: block_dot,
    transport.block_add: block_add,
}
