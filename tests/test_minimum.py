"""Second derivatives at stationary points: their eigenvalues, saddles, and the way out of them."""

import doctest
import itertools
import math

import numpy as np
import pytest
import scipy.linalg

import oracles
import stiefel
from stiefel import minimum
from stiefel.objectives import Brockett, Procrustes, Rayleigh
from stiefel.solvers import curvature

N, K = 6, 2
RNG = np.random.default_rng(2)
SPECTRUM = np.array([1.0, 2.0, 3.5, 4.0, 6.0, 9.0])


def eigenbasis(dtype, n=N):
    return oracles.random_point(np.random.default_rng(1), n, n, dtype)


def matrix(dtype, spectrum=SPECTRUM):
    U = eigenbasis(dtype, len(spectrum))
    A = U @ np.diag(spectrum) @ U.conj().T
    return (A + A.conj().T) / 2, U


def trace(A, weights=None):
    """tr XᴴAX, or tr DXᴴAX, with its gradient and its Hessian."""
    d = np.ones(1) if weights is None else weights
    fun = lambda X: (float(np.vdot(X, A @ X * d).real), 2 * A @ X * d)
    return fun, lambda X, V: 2 * A @ V * d


# -- the eigenvalues -----------------------------------------------------------------------


@pytest.mark.parametrize("given", ["hessp", "differences"])
@pytest.mark.parametrize("indices", list(itertools.combinations(range(N), K)))
def test_curvatures_of_a_trace_are_differences_of_eigenvalues(indices, given):
    """The Hessian at eigenvectors i of A has the eigenvalues 2(λ_j − λ_i), j not among them."""
    A, U = matrix(float)
    fun, hessp = trace(A)
    check = stiefel.check_minimum(fun, U[:, indices], hessp=hessp if given == "hessp" else None)
    others = [j for j in range(N) if j not in indices]
    exact = sorted(2 * (SPECTRUM[j] - SPECTRUM[i]) for i in indices for j in others)
    places = 1e-9 if given == "hessp" else 1e-5
    assert check.curvatures[0] == pytest.approx(exact[0], abs=places)
    assert check.largest == pytest.approx(max(map(abs, exact)), abs=places)
    assert check.kind == ("minimum" if indices == (0, 1) else "saddle")
    assert check.symmetries == 1
    assert check.residual <= 0.05 * abs(exact[0])
    if check:
        assert check.condition_number == pytest.approx(exact[-1] / exact[0], rel=1e-4)


def curvature_along(fun, x, T, h=1e-4):
    """d²/dt² f(exp_x(tT)) by values at the ends of geodesics of the oracle."""
    W = T - x @ (x.conj().T @ T) / 2
    values = [fun(oracles.geodesic_dual(x, t * W))[0] for t in (-h, 0.0, h)]
    return (values[0] - 2 * values[1] + values[2]) / h**2


@pytest.mark.parametrize("dtype", [float, complex])
def test_the_direction_bends_down_as_much_as_it_is_said_to(dtype):
    A, U = matrix(dtype)
    fun, hessp = trace(A, np.array([2.0, 1.0]))
    for indices in ((2, 0), (4, 5), (1, 0)):
        x = U[:, indices]
        check = stiefel.check_minimum(fun, x, hessp=hessp)
        T = check.direction
        assert np.linalg.norm(x.conj().T @ T + T.conj().T @ x) < 1e-12  # a tangent …
        length = np.vdot(T, T - x @ (x.conj().T @ T) / 2).real
        assert length == pytest.approx(1.0)  # … of unit length
        assert check.curvatures[0] == pytest.approx(curvature_along(fun, x, T), rel=1e-4)


@pytest.mark.parametrize(
    ("dtype", "weights", "symmetries"),
    [
        (float, [1.0, 1.0, 1.0], 3),
        (complex, [1.0, 1.0, 1.0], 9),
        (float, [3.0, 2.0, 1.0], 0),
        (complex, [3.0, 2.0, 1.0], 3),  # the phases of the columns
        (float, [2.0, 2.0, 1.0], 1),
        (complex, [2.0, 2.0, 1.0], 5),
    ],
)
def test_symmetries_are_recognised(dtype, weights, symmetries):
    A, U = matrix(dtype)
    fun, hessp = trace(A, np.array(weights))
    check = stiefel.check_minimum(fun, U[:, :3], hessp=hessp)
    assert check.symmetries == symmetries
    assert check.kind == "minimum"
    assert check.condition_number < 60


