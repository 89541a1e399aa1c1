"""The compiled kernels beside the text they repeat; `test_fused.py` compares the geometry."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stiefel
from stiefel import Euclidean, Grassmann, Stiefel
from stiefel.backends.arrays import kernels_for
from stiefel.geometry import cayley, compiled, framed, framed_ray, grassmann
from stiefel.geometry import metric as metrics
from stiefel.geometry import ray as rays
from stiefel.geometry import stiefel as stiefel_text
from stiefel.geometry.product import Product
from stiefel.solvers import learned_metric, leaves, memory
from stiefel.solvers.aims import matrix_aim, matrix_arrival, slope_and_curve
from stiefel.solvers.learned_metric import Learned, LearnedMetric
from stiefel.solvers.problem import Problem
from stiefel.types import Metric

KERNELS = kernels_for(np.zeros(1)).compiled
if KERNELS is None:
    pytest.skip("the compiled kernels were not built", allow_module_level=True)
NAMES = [name for name, f in vars(KERNELS).items() if inspect.isbuiltin(f)]


def gaussian(rng, shape, is_complex):
    return rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if is_complex else 0)


# -- pairs: `solvers.memory`


def filled(geometry, vectors, size, phi):
    """−Hg after so many pairs, and R⁻¹."""
    *pairs, g = vectors
    kept = memory.no_pairs(geometry, g, size)
    for s, y in pairs:
        sy = abs(geometry.dot(s, y)) + 1.0
        kept = memory.remember(geometry, kept, s, y, sy, kept.rows)
    return memory.apply_inverse(geometry, kept, g, 0.7, phi, owned=False), kept.inverse


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 5), st.booleans(), st.booleans())
def test_pairs_are_those_of_the_text(seed, count, size, is_complex, is_tree):
    rng = np.random.default_rng(seed)
    leaf = lambda: gaussian(rng, (7, 3), is_complex)
    vector = (lambda: (leaf(), rng.standard_normal(4))) if is_tree else leaf
    vectors = [(vector(), vector()) for _ in range(count)] + [vector()]
    one = Stiefel().bind(leaf())
    factors = one, Euclidean().bind(np.zeros(4))
    geometry = Product(factors) if is_tree else one
    phi = (lambda C: tuple(2.0 * c for c in C)) if is_tree else (lambda C: 2.0 * C)
    found = filled(geometry, vectors, size, phi)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "_compiled", lambda *arguments: None)
        expected = filled(geometry, vectors, size, phi)
    for f, e in zip(map(memory._joined, found), map(memory._joined, expected), strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-10, atol=1e-10 * np.abs(e).max())


def test_the_preconditioner_keeps_its_array():
    """What φ returns may be the user's."""
    rng = np.random.default_rng(0)
    geometry, held = Stiefel().bind(np.zeros((7, 3))), rng.standard_normal((7, 3))
    before, pairs = held.copy(), [tuple(rng.standard_normal((2, 7, 3))) for _ in range(3)]
    filled(geometry, [*pairs, rng.standard_normal((7, 3))], 4, lambda C: held)
    np.testing.assert_array_equal(held, before)


# -- scales of leaves: `solvers.leaves`


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 6), st.integers(-12, 12))
def test_scales_of_leaves_are_those_of_the_text(seed, size, exponent):
    rng = np.random.default_rng(seed)
    N, W = rng.integers(0, 3, size) * 1.0, rng.standard_normal(size)
    ss, yy = 10.0 ** rng.uniform(-15, 3, size), rng.integers(0, 2, size) * 10.0**exponent
    found = leaves.weighed(ss, yy, N, W, 3.0, 0.95, 1e-8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels_for(ss), "compiled", None)
        expected = leaves.weighed(ss, yy, N, W, 3.0, 0.95, 1e-8)
    for f, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-12, atol=1e-300)


# -- gradients of spans: `grassmann`


@pytest.mark.parametrize("is_complex", [False, True])
def test_gradients_of_spans(is_complex):
    rng = np.random.default_rng(1)
    X = Grassmann().nearest(gaussian(rng, (9, 3), is_complex))
    E, k = gaussian(rng, (9, 3), is_complex), kernels_for(X)
    found = compiled.lower_span_gradient(k, X, E)
    for f, e in zip(found, grassmann.lower_span_gradient(k, X, E), strict=True):
        np.testing.assert_allclose(f, e, atol=1e-13)


