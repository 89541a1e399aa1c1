"""A metric learned from the steps of a run; see `stiefel.geometry.metric` for its form.

From a step s and the change y of the gradient along it, the normal parts S, T and the rotation
parts A, B are split off, and

    P = Σ w SᴴS/‖S‖²,   R = Σ w TᴴT/‖S‖²,   w ∝ (‖T‖²/‖S‖²)²   (a soft maximum over time)

are accumulated.  D minimises Σ⟨y, φ(y)⟩ Σ⟨s, φ⁻¹(s)⟩, which gives D = M⁻¹ with MPM = R, the
geometric mean; ω = (Σ‖T‖² Σ‖A‖² / Σ‖S‖² Σ‖B‖²)^{1/2} likewise, over the recent steps.  Both are
invariant under scaling of f and under X → XQ.  From the third step on, ω is compared with the one
in use at every step that is looked at, and D when Σ w has grown by a tenth; a new one is taken
only when it differs materially.  The first steps are a fair sample of directions, later ones are
what was left over: a D that the first ones did not show must differ much more, and that of a span
is dropped if it does worse than I on steps that did not make it.  Leaves of a tree and matrices of
a stack have scales of their own, from the steps in which they moved.  These are ratios of plain
lengths ‖y‖ and ‖s‖, and φ must be plain where they are all that is learned: frames of a tree begin
with ω = 1.  With n = k there is no normal part, with k = 1 there is one column: D and ω are then
left alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from stiefel.geometry import compiled
from stiefel.geometry import metric as metrics
from stiefel.geometry.compiled import faster, has_few_columns
from stiefel.geometry.framed import Framed
from stiefel.geometry.framed_ray import Split
from stiefel.geometry.ray import (
    Curvature,
    Secant,
    Squares,
    pair_of_leaves,
    squares,
    squares_at,
)
from stiefel.geometry.wide import WideCurvature, wide_squares
from stiefel.types import Array, Gradient, Manifold, Metric, NumpyArray

from .leaves import balanced, factors_and_leaves, pairs_of, parts_of
from .problem import array_kernels
from .row_memory import small

DWARFED_NORMAL_PART = 1e5  # rounding errors of a rotation part: less tells nothing
DOUBLE = float(np.finfo(np.float64).eps)  # of the numbers that compiled kernels take
INVARIANT_ULPS = 100.0  # the same in single precision; `test_spans_in_single_precision`
INVARIANCE = 1e-11  # a rotation part smaller than this, relative to the first gradient, is rounding


class Learned(NamedTuple):
    """What is known about one leaf."""

    metric: Metric
    P: Array = None
    R: Array = None
    weight: float = 0.0  # Σ w
    judged: float = 0.0  # Σ w when D was last compared
    ratio: float = 0.0  # the largest ‖T‖²/‖S‖² seen
    rotations: tuple[float, float] = (0.0, 0.0)  # Σ‖A‖², Σ‖B‖²
    normals: tuple[float, float] = (0.0, 0.0)  # Σ‖S‖², Σ‖T‖²
    steps: int = 0  # seen so far
    scale_of_gradient: float = 1.0  # ‖∇f(x0)‖, against which rounding is measured
    weights: Array = None  # of the matrices of this leaf, what is known of their stiffness
    stiffness: Array = None  # Σ w log(‖y‖²/‖s‖²) of each
    unit: float = 0.0  # ‖y‖²/‖s‖² of the first step: the logarithms above are relative to it
    verdict: float = 0.0  # how much worse D did than I on steps that did not make it

    def counted(self) -> Learned:
        """The same after a step that tells nothing, or was not looked at."""
        return Learned(*self[:8], self.steps + 1, *self[9:])

    def weighed(self, scale: float, weights: Array, stiffness: Array, unit: float) -> Learned:
        """The same with another scale among the leaves of a tree, and what it comes from."""
        metric, (D, omega, horizontal, old, scales) = self.metric, self.metric
        if scale != old:
            metric = Metric(D, omega, horizontal, scale, scales)
        return Learned(metric, *self[1:10], weights, stiffness, unit, self.verdict)


@dataclass(frozen=True)
class LearnedMetric:
    """When and how the metric is learned; the values were found by experiment."""

    power: float = 0.5  # of the weights w: higher looks more at the stiffest steps
    memory: float = 0.95  # of the sums that give ω
    column_change: float = 3.0  # D is replaced when it differs by more than this
    news: float = 1.1  # D is compared again when Σ w has grown by this
    rotation_change: float = 1.5  # ω likewise
    column_range: float = 100.0  # condition number of D at most
    rotation_range: float = 1000.0  # 1 ≤ ω ≤ this
    least: int = 3  # steps before the first metric
    settled: int = 40  # after so many steps only every fourth is looked at
    thinning: int = 4
    # The first steps are a fair sample of directions, and of functions of the span the only ones
    # that are all looked at: test_spans_are_looked_at_less.  A D that they do not show …
    early: int = 8
    late_change: float = 10.0  # … must differ by more than this from the identity
    # Σ log of what D makes worse, since it last did better: test_columns_that_mislead_are_dropped.
    worst_columns: float = 0.8
    # Where f knows of rotations, these say as much of D: test_columns_that_mislead_a_stack_…
    worst_beside_rotations: float = 2.0
    least_share: float = 1e-8  # of a step; what moves less is not learned from
    omega_of_leaves: float = 1.0  # of frames in a tree at first; `test_frames_of_trees_are_plain`

    def init(self, geometry: Manifold, X: Array, at: Gradient) -> tuple[Learned, ...]:
        """Nothing learned yet; f may be seen to depend on spans only."""
        tree = isinstance(X, tuple)
        parts = zip(factors_and_leaves(geometry, X), parts_of(at.rotation), strict=True)
        return tuple(self._unlearned(*leaf, rotation, at.norm, tree) for leaf, rotation in parts)

    def _unlearned(
        self, factor: Manifold, x: Array, rotation: Array, norm: float, tree: bool
    ) -> Learned:
        """Of a leaf with a gradient of this rotation part, in one of this norm."""
        metric = Metric(horizontal=_invariant(factor, x, rotation, norm))
        plain = tree and isinstance(factor, Framed)
        metric = metric._replace(omega=self.omega_of_leaves) if plain else metric
        P, R = _zeros(factor, x) if _has_D(factor, x) else (None, None)
        return Learned(metric, P, R, scale_of_gradient=norm)

    def observe(
        self, geometry: Manifold, X: Array, pair: Secant, learned: tuple[Learned, ...]
    ) -> tuple[Learned, ...]:
        """``learned`` after one more step, with its secant pair at X."""
        if len(learned) == 1 and learned[0].P is None and only_turns(pairs_of(pair)[0].curvature):
            return learned  # there is nothing to weigh it against
        if self.passes_over(learned):
            return one_more_step(learned)
        factors, parts = getattr(geometry, "factors", (geometry,)), parts_of(X)
        seen = tuple(map(self._look, factors, parts, pairs_of(pair), learned))
        if isinstance(X, tuple) or len(X.shape) != 2:
            seen = balanced(geometry, X, pair, seen, self.memory, self.least_share)
        return seen if isinstance(X, tuple) else (self.judged(geometry, X, learned[0], seen[0]),)

    def passes_over(self, learned: tuple[Learned, ...]) -> bool:
        """Whether the next step is one of those that are not looked at."""
        first = learned[0]
        return not self._looks(first.steps, len(learned) == 1 and first.metric.horizontal)

    def _looks(self, steps: int, span: bool) -> bool:
        return steps < (self.early if span else self.settled) or not steps % self.thinning

    def lesson(self, t: float, frame: Array, old: Learned) -> tuple[Any, ...] | None:
        """What a compiled arrival needs to learn from a step; None if it is not looked at there."""
        P = old.P
        if P is None or not (self._looks(old.steps, old.metric.horizontal) and has_few_columns(P)):
            return None
        room = np.empty((3, *P.shape), P.dtype)
        turns = self.rotation_change, self.rotation_range
        return t, frame, P, old.R, room, *self._numbers(old), *turns

    def taught(
        self,
        geometry: Manifold,
        X: Array,
        old: Learned,
        lesson: tuple[Any, ...],
        told: tuple[Any, ...] | None,
    ) -> Learned:
        """What is known after a `lesson`, from what the arrival at X told of it."""
        if told is None:
            return old.counted()
        metric, room, (D, omega, horizontal, scale, scales) = old.metric, lesson[4], old.metric
        weight, judged, ratio, sA, tA, sN, tN, replaced, turned = told
        if replaced or not (horizontal or turned == omega):
            omega = omega if horizontal else turned
            metric = Metric(room[2] if replaced else D, omega, horizontal, scale, scales)
        sums = (sA, tA), (sN, tN), old.steps + 1
        new = Learned(metric, room[0], room[1], weight, judged, ratio, *sums, *old[9:])
        return self.judged(geometry, X, old, new)

    def judged(self, geometry: Manifold, X: Array, old: Learned, new: Learned) -> Learned:
        """``new``, without its D if that does worse than I on steps that did not make it.

        Not of the leaves of trees: a pair of them takes a sixth more evaluations (measurements.md).
        """
        D = old.metric.D
        if D is not new.metric.D:
            return new._replace(verdict=0.0)
        if D is None or new.P is old.P or old.steps % self.thinning:
            return new
        fade = (old.ratio / new.ratio) ** self.power
        sample: tuple[Any, ...] = D, new.P - fade * old.P, new.R - fade * old.R
        if type(D) is not np.ndarray:
            sample = tuple(small(array_kernels(geometry, X), m) for m in sample)
        verdict = max(0.0, new.verdict + _mistake(*sample))
        most = self.worst_columns if new.metric.horizontal else self.worst_beside_rotations
        if not verdict > most:
            return new._replace(verdict=verdict)
        return new._replace(metric=new.metric._replace(D=None), judged=math.inf)

    @cached_property
    def numbers(self) -> tuple[float, ...]:
        """As the kernel of arrivals takes them."""
        return (
            self.power, self.memory, self.news, self.column_change, self.late_change,
            self.column_range, self.rotation_change, self.rotation_range, self.least_share,
            DWARFED_NORMAL_PART * DOUBLE, self.early, self.least,
        )  # fmt: skip

    def _look(self, factor: Manifold, x: Array, pair: Secant, old: Learned) -> Learned:
        count = old.steps + 1
        if isinstance(pair.curvature, Split):
            return self._weigh(old, pair.curvature)
        if old.P is None:
            return old.counted()
        k = array_kernels(factor, x)
        seen, fast = pair.curvature, faster(k, x)
        raw = not isinstance(seen, Squares)
        if fast is compiled and raw and has_few_columns(old.P):
            return self._look_at_once(k.compiled, seen, old)
        if raw:
            wide = isinstance(seen, WideCurvature)
            seen = (wide_squares if wide else fast.squares if fast else squares)(k, seen)
        ss, tt, aa, bb = (float(v) for v in seen[2:])
        # A step this short is rounding, and its reciprocal overflows in single precision; normal
        # parts that rotations dwarf are differences of Gram matrices, and rounding too.
        least = DWARFED_NORMAL_PART * factor.eps(x)
        told = ss > max(1e-30, least * aa) and tt > least * bb
        if not (told and math.isfinite(ss + tt + aa + bb)):
            return old.counted()
        new = self._accumulate(old, seen, ss, tt, aa, bb)
        return self._refresh(factor, x, new) if count >= self.least else new

    def _look_at_once(self, fast: Any, seen: Curvature | WideCurvature, old: Learned) -> Learned:
        """`_accumulate` and `_refresh` in one compiled call."""
        (t, _, B, yy, _), count, metric = seen, old.steps + 1, old.metric
        if isinstance(seen, WideCurvature):
            of_ray = seen.frame.C, seen.frame.A, None
        else:
            of_ray = seen.frame[0], seen.frame[1], seen.frame[3]  # Γ, B and K
        room = np.empty((3, *B.shape), B.dtype)
        P, R, D = room[0], room[1], room[2]
        known = t, *of_ray, B, yy, old.P, old.R, metric.D
        found = fast.learn(*known, *self._numbers(old), P, R, D)
        if found is None:
            return old.counted()
        weight, judged, ratio, sA, tA, sN, tN, replaced = found
        if replaced:
            metric = metric._replace(D=D)
        new = Learned(old.metric, P, R, weight, judged, ratio, (sA, tA), (sN, tN), count, *old[9:])
        return self._rotated(new, metric) if count >= self.least else new

    def _numbers(self, old: Learned) -> tuple[float, ...]:
        """What is known, and the rules, as compiled kernels take them."""
        count, sums = old.steps + 1, (*old.rotations, *old.normals)
        late = old.metric.D is None and count > self.early
        change = self.late_change if late else self.column_change
        news = self.news if count >= self.least else math.inf
        rules = self.power, self.memory, news, change, self.column_range
        least = DWARFED_NORMAL_PART * DOUBLE
        return old.weight, old.judged, old.ratio, *sums, *rules, least

    def _weigh(self, old: Learned, seen: Split) -> Learned:
        """ω alone: nearly square matrices have too many columns for a D."""
        new, (ss, tt, aa, bb) = old._replace(steps=old.steps + 1), seen
        if not (ss > 1e-30 and tt > 0 and math.isfinite(ss + tt + aa + bb)):
            return new
        rotations, normals = self._sums(old, ss, tt, aa, bb)
        new = new._replace(rotations=rotations, normals=normals)
        return self._rotated(new, new.metric) if new.steps >= self.least else new

    def lesson_in_frame(self, learned: tuple[Learned, ...]) -> tuple[float, ...] | None:
        """What a compiled step needs to do the same; None if it is not looked at."""
        if self.passes_over(learned):
            return None
        old = learned[0]
        enough = float(old.steps + 1 >= self.least)
        rules = self.memory, self.rotation_change, self.rotation_range, enough
        return *old.rotations, *old.normals, *rules

    def taught_in_frame(self, old: Learned, told: tuple[float, ...] | None) -> Learned:
        """What is known after it, from what it told."""
        if told is None:
            return old.counted()
        (*sums, omega), metric = told, old.metric
        if not (metric.horizontal or omega == metric.omega):
            metric = metric._replace(omega=omega)
        rotations, normals = (sums[0], sums[1]), (sums[2], sums[3])
        new = old._replace(metric=metric, rotations=rotations, normals=normals)
        return new.counted()

    def _sums(
        self, old: Learned, ss: float, tt: float, aa: float, bb: float
    ) -> tuple[tuple[float, float], tuple[float, float]]:
        """The sums of rotation and of normal parts that give ω."""
        d, unit, (sA, tA), (sN, tN) = self.memory, ss + aa, old.rotations, old.normals
        return (d * sA + aa / unit, d * tA + bb / unit), (d * sN + ss / unit, d * tN + tt / unit)

    def _accumulate(
        self, old: Learned, seen: Any, ss: float, tt: float, aa: float, bb: float
    ) -> Learned:
        ratio = tt / ss
        largest = max(ratio, old.ratio)
        fade = (old.ratio / largest) ** self.power
        own = (ratio / largest) ** self.power
        rotations, normals = self._sums(old, ss, tt, aa, bb)
        return old._replace(
            rotations=rotations,
            normals=normals,
            steps=old.steps + 1,
            P=fade * old.P + (own / ss) * seen.SS,
            R=fade * old.R + (own / ss) * seen.TT,
            weight=fade * old.weight + own,
            judged=fade * old.judged,
            ratio=largest,
        )

    def _refresh(self, factor: Manifold, x: Array, new: Learned) -> Learned:
        metric = new.metric
        if new.weight > self.news * new.judged:
            k = array_kernels(factor, x)
            home = faster(k, x) or metrics
            D = home.mean_metric(k, new.P, new.R, self.column_range)
            late = metric.D is None and new.steps > self.early
            least = self.late_change if late else self.column_change
            if float(home.spread(k, D, metric.D)) > least:
                metric = metric._replace(D=D)
            new = new._replace(judged=new.weight)
        return self._rotated(new, metric)

    def _rotated(self, new: Learned, metric: Metric) -> Learned:
        """``new`` with this metric, and with another ω if that differs materially."""
        (sA, tA), (sN, tN) = new.rotations, new.normals
        if not metric.horizontal and tA > 0 and sN > 0:
            omega = min(max(math.sqrt(tN * sA / (sN * tA)), 1.0), self.rotation_range)
            if max(omega / metric.omega, metric.omega / omega) > self.rotation_change:
                metric = metric._replace(omega=omega)
        return new if metric is new.metric else new._replace(metric=metric)


def one_more_step(learned: tuple[Learned, ...]) -> tuple[Learned, ...]:
    """``learned`` after a step that was passed over; the count is that of the first leaf."""
    return (learned[0].counted(), *learned[1:])


def still_invariant(
    geometry: Manifold, X: Array, at: Gradient, learned: tuple[Learned, ...]
) -> tuple[tuple[Learned, ...], bool]:
    """A start may be special: rotation parts are looked at in every point until one shows.

    Returns what is known now, and whether nothing changed.
    """
    if not (learned[0].metric.horizontal or any(leaf.metric.horizontal for leaf in learned[1:])):
        return learned, True
    if not isinstance(X, tuple):  # one matrix, or a stack
        small = _is_small(geometry, X, at.rotation, learned[0].scale_of_gradient)
        flags: tuple[bool, ...] = (small,)
    else:
        parts = zip(factors_and_leaves(geometry, X), parts_of(at.rotation), learned, strict=True)
        flags = tuple(
            leaf.metric.horizontal and _invariant(factor, x, rotation, leaf.scale_of_gradient)
            for (factor, x), rotation, leaf in parts
        )
    if flags == tuple(leaf.metric.horizontal for leaf in learned):
        return learned, True
    return _horizontal(learned, flags), False


def product_pair(
    geometry: Manifold, x: Array, W: Array, HW: Array, learned: tuple[Learned, ...]
) -> Secant:
    """The pair of a product HW with the Hessian at x: no step is a better sample of it."""
    s = geometry.raise_index(x, W)
    leaves = zip(factors_and_leaves(geometry, x), parts_of(s), parts_of(HW), learned, strict=True)
    pairs = [
        Secant(
            t, y, None if leaf.P is None else squares_at(array_kernels(factor, part), part, t, y)
        )
        for (factor, part), t, y, leaf in leaves
    ]
    return pair_of_leaves(pairs) if isinstance(s, tuple) else pairs[0]


def _horizontal(learned: tuple[Learned, ...], flags: tuple[bool, ...]) -> tuple[Learned, ...]:
    """``learned`` with the rotation parts dropped, or not, leaf by leaf."""
    return tuple(
        old._replace(metric=old.metric._replace(horizontal=flag))
        for old, flag in zip(learned, flags, strict=True)
    )


def _has_D(factor: Manifold, x: Array) -> bool:
    return not isinstance(factor, Framed) and _can_learn(factor, x)


def _can_learn(factor: Manifold, x: Array) -> bool:
    if isinstance(factor, Framed):
        return factor.learns
    return getattr(factor, "learns", False) and 1 < x.shape[-1] < array_kernels(factor, x).rows(x)


def only_turns(seen: Any) -> bool:
    """Whether a step has no normal part, or none that is known."""
    return seen is None or (type(seen) is Split and seen.normal_step == 0.0)


def _mistake(D: NumpyArray, SS: NumpyArray, TT: NumpyArray) -> float:
    """log Tr(SᴴS D⁻¹) Tr(TᴴT D), which a good D makes small, less that of I; of a stack in sum."""
    own = float(np.vdot(np.linalg.inv(D), SS).real * np.vdot(D, TT).real)
    plain = _trace(SS) * _trace(TT)
    return math.log(own / plain) if min(own, plain) > 0 else 0.0  # of rounding errors


def _trace(A: NumpyArray) -> float:
    """Of all matrices of a stack."""
    return float(np.trace(A, axis1=-2, axis2=-1).sum().real)


def _zeros(factor: Manifold, x: Array) -> tuple[Array, Array]:
    zero = 0.0 * array_kernels(factor, x).gram(x, x)
    return zero, zero


def _invariant(factor: Manifold, x: Array, rotation: Array, scale: float) -> bool:
    """Whether the gradient has no rotation part, as that of f(XQ) = f(X) has none."""
    return _can_learn(factor, x) and _is_small(factor, x, rotation, scale)


def _is_small(factor: Manifold, x: Array, rotation: Array, scale: float) -> bool:
    k = array_kernels(factor, x)
    eps = DOUBLE if k.pure_numpy and x.dtype.char in "dD" else k.eps(x)
    return math.sqrt(k.squared_frobenius(rotation)) <= _least_turn(eps) * scale


def _least_turn(eps: float) -> float:
    return max(INVARIANCE, INVARIANT_ULPS * eps)


def largest_turn(old: Learned) -> float:
    """The rotation part that leaves all as it is, of one matrix of double precision."""
    return _least_turn(DOUBLE) * old.scale_of_gradient if old.metric.horizontal else math.inf
