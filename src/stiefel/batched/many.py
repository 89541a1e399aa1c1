"""`minimize_many`: the driver of the branch-free solver for NumPy and PyTorch; JAX compiles it.

Problems that have ended are dropped from the batch when a quarter of it has: their points were
written down when they ended, and are not touched again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from stiefel.types import Array, Leaves, Manifolds

from .border import Border, border_of, limits_of, tolerance
from .function import BatchFunction
from .result import ManyProgress, ManyResult, collect
from .shared import (
    METHODS,
    Status,
    check_place,
    feasible,
    library,
    own_copy,
)
from .solver import ManyLBFGS
from .state import CODES, Limits, State

KEEP = 0.75  # a batch is packed when no more than this part of it is running
LEAST_PROBLEMS = 256  # problems of a part


def minimize_many(
    fun: Callable[..., Any],
    x0: Any,
    *,
    jac: Any = None,
    manifold: Manifolds | None = None,
    rtol: Any = None,
    gtol: Any = 0.0,
    ftol: Any = 0.0,
    maxiter: int = 100_000,
    maxfun: int | None = None,
    maxtime: float | None = None,
    fnoise: Any = None,
    progress: bool = False,
) -> ManyResult:
    """Minimise many independent functions of orthonormal matrices at once.

    Parameters
    ----------
    fun : callable
        ``fun(X) -> (values, gradients)`` for X of shape (B, n, k): values of shape (B,), and
        Euclidean gradients of the shape of X, where row b depends on X[b] only.  With PyTorch
        and JAX ``fun`` returns the values, and gradients come from autodiff.
        A function of two arguments is called as ``fun(X, index)`` with the numbers of the
        problems that X holds: then problems that have ended are left out.
    x0 : array or structure of arrays
        The starts: an array (B, n, k), or a nested dict, list or tuple of arrays with that
        leading axis.
    jac : callable, bool or None, optional
        None as above; a function ``jac(X) -> G``; or True if ``fun`` returns the pair.
    manifold : manifold or structure of manifolds, optional
        `Stiefel()` by default; an instance, or a structure of instances like x0.
    rtol, gtol, ftol : float or array, optional
        As for `stiefel.minimize`, for every problem by itself; numbers, or arrays of shape (B,).
    maxiter, maxfun, maxtime : int or float, optional
        Limits on iterations and evaluations of each problem, and on seconds of the call.
    fnoise : float or array, optional
        The absolute error of the values, where it is more than rounding; a number or (B,).
    progress : bool, optional
        Show on standard error how many problems have ended.

    Returns
    -------
    ManyResult
        Arrays of one entry a problem; ``success[b]`` is True only if ``x[b]`` itself meets its
        tolerance.

    Raises
    ------
    TypeError, ValueError
        Where an argument is not what is described here; the message says what to do.

    Examples
    --------
    The largest eigenvalues of a hundred matrices:

    >>> import numpy as np, stiefel
    >>> A = np.random.default_rng(0).standard_normal((100, 6, 6))
    >>> A = A + A.mT
    >>> def fun(X):
    ...     AX = A @ X
    ...     return -np.sum(X * AX, axis=(1, 2)), -2 * AX
    >>> x0 = stiefel.Stiefel().random(100, 6, 2, seed=0)
    >>> result = stiefel.minimize_many(fun, x0, rtol=1e-8)
    >>> bool(result.success.all())
    True
    >>> np.allclose(-result.fun, np.linalg.eigvalsh(A)[:, -2:].sum(axis=1))
    True
    """
    border = border_of(x0, manifold)
    if library(border.tree.flatten(x0)[0]) == "jax":
        from .jax_batch import minimize_batch

        if maxtime is not None or fnoise is not None or progress:
            raise TypeError("maxtime, fnoise and progress are not offered for JAX arrays")
        names = {"rtol": rtol, "gtol": gtol, "ftol": ftol, "maxiter": maxiter, "maxfun": maxfun}
        return minimize_batch(fun, x0, border, manifold, jac, names)
    geometry, start = check_place(border.tree, x0, manifold)
    start = tuple(map(own_copy, start)) if isinstance(start, tuple) else own_copy(start)
    start = feasible(geometry, start)
    x = border.enter(start if border.tree.is_leaf else border.tree.unflatten(start))
    solver = _solver(border, x, rtol, gtol, ftol, maxiter, maxfun, fnoise)
    function = BatchFunction(fun, jac, border, x)
    line = ManyProgress(x[0].shape[0]) if progress else None
    limit = math.inf if maxtime is None else float(maxtime)
    with np.errstate(all="ignore"):
        return RunningBatch(border, function, line, limit).run(solver, x)


def _solver(
    border: Border,
    x: Leaves,
    rtol: Any,
    gtol: Any,
    ftol: Any,
    maxiter: Any,
    maxfun: Any,
    fnoise: Any,
) -> ManyLBFGS:
    k, auto = border.k, METHODS["auto"]
    eps = max(float(k.xp.finfo(leaf.dtype).eps) for leaf in x)
    size, like = x[0].shape[0], k.numbers(k.real(0.0 * x[0]))
    limits = limits_of(border, eps, size, rtol, gtol, ftol, maxiter, maxfun, like)
    noise = None
    if fnoise is not None:
        noise = tolerance(fnoise, "fnoise", size, k, like) + k.xp.zeros(
            (size,), dtype=like.dtype, device=k.device(like)
        )
    return ManyLBFGS(
        border.leaves, limits, noise, auto.memory, auto.metric, auto.initial_length, auto.caution
    )


class Part(NamedTuple):
    """Some problems of a batch: few enough for the fast memory of a processor."""

    solver: ManyLBFGS
    state: State
    index: Array


class RunningBatch:
    """A batch at work."""

    def __init__(
        self, border: Border, function: BatchFunction, line: ManyProgress | None, maxtime: float
    ) -> None:
        self._border, self._function, self._line, self._maxtime = border, function, line, maxtime
        self._ended: list[tuple[Array, State]] = []

    def run(self, solver: ManyLBFGS, x: Leaves) -> ManyResult:
        started, size = time.perf_counter(), x[0].shape[0]
        parts = self._divided(solver, x)
        while parts:
            parts = self._step(parts)
            if time.perf_counter() - started >= self._maxtime:
                parts = [part._replace(state=self._late(part.state)) for part in parts]
            left = [self._running(part) for part in parts]
            if self._line is not None:
                self._line.show(size - sum(left), self._function.calls)
            if sum(left) <= KEEP * sum(part.index.shape[0] for part in parts):
                parts = self._packed(parts)
        seconds = time.perf_counter() - started
        result = collect(self._border, self._ended, x, self._function.calls, seconds)
        if self._line is not None:
            self._line.close(result.message)
        return result

    def _divided(self, solver: ManyLBFGS, x: Leaves) -> list[Part]:
        k, size = self._border.k, x[0].shape[0]
        entries = sum(math.prod(leaf.shape[1:]) for leaf in x)
        self._whole, self._size = solver, size
        self._rows = max(LEAST_PROBLEMS, k.fast_memory // entries)
        index = k.xp.arange(size, device=k.device(x[0]))
        own = tuple(map(k.own, x))
        return self._parts(solver.init(own), index)

    def _parts(self, state: State, index: Array) -> list[Part]:
        """Problems in parts of at most so many rows, as equal as possible."""
        k, size = self._border.k, index.shape[0]
        count = -(-size // self._rows)
        parts, ends = [], [size * i // count for i in range(count + 1)]
        for start, end in pairwise(ends):
            here = k.xp.arange(start, end, device=k.device(index))
            own = state if count == 1 else k.take(state, here)
            some = _solver_of_some(self._whole, index[start:end], self._size)
            parts.append(Part(some, own, index[start:end]))
        return parts

    def _step(self, parts: list[Part]) -> list[Part]:
        """One evaluation of every problem, in one call of the function."""
        k, xp = self._border.k, self._border.k.xp
        asked = [part.solver.ask(part.state) for part in parts]
        X = tuple(k.joined(leaves) for leaves in zip(*(a.X for a in asked), strict=True))
        f, E = self._function(X, xp.concat([part.index for part in parts]))
        result, start = [], 0
        for part, question in zip(parts, asked, strict=True):
            here = slice(start, start + part.index.shape[0])
            answer = f[here], tuple(k.own(e[here]) for e in E)
            result.append(part._replace(state=part.solver.tell(part.state, question, *answer)))
            start = here.stop
        return result

    def _late(self, state: State) -> State:
        code = CODES[Status.MAX_TIME] + 0 * state.status
        return state._replace(status=self._border.k.xp.where(state.status < 0, code, state.status))

    def _running(self, part: Part) -> int:
        return int(self._border.k.xp.sum(part.state.status < 0))

    def _packed(self, parts: list[Part]) -> list[Part]:
        """The problems that are running; the others are written down."""
        k, xp, left = self._border.k, self._border.k.xp, []
        for part in parts:
            running = part.state.status < 0
            (here,), (gone,) = xp.nonzero(running), xp.nonzero(~running)
            if gone.shape[0]:
                nothing: Any = ()  # of what the result does not need
                brief = part.state._replace(
                    memory=nothing, learned=(), search=nothing, G=(), rotations=(), W=()
                )
                self._ended.append((part.index[gone], k.take(brief, gone)))
                self._function.dropped(part.index[gone], k.take(part.state.best.x, gone))
            if here.shape[0]:
                left.append((k.take(part.state, here), part.index[here]))
        if not left:
            return []
        states, indices = zip(*left, strict=True)
        return self._parts(k.joined(states), k.joined(indices))


def _solver_of_some(solver: ManyLBFGS, index: Array, size: int) -> ManyLBFGS:
    """The solver of the problems in ``index``, with their own tolerances."""

    def taken(a: Any) -> Any:
        return a[index] if tuple(getattr(a, "shape", ())) == (size,) else a

    return replace(solver, limits=Limits(*map(taken, solver.limits)), fnoise=taken(solver.fnoise))