# -- square and nearly square matrices: `framed`


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([(), (1,), (3,), (2, 2)]),
    st.integers(1, 7),
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
)
def test_frames_are_those_of_the_text(seed, stack, k, extra, is_complex, horizontal):
    rng, n = np.random.default_rng(seed), k + extra
    Q = Stiefel().nearest(gaussian(rng, (*stack, n, n), is_complex))
    E, T = (gaussian(rng, (*stack, n, k), is_complex) for _ in range(2))
    manifold = framed.Framed(Stiefel().bind(Q), n, k)
    metric = Metric(horizontal=horizontal)

    def everything():
        ray = manifold.ray_along(Q, T, metric)
        lowered, moved = manifold.gradient(Q, E), (ray(0.3), ray(-0.1))
        pair = ray.secant_pair(0.3, lowered, lowered._replace(G=T))
        told = ray.bounded_length, ray.transported_velocity(0.3), ray.defect
        seen = pair.curvature or framed_ray.Split(0.0, 0.0, *(np.vdot(z, z).real for z in pair[:2]))
        return type(ray), [*lowered[:3], *moved, *told, *pair[:2], *seen]

    kind, found = everything()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(framed, "faster", lambda *arguments: None)
        text, expected = everything()
    assert (kind, text) == (framed_ray.CompiledFramedRay, framed_ray.FramedRay)
    for f, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(f, e, atol=1e-12)


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("column", [0, 4])
@pytest.mark.parametrize("stack", [(), (3,)])
def test_frames_that_have_drifted_are_brought_back(stack, column, is_complex):
    """One matrix of a stack: in what is seen of it, or in what is not."""
    rng = np.random.default_rng(0)
    Q = Stiefel().nearest(gaussian(rng, (*stack, 5, 5), is_complex))
    Q[(*[1] * len(stack), ..., column)] *= 1.0 + 1e-13
    manifold = framed.Framed(Stiefel().bind(Q), 5, 3)
    with_kernels = manifold.ray_along(Q, gaussian(rng, (*stack, 5, 3), is_complex))(0.0)
    assert type(manifold.ray_along(Q, Q[..., :3])) is framed_ray.CompiledFramedRay
    drift = np.abs(np.swapaxes(with_kernels.conj(), -1, -2) @ with_kernels - np.eye(5))
    assert drift.max() < 1e-14


# -- arguments are hostile until checked


@pytest.mark.parametrize("k", range(1, 10))
@pytest.mark.parametrize("n", [9, 40, 5000])
def test_products_of_any_number_of_columns(n, k):
    """Few columns are multiplied by loops of their own: a gradient, and points of a ray."""
    rng = np.random.default_rng(k)
    X, E = stiefel.nearest(rng.standard_normal((n, k))), rng.standard_normal((n, k))
    geometry = Stiefel().bind(X)
    G, XE = geometry.gradient(X, E).G, X.T @ E
    np.testing.assert_allclose(G, E - X @ (0.5 * (XE + XE.T)), rtol=0, atol=1e-13)
    found = geometry.ray(X, G)(0.1)
    np.testing.assert_allclose(found.T @ found, np.eye(k), rtol=0, atol=1e-13)
    if n <= 40:
        W = G @ X.T - X @ G.T
        Y = np.linalg.solve(np.eye(n) - 0.05 * W, X + 0.05 * W @ X)
        np.testing.assert_allclose(found, Y, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_number_of_arguments_is_an_error(name):
    with pytest.raises(TypeError, match="arguments were given"):
        getattr(KERNELS, name)()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda X: X[:-1],
        lambda X: X.astype(np.float32),
        lambda X: np.asfortranarray(X),
        lambda X: X.tolist(),
        lambda X: None,
    ],
)
@pytest.mark.parametrize("which", range(5))
def test_what_is_no_such_array_is_refused(which, spoil):
    X = stiefel.random_point(6, 2, seed=0)
    arguments = [X, X.copy(), X.copy(), np.zeros((2, 2)), np.zeros((2, 2))]
    KERNELS.lower_gradient(*arguments)
    if which >= 3:
        arguments[which] = np.arange(4.0).reshape(2, 2)
    arguments[which] = spoil(arguments[which])
    with pytest.raises((ValueError, TypeError, BufferError)):
        KERNELS.lower_gradient(*arguments)


