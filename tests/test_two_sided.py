"""The two-sided search on smooth functions: however long the first step is, a good one is found."""

import numpy as np
import pytest

import stiefel
from stiefel.function.counted import CountedObjective
from stiefel.function.trees import Tree
from stiefel.geometry import Stiefel
from stiefel.objectives import Brockett
from stiefel.solvers.noise import Model, Watch
from stiefel.solvers.problem import Problem
from stiefel.solvers.two_sided import TwoSided


def near_the_minimum(rtol):
    f = Brockett.table(60, 4)
    x = stiefel.minimize(f, stiefel.random_point(60, 4, seed=3), rtol=rtol).x
    geometry = Stiefel().bind(x)
    objective = CountedObjective(f, None, Tree(x), x)
    return Problem(geometry, objective, noise=Model(magnitude=200.0)), x


@pytest.mark.parametrize("rtol", [1e-2, 1e-4, 1e-5, 1e-6, 1e-7])
def test_a_step_that_is_too_long_is_not_taken_for_noise(rtol):
    """Leaps to shorter steps must not pass over the good ones and then blame the function."""
    problem, x = near_the_minimum(rtol)
    at = problem.gradient(x)
    aim = problem.against(x, *problem.steepest(x, at))
    stable = 1.0 / (2.0 * 4.0 * 60.0)  # 1/L at the minimum
    for too_long in 1.5 ** np.arange(60):
        trial = TwoSided()(problem, at, aim, too_long * stable, Watch(), 0.0)
        assert trial is not None
        assert not trial.watch.blind
        assert trial.watch.noise == 0.0
        armijo = at.f + 0.5 * trial.gamma * aim.slope
        assert trial.f <= armijo + problem.noise.level(at.f)


@pytest.mark.parametrize("shape", [(4, 2), (30, 3)])
@pytest.mark.parametrize("first", [1e-10, 1e10, 1e30, 1e60, 1e100, 1e200, 1e300, 1e308])
def test_a_first_step_of_any_size_finds_its_way(first, shape):
    """A leap from far above may end where growth is not visible any more."""
    objective, X0 = Brockett.linear(*shape), stiefel.random_point(*shape, seed=0)
    options = {"initial_step": first}
    result = stiefel.minimize(objective, X0, method="accelerated", options=options, rtol=1e-8)
    assert result.success and result.nfev < 600, result
