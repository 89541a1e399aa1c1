"""What `minimize` asks for: the method, the problem with its term, the fields of the result."""

from __future__ import annotations

import difflib
import math
import numbers
from dataclasses import fields, replace
from typing import Any

import numpy as np

from stiefel.backends.arrays import describe, to_numpy
from stiefel.function.counted import EvaluationLimit
from stiefel.function.trees import Tree
from stiefel.runs.result import Result, Status
from stiefel.solvers.problem import Problem
from stiefel.types import Array, Manifold, Solver

from . import PROXIMAL_METHODS
from .composite import Composite, ProximalPoint, unwarned
from .proximal_newton import ProximalNewton
from .space import Sum, all_finite, space_of
from .terms import L1, Nothing, RowNorms, Term

NEEDED = ("value", "prox", "prox_derivative", "support", "gradient", "hessian", "stop_at_kinks")


def choose(method: Any, options: dict[str, Any] | None, has_hessian: bool) -> Any:
    """The solver of a name with its options, or the instance given; "auto" asks for products."""
    names = ", ".join(repr(name) for name in PROXIMAL_METHODS)
    if not isinstance(method, str):
        if not isinstance(method, tuple(type(m) for m in PROXIMAL_METHODS.values())):
            raise TypeError(
                f"method is {describe(method)}; with nonsmooth= expected one of {names}, or an "
                "instance such as stiefel.ProximalLBFGS()"
            )
        if options:
            raise TypeError("options go with a method given by name; this one is an instance")
        return method
    if method == "auto":
        method = "proximal-newton" if has_hessian else "proximal-lbfgs"
    if method not in PROXIMAL_METHODS:
        raise ValueError(f"method is {method!r}; with nonsmooth= expected 'auto' or one of {names}")
    solver = PROXIMAL_METHODS[method]
    known = [f.name for f in fields(solver)]
    for name in options or {}:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
            raise ValueError(f"unknown option of method {method!r} {name!r}: {hint}")
    return replace(solver, **(options or {}))


def refuse_without_term(method: Any) -> None:
    """An error for a proximal method where there is no term."""
    if isinstance(method, str) and method in PROXIMAL_METHODS:
        raise ValueError(
            f"method {method!r} is for functions with a nonsmooth term: pass nonsmooth=, for "
            "example stiefel.L1(0.5), or another method"
        )


def refuse_unsupported(precond: Any, comm: Any) -> None:
    """Errors for what does not go with a nonsmooth term."""
    if comm is not None:
        raise ValueError(
            "nonsmooth= does not go with comm=: the proximal step needs all rows of X; "
            "run it on one process"
        )
    if precond is not None:
        raise ValueError(
            "nonsmooth= does not go with precond=: the proximal step is in the Euclidean metric; "
            "pass hessp= instead, or leave precond out"
        )


def read_term(nonsmooth: Any, geometry: Manifold, tree: Tree, X: Array) -> Sum:
    """h on the vectors of points like X: the same term for all leaves, or a structure like x0."""
    leaves = X if isinstance(X, tuple) else (X,)
    if isinstance(nonsmooth, (dict, list, tuple)):
        given = tree.flatten(nonsmooth, "nonsmooth")
    else:
        given = (nonsmooth,) * len(leaves)
    terms = tuple(
        _checked(h, x, f"X0{path}") for h, x, path in zip(given, leaves, tree.paths, strict=True)
    )
    return Sum(space_of(geometry, X), terms)


def _checked(h: Any, X: Array, name: str) -> Term:
    if h is None:
        return Nothing()
    missing = [n for n in NEEDED if not callable(getattr(h, n, None))]
    if missing or isinstance(h, type):
        raise TypeError(
            f"nonsmooth is {describe(h)}, without {', '.join(missing) or 'an instance'}; "
            "expected a term such as stiefel.L1(0.5) or stiefel.RowNorms(0.5)"
        )
    if getattr(h, "of", None) is not None:
        raise ValueError("L1(mu, of=A) is for a single matrix X; expected terms without of=")
    if hasattr(h, "check"):
        h.check(X, name)
    if type(h) not in (L1, RowNorms):
        _check_answers(h, to_numpy(X), name)
    return h


def _check_answers(h: Term, X: Array, name: str) -> None:
    """Errors for a term whose answers have another form than the methods expect."""
    value = h.value(X)
    if not isinstance(value, numbers.Real):
        raise TypeError(f"the value of nonsmooth is {value!r}; expected a real number")
    answers = {
        "prox": h.prox(X, 1.0),
        "prox_derivative": h.prox_derivative(X, 1.0)(X),
        "support": h.support(X),
        "gradient": h.gradient(X),
        "hessian": h.hessian(X, X),
        "stop_at_kinks": h.stop_at_kinks(X, X),
    }
    for method, answer in answers.items():
        if np.shape(answer) != X.shape:
            raise ValueError(
                f"the {method} of nonsmooth returned the shape {np.shape(answer)}; expected "
                f"{X.shape}, that of {name}"
            )


