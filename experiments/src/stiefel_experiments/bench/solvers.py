"""Who is compared: our methods under their names, and the solvers of the other libraries."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

import stiefel
from stiefel.types import Array

from .meter import Meter
from .problems import Problem

Solve = Callable[[Meter, Array], Array]  # ends at the returned point, or by the meter's Stop

OURS = "stiefel"
METHODS = ("auto", "accelerated", "accelerated-gradient-restart", "gradient-descent", "lbfgs",
           "cg", "trust-region")  # fmt: skip


@dataclass(frozen=True)
class Solver:
    """One column of the comparison."""

    name: str
    library: str
    label: str
    module: str  # of this package, imported in the process that runs the solver
    general: bool = True  # False: only solves eigenproblems, shown for scale
    stacks: bool = True  # takes (m, n, k) points
    oracle: bool = False  # is told something about the solution that no user knows

    @property
    def ours(self) -> bool:
        return self.library == OURS

    @property
    def rival(self) -> bool:
        """Of another library, and able to solve any problem."""
        return self.general and not self.ours

    def missing(self) -> str | None:
        """A sentence if its library is not installed."""
        for package in (self.library, *(["torch"] if self.library == "geoopt" else [])):
            if importlib.util.find_spec(package) is None:
                return (f"{self.library} is skipped: {package} is not installed (in a clone of "
                        "the repository: pip install './experiments[peers]')")  # fmt: skip
        return None

    def refuses(self, problem: Problem) -> str | None:
        """A sentence if the solver cannot be applied to the problem."""
        if not self.general and not problem.diagonal:
            return f"{self.label} solves eigenproblems only"
        if not self.stacks and len(problem.shape) > 2:
            return f"{self.label} takes one matrix, not a stack"
        return None

    def load(self) -> Solve:
        module = importlib.import_module(f"{__package__}.{self.module}")
        solve: Solve = module.SOLVERS[self.name]
        return solve


_ALL = (
    *(Solver(name, OURS, f"stiefel {name}", "solvers") for name in METHODS),
    Solver("pymanopt-cg-hs", "pymanopt", "pymanopt CG (Hestenes–Stiefel)", "peer_pymanopt"),
    Solver("pymanopt-cg-pr", "pymanopt", "pymanopt CG (Polak–Ribière)", "peer_pymanopt"),
    Solver("pymanopt-trust-regions", "pymanopt", "pymanopt trust regions", "peer_pymanopt"),
    Solver("pymanopt-steepest", "pymanopt", "pymanopt steepest descent", "peer_pymanopt"),
    Solver("geoopt-nesterov", "geoopt", "geoopt SGD, Nesterov, step 1/L", "peer_geoopt",
           oracle=True),
    Solver("geoopt-cg", "geoopt", "geoopt line search (CG, Wolfe)", "peer_geoopt"),
    Solver("cdopt-lbfgs", "cdopt", "cdopt + L-BFGS-B", "peer_cdopt", stacks=False),
    Solver("cdopt-cg", "cdopt", "cdopt + CG", "peer_cdopt", stacks=False),
    Solver("scipy-lbfgs", "scipy", "SciPy L-BFGS-B, polar map", "peer_scipy"),
    Solver("lobpcg", "scipy", "SciPy LOBPCG", "peer_scipy", general=False),
    Solver("arpack", "scipy", "SciPy ARPACK", "peer_scipy", general=False),
)  # fmt: skip
ALL = {solver.name: solver for solver in _ALL}


def _run_ours(method: str) -> Solve:
    """Our own stopping rule decides; the norm at the returned point is measured afterwards."""

    def solve(meter: Meter, X0: Array) -> Array:
        problem = meter.problem
        result = stiefel.minimize(
            meter, X0, manifold=problem.manifold, method=method, hessp=meter.hessp,
            rtol=problem.rtol, maxiter=10**9,
        )  # fmt: skip
        meter.iterations, meter.message = int(result.nit), result.message
        return result.x

    return solve


SOLVERS = {name: _run_ours(name) for name in METHODS}
