"""Is a stationary point a minimum?  The curvatures of f there, and the way out of a saddle."""

from __future__ import annotations

import itertools
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stiefel.function.counted import CountedObjective, EvaluationLimit
from stiefel.function.trees import Tree
from stiefel.runs.ledger import History
from stiefel.runs.result import Result
from stiefel.solvers.curvature import (
    Spectrum,
    find_symmetry,
    lowest_curvatures,
)
from stiefel.solvers.noise import Model
from stiefel.solvers.problem import Problem
from stiefel.solvers.trust_region import hessian_of
from stiefel.types import Manifold, Manifolds, Point, Status

from .arguments import DEFAULT_RTOL, SINGLE_PRECISION_RTOL, place

ZERO = 1e-6  # of the largest curvature: what is called zero …
ZERO_OF_DIFFERENCES = 1e-5  # … where products with the Hessian are differences of gradients
STATIONARY = 1e-3  # a gradient larger than this times the largest curvature is none of a minimum
PRODUCTS = 500
SHORTEST_ESCAPE = 1e-5  # step out of a saddle, as a length


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
    manifold: Manifolds | None = None,
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
    fun : callable or object
        As in `minimize`.
    x : array or structure of arrays
        The point, such as ``result.x``.
    jac, hessp, manifold : optional
        As in `minimize`.
    tol : float, optional
        Curvatures of at most ``tol`` times the largest one count as zero: 1e-6 by default, 1e-5
        with differences of gradients (in single precision 1e-3 and 1e-2).
    maxproducts : int, optional
        The limit on products with the Hessian.
    seed : int, optional
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
    return _check(geometry, objective, X, tol, int(maxproducts), seed)


def _check(
    geometry: Manifold,
    objective: CountedObjective,
    X: Point,
    tol: float | None = None,
    maxproducts: int = PRODUCTS,
    seed: int = 0,
) -> MinimumCheck:
    objective.calibrate(X)
    _, gradient, _ = objective.value_and_gradient(X)
    rounding = Model(geometry.eps(X))
    problem = Problem(geometry, objective, hessp=objective.hessian_product, noise=rounding)
    rng = np.random.default_rng((seed, len("check_minimum")))
    symmetry = find_symmetry(geometry, objective, X, rng)
    zero = tol if tol is not None else _zero(problem)
    product = hessian_of(problem, X, gradient)
    found = lowest_curvatures(geometry, X, product, symmetry, zero, maxproducts, rng)
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

MOST_ESCAPES = 100
STILL = 1e-9  # a start whose gradient is this small against curvature is stationary already
FEWEST = 20  # evaluations of a run that can afford to look at its start first
# Runs that ended where they saw no way on; one that ended for lack of time is not looked at.
ENDED = (Status.CONVERGED, Status.ROUNDING_LIMIT, Status.STEP_NOT_FOUND)
SUMS = ("nit", "restarts", "restorations")
CALLS = ("nfev", "njev", "nhev")


