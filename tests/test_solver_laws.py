"""What every solver promises, on every problem with a known minimum."""

import itertools
import math

import numpy as np
import pytest

import oracles
import stiefel
from cases import PROBLEMS, SOLVERS
from runs import states
from stiefel import AcceleratedGradient, GradientDescent, Status

RTOL = 1e-8


def solve(problem, method, fun=None, **options):
    options = {"rtol": RTOL, "manifold": problem.manifold} | options
    return stiefel.minimize(fun or problem.objective, problem.start, method=method, **options)


@pytest.mark.parametrize("method", SOLVERS)
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
class TestEverySolver:
    def test_finds_the_minimum_and_tells_the_truth(self, problem, method):
        result = solve(problem, method)
        assert result.status is Status.CONVERGED, result.message
        assert result.fun == pytest.approx(problem.minimum, rel=1e-9, abs=1e-9)
        f, G = problem.objective.value_and_gradient(result.x)
        assert result.fun == pytest.approx(f, rel=1e-13, abs=1e-13)
        geometry = problem.manifold
        projected = geometry.project(result.x, G)
        initial = geometry.norm(
            problem.start,
            geometry.project(problem.start, problem.objective(problem.start)[1]),
        )
        # The tolerance holds at the returned point, measured afresh.
        norm = geometry.norm(result.x, projected)
        assert norm <= RTOL * initial * (1 + 1e-3) + 1e-13
        assert result.gradient_norm == pytest.approx(norm, rel=1e-2, abs=1e-12)
        assert np.allclose(result.grad, projected, atol=1e-11)
        assert result.feasibility == pytest.approx(geometry.defect(result.x), abs=1e-15)
        assert result.feasibility <= 1e-13
        assert len(result.history) == result.nit + 1
        assert result.history["gradient_norm"][-1] == pytest.approx(result.gradient_norm)

    def test_same_start_same_bits(self, problem, method):
        first, second = solve(problem, method), solve(problem, method)
        assert np.array_equal(first.x, second.x)
        columns = [name for name in first.history.as_array().dtype.names if name != "seconds"]
        for name in columns:
            assert np.array_equal(first.history[name], second.history[name]), name
        assert not np.shares_memory(first.x, problem.start)

    def test_scaled_functions_are_solved(self, problem, method):
        """The paper's search moves on a lattice of steps, so iterates differ; answers do not."""
        scale = 2.0**14 if PROBLEMS.index(problem) % 2 else 2.0**-14

        def fun(X):
            f, G = problem.objective.value_and_gradient(X)
            return scale * f, scale * G

        result = solve(problem, method, fun)
        assert result.success, result.message
        assert result.fun == pytest.approx(scale * problem.minimum, rel=1e-8, abs=1e-9 * scale)

    def test_a_constant_changes_nothing(self, problem, method):
        constant = 64.0

        def fun(X):
            f, G = problem.objective.value_and_gradient(X)
            return f + constant, G

        result = solve(problem, method, fun, rtol=1e-5)
        plain = solve(problem, method, rtol=1e-5)
        assert result.success
        assert result.fun - constant == pytest.approx(plain.fun, abs=1e-6)


BROCKETT = PROBLEMS[0]


@pytest.mark.parametrize("method", SOLVERS)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("after", [1, 2, 9, 20])
def test_values_that_are_not_finite_end_the_run(method, bad, after):
    """From some call on nothing is finite: the run ends, and its point is the best finite one."""
    calls = []

    def fun(X):
        calls.append(1)
        f, G = BROCKETT.objective.value_and_gradient(X)
        return (f, G) if len(calls) < after else (bad, G * np.nan)

    result = solve(BROCKETT, method, fun, maxiter=2000)
    assert not result.success
    assert result.status in (Status.NOT_FINITE, Status.STEP_NOT_FOUND, Status.ROUNDING_LIMIT)
    assert len(calls) < after + 200
    assert np.isfinite(result.x).all()
    if after > 1:
        assert math.isfinite(result.fun)


