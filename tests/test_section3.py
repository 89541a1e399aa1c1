"""Section 3 and Theorem 4.1 on Rⁿ, through the solver that runs on manifolds."""

import itertools
import math

import numpy as np
import pytest

import oracles
import stiefel
from runs import states
from stiefel import AcceleratedGradient, Euclidean
from stiefel.objectives import LogSumExp, Quadratic
from stiefel.solvers.momentum import LinearMomentum, SequenceMomentum, StronglyConvexMomentum


def convex_problems():
    rng = np.random.default_rng(9)
    quadratic = Quadratic(np.geomspace(1e-3, 2.0, 30), rng.standard_normal(30))
    smooth = LogSumExp.random_instance(40, 12, 0.5, 0.01, 4)
    return {
        "quadratic": (quadratic, quadratic.minimizer + rng.standard_normal(30)),
        "log-sum-exp": (smooth, smooth.minimizer + rng.standard_normal(12)),
    }


CONVEX = convex_problems()


def trace(solver, name, count=400):
    objective, x0 = CONVEX[name]
    return objective, x0, states(solver, objective, x0, Euclidean(), count)


@pytest.mark.parametrize("name", CONVEX)
def test_the_strongly_convex_scheme_keeps_its_bound(name):
    """Theorem 3.1: f(x_t) − f* ≤ 2(1 − √(μ/L))ᵗ (f(x_0) − f*)."""
    mu, L = CONVEX[name][0].mu, CONVEX[name][0].L
    solver = AcceleratedGradient(
        restart="none",
        search="fixed",
        initial_step=1 / L,
        momentum=StronglyConvexMomentum(mu, L),
    )
    objective, x0, taken = trace(solver, name)
    first = taken[0].f_X - objective.minimum
    for t, s in enumerate(taken):
        bound = oracles.strongly_convex_bound(mu, L, t, first)
        assert s.f_X - objective.minimum <= bound + 1e-13 * abs(objective.minimum)
    golden = oracles.euclidean_strongly_convex(lambda x: objective(x)[1], x0, mu, L)
    for (x, y), s, _ in zip(golden, taken, range(60), strict=False):
        assert np.allclose(s.X, x, atol=1e-10) and np.allclose(s.x, y, atol=1e-10)


Q_SEQUENCES = {
    "t": lambda t: float(t),
    "t/2": lambda t: t / 2,
    "t/5": lambda t: t / 5,
    "sqrt": lambda t: math.sqrt(t),
    "zero": lambda t: 0.0,
    "largest": oracles.largest_q,
    "late": lambda t: float(max(0, t - 20)),
}


@pytest.mark.parametrize("q", Q_SEQUENCES)
@pytest.mark.parametrize("name", CONVEX)
def test_the_q_family_keeps_its_bound(name, q):
    """Theorem 3.2: f(x_t) − f* ≤ 2‖x_0 − x*‖²/(γ_t q_t (q_t + 2)), with steps that only shrink."""
    q_t = Q_SEQUENCES[q]
    solver = AcceleratedGradient(
        restart="none", search="backtracking", initial_step=50.0, momentum=SequenceMomentum(q_t)
    )
    objective, x0, taken = trace(solver, name, 150)
    distance = np.linalg.norm(x0 - objective.minimizer)
    assert all(b.gamma <= a.gamma for a, b in itertools.pairwise(taken))
    for t, s in enumerate(taken):
        bound = oracles.q_family_bound(s.gamma, q_t(t), distance)
        assert s.f_X - objective.minimum <= bound * (1 + 1e-9) + 1e-12
    golden = oracles.euclidean_q_family(
        objective.value, lambda x: objective(x)[1], x0, q_t, gamma=50.0
    )
    for (x, y, _, _), s, _ in zip(golden, taken, range(40), strict=False):
        assert np.allclose(s.X, x, atol=1e-8) and np.allclose(s.x, y, atol=1e-8)


def test_the_bound_is_not_idle():
    """Within a factor of the worst case: plain gradient descent breaks the bound of q = t."""
    d = np.geomspace(1e-6, 1.0, 200)
    objective = Quadratic(d, np.zeros(200))
    x0 = 1 / np.sqrt(d)
    distance = np.linalg.norm(x0)
    fixed = {"restart": "none", "search": "fixed", "initial_step": 1.0}
    plain = states(stiefel.GradientDescent(), objective, x0, Euclidean(), 2)  # it runs here too
    assert plain[1].f_X < plain[0].f_X
    slow = states(
        AcceleratedGradient(**fixed, momentum=lambda k: 0.0), objective, x0, Euclidean(), 3000
    )
    fast = states(AcceleratedGradient(**fixed), objective, x0, Euclidean(), 3000)
    bound = oracles.q_family_bound(1.0, 2999.0, distance)
    assert fast[-1].f_X <= bound
    assert slow[-1].f_X > bound


