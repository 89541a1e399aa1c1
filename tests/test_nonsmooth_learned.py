"""The operator of a quadratic f, learned while running: when to use it and when not."""

from __future__ import annotations

import numpy as np
import pytest

import stiefel
from stiefel import L1
from stiefel.nonsmooth.learned_operator import LearnedOperator
from stiefel.nonsmooth.space import space_of

N, K, RANK = 80, 3, 11


def low_rank(seed=0):
    rng = np.random.default_rng(seed)
    B = rng.standard_normal((RANK, N)) / np.sqrt(N)
    return B, 0.1 * rng.standard_normal((N, K))


def affine(seed=0):
    """f = −‖BX‖² + ⟨C, X⟩, with a gradient that is affine."""
    B, C = low_rank(seed)
    return lambda X: (np.vdot(C, X) - np.sum((B @ X) ** 2), C - 2 * B.T @ (B @ X))


def quartic(seed=0):
    quadratic = affine(seed)

    def fun(X):
        f, G = quadratic(X)
        return f + 2.0 * np.sum(X**4), G + 8.0 * X**3

    return fun


def solve(fun, learn=True, seed=0, **given):
    X0 = stiefel.random_point(N, K, seed=seed + 100)
    method = stiefel.ProximalLBFGS(learn=learn)
    given = {"rtol": 0, "gtol": 1e-8} | given
    return stiefel.minimize(fun, X0, nonsmooth=L1(0.05), method=method, **given)


def observed(fun, steps, seed=0):
    """What is known after some random steps."""
    rng = np.random.default_rng(seed)
    X = stiefel.random_point(N, K, seed=seed)
    space = space_of(stiefel.Stiefel(), X)
    operator = LearnedOperator.unknown(space)
    for _ in range(steps):
        S = rng.standard_normal((N, K))
        change = fun(X + S)[1] - fun(X)[1]
        operator = operator.after(S.ravel(), change.ravel())
    return operator


def test_the_operator_is_exact_when_its_rank_is_seen():
    """Four steps of three columns for rank eleven: Â = A on vectors that were never shown."""
    B, _ = low_rank()
    S = np.random.default_rng(9).standard_normal((5, N))
    for steps, known in ((3, False), (4, True)):
        operator = observed(affine(), steps)
        error = np.linalg.norm(operator.model.times(S.T) + 2 * B.T @ B @ S.T)
        assert (error < 1e-9) == known
    assert observed(affine(), 5).error < 1e-9
    assert len(observed(affine(), 9).Q) == 12  # nothing more to learn


def test_rounding_is_not_learned():
    """Two columns that are nearly one show rounding, enlarged a billion times."""
    rng = np.random.default_rng(1)
    B, _ = low_rank()
    space = space_of(stiefel.Stiefel(), np.eye(N, K))
    S = rng.standard_normal((N, K))
    S[:, 1] = S[:, 0] + 1e-9 * S[:, 1]
    change = -2 * B.T @ (B @ S) + 1e-12 * rng.standard_normal((N, K))
    operator = LearnedOperator.unknown(space).after(S.ravel(), change.ravel())
    assert operator.possible
    assert len(operator.Q) == K - 1


def test_other_functions_are_told_at_once():
    assert not observed(quartic(), 1).possible
    weights = np.array([1.0, 2.0, 3.0])  # −⟨X, AXN⟩: an operator for each column
    weighted = lambda X: (0.0, affine()(X)[1] * weights)
    assert not observed(weighted, 2).possible
    full = lambda X: (0.0, np.arange(N)[:, None] * X)  # too many directions to be worth keeping
    assert observed(full, 19).possible
    assert len(observed(full, 25).Q) == 0


