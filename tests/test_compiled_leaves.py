"""The kernels that take all leaves of a small tree at once, beside the text they repeat."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stiefel
from stiefel import (
    ComplexCircle,
    Euclidean,
    Grassmann,
    Oblique,
    Orthogonal,
    SpecialOrthogonal,
    Sphere,
    Stiefel,
    Unitary,
)
from stiefel.backends.arrays import kernels_for
from stiefel.geometry.frames import framed
from stiefel.geometry.product import Product
from stiefel.geometry.ray import Lowered, Secant
from stiefel.solvers import leaf_kinds, leaves, memory, raising
from stiefel.solvers.aims import matrix_aim
from stiefel.solvers.leaf_kinds import FLAT, FRAMED, MATRIX, SPAN, TURNS, UNITS
from stiefel.solvers.learned_metric import Learned
from stiefel.types import Metric

KERNELS = kernels_for(np.zeros(1)).compiled
if KERNELS is None:
    pytest.skip("the compiled kernels were not built", allow_module_level=True)

# A manifold, the shape of a point, complex or not, and how φ acts there.
LEAVES = (
    (Stiefel(), (9, 3), False, MATRIX),
    (Stiefel(), (8, 2), True, MATRIX),
    (Grassmann(), (7, 2), False, SPAN),
    (Stiefel(), (3, 6, 2), False, MATRIX),
    (Stiefel(), (2, 2, 7, 3), True, MATRIX),
    (Grassmann(), (2, 5, 2), True, SPAN),
    (Stiefel(), (6, 1), False, FLAT),
    (Sphere(), (6,), False, FLAT),
    (Sphere(), (4, 5), False, UNITS),
    (Sphere(), (4, 5, 1), False, UNITS),
    (Oblique(), (5, 4), False, FLAT),
    (ComplexCircle(), (3, 2), True, FLAT),
    (Euclidean(), (3, 4), False, FLAT),
    (Euclidean(), (3,), True, FLAT),
    (Unitary(), (4, 4), True, FRAMED),
    (Orthogonal(), (5, 5), False, FRAMED),
    (Stiefel(), (5, 4), False, FRAMED),
    (SpecialOrthogonal(), (3, 3), False, TURNS),
    (SpecialOrthogonal(), (2, 3, 3), False, TURNS),
)


def tree_of(which, rng):
    """The geometry and the point of the solvers, and how to draw a vector there."""
    chosen = [LEAVES[i] for i in which]
    points = [
        manifold.random(*shape, seed=rng, dtype=complex if is_complex else float)
        for manifold, shape, is_complex, _ in chosen
    ]
    bound = [manifold.bind(x) for (manifold, *_), x in zip(chosen, points, strict=True)]
    geometry, X = framed(Product(tuple(bound)), tuple(points))

    def gradient():
        E = [np.asarray(rng.standard_normal(x.shape) + 1j * rng.standard_normal(x.shape), x.dtype)
             if np.iscomplexobj(x) else rng.standard_normal(x.shape) for x in points]  # fmt: skip
        return geometry.gradient(X, tuple(E)).G

    return geometry, X, gradient, tuple(kind for *_, kind in chosen)


def metrics_of(X, kinds, rng):
    def one(x, kind):
        D = None
        if kind in (MATRIX, SPAN) and rng.random() < 0.7:
            D = rng.standard_normal((*x.shape[:-2], x.shape[-1], x.shape[-1])).astype(x.dtype)
            D = np.asfortranarray(D @ D.mT + np.eye(x.shape[-1]))  # as eigenvectors leave it
        scales = None
        if kind in (MATRIX, SPAN) and x.ndim > 2 and rng.random() < 0.7:
            scales = rng.uniform(0.1, 1, (*x.shape[:-2], 1, 1)).astype(x.dtype)
        horizontal = kind == MATRIX and rng.random() < 0.3
        return Metric(D, rng.uniform(1, 4), horizontal, rng.uniform(0.1, 1), scales)

    return tuple(one(x, kind) for x, kind in zip(X, kinds, strict=True))


def remembered(geometry, gradient, count):
    pairs = memory.no_pairs(geometry, gradient(), 5)
    for _ in range(count):
        s, y = gradient(), gradient()
        pairs = memory.remember(geometry, pairs, s, y, abs(geometry.dot(s, y)) + 1.0, pairs.rows)
    return pairs


WHICH = st.lists(st.integers(0, len(LEAVES) - 1), min_size=1, max_size=5)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 7), WHICH)
def test_an_aim_of_a_tree_is_that_of_the_text(seed, count, which):
    rng = np.random.default_rng(seed)
    geometry, X, gradient, kinds = tree_of(which, rng)
    assert leaf_kinds.leaf_kinds(geometry, X) == kinds
    metrics, pairs, G = metrics_of(X, kinds, rng), remembered(geometry, gradient, count), gradient()
    phi = lambda C: geometry.raise_onto(X, C, metrics)
    expected = memory.apply_inverse(geometry, pairs, G, 0.7, phi, owned=True)
    T, slope, ray = matrix_aim(geometry, pairs, X, G, 0.7, metrics)
    size = max(np.abs(e).max() for e in expected)
    for t, e in zip(T, expected, strict=True):
        np.testing.assert_allclose(t, e, atol=1e-11 * size)
    assert slope == pytest.approx(geometry.dot(G, T), rel=1e-11, abs=1e-11 * size)
    again = geometry.ray_along(X, T, metrics)  # of the same T: to the last bit, as when resumed
    assert (ray.length, ray.defect) == (again.length, again.defect)
    for y, e in zip(ray(0.3 / size), again(0.3 / size), strict=True):
        assert y.tobytes() == e.tobytes()


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9), WHICH)
def test_pairs_of_a_tree_are_those_of_the_text(seed, count, which):
    geometry, _, gradient, _ = tree_of(which, np.random.default_rng(seed))
    found = remembered(geometry, gradient, count)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "_compiled", lambda *arguments: None)
        geometry, _, gradient, _ = tree_of(which, np.random.default_rng(seed))
        expected = remembered(geometry, gradient, count)
    assert found.rows == expected.rows
    for f, e in zip(found[:4], expected[:4], strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-10, atol=1e-10 * np.abs(e).max())


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 3), WHICH)
def test_leaves_are_balanced_as_in_the_text(seed, steps, which):
    rng = np.random.default_rng(seed)
    geometry, X, gradient, _ = tree_of(which, rng)
    pairs = []
    for _ in range(steps):
        s, y = (tuple(10.0 ** rng.uniform(-6, 3) * c for c in gradient()) for _ in range(2))
        pairs.append(Secant(s, y, leaves=tuple(map(Secant, s, y))))

    def balanced():
        learned = (Learned(Metric(omega=3.0)),) * len(which)
        for pair in pairs:
            learned = leaves.balanced(geometry, X, pair, learned, 0.95, 1e-8)
        return learned

    found = balanced()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaves, "leaf_kinds", lambda *arguments: None)
        expected = balanced()
    for f, e in zip(found, expected, strict=True):
        if len(which) > 1:
            np.testing.assert_allclose(f.weights, e.weights, rtol=1e-12)
            np.testing.assert_allclose(f.stiffness, e.stiffness, rtol=1e-10, atol=1e-12)
            assert f.unit == pytest.approx(e.unit, rel=1e-13)
        assert f.metric.omega == 3.0
        assert f.metric.scale == pytest.approx(e.metric.scale, rel=1e-10)


def test_a_step_that_is_rounding_balances_nothing():
    geometry, X, gradient, _ = tree_of((0, 9), np.random.default_rng(0))
    s = tuple(0.0 * c for c in gradient())
    pair, learned = Secant(s, s, leaves=tuple(map(Secant, s, s))), (Learned(Metric()),) * 2
    assert leaves.balanced(geometry, X, pair, learned, 0.95, 1e-8) is learned


def test_an_aim_of_a_tree_away_from_the_manifold():
    """Where little of T is tangent the ray is made of its cotangent, as in `ray_along`."""
    geometry, X, gradient, _ = tree_of((0, 9), np.random.default_rng(1))
    pairs = remembered(geometry, lambda: X, 1)
    G = (1e-6 * gradient()[0] + X[0], gradient()[1])
    metrics = Metric(), Metric()
    T, _, ray = matrix_aim(geometry, pairs, X, G, 1.0, metrics)
    again = geometry.ray_along(X, T, metrics)
    assert all(y.tobytes() == e.tobytes() for y, e in zip(ray(1.0), again(1.0), strict=True))


def test_free_leaves_may_stand_in_any_order():
    """A user's gradient may be a transpose, or every second entry of something."""
    x = np.arange(12.0).reshape(3, 4)
    geometry = Product((Euclidean().bind(x), Euclidean().bind(x)))
    for turn in (lambda c: c, np.asfortranarray, lambda c: np.repeat(c, 2, axis=1)[:, ::2]):
        pair = tuple(turn(x + i) for i in range(2))
        pairs = memory.remember(geometry, memory.no_pairs(geometry, (x, x), 3), pair, pair, 1.0, ())
        np.testing.assert_array_equal(pairs.S[0], np.concatenate([x.ravel(), x.ravel() + 1]))