@pytest.mark.parametrize("method", SOLVERS)
def test_a_wall_of_nan_is_walked_around(method):
    """NaN beyond some distance is a step too long, not the end."""
    last = {"x": BROCKETT.start}

    def fun(X):
        f, G = BROCKETT.objective.value_and_gradient(X)
        return (math.nan if np.linalg.norm(X - last["x"]) > 0.3 else f), G

    def callback(snapshot):
        last["x"] = snapshot.x

    result = solve(BROCKETT, method, fun, callback=callback, maxiter=3000)
    assert result.success, result.message
    assert result.fun == pytest.approx(BROCKETT.minimum, rel=1e-9)


# -- the paper's method -------------------------------------------------------------------------


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
@pytest.mark.parametrize("solver", [AcceleratedGradient(), GradientDescent()], ids=["1", "descent"])
def test_f_never_rises_at_accepted_points(problem, solver):
    taken = states(solver, problem.objective, problem.start, problem.manifold, 80)
    values = np.array([s.f_X for s in taken])
    # A sum of squares of rounding errors is not zero: beneath it f means nothing.
    assert np.all(np.diff(values) <= 1e-14 * np.abs(values[1:]) + 1e-28)


@pytest.mark.parametrize("restart", ["function", "gradient"])
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_a_restart_drops_the_momentum(problem, restart):
    solver = AcceleratedGradient(restart=restart)
    steps = 150 if problem.name == "brockett-generalised" else 60
    taken = states(solver, problem.objective, problem.start, problem.manifold, steps)
    restarts = [(a, b) for a, b in itertools.pairwise(taken) if b.restarted]
    assert restarts
    for before, after in restarts:
        assert after.x is after.X
        assert np.array_equal(after.X, before.X)
        assert after.k == 0
        assert after.f_X == before.f_X
    for before, after in itertools.pairwise(taken):
        assert after.k == (0 if after.restarted else before.k + 1)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_the_step_meets_the_armijo_condition(problem):
    taken = states(AcceleratedGradient(), problem.objective, problem.start, problem.manifold, 25)
    for before, after in itertools.pairwise(taken):
        if after.restarted or after.watch.blind:
            continue
        required = before.at.f + 0.5 * after.gamma * before.aim.slope
        assert after.f_X <= required + 1e-13 * abs(before.at.f)
        on_lattice = math.log(after.gamma / 0.1, 1.7)
        assert abs(on_lattice - round(on_lattice)) < 1e-6


def test_the_optimal_weights_are_optimal():
    """Eqs. (condition_number_calc_eigenvectors) to (optimal_alpha), in the library's objective."""
    from stiefel.objectives import brockett_condition_number, optimal_weights

    eigenvalues = np.sort(np.random.default_rng(1).uniform(0, 5, 12))
    weights = optimal_weights(eigenvalues, 4)
    expected = oracles.optimal_condition_number(eigenvalues, 4)
    assert brockett_condition_number(eigenvalues, weights) == pytest.approx(expected)
    rng = np.random.default_rng(2)
    for _ in range(20):
        others = np.sort(weights * rng.uniform(0.8, 1.2, 4))
        assert brockett_condition_number(eigenvalues, others) >= expected * (1 - 1e-12)


@pytest.mark.parametrize("method", ["accelerated", "gradient-descent"])
def test_a_value_of_minus_infinity_makes_no_step_grow(method):
    """Steps grew until a point overflowed: spans ended in an error of the SVD."""
    calls = []

    def fun(X):
        calls.append(X)
        G = 2 * np.arange(1.0, 21.0)[:, None] * X
        return (-np.inf if len(calls) > 1 else np.sum(X * G) / 2), G

    x0 = stiefel.random_point(20, 3, seed=0)
    result = stiefel.minimize(fun, x0, method=method, manifold=stiefel.Grassmann())
    assert result.status is Status.NOT_FINITE and not result.success
    assert result.nfev == len(calls) <= 4