@pytest.mark.parametrize("seed", range(3))
def test_a_quadratic_function_needs_few_evaluations(seed):
    """Rank eleven in three columns: four steps to know it, and a few before and after."""
    learned, plain = solve(affine(seed), True, seed), solve(affine(seed), False, seed)
    assert learned.success
    assert learned.nfev <= 12
    assert plain.nfev > 3 * learned.nfev
    assert learned.fun <= plain.fun + 1e-6
    assert np.all(np.diff(learned.history["value"]) <= 1e-13)


@pytest.mark.parametrize("seed", range(3))
def test_a_leap_costs_few_proximal_steps(seed, monkeypatch):
    """On the learned model Newton's steps come at once; after twenty others it would be 24 – 28."""
    from stiefel.nonsmooth import quasi_newton

    calls, real = [], quasi_newton.proximal_step

    def counted(*given, **named):
        calls.append(None)
        return real(*given, **named)

    monkeypatch.setattr(quasi_newton, "proximal_step", counted)
    assert solve(affine(seed), True, seed).success
    assert len(calls) <= 15


def test_elsewhere_no_bit_changes():
    one, two = (solve(quartic(), learn) for learn in (True, False))
    assert one.success
    assert np.array_equal(one.x, two.x)
    assert one.nfev == two.nfev


def leaps(monkeypatch):
    """A list that grows by an entry a leap."""
    from stiefel.nonsmooth import proximal_lbfgs

    made, real = [], proximal_lbfgs.leap

    def noted(problem, s, *given):
        new = real(problem, s, *given)
        made.append((s.operator, new))
        return new

    monkeypatch.setattr(proximal_lbfgs, "leap", noted)
    return made


def test_a_function_that_only_looked_quadratic(monkeypatch):
    """A steep wall beneath f = −4.85: leaps into it are refused, the answer is the plain one."""
    quadratic = affine()

    def fun(X):
        f, G = quadratic(X)
        over = max(-4.85 - f, 0.0)
        return f + 500.0 * over**2, G * (1.0 - 1000.0 * over)

    made = leaps(monkeypatch)
    learned = solve(fun, True)
    assert made
    assert not made[-1][1].operator.possible
    assert made[-1][1].restarted
    assert len(made) <= 2
    plain = solve(fun, False)
    assert learned.success
    assert plain.success
    assert np.all(np.diff(learned.history["value"]) <= 1e-13)
    assert learned.fun <= plain.fun + 1e-6
    assert learned.nfev <= 1.2 * plain.nfev


@pytest.mark.parametrize("seed", [6, 8])
def test_a_refused_leap_is_learned_from(monkeypatch, seed):
    """Modes on a circle: early steps keep to a part of space, and the first leap leaves it.

    27 and 28 evaluations; where the operator is forgotten after such a leap, 153 and 216.
    """
    c = 0.5 * (128 / 50.0) ** 2
    laplace = lambda X: c * (2 * X - np.roll(X, 1, 0) - np.roll(X, -1, 0))
    fun = lambda X: (np.vdot(X, laplace(X)), 2 * laplace(X))
    made, X0 = leaps(monkeypatch), stiefel.random_point(128, 4, seed=seed)
    result = stiefel.minimize(fun, X0, nonsmooth=L1(0.5), rtol=0, gtol=1e-8)
    assert result.success
    assert result.nfev <= 60
    refused = [(before, new) for before, new in made if new.restarted]
    assert refused
    assert all(len(new.operator.Q) > len(before.Q) for before, new in refused)


class Contradicting(L1):
    """A proximal map that does not belong to the value, and how often it was asked."""

    asked = 0

    def prox(self, V, t):
        Contradicting.asked += 1
        return 0.5 * V


def test_a_leap_that_leads_nowhere_ends_soon():
    """Without `IDLE_STEPS` every leap takes all its steps: 4,400 proximal maps an evaluation."""
    x0, options = stiefel.random_point(N, K, seed=0), {"nonsmooth": Contradicting(0.05)}
    result = stiefel.minimize(affine(), x0, **options, maxfun=20)
    assert not result.success
    assert 0 < Contradicting.asked < 1000 * result.nfev
