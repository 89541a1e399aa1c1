"""Whether a function has the structure ∇²f[S] = A S M, from the first steps of a run.

Steps S and the changes Y of the Euclidean gradient along them give D = M⁻¹ by symmetry (see
`columns`).  The structure is *exact* when the D of earlier steps makes the next pair symmetric,
which was not used for it, and when a gradient ∇f = A X M + C fits, too: with C = 0, or with the C
that one evaluation at the point −X shows,

    ∇f(X) + ∇f(−X) = 2C.

For a function of the span of X, f(XQ) = f(X), M is I and C is zero.  If then a few pairs in a row
are symmetric up to some per cent, ∇f(X) = A(X) X with an operator that changes slowly, as in
electronic structure, and the structure is taken for an *inexact* one.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from stiefel.backends.base import Kernels, kernel
from stiefel.types import Array, Gradient, NumpyArray

from .columns import HOPELESS, asymmetry, symmetrising
from .row_memory import flat, small

PAIRS = 3  # from which D is learned


class StepEnds(NamedTuple):
    """Where a step began and ended, and what part of the first trial it is."""

    X0: Array
    at0: Gradient
    X: Array
    at: Gradient
    part: float = 1.0


class SecantBlocks(NamedTuple):
    """The pairs of the last steps in blocks (m, n, k), conjugated, and SᴴY of all of them."""

    S: Array
    Y: Array
    K: NumpyArray


class Look(NamedTuple):
    """One pair (S, Y), divided by ‖S‖, and its inner products with X, ∇f(X) and older pairs."""

    S: Array
    Y: Array
    SS: NumpyArray
    SY: NumpyArray
    XY: NumpyArray
    SE: NumpyArray
    XE: NumpyArray
    older: NumpyArray  # S_jᴴY …
    newer: NumpyArray  # … and SᴴY_j
    error: float  # relative rounding errors of the pair

    def asymmetry(self, D: NumpyArray) -> float:
        """Of the pair by itself."""
        return asymmetry(self.SY.dot(D), np.diagonal(self.SS).real)

    def asymmetry_with_point(self, D: NumpyArray, XC: NumpyArray, SC: NumpyArray) -> float:
        """Of the pair together with X and its image (∇f − C)D; XᴴC and SᴴC are given."""
        top = np.concatenate(((self.XE - XC).dot(D), self.XY.dot(D)), axis=1)
        low = np.concatenate(((self.SE - SC).dot(D), self.SY.dot(D)), axis=1)
        squares = np.concatenate((np.ones(len(D)), np.diagonal(self.SS).real))
        return asymmetry(np.concatenate((top, low)), squares)


def look(k: Kernels, pairs: SecantBlocks | None, ends: StepEnds, eps: float) -> Look | None:
    """What one more step shows; None if it is no step.  16nk² with two older pairs."""
    X0, at0, X, at, _ = ends
    blocks = (X[None, ...][:0, ...],) * 2 if pairs is None else pairs[:2]
    level0, level = k.asarray(small(k, at0.level), X), k.asarray(small(k, at.level), X)
    S, Y, *found = _looked(k, X0, at0.G, level0, X, at.G, level, *blocks)
    SS, SY, XY, SE, yy, ee, older, newer = (small(k, m) for m in found)
    length, change = math.sqrt(float(np.trace(SS).real)), math.sqrt(float(yy))
    if not (length > 0 and change > 0 and math.isfinite(length + change)):
        return None
    error = eps * (math.sqrt(len(SS)) / length + math.sqrt(float(ee)) / change)
    one = 1.0 / length
    XE = small(k, at.level) + small(k, at.rotation)
    return Look(
        one * S, one * Y, one**2 * SS, one**2 * SY, one * XY, one * SE, XE,
        one * older, one * newer, error,
    )  # fmt: skip


def remembered(k: Kernels, pairs: SecantBlocks | None, seen: Look) -> SecantBlocks:
    """The pairs with one more; the last three are kept."""
    S, Y = k.conj(seen.S)[None, ...], k.conj(seen.Y)[None, ...]
    if pairs is None:
        return SecantBlocks(S, Y, seen.SY)
    size = len(seen.SY)
    K = np.block([[pairs.K, seen.older], [seen.newer, seen.SY]])[-PAIRS * size :, -PAIRS * size :]
    old = max(0, pairs.S.shape[0] + 1 - PAIRS)  # the pairs that are forgotten
    S, Y = (k.xp.concat([A[old:, ...], B], axis=0) for A, B in ((pairs.S, S), (pairs.Y, Y)))
    return SecantBlocks(S, Y, K)


def columns_of(pairs: SecantBlocks, size: int, widest: int) -> NumpyArray | None:
    """D from all pairs; for many columns only D = I is tried."""
    return symmetrising(pairs.K, size) if size <= widest else np.eye(size, dtype=pairs.K.dtype)


def constant_part(k: Kernels, ends: StepEnds, mirrored: Gradient) -> Array:
    """C of ∇f(X) = A X M + C from what is known at −X."""
    level = 0.5 * (small(k, ends.at.level) - small(k, mirrored.level))
    return _constant(k, ends.at.G, mirrored.G, ends.X, k.asarray(level, ends.X))


def fits_with(k: Kernels, seen: Look, D: NumpyArray, X: Array, C: Array, gate: float) -> bool:
    """Whether the pair and X are symmetric with the constant part C of the gradient."""
    XC, SC = (small(k, m) for m in _with_constant(k, X, seen.S, C))
    return seen.asymmetry_with_point(D, XC, SC) <= gate


def widened(gate: float, seen: Look) -> float:
    """The gate with room for rounding; zero where rounding leaves nothing to be seen."""
    wide = gate + 10.0 * seen.error
    return wide if wide <= HOPELESS else 0.0


@kernel
def _looked(
    k: Kernels, X0: Array, G0: Array, level0: Array, X: Array, G: Array, level: Array,
    older: Array, images: Array,
) -> Any:  # fmt: skip
    E, S = k.subtract(G, X, -level), X - X0
    Y = k.overwriting().subtract(E - G0, X0, level0)
    WS, WY, WE = k.weigh(S), k.weigh(Y), k.weigh(E)
    return S, Y, *k.reduce(
        k._product(S, WS), k._product(S, WY), k._product(X, WY), k._product(S, WE),
        k._dot(Y, WY), k._dot(E, WE), flat(k, older) @ WY, k.adjoint(flat(k, images) @ WS),
    )  # fmt: skip


@kernel
def _constant(k: Kernels, G: Array, mirrored: Array, X: Array, level: Array) -> Array:
    return k.subtract(0.5 * (G + mirrored), X, -level)


@kernel
def _with_constant(k: Kernels, X: Array, S: Array, C: Array) -> Any:
    WC: Any = k.weigh(C)
    return k.reduce(k._product(X, WC), k._product(S, WC))
