"""Pairs of real NumPy arrays with a plain metric: one block, in single precision if long."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stiefel
from runs import problem_of
from stiefel import LBFGS, ComplexCircle, Euclidean, Oblique, Sphere, Stiefel
from stiefel.backends.arrays import kernels_for
from stiefel.geometry.ray import Secant
from stiefel.solvers import memory, plain_pairs
from stiefel.solvers.memory import no_pairs
from stiefel.solvers.plain_pairs import (
    is_plain,
    no_plain_pairs,
    place_for,
    plain_direction,
    remember_plain,
    remembered_and_aimed,
)
from stiefel.types import Gradient


def filled(entries, count, scale=1.0):
    """Pairs of a convex quadratic, and the gradient that was given with the last one."""
    rng = np.random.default_rng(0)
    stiffness = np.geomspace(1.0, 50.0, entries)
    g = scale * rng.standard_normal(entries)
    pairs, kept = no_plain_pairs(g, 4), []
    for _ in range(count):
        s = scale * rng.standard_normal(entries)
        y = stiffness * s
        kept.append((s, y))
        at = Gradient(0.0, g, float(np.linalg.norm(g)))
        pairs = remember_plain(pairs, Secant(s, y), float(s @ y), float(y @ y), at)
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


KERNELS = kernels_for(np.zeros(1))


@pytest.fixture(params=["compiled", "numpy"])
def version(request, monkeypatch):
    """Everything once more without the compiled kernels."""
    if request.param == "numpy":
        monkeypatch.setattr(KERNELS, "compiled", None)


@pytest.mark.usefixtures("version")
@pytest.mark.parametrize("entries", [12, 30_000, plain_pairs.SMALL_PRODUCT // 4])
@pytest.mark.parametrize("count", [1, 3, 11])
def test_the_direction_is_that_of_the_two_loop_recursion(entries, count):
    """The longest one takes several products: SMALL_PRODUCT holds for each."""
    pairs, at, kept = filled(entries, count)
    single = entries >= plain_pairs.SINGLE_FROM
    assert pairs.S.dtype == (np.float32 if single else np.float64) and pairs.Y is None
    expected = two_loops(kept, at.G, 0.05)
    for known in (pairs, pairs.after_aiming()):  # the products with g at hand, or made again
        error = np.linalg.norm(plain_direction(known, at, 0.05) - expected)
        assert error <= (3e-6 if single else 1e-13) * np.linalg.norm(expected)


@pytest.mark.usefixtures("version")
@pytest.mark.parametrize("entries", [7, plain_pairs.SINGLE_FROM])
def test_complex_pairs_are_pairs_of_their_real_numbers(entries):
    rng, ends = np.random.default_rng(6), []
    g, *steps = rng.standard_normal((6, entries, 2))
    for form in (lambda A: A, lambda A: A.view(complex)[..., 0]):
        at = Gradient(0.0, form(g), float(np.linalg.norm(g)))
        pairs = no_plain_pairs(at.G, 3)
        for s in steps:
            known = 2.0 * float(np.vdot(s, s)), 4.0 * float(np.vdot(s, s))
            pairs = remember_plain(pairs, Secant(form(s), 2.0 * form(s)), *known, at)
        T = plain_direction(pairs, at, 0.3)
        assert T.shape == at.G.shape and T.dtype == at.G.dtype
        ends.append(np.ascontiguousarray(T).view(float).reshape(entries, 2))
    np.testing.assert_array_equal(*ends)


@pytest.mark.usefixtures("version")
@pytest.mark.parametrize("scale", [1e-25, 1e-60, 1e25])
def test_small_and_large_numbers_do_not_vanish_in_single_precision(scale):
    """Squares of 1e-25 would (SMALL, LARGE); 1e-60 leaves nothing, and no warning (FINEST)."""
    pairs, at, kept = filled(plain_pairs.SINGLE_FROM, 3, scale)
    found = plain_direction(pairs, at, 0.05)
    assert np.isfinite(found).all()
    if scale > 1e-38:
        expected = two_loops(kept, at.G, 0.05)
        assert np.linalg.norm(found - expected) <= 1e-5 * np.linalg.norm(expected)


@pytest.mark.skipif(KERNELS.compiled is None, reason="no compiled kernels")
@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([1, 2, 7, 8, 9, 33, 1023, 1024, 1025, 9000]),
    st.integers(1, 9),
    st.integers(-20, 20),
)
def test_compiled_pairs_are_those_of_numpy(seed, entries, count, exponent):
    scale = 10.0**exponent

    def everything():
        rng = np.random.default_rng(seed)
        at = Gradient(0.0, scale * rng.standard_normal(entries), scale * entries**0.5)
        pairs = no_plain_pairs(at.G, 4)
        for _ in range(count):
            s, noise = rng.standard_normal((2, entries))
            y = scale * (2.0 * s + 0.1 * noise)
            known = float(s @ y), float(y @ y)
            pairs = remember_plain(pairs, Secant(s, y), *known, at)
        T = plain_direction(pairs, at, 0.3 / scale)
        used = list(pairs.rows)
        return pairs.rows, pairs.inverse, pairs.changes[np.ix_(used, used)], T

    found = everything()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KERNELS, "compiled", None)
        expected = everything()
    close = 1e-4 if entries >= plain_pairs.SINGLE_FROM else 1e-10
    for f, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(f, e, rtol=close, atol=close * np.max(np.abs(e)))


def test_rows_that_are_not_in_use_are_not_read():
    """They may hold anything: a step that was refused, or no numbers."""
    pairs, at, _ = filled(40, 3)
    expected = plain_direction(pairs, at, 0.05)
    free = [row for row in range(len(pairs.diagonal)) if row not in pairs.rows]
    pairs.S[free] = pairs.S[[len(pairs.diagonal) + row for row in free]] = 1e30
    for known in (pairs, pairs.after_aiming()):
        np.testing.assert_allclose(plain_direction(known, at, 0.05), expected, rtol=1e-12)


@pytest.mark.skipif(KERNELS.compiled is None, reason="no compiled kernels")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1.0, 1e-25])  # the other one is no ordinary length
@pytest.mark.parametrize("manifold", [Sphere(), Oblique()])
def test_a_pair_that_stands_in_its_place_already(dtype, scale, manifold):
    """Curves write their pairs there; the same as pairs that are handed over."""
    n = plain_pairs.SINGLE_FROM if dtype is np.float32 else 50
    shape = (n,) if manifold == Sphere() else (n // 2, 2)
    ends = []
    for inside in (False, True):
        rng, x = np.random.default_rng(4), manifold.random(*shape, seed=1)
        at = known_at(manifold, x, scale * rng.standard_normal(shape))
        pairs, gamma, T = no_plain_pairs(at.G, 3), 0.3, -at.G
        curve = manifold.aim_along(x, at.G, T, place_for(pairs) if inside else None)[1]
        for _ in range(5):
            t = 0.1 / curve.length
            x = curve(t)
            new = known_at(manifold, x, scale * rng.standard_normal(shape))
            pair = curve.secant_pair(t, at, new)
            assert (pair.kept is not None) == inside and pairs.S.dtype == dtype
            sy, yy, at = 0.2 * scale, pair.square, new
            if inside:
                pairs, T, curve = remembered_and_aimed(curve, pairs, pair, sy, yy, gamma, x, at)
            else:
                pairs = remember_plain(pairs, pair, sy, yy, at)
                T = plain_direction(pairs, at, gamma)
                curve = manifold.aim_along(x, at.G, T)[1]
        ends.append((T, pairs.inverse, pairs.diagonal, pairs.changes, curve.slope, curve.length))
    for one, other in zip(*ends, strict=True):
        np.testing.assert_array_equal(one, other)


def known_at(manifold, x, E):
    G, square, *_ = manifold.gradient(x, E)
    return Gradient(0.0, G, square**0.5)


def test_what_is_no_block_of_pairs_is_refused():
    if KERNELS.compiled is None:
        pytest.skip("no compiled kernels")
    C, B, small, x = KERNELS.compiled, np.zeros((6, 4)), np.zeros((3, 3)), np.ones(4)

    def products(block=B, rows=(0, 1), s=x, found=None, D=None):
        found = np.zeros(12) if found is None else found
        C.plain_products(block, rows, s, x, x, (1.0, 1.0), found, D)

    def direction(block=B, rows=(0, 1), g=x, inverse=small, found=None, D=None):
        known = np.zeros(12) if found is None else found, 1.0, inverse, np.zeros(3), small.copy()
        C.plain_direction(block, rows, *known, 1.0, D, g, x.copy(), x)

    read_only = B.copy()
    read_only.flags.writeable = False
    blocks = (
        {"block": B[:, :3]}, {"block": B.astype(int)[:, ::2]}, {"rows": (3,)}, {"rows": (-1,)},
        {"rows": ()}, {"rows": [0]}, {"rows": ("a",)}, {"rows": (0,) * 4}, {"found": np.zeros(11)},
    )  # fmt: skip
    for call, others in (
        (products, ({"s": x[:3]}, {"block": read_only}, {"D": x[:3]})),
        (direction, ({"inverse": small[:2]}, {"g": x[:3]}, {"D": x[:3]})),
    ):
        call()
        for wrong in (*blocks, *others):
            with pytest.raises((ValueError, TypeError, BufferError)):
                call(**wrong)


def test_long_points_keep_two_fifths_as_many_pairs():
    """LONG_PLAIN: reading the others takes longer than the rest of a step."""
    for n, cost, rows in (
        (plain_pairs.LONG_PLAIN - 1, "usual", 11),
        (plain_pairs.LONG_PLAIN, "usual", 5),
        (plain_pairs.LONG_PLAIN, "dear", 31),
        (plain_pairs.LONG_PLAIN, "cheap", 5),
    ):
        fun = lambda x: (float(x @ x), 2 * x)
        problem, x = problem_of(fun, np.ones(n), Euclidean())
        assert len(LBFGS(cost=cost).init(problem, x).pairs.diagonal) == rows


@pytest.mark.parametrize("rtol", [1e-6, 1e-12])
def test_single_precision_costs_no_evaluations(rtol, monkeypatch):
    """SINGLE_FROM: directions lose digits, and steps nothing that could be counted."""
    n, counts = plain_pairs.SINGLE_FROM, {}
    a = np.geomspace(1.0, 300.0, n)
    b = np.random.default_rng(5).standard_normal(n)
    fun = lambda x: (0.5 * float(x @ (a * x)) + float(b @ x), a * x + b)
    for least in (n, n + 1):
        monkeypatch.setattr(plain_pairs, "SINGLE_FROM", least)
        starts = (Sphere().random(n, seed=seed) for seed in (7, 8, 9))
        ends = [stiefel.minimize(fun, x0, manifold=Sphere(), rtol=rtol) for x0 in starts]
        assert all(end.success for end in ends)
        counts[least] = sum(end.nfev for end in ends)
    assert counts[n] <= 1.05 * counts[n + 1]


def test_what_has_a_plain_metric():
    x, X = np.eye(5)[0], np.eye(5, 3)
    assert is_plain(Sphere(), x) and is_plain(Sphere(), x[:, None]) and is_plain(Euclidean(), X)
    assert is_plain(Oblique(), X) and is_plain(Stiefel(), x[:, None])
    assert is_plain(Sphere(), X) and not is_plain(Stiefel(), X)
    assert is_plain(Stiefel(), X[..., None]) and is_plain(Sphere(), X[..., None])
    assert not is_plain(Sphere(), X.astype(complex))
    assert is_plain(Oblique(), X.astype(complex)) and is_plain(ComplexCircle(), x.astype(complex))
    assert not is_plain(Sphere(B=np.eye(5)), x[:, None])


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


def test_leaves_of_two_precisions_have_arrays_of_their_own():
    start, where = tree_start()
    mixed = start | {"b": start["b"].astype(np.float32)}
    problem, x = problem_of(tree_fun, mixed, where)
    assert isinstance(no_pairs(problem.geometry, x, 3).S, tuple)


def test_complex_leaves_are_read_as_real_numbers():
    start, where = tree_start()
    problem, x = problem_of(tree_fun, start | {"W": start["W"].astype(complex)}, where)
    assert no_pairs(problem.geometry, x, 3).S.shape == (4, 2 * 21 + 4 + 2)
