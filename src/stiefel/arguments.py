"""The arguments of `minimize`, read: where a point lives, which solver, when to stop.

Errors name what was given, what was expected and what to do.
"""

from __future__ import annotations

import difflib
import inspect
import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from stiefel.backends.arrays import describe, in_native_order, library
from stiefel.backends.host import DIRECT, Passage, joined, passage_of
from stiefel.backends.ranks import ALONE, Alone, Ranks
from stiefel.function.counted import CountedObjective
from stiefel.function.differences import DIFFERENCE_RULES
from stiefel.function.on_ranks import RankObjective
from stiefel.function.trees import Tree
from stiefel.geometry.checks import check_array
from stiefel.geometry.doubled import doubled
from stiefel.geometry.layout import layout
from stiefel.geometry.rotations import determinant_signs
from stiefel.runs.stopping import (
    A_REAL_NUMBER,
    AbsoluteGradient,
    MaxEvaluations,
    MaxIterations,
    MaxSeconds,
    RelativeGradient,
    Rule,
    SettledGradient,
    SmallDecrease,
    any_of,
)
from stiefel.types import Array, Manifold, Manifolds, Solver

from .geometry import Euclidean, Product, Stiefel
from .habits import method_name
from .solvers import METHODS

NamedLeaves = dict[str, tuple[Any, Any, bool]]  # name ↦ (array, manifold, rows on the ranks)

DEFAULT_RTOL = 1e-6
SINGLE_PRECISION_RTOL = 1e-4


def place(tree: Tree, x0: Any, manifold: Manifolds | None) -> tuple[Any, Any]:
    """The bound geometry and the start in the solvers' form: an array or a tuple of leaves."""
    return bind(tree, leaves_of(tree, x0, manifold), ALONE)


def leaves_of(tree: Tree, x0: Any, manifold: Manifolds | None) -> NamedLeaves:
    """The arrays of x0 with their manifolds, as far as one rank can tell."""
    manifold = Stiefel() if manifold is None else manifold
    leaves = tuple(map(in_native_order, tree.flatten(x0)))
    if not leaves:
        raise ValueError("x0 has no arrays")
    if isinstance(manifold, (dict, list, tuple)):
        factors = tree.flatten(_completed(x0, manifold), "manifold")
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
    _check_one_library(result)
    return result


def _check_one_library(leaves: NamedLeaves) -> None:
    """One library differentiates the function and takes its gradients."""
    names = {library(leaf): name for name, (leaf, _, _) in leaves.items()}
    if len(names) > 1:
        each = " and ".join(f"{name} ({found})" for found, name in names.items())
        raise TypeError(
            f"the arrays of X0 are of several libraries: {each}; expected one: convert the others"
        )


def _completed(x0: Any, manifold: Manifolds | None) -> Any:
    """A manifold for every leaf: one for a branch is that of its leaves, none means Euclidean."""
    if manifold is None and not isinstance(x0, (dict, list, tuple)):
        return Euclidean()
    if isinstance(x0, dict) and not isinstance(manifold, (list, tuple)):
        given = manifold if isinstance(manifold, dict) else dict.fromkeys(x0, manifold)
        filled = {key: _completed(part, given.get(key)) for key, part in x0.items()}
        return given | filled  # names that x0 does not have are told to the user elsewhere
    if isinstance(x0, (list, tuple)) and not isinstance(manifold, dict):
        each = manifold if isinstance(manifold, (list, tuple)) else [manifold] * len(x0)
        return manifold if len(each) != len(x0) else list(map(_completed, x0, each))
    return manifold


def bind(tree: Tree, leaves: NamedLeaves, ranks: Alone | Ranks) -> tuple[Any, Any]:
    """The geometry of all leaves, bound to their array library, and the point itself."""
    bound = []
    for name, (leaf, factor, distributed) in leaves.items():
        if ranks is not ALONE and distributed:
            factor = factor.bind(leaf, ranks)
            factor.check_point(leaf, name)
        else:
            factor.check_point(leaf, name)
            _warn_if_orthogonal_group(factor, leaf, name)
            factor = factor.bind(leaf)
        bound.append(factor)
    points = tuple(leaf for leaf, _, _ in leaves.values())
    return (bound[0], points[0]) if tree.is_leaf else (Product(tuple(bound)), points)


def host_passages(leaves: NamedLeaves, solver: Solver) -> tuple[Passage, ...]:
    """How each leaf goes to the solvers; in its own library where code of the user's looks at it.

    That is the code of a manifold or a solver that is not of this library, and a ``solve`` of B.
    """

    def one(leaf: Array, manifold: Manifold) -> Passage:
        ours = _is_ours(manifold) and getattr(manifold, "solve", None) is None
        return passage_of(leaf) if ours and _is_ours(solver) else DIRECT

    return tuple(one(leaf, manifold) for leaf, manifold, _ in leaves.values())


def hosted(leaves: NamedLeaves, passages: Sequence[Passage]) -> NamedLeaves:
    """The leaves as the solvers see them."""
    each = zip(passages, leaves.items(), strict=True)
    return {name: (passage.inward(leaf), *rest) for passage, (name, (leaf, *rest)) in each}  # type: ignore[misc]


