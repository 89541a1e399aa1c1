"""Every fused version of a formula for NumPy matrices agrees with the formula itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stiefel import Oblique, Sphere, Stiefel
from stiefel.backends.arrays import kernels_for
from stiefel.geometry import cayley, fused, metric, ray, real_vector, stiefel, unit
from stiefel.geometry.metric import CANONICAL
from stiefel.types import Metric

NAMES = [
    name
    for name in vars(fused)
    if callable(getattr(fused, name)) and getattr(fused, name).__module__ == fused.__name__
    if not name.startswith("_") and not name.startswith("Fused")
]
HOMES = (cayley, ray, metric, stiefel)


def case(seed, n, k, is_complex, scale):
    rng = np.random.default_rng(seed)

    def gaussian(*shape):
        return rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if is_complex else 0)

    M = Stiefel()
    X = M.nearest(gaussian(n, k))
    W, G, G_new = (scale * M.project(X, gaussian(n, k)) for _ in range(3))
    kernels = kernels_for(X)
    t = 0.7 / scale
    frame = cayley.prepare(kernels, X, W)[0]
    N = cayley.displacement(kernels, frame, t)
    D = gaussian(k, k)
    D = np.eye(k) + D @ D.conj().T
    turns = [X.conj().T @ V for V in (G, G_new)]
    T = W + X @ gaussian(k, k) * 1e-3 * scale
    Y = cayley.point(kernels, X, W, frame, t)[0]
    grams = cayley.Grams(*kernels.grams(X, Y))
    pair = ray.secant_pair(kernels, X, W, frame, N, t, G, turns[0], G_new, turns[1])
    return kernels, {
        "prepare": (X, W),
        "prepare_tangent": (X, T, 0.5),
        "frame_between": (grams,),
        "squared_speed": (frame,),
        "displacement": (frame, t),
        "point_coefficients": (frame, t),
        "point": (X, W, frame, t),
        "extrapolate": (X, Y, 1.6),
        "secant_pair": (X, W, frame, N, t, G, turns[0], G_new, turns[1]),
        "coefficients": (frame, N, t, turns[0], W.conj().T @ G),
        "raise_index": (X, W, Metric(D, 3.0)),
        "squared_change": (pair.curvature, D, 3.0),
        "squares": (pair.curvature,),
        "mean_metric": (D, W.conj().T @ W + scale**2 * np.eye(k), 100.0),
        "spread": (D, np.eye(k) + X.conj().T @ X),
        "project": (X, G + 0.3 * scale * X),
        "lower_gradient": (X, G),
    }


def numbers(result):
    """All numbers of a result; a frame may choose another σ, and is asked for what it means."""
    if isinstance(result, cayley.Frame):
        C, gram_C = cayley.velocity_of(result)
        return [result.gram, C, gram_C]
    if isinstance(result, ray.Curvature):
        return [*numbers(result.frame), result.B, result.yy]
    if isinstance(result, tuple):
        return [number for part in result for number in numbers(part)]
    return [] if result is None else [np.asarray(result)]


def formula(name):
    return next(getattr(home, name) for home in HOMES if hasattr(home, name))


def test_every_fused_function_is_compared():
    assert set(NAMES) == set(case(0, 5, 2, False, 1.0)[1])


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(2, 5), st.integers(0, 9), st.booleans(), st.integers(-9, 9)
)
def test_fused_equals_formula(name, seed, k, extra, is_complex, exponent):
    kernels, arguments = case(seed, k + extra, k, is_complex, 10.0**exponent)
    expected = numbers(formula(name)(kernels, *arguments[name]))
    found = numbers(getattr(fused, name)(kernels, *arguments[name]))
    if name in (
        "point_coefficients",
        "point",
        "displacement",
    ):  # N stands in the basis of the frame: the same
        assert len(found) == len(expected)
    size = max(float(np.abs(e).max()) for e in expected)
    for f, e in zip(found, expected, strict=True):
        np.testing.assert_allclose(f, e, rtol=1e-10, atol=1e-12 * max(float(np.abs(e).max()), size))


@pytest.mark.parametrize("horizontal", [False, True])
@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("is_complex", [False, True])
def test_every_metric(horizontal, columns, is_complex):
    kernels, arguments = case(3, 7, 3, is_complex, 1.0)
    X, W, (D, omega, *_) = arguments["raise_index"]
    kind = Metric(D if columns else None, omega, horizontal)
    expected = metric.raise_index(kernels, X, W, kind)
    np.testing.assert_allclose(fused.raise_index(kernels, X, W, kind), expected, atol=1e-13)
    seen = arguments["squares"][0]
    of_formula, of_fused = (m.squared_change(kernels, seen, kind.D, 2.0) for m in (metric, fused))
    np.testing.assert_allclose(of_fused, of_formula, rtol=1e-12)


# -- one real vector: `real_vector` repeats `vector` and `stiefel`


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("column", [False, True])
@pytest.mark.parametrize("along", [0.0, 0.3, 1e4])  # of a direction that is not quite tangent
def test_a_real_vector_moves_as_the_formulas_say(dtype, column, along):
    rng = np.random.default_rng(4)
    shape = (9, 1) if column else (9,)
    x = Stiefel().nearest(rng.standard_normal((9, 1)))
    W, E, G_new, V = (rng.standard_normal((9, 1)) for _ in range(4))
    T, t, k = W + along * x, 0.7, kernels_for(x)
    M = Stiefel()
    expected = ray.ColumnRay(k, x, M.cotangent_of(x, T))
    old = ray.Lowered(M.project(x, E), 0.0)
    X, direction = (A.astype(dtype).reshape(shape) for A in (x, T))
    manifold = (Stiefel if column else Sphere)().bind(X)
    found = manifold.ray_along(X, direction, CANONICAL)
    assert type(found) is real_vector.RealVectorRay
    close = {"rtol": 1e-11, "atol": 1e-11} if dtype is np.float64 else {"rtol": 1e-2, "atol": 1e-2}
    if along <= 1 or dtype is np.float64:
        compare_rays(found, expected, t, V, close)
        G = manifold.gradient(X, E.astype(dtype).reshape(shape))
        new = ray.Lowered(G_new, 0.0)
        pair = ray.pair_by_transport(expected, t, old, new)
        seen = found.secant_pair(t, G, ray.Lowered(G_new.astype(dtype).reshape(shape), 0.0))
        np.testing.assert_allclose(seen.s.reshape(-1, 1), pair.s, **close)
        np.testing.assert_allclose(seen.y.reshape(-1, 1), pair.y, **close)
        np.testing.assert_allclose(seen.square, np.vdot(pair.y, pair.y), **close)


def compare_rays(found, expected, t, V, close):
    for name in ("length", "squared_norm", "bounded_length", "defect"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), **close)
    np.testing.assert_allclose(found(t).reshape(-1, 1), expected(t), **close)
    for name in ("velocity", "transported_velocity"):
        moved, wanted = getattr(found, name)(t), getattr(expected, name)(t)
        np.testing.assert_allclose(moved.reshape(-1, 1), wanted, **close)
    moved = found.transport(t, V.reshape(found(t).shape).astype(found(t).dtype))
    np.testing.assert_allclose(moved.reshape(-1, 1), expected.transport(t, V), **close)


def test_a_real_vector_is_lowered_and_raised_as_the_formulas_say():
    rng = np.random.default_rng(5)
    x, E = Stiefel().nearest(rng.standard_normal((9, 1))), rng.standard_normal((9, 1))
    k = kernels_for(x)
    G, square, *_ = stiefel.lower_gradient(k, x, E)
    found = real_vector.vector_gradient(x[:, 0], E[:, 0])
    np.testing.assert_allclose(found.G, G[:, 0], atol=1e-14)
    np.testing.assert_allclose(found.square, square, rtol=1e-14)
    raised = metric.raise_index(k, x, E, Metric())
    np.testing.assert_allclose(real_vector.project_onto(x, E.copy()), raised, atol=1e-14)


# -- real unit columns: `real_columns` repeats `unit`


@pytest.mark.parametrize("shape", [(5, 7), (2, 5, 3)])
@pytest.mark.parametrize("along", [0.0, 0.3, 1e4])  # of a direction that is not quite tangent
def test_unit_columns_move_as_the_formulas_say(shape, along):
    rng = np.random.default_rng(6)
    manifold = Oblique()
    X = manifold.random(*shape, seed=1)
    U, E, G_new, V = (rng.standard_normal(shape) for _ in range(4))
    U, t, k = U + along * X, 0.7, kernels_for(X)
    expected, found = unit.Circle(k, unit.COLUMN, X, U), manifold.ray(X, U)
    assert type(found) is unit.ColumnCircle
    close = {"rtol": 1e-11, "atol": 1e-11}
    for name in ("length", "squared_norm", "bounded_length", "defect"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), **close)
    for name in ("__call__", "velocity", "transported_velocity"):
        np.testing.assert_allclose(getattr(found, name)(t), getattr(expected, name)(t), **close)
    np.testing.assert_allclose(found.transport(t, V), expected.transport(t, V), **close)
    lowered = manifold.gradient(X, E)
    G = manifold.project(X, E)
    np.testing.assert_allclose(lowered.G, G, **close)
    np.testing.assert_allclose(lowered.square, np.vdot(G, G), **close)
    pair = ray.pair_by_transport(expected, t, lowered, ray.Lowered(G_new, 0.0))
    seen = found.secant_pair(t, lowered, ray.Lowered(G_new, 0.0))
    np.testing.assert_allclose(seen.s, pair.s, **close)
    np.testing.assert_allclose(seen.y, pair.y, **close)
    np.testing.assert_allclose(seen.square, np.vdot(pair.y, pair.y), **close)
