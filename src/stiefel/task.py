"""One call of `minimize`, from its arguments to its result."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from stiefel.backends.arrays import describe, own_copy
from stiefel.backends.host import DIRECT
from stiefel.backends.ranks import ALONE, Alone, Ranks
from stiefel.backends.threads import Threads, threads_for
from stiefel.function.counted import CountedObjective
from stiefel.function.trees import Tree
from stiefel.geometry.feasibility import feasible
from stiefel.geometry.frames import framed, seen
from stiefel.geometry.grassmann import check_invariant_gradient
from stiefel.geometry.rotations import determinants
from stiefel.nonsmooth import task as proximal
from stiefel.nonsmooth.space import Sum
from stiefel.runs.checkpoint import Checkpoint, Saved, open_checkpoint, owned
from stiefel.runs.driver import Run
from stiefel.runs.ledger import Ledger, Snapshot
from stiefel.runs.progress import ProgressLine
from stiefel.runs.rank_checkpoint import open_rank_checkpoint
from stiefel.runs.result import Result
from stiefel.runs.stopping import RoundedGradient, Rule
from stiefel.solvers.lbfgs import LBFGS
from stiefel.solvers.noise import Model
from stiefel.solvers.problem import Problem
from stiefel.types import Manifolds, Solver

from .agreement import agree, check_value, guarded, join, shared_callback
from .arguments import (
    NamedLeaves,
    bind,
    host_passages,
    hosted,
    leaves_of,
    objective_of,
    preconditioner_of,
    rule_of,
    solver_of,
    suggest,
    with_doubled,
)
from .habits import translate


@dataclass
class Task:
    """The arguments of `minimize`, and what is made of them in the order of the methods."""

    fun: Any
    x0: Any
    jac: Any
    manifold: Manifolds
    method: Any
    nonsmooth: Any
    constraints: Any
    bounds: Any
    options: dict[str, Any] | None
    hessp: Callable[[Any, Any], Any] | None
    precond: Callable[..., Any] | None
    rtol: float | None
    gtol: float
    ftol: float
    maxiter: int
    maxfun: int | None
    maxtime: float | None
    stop: Rule | None
    fnoise: float | None
    callback: Callable[[Snapshot], Any] | None
    progress: bool
    checkpoint: str | os.PathLike[str] | None
    checkpoint_interval: float
    resume: bool
    comm: Any
    value: str
    tol: float | None
    disp: bool | None
    unknown: dict[str, Any]

    def run(self) -> Result:
        """Read, place, prepare, solve."""
        self._read()
        self._place()
        self._prepare()
        with owned(self.saver), self.threads, self.threads:  # twice: see `Threads`
            result = self._solve()
        if self.line is not None:
            self.line.close(result.message)
        if isinstance(self.ranks, Ranks):
            result |= {"determinant": None, "communication": self.ranks.communication}
        else:
            result["determinant"] = determinants(self.tree, result["x"])
        return result

    # -- what the arguments say, as far as one rank can tell -------------------------------

    def _read(self) -> None:
        self.ranks: Alone | Ranks = join(self.comm)
        self.tree: Tree
        self.solver: Solver
        self.leaves: NamedLeaves
        with self.ranks.together():
            translate(self)
            if self.unknown:
                names = [name for name in self.__dataclass_fields__ if name != "unknown"]
                names += ["args", "escape", "starts", "seed", "workers"]
                raise TypeError(suggest("option", next(iter(self.unknown)), names))
            check_value(self.value)
            self.tree = Tree(self.x0)
            self.solver = self._solver()
            self.leaves = leaves_of(self.tree, self.x0, self.manifold)
        if self.ranks is not ALONE:
            agree(self.ranks, self.leaves, {"method": self.solver} | self._common())

    def _solver(self) -> Solver:
        if self.nonsmooth is None:
            proximal.refuse_without_term(self.method)
            return solver_of(self.method, self.options)
        proximal.refuse_unsupported(self.precond, self.comm)
        has_hessian = self.hessp is not None or hasattr(self.fun, "hessp")
        return proximal.choose(self.method, self.options, has_hessian)

    def _common(self) -> dict[str, Any]:
        """The arguments on which all ranks must agree."""
        apart = {"fun", "x0", "manifold", "method", "options", "progress", "comm", "unknown"}
        apart |= {"disp", "nonsmooth", "constraints", "bounds"}  # which do not go with comm
        names = [name for name in self.__dataclass_fields__ if name not in apart]
        place = None if self.checkpoint is None else str(self.checkpoint)
        return {name: getattr(self, name) for name in names} | {"checkpoint": place}

    # -- where the point lives -------------------------------------------------------------

    def _place(self) -> None:
        self.passages = (DIRECT,) * len(self.leaves)
        if self.nonsmooth is None:
            self.passages = host_passages(self.leaves, self.solver)
        plain = self.comm is None and self.nonsmooth is None and self.precond is None
        remade = plain and getattr(self.solver, "framed", False)
        inside = hosted(self.leaves, self.passages)
        if remade:
            inside, self.passages = with_doubled(inside, self.passages)
        geometry, X = bind(self.tree, inside, self.ranks)
        X = tuple(map(own_copy, X)) if isinstance(X, tuple) else own_copy(X)
        self.geometry, self.X = geometry, feasible(geometry, X)
        self.restored = self.X is not X
        self.eps = geometry.eps(X)
        self.term: Sum | None = None
        given = self.X
        if remade:
            self.geometry, self.X = framed(geometry, self.X)
        self.is_framed = self.X is not given
        if self.nonsmooth is not None:
            self.term = proximal.read_term(self.nonsmooth, geometry, self.tree, self.X)

    # -- what is minimised, how, and until when --------------------------------------------

    def _prepare(self) -> None:
        ranks, limit = self.ranks, math.inf if self.maxfun is None else self.maxfun
        tolerances = self.rtol, self.gtol, self.ftol
        limits = self.maxiter, self.maxfun, self.maxtime
        with ranks.together():
            self._check()
            functions = self.fun, self.jac, self.tree, limit, self.hessp
            self.objective: CountedObjective = objective_of(
                *functions, ranks, self.value, self.leaves, self.passages
            )
            if self.is_framed:
                self.objective.seen = partial(seen, self.geometry)
            self.rule = rule_of(self.eps, *tolerances, *limits, self.stop)
            local = preconditioner_of(self.precond, self.objective)
        self.preconditioner = guarded(ranks, local, self.objective)
        self.saver = self._saver()
        self.threads: Threads = threads_for(self.X)
        if self.threads.libraries:
            self.objective.wrap(self.threads.freely)
        shown = self.progress and ranks.rank == 0
        self.line = ProgressLine(self.rule) if shown else None

    def _check(self) -> None:
        callback, fnoise = self.callback, self.fnoise
        if callback is not None and not callable(callback):
            raise TypeError(
                f"callback is {describe(callback)}; expected a function of the snapshot"
            )
        if fnoise is not None and not fnoise >= 0:
            raise ValueError(f"fnoise is {fnoise!r}; expected a number ≥ 0")

    def _saver(self) -> Checkpoint | None:
        """Where the run is saved: one file, or one a rank; None without a checkpoint."""
        if self.checkpoint is None:
            if self.resume:
                raise ValueError("resume=True needs the path of a checkpoint: pass checkpoint=")
            return None
        place = self.checkpoint, self.checkpoint_interval, self.resume, self.solver
        known: dict[str, Any] = {
            "precond": self.precond,
            "hessp": self.hessp,
            "fnoise": self.fnoise,
            "nonsmooth": self.term and self.term.terms,
        }
        if self.comm is None:
            known["given"] = tuple(leaf for leaf, _, _ in self.leaves.values())
            return open_checkpoint(*place, self.geometry, self.X, **known)
        ranks = self.ranks if isinstance(self.ranks, Ranks) else Ranks(self.comm)
        return open_rank_checkpoint(ranks, tuple(self.leaves.values()), *place, self.X, **known)

    # -- the run ---------------------------------------------------------------------------

    def _solve(self) -> Result:
        saver, X = self.saver, self.X
        saved = saver.load(self.geometry) if saver is not None and saver.exists() else None
        self.objective.calibrate(X, self.eps, 0.0 if self.term is None else self.term.steepness(X))
        check_invariant_gradient(self.geometry, X, self.objective.first_gradient)
        problem, callback = self._problem(), self.callback and self.threads.freely(self.callback)
        ledger = Ledger(problem, self.objective, self.ranks, restorations=int(self.restored))
        callback = shared_callback(self.ranks, callback)
        rule = self.rule
        if self.rtol is None and not (self.gtol or self.ftol):  # what is given means what it says
            rule = rule | RoundedGradient(self._rounding())
        run = Run(ledger, self._costed(), rule, callback, self.line, saver, self.term is None)
        if saver is not None and saved is not None:
            saver.recognise(saved, problem.gradient(X), self.objective.scale, self.fnoise or 0.0)
            return proximal.report(problem, run.resume(self._rewound(saved)))
        box, self.X = [X], None  # nobody holds on to the start
        del X
        return proximal.report(problem, run.start(box))

    def _costed(self) -> Solver:
        """The solver, told what an evaluation costs where it asks; ranks would not agree on it."""
        solver = self.solver
        if not isinstance(solver, LBFGS) or solver.cost != "measure" or self.comm is not None:
            return solver
        return solver.measured(self.objective.first_seconds, self._entries())

    def _entries(self) -> int:
        leaves = self.X if isinstance(self.X, tuple) else (self.X,)
        return sum(math.prod(leaf.shape) for leaf in leaves)

    def _problem(self) -> Problem:
        objective, precond = self.objective, self.preconditioner
        fnoise = None if self.fnoise is None else self.fnoise * objective.scale
        model = Model(self.eps, fnoise, objective.initial_magnitude)
        precond = precond and self.threads.freely(precond)
        hessp = objective.hessian_product
        problem = Problem(self.geometry, objective, precond, hessp, model)
        return problem if self.term is None else proximal.with_term(problem, self.term, self.solver)

    def _rounding(self) -> float:
        """What rounding leaves of a gradient when it is projected, in the user's units."""
        entries = self.ranks.total(self._entries())
        largest = self.objective.largest_gradient / self.objective.scale
        return 2.0 * self.eps * math.sqrt(entries) * largest

    def _rewound(self, saved: Saved) -> Saved:
        """The counts of the run so far are those of the file."""
        if self.precond is not None:
            self.objective.hold_aux(saved.state.x)
        nhev = int(saved.history.as_array()["nhev"][-1])
        self.objective.rewind(saved.nfev, saved.njev, saved.scale, nhev)
        return saved
