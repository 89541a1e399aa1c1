"""Secant pairs, rays along tangents and curvature: fused kernels against their definitions."""

from dataclasses import replace

import numpy as np
import pytest

import stiefel
from cases import EVERYWHERE, LIBRARIES, Case, gap, into, leafwise, out
from runs import states
from stiefel import LBFGS, Euclidean, Grassmann, Stiefel
from stiefel.geometry import Product, cayley, fused
from stiefel.geometry import ray as ray_formulas
from stiefel.geometry.cayley import Grams
from stiefel.geometry.metric import Metric
from stiefel.geometry.ray import Lowered
from stiefel.solvers.learned_metric import Learned
from stiefel.solvers.leaves import pairs_of
from stiefel.solvers.memory import no_pairs, remember
from stiefel.solvers.noise import Watch
from stiefel.solvers.problem import Problem
from stiefel.solvers.raising import learned_squared_change, squared_length
from stiefel.solvers.secant_search import SecantSearch


def noise_like(rng, X):
    def one(x):
        noise = rng.standard_normal(x.shape)
        return noise + 1j * rng.standard_normal(x.shape) if np.iscomplexobj(x) else noise

    return leafwise(one, X)


def metrics_like(geometry, metric):
    return (metric,) * len(geometry.factors) if isinstance(geometry, Product) else metric


@pytest.mark.parametrize(("case", "library"), EVERYWHERE)
def test_a_gradient_comes_with_its_norm(case, library):
    rng = np.random.default_rng(1)
    X = case.point(rng)
    geometry, x, E = case.build(library), into(library, X), into(library, noise_like(rng, X))
    G, square, *_ = geometry.gradient(x, E)
    assert gap(out(G), out(geometry.project(x, E))) < 1e-14
    assert square == pytest.approx(geometry.inner(x, G, G), rel=1e-13)


@pytest.mark.parametrize(("case", "library"), EVERYWHERE)
def test_a_secant_pair_is_what_is_carried(case, library):
    rng = np.random.default_rng(2)
    X = case.point(rng)
    geometry, x, t = case.build(library), into(library, X), 0.7
    ray = geometry.ray(x, into(library, case.cotangent(rng, X)))
    y = ray(t)
    old = geometry.gradient(x, into(library, noise_like(rng, X)))
    new = geometry.gradient(y, into(library, noise_like(rng, X)))
    pair = ray.secant_pair(t, old, new)
    assert gap(out(pair.s), out(geometry.scale(t, ray.transported_velocity(t)))) < 1e-13
    change = geometry.combine(1.0, new.G, -1.0, ray.transport(t, old.G))
    assert gap(out(pair.y), out(change)) < 1e-13


@pytest.mark.parametrize("horizontal", [False, True])
@pytest.mark.parametrize(("case", "library"), EVERYWHERE)
def test_a_ray_along_a_tangent_is_that_of_its_cotangent(case, library, horizontal):
    """T need not be tangent; where almost nothing of it is, digits must not be lost."""
    rng = np.random.default_rng(3)
    X = case.point(rng)
    geometry, x, t = case.build(library), into(library, X), 0.4
    metric = metrics_like(geometry, Metric(horizontal=horizontal))
    T = geometry.raise_index(x, into(library, case.cotangent(rng, X)))
    for normal in (0.0, 0.5, 1e6):
        wild = geometry.combine(1.0, T, normal, x)
        plain = geometry.ray(x, geometry.cotangent_of(x, wild, metric))
        along = geometry.ray_along(x, wild, metric)
        close = 1e-13 * max(1.0, normal)
        assert gap(out(along(t)), out(plain(t))) < close
        assert along.bounded_length == pytest.approx(plain.bounded_length, abs=close)
        assert along.defect == pytest.approx(plain.defect, abs=1e-14)
        old = geometry.gradient(x, into(library, noise_like(rng, X)))
        new = geometry.gradient(plain(t), into(library, noise_like(rng, X)))
        one, two = along.secant_pair(t, old, new), plain.secant_pair(t, old, new)
        assert gap(out(one.s), out(two.s)) < close
        assert gap(out(one.y), out(two.y)) < close


MATRICES = [
    Case("stiefel", Stiefel, (9, 3)),
    Case("stiefel-complex", Stiefel, (9, 3), complex),
    Case("square", Stiefel, (4, 4)),
    Case("stack", Stiefel, (2, 6, 2)),
    Case("generalised", Stiefel, (7, 3), with_B=True),
    Case("grassmann", Grassmann, (8, 3), complex),
]


