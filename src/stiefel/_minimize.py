"""The SciPy-shaped call; `Task` reads its arguments."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal, Protocol

from stiefel.runs.ledger import Snapshot
from stiefel.runs.result import Result
from stiefel.runs.stopping import Rule
from stiefel.types import Manifolds, Point, Solver

from .constrained import is_constrained, minimize_constrained
from .habits import translated, with_args
from .minimum import escape_saddles
from .starts import solve_from_many
from .task import Task

Rules = Literal["2-point", "3-point", "cs", "jax", "torch"]


class Differentiable(Protocol):
    """An objective as an object; ``value(X)`` and ``hessp(X, V)`` beside it are used too."""

    def value_and_gradient(self, X: Any, /) -> tuple[Any, ...]: ...


def minimize(
    fun: Callable[..., Any] | Differentiable,
    x0: Point,
    *,
    jac: Callable[..., Any] | bool | Rules | None = None,
    manifold: Manifolds | None = None,
    method: str | Solver | type[Solver] = "auto",
    nonsmooth: Any = None,
    constraints: Any = (),
    bounds: Any = None,
    options: dict[str, Any] | None = None,
    hessp: Callable[[Any, Any], Any] | None = None,
    precond: Callable[..., Any] | None = None,
    rtol: float | None = None,
    gtol: float = 0.0,
    ftol: float = 0.0,
    maxiter: int = 100_000,
    maxfun: int | None = None,
    maxtime: float | None = None,
    stop: Rule | None = None,
    fnoise: float | None = None,
    callback: Callable[[Snapshot], Any] | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_interval: float = 60.0,
    resume: bool = False,
    comm: Any = None,
    value: str = "local",
    escape: bool = False,
    starts: Any = None,
    seed: Any = 0,
    workers: int = 1,
    args: Any = None,
    tol: float | None = None,
    disp: bool | None = None,
    **unknown: Any,
) -> Result:
    """Minimise a function of matrices with orthonormal columns.

    Parameters
    ----------
    fun : callable or object
        ``fun(X) -> (value, gradient)``, with the Euclidean gradient G of
        f(X+H) = f(X) + Re⟨G, H⟩ + o(‖H‖).  For PyTorch and JAX points ``fun`` returns the value
        and the gradient comes from autodiff.  Or an object with ``value(X)`` and
        ``value_and_gradient(X)``, so that line-search trials do not pay for gradients.  A third
        returned item, ``aux``, is handed to ``precond``.
    x0 : array or structure of arrays
        The start: an array (n, k), a stack (..., n, k), or a nested dict, list or tuple of them.
    jac : callable, bool, str or None, optional
        None as above; a function ``jac(X) -> G``; or True if ``fun`` returns the pair.  For
        functions that return their value only: "jax" or "torch" if ``fun`` is written with that
        library, while points stay NumPy arrays; or "2-point", "3-point", "cs" for differences of
        values, each of which is counted in ``nfev``.
    manifold : manifold or structure of manifolds, optional
        `Stiefel()` by default; an instance, or a structure of instances like x0.
    method : str, solver or class of solvers, optional
        A name or a solver instance: "auto", "accelerated", "accelerated-gradient-restart",
        "gradient-descent", "lbfgs", "cg", "trust-region".
    nonsmooth : term or structure of terms, optional
        A convex term h added to ``fun``, which is then the smooth part f of F = f + h alone:
        `L1` or `RowNorms`, or a structure of them (and None) like x0.  The methods are then
        "proximal-newton" (the default with ``hessp``), "proximal-lbfgs" (the default without),
        "proximal-gradient" and "accelerated-proximal"; the result has `smooth`, `nonsmooth`,
        `support` and `multiplier` besides, and its ``gradient_norm`` is the length of the
        proximal step divided by its t, χ.
    constraints, bounds : optional
        Further constraints in SciPy's vocabulary (`NonlinearConstraint`, `LinearConstraint`, dicts
        or a list of them), and bounds on the entries of X: a pair (lower, upper) or
        `scipy.optimize.Bounds`.  They are met by sequential quadratic programming, or by an
        augmented Lagrangian around a smooth ``method`` that is named; the result has
        `stationarity`, `constraint_violation`, `complementarity` and `multipliers`.
    options : dict, optional
        Parameters of the named method, as a dict; with constraints, of the augmented Lagrangian.
        SciPy's "maxiter", "gtol", "ftol", "maxfun" and "disp" may stand there too.
    hessp : callable, optional
        ``hessp(X, V)``, the Euclidean Hessian times V, for "trust-region".  By default the
        objective's own ``hessp``, autodiff for PyTorch and JAX, or differences of gradients.
    precond : callable, optional
        ``precond(X, G[, aux])``, an approximate inverse Hessian times the projected gradient G;
        any array of the shape of X.  `stiefel.preconditioners` has two, and says what is what.
    rtol, gtol : float, optional
        Converged when ‖∇f‖_g* ≤ max(gtol, rtol·‖∇f(x0)‖_g*).  rtol is 1e-6 unless given (1e-4
        in single precision).
    ftol : float, optional
        Converged also when f fell by less than ftol·max(|f|, 1) over ten iterations.
    maxiter, maxfun, maxtime : int or float, optional
        Limits on iterations, calls of ``fun`` and seconds.
    stop : Rule, optional
        A further stopping rule, such as ``RelativeGradient(1e-8) | MaxSeconds(60)``.
    fnoise : float, optional
        The absolute error of f's values, where it is more than rounding.
    callback : callable, optional
        ``callback(snapshot)`` after every iteration; returning True stops the run.
    progress : bool, optional
        Show a progress line on standard error.
    checkpoint : path-like, optional
        The path of a file to which the run is saved every ``checkpoint_interval`` seconds, and
        when it ends in whatever way; with ``comm``, beside one more file per rank.
        A file that cannot be written gives a warning.
    checkpoint_interval : float, optional
        Seconds between savings.
    resume : bool, optional
        Go on from ``checkpoint``, bit for bit as if nothing had happened, or start if the file
        does not exist.  A file that is damaged or of another run is refused.  Limits count from
        the first start.
    comm : mpi4py communicator, optional
        An mpi4py communicator: x0, gradients and the returned x are this rank's rows.
    value : {"local", "global"}, optional
        With ``comm``: "local" if ``fun`` returns this rank's share of f, "global" if it returns
        the total on every rank.
    escape : bool, optional
        Look whether the run has ended at a saddle, go down from there, and so on until the end is
        a minimum within the tolerance of `check_minimum`; ``result.minimum`` is the last check.
    starts : int or list of points, optional
        A number of solves from different starts: x0 and random points; or a list of points.  The
        best result is returned, with the table of all minima found in ``result.starts``.
    seed, workers : int, optional
        With ``starts``: the seed of the random points, and the number of processes.
    args, tol, disp : tuple, float, bool, optional
        As in SciPy: further arguments of ``fun``, ``jac`` and ``hessp``; a tolerance, which is
        ``gtol`` (with ``rtol=0`` unless given); and another name of ``progress``.
    **unknown : object
        Anything else is refused, with the nearest name.

    Returns
    -------
    Result
        Whose ``success`` is True only if the returned point itself meets the tolerance.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong; the message says what was given, expected, and what to do.

    Examples
    --------
    >>> import numpy as np, stiefel
    >>> A = np.diag(np.arange(1.0, 11.0))
    >>> X0 = stiefel.random_point(10, 2, seed=0)
    >>> result = stiefel.minimize(lambda X: (np.sum(X * (A @ X)), 2 * A @ X), X0)
    >>> result.success, round(result.fun, 6)
    (True, 3.0)
    """
    given = with_args(dict(locals()))
    extra = {name: given.pop(name) for name in ("escape", "starts", "seed", "workers")}
    if starts is None and not escape:
        if is_constrained(given):
            return minimize_constrained(minimize, translated(given))
        return Task(**given).run()
    if escape and (nonsmooth is not None or is_constrained(given)):
        raise ValueError(
            "escape= is for smooth functions without further constraints; leave it out, or pass "
            "starts= to try several starts"
        )
    given = translated(given) | extra
    given |= given.pop("unknown")
    return (escape_saddles if starts is None else solve_from_many)(minimize, given)


__all__ = ["minimize"]
