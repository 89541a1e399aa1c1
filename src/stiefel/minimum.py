"""Is a stationary point a minimum?  The curvatures of f there, and the way out of a saddle."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stiefel.function.counted import CountedObjective
from stiefel.function.trees import Tree
from stiefel.runs.history import History
from stiefel.runs.result import Result
from stiefel.solvers.curvature import (
    Spectrum,
    find_symmetry,
    lowest_curvatures,
)
from stiefel.solvers.noise import Model
from stiefel.solvers.problem import Problem
from stiefel.solvers.trust_region import hessian_of
from stiefel.types import Point, Status

from .task import DEFAULT_RTOL, place

ZERO = 1e-6  # of the largest curvature: what is called zero …
ZERO_OF_DIFFERENCES = 1e-5  # … where products with the Hessian are differences of gradients
STATIONARY = 1e-3  # a gradient larger than this times the largest curvature is none of a minimum
PRODUCTS = 500
SHORTEST = 1e-5  # step out of a saddle, as a length


@dataclass(frozen=True)
class MinimumCheck:
    """The verdict of `check_minimum`; true in a condition if the point is a minimum.

    Attributes
    ----------
    minimum : whether the point is stationary and no curvature is below −allowed.
    kind : "minimum", "flat minimum" (some curvature is zero, and higher derivatives decide),
        "unresolved minimum" (no negative curvature was found, but the products did not suffice to
        exclude one), "saddle", or "not stationary".
    curvatures : the lowest eigenvalues found of the Riemannian Hessian in the metric of the
        manifold, ascending, in the units of f.  Only the first one is resolved for certain.
    largest : the largest curvature, in absolute value.
    condition_number : largest/smallest, or infinity where the smallest is not positive.
    allowed : curvatures of this size and less count as zero.
    residual : how far curvatures[0] may be from the true one.
    direction : a tangent of unit length, in the structure of x, along which f bends down most;
        None if f has no freedom at x.
    symmetries : directions in which f(XQ) = f(X) makes f constant; they are left out.
    gradient_norm : ‖∇f‖_g* at the point.
    products, nfev : products with the Hessian, and calls of ``fun``.
    """

    minimum: bool
    kind: str
    curvatures: Any
    largest: float
    condition_number: float
    allowed: float
    residual: float
    direction: Any = field(repr=False)
    symmetries: int
    gradient_norm: float
    products: int
    nfev: int

    def __bool__(self) -> bool:
        return self.minimum

    def __str__(self) -> str:
        if not len(self.curvatures):
            return f"{self.kind}: f has no direction in which it could change here"
        lines = [
            f"{self.kind}: the smallest curvature is {self.curvatures[0]:.6g} "
            f"(± {self.residual:.1e}), the largest {self.largest:.6g}; "
            f"{self.allowed:.1e} and less count as zero",
            f"gradient norm {self.gradient_norm:.2e}; local condition number "
            f"{self.condition_number:.3g}; {self.symmetries} directions of symmetry left out",
            f"{self.products} products with the Hessian, {self.nfev} calls of fun",
        ]
        return "\n".join(lines)


def check_minimum(
    fun: Any,
    x: Any,
    *,
    jac: Any = None,
    hessp: Callable[[Any, Any], Any] | None = None,
    manifold: Any = None,
    tol: float | None = None,
    maxproducts: int = PRODUCTS,
    seed: int = 0,
) -> MinimumCheck:
    """Look at the second derivative of ``fun`` at a stationary point.

    The lowest eigenvalues of the Riemannian Hessian are computed by Lanczos' method from products
    with it, which come from ``hessp``, from an objective's own ``hessp``, from autodiff for
    PyTorch and JAX, or from differences of gradients.  A negative one is certain: f falls along
    its direction.  That there is none holds for a random start of the iteration with probability
    one, to the accuracy stated in the result.

    Parameters
    ----------
    fun, jac, hessp, manifold
        As in `minimize`.
    x
        The point, such as ``result.x``.
    tol
        Curvatures of at most ``tol`` times the largest one count as zero: 1e-6 by default, 1e-5
        with differences of gradients (in single precision 1e-3 and 1e-2).
    maxproducts
        The limit on products with the Hessian.
    seed
        Of the random start.

    Returns
    -------
    MinimumCheck
        Prints as three lines, and is true in a condition if the point is a minimum.

    Raises
    ------
    ValueError
        If x is not on the manifold, or a parameter makes no sense.

    Examples
    --------
    The trace of XᵀAX is stationary at every set of eigenvectors, and least at one of them:

    >>> import numpy as np, stiefel
    >>> A = np.diag([1.0, 2.0, 3.0, 4.0])
    >>> fun = lambda X: (np.vdot(X, A @ X), 2 * A @ X)
    >>> print(stiefel.check_minimum(fun, np.eye(4)[:, :2]).kind)
    minimum
    >>> check = stiefel.check_minimum(fun, np.eye(4)[:, 1:3])
    >>> check.kind, round(float(check.curvatures[0]), 6), check.symmetries
    ('saddle', -4.0, 1)
    """
    if tol is not None and not 0 < tol < 1:
        raise ValueError(f"tol is {tol!r}; expected a number between 0 and 1")
    if not (isinstance(maxproducts, (int, np.integer)) and maxproducts >= 1):
        raise ValueError(f"maxproducts is {maxproducts!r}; expected an integer ≥ 1")
    tree = Tree(x)
    geometry, X = place(tree, x, manifold)
    objective = CountedObjective(fun, jac, tree, X, hessp=hessp)
    objective.calibrate(X)
    _, gradient, _ = objective.value_and_gradient(X)
    rounding = Model(geometry.eps(X))
    problem = Problem(geometry, objective, hessp=objective.hessian_product, noise=rounding)
    rng = np.random.default_rng((seed, len("check_minimum")))
    symmetry = find_symmetry(geometry, objective, X, rng)
    zero = tol if tol is not None else _zero(problem)
    product = hessian_of(problem, X, gradient)
    found = lowest_curvatures(geometry, X, product, symmetry, zero, int(maxproducts), rng)
    G = geometry.project(X, gradient)
    return _verdict(problem, objective, X, G, found, zero, symmetry.dimension)


def _zero(problem: Problem) -> float:
    single = problem.noise.eps > 1e-10
    return (ZERO if problem.hessp is not None else ZERO_OF_DIFFERENCES) * (1e3 if single else 1.0)


def _verdict(
    problem: Problem,
    objective: CountedObjective,
    X: Point,
    G: Any,
    found: Spectrum,
    zero: float,
    symmetries: int,
) -> MinimumCheck:
    geometry, scale = problem.geometry, objective.scale
    norm = geometry.norm(X, G)
    values = found.values
    size = float(np.abs(values).max(initial=0.0))
    lowest = float(values[0]) if len(values) else 0.0
    allowed = zero * size
    kind = "minimum" if lowest > allowed or not len(values) else "flat minimum"
    if found.residual > max(abs(lowest), allowed):
        kind = "unresolved minimum"
    if lowest < -allowed:
        kind = "saddle"
    if norm > STATIONARY * size and size > 0:
        kind = "not stationary"
    direction = None
    if found.lowest is not None:
        W = found.lowest
        W = geometry.scale(-1.0 if geometry.inner(X, G, W) > 0 else 1.0, W)
        direction = objective.user_point(geometry.raise_index(X, W))
    top = float(values[-1]) if len(values) else 0.0
    return MinimumCheck(
        minimum=kind.endswith("minimum"),
        kind=kind,
        curvatures=values[: max(1, len(values) // 2)] / scale,
        largest=size / scale,
        condition_number=top / lowest if lowest > 0 else math.inf,
        allowed=allowed / scale,
        residual=found.residual / scale,
        direction=direction,
        symmetries=symmetries,
        gradient_norm=norm / scale,
        products=found.products,
        nfev=objective.nfev,
    )


# -- out of saddles ------------------------------------------------------------------------


def leave_saddle(
    fun: Any, x: Any, direction: Any, *, jac: Any = None, manifold: Any = None
) -> tuple[Any, int]:
    """A point with a smaller value than x, on the curve that leaves x along ``direction``.

    Both senses of the direction are tried with the same lengths, from 1 downwards, until f falls;
    of the two points the better one is taken.

    Returns
    -------
    (point, calls)
        The point is None where no step down to a length of 1e-5 lowers f visibly.
    """
    tree = Tree(x)
    geometry, X = place(tree, x, manifold)
    leaves = tree.flatten(direction, "direction")
    T = leaves if isinstance(X, tuple) else leaves[0]
    ray = geometry.ray(X, geometry.lower_index(X, T))
    objective = CountedObjective(fun, jac, tree, X)
    f = objective.value(X)
    noise, t = 10.0 * geometry.eps(X) * abs(f), 1.0
    while t > SHORTEST:
        values = {s: objective.value(ray(s)) for s in (t, -t)}
        best = min(values, key=lambda s: values[s] if math.isfinite(values[s]) else math.inf)
        if values[best] < f - noise:
            return objective.user_point(geometry.restore(ray(best))), objective.nfev
        t *= 0.5
    return None, objective.nfev


MOST_ESCAPES = 100
STILL = 1e-9  # a start whose gradient is this small against curvature is stationary already
# Runs that ended where they saw no way on; one that ended for lack of time is not looked at.
ENDED = (Status.CONVERGED, Status.ROUNDING_LIMIT, Status.STEP_NOT_FOUND)
SUMS = ("nit", "nfev", "njev", "nhev", "restarts", "restorations", "seconds")


def escape_saddles(minimize: Callable[..., Result], given: dict[str, Any]) -> Result:
    """`minimize` again and again, each time from beside the saddle at which it ended before.

    Counts, limits and the history are those of all legs together; ``result.minimum`` is the last
    check and ``result.escapes`` the number of saddles left.
    """
    for name in ("checkpoint", "comm"):
        if given.get(name) is not None:
            raise ValueError(f"escape=True does not go with {name}=; check the result instead")
    asked = {k: given[k] for k in ("jac", "hessp", "manifold")}
    fun, rest, legs = given["fun"], given | {"escape": False}, list[Result]()
    first = check_minimum(fun, given["x0"], **asked, maxproducts=1)
    spent = first.nfev
    size = first.largest + first.residual
    if first.gradient_norm <= STILL * size:
        # Rounding of a gradient that vanishes is nothing to compare gradients with.
        least = (DEFAULT_RTOL if given["rtol"] is None else given["rtol"]) * size
        rest = rest | {"gtol": max(given["gtol"], least)}
    while True:
        legs.append(minimize(**rest))
        result = legs[-1]
        if result.status not in ENDED or len(legs) > MOST_ESCAPES:
            return _joined(legs, None, spent)
        check = check_minimum(fun, result.x, **asked)
        spent += check.nfev
        point = None
        if check.kind == "saddle":
            del asked["hessp"]
            point, calls = leave_saddle(fun, result.x, check.direction, **asked)
            asked["hessp"], spent = given["hessp"], spent + calls
        if point is None:
            return _joined(legs, check, spent)
        rest = rest | {"x0": point, "gtol": given["gtol"]} | _left(given, legs, spent)


def _left(given: dict[str, Any], legs: list[Result], spent: int) -> dict[str, Any]:
    """What is left of the limits, and at least the one step that finds that nothing is."""
    limits: dict[str, Any] = {"maxiter": max(given["maxiter"] - sum(r.nit for r in legs), 0)}
    if given["maxfun"] is not None:
        limits["maxfun"] = max(given["maxfun"] - sum(r.nfev for r in legs) - spent, 1)
    if given["maxtime"] is not None:
        limits["maxtime"] = max(given["maxtime"] - sum(r.seconds for r in legs), 1e-3)
    return limits


def _joined(legs: list[Result], check: MinimumCheck | None, spent: int) -> Result:
    """One result of all legs."""
    result, tables = legs[-1], []
    for i, leg in enumerate(legs):
        rows = leg.history.as_array()
        for name in ("nfev", "njev", "nhev", "seconds"):
            rows[name] += sum(r.history.as_array()[name][-1] for r in legs[:i])
        tables.append(rows)
    for name in SUMS:
        result[name] = sum(leg[name] for leg in legs)
    result.nfev += spent
    result.history = History(np.concatenate(tables))
    result.minimum, result.escapes = check, len(legs) - 1
    if check is not None and check.kind == "saddle":
        result.success, result.status = False, Status.ROUNDING_LIMIT
        result.message = f"ROUNDING_LIMIT: at a saddle that no visible step leaves: {check}"
    elif check is not None:
        result.message += (
            f" ({check.kind}: smallest curvature {_first(check):.3g} of {check.largest:.3g}; "
            f"saddles left: {result.escapes})"
        )
    return result


def _first(check: MinimumCheck) -> float:
    return float(check.curvatures[0]) if len(check.curvatures) else 0.0
