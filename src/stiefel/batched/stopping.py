"""When a problem ends, and what is kept of it: the rules of the scalar driver, as masks.

The order is the driver's: not finite, converged, a limit, a failure, no progress.  A converged
point that is not feasible to rounding is restored and looked at again.
"""

from __future__ import annotations

from dataclasses import dataclass

from stiefel.types import Array, Leaves

from .leaves import Leaf
from .memory import forget
from .search import Noise
from .shared import IMPROVEMENT, MAX_RESTORATIONS, PATIENCE, Status
from .state import CODES, RUNNING, Best, Limits, State


@dataclass(frozen=True)
class Judge:
    leaves: tuple[Leaf, ...]
    limits: Limits
    noise: Noise

    def conclude(
        self, s: State, arrived: Array, finite: Array, taken: Array, failed: Array
    ) -> State:
        """The state after a trial, with its books kept and its status set."""
        k, running = self.leaves[0].k, s.status < 0
        again = arrived & ~taken & (s.books.nfev > 1)  # an iteration that ended in a fresh look
        books = s.books._replace(nit=s.books.nit + k.integers(taken | again))
        s = self._progress(s._replace(books=books), arrived & finite)
        s = self._finished(s, running, arrived, finite)
        return self._failed(s, failed & (s.status < 0), arrived & ~s.fresh & ~(s.slope < 0))

    def _progress(self, s: State, arrived: Array) -> State:
        k, xp, books, best = self.leaves[0].k, self.leaves[0].k.xp, s.books, s.best
        noise = xp.maximum(self.noise.level(s.f, s.magnitude), s.noise)
        fell = ~s.blind & (s.f < books.reference_f - noise)
        progress = arrived & (fell | (s.norm < IMPROVEMENT * books.reference_norm))
        lower = (s.f < best.f - noise) | ((s.f <= best.f + noise) & (s.norm < best.norm))
        better = arrived & (lower | (best.norm == float("inf")))
        new = Best(s.x, s.f, s.norm, 0.5 * xp.abs(s.slope))
        return s._replace(
            best=k.choose(better, new, best),
            books=books._replace(
                last_progress=xp.where(progress, books.nit, books.last_progress),
                reference_f=xp.where(
                    progress, xp.minimum(s.f, books.reference_f), books.reference_f
                ),
                reference_norm=xp.where(
                    progress, xp.minimum(s.norm, books.reference_norm), books.reference_norm
                ),
                values=self._window(s, arrived),
            ),
        )

    def _window(self, s: State, arrived: Array) -> Array:
        """The last values of f, for the rule on its decrease."""
        k = self.leaves[0].k
        if self.limits.ftol is None:
            return s.books.values
        shifted = k.xp.concat([s.books.values[:, 1:], s.f[:, None]], axis=1)
        return k.choose(arrived, shifted, s.books.values)

    def _finished(self, s: State, running: Array, arrived: Array, finite: Array) -> State:
        k, xp, limits, books = self.leaves[0].k, self.leaves[0].k.xp, self.limits, s.books
        target = xp.maximum(limits.gtol * s.scale, limits.rtol * books.initial_norm)
        converged = arrived & finite & (s.norm <= target)
        if limits.ftol is not None:
            converged = converged | (arrived & finite & self._flat(s))
        s, converged, lost = self._confirmed(s, converged)
        idle = books.nit - books.last_progress > PATIENCE + books.nit // 2
        rounding = xp.where(s.blind, CODES[Status.ROUNDING_LIMIT], CODES[Status.STEP_NOT_FOUND])
        status = xp.where(arrived & idle & ~s.fresh, rounding, s.status)
        for mask, reason in (
            (running & (books.nfev >= limits.maxfun), Status.MAX_EVALUATIONS),
            (arrived & (books.nit >= limits.maxiter), Status.MAX_ITERATIONS),
            (lost, Status.ROUNDING_LIMIT),
            (converged, Status.CONVERGED),
            (arrived & ~finite, Status.NOT_FINITE),
        ):
            status = xp.where(mask, CODES[reason], status)
        now = Best(s.x, s.f, s.norm, 0.5 * xp.abs(s.slope))
        best = k.choose(converged, now, s.best)
        return s._replace(status=k.integers(xp.where(running, status, s.status)), best=best)

    def _flat(self, s: State) -> Array:
        """Whether f fell by less than ftol·max(|f|, 1) over the window."""
        xp, values = self.leaves[0].k.xp, s.books.values
        fell = xp.max(values, axis=1) - values[:, -1]
        return fell <= self.limits.ftol * xp.maximum(xp.abs(values[:, -1]), s.scale)

    def _confirmed(self, s: State, converged: Array) -> tuple[State, Array, Array]:
        """Converged points that are feasible; the others are restored, and looked at again."""
        k = self.leaves[0].k
        lost = converged & ~converged
        if not k.some(converged):
            return s, converged, lost
        (defect,) = k.on_some(converged, self._defect, (s.f, *s.x), (0.0 * s.f,))
        off = converged & ~(defect <= 1.0)
        if not k.some(off):
            return s, converged, lost
        again = off & (s.books.restorations < MAX_RESTORATIONS)
        restored = k.on_some(again, self._restored, s.x, s.x)
        books = s.books._replace(restorations=s.books.restorations + k.integers(again))
        s = s._replace(
            x=k.choose(again, restored, s.x),
            fresh=s.fresh | again,
            memory=forget(k, s.memory, again),
            books=books,
        )
        return s, converged & ~off, off & ~again

    def _defect(self, like: Array, *x: Array) -> tuple[Array]:
        """How far points are from the promise: the worst leaf of each problem."""
        defect = 0.0 * like
        for leaf, v in zip(self.leaves, x, strict=True):
            defect = self.leaves[0].k.xp.maximum(defect, leaf.defect(v, like))
        return (defect,)

    def _restored(self, *x: Array) -> Leaves:
        return tuple(leaf.restore(v) for leaf, v in zip(self.leaves, x, strict=True))

    def _failed(self, s: State, failed: Array, stranded: Array) -> State:
        """No step was found: forget the pairs and look at x again, or give up."""
        k, xp = self.leaves[0].k, self.leaves[0].k.xp
        failed = (failed | stranded) & (s.status == RUNNING)
        if not k.some(failed):
            return s
        again = failed & s.memory.in_use(k)
        limit = s.blind | (xp.abs(s.slope) <= self.noise.worst(s.f, s.magnitude))
        code = xp.where(limit, CODES[Status.ROUNDING_LIMIT], CODES[Status.STEP_NOT_FOUND])
        books = s.books._replace(restarts=s.books.restarts + k.integers(again))
        return s._replace(
            status=k.integers(xp.where(failed & ~again, code, s.status)),
            fresh=s.fresh | again,
            memory=forget(k, s.memory, again),
            books=books,
        )
