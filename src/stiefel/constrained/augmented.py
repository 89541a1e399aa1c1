"""The augmented Lagrangian: constraints and h(AX) by a sequence of smooth problems on XᴴX = I.

    min_X  f(X) + Σ_i φ_i(c_i(X)):    L_ρ(X, W) = f + Σ φ(P) + ρ/2 ‖Y − P‖²,
    Y = c(X) + W/ρ,  P = prox_{φ/ρ}(Y),   W ← ρ(Y − P),   ρ ← 4ρ unless ‖c(X) − P‖ has halved

L_ρ is continuously differentiable with the gradient ∇f + J(X)ᵀρ(Y − P), which is that of the
Lagrangian with the new W: the inner gradient norm is the stationarity of the pair (X, W).  A run
has converged when stationarity, feasibility and complementarity, the three parts of the KKT
conditions, are within their tolerances.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from stiefel.arguments import bind, leaves_of
from stiefel.backends.arrays import describe
from stiefel.backends.ranks import ALONE
from stiefel.function.trees import Tree
from stiefel.runs.progress import ProgressLine
from stiefel.runs.result import Result
from stiefel.types import Array, Manifolds, Status

from . import nonnegative
from .blocks import ConstraintBlock, blocks_of
from .derivative_check import contradicting
from .infeasible import Violation
from .sequential_run import SequentialRun

FINAL = (  # what ends an inner run ends the outer one
    Status.MAX_EVALUATIONS,
    Status.MAX_TIME,
    Status.MAX_ITERATIONS,
    Status.STOPPED_BY_CALLBACK,
)


@dataclass(frozen=True)
class AugmentedLagrangian:
    """Parameters of the outer iteration."""

    tolerance: float = 1e-6  # of feasibility and complementarity
    penalty: float | None = None  # ρ₀; from the curvature of f and of the constraints unless given
    growth: float = 4.0  # of ρ
    largest_penalty: float = 1e12
    outer_iterations: int = 60

    def __post_init__(self) -> None:
        for name in ("tolerance", "growth", "largest_penalty"):
            value = getattr(self, name)
            if not (isinstance(value, (int, float)) and 0 < value < math.inf):
                raise ValueError(f"option {name} is {value!r}; expected a positive number")


class OuterStage(NamedTuple):
    """The pair (X, W) after an outer iteration."""

    X: Array
    W: tuple[Array, ...]
    f: float
    stationarity: float
    feasibility: float
    complementarity: float


class Lagrangian:
    """f with its blocks, as an objective; counts are those of the user's functions."""

    def __init__(self, fun: Any, jac: Any, blocks: list[ConstraintBlock], X: Any) -> None:
        self._pair, self.tree = _pair(fun, jac), Tree(X)
        self.blocks, self.rho = blocks, 1.0
        self.W = tuple(np.zeros_like(b.value(X)) for b in blocks)
        self.nfev = 0
        self._last_evaluation: tuple[list[Array], float, tuple[Array, ...]] | None = None

    @property
    def ncev(self) -> int:
        """Calls of the user's constraints."""
        return sum(len(b.calls) for b in self.blocks)

    def smooth(self, X: Any) -> tuple[float, tuple[Array, ...]]:
        """f and the leaves of its gradient; the newest is held."""
        leaves = self.tree.flatten(X)
        if self._last_evaluation is None or not all(
            map(np.array_equal, self._last_evaluation[0], leaves)
        ):
            f, G = self._pair(X)
            self.nfev += 1
            gradient = tuple(map(np.asarray, self.tree.flatten(G, "the gradient")))
            self._last_evaluation = [x.copy() for x in leaves], float(f), gradient
        return self._last_evaluation[1], self._last_evaluation[2]

    def value_and_gradient(self, X: Any) -> tuple[float, Any]:
        f, gradient = self.smooth(X)
        G = [np.array(g, dtype=float) for g in gradient]
        for block, W in zip(self.blocks, self.W):
            c = block.value(X)
            if not np.all(np.isfinite(c)):
                return math.nan, self.tree.unflatten(tuple(math.nan * g for g in G))
            Y = c + W / self.rho
            P = block.prox(Y, self.rho)
            f += block.phi(P) + 0.5 * self.rho * float((Y - P) @ (Y - P))
            for g, pulled in zip(G, self.tree.flatten(block.pull(X, self.rho * (Y - P)))):
                g += pulled
        return f, self.tree.unflatten(tuple(G))

    def updated(self, X: Array) -> tuple[tuple[Array, ...], float, float, float]:
        """(W⁺, feasibility, complementarity, what ρ is judged by) at X."""
        new, feasible, complementary, split = [], 0.0, 0.0, 0.0
        for block, W in zip(self.blocks, self.W):
            c = block.value(X)
            if not np.all(np.isfinite(c)):
                return self.W, math.inf, math.inf, math.inf
            Y = c + W / self.rho
            P = block.prox(Y, self.rho)
            W = self.rho * (Y - P)
            new.append(W)
            feasible = max(feasible, block.violation(c, P))
            complementary = max(complementary, block.complementarity(c, W))
            split = max(split, float(np.max(np.abs(c - P), initial=0.0)))
        return tuple(new), feasible, complementary, split


