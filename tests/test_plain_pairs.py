"""Pairs of real NumPy arrays with a plain metric: one block, in single precision if long."""

from dataclasses import replace

import numpy as np
import pytest

import stiefel
from runs import problem_of
from stiefel import LBFGS, Euclidean, Oblique, Sphere, Stiefel
from stiefel.geometry.ray import Secant
from stiefel.solvers import memory
from stiefel.solvers.memory import is_plain, no_pairs, plain_direction, remember_plain
from stiefel.types import Gradient


def filled(entries, count, scale=1.0):
    """Pairs of a convex quadratic, and the gradient that was given with the last one."""
    rng = np.random.default_rng(0)
    stiffness = np.geomspace(1.0, 50.0, entries)
    g = scale * rng.standard_normal(entries)
    geometry = Euclidean().bind(g)
    pairs, kept = no_pairs(geometry, g, 4, is_plain(geometry, g)), []
    for _ in range(count):
        s = scale * rng.standard_normal(entries)
        y = stiffness * s
        kept.append((s, y))
        at = Gradient(0.0, g, float(np.linalg.norm(g)))
        pairs = remember_plain(pairs, Secant(s, y), float(s @ y), float(y @ y), pairs.rows, at)
    return pairs, at, kept[-4:]


def two_loops(kept, g, gamma):
    """−H g as in every textbook."""
    q, weights = g.copy(), []
    for s, y in reversed(kept):
        weights.append((s @ q) / (s @ y))
        q -= weights[-1] * y
    r = gamma * q
    for (s, y), a in zip(kept, reversed(weights), strict=True):
        r += (a - (y @ r) / (s @ y)) * s
    return -r


@pytest.mark.parametrize("entries", [12, 30_000, memory.SMALL_PRODUCT // 4])
@pytest.mark.parametrize("count", [1, 3, 11])
def test_the_direction_is_that_of_the_two_loop_recursion(entries, count):
    """The longest one takes several products: SMALL_PRODUCT holds for each."""
    pairs, at, kept = filled(entries, count)
    single = entries >= memory.SINGLE_FROM
    assert pairs.S.dtype == (np.float32 if single else np.float64) and pairs.Y is None
    expected = two_loops(kept, at.G, 0.05)
    for known in (pairs, pairs.after_aiming()):  # the products with g at hand, or made again
        error = np.linalg.norm(plain_direction(known, at, 0.05) - expected)
        assert error <= (3e-6 if single else 1e-13) * np.linalg.norm(expected)


@pytest.mark.parametrize("scale", [1e-25, 1e-60, 1e25])
def test_small_and_large_numbers_do_not_vanish_in_single_precision(scale):
    """Squares of 1e-25 would (SMALL, LARGE); 1e-60 leaves nothing, and no warning (FINEST)."""
    pairs, at, kept = filled(memory.SINGLE_FROM, 3, scale)
    found = plain_direction(pairs, at, 0.05)
    assert np.isfinite(found).all()
    if scale > 1e-38:
        expected = two_loops(kept, at.G, 0.05)
        assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected)


@pytest.mark.parametrize("rtol", [1e-6, 1e-12])
def test_single_precision_costs_no_evaluations(rtol, monkeypatch):
    """SINGLE_FROM: directions lose digits, and steps nothing that could be counted."""
    n, counts = memory.SINGLE_FROM, {}
    a = np.geomspace(1.0, 300.0, n)
    b = np.random.default_rng(5).standard_normal(n)
    fun = lambda x: (0.5 * float(x @ (a * x)) + float(b @ x), a * x + b)
    for least in (n, n + 1):
        monkeypatch.setattr(memory, "SINGLE_FROM", least)
        starts = (Sphere().random(n, seed=seed) for seed in (7, 8, 9))
        ends = [stiefel.minimize(fun, x0, manifold=Sphere(), rtol=rtol) for x0 in starts]
        assert all(end.success for end in ends)
        counts[least] = sum(end.nfev for end in ends)
    assert counts[n] <= 1.05 * counts[n + 1]


def test_what_has_a_plain_metric():
    x, X = np.eye(5)[0], np.eye(5, 3)
    assert is_plain(Sphere(), x) and is_plain(Sphere(), x[:, None]) and is_plain(Euclidean(), X)
    assert is_plain(Oblique(), X) and is_plain(Stiefel(), x[:, None])
    assert not is_plain(Stiefel(), X) and not is_plain(Sphere(), X)
    assert not is_plain(Oblique(), X.astype(complex)) and not is_plain(
        Sphere(B=np.eye(5)), x[:, None]
    )


def test_a_preconditioner_is_not_plain():
    """φ is then the user's."""
    problem, x = problem_of(lambda x: (float(x @ x), 2 * x), np.ones(4), Euclidean())
    assert LBFGS().init(problem, x).pairs.changes is not None
    problem = replace(problem, precond=lambda X, G, aux: 0.5 * G)
    assert LBFGS().init(problem, x).pairs.changes is None


def tree_fun(p):
    R = {key: x - 0.5 + 0.1 * x**3 for key, x in p.items()}
    G = {key: r * (1 + 0.3 * p[key] ** 2) for key, r in R.items()}
    return 0.5 * sum(float(np.vdot(r, r)) for r in R.values()), G


def tree_start(dtype=np.float64):
    rng = np.random.default_rng(3)
    start = {"W": stiefel.random_point(7, 3, seed=1), "b": rng.standard_normal(4), "c": np.ones(2)}
    where = {"W": Stiefel(), "b": Euclidean(), "c": Euclidean()}
    return {key: x.astype(dtype) for key, x in start.items()}, where


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_small_trees_keep_their_pairs_in_one_array(dtype, monkeypatch):
    """The same steps as with an array for each leaf, which larger trees have: SMALL_TREE."""
    start, where = tree_start(dtype)
    problem, x = problem_of(tree_fun, start, where)
    points = {}
    for most in (memory.SMALL_TREE, 26):
        monkeypatch.setattr(memory, "SMALL_TREE", most)
        s = LBFGS().init(problem, x)
        assert isinstance(s.pairs.S, tuple) == (most == 26)
        for _ in range(9):
            s = LBFGS().step(problem, s)
        points[most] = s.x
    for a, b in zip(*points.values(), strict=True):
        assert np.allclose(a, b, atol=1e4 * np.finfo(dtype).eps)


def test_leaves_of_two_kinds_have_arrays_of_their_own():
    start, where = tree_start()
    mixed = start | {"b": start["b"].astype(np.float32)}
    for tree in (mixed, {key: x.astype(complex) for key, x in start.items()}):
        problem, x = problem_of(tree_fun, tree, where)
        assert isinstance(no_pairs(problem.geometry, x, 3).S, tuple)
