"""L-BFGS with a learned metric for many problems at once, without a branch on data.

The method is that of `stiefel.solvers.lbfgs`.  `step` evaluates every problem once, at the next
trial of its own line search, and then judges, learns and aims where a trial was taken:

    X_t = ray(t),   (f, E) = fun(X_t),   verdict = judge(f, slopes)
    taken:   x ← X_t; remember (s, y); learn the metric; aim along −H∇f; a new search
    else:    the next trial of the same search
    failed:  forget the pairs and look at x again, or end

Rare events (the start, a restoration, a forgotten memory) share one path: the problem is *fresh*,
and its next evaluation is at x itself.  A problem that has ended is in no mask any more: nothing
of it changes.  f and its gradient are scaled by a power of two for each problem.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stiefel.types import Array, Leaves

from .kernels import PerProblem
from .learned import Learned, Observer, invariant, nothing_learned
from .leaves import Leaf
from .memory import Memory, apply_inverse, forget, no_pairs, remember
from .quadratic import Recogniser
from .search import MaskedSearch, Noise
from .shared import LEAST_COSINE, WINDOW, LearnedMetric, Secant
from .state import RUNNING, Asked, At, Best, Books, Evaluate, Limits, State
from .stopping import Judge


@dataclass(frozen=True)
class ManyLBFGS:
    """The branch-free solver; ``leaves`` say on which manifolds, ``limits`` when to end."""

    leaves: tuple[Leaf, ...]
    limits: Limits
    fnoise: Array | None = None  # (B,)
    size: int = 5  # pairs in memory
    rules: LearnedMetric = field(default_factory=LearnedMetric)
    initial_length: float = 0.1
    caution: float = 1e-10
    recogniser: Recogniser | None = None  # where functions tr(XᵀAXM) are looked for

    @property
    def k(self) -> PerProblem:
        return self.leaves[0].k

    @property
    def search(self) -> MaskedSearch:
        return MaskedSearch(self.k)

    @property
    def observer(self) -> Observer:
        return Observer(self.k, self.rules)

    # -- the start --------------------------------------------------------------------------

    def init(self, x: Leaves) -> State:
        """Nothing is evaluated yet: every problem is fresh."""
        k = self.k
        zero = k.numbers(k.real(k.xp.reshape(0.0 * x[0], (x[0].shape[0], -1))[:, 0]))
        count, none = k.integers(zero), zero > 0
        rotations = self._map(lambda leaf, v: leaf.lower(v, 0.0 * v, zero)[2], x)
        nothing = tuple(0.0 * v for v in x)
        window = k.xp.zeros((1, WINDOW + 1), dtype=zero.dtype, device=k.device(zero))
        infinite = zero + math.inf
        return State(
            x=x,
            f=zero,
            G=nothing,
            rotations=rotations,
            norm=zero,
            W=nothing,
            slope=zero,
            size=zero,
            search=self.search.start(zero, zero),
            memory=no_pairs(k, x, self.size, zero),
            learned=self._map(lambda leaf, v: nothing_learned(leaf, v, zero), x),
            steps=count,
            gamma=zero,
            noise=zero,
            blind=none,
            fresh=~none,
            scale=zero + 1.0,
            magnitude=zero,
            status=count + RUNNING,
            best=Best(x, infinite, infinite, infinite),
            books=Books(*(count,) * 5, *(infinite,) * 3, values=infinite[:, None] + window),
            model=None if self.recogniser is None else self.recogniser.start(x[0], none),
        )

    # -- one evaluation of every problem ----------------------------------------------------

    def step(self, evaluate: Evaluate, s: State) -> State:
        asked = self.ask(s)
        return self.tell(s, asked, *evaluate(asked.shown))

    def ask(self, s: State) -> Asked:
        """Where every problem is to be evaluated next: on its ray, at x or at its target."""
        k, leaps = self.k, self._leaps(s)
        moving = k.some(~(s.fresh | leaps))
        asked = self._trials(s) if moving else Asked(s.x, (), s.x)
        if s.model is None or not k.some(leaps):
            return asked
        X = k.choose(leaps, (s.model.target,), asked.X)
        return Asked(X, asked.trials, X)

    def _trials(self, s: State) -> Asked:
        trials = self._map(lambda leaf, x, W: leaf.trial(x, W, s.search.t), s.x, s.W)
        X = self.k.choose(s.fresh, s.x, tuple(trial.X for trial in trials))
        return Asked(X, trials, X)

    def _leaps(self, s: State) -> Array:
        """Which problems are next evaluated at their targets; their searches wait."""
        return s.fresh & ~s.fresh if s.model is None else s.model.leaps

    def tell(self, s: State, asked: Asked, f: Array, E: Leaves) -> State:
        """The state after values f and Euclidean gradients E at the points asked for."""
        running, X = s.status < 0, asked.X
        s, at = self._look(s, X, f, E, running)
        leaping, noise = running & self._leaps(s), self.noise(s.x)
        s, leapt = self._leapt(s, at, noise, leaping)
        if self.recogniser is not None:
            s = s._replace(model=self.recogniser.after(s.model, X[0], E[0], s.scale, running))
        waiting = (leaping | self._leaps(s)) & ~leapt
        s, taken, failed = self._searched(
            s, asked, at, noise, running & ~s.fresh & ~waiting & ~leapt
        )
        arrived = taken | leapt | (running & s.fresh & ~waiting)
        s = self._arrive(s, X, at, arrived)
        judge = Judge(self.leaves, self.limits, noise)
        return judge.conclude(s, arrived, at.finite, taken, failed)

    def _leapt(self, s: State, at: At, noise: Noise, leaping: Array) -> tuple[State, Array]:
        """Which problems stay at their targets: where f is lower.

        Where f is the same to rounding, its gradient must be smaller.
        """
        k, xp, model, none = self.k, self.k.xp, s.model, leaping & ~leaping
        if model is None or not k.some(there := leaping & model.complete):
            return s, none
        level = xp.maximum(noise.level(s.f, s.magnitude), s.noise)
        rise = at.f - s.f
        lower = (rise < -level) | ((rise <= level) & (at.norm < s.norm))
        leapt = there & at.finite & lower
        model = model._replace(leaps=model.leaps & ~there, open=model.open & ~there)
        gamma = xp.where(leapt & (s.gamma == 0), model.gamma, s.gamma)
        return s._replace(model=model, gamma=gamma), leapt

    def _searched(
        self, s: State, asked: Asked, at: At, noise: Noise, searching: Array
    ) -> tuple[State, Array, Array]:
        """What became of the trials of searches, and what is learned where they were taken."""
        k, xp, t = self.k, self.k.xp, s.search.t
        if not k.some(searching):
            return s, searching, searching
        pairs = self._map(
            lambda leaf, x, W, trial, *ends: leaf.pair(x, W, trial, ends[:2], ends[2:]),
            s.x, s.W, asked.trials, s.G, s.rotations, at.G, at.rotations,
        )  # fmt: skip
        end = self._sum(lambda leaf, G, pair: leaf.slope(G, pair), at.G, pairs) / t
        verdict, search = self.search.judge(
            s.search, at.f - s.f, s.slope, end, at.finite, s.noise,
            noise.level(s.f, s.magnitude), noise.plausible(s.f, s.magnitude),
        )  # fmt: skip
        verdict, search = k.once((verdict, search))
        taken = searching & verdict.taken
        s = s._replace(
            search=k.choose(searching & ~taken, search, s.search),
            noise=xp.where(taken, verdict.noise, s.noise),
            blind=xp.where(taken, ~verdict.readable, s.blind),
        )
        return self._learn(s, at, pairs, t, end, taken), taken, searching & verdict.failed

    def noise(self, x: Leaves) -> Noise:
        return Noise(self.k, max(self._eps(x)), self.fnoise)

    def _eps(self, x: Leaves) -> tuple[float, ...]:
        return tuple(float(self.k.xp.finfo(leaf.dtype).eps) for leaf in x)

    def _map(self, function: Callable[..., Any], *leaves: Any) -> tuple[Any, ...]:
        return tuple(function(*parts) for parts in zip(self.leaves, *leaves, strict=True))

    def _dot(self, V: Leaves, W: Leaves) -> Array:
        return self._sum(lambda leaf, v, w: leaf.dot(v, w), V, W)

    def _sum(self, function: Callable[..., Any], *leaves: Any) -> Array:
        parts = self._map(function, *leaves)
        return sum(parts[1:], parts[0])

    def _look(self, s: State, X: Leaves, f: Array, E: Leaves, running: Array) -> tuple[State, At]:
        """f and gradients at X, scaled; the scale is found at the first evaluation."""
        k, xp = self.k, self.k.xp
        f, first = k.numbers(f), running & (s.books.nfev == 0)
        if k.some(first):
            (scale,) = k.on_some(first, self._unit, E, (s.scale,))
            start = xp.where(first, xp.abs(f * scale), s.magnitude)
            s = s._replace(scale=scale, magnitude=start)
        lowered = self._map(lambda leaf, x, e: leaf.lower(x, e, s.scale), X, E)
        G, squares, rotations = zip(*lowered, strict=True)
        f, norm = f * s.scale, xp.sqrt(sum(squares[1:], squares[0]))
        books = s.books._replace(nfev=s.books.nfev + k.integers(running))
        return s._replace(books=books), At(
            f, G, norm, rotations, xp.isfinite(f) & xp.isfinite(norm)
        )

    def _unit(self, *E: Array) -> tuple[Array]:
        """The power of two next to 1/max|E|."""
        xp = self.k.xp
        found = [xp.max(xp.abs(xp.reshape(e, (e.shape[0], -1))), axis=1) for e in E]
        largest = self.k.numbers(found[0])
        for most in found[1:]:
            largest = xp.maximum(largest, self.k.numbers(most))
        return (self.k.power_of_two(largest),)

    # -- what a step teaches ----------------------------------------------------------------

    def _learn(
        self, s: State, at: At, pairs: tuple[Secant, ...], t: Array, end: Array, taken: Array
    ) -> State:
        """Keep the pairs of the steps taken, and learn the metric from them."""
        k, xp = self.k, self.k.xp
        learned, changed = self._still_invariant(s, at, taken)
        eps = self._eps(s.x)
        learned = self.observer.observe(self.leaves, pairs, learned, s.steps, taken, eps)
        sy = t * (end - s.slope)
        length = xp.sqrt(self._sum(lambda leaf, pair: leaf.squared_length(pair), pairs))
        keep = taken & (sy > self.caution * t * s.size * length)
        memory = self._remember(forget(k, s.memory, changed), pairs, sy, keep)
        square = self._sum(
            lambda leaf, x, pair, known: leaf.squared_change(x, pair, known.metric),
            s.x, pairs, learned,
        )  # fmt: skip
        usable = keep & (square > 0)
        gamma = sy / xp.where(usable, square, 1.0 + 0.0 * square)
        gamma = xp.where(s.gamma > 0, xp.sqrt(xp.abs(s.gamma * gamma)), gamma)
        gamma = xp.where(usable, gamma, s.gamma)
        steps = s.steps + k.integers(taken)
        return s._replace(learned=learned, memory=memory, gamma=gamma, steps=steps)

    def _remember(
        self, memory: Memory, pairs: tuple[Secant, ...], sy: Array, keep: Array
    ) -> Memory:
        return remember(self.leaves, memory, pairs, sy, keep)

    def _still_invariant(self, s: State, at: At, mask: Array) -> tuple[tuple[Learned, ...], Array]:
        """A start may be special: rotation parts are looked at until one shows."""
        learned, changed = [], mask & ~mask
        for leaf, rotation, known in zip(self.leaves, at.rotations, s.learned, strict=True):
            if leaf.learns and not leaf.spans_only:
                shows = mask & known.horizontal & ~invariant(leaf, rotation, s.books.initial_norm)
                known = known._replace(horizontal=known.horizontal & ~shows)
                changed = changed | shows
            learned.append(known)
        return tuple(learned), changed

    # -- the next direction -----------------------------------------------------------------

    def _arrive(self, s: State, X: Leaves, at: At, arrived: Array) -> State:
        """x is the trial now; a new direction, and a new search along it."""
        k, xp = self.k, self.k.xp
        if not k.some(arrived):
            return s
        first = arrived & (s.books.initial_norm == math.inf)
        if k.some(first):
            norm = xp.where(first, at.norm, s.books.initial_norm)
            s = s._replace(books=s.books._replace(initial_norm=norm))
            s = s._replace(learned=self._first_flags(s, at, first))
        f, norm = xp.where(arrived, at.f, s.f), xp.where(arrived, at.norm, s.norm)
        x, G, rotations, W, slope, squares = self._aimed(s, X, at, norm, arrived)
        size, longest = self._lengths(squares)
        descends = slope < -LEAST_COSINE * norm * size
        dull = arrived & at.finite & (norm > 0) & ~descends
        return s._replace(
            x=x,
            f=f,
            G=G,
            rotations=rotations,
            norm=norm,
            W=W,
            slope=xp.where(arrived, slope, s.slope),
            size=xp.where(arrived, size, s.size),
            search=k.choose(arrived, self.search.start(longest, s.gamma, s.search), s.search),
            # Memory that does not descend is forgotten; without memory there is no way on.
            fresh=dull & s.memory.in_use(k) | (s.fresh & ~arrived),
            memory=forget(k, s.memory, dull),
        )

    def _aimed(self, s: State, X: Leaves, at: At, norm: Array, arrived: Array) -> tuple[Any, ...]:
        """x, G and rotations, new where problems arrived; W along −H∇f, its slope, ‖φ(W)‖²."""
        k = self.k
        x, G, rotations = k.choose(arrived, (X, at.G, at.rotations), (s.x, s.G, s.rotations))
        T = self._direction(s, x, G, norm)
        aims = self._map(
            lambda leaf, v, d, known: leaf.aim(v, d, known.horizontal), x, T, s.learned
        )
        W = k.choose(arrived, tuple(W for W, _ in aims), s.W)
        return x, G, rotations, W, self._dot(G, T), tuple(square for _, square in aims)

    def _lengths(self, squares: tuple[Array, ...]) -> tuple[Array, Array]:
        """The largest ‖φ(W)‖ of all leaves, and of those whose steps are limited."""
        xp, size = self.k.xp, 0.0 * squares[0]
        longest = size
        for leaf, square in zip(self.leaves, squares, strict=True):
            size = xp.maximum(size, square)
            longest = xp.maximum(longest, square) if leaf.size_limited else longest
        return xp.sqrt(size), xp.sqrt(longest)

    def _first_flags(self, s: State, at: At, first: Array) -> tuple[Learned, ...]:
        """f may be seen to depend on spans only."""
        scale = s.books.initial_norm
        return self._map(
            lambda leaf, rotation, known: known._replace(
                horizontal=self.k.xp.where(
                    first, invariant(leaf, rotation, scale), known.horizontal
                )
            ),
            at.rotations,
            s.learned,
        )

    def _direction(self, s: State, x: Leaves, G: Leaves, norm: Array) -> Leaves:
        """−H∇f; the first one has a given length for a column, whatever the scale of f.

        ∇f is made about as long as one on the way: pairs may be in single precision.
        """
        k, xp = self.k, self.k.xp
        columns, unit = sum(map(_columns, x)), k.power_of_two(norm)

        def times(a: Array, V: Leaves) -> Leaves:
            return tuple(k.spread_out(a, v) * v for v in V)

        def phi(q: Leaves) -> Leaves:
            return self._map(self._raised, x, q, s.learned)

        def gamma(r: Leaves) -> Array:
            if not k.some(s.gamma == 0):
                return s.gamma
            square = self._dot(r, r)
            square = xp.where(square > 0, square, 1.0 + 0.0 * square)
            first = unit * self.initial_length * xp.sqrt(columns / square)
            return xp.where(s.gamma > 0, s.gamma, first)

        T = apply_inverse(self.leaves, s.memory, times(unit, G), gamma, phi)
        return times(1.0 / unit, T)

    def _raised(self, leaf: Leaf, x: Array, q: Array, known: Learned) -> Array:
        r = leaf.raise_index(x, q, known.metric)
        return r if len(self.leaves) == 1 else self.k.spread_out(known.scale, r) * r


def _columns(x: Array) -> int:
    shape = tuple(x.shape)[1:]
    return math.prod(shape[:-2]) * shape[-1] if len(shape) >= 2 else 1
