"""The call as users see it: result, history, stopping rules, progress, public points."""

import math

import numpy as np
import pytest
import scipy.optimize

import oracles
import stiefel
import stiefel.objectives
from cases import PROBLEMS
from stiefel import MaxIterations, MaxSeconds, RelativeGradient, Status, minimize
from stiefel.runs.stopping import AbsoluteGradient, MaxEvaluations, SmallDecrease

BROCKETT = PROBLEMS[0]


@pytest.fixture(scope="module")
def result():
    return minimize(BROCKETT.objective, BROCKETT.start, method="accelerated", rtol=1e-7)


def test_the_result_is_scipy_shaped(result):
    assert isinstance(result, scipy.optimize.OptimizeResult)
    names = "x fun grad gradient_norm feasibility nit nfev njev restarts success status message"
    for name in [*names.split(), "history", "seconds"]:
        assert name in result and result[name] is getattr(result, name)
    text = repr(result)
    assert "CONVERGED" in text and "array of shape (30, 3)" in text
    assert str(result.status) == "CONVERGED"
    assert result.message.startswith("CONVERGED: gradient norm")


def test_history_is_a_table(result):
    table = result.history.as_array()
    assert len(table) == len(result.history) == result.nit + 1
    names = ("value", "gradient_norm", "step", "momentum", "nfev", "njev", "seconds", "restart")
    assert set(names) <= set(table.dtype.names)
    for name in names:
        assert np.array_equal(result.history[name], table[name])
    assert table["nfev"][-1] == result.nfev and table["njev"][-1] == result.njev
    assert table["restart"].sum() == result.restarts > 0
    assert np.all(table["momentum"][table["restart"]] == 0)
    assert np.all(np.diff(table["seconds"]) >= 0)
    assert table["value"][0] == BROCKETT.objective.value(BROCKETT.start)
    assert np.all(table["step"] > 0)
    assert np.asarray(result.history).dtype == table.dtype
    assert table.itemsize < 100  # numbers, no copies of points
    with pytest.raises(KeyError, match="gradient_norm"):
        result.history["gradient"]


def test_a_copy_of_the_history_is_the_user_s(result):
    result.history.as_array()["value"][:] = 0.0
    assert result.history["value"][0] != 0.0


RULES = {
    Status.CONVERGED: RelativeGradient(1e-3) | MaxIterations(10_000),
    Status.MAX_ITERATIONS: MaxIterations(4) | RelativeGradient(1e-12),
    Status.MAX_EVALUATIONS: MaxEvaluations(9) | MaxIterations(1000),
    Status.MAX_TIME: MaxSeconds(1e-9) | MaxIterations(1000),
}


@pytest.mark.parametrize("status", RULES, ids=str)
def test_rules_combine_and_explain_themselves(status):
    result = minimize(BROCKETT.objective, BROCKETT.start, rtol=0, stop=RULES[status])
    assert result.status is status
    assert result.success is (status is Status.CONVERGED)
    assert re_number(result.message)


def re_number(text):
    return any(c.isdigit() for c in text)


def test_tolerances():
    run = lambda **options: minimize(BROCKETT.objective, BROCKETT.start, **options)
    absolute = run(rtol=0, gtol=1e-3)
    assert absolute.success and absolute.gradient_norm <= 1e-3
    either = run(rtol=0, stop=AbsoluteGradient(1e-3))
    assert either.nit == absolute.nit
    flat = run(rtol=0, ftol=1e-6)
    assert flat.success and "fell" in flat.message
    assert run(rtol=0, stop=SmallDecrease(1e-6)).nit == flat.nit
    assert run(rtol=1e-3).nit < run(rtol=1e-6).nit


def test_single_precision_has_its_own_tolerance():
    start = BROCKETT.start.astype(np.float32)
    objective = stiefel.objectives.Brockett(np.arange(1.0, 31.0), [1.0, 2.0, 3.0])
    result = minimize(objective, start)
    assert result.success
    assert result.x.dtype == np.float32
    assert "0.0001" in result.message
    assert result.fun == pytest.approx(10.0, rel=1e-4)


def test_options_are_the_method_s_parameters():
    by_name = minimize(
        BROCKETT.objective,
        BROCKETT.start,
        method="accelerated",
        options={"growth_threshold": 0.7, "initial_step": 0.01},
    )
    solver = stiefel.AcceleratedGradient(growth_threshold=0.7, initial_step=0.01)
    by_instance = minimize(BROCKETT.objective, BROCKETT.start, method=solver)
    assert np.array_equal(by_name.x, by_instance.x)
    assert by_name.history["step"][0] == 0.01


def test_progress_goes_to_standard_error(capsys):
    minimize(BROCKETT.objective, BROCKETT.start, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "iteration 0" in err and "CONVERGED" in err.splitlines()[-1]
    minimize(BROCKETT.objective, BROCKETT.start)
    assert capsys.readouterr() == ("", "")


# -- public points --------------------------------------------------------------------------------


def test_interpolation_and_extrapolation():
    rng = np.random.default_rng(3)
    X = oracles.random_point(rng, 12, 3)
    Y = oracles.random_near(rng, X, 0.8)
    assert np.allclose(stiefel.interpolate(X, Y, 0.0), X)
    assert np.allclose(stiefel.interpolate(X, Y, 1.0), Y)
    middle = stiefel.interpolate(X, Y, 0.5)
    assert np.allclose(middle, oracles.extrapolate(X, Y, 0.5))
    assert np.allclose(stiefel.extrapolate(X, Y, 1.7), oracles.extrapolate(X, Y, 1.7))
    distance = lambda a, b: np.linalg.norm(a - b)
    assert max(distance(X, middle), distance(middle, Y)) < distance(X, Y)


def test_the_nearest_point_is_nearest():
    rng = np.random.default_rng(4)
    A = rng.standard_normal((9, 3))
    P = stiefel.nearest(A)
    best = np.linalg.norm(A - P)
    for _ in range(50):
        Q = oracles.random_near(rng, P, 0.1)
        assert np.linalg.norm(A - Q) >= best
    R = stiefel.nearest(rng.standard_normal((5, 3, 3)), manifold=stiefel.SpecialOrthogonal())
    assert np.allclose(np.linalg.det(R), 1.0)


def test_random_points_are_uniform():
    """The distribution is invariant under X → QX: first entries have mean 0 and variance 1/n."""
    n, samples = 5, 4000
    X = stiefel.random_point(samples, n, 2, seed=0)
    entries = X[:, 0, 0]
    assert abs(entries.mean()) < 5 / math.sqrt(samples * n)
    assert abs(entries.var() - 1 / n) < 0.02
    assert np.array_equal(X, stiefel.random_point(samples, n, 2, seed=0))
    assert not np.array_equal(X, stiefel.random_point(samples, n, 2, seed=1))


def test_square_starts_are_warned_about():
    """O(n) has two components, and a run cannot leave the one it starts in."""
    start = stiefel.random_point(4, 4, seed=1)
    objective = stiefel.objectives.Rayleigh(np.arange(1.0, 5.0), columns=4)
    with pytest.warns(UserWarning, match="determinant"):
        minimize(objective, start, maxiter=1)
