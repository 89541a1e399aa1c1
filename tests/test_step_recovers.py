"""Near rounding, one iteration that needs a short step must not shorten all that follow."""

import numpy as np

import stiefel
from stiefel.objectives import Rayleigh


def test_gradient_descent_keeps_its_rate_where_growth_cannot_be_seen() -> None:
    # On this start the last long step excites the stiff components just as the decrease that
    # growth looks for falls below the rounding of f.
    n = 1000
    X0 = stiefel.random_point(n, 1, seed=0)
    method = stiefel.GradientDescent(growth_threshold=0.7)
    result = stiefel.minimize(Rayleigh.linear(n), X0, method=method, rtol=1e-10, maxiter=20_000)
    assert result.success, result.message
    norms = result.history["gradient_norm"] / result.history["gradient_norm"][0]
    decades = np.diff([int(np.argmax(norms <= 10.0**-d)) for d in range(3, 11)])
    # Linear convergence: a decade costs the same everywhere, here within a factor of four.
    assert decades.max() <= 4 * decades[:4].max(), decades
