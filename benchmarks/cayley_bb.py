"""Wen and Yin's loop in sixty lines: a Cayley step, Barzilai and Borwein's length, no memory.

A yardstick for the work beside f: what a user writes who needs one problem solved, and no more.
Matrices (n, k), stacks of them, and unit columns (`unit_columns`), real.  Z. Wen and W. Yin,
Math. Program. 142 (2013), with the nonmonotone search of Zhang and Hager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any
Curve = Callable[[float], Array]
DECREASE, SHRINK, MIXING, LARGEST = 1e-4, 0.2, 0.85, 1e20


def minimise(fun: Any, X: Array, iterations: int, leave: Any = None) -> tuple[Array, float]:
    """At most so many iterations; ``leave(X, G)`` gives a curve and the gradient's direction."""
    leave = leave or (square if 2 * X.shape[-1] >= X.shape[-2] else tall)
    f, G = fun(X)
    curve, slope, D = leave(X, G)
    tau, mean, weight = 1e-2 / np.sqrt(slope), f, 1.0
    for i in range(iterations):
        while True:
            Y = curve(tau)
            f, G = fun(Y)
            if f <= mean - DECREASE * tau * slope or tau < 1e-16:
                break
            tau *= SHRINK
        curve, slope, new = leave(Y, G)
        S, T = Y - X, new - D
        st = abs(float(np.vdot(S, T)))
        if i % 2:
            tau = float(np.vdot(S, S)) / st if st else tau
        else:
            tau = st / (float(np.vdot(T, T)) or 1.0)
        tau = min(max(tau, 1e-20), LARGEST)
        X, D = Y, new
        weight, old = MIXING * weight + 1.0, MIXING * weight
        mean = (old * mean + f) / weight
    return X, f


def tall(X: Array, G: Array) -> tuple[Curve, float, Array]:
    """X − τU(I + τVᵀU/2)⁻¹VᵀX with U = [G, X], V = [X, −G]."""
    k = X.shape[-1]
    U, V = np.concatenate([G, X], -1), np.concatenate([X, -G], -1)
    VU = V.mT @ U
    VX, D = VU[..., k:], G - X @ (G.mT @ X)
    one = np.eye(2 * k)
    curve = lambda t: X - U @ np.linalg.solve(one + (0.5 * t) * VU, t * VX)
    return curve, float(np.vdot(D, D)), D


def square(X: Array, G: Array) -> tuple[Curve, float, Array]:
    """(I + τA/2)⁻¹(I − τA/2)X with A = GXᵀ − XGᵀ."""
    A = G @ X.mT
    A = A - A.mT
    D, one = A @ X, np.eye(X.shape[-2])
    curve = lambda t: np.linalg.solve(one + (0.5 * t) * A, X - (0.5 * t) * D)
    return curve, float(np.vdot(D, D)), D


def unit_columns(X: Array, G: Array) -> tuple[Curve, float, Array]:
    """The same for columns of length one, in closed form."""
    xg, gg, xx = ((a * b).sum(-2, keepdims=True) for a, b in ((X, G), (G, G), (X, X)))
    D = G - X * xg

    def curve(t: float) -> Array:
        h = 0.25 * t * t * (gg * xx - xg * xg)
        return (X * ((1.0 + 0.5 * t * xg) ** 2 - 0.25 * t * t * gg * xx) - t * xx * G) / (1.0 + h)

    return curve, float(np.vdot(D, D)), D