def with_doubled(
    leaves: NamedLeaves, passages: tuple[Passage, ...]
) -> tuple[NamedLeaves, tuple[Passage, ...]]:
    """`hosted` leaves and the passages to them, with complex unit vectors as real ones."""
    inside, ways = dict(leaves), list(passages)
    for i, (name, (leaf, manifold, distributed)) in enumerate(leaves.items()):
        found = doubled(manifold, leaf)
        if found is not None:
            manifold.check_point(leaf, name)  # while it has the user's shape
            ways[i] = joined(passages[i], found[0])
            inside[name] = found[0].inward(leaf), found[1], distributed
    return inside, tuple(ways)


def _is_ours(x: Any) -> bool:
    return f"{type(x).__module__}.".startswith("stiefel.")


def objective_of(
    fun: Any,
    jac: Any,
    tree: Tree,
    limit: float,
    hessp: Any,
    ranks: Alone | Ranks,
    value: str,
    leaves: NamedLeaves,
    passages: tuple[Passage, ...],
) -> CountedObjective:
    """The user's function, counted; on several ranks its values are shares or totals."""
    X = tuple(leaf for leaf, _, _ in leaves.values())
    if not isinstance(ranks, Ranks):
        return CountedObjective(fun, jac, tree, X, limit, hessp, passages)
    if jac in DIFFERENCE_RULES:
        raise TypeError(
            f"jac={jac!r} does not go with comm=: entries of X are moved on one rank at a time; "
            "pass the gradient"
        )
    copies = tuple(i for i, (_, _, distributed) in enumerate(leaves.values()) if not distributed)
    shares: dict[str, Any] = {"ranks": ranks, "value": value, "replicated": copies}
    return RankObjective(fun, jac, tree, X, limit, hessp, passages, **shares)


def _warn_if_orthogonal_group(manifold: Manifold, X: Array, name: str) -> None:
    if type(manifold) is not Stiefel or manifold.B is not None or X.shape[-1] != X.shape[-2]:
        return
    signs = determinant_signs(X)
    if signs is not None and X.shape[-1] > 1:
        warnings.warn(
            f"{name} is square: orthogonal matrices have two components, of determinant +1 and −1, "
            f"and a run stays in the one it starts in (here {signs}); "
            "pass manifold=SpecialOrthogonal() if rotations are meant",
            stacklevel=6,
        )


def solver_of(method: Any, options: dict[str, Any] | None) -> Solver:
    """The solver of a name or class with its options, or the instance given."""
    if isinstance(method, type) and is_dataclass(method) and hasattr(method, "step"):
        return _with_options(method(), method.__name__, options)
    if not isinstance(method, str):
        if not (hasattr(method, "init") and hasattr(method, "step")):
            raise TypeError(
                f"method is {describe(method)}; expected a name ({', '.join(METHODS)}) or a "
                "solver such as stiefel.AcceleratedGradient()"
            )
        if options:
            raise TypeError("options go with a method given by name; this one is an instance")
        return method
    name = method_name(method)
    if name not in METHODS:
        raise ValueError(suggest("method", method, list(METHODS)))
    return _with_options(METHODS[name], repr(method), options)


def _with_options(defaults: Any, method: str, options: dict[str, Any] | None) -> Solver:
    if not options:
        return defaults
    names = [f.name for f in fields(defaults)]
    for name in options:
        if name not in names:
            raise ValueError(suggest(f"option of method {method}", name, names))
    return replace(defaults, **options)


def rule_of(
    eps: float,
    rtol: float | None,
    gtol: float,
    ftol: float,
    maxiter: int,
    maxfun: int | None,
    maxtime: float | None,
    stop: Rule | None,
) -> Rule:
    """All limits and tolerances as one rule."""
    default = rtol is None and not (gtol or ftol)
    if rtol is None:
        rtol = DEFAULT_RTOL if eps < 1e-10 else SINGLE_PRECISION_RTOL
    for name, value in (("rtol", rtol), ("gtol", gtol), ("ftol", ftol)):
        if not isinstance(value, A_REAL_NUMBER):
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
    relative = SettledGradient if default else RelativeGradient
    rules += [relative(rtol)] if rtol else []
    rules += [AbsoluteGradient(gtol)] if gtol else []
    rules += [SmallDecrease(ftol)] if ftol else []
    rules += [stop] if stop is not None else []
    rules += [MaxIterations(maxiter)]
    rules += [MaxEvaluations(maxfun)] if maxfun is not None else []
    rules += [MaxSeconds(maxtime)] if maxtime is not None else []
    return any_of(rules)


def preconditioner_of(
    precond: Callable[..., Any] | None, objective: CountedObjective
) -> Callable[[Any, Any, Any], Any] | None:
    """precond(X, G[, aux]) in the solvers' form, on the user's structure."""
    if precond is None:
        return None
    if not callable(precond):
        raise TypeError(f"precond is {describe(precond)}; expected a function of (X, G[, aux])")
    with_aux = _takes_aux(precond)

    def apply(X: Any, G: Any, aux: Any) -> Any:
        point, gradient = objective.shown_point(X), objective.shown_point(G)
        W = precond(point, gradient, aux) if with_aux else precond(point, gradient)
        return objective.solver_point(W, "the direction of precond")

    return apply


def _takes_aux(precond: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(precond).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(positional) >= 3 or any(p.kind is p.VAR_POSITIONAL for p in parameters)


def suggest(kind: str, given: str, known: list[str]) -> str:
    close = difflib.get_close_matches(given, known, n=1, cutoff=0.5)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
    return f"unknown {kind} {given!r}: {hint}"
