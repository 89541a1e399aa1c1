"""What `minimize_many` returns: arrays of one entry a problem, and a summary that prints well."""

from __future__ import annotations

import sys
import time
from typing import Any, TextIO

import numpy as np

from stiefel.runs.result import Result
from stiefel.types import Array, Leaves

from .border import Border
from .shared import Status
from .state import CODES, State


class ManyResult(Result):
    """The outcome of many problems; fields are attributes and keys, arrays have shape (B,).

    Attributes
    ----------
    x : array or structure of arrays
        The returned points, in the structure, library, dtype and device of x0.
    fun, gradient_norm : array
        Value and ‖∇f‖_g* at ``x``.
    success : array
        Whether the tolerance is met at ``x``.
    status : array
        Why each problem ended, as integers; ``stiefel.Status(code)`` names them.
    expected_decrease : array
        By how much the model of f expects it to fall yet, ½⟨∇f, H∇f⟩ at ``x``.
    feasibility : array
        The defect ‖XᴴX − I‖_F at ``x``.
    nit, nfev, restarts : array
        Iterations, evaluations and restarts of each problem.
    calls : int
        How often ``fun`` was called.
    seconds : float
        Wall-clock time of the call.
    message : str
        One sentence about all problems.

    Examples
    --------
    >>> import numpy as np, stiefel
    >>> fun = lambda X: (X[:, 0, 0], np.broadcast_to(np.eye(3, 1), X.shape).copy())
    >>> result = stiefel.minimize_many(fun, stiefel.random_point(4, 3, 1, seed=0))
    >>> bool(result.success.all()), result["fun"].shape
    (True, (4,))
    """

    def __repr__(self) -> str:
        lines = [f"{'message':>17}: {self.message}"]
        for name in ("nit", "nfev", "gradient_norm", "expected_decrease"):
            lines.append(f"{name:>17}: {_range(np.asarray(self[name]))}")
        lines += [f"{name:>17}: {self[name]:.6g}" for name in ("calls", "seconds")]
        return "\n".join(lines)


def _range(a: np.ndarray[Any, Any]) -> str:
    low, middle, high = np.min(a), np.median(a), np.max(a)
    return f"{low:.3g} to {high:.3g}, median {middle:.3g}"


def collect(
    border: Border, ended: list[tuple[Array, State]], x: Leaves, calls: int, seconds: float
) -> ManyResult:
    """One result from the parts of a batch that ended together."""
    k, xp = border.k, border.k.xp
    size = x[0].shape[0]
    order = xp.argsort(xp.concat([index for index, _ in ended]))

    def joined(part: Any) -> Array:
        return xp.concat([xp.asarray(part(state)) for _, state in ended])[order]

    points = tuple(
        xp.concat([k.shown(state.best.x[i]) for _, state in ended])[order] for i in range(len(x))
    )
    defects = [leaf.feasibility(k.own(p)) for leaf, p in zip(border.leaves, points, strict=True)]
    feasibility = xp.zeros((size,), dtype=k.number, device=k.device(x[0]))
    for defect in defects:
        feasibility = feasibility if defect is None else xp.maximum(feasibility, defect)
    status = joined(lambda s: s.status)
    return ManyResult(
        x=border.leave(points),
        fun=joined(lambda s: s.best.f / s.scale),
        success=status == CODES[Status.CONVERGED],
        status=status,
        gradient_norm=joined(lambda s: s.best.norm / s.scale),
        expected_decrease=joined(lambda s: s.best.decrease / s.scale),
        feasibility=feasibility,
        nit=joined(lambda s: s.books.nit),
        nfev=joined(lambda s: s.books.nfev),
        restarts=joined(lambda s: s.books.restarts),
        calls=calls,
        seconds=seconds,
        message=summary(np.asarray(status)),
    )


def summary(status: np.ndarray[Any, Any]) -> str:
    """How many problems were solved, and which were not."""
    size, parts = len(status), []
    for code in sorted(set(status.tolist()) - {CODES[Status.CONVERGED]}):
        which = np.flatnonzero(status == code)
        shown = ", ".join(map(str, which[:5])) + (", …" if len(which) > 5 else "")
        parts.append(f"{len(which):,} {list(Status)[code].name} ({shown})")
    solved = int(np.sum(status == CODES[Status.CONVERGED]))
    return "; ".join([f"{solved:,} of {size:,} problems solved", *parts])


class ManyProgress:
    """A line on standard error: how many problems have ended."""

    def __init__(self, size: int, stream: TextIO | None = None) -> None:
        self._size, self._stream = size, stream or sys.stderr
        self._redraws = self._stream.isatty()
        self._interval = 0.1 if self._redraws else 10.0
        self._last, self._width = float("-inf"), 0

    def show(self, ended: int, calls: int) -> None:
        now = time.monotonic()
        if now - self._last >= self._interval:
            self._last = now
            share = 100 * ended // self._size
            count = f"{calls} call{'' if calls == 1 else 's'} of fun"
            self._write(f"[{share:3d} %] {ended:,} of {self._size:,} problems have ended, {count}")

    def close(self, message: str) -> None:
        """The last line says how the problems ended."""
        self._write(message)
        if self._redraws:
            self._stream.write("\n")
        self._stream.flush()

    def _write(self, text: str) -> None:
        if self._redraws:
            self._stream.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            self._stream.write(text + "\n")
        self._stream.flush()
