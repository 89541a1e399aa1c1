"""The solvers that users compare with: known answers, laws of the search, SciPy when flat."""

import numpy as np
import pytest

import stiefel
from stiefel.geometry import Stiefel
from stiefel.objectives import Brockett

METHODS = ("lbfgs", "cg", "trust-region")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_finds_the_eigenvectors(method, dtype):
    objective = Brockett.linear(60, 4)
    x0 = Stiefel().random(60, 4, seed=1, dtype=dtype)
    result = stiefel.minimize(objective, x0, method=method, rtol=1e-10)
    assert result.success, result.message
    assert result.fun == pytest.approx(objective.minimum, rel=1e-12)
    assert np.allclose(np.abs(result.x), np.abs(objective.minimizer), atol=1e-7)