def test_what_is_not_to_be_written_is_not():
    X, G = stiefel.random_point(6, 2, seed=0), np.zeros((6, 2))
    G.flags.writeable = False
    with pytest.raises((ValueError, BufferError)):
        KERNELS.lower_gradient(X, X.copy(), G, np.zeros((2, 2)), np.zeros((2, 2)))


def test_a_pair_beyond_the_memory_is_refused():
    S, Y, s = np.zeros((3, 5)), np.zeros((3, 5)), np.ones(5)
    for row, gone in ((3, -1), (-1, -1), (0, 3)):
        with pytest.raises(IndexError):
            KERNELS.remember_pair(S, Y, row, gone, s, s, 1.0, np.zeros((3, 3)), np.zeros(3))


def test_a_singular_step_is_not_a_number():
    """I − tK/2 is singular only after an overflow."""
    K, N = 2.0 * np.eye(4), np.zeros((4, 4))
    KERNELS.displacement(K, 1.0, N)
    assert np.isnan(N).all()


# -- where L-BFGS aims: `solvers.memory`


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(1, 7), st.integers(2, 6), st.booleans(), st.booleans(),
    st.booleans(),
)  # fmt: skip
def test_an_aim_is_that_of_the_text(seed, count, k, is_complex, has_D, horizontal):
    rng = np.random.default_rng(seed)
    X = Stiefel().random(2 * k + 3, k, seed=rng, dtype=complex if is_complex else float)
    geometry, vector = Stiefel().bind(X), lambda: gaussian(rng, X.shape, is_complex)
    D = gaussian(rng, (k, k), is_complex)
    metric = Metric(np.eye(k) + D @ D.conj().T if has_D else None, 3.0, horizontal)
    G, pairs = geometry.project(X, vector()), memory.no_pairs(geometry, X, 5)
    for s, y in ((vector(), vector()) for _ in range(count)):
        pairs = memory.remember(geometry, pairs, s, y, abs(geometry.dot(s, y)) + 1.0, pairs.rows)
    phi = lambda C: geometry.raise_index(X, C, metric)
    expected = memory.apply_inverse(geometry, pairs, G, 0.7, phi, owned=True)
    T, slope, ray = matrix_aim(geometry, pairs, X, G, 0.7, metric)
    size = np.abs(expected).max()
    np.testing.assert_allclose(T, expected, atol=1e-11 * size)
    assert slope == pytest.approx(geometry.dot(G, T), rel=1e-11, abs=1e-11 * size)
    at = geometry.gradient(X, G)
    _, again = slope_and_curve(
        geometry, X, at, T, metric, pairs
    )  # to the last bit, as when resumed
    assert (ray.length, ray.defect, ray(0.3 / size).tobytes()) == (
        again.length, again.defect, again(0.3 / size).tobytes(),
    )  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(0, 7), st.booleans(), st.booleans(), st.floats(0.0, 2.0)
)  # fmt: skip
def test_an_arrival_is_pair_scale_and_aim(seed, count, is_complex, has_D, gamma):
    """The pair remembered, γ averaged with ⟨s, y⟩/⟨y, φ(y)⟩, and the aim from there."""
    rng = np.random.default_rng(seed)
    X = Stiefel().random(9, 3, seed=rng, dtype=complex if is_complex else float)
    geometry, vector = Stiefel().bind(X), lambda: gaussian(rng, X.shape, is_complex)
    D = gaussian(rng, (3, 3), is_complex)
    metric = Metric(np.eye(3) + D @ D.conj().T if has_D else None, 3.0)
    at = [geometry.gradient(X, vector()) for _ in range(2)]
    ray = geometry.ray(X, at[0].G)
    pair, Y, G = ray.secant_pair(0.3, *at), ray(0.3), at[1].G
    pairs, sy = memory.no_pairs(geometry, X, 5), 2.0
    for s, y in ((vector(), vector()) for _ in range(count)):
        pairs = memory.remember(geometry, pairs, s, y, abs(geometry.dot(s, y)) + 1.0, pairs.rows)
    known = pairs, pair, sy, 1e-10, pairs.rows, gamma, Y, G, metric
    kept, new, aimed, told = matrix_arrival(geometry, *known, 0.2)
    assert told is None
    expected = memory.remember(geometry, pairs, pair.s, pair.y, sy, pairs.rows)
    assert kept.rows == expected.rows
    assert kept.inverse.tobytes() == expected.inverse.tobytes()
    change = compiled.squared_change(geometry.kernels, pair.curvature, metric.D, metric.omega)
    assert new == memory.smoothed(gamma, sy / change)
    T, slope, curve = matrix_aim(geometry, expected, Y, G, new, metric)
    assert (aimed[0].tobytes(), aimed[1]) == (T.tobytes(), slope)
    t = min(1.0, 0.2 / curve.length)  # the first trial came with it
    for time in (t, t, 0.1):
        assert aimed[2](time).tobytes() == curve(time).tobytes()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.sampled_from([Stiefel(), Grassmann()]))