class Doubled(Euclidean):
    """A class of the user's with a φ of its own."""

    def raise_onto(self, X, W, metric):
        return 2.0 * W


@pytest.mark.parametrize(
    ("manifold", "x"),
    [
        (Doubled(), np.ones(3)),
        (Euclidean(), np.ones(3, np.float32)),
        (Euclidean(), np.ones(leaf_kinds.SMALL_TREE)),
        (Stiefel(), stiefel.random_point(4, 5, 1, seed=0)),
        (Stiefel(B=np.eye(4)), stiefel.random_point(4, 2, seed=0)),
    ],
)
def test_other_leaves_are_left_to_the_text(manifold, x):
    free = np.ones(2)
    geometry = Product((manifold.bind(x), Euclidean().bind(free)))
    assert leaf_kinds.leaf_kinds(geometry, (x, free)) is None


def test_what_are_no_such_leaves_is_refused():
    S, numbers = np.zeros((3, 5)), (1.0, np.zeros((3, 3)), np.zeros(3))
    good = (np.ones(3), np.ones(2))
    KERNELS.leaves_remember(S, S.copy(), 0, -1, good, good, *numbers)
    for bad in ((np.ones(3),), (np.ones(3), np.ones(3)), (np.ones(3), np.ones(4, np.float32)), 1.0):
        with pytest.raises((ValueError, TypeError)):
            KERNELS.leaves_remember(S, S.copy(), 0, -1, bad, good, *numbers)
    for row, gone in ((3, -1), (-1, -1), (0, 3)):
        with pytest.raises(ValueError, match="row"):
            KERNELS.leaves_remember(S, S.copy(), row, gone, good, good, *numbers)
    frames = None, None
    aim = S, S, np.zeros((3, 3)), np.zeros(3), 1.0
    metrics = Metric(), Metric()
    KERNELS.leaves_aim(*aim, good, (np.ones(3), np.ones(2)), good, metrics, (0, 0), frames)
    for T, kinds, given_metrics in (
        ((np.ones(3), np.ones(3)), (0, 0), metrics),
        (good, (0, 9), metrics),
        (good, (0,), metrics),
        (good, (0, 0), (Metric(),)),
        (good, (0, 0), (Metric(), None)),
        (good, (1, 0), metrics),
    ):
        with pytest.raises((ValueError, TypeError, BufferError)):
            KERNELS.leaves_aim(*aim, good, T, good, given_metrics, kinds, frames)
    for yy, out in (((1.0,), np.empty((3, 2))), ((1.0, 1.0), np.empty((3, 1)))):
        with pytest.raises(ValueError, match=r"leaves|bytes"):
            KERNELS.leaves_balanced(good, yy, None, None, 0.0, 0.95, 1e-8, out)


