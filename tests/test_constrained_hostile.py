"""Hostile constraints: whatever they do, the end is truthful, and it comes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, NonlinearConstraint

import stiefel
from stiefel import Status
from stiefel.constrained.blocks import blocks_of
from stiefel.constrained.infeasible import Violation
from stiefel.function.trees import Tree

A = np.diag(np.arange(1.0, 9.0))
X0 = stiefel.random_point(8, 2, seed=3)
METHODS = ("auto", "lbfgs")  # the sequential method, and the augmented Lagrangian


def fun(X):
    return -float(np.vdot(X, A @ X)), -2.0 * A @ X


def solve(constraints, method="auto", function=fun, **given):
    given = {"maxfun": 400} | given
    return stiefel.minimize(function, X0, constraints=constraints, method=method, **given)


def broken_after(calls, value):
    """A constraint that is fine for some calls."""
    count = [0]

    def c(X):
        count[0] += 1
        return X[0].sum() if count[0] <= calls else value

    return c


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("calls", [0, 6, 40])
def test_values_that_are_not_finite(method, value, calls):
    c = broken_after(calls, value)
    jac = lambda X: np.kron(np.eye(8)[0], np.ones(2))[None]
    result = solve(NonlinearConstraint(c, 0.1, 0.1, jac=jac), method)
    if result.success:  # it was over before anything broke
        assert calls == 40
        assert abs(result.x[0].sum() - 0.1) <= 1e-6
    else:
        assert result.status is not Status.CONVERGED
        assert result.message.startswith(result.status.name)
    assert result.nfev <= 400


@pytest.mark.parametrize("method", METHODS)
def test_a_function_that_breaks(method):
    calls = [0]

    def breaking(X):
        calls[0] += 1
        f, G = fun(X)
        return (f, G) if calls[0] <= 5 else (np.nan, np.nan * G)

    result = solve(LinearConstraint(np.ones((1, 16)), 0, 0), method, breaking)
    assert not result.success
    assert result.nfev == calls[0] <= 400


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "infeasible",
    [
        NonlinearConstraint(lambda X: X[:, 0] @ X[:, 0], 2, 2),  # its slope is zero
        NonlinearConstraint(lambda X: X[:, 0] @ X[:, 1], 0.5, 0.5),
        LinearConstraint(np.ones((1, 16)), 20, np.inf),
        LinearConstraint(np.ones((2, 16)), [0, 1], [0, 1]),  # one row, two right-hand sides
        [
            NonlinearConstraint(lambda X: X[0, 0], 0.5, np.inf),
            LinearConstraint(np.eye(16)[:1], -1, 0),
        ],
    ],
    ids=["norm", "angle", "too far", "twice", "two blocks"],
)  # fmt: skip
def test_infeasible_constraints(method, infeasible):
    result = solve(infeasible, method, maxfun=3000)
    assert not result.success
    assert result.status in (Status.INFEASIBLE, Status.STEP_NOT_FOUND, Status.MAX_EVALUATIONS)
    assert result.constraint_violation > 1e-3
    assert np.linalg.norm(result.x.T @ result.x - np.eye(2)) < 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_contradictions_are_told_soon(seed):
    """By 346 to 392 evaluations; 3000 are not enough without WITHOUT_GAIN."""
    twice = LinearConstraint(np.ones((2, 16)), [0, 1], [0, 1])
    X = stiefel.random_point(8, 2, seed=seed)
    result = stiefel.minimize(fun, X, constraints=twice, maxfun=500)
    assert result.status is Status.INFEASIBLE, result.message


@pytest.mark.parametrize("method", METHODS)
def test_a_level_violation_is_told_soon(method):
    """Where no short way lessens it; otherwise the penalty grows for thousands of evaluations."""
    result = solve(NonlinearConstraint(lambda X: X[:, 0] @ X[:, 0], 2, 2), method, maxfun=100)
    assert result.status is Status.INFEASIBLE, result.message


@pytest.mark.parametrize("maxfun", [1, 2, 3])
@pytest.mark.parametrize("method", METHODS)
def test_few_evaluations_are_enough_to_say_so(method, maxfun):
    calls = []
    counted = lambda X: calls.append(None) or fun(X)
    balanced = LinearConstraint(np.ones((1, 16)), 0, 0)
    result = stiefel.minimize(counted, X0, constraints=balanced, method=method, maxfun=maxfun)
    assert result.status is Status.MAX_EVALUATIONS, result.message
    assert result.nfev == len(calls) <= max(maxfun, 2) and np.isfinite(result.fun)


@pytest.mark.parametrize("answer", [1j, "much", None])
def test_constraints_are_real_numbers(answer):
    with pytest.raises(TypeError, match=r"constraints\[0\] returned .*; expected real numbers"):
        solve(NonlinearConstraint(lambda X: answer, 0, 0))


def test_a_map_of_another_size_is_told():
    with pytest.raises(ValueError, match=r"A of shape \(3, 5\); expected 8 columns"):
        stiefel.minimize(fun, X0, nonsmooth=stiefel.L1(1.0, of=np.ones((3, 5))))


def violation(constraint, X):
    return Violation(blocks_of(constraint, None, None, X), Tree(X), None)


def test_a_level_violation_has_no_way_out():
    """Its rounding is lower at 14 of these 20 points."""
    never = NonlinearConstraint(lambda X: X[:, 0] @ X[:, 0], 2, 2)
    for seed in range(20):
        X = stiefel.random_point(8, 2, seed=seed)
        assert violation(never, X).lessened(X) is None


def test_a_small_fall_is_a_way_out():
    """yᵀx ≥ 1000 at x = −y: on the other side v is lower by 0.4 percent at most."""
    y = np.ones((6, 1)) / np.sqrt(6)
    far = NonlinearConstraint(lambda X: (X.T @ y).ravel(), 1000, np.inf)
    Y = violation(far, -y).lessened(-y)
    assert Y is not None and violation(far, Y).value(Y) < violation(far, -y).value(-y)


@pytest.mark.parametrize("method", METHODS)
def test_the_largest_violation_is_left(method):
    """x ≥ 0 from x = −y: every entry is wrong, and to first order no direction helps."""
    rng = np.random.default_rng(4)
    y = 0.1 + rng.uniform(size=(20, 1))
    y /= np.linalg.norm(y)
    fun = lambda X: (-0.5 * float(np.vdot(X, y)) ** 2, -float(np.vdot(X, y)) * y)
    result = stiefel.minimize(fun, -y, bounds=(0, None), method=method)
    assert result.success, result.message
    np.testing.assert_allclose(result.x, y, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_a_constraint_that_orthonormality_implies(method):
    """x₁ᵀx₂ = 0 holds anyway: its slope along tangents is zero, and nothing is lost."""
    result = solve(NonlinearConstraint(lambda X: X[:, 0] @ X[:, 1], 0, 0), method)
    assert result.success, result.message
    assert result.fun == pytest.approx(-15.0, rel=1e-6)


def wrong(X):
    """Of c = Σ X, but for other entries."""
    return np.arange(16.0).reshape(1, 8, 2)


@pytest.mark.parametrize("method", METHODS)
def test_a_wrong_jacobian_is_never_a_success(method):
    result = solve(NonlinearConstraint(lambda X: X.sum(), 0, 0, jac=wrong), method, maxfun=3000)
    assert not result.success
    ones = lambda X: np.ones((1, 16))
    right = solve(NonlinearConstraint(lambda X: X.sum(), 0, 0, jac=ones), method)
    assert right.success, right.message


def test_a_wrong_jacobian_is_named():
    """Right along the way and wrong at the end, where only the look at the end can tell."""
    c = lambda X: 2.0 * X.sum()
    half = NonlinearConstraint(c, 0, 0, jac=lambda X: np.ones((1, 16)))  # parallel: KKT holds
    result = solve(half)
    assert not result.success
    assert result.status is Status.STEP_NOT_FOUND
    assert "the jac of constraints[0] contradicts its values" in result.message


@pytest.mark.parametrize("method", METHODS)
def test_exceptions_are_the_users(method):
    def c(X):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        solve(NonlinearConstraint(c, 0, 0), method)


def test_shapes_are_told():
    with pytest.raises(ValueError, match=r"jac of constraints\[0\] returned the shape \(1, 5\)"):
        solve(NonlinearConstraint(lambda X: X.sum(), 0, 0, jac=lambda X: np.ones((1, 5))))
    with pytest.raises(ValueError, match="returned 2 rows, and its function 1 values"):
        solve(NonlinearConstraint(lambda X: X.sum(), 0, 0, jac=lambda X: np.ones((2, 16))))
    with pytest.raises(ValueError, match="lower bound above its upper"):
        solve(NonlinearConstraint(lambda X: X.sum(), 1, 0))
    with pytest.raises(ValueError, match="expected as many"):
        solve(NonlinearConstraint(lambda X: X.sum(axis=0), np.zeros(3), np.zeros(3)))
    lengths = iter([1, 1, 1, 1, 1, 1, 2, 2, 2, 2])
    c = lambda X: X[0, : next(lengths)]
    with pytest.raises(ValueError, match="as many at every point"):
        solve({"type": "ineq", "fun": c, "jac": lambda X: np.eye(1, 16)})


@pytest.mark.parametrize("method", METHODS)
def test_counts_and_callbacks(method):
    calls, seen = [0, 0], []

    def counted(X):
        calls[0] += 1
        return fun(X)

    def c(X):
        calls[1] += 1
        return X.sum(axis=0)

    given = NonlinearConstraint(c, 0, 0)  # differences: they count, too
    result = solve(given, method, counted, callback=lambda s: seen.append(s.nfev))
    assert result.success, result.message
    assert (result.nfev, result.ncev) == tuple(calls)
    assert len(seen) >= result.nit > 0
    stopped = solve(given, method, callback=lambda s: s.nit == 2)
    assert stopped.status is Status.STOPPED_BY_CALLBACK
    assert solve(given, method, maxiter=2).status is Status.MAX_ITERATIONS
    limited = solve(given, method, maxfun=4)
    assert limited.status is Status.MAX_EVALUATIONS
    assert limited.nfev <= 4
    assert solve(given, method, maxtime=1e-9).status is Status.MAX_TIME


@pytest.mark.parametrize("method", METHODS)
def test_callbacks_mean_the_same_as_without_constraints(method):
    """True of any library and StopIteration stop a run; other answers do not."""
    c = NonlinearConstraint(lambda X: X[0, 0], 0.3, np.inf)

    def raising(snapshot):
        raise StopIteration

    for stopping in (raising, lambda s: True, lambda s: np.True_):
        assert solve(c, method, callback=stopping).status is Status.STOPPED_BY_CALLBACK
    for answer in (1, "yes", np.array([True, True]), np.False_, None):
        result = solve(c, method, callback=lambda s, answer=answer: answer)
        assert result.status is not Status.STOPPED_BY_CALLBACK
