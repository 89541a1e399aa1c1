"""The SciPy-shaped call: arguments → problem, solver, stopping rules → result."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable
from typing import Any

from stiefel.backends.arrays import describe, own_copy
from stiefel.backends.ranks import Ranks
from stiefel.backends.threads import threads_for
from stiefel.function.trees import Tree
from stiefel.geometry.feasibility import feasible, is_feasible
from stiefel.geometry.grassmann import check_invariant_gradient
from stiefel.geometry.rotations import determinants
from stiefel.runs.checkpoint import open_checkpoint, owned
from stiefel.runs.driver import Run
from stiefel.runs.ledger import Ledger, Snapshot
from stiefel.runs.progress import ProgressLine
from stiefel.runs.rank_checkpoint import open_rank_checkpoint
from stiefel.runs.result import Result
from stiefel.runs.stopping import Rule
from stiefel.solvers.noise import Model
from stiefel.solvers.problem import Problem

from .agreement import agree, check_value, guarded, join, shared_callback, together
from .constrained import minimize_constrained
from .nonsmooth import task as proximal
from .nonsmooth.composite import Composite
from .task import (
    Leaves,
    bind,
    leaves_of,
    objective_of,
    preconditioner_of,
    rule_of,
    solver_of,
    suggest,
)


def minimize(
    fun: Any,
    x0: Any,
    *,
    jac: Any = None,
    manifold: Any = None,
    method: Any = "auto",
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
    **unknown: Any,
) -> Result:
    """Minimise a function of matrices with orthonormal columns.

    Parameters
    ----------
    fun
        ``fun(X) -> (value, gradient)``, with the Euclidean gradient G of
        f(X+H) = f(X) + Re⟨G, H⟩ + o(‖H‖).  For PyTorch and JAX points ``fun`` returns the value
        and the gradient comes from autodiff.  Or an object with ``value(X)`` and
        ``value_and_gradient(X)``, so that line-search trials do not pay for gradients.  A third
        returned item, ``aux``, is handed to ``precond``.
    x0
        The start: an array (n, k), a stack (..., n, k), or a nested dict, list or tuple of them.
    jac
        None as above; a function ``jac(X) -> G``; or True if ``fun`` returns the pair.
    manifold
        `Stiefel()` by default; an instance, or a structure of instances like x0.
    method
        A name or a solver instance: "auto", "accelerated", "accelerated-gradient-restart",
        "gradient-descent", "lbfgs", "cg", "trust-region".
    nonsmooth
        A convex term h added to ``fun``, which is then the smooth part f of F = f + h alone:
        `L1` or `RowNorms`, or a structure of them (and None) like x0.  The methods are then
        "proximal-newton" (the default with ``hessp``), "proximal-lbfgs" (the default without),
        "proximal-gradient" and "accelerated-proximal"; the result has `smooth`, `nonsmooth`,
        `support` and `multiplier` besides, and its ``gradient_norm`` is the length of the
        proximal step divided by its t, χ.
    options
        Parameters of the named method, as a dict.
    hessp
        ``hessp(X, V)``, the Euclidean Hessian times V, for "trust-region".  By default the
        objective's own ``hessp``, autodiff for PyTorch and JAX, or differences of gradients.
    precond
        ``precond(X, G[, aux])``, an approximate inverse Hessian times the projected gradient G;
        any array of the shape of X.  `stiefel.preconditioners` has two, and says what is what.
    rtol, gtol
        Converged when ‖∇f‖_g* ≤ max(gtol, rtol·‖∇f(x0)‖_g*).  rtol is 1e-6 unless given (1e-4
        in single precision).
    ftol
        Converged also when f fell by less than ftol·max(|f|, 1) over ten iterations.
    maxiter, maxfun, maxtime
        Limits on iterations, calls of ``fun`` and seconds.
    stop
        A further stopping rule, such as ``RelativeGradient(1e-8) | MaxSeconds(60)``.
    fnoise
        The absolute error of f's values, where it is more than rounding.
    callback
        ``callback(snapshot)`` after every iteration; returning True stops the run.
    progress
        Show a progress line on standard error.
    checkpoint
        The path of a file to which the run is saved every ``checkpoint_interval`` seconds, and
        when it ends in whatever way; with ``comm``, beside one more file per rank.
        A file that cannot be written gives a warning.
    resume
        Go on from ``checkpoint``, bit for bit as if nothing had happened, or start if the file
        does not exist.  A file that is damaged or of another run is refused.  Limits count from
        the first start.
    comm
        An mpi4py communicator: x0, gradients and the returned x are this rank's rows.
    value
        With ``comm``: "local" if ``fun`` returns this rank's share of f, "global" if it returns
        the total on every rank.

    Returns
    -------
    Result
        ``success`` is True only if the returned point itself meets the tolerance.
    """
    composed = nonsmooth if getattr(nonsmooth, "of", None) is not None else None
    if bounds is not None or composed is not None or not _is_empty(constraints):
        if nonsmooth is not None and composed is None:
            raise ValueError(
                "nonsmooth= does not go with constraints= or bounds=, except as L1(mu, of=A)"
            )
        if precond is not None or comm is not None or checkpoint is not None or stop is not None:
            raise ValueError(
                "constraints= and bounds= do not go with precond=, comm=, checkpoint= or stop="
            )
        return minimize_constrained(
            minimize,
            fun,
            x0,
            jac=jac,
            constraints=constraints,
            bounds=bounds,
            composed=composed,
            manifold=manifold,
            method=method,
            options=options,
            rtol=rtol,
            gtol=gtol,
            maxiter=maxiter,
            maxfun=maxfun,
            maxtime=maxtime,
            callback=callback,
        )
    if nonsmooth is not None:
        proximal.refuse(precond, comm)
        has_hessian = hessp is not None or hasattr(fun, "hessp")
        method, options = proximal.choose(method, options, has_hessian), None
    ranks = join(comm)
    with together(ranks):
        if unknown:
            raise TypeError(suggest("option", next(iter(unknown)), _parameter_names()))
        check_value(value)
        tree = Tree(x0)
        solver = solver_of(method, options)
        leaves = leaves_of(tree, x0, manifold)
    if ranks is not None:
        limits = {"rtol": rtol, "gtol": gtol, "ftol": ftol, "maxiter": maxiter, "maxfun": maxfun}
        choices = {"value": value, "maxtime": maxtime, "fnoise": fnoise, "stop": stop, "jac": jac}
        functions = {"callback": callback, "precond": precond, "hessp": hessp}
        choices |= {"checkpoint": None if checkpoint is None else str(checkpoint), "resume": resume}
        choices |= {"checkpoint_interval": checkpoint_interval}
        agree(ranks, leaves, {"method": solver} | limits | choices | functions)
    geometry, X = bind(tree, leaves, ranks)
    X = tuple(map(own_copy, X)) if isinstance(X, tuple) else own_copy(X)
    restored = not is_feasible(geometry, X)
    X = feasible(geometry, X) if restored else X
    term = None if nonsmooth is None else proximal.read_term(nonsmooth, geometry, tree, X)
    with together(ranks):
        objective = objective_of(
            fun, jac, tree, X, math.inf if maxfun is None else maxfun, hessp, ranks, value, leaves
        )
        rule = rule_of(geometry, X, rtol, gtol, ftol, maxiter, maxfun, maxtime, stop)
        preconditioner = guarded(ranks, preconditioner_of(precond, objective), objective)
        _check(callback, fnoise)
    known = {"precond": precond, "hessp": hessp, "fnoise": fnoise, "nonsmooth": term and term.terms}
    place_and_time = checkpoint, checkpoint_interval, resume, solver
    saver = _saver(*place_and_time, geometry, X, leaves, comm, ranks, known)
    threads = threads_for(X)
    objective.wrap(threads.freely)
    with owned(saver), threads, threads:  # twice: see `Threads`
        saved = saver.load(geometry) if saver is not None and saver.exists() else None
        objective.calibrate(X)
        check_invariant_gradient(geometry, X, objective.first_gradient)
        problem = Problem(
            geometry,
            objective,
            preconditioner and threads.freely(preconditioner),
            objective.hessian_product,
            Model(
                geometry.eps(X),
                None if fnoise is None else fnoise * objective.scale,
                objective.initial_magnitude,
            ),
        )
        if term is not None:
            problem = proximal.with_term(problem, term, solver)
        line = ProgressLine(rule) if progress and (ranks is None or ranks.rank == 0) else None
        stop_flag = shared_callback(ranks, callback and threads.freely(callback))
        ledger = Ledger(problem, objective, ranks, restorations=int(restored))
        run = Run(ledger, solver, rule, stop_flag, line, saver)
        if saver is not None and saved is not None:
            saver.recognise(saved, problem.gradient(X), objective.scale, fnoise or 0.0)
            if precond is not None:
                objective.hold_aux(saved.state.x)
            nhev = int(saved.history.as_array()["nhev"][-1])
            objective.rewind(saved.nfev, saved.njev, saved.scale, nhev)
            result = run.resume(saved)
        else:
            box, X = [X], None
            result = run.start(box)
        if isinstance(problem, Composite):
            result = proximal.report(problem, result)
    if line is not None:
        line.close(result.message)
    if ranks is None:
        result.determinant = determinants(tree, result.x)
    else:
        result.determinant, result.communication = None, ranks.communication
    return result


def _is_empty(constraints: Any) -> bool:
    return constraints is None or (isinstance(constraints, (list, tuple)) and not constraints)


def _check(callback: Any, fnoise: float | None) -> None:
    if callback is not None and not callable(callback):
        raise TypeError(f"callback is {describe(callback)}; expected a function of the snapshot")
    if fnoise is not None and not fnoise >= 0:
        raise ValueError(f"fnoise is {fnoise!r}; expected a number ≥ 0")


def _saver(
    checkpoint: Any,
    interval: float,
    resume: bool,
    solver: Any,
    geometry: Any,
    X: Any,
    leaves: Leaves,
    comm: Any,
    ranks: Ranks | None,
    known: dict[str, Any],
) -> Any:
    """Where the run is saved: one file, or one a rank; None without a checkpoint."""
    if checkpoint is None:
        if resume:
            raise ValueError("resume=True needs the path of a checkpoint: pass checkpoint=")
        return None
    if comm is None:
        return open_checkpoint(checkpoint, interval, resume, solver, geometry, X, **known)
    parts = tuple(leaves.values())
    ranks = ranks or Ranks(comm)
    return open_rank_checkpoint(ranks, parts, checkpoint, interval, resume, solver, X, **known)


def _parameter_names() -> list[str]:
    return [n for n in inspect.signature(minimize).parameters if n != "unknown"]


__all__ = ["minimize"]
