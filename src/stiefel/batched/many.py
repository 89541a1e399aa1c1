"""`minimize_many`: the driver of the branch-free solver for NumPy and PyTorch; JAX compiles it.

Problems that have ended are dropped from the batch when half of it has: their points were
written down when they ended, and are not touched again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

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
from .state import CODES, Leaves, Limits, State

Array = Any

KEEP = 0.5  # of the batch may have ended before it is packed
SMALL = 32  # problems; packing a smaller batch saves nothing


def minimize_many(
    fun: Callable[..., Any],
    x0: Any,
    *,
    jac: Any = None,
    manifold: Any = None,
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
    fun
        ``fun(X) -> (values, gradients)`` for X of shape (B, n, k): values of shape (B,), and
        Euclidean gradients of the shape of X, where row b depends on X[b] only.  With PyTorch
        and JAX ``fun`` returns the values, and gradients come from autodiff.
        A function of two arguments is called as ``fun(X, index)`` with the numbers of the
        problems that X holds: then problems that have ended are left out.
    x0
        The starts: an array (B, n, k), or a nested dict, list or tuple of arrays with that
        leading axis.
    jac
        None as above; a function ``jac(X) -> G``; or True if ``fun`` returns the pair.
    manifold
        `Stiefel()` by default; an instance, or a structure of instances like x0.
    rtol, gtol, ftol
        As for `stiefel.minimize`, for every problem by itself; numbers, or arrays of shape (B,).
    maxiter, maxfun, maxtime
        Limits on iterations and evaluations of each problem, and on seconds of the call.
    fnoise
        The absolute error of the values, where it is more than rounding; a number or (B,).
    progress
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

        return minimize_batch(
            fun, x0, border, manifold, jac, rtol, gtol, ftol, maxiter, maxfun, maxtime, fnoise
        )
    geometry, start = check_place(border.tree, x0, manifold)
    start = tuple(map(own_copy, start)) if isinstance(start, tuple) else own_copy(start)
    start = feasible(geometry, start)
    x = border.enter(start if border.tree.is_leaf else border.tree.unflatten(start))
    solver = _solver(border, x, rtol, gtol, ftol, maxiter, maxfun, fnoise)
    function = BatchFunction(fun, jac, border, x)
    line = ManyProgress(x[0].shape[0]) if progress else None
    limit = math.inf if maxtime is None else float(maxtime)
    with np.errstate(all="ignore"):
        return Batch(border, function, line, limit).run(solver, x)


def _solver(
    border: Border, x: Leaves, rtol: Any, gtol: Any, ftol: Any, maxiter: Any, maxfun: Any, fnoise: Any
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


class Batch:
    """A batch at work."""

    def __init__(
        self, border: Border, function: BatchFunction, line: ManyProgress | None, maxtime: float
    ) -> None:
        self._border, self._function, self._line, self._maxtime = border, function, line, maxtime

    def run(self, solver: ManyLBFGS, x: Leaves) -> ManyResult:
        started, k = time.perf_counter(), self._border.k
        state, ended = solver.init(x), []
        index = k.xp.arange(x[0].shape[0], device=k.device(x[0]))
        function = self._function
        while True:
            state = solver.step(lambda X: function(X, index), state)
            over = time.perf_counter() - started >= self._maxtime
            if over:
                code = CODES[Status.MAX_TIME]
                late = k.xp.where(state.status < 0, code + 0 * state.status, state.status)
                state = state._replace(status=late)
            running = state.status < 0
            left = int(k.xp.sum(k.integers(running)))
            if self._line is not None:
                self._line.show(x[0].shape[0] - left, function.calls)
            if left == 0:
                ended.append((index, state))
                break
            if left < KEEP * running.shape[0] and running.shape[0] > SMALL:
                solver, state, index = self._packed(solver, state, index, running, ended)
        seconds = time.perf_counter() - started
        result = collect(self._border, ended, x, function.calls, seconds)
        if self._line is not None:
            self._line.close(result.message)
        return result

    def _packed(
        self, solver: ManyLBFGS, state: State, index: Array, running: Array, ended: list[Any]
    ) -> tuple[ManyLBFGS, State, Array]:
        """The problems that are running; the others are written down."""
        k = self._border.k
        (here,), (gone,) = k.xp.nonzero(running), k.xp.nonzero(~running)
        brief = state._replace(memory=(), learned=(), search=(), G=(), turns=(), W=())
        ended.append((index[gone], k.take(brief, gone)))
        self._function.dropped(index[gone], k.take(state.best.x, gone))
        rows = index.shape[0]

        def taken(a: Any) -> Any:
            shaped = hasattr(a, "shape") and tuple(a.shape) == (rows,)
            return a[here] if shaped else a

        limits = Limits(*map(taken, solver.limits))
        solver = replace(solver, limits=limits, fnoise=taken(solver.fnoise))
        return solver, k.take(state, here), index[here]
