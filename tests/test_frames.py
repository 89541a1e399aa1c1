"""Square and nearly square matrices in frames; the laws of `InFrames` stand in cases.py."""

import numpy as np
import pytest

import stiefel
from stiefel import SpecialOrthogonal, Stiefel
from stiefel.backends.arrays import kernels_for
from stiefel.geometry import framed_ray as formulas
from stiefel.geometry.framed import Framed
from stiefel.geometry.frames import framed
from stiefel.geometry.turns import FramedRotations
from stiefel.solvers import LBFGS, memory
from stiefel.solvers.aims import matrix_arrival
from stiefel.types import Metric

pytestmark = pytest.mark.filterwarnings("ignore:X0 is square")
COMPILED = kernels_for(np.zeros(1)).compiled
SHAPES = [(9, 9), (9, 6), (7, 4), (3, 3), (2, 2), (5, 3, 3), (4, 6, 5)]


def quadratic(*shape, dtype=float, seed=0):
    """½Σ w_j x_jᴴAx_j + Re⟨B, X⟩: spread rows and columns, and no closed form."""
    rng = np.random.default_rng(seed)
    a, w = np.linspace(1.0, 20.0, shape[-2])[:, None], np.linspace(1.0, 2.0, shape[-1])
    B = rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if dtype is complex else 0)

    def fun(X):
        AX = a * X * w
        return 0.5 * np.vdot(X, AX).real + np.vdot(B, X).real, AX + B

    return fun


def start(shape, dtype=float, seed=0):
    return stiefel.random_point(*shape, seed=seed, dtype=dtype)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_frames_find_the_same_minimum(shape, dtype, monkeypatch):
    """The other way round is that of all tall matrices, without frames."""
    fun, X0 = quadratic(*shape, dtype=dtype), start(shape, dtype)
    one = stiefel.minimize(fun, X0, rtol=1e-8)
    monkeypatch.setattr(LBFGS, "framed", False)
    two = stiefel.minimize(fun, X0, rtol=1e-8)
    assert one.success and two.success
    assert one.x.shape == one.grad.shape == X0.shape and one.x.dtype == X0.dtype
    assert one.gradient_norm == pytest.approx(Stiefel().norm(one.x, one.grad), rel=1e-6)
    assert one.feasibility == Stiefel().defect(one.x) <= 10 * 2.0**-52 * np.sqrt(shape[-1])
    assert one.nfev < 1.7 * two.nfev


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_power_of_two_changes_no_bit(shape):
    fun, X0 = quadratic(*shape), start(shape)
    runs = [
        stiefel.minimize(lambda X, c=c: tuple(c * part for part in fun(X)), X0, maxiter=30)
        for c in (1.0, 2.0**-7, 2.0**200)
    ]
    assert all(np.array_equal(run.x, runs[0].x) for run in runs)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_run_is_resumed_bit_for_bit(shape, tmp_path):
    fun, X0, place = quadratic(*shape), start(shape), tmp_path / "run.npz"
    whole = stiefel.minimize(fun, X0, rtol=1e-9)
    stiefel.minimize(fun, X0, rtol=1e-9, maxiter=12, checkpoint=place)
    rest = stiefel.minimize(fun, X0, rtol=1e-9, checkpoint=place, resume=True)
    assert (rest.nfev, rest.nit) == (whole.nfev, whole.nit)
    assert np.array_equal(rest.x, whole.x)


@pytest.mark.parametrize("shape", [(3, 3), (40, 40), (40, 25), (50, 3, 3)], ids=str)
@pytest.mark.parametrize("length", [0.5, 1e-3])
def test_points_stay_on_the_manifold(shape, length):
    """Many steps; without straightening the defect exceeds what is allowed.

    What nobody sees drifts too, and along short steps without a limit: all of Q is looked at.
    """
    X, rng = start(shape), np.random.default_rng(1)
    M, Q = framed(Stiefel().bind(X), X)
    worst = 0.0
    for _ in range(1500 if len(shape) == 2 else 300):
        W = M.project(Q, rng.standard_normal(shape))
        ray = M.ray(Q, W)
        Q = ray(length / ray.bounded_length)
        worst = max(worst, M.defect(Q) / M.allowed_defect(Q))
    assert worst < 1.0
    whole = np.linalg.norm(Q.mT @ Q - np.eye(shape[-2]), axis=(-2, -1)).max()
    assert whole < 35 * 2.0**-52 * np.sqrt(shape[-2])


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("shape", [(7, 7), (7, 4)], ids=str)
def test_numpys_version_is_the_formula(shape, dtype):
    X, rng = start(shape, dtype), np.random.default_rng(2)
    M, Q = framed(Stiefel().bind(X), X)
    T = M.raise_index(Q, M.project(Q, rng.standard_normal(shape).astype(dtype)))
    found = formulas._point_in_place(M.kernels, Q, T, 0.3)
    assert np.allclose(found, formulas._point(M.kernels, Q, T, 0.3), atol=1e-14)


def test_small_rotations_are_frames_in_coordinates():
    for n in (2, 3):
        X, rng = SpecialOrthogonal().random(6, n, n, seed=3), np.random.default_rng(3)
        M, Q = framed(SpecialOrthogonal().bind(X), X)
        assert type(M) is FramedRotations
        F, E = Framed(M.manifold, n, n), rng.standard_normal(X.shape)
        c, C = M.project(Q, E), F.project(Q, E)
        assert np.allclose(M.ambient(Q, c), F.ambient(Q, C), atol=1e-14)
        assert M.dot(c, c) == pytest.approx(F.dot(C, C))
        assert np.allclose(M.ray(Q, c)(0.7), F.ray(Q, C)(0.7), atol=1e-14)