@pytest.mark.parametrize("case", MATRICES, ids=str)
def test_curvature_is_that_of_the_pair(case):
    """Small matrices alone give ⟨y, φ(y)⟩ and the Grams of normal parts."""
    rng = np.random.default_rng(4)
    geometry = case.build(LIBRARIES[0])
    x, t = case.point(rng), 0.7
    k = x.shape[-1]
    ray = geometry.ray(x, case.cotangent(rng, x))
    y = ray(t)
    old, new = (geometry.gradient(p, noise_like(rng, x)) for p in (x, y))
    pair = s, change, seen, *_ = ray.secant_pair(t, old, new)
    root = rng.standard_normal((k, k)) + (1j * rng.standard_normal((k, k)) if case.dtype else 0)
    D = np.broadcast_to(root @ root.conj().T + np.eye(k), (*x.shape[:-2], k, k))
    D = D if np.iscomplexobj(x) else D.real
    for metric in (Metric(), Metric(omega=1.3), Metric(D, 3.0), Metric(D, 3.0, horizontal=True)):
        expected = geometry.dot(change, geometry.raise_index(y, change, metric))
        learned = (Learned(metric),)
        found = learned_squared_change(Problem(geometry, None), y, pair, learned, None)
        assert found == pytest.approx(expected, rel=1e-11)
    expected = geometry.dot(change, change)
    assert squared_length(geometry, pair) == pytest.approx(expected, rel=1e-11)
    squares = ray_formulas.squares(geometry.kernels_at(y), seen)
    inner = geometry.kernels_at(y).gram
    normal = [v - y @ inner(y, v) for v in (s, change)]
    for gram, v in zip(squares[:2], normal, strict=True):
        assert np.allclose(gram, inner(v, v), atol=1e-12)
    turns = [inner(y, v) for v in (s, change)]
    turns = [0.5 * (m - np.conj(np.swapaxes(m, -1, -2))) for m in turns]
    sizes = [np.sum(np.abs(m) ** 2) for m in turns]
    assert np.allclose([float(v) for v in squares[4:]], sizes, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("scale", [1.0, 1e-3])
def test_a_search_without_a_pair_sees_the_same_slope(scale):
    """Where nobody asks for the pair, as of steps by an exact row model."""
    rng = np.random.default_rng(5)
    A = rng.standard_normal((12, 12))

    class Function:
        def projected(self, project, X, value=None):
            E = A @ X - A[:, :3]
            return 0.5 * np.vdot(E, E), project(X, A.T @ E), None

    X = stiefel.random_point(12, 3, seed=0)
    problem = Problem(Stiefel().bind(X), Function())
    at = problem.gradient(X)
    aim = problem.against(X, scale * at.G, scale * at.norm**2)
    search = SecantSearch(longest=3.0)
    known = problem, at, aim, Watch()
    taken, bare = search(*known), replace(search, paired=False)(*known)
    assert bare.pair is None and taken.pair is not None and bare.t == taken.t
    np.testing.assert_array_equal(bare.X, taken.X)
    assert bare.sy == pytest.approx(taken.sy, rel=1e-10)
    assert taken.sy == pytest.approx(np.vdot(taken.pair.s, taken.pair.y), rel=1e-10)


def test_pairs_of_leaves_are_told_apart():
    geometry = Product((Stiefel(), Stiefel()))
    x = tuple(stiefel.random_point(n, 2, seed=n) for n in (5, 6))
    G = tuple(m.gradient(p, p[::-1].copy()) for m, p in zip(geometry.factors, x, strict=True))
    at = Lowered(tuple(g.G for g in G), 0.0, tuple(g.rotation for g in G))
    pair = geometry.ray(x, at.G).secant_pair(0.5, at, at)
    for leaf, factor, p, g in zip(pairs_of(pair), geometry.factors, x, G, strict=True):
        alone = factor.ray(p, g.G).secant_pair(0.5, g, g)
        assert np.array_equal(leaf.s, alone.s) and np.array_equal(leaf.y, alone.y)


def test_kernels_that_overwrite_compute_the_same():
    """Large matrices are overwritten piece by piece; nothing but the first argument changes."""
    rng = np.random.default_rng(5)
    n, k = 30_000, 7
    geometry = Stiefel()
    X, W = stiefel.random_point(n, k, seed=1), rng.standard_normal((n, k))
    root = rng.standard_normal((k, k))
    block, weights = rng.standard_normal((3, n, k)), rng.standard_normal(3)
    for metric in (Metric(), Metric(root @ root.T + np.eye(k), 3.0), Metric(horizontal=True)):
        expected, before = geometry.raise_index(X, W, metric), X.copy()
        given = W.copy()
        assert gap(geometry.raise_onto(X, given, metric), expected) < 1e-12
        assert np.array_equal(X, before)
    expected = geometry.kernels_at(X).block_add(-0.3, W, block, weights)
    assert gap(expected, -0.3 * W + np.tensordot(weights, block, 1)) < 1e-12
    assert (
        gap(geometry.kernels_at(X).block_add(-0.3, W, block, weights, overwrite=True), expected)
        < 1e-15
    )


def test_a_singular_system_in_a_stack_gives_a_point_that_is_refused():
    kernels = Stiefel().bind(np.eye(3, 2)).kernels
    A = np.stack([np.eye(2), np.zeros((2, 2))])
    assert not np.isfinite(kernels.solve(A, np.ones((2, 2, 1)))).all()
    assert not np.isfinite(kernels.solve(A[1], np.ones((2, 1)))).all()


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_a_short_step_is_known_to_its_own_digits(dtype):
    """However long W is: only the step tW counts."""
    rng = np.random.default_rng(8)
    X = stiefel.random_point(30, 4, seed=1, dtype=dtype)
    geometry = Stiefel().bind(X)
    W, E = (geometry.project(X, noise_like(rng, X)) for _ in range(2))
    W = W / np.linalg.norm(W)
    old = Lowered(E, 0.0, X.conj().T @ E)
    for step in (1e-3, 1e-10):
        pairs = []
        for size in (1.0, 1e-14, 1e9):
            ray, t = geometry.ray(X, size * W), step / size
            new = geometry.gradient(ray(t), E)
            pairs.append(ray.secant_pair(t, old, new).s)
        assert all(gap(s, pairs[0]) < 1e-13 * step for s in pairs)
        assert gap(pairs[0], step * geometry.raise_index(X, W)) < 2 * step**2 + 1e-13 * step


def test_a_lift_that_is_nothing_but_rounding_moves_by_no_more_than_that():
    """Between two points that are one but for rounding, WᴴW is noise of either sign."""
    one, noise = np.eye(2, dtype=np.float32), np.diag(np.float32([6e-8, -6e-8]))
    kernels = Stiefel().bind(one).kernels
    for home in (cayley, fused):
        made = home.frame_between(kernels, Grams(one, one + noise, one + 2 * noise))
        assert gap(sum(np.split(home.point_coefficients(kernels, made, 1.8)[0], 2)), one) < 1e-6


def test_one_point_serves_a_stack_of_directions():
    rng, X = np.random.default_rng(9), stiefel.random_point(9, 3, seed=1)
    stack = rng.standard_normal((4, 9, 3))
    each = [Stiefel().project_direction(X, W) for W in stack]
    assert gap(Stiefel().project_direction(X, stack), np.stack(each)) < 1e-14


def test_a_real_point_may_leave_along_a_complex_direction():
    rng, X = np.random.default_rng(10), stiefel.random_point(9, 3, seed=1)
    W = rng.standard_normal((9, 3)) + 1j * rng.standard_normal((9, 3))
    W = Stiefel().project_direction(X.astype(complex), W)
    expected = Stiefel().ray(X.astype(complex), W)(0.3)
    assert gap(Stiefel().ray(X, W)(0.3), expected) < 1e-14
    T = Stiefel().raise_index(X.astype(complex), W)
    assert gap(Stiefel().ray_along(X, T)(0.3), expected) < 1e-14


def test_a_new_pair_leaves_those_of_the_state_before_as_they_are():
    """Also where that state's pairs are forgotten on the way: it may be the one that is saved."""
    rng, geometry, x = np.random.default_rng(11), Stiefel(), stiefel.random_point(6, 2, seed=1)
    pairs, s = no_pairs(geometry, x, 3), rng.standard_normal((7, 6, 2))
    for i in range(7):
        before = [pairs.S[row].copy() for row in pairs.rows]
        start = pairs.forgotten() if i in (2, 5) else pairs
        new = remember(geometry, start, s[i], s[i], 1.0, pairs.rows)
        after = [pairs.S[row] for row in pairs.rows]
        assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
        assert new.in_use == min(start.in_use + 1, 3)
        pairs = new


@pytest.mark.parametrize("manifold", [Stiefel(), Euclidean()], ids=lambda m: type(m).__name__)
def test_pairs_that_hardly_curve_are_not_kept(manifold):
    """``caution`` is the cosine of s and y, on flat spaces as on curved ones."""
    weights = np.geomspace(1.0, 100.0, 12)[:, None]
    fun = lambda X: (0.5 * float(np.vdot(X, weights * X)), weights * X)
    X0 = stiefel.random_point(12, 2, seed=1)
    bold, careful = (
        [s.k for s in states(LBFGS(memory=9, caution=c), fun, X0, manifold, 9)]
        for c in (1e-10, 0.85)
    )
    assert bold == list(range(9))
    assert careful[-1] < 8
