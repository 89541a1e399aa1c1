"""What a row model knows, and the inverse of the Hessian that follows from it.

The formulas of `row_model` for H: a block BFGS formula on normal directions, for all shifts at
once, and the rotations beside them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stiefel.backends.base import Kernels
from stiefel.backends.numpy import eigh
from stiefel.types import Array, NumpyArray

from . import row_compiled, row_memory, row_ritz
from .row_memory import RowMemory
from .row_ritz import RitzPairs, Stacked
from .row_rotations import SOFTEST, coupled


class Columns(NamedTuple):
    """The columns in which the Hessian is one shifted operator each: q ↦ q W, V = v Wᴴ."""

    D: NumpyArray  # of determinant one …
    half: NumpyArray  # … D½ …
    inverse_half: NumpyArray  # … and D^{-½}
    vectors: NumpyArray  # eigenvectors of D, and of M …
    gaps: NumpyArray  # … and ½|μ_i − μ_j| of M
    c: NumpyArray  # the shifts, rising
    W: NumpyArray  # D½Q
    F: NumpyArray  # D^{-½}Q, for tangents

    @classmethod
    def of(cls, D: NumpyArray) -> Columns:
        """At no point yet."""
        values, V = eigh(D)
        V, root, mu = np.ascontiguousarray(V), np.sqrt(values), 0.5 / values
        half, inverse_half = (V * root).dot(V.conj().T), (V / root).dot(V.conj().T)
        return cls(D, half, inverse_half, V, np.abs(mu[:, None] - mu), mu, V, V)

    def at(self, level: NumpyArray) -> Columns:
        """The same D at a point with another C."""
        half, inverse_half = self[1:3]
        c, Q = eigh(half.dot(level).dot(half))
        return Columns(*self[:5], c, half.dot(Q), inverse_half.dot(Q))


class Known(NamedTuple):
    """What is known about A."""

    memory: RowMemory
    columns: Columns
    offset: Array  # C₀ of ∇f = A X M + C₀; None for zero
    normal: Stacked
    ritz: RitzPairs
    exact: bool
    resets: int = 0  # times that all but the newest block was forgotten
    strain: float = 0.0  # of a model with a constant part: first trials that were not taken …
    rests: int = 0  # … and how often the model has rested for them


NOTHING_SEEN = Stacked(np.zeros((0, 0))), RitzPairs(np.zeros((0, 0)), np.zeros(0))


def inverse_of_rows(
    k: Kernels,
    known: Known,
    G: Array,
    seen: Any,
    rotation: Any,
    sign: float,
    turns: bool,
) -> Array:
    """±H G for the normal part q = (G − X XᴴG) W, and for the rotation XᴴG if that is asked for.

    ``seen``: WᴴG and AXᴴG; with None for it and for the rotation the kernel finds both.
    """
    memory, columns, offset, normal, ritz, *_ = known
    fast = row_compiled.row_kernels(k, G)
    if fast is not None:
        kept, grams = (memory.W, memory.used, memory.XA), memory.grams
        of_columns = columns.c, columns.W, columns.F, columns.vectors, columns.gaps
        arrays = grams.WX, grams.XX, normal.WW, ritz.T, ritz.theta, *of_columns
        way = row_compiled.way_of_turns(offset, not turns)
        return row_compiled.applied_inverse(
            fast, kept, G, (seen, rotation), arrays, SOFTEST, sign, way
        )
    grams, c, W, WH = memory.grams, columns.c, columns.W, sign * columns.W.conj().T
    size, L = len(c), grams.L
    WG, AXG, p = seen[:-size], seen[-size:], len(seen[:-size]) // 2
    WX = grams.WX[:, :size]
    AXq = (AXG - L.conj().T.dot(rotation)).dot(W)
    seen = (WG - WX.dot(rotation)).dot(W)  # Uᴴq, and then Z°ᴴq
    seen[p:] -= WX[:p].dot(AXq)
    gamma = 1.0 / (row_ritz.shift_of_rest(normal, c, columns.F, ritz.theta) - c)
    if offset is not None and turns:
        uz, r, omega = coupled(ritz, normal, grams, (c, gamma, W), (seen, AXq, rotation))
        x, omega = r - WX[:p].conj().T.dot(uz[p:]), sign * omega
    else:
        uz = _apart(ritz, normal, c, gamma, seen)
        x = -WX[:p].conj().T.dot(uz[p:])
        omega = (
            sign * _uncoupled_rotation(columns, L, rotation) if turns else np.zeros_like(rotation)
        )
    own = (W * gamma).dot(WH)  # of G
    xa = np.empty((2 * size, size), WH.dtype)
    xa[:size] = omega - (WX.conj().T.dot(uz) + L.dot(x)).dot(WH) - rotation.dot(own)
    xa[size:] = x.dot(WH)
    return row_memory.combination(k, memory, G, uz.dot(WH), own, xa)


def _apart(
    ritz: RitzPairs, normal: Stacked, c: NumpyArray, gamma: NumpyArray, seen: NumpyArray
) -> NumpyArray:
    """u and then z of H q = U°u + Z°z + qγ, from W°ᴴq."""
    T, theta = ritz
    p, e, TH = len(T), 1.0 / (theta[:, None] - c), T.conj().T
    a = e * TH.dot(seen[:p])
    uz = np.concatenate((T.dot(a * c), T.dot(-a)))
    v = normal.WW.dot(uz)
    v += seen
    v *= gamma  # W°ᴴv
    uz *= gamma
    uz[:p] += T.dot(a - e * TH.dot(v[p:] - v[:p] * c))
    return uz


def _uncoupled_rotation(columns: Columns, L: NumpyArray, rotation: NumpyArray) -> NumpyArray:
    """Ω with ½|Λ_i − Λ_j||μ_i − μ_j| Ω_ij = (XᴴG)_ij in the eigenbasis of M."""
    vectors = columns.vectors
    adjoint = vectors.conj().T
    levels = adjoint.dot(L).dot(vectors).diagonal().real
    h = np.abs(levels[:, None] - levels)
    h *= columns.gaps
    largest = h.max()
    if not largest > 0:  # equal weights: rotations change nothing
        return np.zeros_like(rotation)
    h = np.maximum(h, SOFTEST * largest)
    return np.asarray(vectors.dot(adjoint.dot(rotation).dot(vectors) / h).dot(adjoint))
