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

from stiefel.geometry import cayley, metric, secant, stiefel, transport
from stiefel.geometry import frame as frames
from stiefel.geometry.frame import Frame, Grams
from stiefel.geometry.kernels import Array, Kernels

from .numpy_kernels import GEMV, Overwriting, add_product, solve_in_place


def prepare(k: Kernels, X: Array, W: Array) -> tuple[Frame, Any, Any]:
    if X.ndim != 2:
        return cayley.prepare(k, X, W)
    a, b, c = k.grams(X, W)
    trace, defect = k.trace(c), a - k.eye(a)
    made = _frame(a, b, c, *_scaled_bases(trace, _Small.of(c)))
    return made, trace + k.squared_frobenius(b), k.squared_frobenius(defect)


def prepare_tangent(k: Kernels, X: Array, T: Array, theta: float) -> tuple[Frame, Any, Any, Any]:
    if X.ndim != 2:
        return cayley.prepare_tangent(k, X, T, theta)
    a, b, c = k.grams(X, T)
    trace, defect, size = k.trace(c), a - k.eye(a), len(a)
    basis, cobasis = _scaled_bases(trace, _Small.of(c))
    M = (-0.5 + 0.5 * theta) * _adjoint(b)
    M -= (0.5 + 0.5 * theta) * b
    basis[:size, size:] = M * basis[-1, -1]
    cobasis[:size, :size] = -_adjoint(M)
    made = _frame(a, b, c, basis, cobasis)
    return made, k.squared_frobenius(defect), longest(k, made), trace


def lifted(k: Kernels, grams: Grams) -> Frame:
    a, m, d = grams
    if m.ndim != 2:
        return cayley.lifted(k, grams)
    small, size = _Small.of(m), len(m)
    M = _solved(m + k.eye(m), 2.0 * k.eye(m))
    if not np.vdot(M, M).real * small.eps < size:  # opposite points; see `cayley`
        M = math.nan * M
    basis = small.upper.copy()
    mM = m.dot(M)
    mM += _adjoint(mM)
    np.multiply(mM, -0.5, out=basis[:size, size:])
    basis[size:, size:] = M
    return _frame(a, m, d, basis, small.J.dot(_adjoint(basis)))


def displacement(k: Kernels, frame: Frame, t: float) -> Array:
    if frame.generator.ndim != 2:
        return frames.displacement(k, frame, t)
    tK = frame.generator * t
    left = tK * -0.5
    left += k.eye(left)
    return _solved(left, tK)


def moved(k: Kernels, frame: Frame, t: float) -> tuple[Array, Array]:
    if frame.basis.ndim != 2:
        return frames.moved(k, frame, t)
    N, size = displacement(k, frame, t), len(frame.basis) // 2
    C = frame.basis.dot(N[:, :size])
    small = _Small.of(C)
    C += small.first
    E = _adjoint(C).dot(frame.gram.dot(C))
    E *= -0.5
    E += small.three_halves
    return C.dot(E), N


def point(k: Kernels, X: Array, U: Array, frame: Frame, t: float) -> tuple[Array, Array]:
    if X.ndim != 2:
        return cayley.point(k, X, U, frame, t)
    C, N = moved(k, frame, t)
    size = C.shape[1]
    return add_product(X.dot(C[:size]), 1.0, U, C[size:]), N


def coefficients(
    k: Kernels, frame: Frame, N: Array, t: float, XG: Array, UG: Array
) -> tuple[Array, Array, Array, Array]:
    if N.ndim != 2:
        return secant.coefficients(k, frame, N, t, XG, UG)
    size, basis = len(XG), frame.basis
    C = 2.0 * N[:, :size]
    C -= t * frame.generator[:, :size]
    C = basis.dot(C)
    c = frame.cobasis.dot(np.concatenate((XG, UG)))
    c *= t
    Nc = N.dot(c)
    Nc *= 0.5
    c += Nc
    c = basis.dot(c)
    return C[:size], C[size:], c[:size], c[size:]


def raise_columns(k: Kernels, X: Array, W: Array, D: Array, omega: float) -> Array:
    if W.ndim != 2:
        return metric.raise_columns(k, X, W, D, omega)
    m = k.gram(X, W)
    A = m - _adjoint(m)
    A *= 0.25 * omega
    C = (A - m).dot(D)
    C += D.dot(A)
    return k.combine(W, D, X, C)


