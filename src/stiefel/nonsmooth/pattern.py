"""Orthonormal matrices with given zeros: back onto them, and along them.

M_S = {X : XᴴX = I, X zero off S}.  With P the mask of S and H(Λ) = herm XᴴP(XΛ):

    restoration   X ← X − P(XΛ),  H(Λ) = ½(XᴴX − I)       Gauss and Newton; quadratic
    projection    W ↦ P(W − XΛ),  H(Λ) = herm XᴴPW         onto the tangents of M_S

H is singular where two columns share no row; its pseudo-inverse serves there.  Two columns that
share one row only are orthogonal only if one of the two entries is zero: the smaller one is taken
out of S (`separated`), and where more rows are shared but their entries are too small to make two
columns orthogonal, so are these.  A restoration that does not work is told.
"""

from __future__ import annotations

import math

import numpy as np

from stiefel.types import Array, Manifold

from .normal_system import CompiledSystem, NormalSystem, normal_system
from .space import OneVector, Space
from .terms import Diagonal

MOST_PATTERN_STEPS = 12
LONGEST_PATTERN_STEP = 0.5
LEAST_GAIN = 0.7
QUICK = 0.03
WEAK = 0.1
NEGLIGIBLE_OVERLAP = 1e-15  # between two columns
FEW_SHARED_ROWS = 8  # rows that two columns share


def restore(
    space: Space, x: Array, mask: Array, allowed: float, system: NormalSystem | None = None
) -> Array | None:
    """The point of M_S near x, with a defect of at most ``allowed``; None if there is none.

    ``system`` is H at a point near x, if one is known: it serves as long as it makes the defect
    fall.
    """
    if not space.duals.size:
        return mask * x
    x = mask * x
    if isinstance(space, OneVector):
        return _unit(x, allowed)
    if space.compiled is not None:
        numbers = system.numbers if isinstance(system, CompiledSystem) else None
        found, mask = space.compiled.restore(x, mask, allowed, numbers)
    else:
        mask, given = separated(space, x, mask), mask
        found = _restored(space, x if mask is given else mask * x, mask, allowed, system)
    if found is None:
        fewer = separated(space, mask * x, mask, weak=True)
        found = None if same(fewer, mask) else _restored(space, fewer * x, fewer, allowed)
    return found


def _restored(
    space: Space, x: Array, mask: Array, allowed: float, system: NormalSystem | None = None
) -> Array | None:
    last, stale = math.inf, False
    for _ in range(MOST_PATTERN_STEPS):
        E = space.defect(x)
        size = math.sqrt(E.dot(E))
        if size <= allowed:
            return x
        if not (stale or size <= LEAST_GAIN * last):
            return None
        stale = system is not None and size <= QUICK * last  # H stays while it serves well
        if not stale:
            system = normal_system(space, x, Diagonal(mask), pseudo=True)
        last = size
        assert system is not None
        step = mask * space.normal(x, system.solve(0.5 * E))
        if not step.dot(step) <= LONGEST_PATTERN_STEP**2:
            return None
        x = x - step
    return None


def _unit(x: Array, allowed: float) -> Array | None:
    """x, of length one to rounding: M_S of a vector is a sphere."""
    size = math.sqrt(x.dot(x))
    if not abs(size - 1.0) <= LONGEST_PATTERN_STEP:
        return None
    y = x / size
    return y if abs(y.dot(y) - 1.0) <= allowed else y / math.sqrt(y.dot(y))


def separated(space: Space, x: Array, mask: Array, weak: bool = False) -> Array:
    """The mask without the smaller entries of rows by which two columns cannot be orthogonal."""
    if space.matrix is not None and not weak:  # most points, and most often there is nothing to do
        free = mask.reshape(space.matrix)
        once = free.T.dot(free) == 1.0
        X = x.reshape(space.matrix)
        np.fill_diagonal(once, False)
        if not (once.any() and np.abs(X.T.dot(X)[once]).max() > NEGLIGIBLE_OVERLAP):
            return mask
    changed = None
    for leaf, X, S in zip(_places(space), space.matrices(x), space.matrices(mask)):
        free = S if S.dtype.kind != "c" else S.real
        shared = free.swapaxes(-1, -2) @ free
        np.einsum("...ii->...i", shared)[...] = 0.0
        lost = shared == 1.0
        if not weak and not lost.any():
            continue
        size = np.abs(X)
        product = np.abs(X.conj().swapaxes(-1, -2) @ X)
        if weak:
            reach = 0.5 * (size**2).swapaxes(-1, -2) @ free
            lost |= product > WEAK * (reach + reach.swapaxes(-1, -2))
        lost &= (product > NEGLIGIBLE_OVERLAP) & ~np.eye(size.shape[-1], dtype=bool)
        for b, i, j in np.argwhere(np.triu(lost)):
            rows = np.flatnonzero(free[b, :, i] * free[b, :, j])
            if len(rows) > FEW_SHARED_ROWS:
                continue
            smaller = np.where(size[b, rows, i] < size[b, rows, j], i, j)
            if changed is None:
                changed = space.points.split(mask.copy())
            changed[leaf].reshape(space.leaves[leaf].stack)[b, rows, smaller] = 0.0
    return mask if changed is None else space.points.join(changed)


def _places(space: Space) -> list[int]:
    return [i for i, leaf in enumerate(space.leaves) if leaf.orthonormal]


class Tangents:
    """The tangents of M_S at x."""

    def __init__(self, space: Space, x: Array, mask: Array) -> None:
        self._space, self._x, self._mask = space, x, mask
        self.system = normal_system(space, x, Diagonal(mask), pseudo=True)

    def multiplier(self, w: Array) -> Array:
        """The Λ for which P(W − XΛ) is tangent."""
        return self.system.solve(self._space.gather(self._x, self._mask * w))

    def project(self, w: Array) -> Array:
        """The orthogonal projection of w."""
        if isinstance(self.system, CompiledSystem):
            return self.system.tangent(self._mask, w)
        return self._mask * (w - self._space.normal(self._x, self.multiplier(w)))

    def curvature(self, v: Array, w: Array, L: Array) -> Array:
        """The projection of V − WΛ: of a second derivative V along W, that of the Lagrangian."""
        if isinstance(self.system, CompiledSystem):
            return self.system.tangent(self._mask, v, w, L)
        return self.project(v - self._space.normal(w, L))


def nearest_to_vector(space: Space, geometry: Manifold, z: Array) -> Array:
    """The point of the manifold nearest to z, without regard to zeros."""
    return space.flat(geometry.nearest(space.point(z)))


def allowed_defect(space: Space, eps: float) -> float:
    """What rounding leaves of XᴴX − I, well within what a returned point promises."""
    return 5.0 * eps * math.sqrt(max(space.columns, 1))


def same(a: Array, b: Array) -> bool:
    return bool(np.array_equal(a, b))
