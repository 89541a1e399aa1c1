"""Algorithms 1 and 2 and gradient descent, step by step against slow n×n transcriptions."""

from itertools import islice

import numpy as np
import pytest

import oracles
from runs import states
from stiefel import AcceleratedGradient, Euclidean, GradientDescent, Stiefel

STEPS = 60


class Objective:
    """A pair of functions as `minimize` takes them."""

    def __init__(self, value, gradient):
        self.value, self.gradient = value, gradient

    def value_and_gradient(self, X):
        return self.value(X), self.gradient(X)


def brockett(n, k, dtype, B=None):
    rng = np.random.default_rng(31)
    U = oracles.random_point(rng, n, n, dtype)
    A = U @ np.diag(np.geomspace(0.03, 5.0, n)) @ U.conj().T  # ill-conditioned: no early end
    A = (A + A.conj().T) / 2
    weights = np.arange(1.0, k + 1)
    return oracles.brockett(A, weights), oracles.random_point(rng, n, k, dtype, B=B)


def compare(golden, taken, momentum=True):
    """Equal as long as the decrease of f is far above its rounding, where comparisons end."""
    assert len(golden) == len(taken) == STEPS
    for t, (o, s) in enumerate(zip(golden, taken, strict=True)):
        if o.gamma * o.gradient_norm**2 < 1e-10 * abs(o.f_Y):
            assert t >= 35, f"the trace ends in iteration {t}"
            return
        assert np.linalg.norm(s.x - o.Y) <= 1e-7, f"Y, iteration {t}"
        assert np.linalg.norm(s.X - o.X) <= 1e-7, f"X, iteration {t}"
        assert s.gamma == pytest.approx(o.gamma, rel=1e-12), f"γ, iteration {t}"
        assert s.k == o.k or not momentum, f"k, iteration {t}"
        assert s.restarted == o.restarted, f"restart, iteration {t}"
        assert s.at.f == pytest.approx(o.f_Y, rel=1e-9)
        assert s.at.norm == pytest.approx(o.gradient_norm, rel=1e-5, abs=1e-7)


ALGORITHMS = {
    "function": (oracles.function_restart, lambda c: AcceleratedGradient(growth_threshold=c)),
    "gradient": (
        oracles.gradient_restart,
        lambda c: AcceleratedGradient(restart="gradient", growth_threshold=c),
    ),
    "descent": (oracles.gradient_descent, lambda c: GradientDescent(growth_threshold=c)),
}


@pytest.mark.parametrize("c_L", [0.7, 0.9])
@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize(("n", "k"), [(12, 1), (12, 3), (4, 4)], ids=str)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_traces_on_the_stiefel_manifold(algorithm, n, k, dtype, c_L):
    oracle, solver = ALGORITHMS[algorithm]
    (value, gradient), X0 = brockett(n, k, dtype)
    golden = list(islice(oracle(value, gradient, X0, c_L=c_L), STEPS))
    taken = states(solver(c_L), Objective(value, gradient), X0, Stiefel(), STEPS)
    compare(golden, taken, momentum=algorithm != "descent")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_traces_under_a_generalised_constraint(algorithm):
    oracle, solver = ALGORITHMS[algorithm]
    B = oracles.random_positive(np.random.default_rng(3), 12)
    (value, gradient), X0 = brockett(12, 3, float, B)
    golden = list(islice(oracle(value, gradient, X0, B=B, c_L=0.9), STEPS))
    taken = states(solver(0.9), Objective(value, gradient), X0, Stiefel(B=B), STEPS)
    compare(golden, taken, momentum=algorithm != "descent")


@pytest.mark.parametrize(
    ("oracle", "restart"),
    [
        (oracles.euclidean_function_restart, "function"),
        (oracles.euclidean_gradient_restart, "gradient"),
    ],
)
@pytest.mark.parametrize("grow", [True, False])
def test_traces_on_euclidean_space(oracle, restart, grow):
    """Section 3's restarts are the same solver text with another geometry."""
    d = np.geomspace(0.02, 3.0, 15)
    value, gradient = lambda x: 0.5 * float(d @ x**2) + float(np.sum(x)), lambda x: d * x + 1.0
    x0 = np.random.default_rng(2).standard_normal(15)
    golden = list(islice(oracle(value, gradient, x0, c_L=0.9, grow=grow), STEPS))
    search = "two-sided" if grow else "backtracking"
    solver = AcceleratedGradient(restart=restart, search=search)
    compare(golden, states(solver, Objective(value, gradient), x0, Euclidean(), STEPS))


def test_the_traces_contain_restarts():
    """Else the comparison above would say nothing about them."""
    for algorithm in ("function", "gradient"):
        oracle, _ = ALGORITHMS[algorithm]
        (value, gradient), X0 = brockett(12, 3, float)
        assert any(s.restarted for s in islice(oracle(value, gradient, X0, c_L=0.9), STEPS))


@pytest.mark.parametrize(
    "printed", [oracles.printed_function_restart, oracles.printed_gradient_restart]
)
def test_the_printed_listings_lead_elsewhere(printed):
    algorithm = "function" if printed is oracles.printed_function_restart else "gradient"
    (value, gradient), X0 = brockett(12, 3, float)
    golden = list(islice(printed(value, gradient, X0, c_L=0.9), STEPS))
    taken = states(ALGORITHMS[algorithm][1](0.9), Objective(value, gradient), X0, Stiefel(), STEPS)
    with pytest.raises(AssertionError):
        compare(golden, taken)