def test_a_landing_is_gradient_and_pair(seed, is_complex, manifold):
    rng = np.random.default_rng(seed)
    X = manifold.random(9, 3, seed=rng, dtype=complex if is_complex else float)
    geometry, vector = manifold.bind(X), lambda: gaussian(rng, X.shape, is_complex)
    pairs, start = memory.no_pairs(geometry, X, 5), geometry.gradient(X, vector())
    pairs = memory.remember(geometry, pairs, start.G, start.G, 1.0, ())
    T, _, ray = matrix_aim(geometry, pairs, X, start.G, 0.7, Metric())
    text, E = geometry.ray_along(X, T, Metric()), vector()
    assert type(ray) is compiled.LandingRay and type(text) is compiled.FastTangentRay
    Y = ray(0.3)
    expected = geometry.gradient(text(0.3), E)
    (G, square, rotation, level), pair = ray.landing(0.3, start, Y, np.asfortranarray(E))
    told = text.secant_pair(0.3, start, expected)
    arrays = G, rotation, level, pair.s, pair.y, pair.curvature.B, pair.curvature.yy
    known = *expected[:1], *expected[2:], told.s, told.y, told.curvature.B, told.curvature.yy
    for found, wanted in zip(arrays, known, strict=True):
        assert np.array_equal(found, wanted)
    numbers = square, pair.slope, pair.curvature.square
    assert numbers == (expected.square, told.slope, told.curvature.square)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.booleans(), st.integers(0, 12))
def test_an_arrival_learns_as_the_text_does(seed, is_complex, horizontal, steps):
    """`lesson` and `taught` around an arrival are `observe` before it."""
    rng, rule = np.random.default_rng(seed), LearnedMetric()
    X = Stiefel().random(9, 3, seed=rng, dtype=complex if is_complex else float)
    geometry, vector = Stiefel().bind(X), lambda: gaussian(rng, X.shape, is_complex)
    at = [geometry.gradient(X, vector()) for _ in range(2)]
    (old,) = rule.init(geometry, X, Problem.known(0.0, at[0]))
    old = old._replace(metric=Metric(horizontal=horizontal))
    pairs = memory.no_pairs(geometry, X, 5)
    pairs = memory.remember(geometry, pairs, at[0].G, at[0].G, 1.0, ())
    for _ in range(steps + 1):
        ray = matrix_aim(geometry, pairs, X, geometry.project(X, vector()), 0.3, Metric())[2]
        Y, E = ray(1.0), vector() * np.array([1.0, 10.0, 100.0])
        known, pair = ray.landing(1.0, at[0], Y, E)
        lesson = rule.lesson(1.0, ray.whole, old)
        (expected,) = rule.observe(geometry, Y, pair, (old,))
        if lesson is None:
            old = expected
            continue
        of_step = pair, 2.0, 1e-10, pairs.rows, 0.5, Y, known[0]
        *here, told = matrix_arrival(geometry, pairs, *of_step, old.metric, 1.0, ray, lesson)
        found = rule.taught(geometry, Y, old, lesson, told)
        again = matrix_arrival(geometry, pairs, *of_step, expected.metric, 1.0, ray)
        assert here[1] == again[1] and here[2][0].tobytes() == again[2][0].tobytes()
        assert_same(found, expected)
        old = found
    assert old.steps == steps + 1


def assert_same(found, expected):
    if isinstance(expected, tuple):
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, np.ndarray):
        assert np.array_equal(found, expected)
    else:
        assert found == expected


