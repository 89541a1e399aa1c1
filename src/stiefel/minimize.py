"""The SciPy-shaped call: arguments → problem, solver, stopping rules → result."""

from __future__ import annotations

import difflib
import inspect
import math
import numbers
import os
import warnings
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from .geometry import Product, Stiefel
from .geometry.checks import check_array
from .geometry.grassmann import check_invariant_gradient
from .geometry.layout import layout
from .geometry.orthogonal import determinant_signs, determinants
from .interop.arrays import describe, own_copy
from .interop.functions import CountedObjective
from .interop.mpi.objective import RankObjective
from .interop.mpi.ranks import Ranks
from .interop.mpi.start import agree, guarded, join, shared_callback, together
from .interop.progress import ProgressLine
from .interop.trees import Tree
from .solvers import METHODS
from .solvers.checkpoint import open_checkpoint
from .solvers.driver import Run, Snapshot, feasible, is_feasible
from .solvers.problem import Problem
from .solvers.rank_checkpoint import open_rank_checkpoint
from .solvers.result import Result
from .solvers.stopping import (
    AbsoluteGradient,
    MaxEvaluations,
    MaxIterations,
    MaxSeconds,
    RelativeGradient,
    Rule,
    SmallDecrease,
)

Array = Any
DEFAULT_RTOL = 1e-6
SINGLE_PRECISION_RTOL = 1e-4