def with_term(problem: Problem, term: Sum, solver: Solver) -> Composite:
    """The problem f + h, with h scaled as f is."""
    if isinstance(solver, ProximalNewton) and problem.hessp is None:
        raise ValueError(
            "method 'proximal-newton' needs products with the Hessian of f: pass hessp=, an "
            "objective with hessp, or a PyTorch or JAX point; or use 'proximal-lbfgs'"
        )
    given = {f.name: getattr(problem, f.name) for f in fields(problem)}
    scaled = replace(term, scale=float(getattr(problem.objective, "scale", 1.0)))
    return Composite(**given, h=scaled)


@unwarned
def report(problem: Problem, result: Result) -> Result:
    """The result, with `smooth`, `nonsmooth`, `support` and `multiplier` if there is a term.

    The multiplier is that of f + h − ⟨Λ, XᴴX − I⟩: ∇f + ζ = 2XΛ with a subgradient ζ of h.
    """
    if not isinstance(problem, Composite):
        return result
    space, objective = problem.space, problem.objective
    x = space.flat(_solver_form(result.x, problem))
    at = problem.recent(x)
    result.nonsmooth = problem.h.value(x) / problem.h.scale
    result.smooth = result.fun - result.nonsmooth
    masks = [h.support(X) for h, X in zip(problem.h.terms, space.points.split(x))]
    result.support = objective.user_point(tuple(masks)) if space.is_tree else masks[0]  # type: ignore[attr-defined]
    at = at or _evaluated(problem, x, result)
    result.multiplier = None if at is None else _multipliers(problem, at)
    ended = result.success or result.status in (Status.ROUNDING_LIMIT, Status.STEP_NOT_FOUND)
    if ended and at is not None and not _is_subgradient(problem, at):
        result.success, result.status = False, Status.STEP_NOT_FOUND
        result.message = (
            f"{result.status.name}: the proximal map and the value of the term contradict each "
            "other (stiefel.testing.check_term tells which law is broken): " + result.message
        )
    return result


def _is_subgradient(problem: Composite, at: ProximalPoint) -> bool:
    """Whether ζ = (w − z)/t lies beneath h where z is the proximal map of w; from four points."""
    h, x, z = problem.h, at.x, at.z
    if not all_finite(z):
        return True  # another status says so
    w = x - at.t * (at.g - problem.space.normal(x, at.L))
    zeta, length = (w - z) / at.t, math.sqrt(float(x @ x))
    rounding = 10.0 * problem.noise.eps * math.sqrt(float(w @ w)) / at.t
    value = h.value(z)
    allowed = 1e-6 * (abs(value) + math.sqrt(float(zeta @ zeta)) * length) + rounding * length
    return all(
        h.value(y) >= value + float(zeta @ (y - z)) - allowed for y in (0.0 * z, 2.0 * z, -z, x)
    )


def _solver_form(X: Any, problem: Composite) -> Any:
    return problem.objective._tree.flatten(X) if problem.space.is_tree else X  # type: ignore[attr-defined]


def _evaluated(problem: Composite, x: Array, result: Result) -> ProximalPoint | None:
    """The point evaluated again, where the run did not end at it; counted."""
    try:
        value = problem.evaluate(x)
    except EvaluationLimit:
        return None
    finally:
        result.nfev, result.njev = problem.objective.nfev, problem.objective.njev
    if not value.finite:
        return None
    t = 1.0 / max(math.sqrt(float(value.g @ value.g)), 1e-300)
    return problem.measure(x, value, t, problem.first_multiplier(x, value.g))


def _multipliers(problem: Composite, at: ProximalPoint) -> Any:
    """Λ of every orthonormal leaf, in the structure of x0; None for free leaves."""
    space, objective = problem.space, problem.objective
    found = iter(space.duals.split(0.5 / problem.h.scale * at.L))
    each = []
    for leaf, shape in zip(space.leaves, space.points.shapes):
        L = next(found) if leaf.orthonormal else None
        each.append(None if L is None else _unstacked(L, shape))
    return objective.user_point(tuple(each)) if space.is_tree else each[0]  # type: ignore[attr-defined]


def _unstacked(L: Array, shape: tuple[int, ...]) -> Array:
    """Λ (b, k, k) with the stack's own axes; a number for a unit vector."""
    k = L.shape[-1]
    if len(shape) == 1:
        return L[0, 0, 0]
    front = shape[:-1] if k == 1 and shape[-1] != 1 else shape[:-2]
    return L.reshape(*front, k, k)