def _pair(fun: Any, jac: Any) -> Callable[[Array], tuple[float, Array]]:
    if hasattr(fun, "value_and_gradient"):
        return lambda X: fun.value_and_gradient(X)[:2]
    if callable(jac):
        return lambda X: (fun(X), jac(X))

    def both(X: Array) -> tuple[float, Array]:
        returned = fun(X)
        if not (isinstance(returned, tuple) and len(returned) in (2, 3)):
            raise TypeError(
                f"fun(X) returned {describe(returned)}; expected (value, gradient): "
                "return the gradient too, or pass it as jac="
            )
        return returned[0], returned[1]

    return both


CONSTRAINED_METHODS_OF_SCIPY = ("SLSQP", "trust-constr")  # its own for constraints
REFUSED = ("precond", "comm", "checkpoint", "stop", "hessp", "fnoise")


def is_constrained(arguments: dict[str, Any]) -> bool:
    """Whether a call of `minimize` has constraints, bounds, or a term h(AX)."""
    constraints, term = arguments["constraints"], arguments["nonsmooth"]
    empty = constraints is None or (isinstance(constraints, (list, tuple)) and not len(constraints))
    return not empty or arguments["bounds"] is not None or getattr(term, "of", None) is not None


def minimize_constrained(solve: Callable[..., Result], arguments: dict[str, Any]) -> Result:
    """The outer iteration; ``solve`` is `stiefel.minimize`, which was called with ``arguments``."""
    _refuse(arguments)
    x0, options, term = (arguments[name] for name in ("x0", "options", "nonsmooth"))
    tree = Tree(x0)
    leaves = tree.flatten(x0)
    if not all(isinstance(x, np.ndarray) and x.dtype.kind == "f" for x in leaves):
        raise TypeError(
            "constraints= and bounds= need real NumPy arrays; x0 is "
            + ", ".join(describe(x) for x in leaves)
        )
    known = [f.name for f in fields(AugmentedLagrangian)]
    for name in options or {}:
        if name not in known:
            raise ValueError(
                f"unknown option {name!r} with constraints=: known: {', '.join(known)}"
            )
    outer = AugmentedLagrangian(**(options or {}))
    X = _in_double_precision(tree, x0, arguments["manifold"])
    blocks = blocks_of(arguments["constraints"], arguments["bounds"], term, X)
    L = Lagrangian(arguments["fun"], arguments["jac"], blocks, X)
    names = ("manifold", "method", "maxiter", "maxfun", "maxtime", "callback", "progress")
    if arguments["method"] in CONSTRAINED_METHODS_OF_SCIPY:
        arguments = arguments | {"method": "auto"}
    run = _Run(solve, L, outer, *(arguments[name] for name in names))
    rtol = arguments["rtol"]
    return run(X, 1e-6 if rtol is None else rtol, arguments["gtol"])


def _in_double_precision(tree: Tree, x0: Any, manifold: Manifolds) -> Any:
    """x0 as doubles: a start that is orthonormal to single precision is made so to double."""
    leaves = []
    for name, (x, factor, _) in leaves_of(tree, x0, manifold).items():
        if x.dtype.itemsize < 8:
            factor.check_point(x, name)
            leaves.append(factor.nearest(x.astype(float)))
        else:
            leaves.append(x.astype(float))
    return tree.unflatten(tuple(leaves))


def _refuse(arguments: dict[str, Any]) -> None:
    term = arguments["nonsmooth"]
    if arguments["unknown"]:
        raise TypeError(f"unknown option {next(iter(arguments['unknown']))!r}")
    if term is not None and getattr(term, "of", None) is None:
        raise ValueError(
            "nonsmooth= does not go with constraints= or bounds=, except as L1(mu, of=A)"
        )
    for name in REFUSED:
        if arguments[name] is not None:
            raise ValueError(f"constraints=, bounds= and L1(mu, of=A) do not go with {name}=")
    for name in ("ftol", "resume"):
        if arguments[name]:
            raise ValueError(f"constraints=, bounds= and L1(mu, of=A) do not go with {name}=")