def test_every_kind_of_point():
    A, U = matrix(float)
    fun, hessp = trace(A)
    grassmann = stiefel.check_minimum(fun, U[:, :2], manifold=stiefel.Grassmann())
    assert (grassmann.kind, grassmann.symmetries) == ("minimum", 0)
    D = SPECTRUM
    ray = lambda x: (float(np.vdot(x, D * x).real), 2 * D * x)
    for dtype, symmetries in ((float, 0), (complex, 1)):
        e = np.eye(N, dtype=dtype)
        for i in range(N):
            check = stiefel.check_minimum(ray, e[i], manifold=stiefel.Sphere())
            assert (bool(check), check.symmetries) == (i == 0, symmetries)
    B = np.eye(N) + 0.3 * A
    w, V = scipy.linalg.eigh(A, B)
    for i, expected in ((slice(0, 2), "minimum"), (slice(1, 3), "saddle")):
        check = stiefel.check_minimum(fun, V[:, i], manifold=stiefel.Stiefel(B=B), hessp=hessp)
        assert check.kind == expected
        low = 2 * (w[[0, *range(3, N)]].min() - w[2]) if expected == "saddle" else 2 * (w[2] - w[1])
        assert check.curvatures[0] == pytest.approx(low, abs=1e-8)


def test_trees_stacks_and_free_parameters():
    A, U = matrix(float)

    def fun(p):
        f, G = trace(A)[0](p["X"])
        return f - np.sum(np.cos(p["t"])), {"X": G, "t": np.sin(p["t"])}

    spaces = {"X": stiefel.Stiefel(), "t": stiefel.Euclidean()}
    for t, expected in (([0.0, 0.0], "minimum"), ([0.0, np.pi], "saddle")):
        point = {"X": U[:, :2], "t": np.array(t)}
        check = stiefel.check_minimum(fun, point, manifold=spaces)
        assert (check.kind, check.symmetries) == (expected, 1)
        assert set(check.direction) == {"X", "t"}
    stack = np.stack([U[:, :2], U[:, 1:3]])
    both = lambda X: (float(np.vdot(X, A @ X)), 2 * A @ X)
    check = stiefel.check_minimum(both, stack)
    assert (check.kind, check.symmetries) == ("saddle", 2)
    assert np.linalg.norm(check.direction[0]) < 1e-6  # the first matrix is at its minimum


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_other_libraries_differentiate_twice(library):
    A, U = matrix(float)
    if library == "torch":
        torch = pytest.importorskip("torch")
        convert, total = torch.as_tensor, torch.sum
    else:
        jax = pytest.importorskip("jax")
        jax.config.update("jax_enable_x64", True)
        convert, total = jax.numpy.asarray, jax.numpy.sum
    B = convert(A)
    check = stiefel.check_minimum(lambda X: total(X * (B @ X)), convert(U[:, 1:3].copy()))
    assert check.kind == "saddle"
    assert check.curvatures[0] == pytest.approx(2 * (SPECTRUM[0] - SPECTRUM[2]), abs=1e-9)
    assert type(check.direction) is type(convert(U))


@pytest.mark.parametrize("scale", [2.0**-300, 1.0, 2.0**300])
def test_the_scale_of_f_does_not_matter(scale):
    A, U = matrix(float)
    x = U[:, :2] + 1e-9 * RNG.standard_normal((N, 2))
    check = stiefel.check_minimum(trace(scale * A)[0], stiefel.nearest(x))
    assert check.kind == "minimum"
    assert check.curvatures[0] == pytest.approx(scale * 3.0, rel=1e-3)


