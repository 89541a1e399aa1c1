"""Real vectors and unit columns move as the formulas say, by NumPy and by the compiled kernels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runs import problem_of
from stiefel import LBFGS, ComplexCircle, Oblique, Sphere, Stiefel
from stiefel.backends.arrays import kernels_for
from stiefel.geometry import metric, ray, real_vector, stiefel, unit
from stiefel.geometry.metric import CANONICAL
from stiefel.geometry.ray import PairPlace
from stiefel.solvers.plain_pairs import place_for
from stiefel.types import Metric

KERNELS = kernels_for(np.zeros(1))
needs_kernels = pytest.mark.skipif(KERNELS.compiled is None, reason="no compiled kernels")
KINDS = pytest.mark.parametrize(
    ("manifold", "shape"),
    [(Sphere(), (21,)), (Oblique(), (4, 9)), (Sphere(), (9, 4)), (Stiefel(), (9, 4, 1))],
)
EXAMPLES = settings(max_examples=40, deadline=None)


@pytest.fixture(params=["compiled", "numpy"])
def version(request, monkeypatch):
    """Everything once more without the compiled kernels."""
    if request.param == "numpy":
        monkeypatch.setattr(KERNELS, "compiled", None)


# -- one real vector: `real_vector` repeats `vector` and `stiefel`


@pytest.mark.usefixtures("version")
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


@pytest.mark.usefixtures("version")
def test_a_real_vector_is_lowered_and_raised_as_the_formulas_say():
    rng = np.random.default_rng(5)
    x, E = Stiefel().nearest(rng.standard_normal((9, 1))), rng.standard_normal((9, 1))
    k = kernels_for(x)
    G, square, *_ = stiefel.lower_gradient(k, x, E)
    found = real_vector.vector_gradient(k, x[:, 0], E[:, 0])
    np.testing.assert_allclose(found.G, G[:, 0], atol=1e-14)
    np.testing.assert_allclose(found.square, square, rtol=1e-14)
    raised = metric.raise_index(k, x, E, Metric())
    np.testing.assert_allclose(real_vector.project_onto(x, E.copy()), raised, atol=1e-14)


# -- real unit columns: `real_columns` repeats `unit`


@pytest.mark.usefixtures("version")
@pytest.mark.parametrize(
    ("manifold", "shape", "kind"),
    [
        (Oblique(), (5, 7), unit.ColumnCircle),
        (Oblique(), (2, 5, 3), unit.ColumnCircle),
        (Sphere(), (5, 7), unit.RowCircle),
        (Sphere(), (2, 5, 3), unit.RowCircle),
        (Sphere(), (4, 5, 1), unit.StackCircle),
        (Stiefel(), (2, 4, 5, 1), unit.StackCircle),
    ],
)
@pytest.mark.parametrize("along", [0.0, 0.3, 1e4])  # of a direction that is not quite tangent
def test_unit_vectors_move_as_the_formulas_say(manifold, shape, kind, along):
    rng = np.random.default_rng(6)
    X = manifold.random(*shape, seed=1)
    U, E, G_new, V = (rng.standard_normal(shape) for _ in range(4))
    U, t, k = U + along * X, 0.7, kernels_for(X)
    found, expected = manifold.ray_along(X, U, CANONICAL), unit.Circle(k, kind.kind, X, U)
    assert type(found) is kind
    assert found.defect == pytest.approx(manifold.defect(X), abs=1e-15)
    if kind is not unit.ColumnCircle:  # as a stack of matrices with one column
        columns = X.shape[:-1] if X.shape[-1] == 1 else X.shape
        x, u = (A.reshape(*columns, 1) for A in (X, U))
        stack = ray.ColumnRay(k, x, Stiefel().cotangent_of(x, u))
        np.testing.assert_allclose(found(t), stack(t).reshape(shape), rtol=1e-9, atol=1e-11)
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


@pytest.mark.usefixtures("version")
@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 1)])
@pytest.mark.parametrize("along", [0.0, 0.3, 1e4])
@pytest.mark.parametrize("dtype", [complex, np.complex64])
def test_phases_move_as_the_formulas_say(shape, along, dtype):
    rng, manifold, t = np.random.default_rng(9), ComplexCircle(), 0.7
    X = manifold.random(*shape, seed=1).astype(dtype)
    U, E, G_new, V = ((A[0] + 1j * A[1]).astype(dtype) for A in rng.standard_normal((4, 2, *shape)))
    U = U + dtype(along) * X
    k, tight = kernels_for(X), dtype is complex
    if along > 1 and not tight:
        return  # nothing is left of U in single precision
    close = {"rtol": 1e-10, "atol": 1e-11} if tight else {"rtol": 2e-4, "atol": 2e-5}
    G = manifold.project(X, E)
    lowered, expected = manifold.gradient(X, E), unit.Circle(k, unit.ENTRY, X, U)
    np.testing.assert_allclose(lowered.G, G, **close)
    np.testing.assert_allclose(lowered.square, np.vdot(G, G).real, **close)
    slope, found = manifold.aim_along(X, lowered.G, U)
    assert type(found) is unit.PhaseCircle
    np.testing.assert_allclose(slope, np.vdot(G, U).real, rtol=1e-3, atol=1e-5)
    for name in ("length", "squared_norm", "bounded_length", "defect"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), **close)
    for name in ("__call__", "velocity", "transported_velocity"):
        moved = getattr(found, name)(t)
        assert moved.shape == shape and moved.dtype == dtype
        np.testing.assert_allclose(moved, getattr(expected, name)(t), **close)
    np.testing.assert_allclose(found.transport(t, V), expected.transport(t, V), **close)
    new, block = ray.Lowered(G_new, 0.0), np.zeros((2, 2 * X.size))  # one pair in one row
    pair = ray.pair_by_transport(expected, t, lowered, new)
    inside = manifold.aim_along(X, lowered.G, U, PairPlace(block, (0,)))[1]
    for curve in (found, manifold.ray(X, U), inside):
        seen = curve.secant_pair(t, lowered, new)
        if seen.kept is not None:
            seen = seen._replace(s=block[0].view(complex), y=block[1].view(complex))
        np.testing.assert_allclose(seen.s.reshape(shape), pair.s, **close)
        np.testing.assert_allclose(seen.y.reshape(shape), pair.y, **close)
        np.testing.assert_allclose(seen.square, np.vdot(pair.y, pair.y).real, **close)


# -- the compiled kernels beside NumPy's versions


def cosine(product, A, B):
    """More than one, so that a comparison is one of its rounding."""
    return 2.0 + product / (np.linalg.norm(A) * np.linalg.norm(B) or 1.0)


def everything(manifold, X, U, E, G_new, t):
    """All that a step of `lbfgs` asks for."""
    lowered = manifold.gradient(X, E)
    slope, curve = manifold.aim_along(X, lowered.G, U)
    pair = curve.secant_pair(t, lowered, ray.Lowered(G_new, 0.0))
    end = np.vdot(G_new, pair.s) if pair.slope is None else pair.slope
    slopes = cosine(slope, lowered.G, U), cosine(end, G_new, pair.s)
    numbers = curve.length, curve.bounded_length, curve.squared_norm, 1.0 + curve.defect
    return [*lowered[:2], *slopes, *numbers, curve(t), pair.s, pair.y, pair.square]


def both(*arguments):
    found = everything(*arguments)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KERNELS, "compiled", None)
        return zip(found, everything(*arguments), strict=True)


def drawn(seed, manifold, shape, exponent, along):
    rng, scale = np.random.default_rng(seed), 10.0**exponent
    X = manifold.random(*shape, seed=rng) * (1.0 + 1e-9)  # a defect to be corrected
    U, E, G_new = (scale * rng.standard_normal(shape) for _ in range(3))
    return X, U + along * scale * X, E, G_new, 0.7 / scale


@needs_kernels
@EXAMPLES
@given(
    st.integers(0, 10**6), st.integers(2, 70), st.integers(-60, 60), st.sampled_from([0, 0.5, 1e4])
)
def test_compiled_vectors_are_those_of_numpy(seed, n, exponent, along):
    for f, e in both(Sphere(), *drawn(seed, Sphere(), (n,), exponent, along)):
        np.testing.assert_allclose(f, e, rtol=1e-9, atol=1e-11 * np.max(np.abs(e)))


@needs_kernels
@EXAMPLES
@given(
    st.integers(0, 10**6),
    st.integers(2, 9),
    st.sampled_from([1, 2, 3, 4, 5, 7, 8, 255, 256, 257, 515]),
    st.integers(-60, 60),
    st.sampled_from([0, 0.5, 1e4]),
    st.booleans(),
)
def test_compiled_columns_are_those_of_numpy(seed, n, k, exponent, along, by_rows):
    manifold, shape = (Sphere(), (k, n)) if by_rows else (Oblique(), (n, k))
    for f, e in both(manifold, *drawn(seed, manifold, shape, exponent, along)):
        np.testing.assert_allclose(f, e, rtol=1e-9, atol=1e-11 * np.max(np.abs(e)))


@needs_kernels
@pytest.mark.filterwarnings("ignore:.*encountered.*:RuntimeWarning")
@KINDS
@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_so(manifold, shape, which, bad):
    arguments = list(drawn(3, manifold, shape, 0, 0.5))
    arguments[which].flat[5] = bad
    for f, e in both(manifold, *arguments):
        lost = ~np.isfinite(e)
        assert not np.isfinite(np.asarray(f)[lost]).any()


@needs_kernels
@KINDS
def test_zero_vectors(manifold, shape):
    """No gradient and no direction: nothing moves, and nothing is divided by."""
    X, zero = manifold.random(*shape, seed=1), np.zeros(shape)
    for f, e in both(manifold, X, zero, zero, zero, 0.7):
        np.testing.assert_allclose(f, e, atol=1e-15)
    np.testing.assert_allclose(manifold.ray(X, zero)(0.7), X, atol=1e-15)


@needs_kernels
@KINDS
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("along", [0.5, 1e4])
def test_a_pair_is_written_where_it_is_kept(manifold, shape, dtype, along):
    X, U, E, G_new, t = drawn(7, manifold, shape, 0, along)
    lowered, block = manifold.gradient(X, E), np.zeros((6, X.size), dtype)
    block[[1, 4]] = np.random.default_rng(8).standard_normal((2, X.size))
    older = block[[1, 4]].astype(float)
    slope, curve = manifold.aim_along(X, lowered.G, U, PairPlace(block, (1, 0)))
    assert slope == pytest.approx(np.vdot(lowered.G, U), rel=1e-12)
    ends = t, lowered, ray.Lowered(G_new, 0.0)
    found = curve.secant_pair(*ends)
    expected = manifold.ray_along(X, U, CANONICAL).secant_pair(*ends)
    close = 1e-6 if dtype is np.float32 else 1e-13
    np.testing.assert_allclose(block[0], expected.s.reshape(-1), rtol=close, atol=close * along)
    np.testing.assert_allclose(block[3], expected.y.reshape(-1), rtol=close, atol=close * along)
    np.testing.assert_array_equal(block[[1, 4]], older)
    assert not block[[2, 5]].any()  # in no row that is not in use
    rows, y = np.stack([older[0], expected.s.ravel(), older[1], expected.y.ravel()]), expected.y
    for products, end in zip(found.kept[:8].reshape(4, 2).T, (y, G_new), strict=True):
        scale = np.linalg.norm(rows, axis=1) * np.linalg.norm(end)
        np.testing.assert_allclose(products / scale, rows @ end.ravel() / scale, atol=close)
    assert found.slope == pytest.approx(expected.slope, rel=1e-9, abs=1e-9)
    other = manifold.gradient(X, E + G_new)  # a gradient that the curve was not made with
    again = curve.secant_pair(t, other, ray.Lowered(G_new, 0.0))
    wanted = manifold.ray_along(X, U, CANONICAL).secant_pair(t, other, ray.Lowered(G_new, 0.0))
    assert again.square == pytest.approx(wanted.square, rel=1e-9)
    assert curve.secant_pair(*ends).square == found.square  # it does not remember that one


@needs_kernels
@pytest.mark.parametrize(
    ("manifold", "shape"),
    [
        (Sphere(), (2500,)),
        (Oblique(), (4, 300)),
        (Sphere(), (300, 3)),
        (Stiefel(), (9, 4, 1)),
        (ComplexCircle(), (300,)),
    ],
)
@pytest.mark.parametrize("along", [0.5, 1e4])
def test_a_curve_that_goes_onward_is_the_one_that_is_made_again(manifold, shape, along):
    """Every bit, as a run that is resumed makes it: from a direction that may have been changed."""
    rng, t, C = np.random.default_rng(5), 0.3, KERNELS.compiled
    draw = lambda: rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if phases else 0.0)
    phases, X = manifold == ComplexCircle(), manifold.random(*shape, seed=2)
    x, G = manifold.random(*shape, seed=3), manifold.gradient(X, draw()).G
    s, y = draw() * rng.choice([1.0, 1e-4], shape) + along * X, draw()
    numbers = lambda A: np.ascontiguousarray(A).view(float).ravel()
    block = np.stack([numbers(A) for A in (s, 0 * s, y, 0 * y)])
    found = np.zeros((4, 2))  # of S and then of Y
    found[:2] = block[::2] @ np.stack([numbers(y), numbers(G)]).T
    small = lambda: (np.zeros((2, 2)), np.zeros(2), np.zeros((2, 2)))
    T, before, place = np.empty_like(X), np.empty_like(X), PairPlace(block.copy(), (0, 1))
    C.plain_direction(
        block, (0,), found, 1.0, *small(), 0.3, None, *map(numbers, (G, before)), numbers(G)
    )
    first = manifold.aim_along(x, manifold.gradient(x, draw()).G, draw())[1]
    ahead = first.aimed_by(X, G, T, (block, (0,), found, 1.0, *small(), 0.3, None), place)
    slope, again = manifold.aim_along(X, G, T, place)
    assert ahead.slope == slope and type(ahead) is type(again)
    for name in ("length", "bounded_length", "squared_norm", "defect"):
        assert getattr(ahead, name) == getattr(again, name)
    np.testing.assert_array_equal(ahead(t), again(t))
    new = ray.Lowered(manifold.gradient(ahead(t), draw()).G, 0.0)
    pairs = [curve.secant_pair(t, ray.Lowered(G, 0.0), new) for curve in (ahead, again)]
    assert pairs[0][3:5] == pairs[1][3:5]
    wanted = manifold.aim_along(X, G, before)[1]  # along the direction as pairs have it
    np.testing.assert_allclose(ahead(t), wanted(t), atol=1e-9 * along)


@pytest.mark.usefixtures("version")
@pytest.mark.parametrize(
    ("manifold", "shape"),
    [
        (Sphere(), (40,)),
        (Oblique(), (5, 9)),
        (Sphere(), (9, 5)),
        (Stiefel(), (9, 5, 1)),
        (Sphere(), (20_000,)),
    ],
)
def test_a_step_taken_twice_is_the_same(manifold, shape):
    """The pair of a step stands in a row of the memory that the state before it does not use."""
    a = np.linspace(1.0, 30.0, shape[0]).reshape(-1, *[1] * (len(shape) - 1))
    B = np.random.default_rng(2).standard_normal(shape)
    fun = lambda X: (0.5 * float(np.vdot(X, a * X)) + float(np.vdot(B, X)), a * X + B)
    problem, x = problem_of(fun, manifold.random(*shape, seed=4), manifold)
    solver = LBFGS(memory=4)
    s = solver.init(problem, x)
    for _ in range(9):
        before = s.pairs.S[list(s.pairs.rows)].copy()
        once, twice = solver.step(problem, s), solver.step(problem, s)
        np.testing.assert_array_equal(once.x, twice.x)
        np.testing.assert_array_equal(once.aim.direction, twice.aim.direction)
        np.testing.assert_array_equal(s.pairs.S[list(s.pairs.rows)], before)
        s = twice
    place = place_for(s.pairs)
    assert place.block is s.pairs.S and place.rows[:-1] == s.pairs.rows[1:]
    assert place.rows[-1] not in s.pairs.rows


def test_gradients_in_any_order_of_memory():
    rng = np.random.default_rng(8)
    X, E = Oblique().random(4, 6, seed=1), rng.standard_normal((4, 6))
    for turned in (np.asfortranarray(E), np.repeat(E, 2, axis=1)[:, ::2]):
        np.testing.assert_array_equal(Oblique().gradient(X, turned).G, Oblique().gradient(X, E).G)
        found, wanted = Oblique().ray(X, turned), Oblique().ray(X, E)
        np.testing.assert_array_equal(found(0.3), wanted(0.3))


# -- arguments are hostile until checked


@needs_kernels
@pytest.mark.parametrize("which", range(5))
@pytest.mark.parametrize("spoil", [lambda x: x[:-1], lambda x: x.astype("f4"), lambda x: x[::-1]])
def test_what_is_no_such_vector_is_refused(which, spoil):
    C, arrays = KERNELS.compiled, [np.arange(1.0, 7.0) for _ in range(5)]
    arrays[which] = spoil(arrays[which])
    x, u, G, s, y = arrays
    with pytest.raises((ValueError, TypeError, BufferError)):
        C.vector_pair(x, u, (1.0, 0.1, 2.0), 0.0, 0.3, 0.2, G, G, s, y)


@needs_kernels
def test_columns_are_matrices():
    C, X, known = KERNELS.compiled, np.ones((2, 3)), np.ones((5, 3))
    C.units_point(X, False, X, known, 0.1, X.copy())
    for wrong in (np.ones(6), np.ones((2, 3), "f4"), np.ones((1, 2, 3))):
        with pytest.raises(ValueError, match="expected"):
            C.units_point(wrong, False, X, known, 0.1, X.copy())
    with pytest.raises(ValueError, match="expected"):
        C.units_point(X, False, X, known[:4], 0.1, X.copy())
