"""Every fused version of a formula for NumPy matrices agrees with the formula itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stiefel import Stiefel
from stiefel.backends.arrays import kernels_for
from stiefel.geometry import cayley, compiled, fused, metric, ray, stiefel
from stiefel.types import Metric


def versions_in(home):
    """The functions of a module that repeat a formula of the same name."""
    found = {n: f for n, f in vars(home).items() if callable(f) and not n.startswith(("_", "Fast"))}
    own = [name for name, f in found.items() if f.__module__ == home.__name__]
    return [name for name in own if name != "faster" and any(hasattr(h, name) for h in HOMES)]


HOMES = (cayley, ray, metric, stiefel)
NAMES = versions_in(fused)
is_compiled = kernels_for(np.zeros(1)).compiled is not None
VERSIONS = [(fused, name) for name in NAMES]
VERSIONS += [(compiled, name) for name in versions_in(compiled) if is_compiled]


def case(seed, n, k, is_complex, scale):
    rng = np.random.default_rng(seed)

    def gaussian(*shape):
        return rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if is_complex else 0)

    M = Stiefel()
    X = np.ascontiguousarray(M.nearest(gaussian(n, k)))
    W, G, G_new = (np.ascontiguousarray(scale * M.project(X, gaussian(n, k))) for _ in range(3))
    kernels = kernels_for(X)
    t = 0.7 / scale
    frame = cayley.Frame(*map(np.ascontiguousarray, cayley.prepare(kernels, X, W)[0]))
    N = np.ascontiguousarray(cayley.displacement(kernels, frame, t))
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
        "transport": (X, W, frame, N, t, G),
        "velocity": (X, W, frame, N),
        "transported_velocity": (X, W, frame, N),
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
    if isinstance(result, ray.Secant):  # products that come for free stand in one version only
        result = result[:3]
    if isinstance(result, ray.Curvature):
        return [*numbers(result.frame), result.B, result.yy]
    if isinstance(result, tuple):
        return [number for part in result for number in numbers(part)]
    return [] if result is None else [np.asarray(result)]


def formula(name):
    return next(getattr(home, name) for home in HOMES if hasattr(home, name))


def test_every_fused_function_is_compared():
    assert set(NAMES) | set(versions_in(compiled)) == set(case(0, 5, 2, False, 1.0)[1])


@pytest.mark.parametrize(("home", "name"), VERSIONS, ids=lambda v: getattr(v, "__name__", v))
@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 10**6), st.integers(2, 5), st.integers(0, 9), st.booleans(), st.integers(-9, 9)
)
def test_a_version_equals_its_formula(home, name, seed, k, extra, is_complex, exponent):
    kernels, arguments = case(seed, k + extra, k, is_complex, 10.0**exponent)
    expected = numbers(formula(name)(kernels, *arguments[name]))
    found = numbers(getattr(home, name)(kernels, *arguments[name]))
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
    for home in (fused, compiled) if is_compiled else (fused,):
        np.testing.assert_allclose(home.raise_index(kernels, X, W, kind), expected, atol=1e-13)
        over = home.raise_onto(kernels, X, W.copy(), kind)
        np.testing.assert_allclose(over, expected, atol=1e-13)
    seen = arguments["squares"][0]
    of_formula, of_fused = (m.squared_change(kernels, seen, kind.D, 2.0) for m in (metric, fused))
    np.testing.assert_allclose(of_fused, of_formula, rtol=1e-12)
