"""The kernels for stacks of 2×2 and 3×3 rotations, beside the text they repeat."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stiefel
from stiefel import SpecialOrthogonal
from stiefel.backends.arrays import kernels_for
from stiefel.geometry import compiled, turns
from stiefel.geometry import framed_ray as frames_text
from stiefel.geometry.frames import framed
from stiefel.geometry.ray import Lowered
from stiefel.geometry.turns import CompiledRotationRay, RotationRay
from stiefel.solvers import aims, memory, stack_pairs
from stiefel.solvers.aims import matrix_aim
from stiefel.solvers.leaves import squared_length_of
from stiefel.solvers.raising import leaf_change
from stiefel.types import Metric

KERNELS = kernels_for(np.zeros(1)).compiled
if KERNELS is None:
    pytest.skip("the compiled kernels were not built", allow_module_level=True)

STACKS = ((2, 2), (3, 3), (1, 2, 2), (1, 3, 3), (7, 2, 2), (5, 3, 3), (2, 3, 3, 3))
stacks = st.sampled_from(STACKS)
seeds = st.integers(0, 10**6)
examples = settings(max_examples=30, deadline=None)


def rotations(shape, rng, drift=0.0):
    """The geometry and the point of the solvers, and a way to draw vectors there."""
    X = SpecialOrthogonal().random(*shape, seed=rng) + drift * rng.standard_normal(shape)
    geometry, Q = framed(SpecialOrthogonal().bind(X), X)
    return geometry, Q, lambda: rng.standard_normal((*shape[:-2], 1 if shape[-1] == 2 else 3))


@pytest.fixture
def text(monkeypatch):
    """The text alone, from here on."""

    def leave_aside():
        for module in (compiled, turns, aims):
            monkeypatch.setattr(module, "kernels_of_turns", lambda k, Q, V: None)
        monkeypatch.setattr(memory, "_compiled", lambda geometry, pairs: None)
        monkeypatch.setattr(stack_pairs, "_compiled", lambda k, S: None)

    return leave_aside


def close(found, expected, relative=1e-13):
    scale = max(float(np.abs(expected).max(initial=0.0)), 1e-300)
    np.testing.assert_allclose(found, expected, rtol=0, atol=relative * scale)


@examples
@given(seeds, stacks, st.booleans())
def test_the_gradient(seed, shape, in_columns):
    rng = np.random.default_rng(seed)
    geometry, Q, _ = rotations(shape, rng)
    E = rng.standard_normal(shape)
    E = E.mT.copy().mT if in_columns else E
    G, square = turns._lowered(geometry.kernels, Q, E)
    found = geometry.gradient(Q, E)
    close(found.G, G)
    assert found.square == pytest.approx(float(square), rel=1e-13)
    # By the definition: the skew part of QᵀE, in an orthonormal basis.
    A = 0.5 * (Q.mT @ E - E.mT @ Q)
    close(geometry.ambient(Q, found.G), Q @ A)
    assert found.square == pytest.approx(2.0 * np.sum(A * A), rel=1e-12)


@examples
@given(seeds, stacks, st.sampled_from([0.0, 1e-14, 1e-9]), st.floats(-4.0, 4.0))
def test_the_ray(seed, shape, drift, t):
    geometry, Q, vector = rotations(shape, np.random.default_rng(seed), drift)
    T = vector()
    fast, slow = geometry.ray_along(Q, T), RotationRay(geometry.kernels, Q, T)
    assert type(fast) is CompiledRotationRay
    assert fast.bounded_length == pytest.approx(slow.bounded_length, rel=1e-14)
    assert fast.squared_norm == pytest.approx(slow.squared_norm, rel=1e-14)
    assert fast.defect == pytest.approx(slow.defect, rel=1e-3, abs=1e-15 * math.sqrt(Q.size))
    if drift != 1e-14:  # where either may straighten and the other not
        close(fast(t), slow(t))
        close(fast._Q, slow._Q)
    A = turns._skew_matrix(geometry.kernels, T)
    eye = np.eye(shape[-1])
    expected = fast._Q @ np.linalg.solve(eye - 0.5 * t * A, eye + 0.5 * t * A)
    close(fast(t), expected, 1e-12)
    close(fast.velocity(t), slow.velocity(t))
    old, new = (Lowered(vector(), 0.0) for _ in range(2))
    found, pair = fast.secant_pair(t, old, new), slow.secant_pair(t, old, new)
    close(found.s, pair.s)
    close(found.y, pair.y)
    assert found.slope == pytest.approx(np.vdot(new.G, pair.s), rel=1e-12, abs=1e-12)
    for asked in (
        lambda pair: squared_length_of(geometry, pair),
        lambda pair: leaf_change(geometry, Q, pair, Metric()),
    ):
        assert asked(found) == pytest.approx(asked(pair), rel=1e-13)


@examples
@given(seeds, stacks, st.sampled_from([1e-15, 1e-9, 1e-6]))
def test_the_defect_and_what_brings_it_back(seed, shape, drift):
    geometry, Q, vector = rotations(shape, np.random.default_rng(seed), drift)
    k, M = geometry.kernels, geometry.manifold
    E = Q.mT @ Q - np.eye(shape[-1])
    largest = math.sqrt(np.max(np.sum(E * E, axis=(-2, -1))))
    assert M.defect(Q) == pytest.approx(largest, rel=1e-3, abs=2e-15)
    E, square, furthest = frames_text._drift(k, Q, Q)
    found = KERNELS.turns_ray(shape[-1], Q, vector())
    assert found[0] == pytest.approx(float(square), rel=1e-2, abs=1e-29 * Q.size)
    assert found[1] == pytest.approx(float(furthest), rel=1e-2, abs=1e-29)
    close(compiled.straightened(k, Q), frames_text._straightened(k, Q, E), 1e-15)
    assert M.defect(M.restore(Q)) < 1.5e-15


def filled(geometry, Q, vector, coupling, steps=7):
    """Pairs of steps of unlike curvature, parted or not."""
    pairs = memory.no_pairs(geometry, vector(), 4, Q)
    stiffness = np.geomspace(0.1, 10.0, vector().size).reshape(vector().shape)
    for _ in range(steps):
        s = vector()
        y = stiffness * s + coupling * np.roll(s, 1, axis=0)
        pairs = memory.remember(geometry, pairs, s, y, float(np.vdot(s, y)), pairs.rows)
        if pairs.apart is not None:
            apart = stack_pairs.looked_at(geometry, pairs, y, lambda C: 2.0 * C, 0.9)
            pairs = pairs._replace(apart=apart)
    return pairs


@pytest.mark.parametrize("shape", STACKS)
@pytest.mark.parametrize("coupling", [0.0, 0.9])
def test_where_to_go(shape, coupling, text):
    found = []
    for fast in (True, False):
        if not fast:
            text()
        geometry, Q, vector = rotations(shape, np.random.default_rng(5))
        pairs, G = filled(geometry, Q, vector, coupling), vector()
        aimed = matrix_aim(geometry, pairs, Q, G, 0.7, Metric(), 0.5)
        assert (aimed is not None) is fast
        if fast:
            T, slope, ray = aimed
            assert slope == pytest.approx(np.vdot(G, T), rel=1e-12)
            again = geometry.ray_along(Q, T)  # as a run that goes on makes it
            assert vars(again).keys() == vars(ray).keys()
            assert again.bounded_length == ray.bounded_length and again.defect == ray.defect
            np.testing.assert_array_equal(again(0.3), ray(0.3))
        elif pairs.apart is not None and pairs.apart.on:
            known = geometry, pairs, G, 0.7, lambda C: 2.0 * C, 0.5
            T = stack_pairs.direction_apart(*known)
        else:
            T = memory.apply_inverse(geometry, pairs, G, 0.7, lambda C: 2.0 * C, True)
        found.append((T, pairs.apart is not None and pairs.apart.on))
    (T, apart), (U, on) = found
    assert apart is on
    assert on is (coupling == 0.0 and Q[..., 0, 0].size > 1)
    close(T, U, 1e-11)


def test_what_is_no_number_is_told_and_not_lost():
    geometry, Q, vector = rotations((4, 3, 3), np.random.default_rng(0))
    for bad in (math.nan, math.inf):
        for i in range(4):
            broken, T = Q.copy(), vector()
            broken[i, 1, 2] = T[i, 0] = bad
            square, largest, longest = KERNELS.turns_ray(3, broken, T)
            assert not math.isfinite(square + largest) and not math.isfinite(longest)
            assert not math.isfinite(KERNELS.turns_defect(3, broken))
            assert not math.isfinite(geometry.gradient(broken, Q).square)
            assert not np.isfinite(geometry.ray_along(Q, T)(1.0)[i]).all()
    for size in (1e-320, 1e-160, 1e150):
        X = geometry.ray_along(Q, size * vector())(1.0)
        assert geometry.manifold.defect(X) < 1e-14


def test_empty_stacks_and_what_is_no_stack_of_rotations():
    Q, G, T = np.zeros((0, 3, 3)), np.zeros((0, 3)), np.zeros((0, 3))
    assert KERNELS.turns_gradient(3, Q, Q, G) == 0.0
    assert KERNELS.turns_ray(3, Q, T) == (0.0, 0.0, 0.0)
    assert KERNELS.turns_defect(2, Q) == 0.0
    Q, c, t = np.zeros((4, 3, 3)), np.zeros((4, 3)), np.zeros((4, 1))
    S, m, inverse = np.zeros((2, 4, 3)), np.ones(2), np.zeros((2, 2))
    rows, curvatures, gammas = np.array([0, 1], np.intp), np.ones((2, 4)), np.ones(4)
    aim, apart = (S, S, inverse, m, 1.0), (S, S, curvatures, rows, gammas, 1.0, 1.0)
    KERNELS.turns_aim(3, Q, c, *aim, c.copy())
    KERNELS.turns_aim_apart(3, Q, c, *apart, c.copy())
    calls = [
        (KERNELS.turns_gradient, (3, Q, Q, t)),
        (KERNELS.turns_gradient, (2, Q, Q, c)),
        (KERNELS.turns_gradient, (4, Q, Q, c)),
        (KERNELS.turns_gradient, (-3, Q, Q, c)),
        (KERNELS.turns_gradient, (3, Q, Q[1:], c)),
        (KERNELS.turns_gradient, (3, Q.mT, Q, c)),
        (KERNELS.turns_gradient, (3, Q, Q)),
        (KERNELS.turns_point, (3, Q, t, 1.0, Q.copy())),
        (KERNELS.turns_point, (3, Q, c, "1", Q.copy())),
        (KERNELS.turns_point, (3, Q, c, 1.0, Q[:2].copy())),
        (KERNELS.turns_ray, (3, Q, t)),
        (KERNELS.turns_ray, (2**40, Q, c)),
        (KERNELS.turns_defect, (2, Q[0, :, 0].copy())),
        (KERNELS.turns_straightened, (3, Q, c)),
        (KERNELS.turns_aim, (3, Q, c, S, S[1:], inverse, m, 1.0, c.copy())),
        (KERNELS.turns_aim, (3, Q, c, S, S, m, m, 1.0, c.copy())),
        (KERNELS.turns_aim, (3, Q, c, *aim, t.copy())),
        (KERNELS.turns_aim_apart, (3, Q, c, S, S, curvatures[:, :2].copy(), *apart[3:], c.copy())),
        (KERNELS.turns_aim_apart, (3, Q, c, S, S, curvatures, rows + 1, *apart[4:], c.copy())),
        (KERNELS.turns_aim_apart, (3, Q, c, *apart[:4], gammas[1:], 1.0, 1.0, c.copy())),
        (KERNELS.turns_aim_apart, (3, Q, c, *apart, c[1:].copy())),
    ]
    for kernel, arguments in calls:
        with pytest.raises((ValueError, TypeError, BufferError)):
            kernel(*arguments)


@pytest.mark.parametrize("dtype", [np.float32, complex])
def test_others_are_served_by_the_text(dtype):
    X = SpecialOrthogonal().random(4, 3, 3, seed=0).astype(dtype)
    geometry, Q = framed(SpecialOrthogonal().bind(X), X)
    assert type(geometry.ray_along(Q, geometry.gradient(Q, 2.0 * Q).G)) is not CompiledRotationRay


def sum_of_turns(size, coupled, count=12):
    """A function of several rotations, and a start."""
    rng = np.random.default_rng(1)
    A = rng.standard_normal((count, size, size)) * np.geomspace(1.0, 30.0, count)[:, None, None]
    X0 = SpecialOrthogonal().random(count, size, size, seed=2)

    def fun(X):
        D = X - coupled * np.roll(X, 1, axis=0)
        return 0.5 * np.sum(D * D) - np.sum(A * X), D - coupled * np.roll(D, -1, axis=0) - A

    return fun, X0


@pytest.mark.parametrize("coupled", [True, False])
@pytest.mark.parametrize("size", [2, 3])
def test_runs_with_and_without_kernels_are_alike(size, coupled, text):
    fun, X0 = sum_of_turns(size, coupled)
    found = [stiefel.minimize(fun, X0, manifold=SpecialOrthogonal(), rtol=1e-6)]
    text()
    found.append(stiefel.minimize(fun, X0, manifold=SpecialOrthogonal(), rtol=1e-6))
    fast, slow = found
    assert fast.success and slow.success and fast.nfev == slow.nfev
    close(fast.x, slow.x, 1e-7)
    values = fast.history["value"][:8]
    np.testing.assert_allclose(values, slow.history["value"][:8], rtol=1e-10)


@pytest.mark.parametrize("coupled", [True, False])
@pytest.mark.parametrize("end", [3, 6, 9])
def test_a_run_that_goes_on_repeats_every_bit(coupled, end, tmp_path):
    fun, X0 = sum_of_turns(3, coupled)
    options = {"manifold": SpecialOrthogonal(), "rtol": 1e-9}
    whole = stiefel.minimize(fun, X0, **options)
    saved = {"checkpoint": tmp_path / "run", "resume": True}
    part = stiefel.minimize(fun, X0, maxiter=end, **options, **saved)
    found = stiefel.minimize(fun, X0, **options, **saved)
    assert part.nit == end < found.nit == whole.nit and found.nfev == whole.nfev
    np.testing.assert_array_equal(found.x, whole.x)