def leave_saddle(
    fun: Any, x: Any, direction: Any, *, jac: Any = None, manifold: Manifolds | None = None
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
    objective = CountedObjective(fun, jac, tree, X)
    return _leave(geometry, objective, X, tree.flatten(direction, "direction")), objective.nfev


def _leave(
    geometry: Manifold, objective: CountedObjective, X: Point, direction: tuple[Any, ...]
) -> Any | None:
    T = direction if isinstance(X, tuple) else direction[0]
    ray = geometry.ray(X, geometry.lower_index(X, T))
    f, t = objective.value(X), 1.0
    noise = 10.0 * geometry.eps(X) * abs(f)
    while t > SHORTEST_ESCAPE:
        values = {s: objective.value(ray(s)) for s in (t, -t)}
        best = min(values, key=lambda s: values[s] if math.isfinite(values[s]) else math.inf)
        if values[best] < f - noise:
            return objective.user_point(geometry.restore(ray(best)))
        t *= 0.5
    return None


def escape_saddles(minimize: Callable[..., Result], given: dict[str, Any]) -> Result:
    """`minimize` again and again, each time from beside the saddle at which it ended before.

    Counts, limits and the history are those of all legs together; ``result.minimum`` is the last
    check and ``result.escapes`` the number of saddles left.
    """
    for name in ("checkpoint", "comm"):
        if given.get(name) is not None:
            raise ValueError(f"escape=True does not go with {name}=; check the result instead")
    return _Escape(minimize, given).run()


class _Escape:
    """The legs of a run that leaves saddles, and what its checks have cost."""

    def __init__(self, minimize: Callable[..., Result], given: dict[str, Any]) -> None:
        self.minimize, self.given = minimize, given | {"escape": False}
        self.legs: list[Result] = []
        self.calls_of_checks = dict.fromkeys(CALLS, 0)
        self.began = time.perf_counter()

    def run(self) -> Result:
        point, rest = self.given["x0"], self._first_tolerance()
        while True:
            self.legs.append(self.minimize(**self.given | rest | {"x0": point} | self._left()))
            if self.legs[-1].status not in ENDED or len(self.legs) > MOST_ESCAPES:
                return self._joined(None)
            try:
                check = self._asked(self.legs[-1].x, lambda m, f, X, _: _check(m, f, X))
                point = self._lower(check) if check.kind == "saddle" else None
            except EvaluationLimit:
                return self._joined(None, Status.MAX_EVALUATIONS)
            if point is None:
                return self._joined(check)
            if not self._left().get("maxfun", 1):
                return self._joined(None, Status.MAX_EVALUATIONS)
            rest = {}

    def _lower(self, check: MinimumCheck) -> Any | None:
        return self._asked(
            self.legs[-1].x, lambda m, f, X, tree: _leave(m, f, X, tree.flatten(check.direction))
        )

    def _first_tolerance(self) -> dict[str, float]:
        """Rounding of a gradient that vanishes at x0 is nothing to compare gradients with."""
        if self._left().get("maxfun", math.inf) < FEWEST:
            return {}
        look = lambda m, f, X, _: (_check(m, f, X, maxproducts=1), m.eps(X))  # noqa: E731
        first, eps = self._asked(self.given["x0"], look)
        size, rtol = first.largest + first.residual, self.given["rtol"]
        if first.gradient_norm > max(STILL, 100.0 * eps) * size:
            return {}
        usual = DEFAULT_RTOL if eps < 1e-10 else SINGLE_PRECISION_RTOL
        return {"gtol": max(self.given["gtol"], (usual if rtol is None else rtol) * size)}

    def _asked(self, x: Any, question: Callable[..., Any]) -> Any:
        """A question about f at x, with a counted objective; its calls count."""
        tree = Tree(x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said by `minimize`
            geometry, X = place(tree, x, self.given["manifold"])
        limit = self._left().get("maxfun", math.inf)
        asked = self.given["fun"], self.given["jac"], tree, X, limit, self.given["hessp"]
        objective = CountedObjective(*asked)
        try:
            return question(geometry, objective, X, tree)
        finally:
            for name in CALLS:
                self.calls_of_checks[name] += getattr(objective, name)

    def _left(self) -> dict[str, Any]:
        """What is left of the limits."""
        given, done = self.given, self.legs
        limits: dict[str, Any] = {"maxiter": max(given["maxiter"] - sum(r.nit for r in done), 0)}
        if given["maxfun"] is not None:
            used = sum(r.nfev for r in done) + self.calls_of_checks["nfev"]
            limits["maxfun"] = max(given["maxfun"] - used, 0)
        if given["maxtime"] is not None:
            limits["maxtime"] = max(given["maxtime"] - time.perf_counter() + self.began, 1e-3)
        return limits

    def _joined(self, check: MinimumCheck | None, status: Status | None = None) -> Result:
        """One result of all legs."""
        legs, result = self.legs, self.legs[-1]
        result.history = History(np.concatenate(_shifted(legs)))
        for name in (*SUMS, *CALLS):
            result[name] = sum(leg[name] for leg in legs) + self.calls_of_checks.get(name, 0)
        result.seconds = time.perf_counter() - self.began
        result.minimum, result.escapes = check, len(legs) - 1
        if status is not None:
            result.success, result.status = False, status
            result.message = f"{status}: no evaluations were left to look for saddles"
        elif check is not None and check.kind == "saddle":
            result.success, result.status = False, Status.ROUNDING_LIMIT
            result.message = f"ROUNDING_LIMIT: at a saddle that no visible step leaves: {check}"
        elif check is not None:
            lowest = float(check.curvatures[0]) if len(check.curvatures) else 0.0
            result.message += (
                f" ({check.kind}: smallest curvature {lowest:.3g} of {check.largest:.3g}; "
                f"saddles left: {result.escapes})"
            )
        return result


def _shifted(legs: list[Result]) -> list[Any]:
    """The histories of the legs, each beginning where the one before ended."""
    tables = [leg.history.as_array() for leg in legs]
    for name in ("nfev", "njev", "nhev", "seconds"):
        for before, rows in itertools.pairwise(tables):
            rows[name] += before[name][-1]
    return tables