def test_arrivals_that_the_text_decides():
    X = Stiefel().random(9, 3, seed=1)
    geometry, rng = Stiefel().bind(X), np.random.default_rng(2)
    at = [geometry.gradient(X, rng.standard_normal(X.shape)) for _ in range(2)]
    pair, room = geometry.ray(X, at[0].G).secant_pair(0.3, *at), memory.no_pairs(geometry, X, 5)

    def arrives(pairs=room, pair=pair, sy=1.0, least=1e-10):
        known = pairs, pair, sy, least, pairs.rows, 0.0, X, at[1].G, Metric()
        return matrix_arrival(geometry, *known) is not None

    assert arrives()
    assert not arrives(sy=0.0) and not arrives(sy=-1.0) and not arrives(sy=np.nan)
    assert not arrives(least=1e10)  # hardly any curvature
    assert not arrives(pairs=memory.NOTHING)  # no blocks
    assert not arrives(pair=pair._replace(curvature=None))


def test_an_aim_away_from_the_manifold():
    """Where little of T is tangent the ray is made of its cotangent, as in `ray_along`."""
    X = Stiefel().random(9, 3, seed=1)
    geometry = Stiefel().bind(X)
    pairs = memory.no_pairs(geometry, X, 5)
    pairs = memory.remember(geometry, pairs, X, X, 1.0, ())
    G = 1e-6 * geometry.project(X, np.ones(X.shape)) + X
    T, _, ray = matrix_aim(geometry, pairs, X, G, 1.0, Metric())
    again = geometry.ray_along(X, T, Metric())
    assert type(ray) is type(again) and ray(1.0).tobytes() == again(1.0).tobytes()
    assert not hasattr(ray, "lossy")


def test_a_secant_pair_knows_its_products():
    for dtype in (float, complex):
        X = Stiefel().random(9, 3, seed=2, dtype=dtype)
        geometry, rng = Stiefel().bind(X), np.random.default_rng(3)
        at = [geometry.gradient(X, gaussian(rng, X.shape, dtype is complex)) for _ in range(2)]
        pair = geometry.ray(X, at[0].G).secant_pair(0.3, *at)
        assert pair.slope == pytest.approx(geometry.dot(at[1].G, pair.s), rel=1e-12)
        assert pair.curvature.square == pytest.approx(geometry.dot(pair.y, pair.y), rel=1e-12)


# -- the learned metric: `solvers.learned_metric`


def learned_along(method, factor, seed, k, is_complex, steps):
    """What is known after some steps with random curvature."""
    rng = np.random.default_rng(seed)
    X = factor.random(3 * k, k, seed=rng, dtype=complex if is_complex else float)
    known = [Learned(Metric(), np.zeros((k, k), X.dtype), np.zeros((k, k), X.dtype))]
    columns = np.geomspace(1.0, 30.0, k)
    for _ in range(steps):
        G, W = (factor.project(X, gaussian(rng, X.shape, is_complex)) for _ in range(2))
        ray = factor.ray(X, W)
        Y = ray(0.1)
        new = factor.gradient(Y, (G + 10.0 * (Y - X)) * columns)
        pair = ray.secant_pair(0.1, factor.gradient(X, G * columns), new)
        known.append(method._look(factor, Y, pair, known[-1]))
        X = Y
    return known[1:]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 17), st.booleans(), st.sampled_from([1.0, 3.0]))
def test_what_a_step_teaches_is_that_of_the_text(seed, k, is_complex, change):
    method, factor = LearnedMetric(column_change=change, least=2), Stiefel().bind(np.eye(k))
    found = learned_along(method, factor, seed, k, is_complex, 6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learned_metric, "has_few_columns", lambda P: False)
        patch.setattr(compiled, "has_few_columns", lambda P: False)
        expected = learned_along(method, factor, seed, k, is_complex, 6)
    for new, old in zip(found, expected, strict=True):
        assert new.metric.omega == pytest.approx(old.metric.omega, rel=1e-9)
        assert (new.metric.D is None) == (old.metric.D is None)
        for a, b in zip((new.metric.D, *new[1:9]), (old.metric.D, *old[1:9]), strict=True):
            if b is not None:
                np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11 * np.abs(b).max())