def test_a_larger_problem_takes_few_products():
    n, k = 300, 5
    f = Brockett(np.linspace(1.0, 50.0, n), np.arange(1.0, k + 1))
    r = stiefel.minimize(f, stiefel.random_point(n, k, seed=0), rtol=1e-8)
    check = stiefel.check_minimum(f, r.x)
    assert check
    assert check.products <= 150
    exact = (50.0 - 1.0) / (n - 1)  # of two neighbours among the eigenvalues
    assert 0.3 * exact < check.curvatures[0] < 3 * exact


def test_a_frame_that_is_full_begins_again_without_a_loss(monkeypatch):
    monkeypatch.setattr(curvature, "FRAME", 16)
    monkeypatch.setattr(curvature, "LARGEST_FRAME", 16)
    n = 80
    spectrum = np.concatenate([[0.0, 1.0], np.linspace(3.0, 40.0, n - 2)])
    fun, hessp = trace(np.diag(spectrum))
    for indices, exact in (([0, 1], 4.0), ([0, 2], -4.0)):
        check = stiefel.check_minimum(fun, np.eye(n)[:, indices], hessp=hessp)
        assert 16 < check.products < 300
        assert check.curvatures[0] == pytest.approx(exact, rel=0.01)
        assert check.largest == pytest.approx(80.0, rel=0.01)


def test_the_promise_is_not_made_where_it_cannot_be_kept():
    n, k = 400, 3
    fun, hessp = trace(np.diag(np.geomspace(1e-4, 1e4, n)))
    check = stiefel.check_minimum(fun, np.eye(n)[:, :k], hessp=hessp, maxproducts=5)
    assert check.products == 5
    assert check.kind == "unresolved minimum"
    moved = stiefel.nearest(np.eye(n)[:, :k] + 0.1 * RNG.standard_normal((n, k)))
    assert stiefel.check_minimum(fun, moved, hessp=hessp).kind == "not stationary"


def test_a_flat_function_and_a_point_without_freedom():
    fun = lambda x: (float(np.sum(x[:2] ** 2)), np.concatenate([2 * x[:2], np.zeros(3)]))
    check = stiefel.check_minimum(fun, np.zeros(5), manifold=stiefel.Euclidean())
    assert check.kind == "flat minimum"
    assert math.isinf(check.condition_number)
    check = stiefel.check_minimum(lambda X: (1.0, X), np.eye(3), manifold=stiefel.Grassmann())
    assert check.kind == "minimum"
    assert check.direction is None
    assert "no direction" in str(check)


