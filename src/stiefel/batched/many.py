"""`minimize_many`: the driver of the branch-free solver for NumPy and PyTorch; JAX compiles it.

Problems that have ended are dropped from the batch when a quarter of it has: their points were
written down when they ended, and are not touched again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from stiefel.types import Array, Leaves, Manifolds

from .border import Border, border_of, limits_of, tolerance
from .compiled import CompiledLBFGS, CompiledMatrices, CompiledRecogniser
from .function import BatchFunction
from .leaves import small_real_matrices
from .quadratic import LARGEST_N, Recogniser, evaluations_needed
from .result import ManyProgress, ManyResult, collect
from .shared import (
    METHODS,
    MaxSeconds,
    Status,
    check_place,
    feasible,
    library,
    own_copy,
)
from .solver import ManyLBFGS
from .state import CODES, Limits, State

KEEP = 0.75  # a batch is packed when no more than this part of it is running


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
    limit = math.inf if maxtime is None else MaxSeconds(maxtime).limit
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
    compiled = isinstance(border.leaves[0], CompiledMatrices)
    looks = recognisable(border, x) and limits.maxfun >= evaluations_needed(*x[0].shape[1:])
    recogniser = (CompiledRecogniser if compiled else Recogniser)(k) if looks else None
    return (CompiledLBFGS if compiled else ManyLBFGS)(
        border.leaves, limits, noise, auto.memory, auto.metric, auto.initial_length, auto.caution,
        recogniser,
    )  # fmt: skip


def recognisable(border: Border, x: Leaves) -> bool:
    """Whether functions tr(XᵀAXM) are looked for: of small real matrices, in NumPy."""
    return library(x[0]) == "numpy" and small_real_matrices(border.leaves, x, LARGEST_N)


class RunningBatch:
    """A batch at work."""

    def __init__(
        self, border: Border, function: BatchFunction, line: ManyProgress | None, maxtime: float
    ) -> None:
        self._border, self._function, self._line, self._maxtime = border, function, line, maxtime
        self._ended: list[tuple[Array, State]] = []

    def run(self, whole: ManyLBFGS, x: Leaves) -> ManyResult:
        k, started, size = self._border.k, time.perf_counter(), x[0].shape[0]
        solver, state = whole, whole.init(tuple(map(k.own, x)))
        index = k.xp.arange(size, device=k.device(x[0]))
        while index.shape[0]:
            asked = solver.ask(state)
            state = solver.tell(state, asked, *self._function(asked.shown, index))
            if time.perf_counter() - started >= self._maxtime:
                state = self._late(state)
            left = int(k.xp.sum(state.status < 0))
            if self._line is not None:
                self._line.show(size - left, self._function.calls)
            if left <= KEEP * index.shape[0]:
                state, index = self._packed(state, index)
                solver = _solver_of_some(whole, index, size)
        seconds = time.perf_counter() - started
        result = collect(self._border, self._ended, x, self._function.calls, seconds)
        if self._line is not None:
            self._line.close(result.message)
        return result

    def _late(self, state: State) -> State:
        code = CODES[Status.MAX_TIME] + 0 * state.status
        return state._replace(status=self._border.k.xp.where(state.status < 0, code, state.status))

    def _packed(self, state: State, index: Array) -> tuple[State, Array]:
        """The problems that are running; the others are written down."""
        k, xp = self._border.k, self._border.k.xp
        running = state.status < 0
        (here,), (gone,) = xp.nonzero(running), xp.nonzero(~running)
        nothing: Any = ()  # of what the result does not need
        brief = state._replace(
            memory=nothing, learned=(), search=nothing, G=(), rotations=(), W=(), model=None
        )
        self._ended.append((index[gone], k.take(brief, gone)))
        self._function.dropped(index[gone], k.take(state.best.x, gone))
        return k.take(state, here), index[here]


def _solver_of_some(solver: ManyLBFGS, index: Array, size: int) -> ManyLBFGS:
    """The solver of the problems in ``index``, with their own tolerances."""

    def taken(a: Any) -> Any:
        return a[index] if tuple(getattr(a, "shape", ())) == (size,) else a

    return replace(solver, limits=Limits(*map(taken, solver.limits)), fnoise=taken(solver.fnoise))