@pytest.mark.parametrize("is_complex", [False, True])
def test_a_step_without_a_normal_part_teaches_nothing(is_complex):
    k, dtype = 3, complex if is_complex else float
    factor, X = Stiefel().bind(np.eye(k)), np.eye(9, k, dtype=dtype)
    W = X @ np.array([[0, 1, 2], [-1, 0, 3], [-2, -3, 0]], dtype)
    ray, G = factor.ray(X, W), factor.gradient(X, W)
    pair = ray.secant_pair(0.1, G, factor.gradient(ray(0.1), 2.0 * W))
    known = Learned(Metric(), *(np.zeros((k, k), dtype),) * 2)
    assert LearnedMetric()._look(factor, X, pair, known) == known._replace(steps=1)


# -- the library without them

PROGRAM = """
import numpy as np, stiefel
from stiefel.backends.arrays import kernels_for
A = np.diag(np.arange(1.0, 31.0))
fun = lambda X: (np.sum(X * (A @ X) * [1, 2, 3]), 2 * A @ X * [1, 2, 3])
run = stiefel.minimize(fun, stiefel.random_point(30, 3, seed=0), rtol=1e-9)
print(kernels_for(A).compiled is not None, run.success, run.nfev, run.fun)
"""


def test_the_library_works_without_them():
    found = []
    for switch in ("0", "1"):
        environment = {**os.environ, "STIEFEL_COMPILED": switch}
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        found.append(done.stdout.split())
    (off, success, nfev, f), (on, *same) = found
    assert (off, on, success, same[0]) == ("False", "True", "True", "True")
    assert abs(int(nfev) - int(same[1])) <= 2
    assert float(f) == pytest.approx(float(same[2]), rel=1e-12)


# -- what a hostile reader found


@pytest.mark.parametrize("arguments", [(np.ones((6, 1)), None), (np.ones((6, 6), "f"), None)])
def test_matrices_of_another_shape_or_kind_are_refused(arguments):
    with pytest.raises(ValueError, match="expected"):
        KERNELS.spread(*arguments)
    with pytest.raises(ValueError, match="expected"):
        KERNELS.mean_metric(arguments[0], np.eye(6), 10.0, np.empty((6, 6)))


def test_matrices_without_columns_are_refused():
    nothing = np.zeros((6, 0))
    with pytest.raises(ValueError, match="no entries"):
        KERNELS.lower_gradient(nothing, nothing, nothing, np.zeros((0, 0)), np.zeros((0, 0)))


def test_references_are_not_written_over():
    """Entries of eight bytes that are objects: numbers in their place end the interpreter."""
    X, S, s = stiefel.random_point(6, 2, seed=0), np.zeros((3, 5)), np.ones(5)
    with pytest.raises(ValueError, match="objects"):
        KERNELS.lower_gradient(X, X, X.astype(object), np.zeros((2, 2)), np.zeros((2, 2)))
    with pytest.raises(ValueError, match="objects"):
        KERNELS.remember_pair(S, S, 0, -1, s, s, 1.0, np.zeros((3, 3), object), np.zeros(3))


@pytest.mark.parametrize("blocks", [2**62, 2**31, -(2**63)])
def test_a_memory_does_not_have_more_blocks_than_it_has(blocks):
    """Sizes that follow from so many overflow."""
    W, tall, square = np.zeros((4, 8, 38)), np.zeros((38, 8)), np.zeros((24, 24))
    with pytest.raises(ValueError, match="does not have"):
        KERNELS.rows_grams(
            W, blocks, tall, tall[:, :4], square, square[:8], np.eye(8), np.zeros((28, 4))
        )


def test_half_a_pair_is_refused():
    block, s = np.zeros((6, 5)), np.ones(5)
    for pair in ((s, None), (None, s)):
        with pytest.raises(ValueError, match="a pair is s and y"):
            KERNELS.plain_products(block, (0,), *pair, s, (1.0, 1.0), np.zeros(12), None)


@pytest.mark.parametrize("numbers", [(1.0, 0.0), 1.0, (1.0, 0.0, "x")])
def test_three_numbers_are_expected(numbers):
    x = np.eye(4)[0]
    with pytest.raises(TypeError):
        KERNELS.vector_point(x, x, numbers, 1.0, 0.1, np.zeros(4))