def minimize(
    fun: Any,
    x0: Any,
    *,
    jac: Any = None,
    manifold: Any = None,
    method: Any = "auto",
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
    if unknown:
        raise TypeError(_suggest("option", next(iter(unknown)), _parameter_names()))
    ranks = join(comm, value)
    with together(ranks):
        tree = Tree(x0)
        solver = _solver(method, options)
        leaves = _leaves(tree, x0, manifold)
    if ranks is not None:
        limits = {"rtol": rtol, "gtol": gtol, "ftol": ftol, "maxiter": maxiter, "maxfun": maxfun}
        choices = {"value": value, "maxtime": maxtime, "fnoise": fnoise, "stop": stop, "jac": jac}
        functions = {"callback": callback, "precond": precond, "hessp": hessp}
        choices |= {"checkpoint": None if checkpoint is None else str(checkpoint), "resume": resume}
        agree(ranks, leaves, {"method": solver} | limits | choices | functions)
    geometry, X = _bind(tree, leaves, ranks)
    X = tuple(map(own_copy, X)) if isinstance(X, tuple) else own_copy(X)
    restored = not is_feasible(geometry, X)
    X = feasible(geometry, X) if restored else X
    with together(ranks):
        objective = _objective(
            fun, jac, tree, X, math.inf if maxfun is None else maxfun, hessp, ranks, value, leaves
        )
        rule = _rule(geometry, X, rtol, gtol, ftol, maxiter, maxfun, maxtime, stop)
        preconditioner = guarded(ranks, _preconditioner(precond, objective))
        if callback is not None and not callable(callback):
            raise TypeError(
                f"callback is {describe(callback)}; expected a function of the snapshot"
            )
        if fnoise is not None and not fnoise >= 0:
            raise ValueError(f"fnoise is {fnoise!r}; expected a number ≥ 0")
    saver = saved = None
    if checkpoint is not None:
        place_and_time = checkpoint, checkpoint_interval, resume, solver
        others: dict[str, Any] = {"precond": precond, "hessp": hessp, "fnoise": fnoise}
        if comm is None:
            saver = open_checkpoint(*place_and_time, geometry, X, **others)
        else:
            parts = tuple(leaves.values())
            saver = open_rank_checkpoint(ranks or Ranks(comm), parts, *place_and_time, X, **others)
        saved = saver.load(geometry) if saver.exists() else None
    elif resume:
        raise ValueError("resume=True needs the path of a checkpoint: pass checkpoint=")
    objective.calibrate(X)
    check_invariant_gradient(geometry, X, objective.first_gradient)
    problem = Problem(
        geometry,
        objective,
        preconditioner,
        None if fnoise is None else fnoise * objective.scale,
        geometry.eps(X),
        objective.hessian_product,
        magnitude=objective.initial_magnitude,
    )
    line = ProgressLine(rule) if progress and (ranks is None or ranks.rank == 0) else None
    stop_flag = shared_callback(ranks, callback)
    run = Run(problem, solver, rule, objective, stop_flag, line, saver, ranks)
    run.restorations += restored
    if saver is not None and saved is not None:
        saver.recognise(saved, problem.local(X), objective.scale, fnoise or 0.0)
        nhev = int(saved.history.as_array()["nhev"][-1])
        objective.rewind(saved.nfev, saved.njev, saved.scale, nhev)
        result = run.resume(saved)
    else:
        result = run.start(X)
    if line is not None:
        line.close(result.message)
    if ranks is None:
        result.determinant = determinants(tree, result.x)
    else:
        result.determinant, result.communication = None, ranks.communication
    return result


def place(tree: Tree, x0: Any, manifold: Any) -> tuple[Any, Any]:
    """The bound geometry and the start in the solvers' form: an array or a tuple of leaves."""
    return _bind(tree, _leaves(tree, x0, manifold), None)


def _leaves(tree: Tree, x0: Any, manifold: Any) -> dict[str, tuple[Any, Any, bool]]:
    """Name ↦ (array, manifold, whether its rows live on the ranks), as far as one rank can tell."""
    manifold = Stiefel() if manifold is None else manifold
    leaves = tree.flatten(x0)
    if not leaves:
        raise ValueError("x0 has no arrays")
    if isinstance(manifold, (dict, list, tuple)):
        factors = tree.flatten(manifold, "manifold")
    else:
        factors = (manifold,) * len(leaves)
    result = {}
    for given, leaf, path in zip(factors, leaves, tree.paths, strict=True):
        factor, distributed = layout(given)
        if not hasattr(factor, "check_point") or isinstance(factor, type):
            raise TypeError(
                f"manifold is {describe(factor)}; expected an instance such as stiefel.Stiefel()"
            )
        check_array(leaf, f"X0{path}", may_be_empty=True)
        result[f"X0{path}"] = leaf, factor, distributed
    return result


def _bind(
    tree: Tree, leaves: dict[str, tuple[Any, Any, bool]], ranks: Ranks | None
) -> tuple[Any, Any]:
    bound = []
    for name, (leaf, factor, distributed) in leaves.items():
        if ranks is not None and distributed:
            factor = factor.bind(leaf, ranks)
            factor.check_point(leaf, name)
        else:
            factor.check_point(leaf, name)
            _warn_if_orthogonal_group(factor, leaf, name)
            factor = factor.bind(leaf)
        bound.append(factor)
    points = tuple(leaf for leaf, _, _ in leaves.values())
    return (bound[0], points[0]) if tree.is_leaf else (Product(tuple(bound)), points)


def _objective(
    fun: Any,
    jac: Any,
    tree: Tree,
    X: Any,
    limit: float,
    hessp: Any,
    ranks: Ranks | None,
    value: str,
    leaves: dict[str, tuple[Any, Any, bool]],
) -> CountedObjective:
    if ranks is None:
        return CountedObjective(fun, jac, tree, X, limit, hessp)
    copies = tuple(i for i, (_, _, distributed) in enumerate(leaves.values()) if not distributed)
    shares: dict[str, Any] = {"ranks": ranks, "value": value, "replicated": copies}
    return RankObjective(fun, jac, tree, X, limit, hessp, **shares)


def _warn_if_orthogonal_group(manifold: Any, X: Array, name: str) -> None:
    if type(manifold) is not Stiefel or manifold.B is not None or X.shape[-1] != X.shape[-2]:
        return
    signs = determinant_signs(X)
    if signs is not None and X.shape[-1] > 1:
        warnings.warn(
            f"{name} is square: orthogonal matrices have two components, of determinant +1 and −1, "
            f"and a run stays in the one it starts in (here {signs}); "
            "pass manifold=SpecialOrthogonal() if rotations are meant",
            stacklevel=4,
        )


def _solver(method: Any, options: dict[str, Any] | None) -> Any:
    if not isinstance(method, str):
        if not (hasattr(method, "init") and hasattr(method, "step")):
            raise TypeError(
                f"method is {describe(method)}; expected a name ({', '.join(METHODS)}) or a "
                "solver such as stiefel.AcceleratedGradient()"
            )
        if options:
            raise TypeError("options go with a method given by name; this one is an instance")
        return method
    if method not in METHODS:
        raise ValueError(_suggest("method", method, list(METHODS)))
    solver = METHODS[method]
    for name in options or {}:
        names = [f.name for f in fields(solver)]
        if name not in names:
            raise ValueError(_suggest(f"option of method {method!r}", name, names))
    if not options:
        return solver
    return type(solver)(**{f.name: getattr(solver, f.name) for f in fields(solver)} | options)


def _rule(
    geometry: Any,
    X: Array,
    rtol: float | None,
    gtol: float,
    ftol: float,
    maxiter: int,
    maxfun: int | None,
    maxtime: float | None,
    stop: Rule | None,
) -> Rule:
    if rtol is None:
        rtol = DEFAULT_RTOL if geometry.eps(X) < 1e-10 else SINGLE_PRECISION_RTOL
    for name, value in (("rtol", rtol), ("gtol", gtol), ("ftol", ftol)):
        if not isinstance(value, numbers.Real):
            raise TypeError(f"{name} is {describe(value)}; expected a number ≥ 0")
        if not 0 <= value < math.inf:
            raise ValueError(f"{name} is {value!r}; expected a finite number ≥ 0")
    if stop is not None and not isinstance(stop, Rule):
        raise TypeError(
            f"stop is {describe(stop)}; expected a rule such as "
            "RelativeGradient(1e-8) | MaxSeconds(60)"
        )
    if not (rtol or gtol or ftol or stop):
        raise ValueError("rtol, gtol and ftol are all zero; one of them must be positive")
    rules: list[Rule] = []
    rules += [RelativeGradient(rtol)] if rtol else []
    rules += [AbsoluteGradient(gtol)] if gtol else []
    rules += [SmallDecrease(ftol)] if ftol else []
    rules += [stop] if stop is not None else []
    rules += [MaxIterations(maxiter)]
    rules += [MaxEvaluations(maxfun)] if maxfun is not None else []
    rules += [MaxSeconds(maxtime)] if maxtime is not None else []
    result = rules[0]
    for rule in rules[1:]:
        result = result | rule
    return result


def _preconditioner(
    precond: Callable[..., Any] | None, objective: CountedObjective
) -> Callable[[Any, Any, Any], Any] | None:
    """precond(X, G[, aux]) in the solvers' form, on the user's structure."""
    if precond is None:
        return None
    if not callable(precond):
        raise TypeError(f"precond is {describe(precond)}; expected a function of (X, G[, aux])")
    with_aux = _takes_aux(precond)

    def apply(X: Any, G: Any, aux: Any) -> Any:
        point, gradient = objective.user_point(X), objective.user_point(G)
        W = precond(point, gradient, aux) if with_aux else precond(point, gradient)
        return objective.solver_point(W, X, "the direction of precond")

    return apply


def _takes_aux(precond: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(precond).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(positional) >= 3 or any(p.kind is p.VAR_POSITIONAL for p in parameters)


def _parameter_names() -> list[str]:
    return [n for n in inspect.signature(minimize).parameters if n != "unknown"]


def _suggest(kind: str, given: str, known: list[str]) -> str:
    close = difflib.get_close_matches(given, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
    return f"unknown {kind} {given!r}: {hint}"


__all__ = ["minimize", "place"]
