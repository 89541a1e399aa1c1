"""Limited-memory BFGS on a manifold (the paper's L-RBFGS), with a learned metric.

    D_t = −H_t ∇f(X_t),    X_{t+1} = X(α_t) on the Cayley ray along D_t
    s_t = α_t Q D_t,       y_t = ∇f(X_{t+1}) − Q ∇f(X_t)

H_t takes cotangents to tangents, so that pairs (s, y) live in dual spaces and their pairing is the
plain inner product.  Q is the isometric transport of the ray itself, so that the secant equation
is the one of the curve that was walked; older pairs are left as they are and only the final
direction is projected; how they are kept and applied is told in `memory` and `plain_pairs`.

H₀ = γφ with γ = ⟨s, y⟩/⟨y, φ(y)⟩ and φ the preconditioner, or the learned metric.  The first step
has a given length, so that nothing depends on the scale of f.  Cost: 10mnk + 32nk² an iteration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple

from stiefel.geometry.compiled import LandingRay
from stiefel.geometry.doubled import Doubled
from stiefel.geometry.ray import Secant
from stiefel.types import Aim, Cotangent, Curve, Gradient, Manifold, Point, Status, Tangent

from . import memory, plain_pairs, row_leaves
from .aims import matrix_aim, matrix_arrival, slope_and_curve
from .arrivals import leaves_arrival, with_matrices_looked_at
from .evaluation_cost import cost_of, pairs_by_cost
from .learned_metric import Learned, LearnedMetric, still_invariant
from .leaves import first_scale, parts_of
from .memory import NOTHING, Pairs, apply_inverse, no_pairs, remember, smoothed
from .noise import Watch
from .parameters import check_choice, check_integer, check_open_interval, check_positive
from .problem import LEAST_COSINE, Problem
from .raising import learned_squared_change, metric_of, raised_by_learned, squared_length
from .row_leaves import direction_of_leaves, with_columns
from .row_model import GIVEN_UP, OFF, RowModel, Rows
from .row_recognition import StepEnds
from .secant_search import GROWTH_OF_GUESS, SearchStep, SecantSearch
from .stack_pairs import direction_apart
from .strides import Setting, Stride, stride

LARGE_POINT = 4_000_000  # entries of a point; from here on memory is scarcer than evaluations
# A shorter part of a first trial contradicts: test_pairs_that_a_step_contradicts_are_forgotten.
CONTRADICTED = 0.3
LONGEST_BY_ROWS = 1.0  # a step by a model of A, which knows little beyond; `span` in the budgets


class State(NamedTuple):
    x: Point
    at: Gradient
    aim: Aim  # along a tangent, up to the parts of old pairs
    pairs: Pairs
    learned: tuple[Learned, ...]
    gamma: float = 0.0  # γ of H₀; 0 before the first pair
    k: int = 0  # pairs in use
    restarted: bool = False
    watch: Watch = Watch()
    rows: Rows = OFF
    failure: Status | None = None
    expected_decrease: float = math.inf  # ½⟨∇f, H∇f⟩, once there is a pair

    def with_curve(self, geometry: Manifold) -> State:
        """The same with its curve made again, as `_aimed` makes it: it repeats every bit."""
        aim = self.aim
        if aim.metric is None:
            return self._replace(aim=aim.remade(geometry, self.x))
        known = self.x, self.at, aim.direction, aim.metric, self.pairs, self.rows.on
        return self._replace(aim=aim._replace(curve=slope_and_curve(geometry, *known)[1]))


@dataclass(frozen=True)
class LBFGS:
    """Riemannian L-BFGS.

    Parameters
    ----------
    memory : int
        The number m of pairs kept; fewer for points of more than two million entries, and only the
        newest beyond four million.  Real vectors, unit columns and free parameters of 16,384
        entries, and other matrices of 32,768, keep two fifths of them, unless ``cost`` says else.
    metric : LearnedMetric or None
        How the initial Hessian is learned; None for the canonical metric.  Unit vectors learn a
        scale each, up to 16,384 entries unless f is "dear".  Free matrices learn nothing, trees not
        how leaves belong together: if short, these, vectors and matrices keep thrice the pairs.
    rows : RowModel or None
        How the operator A of a Hessian S ↦ A S M is recognised and learned; None if it is not.
    cost : {"usual", "cheap", "dear", "measure"}
        What an evaluation of f costs compared with a step of this method.  "cheap" keeps at most
        four pairs and no model of rows: fewer seconds and more evaluations.  "dear" keeps at
        least thirty pairs, and models all points, too, where that is inexact.  "measure" chooses
        by the seconds of the first evaluation: then two runs may differ, and otherwise they do not.
    sufficient_decrease : float
        The number c₁ of the line search.
    curvature : float
        The number c₂ of the line search.
    initial_length : float
        The length of the first step, for a column.
    longest : float
        No step moves a matrix further than this.
    caution : float
        A pair is kept if ⟨s, y⟩ > caution ‖s‖‖y‖, with ‖s‖ the largest of a stack or tree.

    Examples
    --------
    >>> import numpy as np, stiefel
    >>> objective = stiefel.objectives.Brockett(np.arange(1.0, 21.0), [1.0, 2.0])
    >>> X0 = stiefel.random_point(20, 2, seed=0)
    >>> stiefel.minimize(objective, X0, method=stiefel.LBFGS(memory=20)).success
    True
    """

    framed: ClassVar[bool] = True  # it asks for nothing that frames do not have

    memory: int = 10
    metric: LearnedMetric | None = None
    rows: RowModel | None = None
    cost: str = "usual"
    sufficient_decrease: float = 1e-4
    curvature: float = 0.9
    initial_length: float = 0.1
    longest: float = 3.0
    caution: float = 1e-10

    def __post_init__(self) -> None:
        check_integer(self, "memory", 1)
        if not isinstance(self.metric, LearnedMetric | None):
            raise TypeError(
                f"LBFGS.metric is {self.metric!r}; expected None for the canonical metric, or "
                "stiefel.solvers.LearnedMetric()"
            )
        check_choice(self, "cost", ("usual", "cheap", "dear", "measure"))
        check_positive(self, "initial_length")
        check_positive(self, "longest")
        check_positive(self, "caution")
        check_open_interval(self, "sufficient_decrease", 0.0, 0.5)
        check_open_interval(self, "curvature", self.sufficient_decrease, 1.0)

    def init(self, problem: Problem, x: Point) -> State:
        geometry, at = problem.geometry, problem.gradient(x)
        learned = (self.metric or LearnedMetric(omega_of_leaves=2.0)).init(geometry, x, at)
        large = sum(math.prod(part.shape) for part in parts_of(at.G)) > LARGE_POINT
        plain = problem.precond is None and plain_pairs.is_plain(geometry, x)
        pairs, most = NOTHING, self.most_pairs
        if plain and not large:
            if self.cost == "usual":
                more = self.metric is not None, isinstance(geometry, Doubled)
                most = plain_pairs.worth_keeping(at.G, most, *more)
            pairs = plain_pairs.no_plain_pairs(
                at.G, most, bool(self.metric) and plain_pairs.worth_scaling(at.G, self.cost)
            )
        elif not large:
            pairs = self._no_pairs(problem, x, at)
        rows = OFF
        if self._model is not None:
            fit = not large and problem.precond is None and self.cost != "cheap"
            of_one = partial(RowModel.init, dear=self.cost == "dear")
            one = not isinstance(x, tuple) and len(x.shape) == 2
            look = of_one if one else row_leaves.looking_at_leaves
            rows = look(self._model, geometry, x, at) if fit else GIVEN_UP
        return self._aimed(problem, x, at, pairs, learned, 0.0, rows)

    @property
    def most_pairs(self) -> int:
        """As many as ``memory`` says, unless ``cost`` says more or less."""
        return pairs_by_cost(self.cost, self.memory)

    def pairs_like(self, geometry: Manifold, G: Cotangent) -> int:
        """More of a tree: scales of leaves say nothing of how one bends another, and pairs do."""
        more = self.metric is not None
        keeping = memory.pairs_worth_keeping
        return keeping(geometry, G, self.memory, more) if self.cost == "usual" else self.most_pairs

    def measured(self, seconds: float, entries: int) -> LBFGS:
        """This method with its ``cost`` by the seconds of one evaluation at so many entries."""
        return replace(self, cost=cost_of(seconds, entries))

    def step(self, problem: Problem, s: State) -> State:
        search = self._search if s.rows.known is None else self._searches_by_rows[s.rows.exact]
        first = None
        if not s.gamma:
            search = replace(search, growth=GROWTH_OF_GUESS)
        elif (rows := s.rows.unlooked() if self._model else s.rows) is not None:
            found, first = stride(Setting(
                problem, search, self.metric, self.caution, self.longest,
                s.at, s.aim, s.watch, s.pairs, s.learned, s.gamma,
            ))  # fmt: skip
            if found is not None:
                return self._onward(problem, found, rows)
        taken = search(problem, s.at, s.aim, s.watch, first)
        if taken is None:
            return self._recover(problem, s)
        if s.rows.on:
            s = s._replace(rows=s.rows.after_search(search.took_first(taken.t, s.aim.curve)))
        if s.pairs.changes is not None:
            return self._arrive_plainly(problem, s, taken)
        return self._arrive(problem, s, taken)

    @cached_property
    def _search(self) -> SecantSearch:
        return SecantSearch(self.sufficient_decrease, self.curvature, self.longest)

    @cached_property
    def _searches_by_rows(self) -> tuple[SecantSearch, SecantSearch]:
        """Of steps by an inexact model, and by an exact one, which asks for no pair."""
        short = replace(self._search, longest=min(self.longest, LONGEST_BY_ROWS))
        return short, replace(short, paired=False)

    @cached_property
    def _model(self) -> RowModel | None:
        """``rows``; where evaluations are dear, what explains them less closely will do."""
        return self.rows and (self.rows.of_dear_functions() if self.cost == "dear" else self.rows)

    def _arrive(self, problem: Problem, s: State, taken: SearchStep) -> State:
        """Keep the pair of the step taken, learn from it, and aim again."""
        geometry, (_, x, at, pair, *_), pairs, learned = problem.geometry, taken, s.pairs, s.learned
        if len(learned) > 1 or learned[0].metric.horizontal:
            learned, same = still_invariant(geometry, x, at, learned)
            pairs = pairs if same else pairs.forgotten()
        rows, old, aimed, ends = s.rows, s.rows.known, None, StepEnds(s.x, s.at, x, at)
        if self._model is not None and not (old is None and rows.looking is None):
            rows, aimed = self._model.observe_and_aim(problem, rows, ends, learned[0].metric)
        elif self._model is not None and rows.leaves:
            rows = row_leaves.observed(self._model, problem, rows, ends, learned)
            if rows.on or (rows.leaves and s.rows.on):
                before = s.rows, s.pairs.rows, s.gamma
                found = row_leaves.kept_of_rest(self, problem, taken, before, pairs, learned, rows)
                return self._aimed(problem, x, at, *found, rows, taken.watch, after=True)
            pairs, learned = self._without(problem, s.rows, x, at, learned, pairs)  # a stack's
        known = rows.known
        if known is not None and known.exact:
            here = problem, x, at, NOTHING, learned, s.gamma, rows, taken.watch
            return self._aimed(*here, aimed=aimed)
        curve, free = s.aim.curve, known is None and old is None
        if known is None and self._contradicts(pairs, x, curve, taken.t):
            pairs = pairs.forgotten()
        if pair is None:  # of a step by an exact model that ends here
            pair = curve.secant_pair(taken.t, s.at, at)
            pairs, learned = self._without(problem, s.rows, x, at, learned)
        elif free and problem.precond is None and type(curve) is not LandingRay:
            of_step = taken, self.caution * curve.length, s.pairs.rows, s.gamma, learned
            if taught := leaves_arrival(self.metric, self.curvature, geometry, pairs, *of_step):
                pairs, learned, gamma, aimed = taught
                here = problem, x, at, pairs, learned, gamma, rows, taken.watch
                return self._aimed(*here, after=True, aimed=aimed)
        kept = self._kept(problem, s, taken, pair, pairs, learned, known is not None)
        pairs, gamma, aimed, learned = kept
        return self._onward(problem, (x, at, taken.watch, pairs, learned, gamma, aimed), rows)

    def _onward(self, problem: Problem, found: Stride | tuple[Any, ...], rows: Rows) -> State:
        """The state at the end of a step."""
        x, at, watch, pairs, learned, gamma, aimed = found
        if aimed is not None and aimed[1] < -LEAST_COSINE * at.norm * aimed[2].length:
            T, slope, curve = aimed
            at = at if at.aux is None else at._replace(aux=None)
            new = x, at, Aim(T, slope, curve, learned[0].metric), pairs, learned, gamma
            return State(*new, len(pairs.rows), False, watch, rows, None, -0.5 * slope)
        return self._aimed(problem, x, at, pairs, learned, gamma, rows, watch, True, aimed)

    def _kept(
        self,
        problem: Problem,
        s: State,
        taken: SearchStep,
        pair: Secant,
        pairs: Pairs,
        learned: tuple[Learned, ...],
        modelled: bool,
    ) -> tuple[Pairs, float, tuple[Tangent, float, Curve] | None, tuple[Learned, ...]]:
        """Pairs with that of the step, γ, where to go if one call finds it, and what is known."""
        (t, x, at, _, sy, _), geometry, gamma = taken, problem.geometry, s.gamma
        curve, lesson, plain = s.aim.curve, None, not modelled and problem.precond is None
        least = self.caution * t * curve.length  # times ‖y‖; the transport is isometric
        # Steps of the row model are no sample of curvature: nothing is learned from them.
        metric = self.metric if plain and s.rows.known is None else None
        if metric is not None and type(curve) is LandingRay:
            lesson = metric.lesson(t, curve.whole, learned[0])
        if metric is not None and lesson is None:
            learned = metric.observe(geometry, x, pair, learned)
        if plain:
            of_step = pair, sy, least, s.pairs.rows, gamma, x, at.G, learned[0].metric
            if found := matrix_arrival(geometry, pairs, *of_step, self.longest, curve, lesson):
                if metric is not None and lesson is not None:
                    learned = (metric.taught(geometry, x, learned[0], lesson, found[3]),)
                pairs = with_matrices_looked_at(problem, x, at, found[0], learned, self.curvature)
                one = pairs.apart is None or not pairs.apart.on
                return pairs, found[1], found[2] if one else None, learned
        if metric is not None and lesson is not None:
            learned = metric.observe(geometry, x, pair, learned)
        if not sy > least * math.sqrt(squared_length(geometry, pair)):
            # No positive curvature yet: as far again.
            gamma = gamma or -t * s.aim.slope / (s.at.norm * s.at.norm)  # ** rounds
            return pairs, gamma, None, learned
        pairs = remember(geometry, pairs, pair.s, pair.y, sy, s.pairs.rows)
        square = learned_squared_change(problem, x, pair, learned, at.aux)
        mean = 0.0 if problem.precond else gamma  # little is left to average: test_wannier.py
        gamma = smoothed(mean, sy / square) if square > 0 else gamma
        pairs = with_matrices_looked_at(problem, x, at, pairs, learned, self.curvature)
        return pairs, gamma, None, learned

    def _contradicts(self, pairs: Pairs, x: Point, curve: Curve, t: float) -> bool:
        """Whether a step of t is that much shorter than the first trial along its curve.

        One matrix of many says nothing of the others: test_unit_vectors_are_looked_at_again.  One
        column on ranks goes the way that it goes alone: `_arrive_plainly`, test_mpi.py.
        """
        if t >= CONTRADICTED or (pairs.apart is not None and pairs.apart.on):
            return False
        if not isinstance(x, tuple) and (len(x.shape) == 1 or x.shape[-1] == 1):
            return False
        return t * max(1.0, curve.bounded_length / self.longest) < CONTRADICTED

    def _arrive_plainly(self, problem: Problem, s: State, taken: SearchStep) -> State:
        """`_arrive` where φ is the identity: nothing is learned but pairs."""
        _, x, at, pair, sy, watch = taken
        pairs, gamma, curve, rows = s.pairs, s.gamma, s.aim.curve, s.rows
        yy = plain_pairs.scaled_change(pairs, pair)
        if sy > self.caution * taken.t * curve.length * math.sqrt(yy):
            if pair.vectors is not None:
                pairs, pair, yy = plain_pairs.seen_vectors(pairs, pair, yy, at)
            gamma = smoothed(gamma, sy / yy) if yy > 0 else gamma
            if pair.kept is not None and at.aux is None:
                known = pairs, pair, sy, yy, gamma, x, at
                kept, T, ahead = plain_pairs.remembered_and_aimed(curve, *known)  # type: ignore[arg-type]
                slope, used, metric = ahead.slope, len(kept.rows), s.learned[0].metric
                looks = used > s.k and used in plain_pairs.LOOKED_AT
                own = self._parted(problem, s, kept, x) if looks else kept
                if own is kept and slope < -LEAST_COSINE * at.norm * ahead.length:
                    aim, model = Aim(T, slope, ahead, metric), s.learned
                    new = x, at, aim, kept, model, gamma, used, False, watch, rows, None
                    return State(*new, -0.5 * slope)
                if own is not kept:
                    return self._aimed(problem, x, at, own, s.learned, gamma, rows, watch, True)
            pairs = self._parted(problem, s, plain_pairs.remember_plain(pairs, pair, sy, yy, at), x)
        elif not gamma:  # no positive curvature yet: as far again
            gamma = -taken.t * s.aim.slope / (s.at.norm * s.at.norm)
        return self._aimed(problem, x, at, pairs, s.learned, gamma, rows, watch, after=True)

    def _parted(self, problem: Problem, s: State, new: Pairs, x: Point) -> Pairs:
        """``new`` pairs, or those of unit vectors that are seen to be apart."""
        looks = self.metric is not None and new.in_use > s.k
        return (plain_pairs.parted(problem.geometry, new, x) if looks else None) or new

    def _aimed(
        self,
        problem: Problem,
        x: Point,
        at: Gradient,
        pairs: Pairs,
        learned: tuple[Learned, ...],
        gamma: float,
        rows: Rows = OFF,
        watch: Watch = Watch(),  # noqa: B008 - a constant
        after: bool = False,
        aimed: tuple[Tangent, float, Curve] | None = None,
    ) -> State:
        """The state at x with its search direction; memory that does not descend is forgotten.

        ``after`` a step pairs without blocks have done their work.  ``aimed``: direction, slope and
        curve, where they are known.
        """
        geometry, forgot, matrix = problem.geometry, False, rows.known is not None
        modelled = matrix or (rows.leaves != () and rows.on)
        bare = at if at.aux is None else at._replace(aux=None)
        if at.norm == 0 or not at.finite:
            aim = Aim(at.G, 0.0, geometry.ray(x, at.G))
            return State(x, bare, aim, pairs, learned, gamma, rows=rows, watch=watch)
        metric = learned[0].metric if matrix else metric_of(geometry, learned)
        plain = pairs.changes is None and problem.precond is None and not modelled
        if aimed is None and pairs.rows and plain:
            aimed = matrix_aim(geometry, pairs, x, at.G, gamma, metric, self.longest)
        if aimed is None:
            T = self._direction(problem, x, at, pairs, learned, gamma, rows)
            aimed = T, *slope_and_curve(geometry, x, at, T, metric, pairs, modelled)
        T, slope, curve = aimed
        if (pairs.rows or modelled) and not slope < -LEAST_COSINE * at.norm * curve.length:
            pairs, learned = self._without(problem, rows, x, at, learned, pairs.forgotten())
            rows, forgot, modelled = GIVEN_UP if modelled else rows, True, False
            T = self._direction(problem, x, at, pairs, learned, gamma, rows)
            slope, curve = slope_and_curve(geometry, x, at, T, metric, pairs)
        if not slope < 0:  # a preconditioner that does not descend
            T = geometry.scale(-1.0, at.G)
            slope, curve = slope_and_curve(geometry, x, at, T, metric, pairs)
        aim, used = Aim(T, slope, curve, metric), len(pairs.rows)
        expected = -0.5 * slope if used or modelled else math.inf
        pairs = pairs.after_aiming() if after else pairs
        known = x, bare, aim, pairs, learned, gamma, used, forgot, watch, rows
        return State(*known, expected_decrease=expected)

    def _direction(
        self,
        problem: Problem,
        x: Point,
        at: Gradient,
        pairs: Pairs,
        learned: tuple[Learned, ...],
        gamma: float,
        rows: Rows,
    ) -> Tangent:
        """−H ∇f."""
        if rows.known is not None and self._model is not None:
            horizontal = learned[0].metric.horizontal
            return self._model.direction(problem.geometry, rows.known, pairs, x, at, horizontal)
        if rows.leaves and rows.on and self._model is not None:
            known = problem, x, at, pairs, learned, gamma, rows
            return direction_of_leaves(self._model, self._direction, *known, LONGEST_BY_ROWS)
        if pairs.in_use and pairs.changes is not None:
            return plain_pairs.plain_direction(pairs, at, gamma)
        if pairs.in_use:
            phi = partial(raised_by_learned, problem, x, learned, at.aux, True)
            if pairs.apart is not None and pairs.apart.on:
                return direction_apart(problem.geometry, pairs, at.G, gamma, phi, self.longest)
            owned = problem.precond is None  # otherwise it may be an array of the user's
            return apply_inverse(problem.geometry, pairs, at.G, gamma, phi, owned)
        r = raised_by_learned(problem, x, learned, at.aux, False, at.G)
        scale = gamma or first_scale(problem, x, r, self.initial_length, self.longest)
        return problem.geometry.scale(-scale, r)

    def _recover(self, problem: Problem, s: State) -> State:
        """No step was found: forget the pairs and try H₀ alone, or give up."""
        if s.k == 0 and not s.rows.on:
            limit = s.watch.blind or abs(s.aim.slope) <= problem.noise.worst(s.at.f)
            return s._replace(failure=Status.ROUNDING_LIMIT if limit else Status.STEP_NOT_FOUND)
        at = problem.gradient(s.x)
        pairs, learned = self._without(problem, s.rows, s.x, at, s.learned, s.pairs.forgotten())
        rows = GIVEN_UP if s.rows.on else s.rows
        new = self._aimed(problem, s.x, at, pairs, learned, s.gamma, rows, s.watch)
        return new._replace(restarted=True)

    def _without(
        self,
        problem: Problem,
        rows: Rows,
        x: Point,
        at: Gradient,
        learned: tuple[Learned, ...],
        pairs: Pairs = NOTHING,
    ) -> tuple[Pairs, tuple[Learned, ...]]:
        """Pairs and metric once an exact row model has ended: none of its own, and its D."""
        if not any(part.exact for part in rows.leaves or (rows,)):
            return pairs, learned
        return self._no_pairs(problem, x, at), with_columns(learned, rows, x)

    def _no_pairs(self, problem: Problem, x: Point, at: Gradient) -> Pairs:
        """Matrices of a stack are looked at where scales are learned, and none are given."""
        stack = None if self.metric is None or problem.precond else x
        geometry = problem.geometry
        return no_pairs(geometry, at.G, self.pairs_like(geometry, at.G), stack)