@pytest.mark.parametrize("shape", [(5, 5), (12, 3), (12, 1)])
def test_numbers_in_another_byte_order(shape):
    C = np.ones(shape) * np.arange(1.0, shape[1] + 1) + np.eye(*shape)
    runs = [
        stiefel.minimize(
            lambda X: (float((C * X).sum()), C.astype(X.dtype)),
            Stiefel().random(*shape, seed=1).astype(dtype),
        )
        for dtype in ("<f8", ">f8")
    ]
    assert all(run.success for run in runs)
    assert runs[0].fun == pytest.approx(runs[1].fun, rel=1e-12)


POINTS = {
    "sphere": (stiefel.Sphere(), (3000,)),
    "column": (Stiefel(), (3000, 1)),
    "unit columns": (stiefel.Oblique(), (60, 50)),
    "short": (stiefel.Sphere(), (30,)),
}


@pytest.mark.parametrize("name", POINTS)
def test_plain_pairs_resume_bit_for_bit(name, tmp_path):
    manifold, shape = POINTS[name]
    a = np.linspace(1.0, 50.0, shape[0]).reshape(-1, *(1,) * (len(shape) - 1))
    fun = lambda x: (0.5 * float(np.sum(a * x * x)) + float(np.sum(x**4)), a * x + 4 * x**3)
    x0, options = manifold.random(*shape, seed=0), {"manifold": manifold, "rtol": 1e-9}
    whole = stiefel.minimize(fun, x0, maxiter=40, **options)
    path = tmp_path / "run.npz"
    stiefel.minimize(fun, x0, maxiter=17, checkpoint=path, **options)
    again = stiefel.minimize(fun, x0, maxiter=40, checkpoint=path, resume=True, **options)
    np.testing.assert_array_equal(again.x, whole.x)


def test_leaves_in_frames_beside_a_row_model():
    """Coordinates of a frame have another shape than its point."""
    A, C = np.diag(np.arange(1.0, 10)), np.random.default_rng(0).standard_normal((5, 4))

    def fun(x):
        X, Y = x
        f = np.sum(C * X) + 0.2 * np.sum(X**4) + np.sum(Y * (A @ Y))
        return float(f), [C + 0.8 * X**3, 2 * A @ Y]

    x0 = [Stiefel().random(5, 4, seed=0), Grassmann().random(9, 3, seed=1)]
    run = stiefel.minimize(fun, x0, manifold=[Stiefel(), Grassmann()], rtol=1e-10)
    assert run.success


# -- stacks


def stack(seed, shape, is_complex):
    rng = np.random.default_rng(seed)
    X = Stiefel().random(*shape, seed=rng, dtype=complex if is_complex else float)
    return X, Stiefel().bind(X), lambda *size: gaussian(rng, size or X.shape, is_complex)


STACKS = given(
    st.integers(0, 10**6),
    st.sampled_from([(1, 5, 2), (4, 7, 3), (2, 3, 6, 2), (3, 1, 4, 4)]),
    st.booleans(),
)


def same(found, expected):
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-10)


@settings(max_examples=25, deadline=None)
@STACKS
def test_rays_of_stacks_are_those_of_the_text(seed, shape, is_complex):
    X, geometry, draw = stack(seed, shape, is_complex)
    k, E = geometry.kernels, draw()
    same(compiled.lower_gradient(k, X, E), stiefel_text.lower_gradient(k, X, E))
    at = geometry.gradient(X, E)
    fast = compiled.FastRay(k, X, at.G), compiled.FastTangentRay(k, X, E, 0.5)
    text = rays.Ray(k, X, at.G), rays.TangentRay(k, X, E, 0.5)
    for a, b in zip(fast, text, strict=True):
        there = geometry.gradient(a(0.3), draw())
        p, q, V = a.secant_pair(0.3, at, there), b.secant_pair(0.3, at, there), draw()
        same((a(0.3), a.length, a.defect, p.s, p.y, p.curvature.yy),
             (b(0.3), b.length, b.defect, q.s, q.y, q.curvature.yy))  # fmt: skip
        same((a.transport(0.3, V), a.velocity(0.2), a.transported_velocity(0.2)),
             (b.transport(0.3, V), b.velocity(0.2), b.transported_velocity(0.2)))  # fmt: skip
        assert p.slope == pytest.approx(geometry.dot(there.G, q.s), rel=1e-9, abs=1e-10)
        assert p.curvature.square == pytest.approx(geometry.dot(q.y, q.y), rel=1e-9)
        same(compiled.squares(k, p.curvature), rays.squares(k, q.curvature))
    assert fast[0].squared_norm == pytest.approx(text[0].squared_norm, rel=1e-12)
    Y = fast[0](0.1 / fast[0].length)
    same([compiled.extrapolate(k, X, Y, 1.7)], [cayley.extrapolate(k, X, Y, 1.7)])
    if 2 * shape[-1] < shape[-2]:
        same(compiled.lower_span_gradient(k, X, E), grassmann.lower_span_gradient(k, X, E))


