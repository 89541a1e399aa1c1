"""Thousands of accelerated steps leave points orthonormal to rounding."""

import math

import numpy as np
import pytest

from runs import states
from stiefel import AcceleratedGradient, Grassmann, Stiefel, random_point
from stiefel.objectives import Brockett

STEPS = 10_000


@pytest.mark.parametrize(
    ("n", "k", "dtype", "steps"),
    [
        (60, 4, np.float64, STEPS),
        (60, 4, np.float32, STEPS),
        (60, 4, np.complex128, 2000),
        (40, 1, np.float64, 2000),
        (40, 1, np.float32, 2000),
    ],
    ids=str,
)
def test_accelerated_steps(n, k, dtype, steps):
    """No stopping rule, so that rounding has its full say after convergence."""
    allowed = 1e-5 if dtype is np.float32 else 1e-13
    objective = Brockett.table(n, k)
    solver, manifold = AcceleratedGradient(), Stiefel()
    X0 = random_point(n, k, seed=1, dtype=dtype)
    last = states(solver, objective, X0, manifold, steps)[-1]
    for P in (last.x, last.X):
        assert P.dtype == dtype
        assert manifold.defect(P) <= allowed * math.sqrt(k)


@pytest.mark.parametrize("manifold", [Stiefel(), Grassmann()], ids=str)
@pytest.mark.parametrize(("dtype", "allowed"), [(np.float64, 1e-13), (np.float32, 1e-5)], ids=str)
def test_momentum_without_a_function(manifold, dtype, allowed):
    """Extrapolations from the last two points with random kicks: nothing ever settles."""
    rng = np.random.default_rng(3)
    n, k = 30, 4
    X = random_point(n, k, seed=2, dtype=dtype)
    manifold = manifold.bind(X)
    Y = X
    for _ in range(2000):
        Z = manifold.extrapolate(X, Y, 1.9)
        kick = manifold.project(Z, (0.02 * rng.standard_normal((n, k))).astype(dtype))
        X, Y = Y, manifold.ray(Z, kick)(1.0)
    assert manifold.defect(Y) <= allowed * math.sqrt(k)
