"""The learned metric of `stiefel.solvers.metric`, with every decision a mask over the problems.

Sums, constants and rules are those of the scalar solver; see there what is accumulated and why.
A horizontal metric is one with ω = 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from stiefel.types import Array

from .kernels import PerProblem
from .leaves import Leaf, Metric
from .shared import (
    DWARFED_NORMAL_PART,
    INVARIANCE,
    LearnedMetric,
    Secant,
    mean_metric,
    spread,
    surely_near,
)


class Learned(NamedTuple):
    """What is known about one leaf of every problem; numbers have shape (B,)."""

    D: Array | None
    omega: Array
    horizontal: Array
    scale: Array
    P: Array | None
    R: Array | None
    weight: Array  # Σ w
    judged: Array  # Σ w when D was last compared
    ratio: Array  # the largest ‖T‖²/‖S‖² seen
    rotation_step: Array  # Σ‖A‖²
    rotation_change: Array  # Σ‖B‖²
    normal_step: Array  # Σ‖S‖²
    normal_change: Array  # Σ‖T‖²
    found: Array  # 1 once D was learned
    evidence: Array  # Σ w of the shares that this leaf had of the steps
    stiffness: Array  # Σ w log(‖y‖²/‖s‖²), in units of the first step's
    unit: Array  # ‖y‖²/‖s‖² of that step

    @property
    def metric(self) -> Metric:
        return Metric(self.D, self.omega * (1.0 - 1.0 * self.horizontal), self.scale)


def nothing_learned(leaf: Leaf, X: Array, zero: Array) -> Learned:
    """The canonical metric for every problem; ``zero`` has shape (B,)."""
    k, D, P = leaf.k, None, None
    if leaf.learns:
        P = 0.0 * k.gram(X, X)
        D = P + k.eye(X)
    flags = (zero + 1.0 > 0) if leaf.spans_only else (zero > 0)
    return Learned(D, zero + 2.0, flags, zero + 1.0, P, P, *(zero,) * 11)


def invariant(leaf: Leaf, rotation: Array | None, scale: Array) -> Array:
    """Whether gradients have no rotation part, as those of f(XQ) = f(X) have none."""
    if leaf.spans_only:
        return scale >= 0
    if not leaf.learns:
        return scale < 0
    return leaf.turning(rotation, scale) <= INVARIANCE * scale


class Observer(NamedTuple):
    """What a step teaches; ``rules`` are the constants of the scalar solver."""

    k: PerProblem
    rules: LearnedMetric

    def observe(
        self,
        leaves: tuple[Leaf, ...],
        pairs: tuple[Secant, ...],
        learned: tuple[Learned, ...],
        steps: Array,
        taken: Array,
        eps: tuple[float, ...],
    ) -> tuple[Learned, ...]:
        """``learned`` after the steps of the problems in ``taken``; ``steps`` were seen before."""
        r, k = self.rules, self.k
        look = taken & ~((steps >= r.settled) & (steps % r.thinning != 0))
        if not k.some(look):
            return learned
        parts = zip(leaves, pairs, learned, eps, strict=True)
        seen = tuple(self._look(leaf, p, old, steps + 1, look, e) for leaf, p, old, e in parts)
        return self._balanced(leaves, pairs, seen, look) if len(seen) > 1 else seen

    def _look(
        self, leaf: Leaf, pair: Secant, old: Learned, count: Array, look: Array, eps: float
    ) -> Learned:
        xp = self.k.xp
        if not leaf.learns:
            return old
        seen = leaf.squares(pair)
        ss, tt, aa, bb = seen[2:]
        least = DWARFED_NORMAL_PART * eps
        told = (ss > xp.maximum(0.0 * ss + 1e-30, least * aa)) & (tt > least * bb)
        told = look & told & xp.isfinite(ss + tt + aa + bb)
        new = self._accumulate(old, seen, told)
        return self._refresh(leaf, new, told & (count >= self.rules.least), count)

    def _accumulate(self, old: Learned, seen: Any, told: Array) -> Learned:
        k, xp, r = self.k, self.k.xp, self.rules
        one = xp.ones_like(old.weight)
        ss, tt, aa, bb = (xp.where(told, a, one) for a in seen[2:])
        ratio = tt / ss
        largest = xp.maximum(ratio, old.ratio)
        fade, own = (old.ratio / largest) ** r.power, (ratio / largest) ** r.power
        unit, d = ss + aa, r.memory
        assert old.P is not None and old.R is not None
        fade_, own_ = k.spread_out(fade, old.P), k.spread_out(own / ss, old.P)
        return k.choose(
            told,
            old._replace(
                P=fade_ * old.P + own_ * seen.SS,
                R=fade_ * old.R + own_ * seen.TT,
                weight=fade * old.weight + own,
                judged=fade * old.judged,
                ratio=largest,
                rotation_step=d * old.rotation_step + aa / unit,
                rotation_change=d * old.rotation_change + bb / unit,
                normal_step=d * old.normal_step + ss / unit,
                normal_change=d * old.normal_change + tt / unit,
            ),
            old,
        )

    def _refresh(self, leaf: Leaf, new: Learned, ripe: Array, count: Array) -> Learned:
        k, xp, r = leaf.k, self.k.xp, self.rules
        news = ripe & (new.weight > r.news * new.judged)

        late = (new.found == 0) & (count > r.early)
        least = xp.where(late, r.late_change + 0.0 * new.found, r.column_change + 0.0 * new.found)

        def compared(
            P: Array, R: Array, D: Array, least: Array, found: Array
        ) -> tuple[Array, Array]:
            E = mean_metric(k, P, R, r.column_range)
            differs = spread(k, E, D) > least
            return k.choose(differs, E, D), xp.where(differs, 1.0 + 0.0 * found, found)

        def screened(news: Array, *arguments: Array) -> tuple[Array, Array]:
            far = news & ~surely_near(k, *arguments[:4])
            return self.k.on_some(far, compared, arguments, (arguments[2], arguments[4]))

        arguments = news, new.P, new.R, new.D, least, new.found
        D, found = self.k.on_some(news, screened, arguments, (new.D, new.found))
        judged = xp.where(news, new.weight, new.judged)
        usable = (new.rotation_change > 0) & (new.normal_step > 0) & ~new.horizontal & ripe
        square = new.normal_change * new.rotation_step / (new.normal_step * new.rotation_change)
        omega = xp.clip(
            xp.sqrt(xp.where(usable, square, 1.0 + 0.0 * square)), 1.0, r.rotation_range
        )
        differs = xp.maximum(omega / new.omega, new.omega / omega) > r.rotation_change
        omega = xp.where(usable & differs, omega, new.omega)
        return new._replace(D=D, found=found, judged=judged, omega=omega)

    def _balanced(
        self,
        leaves: tuple[Leaf, ...],
        pairs: tuple[Secant, ...],
        learned: tuple[Learned, ...],
        look: Array,
    ) -> tuple[Learned, ...]:
        """Leaves of a tree scaled against each other, by steps in which they have a share."""
        xp, r = self.k.xp, self.rules
        ss = [leaf.dot(p.s, p.s) for leaf, p in zip(leaves, pairs, strict=True)]
        yy = [leaf.squared_length(p) for leaf, p in zip(leaves, pairs, strict=True)]
        shares = [s / old.scale for s, old in zip(ss, learned, strict=True)]
        total, one = sum(shares), 1.0 + 0.0 * ss[0]
        look = look & (total > 0) & (sum(yy) > 0)
        first = sum(yy) / xp.where(look, sum(ss), one)
        unit = xp.where(learned[0].unit > 0, learned[0].unit, xp.where(look, first, one))
        new = []
        for old, s, y, share in zip(learned, ss, yy, shares, strict=True):
            share = share / xp.where(look, total, one)
            told = look & (share > r.least_share) & (y > 0)
            w = xp.where(told, xp.minimum(len(ss) * share, one), 0.0 * one)
            log = xp.log(xp.where(told, y / xp.where(told, s, one) / unit, one))
            fade = xp.where(look, r.memory * one, one)
            known = {
                "evidence": fade * old.evidence + w,
                "stiffness": fade * old.stiffness + w * log,
            }
            new.append(old._replace(**known, unit=xp.where(look, unit, old.unit)))
        return self._scaled(tuple(new))

    def _scaled(self, learned: tuple[Learned, ...]) -> tuple[Learned, ...]:
        """1 for the softest leaf, and for one of which nothing is known."""
        xp = self.k.xp
        logs = [
            n.stiffness / xp.where(n.evidence > 0, n.evidence, 1.0 + n.evidence) for n in learned
        ]
        least = logs[0] * 0.0 + xp.inf
        for leaf, log in zip(learned, logs, strict=True):
            least = xp.minimum(least, xp.where(leaf.evidence > 0, log, least))
        return tuple(
            n._replace(scale=xp.exp(0.5 * xp.where(n.evidence > 0, least - log, 0.0 * log)))
            for n, log in zip(learned, logs, strict=True)
        )