# -- pairs where transport is the identity: free leaves and frames

STRAIGHT = [i for i, (m, *_, kind) in enumerate(LEAVES) if kind == FRAMED or m == Euclidean()]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(STRAIGHT))
def test_a_straight_pair_is_that_of_the_text(seed, which):
    tree, (X,), gradient, _ = tree_of((which,), np.random.default_rng(seed))
    (geometry,) = tree.factors
    ray = geometry.ray_along(X, gradient()[0], Metric())
    old, new = (Lowered(gradient()[0], 0.0) for _ in range(2))
    pair = ray.secant_pair(0.3, old, new)
    s, y = 0.3 * ray.transported_velocity(0.3), new.G - old.G
    np.testing.assert_allclose(pair.s, s, rtol=1e-15)
    np.testing.assert_allclose(pair.y, y, rtol=1e-15)
    assert pair.slope == pytest.approx(np.vdot(new.G, s).real, rel=1e-12, abs=1e-13)
    length = leaves.squared_length_of(geometry, pair)
    assert length == pytest.approx(np.vdot(y, y).real, rel=1e-13)
    for omega in (1.0, 3.0):
        change = raising.leaf_change(geometry, X, pair, Metric(omega=omega))
        raised = geometry.raise_index(X, y, Metric(omega=omega))
        assert change == pytest.approx(np.vdot(y, raised).real, rel=1e-12)


def test_a_straight_pair_of_what_is_no_such_array_is_refused():
    x = np.ones(4)
    for head in (-1, 5):
        with pytest.raises(ValueError, match="head"):
            KERNELS.straight_pair(x, 1.0, x, x, 1, head, x.copy(), x.copy())
    with pytest.raises(ValueError, match="doubles"):
        KERNELS.straight_pair(x, 1.0, x, np.ones(3), 1, 0, x.copy(), x.copy())
