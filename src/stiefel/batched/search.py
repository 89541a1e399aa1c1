"""The line search of `stiefel.solvers.secant_search` as one masked transition.

Every problem is somewhere in its own search: each call judges one trial of each, and none waits
for another.  With t the trial, s₀ and s(t) the slopes at both ends,

    taken      f falls by c₁ t s₀ (or unreadably, and the trapezium of slopes does), s(t) ≥ c₂ s₀
    short      falls enough, but s(t) < c₂ s₀:  low ← t, a longer trial
    long       does not fall enough:            high ← t, a shorter trial
    stuck      no room between low and high, or too many trials: back to the longest step that fell
               enough, which is then taken without a question; without such a step the search failed

Values that contradict their slopes are doubts: as many as fit are kept, and decide whether what
is seen is noise of f.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from stiefel.types import Array

from .kernels import PerProblem
from .shared import (
    DWARFING_GAPS,
    GROWTH,
    GROWTH_OF_GUESS,
    LOST_BITS,
    MARGIN,
    MAX_TRIALS,
    PLAUSIBLE_NOISE,
    ROUNDING,
    SHORTER,
    SHRINKAGE,
)

DOUBTS = 8  # kept; trials shrink by at least 0.7, so that four are enough to be SHORTER


class Search(NamedTuple):
    """Where the search of each problem stands; all of shape (B,) but the doubts, (B, DOUBTS)."""

    t: Array  # the next trial
    low: Array
    high: Array
    limit: Array  # of t: no step moves a matrix further than `longest`
    growth: Array  # at most, of a step that was too short
    kept: Array  # the longest step that fell enough, or 0 …
    rise: Array  # … with the rise of f …
    slope: Array  # … and the slope at it
    forced: Array  # the next trial is to be taken
    trials: Array
    doubts: Array  # how many
    dwarfed: Array  # whether all gaps dwarf what slopes predict
    gap: Array  # the largest
    doubt_t: Array
    doubt_gap: Array


class TrialVerdict(NamedTuple):
    """What became of the trial of each problem."""

    taken: Array
    failed: Array
    noise: Array
    readable: Array  # the decrease is larger than the noise of f


@dataclass(frozen=True)
class Noise:
    """What is known about the rounding of f; see `stiefel.solvers.problem`."""

    k: PerProblem
    eps: float
    fnoise: Array | None  # (B,), where the user knows it

    def level(self, f: Array, magnitude: Array) -> Array:
        """The size beneath which differences of values near f mean nothing."""
        k, xp = self.k, self.k.xp
        if self.fnoise is not None:
            return self.fnoise + 0.0 * f
        rounding = ROUNDING * self.eps * xp.abs(f)
        cancelled = (xp.abs(f) <= magnitude * 2.0**-LOST_BITS) & xp.isfinite(f) & (f != 0)
        if not k.some(cancelled | (f == 0)):
            return rounding
        mantissa, power = k.frexp(xp.where(cancelled, f, xp.ones_like(f)))
        bits = 1 - round(math.log2(float(xp.finfo(f.dtype).eps)))
        unit = k.last_bit(mantissa, bits) * power
        lost = cancelled & (unit > self.eps * xp.abs(f) * 2.0**LOST_BITS)
        most = ROUNDING * self.eps * magnitude
        rounding = xp.where(lost, xp.minimum(ROUNDING * unit, most), rounding)
        return k.once(xp.where(f == 0, most, rounding))  # the last digit of zero is infinite

    def plausible(self, f: Array, magnitude: Array) -> Array:
        return PLAUSIBLE_NOISE * self.k.xp.maximum(self.k.xp.abs(f), magnitude)

    def worst(self, f: Array, magnitude: Array) -> Array:
        """What f may have lost in terms as large as f(x0) that cancel in it."""
        xp = self.k.xp
        lost = ROUNDING * self.eps * xp.maximum(xp.abs(f), magnitude)
        return xp.maximum(self.level(f, magnitude), lost)


@dataclass(frozen=True)
class MaskedSearch:
    k: PerProblem
    sufficient_decrease: float = 1e-4  # c₁
    curvature: float = 0.9  # c₂
    longest: float = 3.0

    def start(self, size: Array, gamma: Array, before: Search | None = None) -> Search:
        """New searches along rays on which t = 1 moves a matrix by ``size``; a guess without γ.

        The tables of doubts stay as the searches before left them: `_doubted` reads what is newer.
        """
        xp, zero = self.k.xp, 0.0 * size
        moves = size > 0
        limit = xp.where(moves, self.longest / xp.where(moves, size, zero + 1.0), zero + math.inf)
        none, count = zero > 0, self.k.integers(zero)
        tables = (self._table(zero),) * 2 if before is None else before[-2:]
        t = xp.minimum(zero + 1.0, limit)
        growth = xp.where(gamma > 0, zero + GROWTH[1], zero + GROWTH_OF_GUESS)
        return Search(
            t,
            zero,
            zero + math.inf,
            limit,
            growth,
            zero,
            zero,
            zero,
            none,
            count,
            count,
            ~none,
            zero,
            *tables,
        )

    def _table(self, zero: Array) -> Array:
        xp = self.k.xp
        return zero[:, None] + xp.zeros((1, DOUBTS), dtype=zero.dtype, device=self.k.device(zero))

    def judge(
        self,
        s: Search,
        rise: Array,
        slope: Array,
        end: Array,
        finite: Array,
        noise: Array,
        level: Array,
        plausible: Array,
    ) -> tuple[TrialVerdict, Search]:
        """The trial at s.t, whose value is higher by ``rise`` and whose slope is ``end``."""
        xp, t = self.k.xp, s.t
        level = xp.maximum(noise, level)
        area, wanted = 0.5 * t * (slope + end), self.sufficient_decrease * t * slope
        falls = area <= wanted
        good = finite & ((rise <= wanted) | ((rise <= level) & falls & (s.doubts == 0)))
        doubt = finite & ~good & falls & (rise - area <= plausible)
        s, is_noise = self._doubted(s, doubt, rise - area, area)
        noise, good = xp.where(is_noise, s.gap, noise), good | is_noise
        steep = end < self.curvature * slope
        taken = finite & (s.forced | (good & (~steep | (t >= 0.99 * s.limit))))
        s, stuck = self._next(s, good, finite, slope, rise, end, doubt)
        failed = ~taken & (s.forced | (stuck & ~(s.kept > 0)))
        back = stuck & (s.kept > 0) & ~s.forced
        s = s._replace(t=xp.where(back, s.kept, s.t), forced=s.forced | back)
        return TrialVerdict(taken, failed, noise, -0.5 * t * slope > MARGIN * level), s

    def _next(
        self,
        s: Search,
        good: Array,
        finite: Array,
        slope: Array,
        rise: Array,
        end: Array,
        doubt: Array,
    ) -> tuple[Search, Array]:
        """The trial after s.t, and whether there is no room for one."""
        xp, t = self.k.xp, s.t
        rises = end > slope
        zero = xp.where(rises, -slope / xp.where(rises, end - slope, 1.0 + 0.0 * t), math.inf)
        longer = xp.where(
            s.high == math.inf,
            xp.minimum(xp.minimum(xp.maximum(zero, GROWTH[0] + 0.0 * t), s.growth) * t, s.limit),
            0.5 * (t + s.high),
        )
        gap, (least, most) = t - s.low, SHRINKAGE
        shorter = t * zero
        if self.k.some(long := finite & ~good & ~doubt):
            lowest = t - self._back(s, gap, slope, rise, end)
            shorter = xp.where(long & xp.isfinite(lowest), lowest, shorter)
        shorter = xp.minimum(xp.maximum(shorter, s.low + least * gap), s.low + most * gap)
        shorter = xp.where(finite, shorter, s.low + 0.1 * gap)
        low, high = xp.where(good, t, s.low), xp.where(good, s.high, t)
        t = xp.where(good, longer, shorter)
        trials = s.trials + 1
        room = (low < t) & (t < high) | ~finite
        kept = xp.where(good, low, s.kept)
        known = xp.where(good, rise, s.rise), xp.where(good, end, s.slope)
        s = s._replace(t=t, low=low, high=high, kept=kept, rise=known[0], slope=known[1])
        return s._replace(trials=trials), ~room | (trials >= MAX_TRIALS)

    def _back(self, s: Search, width: Array, slope: Array, rise: Array, end: Array) -> Array:
        """`wolfe.back_to_cubic` from the longest step that fell enough, or from the start."""
        xp, fell = self.k.xp, s.kept > 0
        start, rise = xp.where(fell, s.slope, slope), rise - xp.where(fell, s.rise, 0.0 * rise)
        theta = start + end - 3.0 * rise / width
        scale = xp.maximum(xp.maximum(xp.abs(theta), xp.abs(start)), xp.abs(end))
        radicand = (theta / scale) ** 2 - (start / scale) * (end / scale)
        real = radicand >= 0
        gamma = scale * xp.sqrt(xp.where(real, radicand, 0.0 * radicand))
        below = end - start + 2.0 * gamma
        real = real & (below != 0)
        back = width * (end + gamma - theta) / xp.where(real, below, 1.0 + 0.0 * below)
        return xp.where(real, back, math.nan + 0.0 * back)

    def _doubted(self, s: Search, doubt: Array, gap: Array, area: Array) -> tuple[Search, Array]:
        """One more doubt where there is one, and whether doubts are seen to be noise of f.

        The disagreement of a wrong gradient is proportional to the step, that of a smooth
        function falls with its cube: only noise stays.  Noise that varies on the scale of the
        step is known by its size: it dwarfs all that the slopes predict.
        """
        k, xp = self.k, self.k.xp
        if not k.some(doubt):
            return s, doubt
        rows = xp.arange(DOUBTS, device=k.device(s.doubts))
        known = rows < s.doubts[:, None]
        longer = known & (s.doubt_t >= SHORTER * s.t[:, None])
        same = xp.any(longer & (2.0 * gap[:, None] >= s.doubt_gap), axis=1)
        dwarfed = s.dwarfed & (gap > DWARFING_GAPS * xp.abs(area))
        count = s.doubts + 1
        is_noise = doubt & (same | ((count >= 3) & dwarfed))
        here = doubt[:, None] & (s.doubts[:, None] % DOUBTS == rows)
        return s._replace(
            doubts=xp.where(doubt, count, s.doubts),
            dwarfed=xp.where(doubt, dwarfed, s.dwarfed),
            gap=xp.where(doubt, xp.maximum(s.gap, gap), s.gap),
            doubt_t=xp.where(here, s.t[:, None], s.doubt_t),
            doubt_gap=xp.where(here, gap[:, None], s.doubt_gap),
        ), is_noise