def test_operators_are_learned_where_half_of_the_columns_are_few():
    """`HALF`: the row model needs 2k ≤ n, and frames would take it away."""
    for shape, kind in (((12, 6), Stiefel), ((70, 35), Framed), ((12, 7), Framed)):
        X = start(shape)
        assert type(framed(Stiefel().bind(X), X)[0]) is kind


def test_rotations_are_weighed_against_normal_directions():
    """ω: without it these runs need many more evaluations."""
    rng = np.random.default_rng(4)
    A = rng.standard_normal((40, 40))
    A, w = (A + A.T) / 6, np.linspace(1.0, 2.0, 24)

    def fun(X):
        G = (A @ X) * w
        return 0.5 * float(np.vdot(X, G)), G

    def spent(method):
        return sum(
            stiefel.minimize(fun, start((40, 24), seed=s), method=method, rtol=1e-7).nfev
            for s in range(2)
        )

    assert spent("auto") < 0.7 * spent(LBFGS(memory=5))


# -- one call from a step to the next direction


@pytest.mark.skipif(COMPILED is None, reason="the compiled kernels were not built")
@pytest.mark.parametrize("gamma", [0.0, 0.7])
@pytest.mark.parametrize("horizontal", [False, True])
@pytest.mark.parametrize("shape", [(6, 6), (7, 5), (3, 5, 3), (2, 2, 4, 4)])
@pytest.mark.parametrize("is_complex", [False, True])
def test_an_arrival_is_pair_scale_and_aim(shape, is_complex, horizontal, gamma):
    rng = np.random.default_rng(3)

    def draw():
        return rng.standard_normal(shape) + (1j * rng.standard_normal(shape) if is_complex else 0)

    X = Stiefel().random(*shape, seed=rng, dtype=complex if is_complex else float)
    geometry, Q = framed(Stiefel().bind(X), X)
    metric, at = Metric(None, 3.0, horizontal), [geometry.gradient(Q, draw()) for _ in range(2)]
    ray = geometry.ray_along(Q, draw(), metric)
    pair, there, G = ray.secant_pair(0.3, *at), ray(0.3), at[1].G
    pairs = memory.no_pairs(geometry, G, 5)
    for s, y in ((draw(), draw()) for _ in range(3)):
        pairs = memory.remember(geometry, pairs, s, y, abs(geometry.dot(s, y)) + 1.0, pairs.rows)
    known = pairs, pair, 2.0, 1e-10, pairs.rows, gamma, there, G, metric
    kept, new, (T, slope, curve), _ = matrix_arrival(geometry, *known)
    expected = memory.remember(geometry, pairs, pair.s, pair.y, 2.0, pairs.rows)
    assert kept.rows == expected.rows and kept.inverse.tobytes() == expected.inverse.tobytes()
    change = geometry.dot(pair.y, geometry.raise_index(there, pair.y, metric))
    mean = memory.smoothed(gamma, 2.0 / change) if change else gamma  # rotations alone
    assert new == pytest.approx(mean, rel=1e-12)
    phi = lambda C: geometry.raise_index(there, C, metric)
    text = memory.apply_inverse(geometry, expected, G, new, phi, owned=True)
    np.testing.assert_allclose(T, text, rtol=1e-11, atol=1e-11)
    again = geometry.ray_along(there, T, metric)  # to the last bit, as when resumed
    assert slope == pytest.approx(geometry.dot(G, T), rel=1e-12)
    assert curve(0.2).tobytes() == again(0.2).tobytes() and curve.length == again.length
    weak = pairs, pair, 2.0, 1e10, pairs.rows, gamma, there, G, metric
    assert matrix_arrival(geometry, *weak) is None  # hardly any curvature
    assert matrix_arrival(geometry, memory.NOTHING, *known[1:]) is None  # no blocks


@pytest.mark.skipif(COMPILED is None, reason="the compiled kernels were not built")
def test_arrivals_that_do_not_fit_are_refused():
    def arrival(**other):
        S, Y, one, G = np.zeros((3, 20)), np.zeros((3, 20)), np.eye(3), np.ones((5, 4))
        a = {"S": S, "Y": Y, "R": one, "d": np.ones(3), "G": G, "Q": np.eye(5), "omega": 2.0}
        a |= {"T": G.copy(), "U": G.copy(), "E": np.zeros((4, 4)), "probe": None}
        a |= {"gamma": 1.0, "row": 0, "gone": -1, "s": G, "y": G, "sy": 20.0, "change": 20.0}
        return COMPILED.framed_arrival(*(a | other).values())

    gamma, slope, defect, *_ = arrival()
    assert (gamma, defect) == (1.0, 0.0) and slope < 0
    for name in ("S", "Y", "R", "d", "G", "Q", "T", "U", "E", "s", "y"):
        for bad in (np.zeros((2, 2)), np.zeros(0), np.zeros((5, 4), "f4"), None):
            with pytest.raises((ValueError, TypeError, BufferError)):
                arrival(**{name: bad})
    for bad in (np.zeros(4), np.zeros(5, "f4"), "12345"):
        with pytest.raises((ValueError, TypeError, BufferError)):
            arrival(probe=bad)
    for bad in (3, -1):
        with pytest.raises(IndexError):
            arrival(row=bad)
    with pytest.raises(ValueError, match="more columns than rows"):
        arrival(G=np.ones((4, 5)))
    assert all(map(np.isnan, arrival(G=np.full((5, 4), np.nan))[1:2]))