def squares(k: Kernels, seen: secant.Curvature) -> secant.Squares:
    t, frame, B, yy = seen
    if B.ndim != 2:
        return secant.squares(k, seen)
    C, gram_C = frames.velocity_of(frame)
    C, gram_C = C * t, gram_C * t
    A = gram_C[: len(B)]
    AA, BB = _adjoint(A).dot(A), _adjoint(B).dot(B)
    SS, TT = _adjoint(C).dot(gram_C), yy - BB
    SS -= AA
    return secant.Squares(SS, TT, k.trace(SS), k.trace(TT), k.trace(AA), k.trace(BB))


def lower_gradient(k: Kernels, X: Array, E: Array) -> tuple[Array, Any, Array]:
    if E.ndim != 2:
        return stiefel.lower_gradient(k, X, E)
    m = k.pairing(X, E)
    other = _adjoint(m)
    normal, turn = m + other, m - other
    normal *= 0.5
    turn *= 0.5
    G = k.subtract(k.sharpen(E), X, normal)
    return G, k.dot(G, G) + k.squared_frobenius(turn), turn


def longest(k: Kernels, frame: Frame) -> Any:
    if frame.basis.ndim != 2:
        return transport.longest(k, frame)
    return k.small_inner(*frames.velocity_of(frame))


def block_dot(k: Kernels, block: Array, C: Array) -> Array:
    if C.dtype.kind == "c":
        return transport.block_dot(k, block, C)
    return k.reduce(block.reshape(len(block), -1).dot(k.weigh(C).reshape(-1)))[0]


def block_add(k: Kernels, a: float, C: Array, block: Array, weights: Array) -> Array:
    gemv = GEMV.get(C.dtype) if C.flags.c_contiguous and C.size else None
    rows = block.reshape(len(block), -1)
    if gemv is None:
        return a * C + (weights @ rows).reshape(C.shape)
    out = C if isinstance(k, Overwriting) else C.copy()
    gemv(1.0, rows.T, weights, beta=a, y=out.reshape(-1), overwrite_y=True)
    return out


TABLE: dict[Callable[..., Any], Callable[..., Any]] = {
    frames.displacement: displacement,
    frames.moved: moved,
    cayley.prepare: prepare,
    cayley.prepare_tangent: prepare_tangent,
    cayley.lifted: lifted,
    cayley.point: point,
    secant.coefficients: coefficients,
    metric.raise_columns: raise_columns,
    secant.squares: squares,
    stiefel.lower_gradient: lower_gradient,
    transport.longest: longest,
    transport.block_dot: block_dot,
    transport.block_add: block_add,
}


# -- what they share ---------------------------------------------------------------------------


def _scaled_bases(trace: Any, small: _Small) -> tuple[Array, Array]:
    """B and A of U itself, with a power of two for σ, which rounds nothing."""
    square = float(trace) + small.tiny
    exponent = math.frexp(square)[1] // 2 if square < math.inf else 0
    B = small.upper + math.ldexp(1.0, -exponent) * small.lower
    return B, small.J_right + math.ldexp(1.0, exponent) * small.J_left


def _frame(a: Array, b: Array, c: Array, basis: Array, cobasis: Array) -> Frame:
    size = len(a)
    gram = np.empty_like(basis)
    gram[:size, :size] = a
    gram[:size, size:] = b
    gram[size:, :size] = _adjoint(b)
    gram[size:, size:] = c
    return Frame(gram, basis, cobasis, cobasis.dot(gram.dot(basis)))


class _Small:
    """Constants that go with a small matrix."""

    _made: ClassVar[dict[tuple[int, Any], _Small]] = {}

    def __init__(self, size: int, dtype: Any) -> None:
        self.eps, self.tiny = float(np.finfo(dtype).eps), float(np.finfo(dtype).smallest_normal)
        self.three_halves = 1.5 * np.eye(size, dtype=dtype)
        self.first = np.eye(2 * size, size, dtype=dtype)
        self.lower = np.eye(2 * size, dtype=dtype)
        self.upper = self.lower.copy()
        self.lower[:size], self.upper[size:] = 0.0, 0.0
        self.J_left = np.roll(self.upper, size, axis=0)
        self.J_right = -np.roll(self.lower, size, axis=0)
        self.J = self.J_left + self.J_right
        for constant in vars(self).values():
            if isinstance(constant, np.ndarray):
                constant.flags.writeable = False

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