def test_linear_momentum_is_the_paper_s():
    for k in (0, 1, 5, 100):
        assert LinearMomentum()(k) == pytest.approx(k / (k + 3))
        assert LinearMomentum(0.5)(k) == SequenceMomentum(lambda t: 0.5 * t)(k)


@pytest.mark.parametrize(
    ("momentum", "message"),
    [
        (lambda: LinearMomentum(1.5), "rate"),
        (lambda: LinearMomentum(0.0), "rate"),
        (lambda: StronglyConvexMomentum(2.0, 1.0), "0 < mu"),
        (lambda: SequenceMomentum(lambda t: 1.0)(0), r"q\(0\)"),
        (lambda: SequenceMomentum(lambda t: t * 3.0)(2), "Theorem 3.2"),
    ],
)
def test_sequences_outside_the_theorems_are_refused(momentum, message):
    with pytest.raises(ValueError, match=message):
        momentum()


@pytest.mark.parametrize("restart", ["function", "gradient"])
@pytest.mark.parametrize("search", ["two-sided", "backtracking"])
@pytest.mark.parametrize("name", CONVEX)
def test_restarts_recover_the_linear_rate(name, search, restart):
    """O(√κ log 1/ε) iterations without knowing μ or L."""
    objective, x0 = CONVEX[name]
    method = AcceleratedGradient(restart=restart, search=search, initial_step=1.0)
    result = stiefel.minimize(objective, x0, manifold=Euclidean(), method=method, rtol=1e-9)
    assert result.success
    assert result.fun == pytest.approx(objective.minimum, rel=1e-10, abs=1e-10)
    assert np.allclose(result.x, objective.minimizer, atol=1e-5)
    root_kappa = math.sqrt(objective.L / objective.mu)
    assert result.nit <= 8 * root_kappa * math.log(1e9)


class Rosenbrock:
    """Not convex, and smooth only in a bounded region; its minimum is 0."""

    def value(self, x):
        return float(np.sum(10.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2))

    def value_and_gradient(self, x):
        G = np.zeros_like(x)
        between = x[1:] - x[:-1] ** 2
        G[:-1] += -40.0 * x[:-1] * between - 2 * (1 - x[:-1])
        G[1:] += 20.0 * between
        return self.value(x), G


class Waves:
    """Σ cos: bounded below, L-smooth with L = 1, and without convexity anywhere in particular."""

    def value(self, x):
        return float(np.sum(np.cos(x) + 0.1 * np.cos(3 * x) / 9))

    def value_and_gradient(self, x):
        return self.value(x), -np.sin(x) - 0.1 * np.sin(3 * x) / 3


@pytest.mark.parametrize("c_R", [0.01, 0.3])
@pytest.mark.parametrize(("objective", "n"), [(Rosenbrock(), 6), (Waves(), 20)], ids=["1", "2"])
def test_gradients_vanish_without_convexity(objective, n, c_R):
    """Theorem 4.1: c_R Σ γ_t‖∇f(y_t)‖² ≤ f(x_0) − inf f over accepted steps, and ∇f → 0."""
    x0 = np.random.default_rng(5).standard_normal(n)
    solver = AcceleratedGradient(search="backtracking", least_decrease=c_R)
    taken = states(solver, objective, x0, Euclidean(), 3000)
    pairs = list(itertools.pairwise(taken))
    accepted = [(a, b) for a, b in pairs if not b.restarted]
    for a, b in accepted:  # the decrease that a step must bring to be kept
        assert b.f_X <= a.f_X + c_R * b.gamma * a.aim.slope + 1e-14 * max(1.0, abs(a.f_X))
    spent = c_R * math.fsum(-b.gamma * a.aim.slope for a, b in accepted)
    assert spent <= taken[0].f_X - taken[-1].f_X + 1e-12
    assert taken[-1].at.norm <= 1e-6 * taken[0].at.norm
    assert np.linalg.norm(objective.value_and_gradient(taken[-1].X)[1]) <= 1e-5