@settings(max_examples=25, deadline=None)
@STACKS
def test_metrics_of_stacks_are_those_of_the_text(seed, shape, is_complex):
    X, geometry, draw = stack(seed, shape, is_complex)
    k, W, small = geometry.kernels, draw(), (*shape[:-2], shape[-1], shape[-1])
    P, R = (A @ A.conj().mT + np.eye(shape[-1]) for A in (draw(*small), draw(*small)))
    scales = np.abs(draw(*shape[:-2], 1, 1)) + 0.1
    for metric in (Metric(), Metric(P, 3.0), Metric(P, 3.0, True), Metric(R, 1.0, scales=scales)):
        same([compiled.raise_index(k, X, W, metric)], [metrics.raise_index(k, X, W, metric)])
    D = compiled.mean_metric(k, P, R, 30.0)
    same([D], [metrics.mean_metric(k, P, R, 30.0)])
    same([compiled.spread(k, D, None), compiled.spread(k, D, P)],
         [metrics.spread(k, D, None), metrics.spread(k, D, P)])  # fmt: skip


def test_a_stack_goes_the_way_that_the_text_goes(monkeypatch):
    """Runs with and without kernels for stacks take the same steps."""
    A = np.random.default_rng(5).standard_normal((4, 12, 12))
    fun = lambda X: (float(np.sum(X * (A @ X)) + np.sum(X**4)), (A + A.mT) @ X + 4.0 * X**3)
    X0 = Stiefel().random(4, 12, 3, seed=6)
    for method in ("auto", "lbfgs", "accelerated", "cg"):
        kernels = stiefel.minimize(fun, X0, method=method, maxiter=12)
        with monkeypatch.context() as patch:
            for module in ("geometry.stiefel", "solvers.learned_metric"):
                patch.setattr(f"stiefel.{module}.faster", lambda k, X, V=None: None)
            text = stiefel.minimize(fun, X0, method=method, maxiter=12)
        assert kernels.nfev == text.nfev
        np.testing.assert_allclose(kernels.x, text.x, atol=1e-9)


def test_stacks_that_do_not_fit_are_refused():
    X, G, small = np.zeros((2, 5, 3)), np.zeros((2, 5, 3)), np.zeros((2, 3, 3))
    assert KERNELS.lower_gradient(X, G, G.copy(), small, small.copy()) == 0.0
    for bad in (np.zeros((3, 5, 3)), np.zeros((2, 5, 3), np.float32), np.zeros((2, 3, 5)).mT):
        with pytest.raises((ValueError, BufferError)):
            KERNELS.lower_gradient(X, bad, G.copy(), small, small.copy())
    for bad in (np.zeros(5), np.zeros((0, 5, 3)), np.zeros((2, 0, 3)), np.zeros((2, 5, 3), "f4")):
        with pytest.raises(ValueError, match=r"axes|no entries|double precision"):
            KERNELS.lower_gradient(bad, G, G.copy(), small, small.copy())
    with pytest.raises(ValueError, match="square"):
        KERNELS.displacement(np.zeros((2, 4, 6)), 0.1, np.zeros((2, 6, 6)))
    with pytest.raises(
        ValueError, match="expected 72 entries of 8"
    ):  # frames are of 2k×2k matrices
        KERNELS.learn(0.1, *(small,) * 5, small, small, None, *(0.0,) * 13, *(small,) * 3)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300, 1e-320])
def test_one_bad_matrix_of_a_stack_spoils_the_sums_as_in_the_text(value):
    X, geometry, draw = stack(3, (3, 5, 2), False)
    E = draw()
    E[1, 2, 1] = value
    with np.errstate(all="ignore"):
        text = stiefel_text.lower_gradient(geometry.kernels, X, E)
    found = compiled.lower_gradient(geometry.kernels, X, E)
    assert np.isfinite(found[1]) == np.isfinite(text[1])
    same([found[0][0], found[0][2]], [text[0][0], text[0][2]])
