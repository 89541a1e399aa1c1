"""A model of the operator A in ∇²f[S] = A S M, learned from the steps of a run.

Each step S = X⁺ − X shows k secants of one Hermitian n×n operator A,

    A S = Y D,    Y = ∇f(X⁺) − ∇f(X),    D = M⁻¹,

exact for a step of any length where f is quadratic.  If also ∇f(X) = A X M + C₀, then
AX = (∇f(X) − C₀) D is known at every point, and a step adds k vectors and their images to a memory
of A on the complement of X.  How the structure is recognised is told in `row_recognition`, what is
kept in `row_memory`, and how Ritz pairs are found in `row_ritz`.

The Hessian takes a normal part V to A V M − V C.  With D½CD½ = Q c Qᴴ, W = D½Q and V = v Wᴴ that is
A v − v c, one shifted operator for each column.  With Ritz pairs (θ, U) of A on X⊥, e = 1/(θ − c_i)
and γ_i = 1/(σ − c_i), the inverse of column i is the block BFGS formula

    H_i = (I − U e (Z − Uc_i)ᴴ) γ_i (I − (Z − Uc_i) e Uᴴ) + U e Uᴴ,

positive definite for θ, σ > c: Ritz vectors below the largest c are left out, and so are those
that the errors of the images have made useless.  σ is such that ⟨y, H₀y⟩ = ⟨s, y⟩ for the newest
block.  A rotation X → X exp Ω has the curvature −(Λ_i − Λ_j)(μ_i − μ_j) in Ω_ij, in the eigenbasis
of M = diag(μ), with Λ = XᴴAX, if C₀ = 0; if not, see `row_rotations`.

The memory is thick: when it is full, the lowest Ritz vectors and the newest block stay.  A new
block that is not Hermitian contradicts the model, which then goes off; one that does not fit the
older ones shows that their errors have grown, and these are forgotten.

Where the structure is exact the direction is −H∇f.  Where it is inexact, H takes the place of H₀
below the pairs of L-BFGS, which see what A does not tell.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from stiefel.backends.base import Kernels
from stiefel.geometry.cayley import Frame
from stiefel.geometry.compiled import FastTangentRay
from stiefel.types import Array, Curve, Gradient, Manifold, Metric, NumpyArray, Tangent

from . import row_compiled, row_memory, row_ritz
from .aims import kernels_of_rays
from .memory import LONG_MATRIX, Pairs, apply_inverse
from .parameters import check_integer, check_open_interval
from .problem import Problem
from .row_inverse import NOTHING_SEEN, Columns, Known, inverse_of_rows
from .row_memory import NORMAL, RowMemory, SubspaceGrams, small
from .row_recognition import Looking, Recognised, StepEnds, looked
from .row_ritz import RitzPairs, Stacked, lowest_and_newest
from .row_rotations import SOFTEST

# Entries of a point.  Below, an inexact model saves a tenth of the evaluations and doubles the work
# of a step: test_small_points_of_functions_of_the_span_go_without_an_inexact_model.
SMALL_SPAN = 500
# Of a point whose gradient has a constant part.  With fewer, runs of up to fifty evaluations gain
# little by a model whose steps take three times the work: test_a_constant_part_is_asked_for_late.
MANY_ROWS = 1000
DEAR_NEARLY = 3.0  # times `nearly`: test_dear_functions_are_modelled_less_closely
# With a constant part the Hessian is indefinite far from the minimum, and steps of a model are too
# long there.  It rests where so many first trials were not taken, older ones counting less, for so
# many steps, twice as many each time: test_a_model_with_a_constant_part_rests_where_it_stumbles.
FADING, MOST_STRAIN, REST_OF_STRAINED = 0.9, 2.5, 20


class Rows(NamedTuple):
    """Looking for the structure, knowing it, or neither: given up; of a tree, leaf by leaf."""

    looking: Looking | None = Looking()
    known: Known | None = None
    leaves: tuple[Rows, ...] = ()

    @property
    def on(self) -> bool:
        return self.known is not None or any(leaf.on for leaf in self.leaves)

    @property
    def exact(self) -> bool:
        return self.known is not None and self.known.exact

    @property
    def ended(self) -> bool:
        return self.known is None and self.looking is None

    def unlooked(self) -> Rows | None:
        """The same after a step that nobody looks at; None if it is looked at."""
        if self.known is not None or self.leaves or (self.looking and not self.looking.rest):
            return None
        looking = self.looking
        return self if looking is None else Rows(looking._replace(rest=looking.rest - 1))

    def after_search(self, at_once: bool) -> Rows:
        """After a step whose first trial was taken, or not."""
        if self.leaves:
            return self._replace(leaves=tuple(leaf.after_search(at_once) for leaf in self.leaves))
        known = self.known
        if known is None or known.offset is None:
            return self
        strain = FADING * known.strain + (not at_once)
        return self._replace(known=known._replace(strain=strain))

    def resting(self) -> Rows | None:
        """Without the model for some steps, if it is strained; one look will find it again."""
        known = self.known
        if known is None or known.strain <= MOST_STRAIN:
            return None
        looking = Looking(inexact=False, rests=known.rests)
        return Rows(looking.with_columns_known(known.columns.D, REST_OF_STRAINED << known.rests))


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
    rest : steps before a function of the span is looked at again, and before it can be explained
        nearly; twice as many each time.  Half of them before a constant part is asked for at short
        points.
    decay : the asymmetry at which a new pair ends the model, or ends the memory of older ones.
    widest : up to so many columns a gradient with a constant part is modelled.

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
    nearly: float = 0.01
    looks: int = 5
    rest: int = 30
    decay: float = 0.1
    widest: int = 30

    def __post_init__(self) -> None:
        check_integer(self, "ritz", 1)
        check_integer(self, "blocks", self.ritz + 2)
        check_integer(self, "looks", 2)
        check_integer(self, "rest", 1)
        check_integer(self, "widest", 1)
        check_open_interval(self, "gate", 0.0, 1.0)
        check_open_interval(self, "nearly", 0.0, 1.0)
        check_open_interval(self, "decay", 0.0, 1.0)

    def of_dear_functions(self) -> RowModel:
        """This one where evaluations are dear: what explains them less closely will do."""
        return replace(self, nearly=min(DEAR_NEARLY * self.nearly, 0.99))

    def init(self, geometry: Manifold, X: Array, at: Gradient, dear: bool = True) -> Rows:
        """Nothing known yet; given up at once where points are not tall single matrices.

        Of functions that are not ``dear`` small and long points are modelled exactly or not at all,
        and short ones with a constant part only in long runs.
        """
        kernels = getattr(geometry, "kernels", None)
        if kernels is None or at.level is None or isinstance(X, tuple) or len(X.shape) != 2:
            return GIVEN_UP
        n, k = kernels.rows(X), X.shape[1]
        if 2 * k > n:
            return GIVEN_UP
        inexact = dear or SMALL_SPAN < n * k < LONG_MATRIX
        return Rows(Looking(inexact=inexact, patient=n < MANY_ROWS and not dear))

    def observe(self, problem: Problem, rows: Rows, ends: StepEnds, span: bool) -> Rows:
        """What is known after one more step; ``span``: f is a function of the span of X."""
        known, kernels = rows.known, getattr(problem.geometry, "kernels", None)
        if known is not None:
            if resting := rows.resting():
                return resting
            new = self._grown(kernels, known, ends) if known.exact or span else None
            return Rows(None, new) if new is not None else self.off(known, span)
        found = self._looked(problem, rows, ends, span)
        return self._begun(kernels, found, ends) if isinstance(found, Recognised) else found

    def observe_and_aim(
        self, problem: Problem, rows: Rows, ends: StepEnds, metric: Metric
    ) -> tuple[Rows, Any]:
        """`observe`, and direction, slope and curve from there where one call finds both."""
        known, geometry, span = rows.known, problem.geometry, metric.horizontal
        kernels: Any = getattr(geometry, "kernels", None)
        if resting := rows.resting():
            return resting, None
        found = rows if known is not None else self._looked(problem, rows, ends, span)
        if isinstance(found, Recognised):
            known = _before_the_first(self.blocks, kernels, found, ends)
        ahead = known and (known.exact or span) and self.advanced(geometry, known, ends, metric)
        if ahead:
            return Rows(None, ahead[0]), ahead[1]
        if isinstance(found, Recognised):
            return self._begun(kernels, found, ends), None
        return (self.observe(problem, rows, ends, span) if rows.known else found), None

    def _looked(
        self, problem: Problem, rows: Rows, ends: StepEnds, span: bool
    ) -> Rows | Recognised:
        """What is known after one more look."""
        if rows.looking is None:
            return rows
        kernels: Any = getattr(problem.geometry, "kernels", None)
        found = looked(self, problem, kernels, rows.looking, ends, span)
        return found if isinstance(found, Recognised) else Rows(found)

    def off(self, known: Known | None, span: bool) -> Rows:
        """Without the model: for good, unless f is a function of the span and nearly quadratic."""
        lasting = known is None or known.exact or not span
        return GIVEN_UP if lasting else Rows(Looking().again(self))

    def _begun(self, k: Any, found: Recognised, ends: StepEnds) -> Rows:
        """With the newest pair as the whole memory."""
        seen, D, C, exact, rests = found
        X, at = ends.X, ends.at
        memory = row_memory.begun(k, self.blocks, seen.S, seen.Y, X, at, D, C)
        begun = Known(memory, Columns.of(D), C, *NOTHING_SEEN, exact, rests=rests)
        return Rows(None, with_ritz(k, begun, small(k, at.level)))

    def _grown(self, k: Any, known: Known, ends: StepEnds) -> Known | None:
        """With the block of one more step; None if it contradicts the model."""
        old, columns, offset, normal, ritz, exact, *_ = known
        X, at = ends.X, ends.at
        size = X.shape[1]
        if old.full and not len(ritz.theta):
            old = row_memory.newest(k, old, ends.at0.G)
        elif old.full:
            C = lowest_and_newest(ritz, normal, self.ritz * size, size)
            old = row_memory.compressed(k, old, C, ends.at0.G)
        memory, of_newest, of_all = row_memory.grown(k, old, X, at, columns.D, offset)
        if not of_newest <= self.decay:
            return None
        if of_all > self._agreed(exact):
            memory = row_memory.newest(k, memory, at.G)
            known = known._replace(resets=known.resets + 1)
        return with_ritz(k, known._replace(memory=memory), small(k, at.level))

    def _agreed(self, exact: bool) -> float:
        """The asymmetry of all blocks together up to which older ones are kept."""
        return self.decay if exact else self.nearly

    def advanced(
        self, geometry: Manifold, known: Known, ends: StepEnds, metric: Metric
    ) -> tuple[Known, tuple[Tangent, float, Curve] | None] | None:
        """`_grown`, and of an exact model `direction` and the ray along it, in one compiled call.

        None where there is no such kernel, and after unusual steps, about which `_grown` decides.
        """
        (W, XA, used, grams, _), columns, offset, normal, ritz, exact, *_ = known
        _, _, X, at = ends
        k = kernels_of_rays(geometry, X, at.G)
        fast = k and row_compiled.row_kernels(k, X)
        if fast is None or (used == len(W) and not len(ritz.theta)):
            return None
        turns, lowest = row_compiled.way_of_turns(offset, metric.horizontal), self.ritz * X.shape[1]
        theta = geometry.rotation_left_out(metric)  # type: ignore[attr-defined]
        of_ritz = row_ritz.DEPENDENT, row_ritz.UNRELIABLE
        rules = self.decay, self._agreed(exact), NORMAL, *of_ritz, SOFTEST, theta
        before = grams.WW, grams.WX, normal.WW, ritz.T, ritz.theta
        here = X, at.G, at.rotation, at.level
        known_there = (W, used, XA), lowest, before, here, offset, columns[:5], rules, turns, exact
        made = row_compiled.advanced(fast, *known_there)
        if made is None:
            return None
        (W, XA, used, products, seen), at_point, WW, pairs, T, slope, frame, numbers = made
        memory = RowMemory(W, XA, used, SubspaceGrams(*products), seen)
        columns = Columns(*columns[:5], *at_point)
        normal, ritz = Stacked(WW), RitzPairs(*pairs)
        new = known._replace(memory=memory, columns=columns, normal=normal, ritz=ritz)
        if not exact:
            return new, None
        ray = FastTangentRay.prepared(k, X, T, Frame(*frame), numbers)
        return new, (T, slope, geometry.ray_along(X, T, metric) if ray.lossy else ray)

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
            rotation = small(kernels, at.rotation)
            seen = known.memory.seen
            return inverse_of_rows(kernels, known, at.G, seen, rotation, -1.0, not horizontal)
        phi = partial(self.raised, geometry, known, X)
        if not pairs.in_use:
            return geometry.scale(-1.0, phi(at.G))
        return apply_inverse(geometry, pairs, at.G, 1.0, phi, True)

    def raised(self, geometry: Manifold, known: Known, X: Array, G: Array) -> Array:
        """H G of any cotangent, normal parts only: H₀ where the structure is inexact."""
        k: Any = getattr(geometry, "kernels", None)
        if row_compiled.row_kernels(k, G) is not None:
            return inverse_of_rows(k, known, G, None, None, 1.0, False)
        seen, rotation = row_memory.products(k, known.memory, G), small(k, k.gram(X, G))
        return inverse_of_rows(k, known, G, seen, rotation, 1.0, False)

    def seen_again(self, geometry: Manifold, rows: Rows, at: Gradient) -> Rows:
        """After a step that left X where it was, and changed the gradient by its other leaves."""
        known = rows.known
        kernels: Any = getattr(geometry, "kernels", None)
        if known is None:
            return rows
        memory = known.memory._replace(seen=row_memory.products(kernels, known.memory, at.G))
        return rows._replace(known=known._replace(memory=memory))


def _before_the_first(blocks: int, k: Kernels, found: Recognised, ends: StepEnds) -> Known | None:
    """A model where the step began that recognised it, without vectors; None without kernels."""
    (X, at, *_), (_, D, C, exact, rests) = ends, found
    if not exact or row_compiled.row_kernels(k, X) is None:
        return None
    (n, size), kind = X.shape, X.dtype
    XA, none = np.empty((n, 2 * size), kind), np.zeros((0, 0), kind)
    XA[:, :size] = X
    XA[:, size:] = (at.G if C is None else at.G - C).dot(D) + X.dot(at.level.dot(D))
    grams = SubspaceGrams(none, np.zeros((0, 2 * size), kind), none)
    memory = RowMemory(np.zeros((blocks, 2 * size, n), kind), XA, 0, grams, none)
    nothing = Stacked(none), RitzPairs(none, np.zeros(0))
    return Known(memory, Columns.of(D), C, *nothing, True, rests=rests)


def with_ritz(k: Kernels, known: Known, level: NumpyArray) -> Known:
    """With the columns at the memory's point, and the Ritz vectors of A on X⊥ above all shifts."""
    memory, columns = known.memory, known.columns
    fast = row_compiled.row_kernels(k, memory.XA)
    if fast is not None:
        limits = row_ritz.DEPENDENT, row_ritz.UNRELIABLE
        made = row_compiled.ritz(fast, columns[1:3], level, memory.grams, *limits)
        columns = Columns(*columns[:5], *made[:3])
        normal, ritz = Stacked(made[3]), RitzPairs(*made[4:])
    else:
        columns, normal = columns.at(level), memory.grams.normal()
        ritz = row_ritz.ritz_pairs(normal, columns.c[-1])
    return known._replace(columns=columns, normal=normal, ritz=ritz)
