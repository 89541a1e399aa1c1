"""The formulas of `unit` once more, for real unit vectors in NumPy, with every pass counted.

They are the columns of matrices, or ``by_rows`` the rows of an array.  As in `real_vector`, the
direction w = u − Mx of a circle is not formed: what depends on it comes from the inner products of
x and u, one number a vector.  The compiled kernels take all but stacks of several columns
(`src/compiled/vectors.inc`).  `tests/test_vectors.py` compares everything with the formulas that
it repeats.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np

from stiefel.backends.base import Kernels
from stiefel.types import Array

from .compiled import rows
from .ray import Lowered, PairPlace, PlainStride, Secant, TangentRay
from .real_vector import compiled_for

NEVER_DUE = (0.0, 0.0, 0.0, 0.0, False, False)  # of vectors that nobody looks at


def unit_products(A: Array, B: Array, by_rows: bool) -> Array:
    """⟨a, b⟩ of the vectors, in the shape that broadcasts against them."""
    if by_rows:
        return np.einsum("...ij,...ij->...i", A, B)[..., None]
    return np.einsum("...ij,...ij->...j", A, B)[..., None, :]


def is_column_stack(k: Kernels, X: Array) -> bool:
    """Whether X is a stack of real matrices with one column in NumPy, which are unit vectors."""
    return k.pure_numpy and X.ndim > 2 and X.shape[-1] == 1 and X.dtype.char in "fd" and X.size > 0


def units_gradient(k: Kernels, X: Array, E: Array, by_rows: bool) -> Lowered:
    """G = E − X⟨x, e⟩ and its square: four passes."""
    if (fast := _for_kernels(k, X, E, by_rows)) is not None:
        G = np.empty(X.shape)
        layout = (X, by_rows) if X.ndim == 2 else _as_matrix(X, by_rows)
        return Lowered(G, fast.units_gradient(*layout, rows(E), G))
    G = X * unit_products(X, E, by_rows)
    np.subtract(E, G, out=G)
    return Lowered(G, float(np.vdot(G, G)))


def _for_kernels(k: Kernels, X: Array, V: Array, by_rows: bool) -> Any:
    """The compiled kernels, which take all but stacks of several columns; or None."""
    return compiled_for(k, X, V) if X.ndim == 2 or by_rows or X.shape[-1] == 1 else None


def _as_matrix(X: Array, by_rows: bool) -> tuple[Array, bool]:
    """X as one matrix with unit columns, or with unit rows, as kernels take it."""
    if X.ndim == 2 or not (by_rows or X.shape[-1] == 1):
        return X, by_rows
    return X.reshape(-1, X.shape[-1 if by_rows else -2]), True


class RealCircle:
    """The part of a `Circle` that a step of `lbfgs` needs, and what the rest is made from.

    ``slope`` is ⟨G, U⟩ of the gradient at X, where it is given; a secant pair from there is written
    ``into`` a memory, where it is given and kernels are compiled.
    """

    by_rows: ClassVar[bool] = False

    _kernels: Kernels
    squared_norm: float
    length: float
    bounded_length: float
    defect = 0.0  # a number here, no property
    slope: float
    _last: tuple[float, Array] | None = None
    first: tuple[float, Array] | None = None  # a point of the circles that came with them

    def __init__(
        self, kernels: Kernels, X: Array, U: Array, G: Array | None, into: PairPlace | None
    ) -> None:
        self._kernels, self.fast = kernels, _for_kernels(kernels, X, U, self.by_rows)
        G, U = G if G is None else rows(G), rows(U)
        prepare = _prepare if self.fast is None else self.fast.units_prepare
        one = (X.shape[-2], 1) if self.by_rows else (1, X.shape[-1])
        self._known = np.empty((5, *X.shape[:-2], *one), X.dtype)
        self._X, self._G, self.place = X, G, into
        layout = (X, self.by_rows) if self.fast is None else _as_matrix(X, self.by_rows)
        self._layout, with_G = layout, U if G is None else G
        numbers = prepare(*layout, U, with_G, self._known, TangentRay.LOSSY, False)
        self.slope = numbers[4]
        if numbers[3]:
            U = U.copy()
            numbers = prepare(*layout, U, with_G, self._known, TangentRay.LOSSY, True)
        self._U = U
        self._measure(numbers)

    def aimed_by(self, X: Array, G: Array, T: Array, pairs: Any, into: PairPlace) -> Self:
        """The curves from another point along the direction of ``pairs``, which is written to T."""
        room, layout = np.empty(self._known.shape), _as_matrix(X, self.by_rows)
        numbers = self.fast.plain_units_direction(
            *pairs, rows(G), T, *layout, room, TangentRay.LOSSY
        )
        return self._onward(X, G, T, numbers, room, into)

    def _onward(
        self, X: Array, G: Array, T: Array, numbers: Any, known: Array, into: PairPlace
    ) -> Self:
        new = object.__new__(type(self))
        if numbers[3]:  # T is rounding: made anew, as a resumed run makes it from T
            RealCircle.__init__(new, self._kernels, X, T, G, into)
            return new
        new._kernels, new.fast, new.place = self._kernels, self.fast, into
        new._X, new._G, new._U, new._known = X, G, T, known
        new._layout, new.slope = _as_matrix(X, self.by_rows), numbers[4]
        new._measure(numbers)
        return new

    def strides_from(self, G: Array) -> bool:
        """Whether steps from the gradient G are taken by `stride`."""
        return self.fast is not None and self.place is not None and G is self._G

    def stride(
        self, t: float, Y: Array, E: Array, of_memory: tuple[Any, ...], rules: Any, vectors: Any
    ) -> PlainStride:
        """`RealVectorRay.stride`; of ``vectors`` nothing has to be acted on in an ordinary one."""
        (block, used, scales, look), known = self.place, self._known  # type: ignore[misc]
        G, T, first = np.empty(Y.shape), np.empty(Y.shape), np.empty(Y.shape)
        found, room = np.empty(2 * len(block)), np.empty(known.shape)
        new = None if look is None else np.empty((3, *known.shape[1:]))
        step = *self._layout, self._U, known, t, self._G, block, used, found, scales, look, new
        due = vectors.rules_of_due if vectors is not None else NEVER_DUE
        ahead = *of_memory, T, first, *rules, room, due
        seen = self.fast.units_stride(*step, Y, rows(E), G, *ahead)
        norm, square, slope, score, change, on = seen
        told = None if look is None else (new, score, change)
        pair = Secant(None, None, None, square, slope, found, (), told)
        if on is None:
            return PlainStride(G, norm, pair)
        return PlainStride(G, norm, pair, on[0], on[1], T, first, on[2:], room)

    def after(self, X: Array, G: Array, ended: PlainStride, into: PairPlace) -> Self:
        """The circles that follow from a `stride` which ended in X with the gradient G."""
        T, room = ended.T, ended.known
        new = self._onward(X, G, T, ended.numbers, room, into)  # type: ignore[arg-type]
        new.first = None if ended.numbers[3] else (ended.t, ended.first)  # type: ignore[assignment]
        return new

    def _measure(self, numbers: tuple[float, ...]) -> None:
        self.squared_norm, largest, self.defect, *_ = numbers
        self.bounded_length = self.length = math.sqrt(largest) if largest > 0 else 0.0

    _half_excess = property(lambda self: self._known[0])
    _xw = property(lambda self: self._known[1])
    _squares = property(lambda self: self._known[2])
    _M = property(lambda self: self._known[3])
    _slopes = property(lambda self: self._known[4])

    def __call__(self, t: float) -> Array:
        first, self.first = self.first, None  # nobody holds on to the point
        if first is not None and first[0] == t:
            return first[1]
        if self.fast is not None:
            Y = np.empty(self._X.shape)
            self.fast.units_point(*self._layout, self._U, self._known, t, Y)
            return Y
        return self._at(t)

    def _at(self, t: float) -> Array:
        """The point, which is kept for the secant pair."""
        if self._last is None or self._last[0] != t:
            self._last = t, self._combined(*self._turns(t))
        return self._last[1]

    def _turns(self, t: float) -> tuple[Array, Array]:
        """The numbers of x(t) = x P + w Q: (1 − s²)/(1 + s²) and t/(1 + s²), corrected.

        Lengths do not drift: x P + w Q has the square 1 + 2P(P(⟨x, x⟩ − 1)/2 + Q⟨x, w⟩).
        """
        ss = (0.25 * t * t) * self._squares
        grown = 1.0 + ss
        P, Q = (1.0 - ss) / grown, t / grown
        kept = 1.0 - P * (P * self._half_excess + Q * self._xw)
        return P * kept, Q * kept

    def secant_pair(self, t: float, old: Any, new: Any) -> Secant:
        """s = t w, turned, and y = G⁺ − G + (t/2)(x + x⁺)⟨w, g⟩, with ⟨x, g⟩ = 0.

        Along w the transport takes (t²w/2 + t x)/(1 + s²), which is t(x + x⁺)/2.
        """
        if self.fast is not None:
            kept = self.place is not None and old.G is self._G
            return (self._kept_pair if kept else self._fast_pair)(t, old.G, new.G)
        ss = (0.25 * t * t) * self._squares
        s = self._combined((-t * t) * self._squares / (1.0 + ss), t * (1.0 - ss) / (1.0 + ss))
        y = self._X + self._at(t)
        y *= (0.5 * t) * self._slopes_with(old.G)
        y += new.G
        y -= old.G
        pair = Secant(s, y, None, float(np.vdot(y, y)))
        if self.place is None or self.place.look is None:
            return pair
        seen = np.stack([t * t * self._squares, unit_products(y, y, self.by_rows)])
        return pair._replace(vectors=seen)

    def _slopes_with(self, G: Array) -> Array:
        """⟨g, u⟩ of the vectors."""
        return self._slopes if G is self._G else unit_products(self._U, G, self.by_rows)

    @property
    def landing(self) -> Any:
        """`_land`, where pairs are kept by kernels; see `Problem.landing`."""
        return self._land if self.fast is not None and self.place is not None else None

    def _land(self, t: float, start: Any, Y: Array, E: Array) -> tuple[Any, Secant]:
        """The gradient at Y = X(t), of the Euclidean one E, and the pair of the step."""
        if start.G is not self._G:
            lowered = units_gradient(self._kernels, Y, E, self.by_rows)
            return lowered, self._fast_pair(t, start.G, lowered.G)
        block, used, scales, look = self.place  # type: ignore[misc]
        known, found, G = self._known, np.empty(2 * len(block)), np.empty(Y.shape)
        new = None if look is None else np.empty((3, *known.shape[1:]))
        step = *self._layout, self._U, known, t, start.G, Y, rows(E), G
        place = block, used, found, scales, look, new
        norm, square, slope, score, change = self.fast.plain_units_landing(*step, *place)
        seen = None if look is None else (new, score, change)
        pair = Secant(None, None, None, square, slope, found, (), seen)
        return (G, norm, None, None), pair

    def _kept_pair(self, t: float, G: Array, G_new: Array) -> Secant:
        """The pair, written where it is kept."""
        block, used, scales, look = self.place  # type: ignore[misc]
        known, found = self._known, np.empty(2 * len(block))
        new = None if look is None else np.empty((3, *known.shape[1:]))
        step = *self._layout, self._U, known, t, G, rows(G_new), block, used, found
        square, slope, score, change = self.fast.plain_units_pair(*step, scales, look, new)
        seen = None if look is None else (new, score, change)
        return Secant(None, None, None, square, slope, found, (), seen)

    def _fast_pair(self, t: float, G: Array, G_new: Array) -> Secant:
        numbers = self._known.copy()
        numbers[4] = self._slopes_with(G)
        s, y = np.empty(self._X.shape), np.empty(self._X.shape)
        ends = rows(G), rows(G_new), s, y
        square, slope = self.fast.units_pair(*self._layout, self._U, numbers, t, *ends)
        return Secant(s, y, None, square, slope)

    def _combined(self, p: Array, q: Array) -> Array:
        """x p + w q, vector by vector."""
        out = self._X * (p - q * self._M)
        out += self._U * q
        return out


def _prepare(
    X: Array, by_rows: bool, U: Array, G: Array, known: Array, lossy: float, owned: bool
) -> tuple[float, float, float, float, float, float]:
    """Σθ², the largest θ² and |⟨x, x⟩ − 1|, how many θ² are so little of their ⟨u, u⟩, ⟨G, U⟩.

    The last is Σ(⟨x, x⟩ − 1)².  ``known`` becomes (⟨x, x⟩ − 1)/2, ⟨x, w⟩, θ², M and ⟨g, u⟩.  An
    ``owned`` U may be changed: then lossy vectors are made tangent first.
    """
    a, b, c, slopes = (unit_products(*pair, by_rows) for pair in ((X, X), (X, U), (U, U), (G, U)))
    excess = a - 1.0
    squares = c - b * b * (2.0 - a)
    is_lossy = ~(squares >= lossy * c)
    if owned and is_lossy.any():
        U -= X * np.where(is_lossy, b, 0.0)
        return _prepare(X, by_rows, U, G, known, lossy, False)
    known[0], known[1], known[2] = 0.5 * excess, b - b * a, squares
    known[3], known[4] = b, slopes
    largest = float(squares.max()), float(np.abs(excess).max())
    sums = float(squares.sum()), float(slopes.sum()), float(np.vdot(excess, excess))
    return sums[0], *largest, float(is_lossy.sum()), *sums[1:]