@pytest.mark.parametrize("options", [{"tol": 0}, {"tol": 2.0}, {"maxproducts": 0}])
def test_misuse(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        stiefel.check_minimum(trace(np.eye(3))[0], np.eye(3)[:, :1], **options)


def test_what_is_printed():
    A, U = matrix(float)
    text = str(stiefel.check_minimum(trace(A)[0], U[:, 1:3]))
    assert text.startswith("saddle: the smallest curvature is -5")
    assert "1 directions of symmetry" in text
    assert doctest.testmod(minimum).failed == 0


# -- out of saddles ------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "accelerated", "cg", "trust-region"])
@pytest.mark.parametrize("dtype", [float, complex, np.float32])
def test_every_saddle_of_brockett_leads_to_the_global_minimum(method, dtype):
    """All ordered index pairs: every one but the sorted first is a saddle or a maximum."""
    single = dtype is np.float32
    A, U = (a.astype(dtype) for a in matrix(complex if dtype is complex else float))
    weights = np.array([2.0, 1.0], np.float32 if single else float)
    fun, _ = trace(A, weights)
    least = float(weights @ SPECTRUM[:2])
    for indices in itertools.permutations(range(N), 2):
        x0 = stiefel.nearest(U[:, indices]) if single else U[:, indices]
        r = stiefel.minimize(fun, x0, method=method, escape=True)
        assert r.success
        assert r.fun == pytest.approx(least, rel=1e-4 if single else 1e-9), indices
        assert r.minimum.kind == "minimum"
        assert (r.escapes > 0) == (indices != (0, 1))


@pytest.mark.parametrize("indices", list(itertools.combinations(range(N), 2)))
def test_every_saddle_of_rayleigh_leads_to_the_global_minimum(indices):
    A, U = matrix(float)
    r = stiefel.minimize(Rayleigh(A, columns=2), U[:, indices], escape=True)
    assert r.fun == pytest.approx(0.5 * SPECTRUM[:2].sum(), rel=1e-9)
    assert r.minimum
    assert "minimum: smallest curvature" in r.message


def test_a_stationary_start_costs_few_evaluations():
    """Rounding of a gradient that is zero is not minimised."""
    A, U = matrix(float)
    fun, _ = trace(A)
    best = stiefel.minimize(fun, U[:, :2], escape=True)
    assert best.success
    assert best.nit == 0
    assert best.nfev < 20
    assert stiefel.minimize(fun, U[:, 1:3], escape=True).nfev < 150


def test_counts_limits_and_history_are_those_of_all_legs():
    A, U = matrix(float)
    calls = []

    def fun(X):
        calls.append(X)
        return trace(A)[0](X)

    r = stiefel.minimize(fun, U[:, 4:], escape=True)
    assert r.success
    assert r.nfev == len(calls)
    assert r.escapes >= 1
    assert (np.diff(r.history["nfev"]) >= 0).all()
    assert len(r.history) == r.nit + r.escapes + 1
    assert stiefel.minimize(fun, U[:, 4:], escape=True, maxiter=2).nit <= 2
    for limit in (1, 2, 5, 8, 20, 40):
        calls.clear()
        limited = stiefel.minimize(fun, U[:, 4:], escape=True, maxfun=limit)
        assert len(calls) == limited.nfev <= limit
        assert not limited.success


def test_an_ordinary_minimum_is_confirmed_and_nothing_else_changes():
    f, x0 = Brockett.linear(30, 3), stiefel.random_point(30, 3, seed=0)
    plain, checked = stiefel.minimize(f, x0), stiefel.minimize(f, x0, escape=True)
    assert np.array_equal(plain.x, checked.x)
    assert checked.escapes == 0
    assert checked.minimum
    with pytest.raises(ValueError, match="checkpoint"):
        stiefel.minimize(f, x0, escape=True, checkpoint="a.npz")


# -- several starts ------------------------------------------------------------------------


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("seed", range(8))
def test_orthogonal_procrustes_is_found_in_both_components(seed):
    rng = np.random.default_rng(seed)
    A, B = rng.standard_normal((20, 8)), rng.standard_normal((20, 8))
    Q, _ = scipy.linalg.orthogonal_procrustes(A, B)
    f = Procrustes(A, B)
    r = stiefel.minimize(f, np.eye(8), starts=2)  # one in each component
    assert r.success
    assert r.fun == pytest.approx(f.value(Q), rel=1e-9)
    assert r.fun == r.starts[0].fun == min(m.fun for m in r.starts)
    assert len(r.starts) == 2
    assert "2 different minima" in r.message


def wells(x):
    """Two wells on each axis of the circle, one of them deeper; maxima between."""
    c, s = x
    f = 4 * (c * s) ** 2 - 0.1 * c
    return f, np.array([8 * c * s**2 - 0.1, 8 * c**2 * s])


def test_the_table_says_which_minima_there_are_and_how_often():
    r = stiefel.minimize(wells, np.array([0.0, 1.0]), manifold=stiefel.Sphere(), starts=40)
    table = r.starts
    assert [round(m.fun, 6) for m in table][:1] == [-0.1]
    assert sorted(round(m.fun, 3) for m in table) == [-0.1, -0.001, -0.001, 0.1]
    assert sum(m.count for m in table) == 40 - len(table.lost)
    assert sorted(i for m in table for i in m.starts) == sorted(set(range(40)) - set(table.lost))
    assert r.nfev == sum(x.nfev for x in table.results) + r.nfev - sum(
        x.nfev for x in table.results
    )
    assert len(str(table).splitlines()) >= 5
    assert r.fun == table[0].fun


@pytest.mark.parametrize(
    ("dtype", "weights"),
    [(float, [2.0, 1.0]), (complex, [2.0, 1.0]), (float, [1.0, 1.0]), (complex, [1.0, 1.0])],
)
def test_ends_that_a_symmetry_of_f_relates_are_one_minimum(dtype, weights):
    """Signs and phases of columns for different weights, all of U(k) for equal ones."""
    A, _ = matrix(dtype)
    fun, _ = trace(A, np.array(weights))
    r = stiefel.minimize(fun, stiefel.random_point(N, 2, seed=0, dtype=dtype), starts=12)
    assert len(r.starts) == 1
    assert r.starts[0].count == 12
    assert "one minimum" in r.message


def test_ends_that_no_symmetry_relates_are_two_minima():
    """(x² − 1)² + (y² − 1)² and its like: four minima with equal values, on the plane."""
    fun = lambda p: (float(np.sum((p**2 - 1) ** 2)), 4 * p * (p**2 - 1))
    space = stiefel.Euclidean()
    r = stiefel.minimize(fun, np.array([0.5, 0.5]), manifold=space, starts=30, gtol=1e-10)
    assert len(r.starts) == 4


def test_bases_of_one_span_are_two_minima_if_f_tells_them_apart():
    """‖X − P‖²‖X − PQ‖² vanishes at two bases of one plane; turning by Q takes one to the other."""
    angle = np.deg2rad(70)
    Q = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    P = np.eye(4)[:, :2]

    def fun(X):
        R, S = X - P, X - P @ Q
        r, s = np.vdot(R, R), np.vdot(S, S)
        return float(r * s), 2 * s * R + 2 * r * S

    r = stiefel.minimize(fun, stiefel.random_point(4, 2, seed=0), starts=30, rtol=1e-8)
    zero = [m for m in r.starts if m.fun < 1e-9]
    assert len(zero) == 2
    assert min(m.count for m in zero) >= 2


@pytest.mark.parametrize("workers", [2, 3])
def test_processes_give_the_same_bits(workers):
    f, x0 = Brockett.linear(20, 2), stiefel.random_point(20, 2, seed=0)
    calls = lambda X: f.value_and_gradient(X)  # no process could be sent this
    one = stiefel.minimize(calls, x0, starts=5, seed=3)
    many = stiefel.minimize(calls, x0, starts=5, seed=3, workers=workers)
    for a, b in zip(one.starts.results, many.starts.results, strict=True):
        assert np.array_equal(a.x, b.x)
    assert (one.nfev, one.fun) == (many.nfev, many.fun)


def test_starts_of_ones_own_and_of_every_kind():
    f = Brockett.linear(20, 2)
    points = [stiefel.random_point(20, 2, seed=i) for i in range(3)]
    r = stiefel.minimize(f, points[0], starts=points)
    for given, found in zip(points, r.starts.results, strict=True):
        assert np.array_equal(found.x, stiefel.minimize(f, given).x)

    def fun(p):
        g, G = f.value_and_gradient(p["X"])
        return g + np.sum((p["t"] ** 2 - 4) ** 2), {"X": G, "t": 4 * p["t"] * (p["t"] ** 2 - 4)}

    spaces = {"X": stiefel.Stiefel(), "t": stiefel.Euclidean()}
    r = stiefel.minimize(fun, {"X": points[0], "t": np.ones(1)}, manifold=spaces, starts=12)
    assert sorted(round(float(m.x["t"][0])) for m in r.starts) == [-2, 2]
    both = stiefel.minimize(f, points[0], starts=2, escape=True)
    assert all(x.minimum for x in both.starts.results)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"starts": 0}, ValueError),
        ({"starts": "many"}, TypeError),
        ({"starts": []}, TypeError),
        ({"starts": True}, TypeError),
        ({"starts": 2, "workers": 0}, ValueError),
        ({"starts": 2, "workers": 2, "callback": print}, ValueError),
        ({"starts": 2, "checkpoint": "a.npz"}, ValueError),
    ],
)
def test_misuse_of_starts(options, error):
    with pytest.raises(error):
        stiefel.minimize(Brockett.linear(9, 2), stiefel.random_point(9, 2, seed=0), **options)
