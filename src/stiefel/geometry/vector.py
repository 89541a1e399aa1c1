"""The kernels of `cayley` for one column, where Gram matrices are numbers.

A single NumPy column works with Python numbers, so that the sphere costs what vector code costs;
stacks and other libraries work with arrays of shape (..., 1, 1).  Formulas are those of
`cayley`, with the 2×2 system solved by hand; numbers commute, which is all the difference.
"""

from __future__ import annotations

import math
from typing import Any

from stiefel.backends.base import Kernels, kernel
from stiefel.types import Array

Number = Any


@kernel
def prepare(k: Kernels, x: Array, w: Array) -> tuple[tuple[Number, Number, Number], Number, Number]:
    """Grams, ‖w‖²_g* and the squared defect of x."""
    grams = a, b, c = tuple(k.column_grams(x, w))
    return grams, k.sum_numbers(c + b * k.conj_number(b)), k.sum_numbers((a - 1.0) ** 2)


@kernel
def point(k: Kernels, x: Array, w: Array, grams: tuple[Number, Number, Number], t: Any) -> Array:
    """R(x, φ(tw)) = x P + w Q."""
    P, Q = _coefficients(k, grams, t)
    return _combined(k, x, w, grams, P, Q)


@kernel
def lift(k: Kernels, x: Array, y: Array) -> Array:
    m = k.column_gram(x, y)
    M = _twice_inverse(m)
    return M * y - k.real_number(m * M) * x


@kernel
def extrapolate(k: Kernels, x: Array, y: Array, tau: Any) -> Array:
    a, m, d = k.column_grams(x, y)
    M = _twice_inverse(m)
    mM = m * M
    s = k.real_number(mM)
    MM = k.real_number(M * k.conj_number(M))
    xv = mM - a * s
    vv = MM * d - 2.0 * s * s + a * s * s
    P, Q = _coefficients(k, (a, xv, vv), tau)
    return _combined(k, x, y, (a, m, d), P - s * Q, M * Q)


def _twice_inverse(m: Number) -> Number:
    """2/(1 + m); no curve leads to the opposite point, and arrays say so by a NaN too."""
    if isinstance(m, (float, complex)) and m == -1.0:
        return math.nan
    return 2.0 / (1.0 + m)


def _coefficients(
    k: Kernels, grams: tuple[Number, Number, Number], t: Any
) -> tuple[Number, Number]:
    a, b, c = grams
    h = 0.5 * t
    minus, plus = 1.0 - h * b, 1.0 + h * k.conj_number(b)
    determinant = minus * plus + (h * h) * (a * c)
    return (minus * k.conj_number(minus) - (h * h) * (a * c)) / determinant, t * a / determinant


def _combined(
    k: Kernels, x: Array, w: Array, grams: tuple[Number, Number, Number], P: Number, Q: Number
) -> Array:
    a, b, c = grams
    P_, Q_ = k.conj_number(P), k.conj_number(Q)
    E = k.real_number(P_ * P * a + 2.0 * (P_ * b * Q) + Q_ * Q * c)
    correction = 1.5 - 0.5 * E
    return k.axpby(P * correction, x, Q * correction, w)


# -- what moves along a ray; see `transport` ---------------------------------------------------


@kernel
def velocity(k: Kernels, x: Array, w: Array, grams: tuple[Number, Number, Number], t: Any) -> Array:
    """x'(t), from P = (|1 − hb|² − h²ac)/D and Q = ta/D, D = (1 − hb)(1 + hb̄) + h²ac."""
    a, b, c = grams
    h, b_ = 0.5 * t, k.conj_number(b)
    minus, plus = 1.0 - h * b, 1.0 + h * b_
    minus_ = k.conj_number(minus)
    D = minus * plus + (h * h) * (a * c)
    dD = 0.5 * (minus * b_ - b * plus) + h * (a * c)
    P = (minus * minus_ - (h * h) * (a * c)) / D
    dN = -0.5 * (b * minus_ + minus * b_) - h * (a * c)
    return k.axpby((dN - P * dD) / D, x, (a - t * a / D * dD) / D, w)


@kernel
def transport(
    k: Kernels, x: Array, w: Array, grams: tuple[Number, Number, Number], t: Any, v: Array
) -> Array:
    """Q(t)v."""
    a, b, c = grams
    h = 0.5 * t
    p, q = k.column_gram(x, v), -h * k.column_gram(w, v)
    minus, plus = 1.0 - h * b, 1.0 + h * k.conj_number(b)
    determinant = minus * plus + (h * h) * (a * c)
    up, low = (plus * p + a * q) / determinant, (minus * q - (h * h) * c * p) / determinant
    return v + k.axpby(2.0 * low, x, t * up, w)


@kernel
def transported_velocity(
    k: Kernels, x: Array, w: Array, grams: tuple[Number, Number, Number], t: Any
) -> Array:
    """Q(t)φ(w)."""
    return transport(k, x, w, grams, t, k.axpby(grams[1], x, 1.0, w))


@kernel
def squared_speed(k: Kernels, grams: tuple[Number, Number, Number]) -> Number:
    _, b, c = grams
    return k.largest_number(c + 3.0 * (b * k.conj_number(b)))
