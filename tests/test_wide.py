"""Rays of matrices with many columns beside a slow transcription, and beside `ray.TangentRay`."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stiefel
from stiefel import Stiefel
from stiefel.backends.arrays import kernels_for
from stiefel.geometry import ray as rays
from stiefel.geometry.wide import CompiledWideRay, WideRay, wide_squares
from stiefel.solvers import aims, learned_metric, memory
from stiefel.solvers.aims import is_wide, matrix_arrival, slope_and_curve
from stiefel.solvers.learned_metric import Learned, LearnedMetric
from stiefel.solvers.row_recognition import Look
from stiefel.types import Metric

KERNELS = kernels_for(np.zeros(1)).compiled
KINDS = (WideRay, CompiledWideRay) if KERNELS is not None else (WideRay,)
SHAPES = [(12, 5), (20, 8), (9, 8), (40, 12)]
needs_kernels = pytest.mark.skipif(KERNELS is None, reason="the compiled kernels were not built")


def drawn(seed, shape, is_complex):
    rng = np.random.default_rng(seed)
    X = Stiefel().random(*shape, seed=rng, dtype=complex if is_complex else float)

    def gaussian(*size):
        size = size or shape
        return rng.standard_normal(size) + (1j * rng.standard_normal(size) if is_complex else 0)

    return X, Stiefel().bind(X), gaussian


def same(found, expected, digits=1e-12):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=digits, atol=digits)


def rotation_of_space(X, T, theta, t):
    """Q(t) as an n×n matrix, from W = T − XM, and the velocity of X; see `TangentRay`."""
    m = X.conj().T @ T
    W = T - X @ (0.5 * (m + m.conj().T) + theta * 0.5 * (m - m.conj().T))
    Omega, one = W @ X.conj().T - X @ W.conj().T, np.eye(len(X))
    return np.linalg.solve(one - 0.5 * t * Omega, one + 0.5 * t * Omega), Omega @ X


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 10**6), st.sampled_from(SHAPES), st.booleans(), st.sampled_from([0.5, 1.0]),
    st.sampled_from([0.0, 0.3, -1.2]),
)  # fmt: skip
def test_a_ray_is_the_cayley_transform(kind, seed, shape, is_complex, theta, t):
    X, geometry, draw = drawn(seed, shape, is_complex)
    T = draw() / math.sqrt(shape[0])
    ray, (Q, velocity) = kind(geometry.kernels, X, T, theta), rotation_of_space(X, T, theta, t)
    V, old = draw(), geometry.gradient(X, draw())
    there = ray(t)
    new = geometry.gradient(there, draw())
    pair = ray.secant_pair(t, old, new)
    same((there, ray.transported_velocity(t), pair.s, pair.y),
         (Q @ X, Q @ velocity, t * Q @ velocity, new.G - Q @ old.G))  # fmt: skip
    cotangent = geometry.project_direction(X, V)
    same((ray.transport(t, cotangent), ray.length), (Q @ cotangent, np.linalg.norm(velocity)))
    h = 1e-5
    same([ray.velocity(t)], [(ray(t + h) - ray(t - h)) / (2 * h)], 1e-7)
    lowered = geometry.lower_index(X, velocity)
    assert ray.squared_norm == pytest.approx(geometry.norm(X, lowered) ** 2, rel=1e-10)
    assert pair.slope == pytest.approx(geometry.dot(new.G, pair.s), rel=1e-10, abs=1e-12)
    assert pair.curvature.square == pytest.approx(geometry.dot(pair.y, pair.y), rel=1e-10)
    expected = rays.squares_at(geometry.kernels, there, pair.s, pair.y)
    same(wide_squares(geometry.kernels, pair.curvature), expected, 1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_short_steps_keep_their_digits(kind):
    """s is 2V − tU: of V = X(t) − X a step of 1e-9 would keep seven digits."""
    X, geometry, draw = drawn(3, (30, 12), False)
    T = draw()
    ray, t = kind(geometry.kernels, X, T, 0.5), 1e-9
    at = geometry.gradient(X, draw())
    s = ray.secant_pair(t, at, at).s
    np.testing.assert_allclose(s / t, ray.transported_velocity(0.0), atol=1e-5)
    half = ray.secant_pair(0.5 * t, at, at).s  # Q(t)U is linear in t up to t²
    curved = (s / t - ray.transported_velocity(0.0)) - 2.0 * (
        half / (0.5 * t) - ray.transported_velocity(0.0)
    )
    assert np.abs(curved).max() < 1e-13


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("defect", [1e-13, 1e-10])
def test_a_point_that_has_drifted_is_brought_back(kind, defect):
    X, geometry, draw = drawn(4, (30, 12), True)
    ray = kind(geometry.kernels, X + defect * draw(), 0.1 * draw(), 0.5)
    assert ray.defect > defect
    assert geometry.defect(ray(1.0)) <= geometry.allowed_defect(X)


def test_many_steps_stay_on_the_manifold():
    X, geometry, draw = drawn(5, (30, 12), False)
    for _ in range(300):
        X = KINDS[-1](geometry.kernels, X, 0.2 * draw(), 0.5)(0.3)
        assert geometry.defect(X) <= geometry.allowed_defect(X)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1e-120, 1e120, np.nan, np.inf, 0.0])
def test_sizes_that_squares_do_not_have_are_left_to_others(kind, size):
    X, geometry, draw = drawn(6, (12, 5), False)
    with np.errstate(all="ignore"):
        assert kind(geometry.kernels, X, size * draw(), 0.5).lossy
    assert not kind(geometry.kernels, X, 1e60 * draw(), 0.5).lossy


def test_what_is_hardly_tangent_is_left_to_others():
    X, geometry, draw = drawn(7, (50, 20), False)
    at = geometry.gradient(X, draw())
    T = X + 1e-3 * geometry.project(X, draw())
    _, ray = slope_and_curve(geometry, X, at, T, Metric(), memory.NOTHING)
    assert not isinstance(ray, WideRay)


def test_directions_of_row_models_have_the_rays_of_others():
    """As their kernels make them: a resumed run makes them again."""
    X, geometry, draw = drawn(7, (50, 20), False)
    known = geometry, X, geometry.gradient(X, draw()), draw(), Metric(), memory.NOTHING
    assert isinstance(slope_and_curve(*known)[1], WideRay)
    assert not isinstance(slope_and_curve(*known, True)[1], WideRay)


# -- which points -------------------------------------------------------------------------------


def test_matrices_with_many_columns():
    assert is_wide(np.zeros((150, 60))) and is_wide(np.zeros((320, 20)))
    assert not is_wide(np.zeros((321, 20))) and not is_wide(np.zeros((40, 19)))
    assert not is_wide(np.zeros((60, 60)))
    for manifold, shape, kind in (
        (Stiefel(), (50, 20), True),
        (Stiefel(), (400, 20), False),
        (stiefel.Grassmann(), (50, 20), True),
        (Stiefel(B=np.diag(np.arange(1.0, 51.0))), (50, 20), False),
    ):
        X = manifold.random(*shape, seed=0)
        found = aims.kernels_of_wide_rays(manifold.bind(X), X)
        assert (found is not None) == kind
    single = Stiefel().random(50, 20, seed=0).astype(np.float32)
    assert aims.kernels_of_wide_rays(Stiefel().bind(single), single) is None


def quartic(n, k, is_complex=False):
    rng = np.random.default_rng(8)
    a, B = np.linspace(1.0, 20.0, n)[:, None], rng.standard_normal((n, k))
    if is_complex:
        B = B + 1j * rng.standard_normal((n, k))

    def fun(X):
        q = np.sum(np.abs(X) ** 2, 1, keepdims=True)
        G = a * X + 40.0 * q * X + B
        return 0.5 * float(np.sum(a * q)) + 10.0 * float(np.sum(q * q)) + np.vdot(B, X).real, G

    return fun, Stiefel().random(n, k, seed=9, dtype=complex if is_complex else float)


@pytest.mark.parametrize("is_complex", [False, True])
def test_steps_are_those_of_the_other_rays(is_complex, monkeypatch):
    fun, X0 = quartic(60, 20, is_complex)
    runs = [stiefel.minimize(fun, X0, maxiter=15)]
    monkeypatch.setattr(aims, "is_wide", lambda X: False)
    runs.append(stiefel.minimize(fun, X0, maxiter=15))
    assert runs[0].nfev == runs[1].nfev
    np.testing.assert_allclose(runs[0].x, runs[1].x, atol=1e-8)


@pytest.mark.parametrize("shape", [(60, 20), (50, 24)])
def test_a_resumed_run_has_the_same_bits(shape, tmp_path):
    (fun, X0), place = quartic(*shape), tmp_path / "run.npz"
    whole = stiefel.minimize(fun, X0, rtol=1e-9)
    stiefel.minimize(fun, X0, rtol=1e-9, maxiter=9, checkpoint=place)
    rest = stiefel.minimize(fun, X0, rtol=1e-9, checkpoint=place, resume=True)
    assert (rest.nfev, rest.nit) == (whole.nfev, whole.nit)
    assert np.array_equal(rest.x, whole.x)


def test_a_resumed_row_model_has_the_same_bits(tmp_path):
    """Its rays are those of `cayley`, also where others would be `wide`."""
    A = np.diag(np.linspace(0.0, 10.0, 80) ** 2)
    fun, place = lambda X: (0.5 * float(np.vdot(X, A @ X)), A @ X), tmp_path / "run.npz"
    X0 = Stiefel().random(80, 20, seed=1)
    whole = stiefel.minimize(fun, X0, rtol=1e-9)
    for steps in (2, 5):
        stiefel.minimize(fun, X0, rtol=1e-9, maxiter=steps, checkpoint=place)
        rest = stiefel.minimize(fun, X0, rtol=1e-9, checkpoint=place, resume=True)
        assert rest.nfev == whole.nfev and np.array_equal(rest.x, whole.x)
        place.unlink()


# -- kernels ------------------------------------------------------------------------------------


@needs_kernels
@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(SHAPES), st.booleans(), st.booleans())
def test_kernels_are_those_of_the_text(seed, shape, is_complex, horizontal):
    X, geometry, draw = drawn(seed, shape, is_complex)
    k, T = geometry.kernels, draw()
    theta = 1.0 if horizontal else 0.5
    (frame, *numbers), (text, *expected) = (
        kind.prepare(k, X, T, theta) for kind in (CompiledWideRay, WideRay)
    )
    same((*frame, *numbers), (*text, *expected), 1e-11)
    found, expected = (kind.point(k, X, frame, 0.4) for kind in (CompiledWideRay, WideRay))
    same(found, expected)
    G, G_new, a = draw(), draw(), draw(shape[1], shape[1])
    of_step = k, X, frame, found[1], 0.4, G, a, G_new
    same(CompiledWideRay.pair(*of_step), WideRay.pair(*of_step), 1e-11)


@needs_kernels
@pytest.mark.parametrize("gamma", [0.0, 0.7])
@pytest.mark.parametrize("has_D", [False, True])
@pytest.mark.parametrize("is_complex", [False, True])
def test_an_arrival_is_pair_scale_and_aim(is_complex, has_D, gamma):
    X, geometry, draw = drawn(11, (50, 20), is_complex)
    D = draw(20, 20)
    metric = Metric(np.eye(20) + D @ D.conj().T if has_D else None, 3.0)
    at = [geometry.gradient(X, draw()) for _ in range(2)]
    ray = CompiledWideRay(geometry.kernels, X, draw(), 0.5)
    pair, Y, G = ray.secant_pair(0.3, *at), ray(0.3), at[1].G
    pairs = memory.no_pairs(geometry, X, 5)
    for s, y in ((draw(), draw()) for _ in range(3)):
        pairs = memory.remember(geometry, pairs, s, y, abs(geometry.dot(s, y)) + 1.0, pairs.rows)
    known = pairs, pair, 2.0, 1e-10, pairs.rows, gamma, Y, G, metric
    kept, new, (T, slope, curve), _ = matrix_arrival(geometry, *known)
    expected = memory.remember(geometry, pairs, pair.s, pair.y, 2.0, pairs.rows)
    assert kept.inverse.tobytes() == expected.inverse.tobytes()
    change = geometry.dot(pair.y, geometry.raise_index(Y, pair.y, metric))
    B, yy = pair.curvature.B, pair.curvature.yy
    small = D if not has_D else metric.D
    if has_D:
        change = np.vdot(small, yy).real - np.vdot(B, B @ small).real + 3.0 * np.vdot(B, B).real
    else:
        change = np.trace(yy).real + 2.0 * np.vdot(B, B).real
    assert new == pytest.approx(memory.smoothed(gamma, 2.0 / change), rel=1e-12)
    phi = lambda C: geometry.raise_index(Y, C, metric)
    same([T], [memory.apply_inverse(geometry, expected, G, new, phi, owned=True)], 1e-10)
    other, again = slope_and_curve(geometry, Y, at[1], T, metric, expected)
    assert slope == pytest.approx(other, rel=1e-12) and isinstance(curve, CompiledWideRay)
    assert curve(0.1).tobytes() == again(0.1).tobytes()


@needs_kernels
@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("columns", [6, 30])
def test_what_a_step_teaches_is_that_of_the_text(columns, is_complex):
    X, geometry, draw = drawn(12, (3 * columns, columns), is_complex)
    rule, k = LearnedMetric(), geometry.kernels
    texts = founds = Learned(Metric(), *learned_metric._zeros(geometry, X))
    for _ in range(6):
        ray = CompiledWideRay(k, X, draw(), 0.5)
        there = ray(0.1)
        at = geometry.gradient(X, draw()), geometry.gradient(there, draw())
        seen = ray.secant_pair(0.1, *at).curvature
        founds = rule._look_at_once(k.compiled, seen, founds)
        told = wide_squares(k, seen)
        texts = rule._accumulate(texts, told, *map(float, told[2:]))
        texts = rule._refresh(geometry, X, texts) if texts.steps >= rule.least else texts
        same(
            (founds.P, founds.R, founds.metric.omega), (texts.P, texts.R, texts.metric.omega), 1e-10
        )
        assert (founds.metric.D is None) == (texts.metric.D is None)
    same(founds[3:6], texts[3:6], 1e-10)
    assert founds.metric.D is None or np.allclose(founds.metric.D, texts.metric.D, rtol=1e-8)


@needs_kernels
def test_what_does_not_fit_is_refused():
    X, U, small = np.eye(8, 5), np.zeros((8, 5)), np.zeros((5, 5))
    KERNELS.prepare_wide(X, U, 0.5, U.copy(), small.copy(), small.copy())
    for bad in (np.zeros((8, 4)), np.zeros((8, 5), "f4"), np.zeros((5, 8)).T, np.zeros(8)):
        with pytest.raises((ValueError, BufferError)):
            KERNELS.prepare_wide(X, bad, 0.5, U.copy(), small.copy(), small.copy())
        with pytest.raises((ValueError, BufferError)):
            KERNELS.wide_point(X, bad, small, small, 0.1, U.copy(), U.copy())
        with pytest.raises((ValueError, BufferError)):
            KERNELS.wide_pair(X, U, small, bad, 0.1, U, small, U, U.copy(), U.copy(), small.copy())
    for bad in (np.zeros((4, 5)), np.zeros((10, 10))):
        with pytest.raises((ValueError, BufferError)):
            KERNELS.wide_point(X, U, bad, small, 0.1, U.copy(), U.copy())
    with pytest.raises((ValueError, BufferError)):
        KERNELS.learn(0.1, small, np.zeros((10, 10)), None, *(small,) * 4, None, *(0.0,) * 13,
                      *(small,) * 3)  # fmt: skip
    empty = np.zeros((0, 5))
    with pytest.raises(ValueError, match="no entries"):
        KERNELS.wide_point(empty, empty, small, small, 0.1, empty, empty)


@needs_kernels
@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300, 1e-320])
def test_bad_numbers_are_told(value):
    X, geometry, draw = drawn(13, (12, 5), False)
    T = draw()
    T[3, 2] = value
    ray = CompiledWideRay(geometry.kernels, X, T, 0.5)
    assert ray.lossy == (not value < 1.0) and (ray.lossy or np.isfinite(ray(0.3)).all())


# -- looks at the structure ----------------------------------------------------------------------


def test_a_constant_part_of_many_columns_is_looked_at_once(monkeypatch):
    """Models of more than thirty columns have none; there were four more looks, each O(k³)."""
    rng = np.random.default_rng(1)
    A, B = np.diag(np.linspace(1.0, 20.0, 90)), rng.standard_normal((90, 32))
    X0, looks = Stiefel().random(90, 32, seed=2), []
    told = Look.contradicts_a_product
    monkeypatch.setattr(Look, "contradicts_a_product", lambda s: looks.append(told(s)) or looks[-1])
    fun = lambda X: (0.5 * float(np.vdot(X, A @ X)) + float(np.vdot(B, X)), A @ X + B)
    seen = []
    found = "stiefel.solvers.row_recognition.look"
    look = stiefel.solvers.row_recognition.look
    monkeypatch.setattr(found, lambda *known: seen.append(1) or look(*known))
    assert stiefel.minimize(fun, X0).success
    assert len(seen) == len(looks) == 1 and looks[0] > 1e-4


@pytest.mark.parametrize("is_complex", [False, True])
def test_products_are_not_contradicted(is_complex):
    """∇f = AXM is recognised for any number of columns."""
    rng = np.random.default_rng(3)
    A = rng.standard_normal((80, 80)) + (1j * rng.standard_normal((80, 80)) if is_complex else 0)
    A, w = A + A.conj().T, np.linspace(1.0, 3.0, 32)
    fun = lambda X: (0.5 * np.vdot(X, A @ X * w).real, A @ X * w)
    X0 = Stiefel().random(80, 32, seed=4, dtype=A.dtype)
    assert stiefel.minimize(fun, X0, rtol=1e-8).nfev < 80  # 300 without a model