@dataclass
class _Run:
    solve: Callable[..., Result]
    L: Lagrangian
    outer: AugmentedLagrangian
    manifold: Manifolds
    method: Any
    maxiter: int
    maxfun: int | None
    maxtime: float | None
    callback: Any
    progress: bool
    nit: int = 0
    seconds: float = 0.0

    def __call__(self, X: Array, rtol: float, gtol: float) -> Result:
        L, outer = self.L, self.outer
        first = self._inner(X, math.inf)  # where it stands, without a step
        if not (math.isfinite(first.fun) and math.isfinite(first.gradient_norm)):
            nowhere = OuterStage(first.x, L.W, first.fun, math.nan, math.nan, math.nan)
            return self._package(nowhere, first, Status.NOT_FINITE, [])
        L.rho = outer.penalty or self._first_penalty(X)
        norm = max(first.gradient_norm, 1e-300)
        target = max(gtol, rtol * norm)
        X, finished = self._sequential(X, first, target)
        if finished is not None:
            return finished
        omega, best_split = 0.1 * norm, math.inf
        stages: list[OuterStage] = []
        violation = Violation(L.blocks, L.tree, self.manifold)
        has_owners = self._is_nonnegative(X)
        for _ in range(outer.outer_iterations):
            result = self._inner(X, max(omega, 0.5 * target))
            X = result.x
            W, feasible, complementary, split = L.updated(X)
            f = L.smooth(X)[0]
            stage = OuterStage(X, W, f, result.gradient_norm, feasible, complementary)
            stages.append(stage)
            reason = self._reason(stage, target, result)
            if reason is None and has_owners and nonnegative.is_nearly_nonnegative(X, feasible):
                stage, reason = self._by_owners(stage, target, result)
            if reason is not None:
                return self._package(stage, result, reason, stages)
            L.W = W
            if split > 0.5 * best_split:
                L.rho *= outer.growth
                far = feasible > 1e2 * outer.tolerance and bool(violation)
                if far and violation.is_stationary(X):
                    X = violation.lessened(X)
                    if X is None:
                        return self._package(stage, result, Status.INFEASIBLE, stages)
            best_split = min(best_split, split)
            omega = max(0.5 * target, min(0.1 * omega, L.rho * feasible))
            if L.rho > outer.largest_penalty:
                return self._package(stage, result, self._exhausted(stage, result), stages)
        return self._package(stage, result, Status.MAX_ITERATIONS, stages)

    def _sequential(self, X: Any, first: Result, target: float) -> tuple[Any, Result | None]:
        """The point that `sequential` reaches, and the result if it is the end."""
        run = self._sequential_run(self.L.smooth, self.L.blocks, self.manifold)
        if not (isinstance(self.method, str) and self.method == "auto" and run.prepare(X)):
            return X, None
        s, m, status = run(X, target, self.outer.tolerance)
        self.nit, self.seconds = run.nit, float(run.history["seconds"][-1])
        X = run.user_point(s.at.x)
        if status is None:
            return X, None
        W = run.rows.multipliers(s.nu)
        stage = OuterStage(X, W, s.at.f, m.stationarity, m.violation, m.complementarity)
        first.grad = run.user_point(m.gradient)
        first.feasibility = float(run.history["defect"][-1])
        first.restarts, first.history = run.restarts, run.history
        finished = self._package(stage, first, status, [])
        if run.line is not None:
            run.line.close(finished.message)
        return X, finished

    def _sequential_run(
        self, smooth: Any, blocks: list[ConstraintBlock], manifold: Manifolds, whole: Any = None
    ) -> SequentialRun:
        """A run of `sequential`; ``whole`` is the map from its points to the user's."""
        return SequentialRun(
            smooth,
            blocks,
            manifold,
            lambda: self.L.nfev,
            most_evaluations=math.inf if self.maxfun is None else self.maxfun,
            most_iterations=max(self.maxiter - self.nit, 0),
            most_seconds=math.inf if self.maxtime is None else self.maxtime - self.seconds,
            callback=nonnegative.whole_points(self.callback, whole),
            line=ProgressLine(None) if self.progress and whole is None else None,
        )

    def _is_nonnegative(self, X: Any) -> bool:
        if not isinstance(X, np.ndarray) or not nonnegative.asks_for_nonnegative(self.L.blocks, X):
            return False
        geometry, _ = bind(self.L.tree, leaves_of(self.L.tree, X, self.manifold), ALONE)
        plain = type(geometry).__name__ == "Stiefel" and getattr(geometry, "B", None) is None
        return plain and isinstance(self.method, str) and self.method == "auto"

    def _by_owners(
        self, stage: OuterStage, target: float, result: Result
    ) -> tuple[OuterStage, Status | None]:
        """The end of a run with X ≥ 0, by rows that belong to one column each; or no status."""
        tolerance = self.outer.tolerance
        found = nonnegative.owned_minimum(
            self.L.smooth, self._sequential_run, stage.X, target, tolerance
        )
        if not isinstance(found, nonnegative.OwnedPoint):
            return stage, found
        self.nit += sum(run.nit for run in found.runs)
        self.seconds += sum(float(run.history["seconds"][-1]) for run in found.runs)
        stationarity = float(np.linalg.norm(found.remainder))
        if not stationarity <= target:
            return stage, None
        result.grad, result.history = found.remainder, found.runs[-1].history
        W = (-found.N.ravel(),)
        return OuterStage(found.X, W, found.f, stationarity, 0.0, 0.0), Status.CONVERGED

    def _inner(self, X: Array, gtol: float) -> Result:
        spent = self.L.nfev
        limit = None if self.maxfun is None else max(self.maxfun - spent, 1)
        left = None if self.maxtime is None else max(self.maxtime - self.seconds, 1e-3)
        result = self.solve(
            self.L.value_and_gradient,
            X,
            manifold=self.manifold,
            method=self.method,
            rtol=0.0,
            gtol=min(gtol, 1e300),
            maxiter=0 if gtol == math.inf else max(self.maxiter - self.nit, 1),
            maxfun=limit,
            maxtime=left,
            callback=self.callback,
            progress=self.progress and gtol < math.inf,
        )
        self.nit += result.nit
        self.seconds += result.seconds
        return result

    def _first_penalty(self, X: Array) -> float:
        """ρ₀ that gives the constraints the curvature of f; for h(AX) from the size of AX."""
        f, G = self.L.smooth(X)
        sizes = []
        for block in self.L.blocks:
            c = block.value(X)
            if block.weights is not None:
                mean = float(np.mean(np.abs(c)))
                sizes.append(float(np.mean(block.weights)) / max(mean, 1e-300))
            else:
                away = c - block.prox(c, 1.0)
                pulled = block.pull(X, away)
                square = float(away @ away)
                slope = _norm(G) / max(_norm(self.L.tree.flatten(pulled)), 1e-300)
                sizes.append(slope if square > 0 else 10.0 * max(abs(f), 1.0))
        return float(np.clip(max(sizes), 1e-6, 1e6))

    def _exhausted(self, stage: OuterStage, result: Result) -> Status:
        """ρ has no room left: infeasible if the violation itself is stationary."""
        far = stage.feasibility > 1e2 * self.outer.tolerance
        settled = stage.stationarity <= 1e-3 * self.L.rho * stage.feasibility
        return Status.INFEASIBLE if far and settled else Status.STEP_NOT_FOUND

    def _reason(self, stage: OuterStage, target: float, result: Result) -> Status | None:
        tolerance = self.outer.tolerance
        within = max(stage.feasibility, stage.complementarity) <= tolerance
        if stage.stationarity <= target and within:
            return Status.CONVERGED
        finite = math.isfinite(stage.f) and math.isfinite(stage.feasibility)
        if not finite or result.status is Status.NOT_FINITE:
            return Status.NOT_FINITE
        if self.maxfun is not None and self.L.nfev >= self.maxfun:
            return Status.MAX_EVALUATIONS
        if result.status in FINAL:
            return result.status
        return None

    def _package(
        self, stage: OuterStage, inner: Result, status: Status, stages: list[OuterStage]
    ) -> Result:
        wrong = None
        if status is Status.CONVERGED:
            wrong = contradicting(self.L.blocks, stage.W, stage.X, self.manifold)
        status = status if wrong is None else Status.STEP_NOT_FOUND
        reached = "" if wrong is None else f"the jac of {wrong} contradicts its values; "
        reached += (
            f"stationarity {stage.stationarity:.2e}, feasibility {stage.feasibility:.2e}, "
            f"complementarity {stage.complementarity:.2e} after {self.nit} iterations"
        )
        composed = sum(
            float(np.sum(b.weights * np.abs(b.value(stage.X))))
            for b in self.L.blocks
            if b.weights is not None
        )
        return Result(
            x=stage.X,
            fun=stage.f + composed,
            smooth=stage.f,
            nonsmooth=composed,
            grad=inner.grad,
            gradient_norm=stage.stationarity,
            stationarity=stage.stationarity,
            constraint_violation=stage.feasibility,
            complementarity=stage.complementarity,
            multipliers=stage.W,
            feasibility=inner.feasibility,
            nit=self.nit,
            nfev=self.L.nfev,
            njev=self.L.nfev,
            nhev=0,
            ncev=self.L.ncev,
            outer=len(stages),
            restarts=inner.restarts,
            restorations=inner.restorations,
            success=status is Status.CONVERGED,
            status=status,
            message=f"{status.name}: {status.value}: {reached}",
            history=inner.history,
            seconds=self.seconds,
            determinant=inner.determinant,
        )


def _norm(leaves: tuple[Array, ...]) -> float:
    return math.sqrt(math.fsum(float(np.vdot(x, x)) for x in leaves))
