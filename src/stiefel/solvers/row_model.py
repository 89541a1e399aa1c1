"""A model of the operator A in ∇²f[S] = A S M, learned from the steps of a run.

Each step S = X⁺ − X shows k secants of one Hermitian n×n operator A,

    A S = Y D,    Y = ∇f(X⁺) − ∇f(X),    D = M⁻¹,

exact for a step of any length where f is quadratic.  If also ∇f(X) = A X M + C, then
AX = (∇f(X) − C) D is known at every point, and a step adds k vectors and their images to a memory
of A on the complement of X.  How the structure is recognised is told in `row_recognition`, what is
kept in `row_memory`, and how it is inverted in `row_inverse`.

The memory is thick: when it is full, the lowest Ritz vectors and the newest block stay.  A new
block that is not Hermitian contradicts the model, which then goes off; one that does not fit the
older ones shows that their errors have grown, and these are forgotten.

Where the structure is exact the direction is −H∇f.  Where it is inexact, H takes the place of H₀
below the pairs of L-BFGS, which see what A does not tell.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from stiefel.backends.base import Kernels
from stiefel.types import Array, Gradient, Manifold, NumpyArray

from . import row_memory
from .columns import asymmetry
from .memory import Pairs, apply_inverse
from .parameters import check_integer, check_open_interval
from .problem import Problem
from .row_inverse import (
    Columns,
    RitzPairs,
    Seen,
    agreement,
    apart,
    lowest_and_newest,
    ritz_pairs,
    together,
    uncoupled_rotation,
)
from .row_memory import Normal, RowMemory, image, small
from .row_recognition import (
    Look,
    SecantBlocks,
    StepEnds,
    columns_of,
    constant_part,
    fits_with,
    look,
    remembered,
    widened,
)

CLOSE = 3  # pairs in a row that must be nearly symmetric
FAR = 2.0  # ⟨s, y⟩/⟨y, Hy⟩ of a block, or its inverse, or that of a step in its first trial
DOUBTS = 2  # such steps in a row show that A is not what they see
REST = 10  # steps before a function of the span is looked at again; doubled each time


class Looking(NamedTuple):
    """What is known while the structure is not recognised."""

    pairs: SecantBlocks | None = None
    D: NumpyArray | None = None
    looks: int = 0  # at steps, since the last rest
    close: int = 0  # pairs in a row that were nearly symmetric
    rest: int = 0  # steps still to be passed over
    next_rest: int = REST


class Known(NamedTuple):
    """What is known about A."""

    memory: RowMemory
    columns: Columns
    offset: Array  # C of ∇f = A X M + C; None for zero
    normal: Normal
    ritz: RitzPairs
    exact: bool
    resets: int = 0  # times that all but the newest block was forgotten
    doubts: int = 0  # steps in a row that did not agree with H; see `FAR`


class Rows(NamedTuple):
    """Looking for the structure, knowing it, or neither: given up."""

    looking: Looking | None = Looking()
    known: Known | None = None

    @property
    def on(self) -> bool:
        return self.known is not None

    @property
    def exact(self) -> bool:
        return self.known is not None and self.known.exact


OFF = Rows()
GIVEN_UP = Rows(None)


@dataclass(frozen=True)
class RowModel:
    """When the operator is recognised, and how much of it is kept.

    Parameters
    ----------
    blocks : the memory, in blocks of k vectors and as many images.
    ritz : how many of them are lowest Ritz vectors once the memory is full.
    gate : the asymmetry up to which a pair is explained exactly.
    nearly : the asymmetry up to which a pair of a function of the span is explained nearly.
    looks : steps after which the search for the structure is given up, or rests.
    decay : the asymmetry at which a new pair ends the model, or ends the memory of older ones.
    widest : up to so many columns D is looked for; D = I is tried for more.

    Examples
    --------
    >>> import stiefel
    >>> from stiefel.objectives import Brockett
    >>> from stiefel.solvers import RowModel
    >>> x0 = stiefel.random_point(100, 4, seed=0)
    >>> method = stiefel.LBFGS(rows=RowModel(blocks=6, ritz=3))
    >>> stiefel.minimize(Brockett.table(100, 4), x0, method=method).success
    True
    """

    blocks: int = 5
    ritz: int = 2
    gate: float = 2e-8
    nearly: float = 0.03
    looks: int = 5
    decay: float = 0.1
    widest: int = 30

    def __post_init__(self) -> None:
        check_integer(self, "ritz", 1)
        check_integer(self, "blocks", self.ritz + 2)
        check_integer(self, "looks", CLOSE)
        check_integer(self, "widest", 1)
        check_open_interval(self, "gate", 0.0, 1.0)
        check_open_interval(self, "nearly", 0.0, 1.0)
        check_open_interval(self, "decay", 0.0, 1.0)

    def init(self, geometry: Manifold, X: Array, at: Gradient) -> Rows:
        """Nothing known yet; given up at once where points are not tall single matrices."""
        kernels = getattr(geometry, "kernels", None)
        if kernels is None or at.level is None or isinstance(X, tuple) or len(X.shape) != 2:
            return GIVEN_UP
        return OFF if 2 * X.shape[1] <= kernels.rows(X) else GIVEN_UP

    def observe(self, problem: Problem, rows: Rows, ends: StepEnds, span: bool) -> Rows:
        """What is known after one more step; ``span``: f is a function of the span of X."""
        kernels: Any = getattr(problem.geometry, "kernels", None)
        if rows.known is not None:
            valid = rows.known.exact or span
            known = self._grown(kernels, rows.known, ends) if valid else None
            return Rows(None, known) if known is not None else self.off(rows.known, span)
        if rows.looking is None:
            return rows
        if rows.looking.rest:
            return Rows(rows.looking._replace(rest=rows.looking.rest - 1))
        return self._look(problem, kernels, rows.looking, ends, span)

    def off(self, known: Known | None, span: bool) -> Rows:
        """Without the model: for good, unless f is a function of the span and nearly quadratic."""
        lasting = known is None or known.exact or not span
        return GIVEN_UP if lasting else Rows(Looking(rest=REST))

    # -- looking for the structure ---------------------------------------------------------

    def _look(self, problem: Problem, k: Kernels, old: Looking, ends: StepEnds, span: bool) -> Rows:
        """One more pair; on if the D of before explains it."""
        seen = look(k, old.pairs, ends, problem.geometry.eps(ends.X))
        if seen is None:
            return self._unexplained(old, span)
        D = old.D if old.D is not None or not span else np.eye(len(seen.SY), dtype=seen.SY.dtype)
        if D is not None and old.looks and seen.asymmetry(D) <= (gate := widened(self.gate, seen)):
            fits, offset = self._offset(problem, k, seen, D, ends, gate, span)
            if fits:
                return self._switched_on(k, seen, D, offset, ends, True)
        if span and D is not None:
            close = old.close + 1 if seen.asymmetry(D) <= self.nearly else 0
            if close == CLOSE:
                return self._switched_on(k, seen, D, None, ends, False)
            return self._unexplained(old._replace(close=close, D=D), span)
        pairs = remembered(k, old.pairs, seen)
        if old.pairs is None:
            return self._unexplained(old._replace(pairs=pairs), span)
        D = columns_of(pairs, len(seen.SY), self.widest)
        return GIVEN_UP if D is None else self._unexplained(old._replace(pairs=pairs, D=D), span)

    def _unexplained(self, old: Looking, span: bool) -> Rows:
        """One look more, until they are many."""
        if old.looks + 1 < self.looks:
            return Rows(old._replace(looks=old.looks + 1))
        return Rows(Looking(rest=old.next_rest, next_rest=2 * old.next_rest)) if span else GIVEN_UP

    def _offset(
        self,
        problem: Problem,
        k: Kernels,
        seen: Look,
        D: NumpyArray,
        ends: StepEnds,
        gate: float,
        span: bool,
    ) -> tuple[bool, Array | None]:
        """Whether AX = (∇f − C)D fits, and C; one evaluation at −X if it is not zero."""
        zero = np.zeros_like(seen.XE)
        if seen.asymmetry_with_point(D, zero, zero) <= gate:
            return True, None
        if span or len(D) > self.widest:
            return False, None
        mirrored = problem.gradient(problem.geometry.scale(-1.0, ends.X))
        if not mirrored.finite:
            return False, None
        C = constant_part(k, ends, mirrored)
        return fits_with(k, seen, D, ends.X, C, gate), C

    def _switched_on(
        self,
        k: Kernels,
        seen: Look,
        D: NumpyArray,
        offset: Array | None,
        ends: StepEnds,
        exact: bool,
    ) -> Rows:
        """With the newest pair as the whole memory."""
        X, at = ends.X, ends.at
        AX = image(k, X, at, D, offset)
        memory = row_memory.begun(k, self.blocks, seen.S, seen.Y @ k.asarray(D, X), X, AX)
        columns = Columns.of(D, small(k, at.level))
        return Rows(None, _with_ritz(memory, columns, offset, exact, 0))

    # -- while it is known -----------------------------------------------------------------

    def _grown(self, k: Kernels, known: Known, ends: StepEnds) -> Known | None:
        """With the block of one more step; None if it contradicts the model."""
        old, columns, offset, _, _, exact, resets, doubts = known
        X0, _, X, at, part = ends
        AX, size = image(k, X, at, columns.D, offset), X.shape[1]
        columns = columns.at(small(k, at.level))
        if old.full:
            C = lowest_and_newest(known.ritz, known.normal, self.ritz * size, size)
            old = row_memory.compressed(k, old, C, X0)
        memory = row_memory.grown(k, old, X0, X, AX)
        if memory is None:
            return _with_ritz(row_memory.seen_from(k, old, X, AX), columns, offset, exact, resets)
        UZ, squares = memory.grams.UZ, np.diagonal(memory.grams.UU).real
        if not asymmetry(UZ[-size:, -size:], squares[-size:]) <= self.decay:
            return None
        if asymmetry(UZ, squares) > (self.decay if exact else self.nearly):
            memory, resets = row_memory.newest(k, memory, X), resets + 1
        new = _with_ritz(memory, columns, offset, exact, resets)
        return new if exact else _unless_doubtful(new, doubts, part)

    def direction(
        self,
        geometry: Manifold,
        known: Known,
        pairs: Pairs,
        X: Array,
        at: Gradient,
        horizontal: bool,
    ) -> Array:
        """−H∇f, with the pairs on top of it where the structure is inexact."""
        kernels: Any = getattr(geometry, "kernels", None)
        if known.exact:
            return _exact_direction(kernels, known, X, at, horizontal)
        phi = partial(_raised, kernels, known, X)
        if not pairs.in_use:
            return geometry.scale(-1.0, phi(at.G))
        return apply_inverse(geometry, pairs, at.G, 1.0, phi, True)


def _exact_direction(k: Kernels, known: Known, X: Array, at: Gradient, horizontal: bool) -> Array:
    """−H∇f, a tangent."""
    memory, columns, rotation = known.memory, known.columns, small(k, at.rotation)
    q, Uq, Zq, AXq = row_memory.projections(k, memory, X, at.G, columns.W, at.rotation)
    facts = known.ritz, known.normal, memory.grams, columns, Seen(Uq, Zq, AXq, rotation)
    if known.offset is not None:
        (a, b, c, d, e), omega = together(*facts)
        return row_memory.combination(k, memory, X, q, (a, b, c, d, e + omega))
    a, b, c, d, e = apart(*facts)
    if not horizontal:
        e = e + uncoupled_rotation(columns, memory.grams.XAX, rotation)
    return row_memory.combination(k, memory, X, q, (a, b, c, d, e))


def _raised(k: Kernels, known: Known, X: Array, G: Array) -> Array:
    """H G of any cotangent, normal parts only: H₀ where the structure is inexact."""
    memory, columns = known.memory, known.columns
    q, Uq, Zq, AXq = row_memory.projections(k, memory, X, G, columns.W, None)
    seen = Seen(Uq, Zq, AXq, np.zeros_like(columns.W))
    a, b, c, d, e = apart(known.ritz, known.normal, memory.grams, columns, seen)
    return row_memory.combination(k, memory, X, q, (-a, -b, -c, -d, -e))


def _unless_doubtful(known: Known, doubts: int, part: float) -> Known | None:
    """None once two steps in a row did not agree with H: A changes too fast along them."""
    found = agreement(known.ritz, known.normal, known.columns)
    doubts = 0 if 1.0 / FAR < min(found, part) and found < FAR else doubts + 1
    return known._replace(doubts=doubts) if doubts < DOUBTS else None


def _with_ritz(
    memory: RowMemory, columns: Columns, offset: Array | None, exact: bool, resets: int
) -> Known:
    """With the Ritz vectors of A on X⊥ whose values are above all shifts."""
    normal = memory.grams.normal()
    ritz = ritz_pairs(normal, columns.c[-1])
    return Known(memory, columns, offset, normal, ritz, exact, resets)
