"""cdopt: the constraint is dissolved into a function on R^{n×k}, which SciPy then minimises.

Its penalty is found by its own rule, whose sixty evaluations are counted.
"""

from __future__ import annotations

from typing import Any

import cdopt
import numpy as np

from stiefel.types import Array

from .meter import Meter
from .peer_scipy import LBFGS, restarted


def _solve(method: str, options: dict[str, Any], meter: Meter, X0: Array) -> Array:
    manifold = cdopt.manifold_np.stiefel_np(X0.shape)
    state = np.random.get_state()  # noqa: NPY002 - cdopt draws from the global generator
    np.random.seed(0)  # noqa: NPY002
    try:
        problem = cdopt.core.problem(
            manifold,
            meter.value,
            obj_grad=meter.gradient,
            obj_hvp=meter.hessp,
            beta="auto",
            Xinit=X0,
        )
    finally:
        np.random.set_state(state)  # noqa: NPY002
    x = restarted(
        meter,
        problem.cdf_fun_vec_np,
        problem.Xinit_vec_np,
        jac=problem.cdf_grad_vec_np,
        method=method,
        options=options,
    )
    return manifold.Post_process(manifold.v2m(manifold.array2tensor(x)))


CG = {"maxiter": 10**9, "gtol": 0.0}

SOLVERS = {
    "cdopt-lbfgs": lambda meter, X0: _solve("L-BFGS-B", LBFGS, meter, X0),
    "cdopt-cg": lambda meter, X0: _solve("CG", CG, meter, X0),
}
