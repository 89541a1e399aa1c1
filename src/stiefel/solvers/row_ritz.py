"""Ritz pairs of an operator A, and how Hermitian its images are, from Gram matrices alone.

With vectors U and their images Z = A U, orthonormal combinations U T and K = TᴴUᴴZ T, the Ritz
values θ are the eigenvalues of the Hermitian part of K.  Its skew part is an error of the images.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from stiefel.backends.numpy import eigh, orthonormal_factor, orthonormalising
from stiefel.types import NumpyArray

DEPENDENT = 1e-5  # squared lengths beside the vectors before, relative to one, that are dropped
TINY = float(np.finfo(float).tiny)
UNRELIABLE = 0.1  # the skew part of K that a Ritz vector may have, relative to θ − c


class Stacked(NamedTuple):
    """Inner products of vectors U and images Z, p of each, in one matrix: W = [U, Z]."""

    WW: NumpyArray

    @property
    def UU(self) -> NumpyArray:
        p = len(self.WW) // 2
        return self.WW[:p, :p]

    @property
    def UZ(self) -> NumpyArray:
        p = len(self.WW) // 2
        return self.WW[:p, p:]


class RitzPairs(NamedTuple):
    """T and θ: the Ritz vectors are U°T."""

    T: NumpyArray
    theta: NumpyArray


def asymmetry(K: NumpyArray, squares: NumpyArray) -> float:
    """‖K − Kᴴ‖/‖K‖ of K = SᴴZ, with the columns of S (of these squared lengths) of length one."""
    return _skewness(_scaled(K, squares))


def _scaled(K: NumpyArray, squares: NumpyArray) -> NumpyArray:
    scale = 1.0 / np.sqrt(np.maximum(squares, TINY))
    return K * scale * scale[:, None]


def _skewness(K: NumpyArray) -> float:
    skew, size = K - K.conj().T, np.vdot(K, K).real
    return math.sqrt(np.vdot(skew, skew).real / size) if size > 0 else math.inf


def asymmetries(WW: NumpyArray, size: int) -> tuple[float, float]:
    """Of the newest block of vectors and images, and of all blocks together."""
    seen = Stacked(WW)
    K = _scaled(seen.UZ, np.diagonal(seen.UU).real)
    return _skewness(K[-size:, -size:]), _skewness(K)


def ritz_pairs(normal: Stacked, highest: float) -> RitzPairs:
    """TᴴUU T = I and Tᴴherm(UZ)T = diag(θ), θ above the highest shift; see `_reliable`."""
    T = orthonormalising(normal.UU, DEPENDENT)
    K = T.conj().T.dot(normal.UZ).dot(T)
    KH = K.conj().T
    theta, vectors = eigh(0.5 * (K + KH))
    first = int(theta.searchsorted(highest, "right"))
    theta, vectors = theta[first:], vectors[:, first:]
    skew = 0.5 * (K - KH)
    if len(theta) and np.vdot(skew, skew).real > (UNRELIABLE * (theta[0] - highest)) ** 2:
        keep = _reliable(vectors.conj().T.dot(skew).dot(vectors), theta - highest)
        theta, vectors = theta[keep], vectors[:, keep]
    return RitzPairs(T.dot(vectors), theta)


def _reliable(skew: NumpyArray, above: NumpyArray) -> NumpyArray:
    """Which Ritz vectors are left when those with the largest errors are dropped one by one.

    K = UᴴZ is Hermitian but for errors of the images.  A row of its skew part, in units of the
    curvatures (θ_i − c)^½(θ_j − c)^½ that the inverse divides by, is the error of that vector.
    """
    root = 1.0 / np.sqrt(above)
    squares = np.abs(skew * root * root[:, None]) ** 2
    keep, sums = np.ones(len(above), bool), squares.sum(axis=1)
    while keep.any():
        worst = int(np.argmax(np.where(keep, sums, -1.0)))
        if sums[worst] <= UNRELIABLE**2:
            break
        keep[worst] = False
        sums = sums - squares[worst]
    return keep


def lowest_and_newest(ritz: RitzPairs, normal: Stacked, lowest: int, size: int) -> NumpyArray:
    """Orthonormal combinations of U°: the lowest Ritz vectors, and the newest block."""
    T = ritz.T
    if T.shape[1] <= lowest:
        return T
    new = T[:, lowest:].conj().T.dot(normal.UU[:, -size:])  # beside the lowest ones
    return np.concatenate((T[:, :lowest], T[:, lowest:].dot(orthonormal_factor(new))), axis=1)


def shift_of_rest(normal: Stacked, c: NumpyArray, F: NumpyArray, theta: NumpyArray) -> float:
    """σ with Σ‖y_i‖²/(σ − c_i) = Σ⟨s_i, y_i⟩ for the newest block; Newton's method from below."""
    WW, size, p = normal.WW, len(c), len(normal.WW) // 2
    newest = WW.reshape(2, p, 2, p)[:, p - size :, :, p - size :].swapaxes(1, 2)
    (uu, uz), (_, zz) = (newest.dot(F) * F.conj()).real.sum(axis=2)
    yy, sy = zz - c * (2.0 * uz - c * uu), float((uz - c * uu).sum())
    squares = list(zip(c.tolist(), yy.tolist(), strict=True))  # a few numbers need no arrays
    sigma = max(shift + y / sy for shift, y in squares) if sy > 0 else -math.inf
    if not sigma > float(c.max()):  # the newest step saw no positive curvature, or none of a column
        return float(max(theta[-1:], default=c[-1])) + 1e-3 * float(np.abs(c).max())  # all known
    for _ in range(50):
        excess, slope = -sy, 0.0
        for shift, y in squares:
            g = y / (sigma - shift)
            excess, slope = excess + g, slope + g / (sigma - shift)
        if excess <= 1e-3 * sy:
            break
        sigma += excess / slope
    return sigma
