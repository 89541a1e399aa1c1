"""The formulas of `cayley`, `ray`, `metric` and `stiefel` once more, for single NumPy matrices.

At n = 1000, k = 10 an iteration is a few hundred microseconds, so that every temporary and every
call shows.  Here small matrices are written into place instead of being assembled, and multiplied
by ``dot``, which takes half the time of ``@`` on 10×10 matrices.  Each function has the name of the
formula that it repeats, and `tests/test_fused.py` compares every one with it.  Sums over rows go
through the kernels only where there is a constraint matrix, or rows on other machines.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from stiefel.backends.base import Kernels
from stiefel.backends.numpy import add_product, cholesky, eigh, solve_in_place
from stiefel.types import Array, Metric

from .cayley import Frame, Grams
from .ray import Curvature, Ray, Secant, Squares, TangentRay

# Entries; below, a product and a sum take half the time of a call of gemm; test_rooms.py counts.
SMALL_POINT = 2000
LONG_STEP = (
    1e30  # from here on products may overflow, in single precision too; `test_trust_hostile`
)

# -- cayley ------------------------------------------------------------------------------------


def prepare(k: Kernels, X: Array, W: Array) -> tuple[Frame, Any, Any]:
    a, b, c = _grams(k, X, W)
    small = _Small.of(c)
    trace = _trace(k, c)
    made = _frame(a, b, c, *_scaled_bases(trace, small))
    return made, trace + _inner(k, b, b), _square(k, a - small.one)


def prepare_tangent(k: Kernels, X: Array, T: Array, theta: float) -> tuple[Frame, Any, Any, Any]:
    a, b, c = _grams(k, X, T)
    small, size = _Small.of(c), len(a)
    trace = _trace(k, c)
    basis, cobasis = _scaled_bases(trace, small)
    M = (-0.5 + 0.5 * theta) * _adjoint(b)
    M -= (0.5 + 0.5 * theta) * b
    basis[:size, size:] = M * basis[-1, -1]
    cobasis[:size, :size] = -_adjoint(M)
    made = _frame(a, b, c, basis, cobasis)
    return made, _square(k, a - small.one), squared_speed(k, made), trace


def frame_between(k: Kernels, grams: Grams) -> Frame:
    a, m, d = grams
    small, size = _Small.of(m), len(m)
    M = _solved(m + small.one, 2.0 * small.one)
    if not np.vdot(M, M).real * small.eps < size:  # opposite points; see `cayley`
        M = math.nan * M
    basis = small.upper.copy()
    mM = m.dot(M)
    mM += _adjoint(mM)
    np.multiply(mM, -0.5, out=basis[:size, size:])
    basis[size:, size:] = M
    return _frame(a, m, d, basis, small.J.dot(_adjoint(basis)))


def squared_speed(k: Kernels, frame: Frame) -> Any:
    C = frame.basis.dot(frame.generator[:, : len(frame.basis) // 2])
    return _inner(k, C, frame.gram.dot(C))


def displacement(k: Kernels, frame: Frame, t: float) -> Array:
    if abs(t) < LONG_STEP:
        tK = frame.generator * t
    else:
        with np.errstate(over="ignore"):  # a step of 1e308 ends in a point that is refused
            tK = frame.generator * t
    left = tK * -0.5
    left += _Small.of(left).one
    return _solved(left, tK)


def point_coefficients(k: Kernels, frame: Frame, t: float) -> tuple[Array, Array]:
    N, size = displacement(k, frame, t), len(frame.basis) // 2
    C = frame.basis.dot(N[:, :size])
    small = _Small.of(C)
    C += small.first
    E = _adjoint(C).dot(frame.gram.dot(C))
    E *= -0.5
    E += small.three_halves
    return C.dot(E), N


def point(k: Kernels, X: Array, U: Array, frame: Frame, t: float) -> tuple[Array, Array]:
    C, N = point_coefficients(k, frame, t)
    size = C.shape[1]
    return _added(X.dot(C[:size]), 1.0, U, C[size:]), N


def extrapolate(k: Kernels, X: Array, Y: Array, tau: float) -> Array:
    return point(k, X, Y, frame_between(k, Grams(*_grams(k, X, Y))), tau)[0]


# -- ray ---------------------------------------------------------------------------------------


def secant_pair(
    k: Kernels,
    X: Array,
    U: Array,
    frame: Frame,
    N: Array,
    t: float,
    G: Array,
    rotation: Array,
    G_new: Array,
    rotation_new: Array,
) -> Secant:
    P, Q, p, q = coefficients(k, frame, N, t, rotation, _gram(k, U, G))
    s, y = _added(X.dot(P), 1.0, U, Q), G_new - G
    y = _added(_added(y, -1.0, X, p), -1.0, U, q)
    return Secant(s, y, Curvature(t, frame, rotation_new - rotation, _gram(k, y, y)))


def coefficients(
    k: Kernels, frame: Frame, N: Array, t: float, XG: Array, UG: Array
) -> tuple[Array, Array, Array, Array]:
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


# -- metric ------------------------------------------------------------------------------------


def raise_index(k: Kernels, X: Array, W: Array, metric: Metric) -> Array:
    m, D = _gram(k, X, W), metric.D
    if metric.horizontal:
        return k.subtract(W, X, m) if D is None else k.combine(W, D, X, -m.dot(D))
    A = m - _adjoint(m)
    A *= 0.5 * metric.omega
    if D is None:
        return k.subtract(W, X, m - A)
    A -= m.dot(D)
    return k.combine(W, D, X, A)


def raise_onto(k: Kernels, X: Array, W: Array, metric: Metric) -> Array:
    """`raise_index`, perhaps written over W."""
    return raise_index(k.overwriting(), X, W, metric)


def squared_change(k: Kernels, seen: Curvature, D: Array | None, omega: float) -> Any:
    B, yy = seen.B, seen.yy
    if D is None:
        return _trace(k, yy) + (omega - 1.0) * _square(k, B)
    return _inner(k, D, yy) - _inner(k, B, B.dot(D)) + omega * _square(k, B)


def squares(k: Kernels, seen: Curvature) -> Squares:
    t, frame, B, yy, _ = seen
    C = frame.basis.dot(frame.generator[:, : len(B)])
    C, gram_C = C * t, frame.gram.dot(C) * t
    A = gram_C[: len(B)]
    AA, BB = _adjoint(A).dot(A), _adjoint(B).dot(B)
    SS, TT = _adjoint(C).dot(gram_C), yy - BB
    SS -= AA
    return Squares(SS, TT, *(_trace(k, M) for M in (SS, TT, AA, BB)))


def mean_metric(k: Kernels, P: Array, R: Array, largest_ratio: float) -> Array:
    small, size = _Small.of(P), len(P)
    tiny = small.tiny**0.5
    P = P + (1e-3 * (P.trace() / size) + tiny) * small.one
    R = R + (1e-6 * (R.trace() / size) + tiny) * small.one
    # With P = LLᴴ and LᴴRL = VλVᴴ, M⁻¹ = (LV) λ^{-½} (LV)ᴴ.
    L = cholesky(P)
    values, V = eigh(_hermitian(_adjoint(L).dot(R).dot(L)))
    LV = L.dot(V)
    # R is a difference: what is beneath the rounding of the largest value is not known.
    values = np.maximum(values, max(small.eps * values[-1], small.tiny))
    D = (LV / np.sqrt(values)).dot(_adjoint(LV))
    values, vectors = eigh(_hermitian(D))
    values = np.maximum(values, small.eps * values[-1])
    values /= values[0]  # they are ascending
    np.minimum(values, largest_ratio, out=values)
    values /= math.exp(sum(map(math.log, values.tolist())) / size)
    return _rebuilt(vectors, values)


def spread(k: Kernels, D: Array, E: Array | None) -> Any:
    if E is not None:
        values, vectors = eigh(E)
        inverse_root = _rebuilt(vectors, 1.0 / np.sqrt(values))
        D = inverse_root.dot(D).dot(inverse_root)
    values = eigh(_hermitian(D))[0]
    return values[-1] / values[0]


# -- stiefel -----------------------------------------------------------------------------------


def project(k: Kernels, X: Array, G: Array) -> Array:
    m = _adjoint(X).dot(G) if k.pure_numpy else k.pairing(X, G)
    m = m + _adjoint(m)
    m *= 0.5
    return k.subtract(k.sharpen(G), X, m)


def lower_gradient(k: Kernels, X: Array, E: Array) -> tuple[Array, Any, Array, Array]:
    m = _adjoint(X).dot(E) if k.pure_numpy else k.pairing(X, E)
    other = _adjoint(m)
    normal, rotation = m + other, m - other
    normal *= 0.5
    rotation *= 0.5
    if k.pure_numpy:
        G = _added(np.array(E, order="C"), -1.0, X, normal)
        return G, np.vdot(G, G).real + np.vdot(rotation, rotation).real, rotation, normal
    G = k.subtract(k.sharpen(E), X, normal)
    return G, k.dot(G, G) + k.squared_frobenius(rotation), rotation, normal


# -- what they share ---------------------------------------------------------------------------


def _added(out: Array, alpha: float, X: Array, S: Array) -> Array:
    """out + alpha X S, in place; alpha is 1 or −1."""
    if out.size > SMALL_POINT:
        return add_product(out, alpha, X, S)
    if alpha > 0:
        out += X.dot(S)
    else:
        out -= X.dot(S)
    return out


def _gram(k: Kernels, A: Array, B: Array) -> Array:
    return _adjoint(A).dot(B) if k.pure_numpy else k.gram(A, B)


def _grams(k: Kernels, A: Array, B: Array) -> Any:
    if not k.pure_numpy:
        return k.grams(A, B)
    A_, B_ = _adjoint(A), _adjoint(B)
    return A_.dot(A), A_.dot(B), B_.dot(B)


def _inner(k: Kernels, A: Array, B: Array) -> Any:
    """Re⟨A, B⟩ of small matrices."""
    return np.vdot(A, B).real if k.pure_numpy else k.small_inner(A, B)


def _hermitian(A: Array) -> Array:
    A = A + _adjoint(A)
    A *= 0.5
    return A


def _rebuilt(vectors: Array, values: Array) -> Array:
    return (vectors * values).dot(_adjoint(vectors))


def _trace(k: Kernels, A: Array) -> Any:
    return np.vdot(_Small.of(A).one, A).real if k.pure_numpy else k.trace(A)


def _square(k: Kernels, A: Array) -> Any:
    return _inner(k, A, A)


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
        self.one = np.eye(size, dtype=dtype)
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


# -- the curves --------------------------------------------------------------------------------


class FastRay(Ray):
    """`Ray`, of one NumPy matrix."""

    prepare = staticmethod(prepare)
    point = staticmethod(point)
    displacement = staticmethod(displacement)
    pair = staticmethod(secant_pair)


class FastTangentRay(TangentRay):
    """`TangentRay`, of one NumPy matrix."""

    prepare_tangent = staticmethod(prepare_tangent)
    point = staticmethod(point)
    displacement = staticmethod(displacement)
    pair = staticmethod(secant_pair)
