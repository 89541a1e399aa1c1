"""Every method on every hostile objective: an end within its limits, and nothing but the truth."""

import itertools
import math
import threading
import warnings

import numpy as np
import pytest

import stiefel
from hostile import HOSTILE, Boom, K, N, smooth
from stiefel.objectives import Brockett
from stiefel.solvers import METHODS

LIMITS = {"maxiter": 60, "maxfun": 300}
PROMISE = 10 * np.finfo(float).eps * math.sqrt(K)


def defect(X, B=None):
    X = X.astype(np.complex128)
    return np.linalg.norm(X.conj().T @ (X if B is None else B @ X) - np.eye(X.shape[1]))


def run(name, method, seed=0, **limits):
    """The result, or the exception's; checked for what every result promises."""
    hostile, calls = HOSTILE[name], itertools.count()
    inner = hostile.make(seed)

    def fun(X):
        next(calls)
        return inner(X)

    x0 = stiefel.random_point(N, K, seed=seed)
    with np.errstate(all="ignore"):
        try:
            result = stiefel.minimize(fun, x0, method=method, rtol=1e-8, **LIMITS | limits)
        except Boom as error:
            assert hostile.raises is Boom
            result = error.partial_result
            assert result.status.name == "INTERRUPTED"
            assert not result.success
    total = next(calls)
    return result, hostile, total


def check(result, hostile, calls, limits=LIMITS):
    assert result.nfev == calls or hostile.raises
    assert result.nit <= limits["maxiter"]
    assert calls <= limits["maxfun"]
    assert result.feasibility <= PROMISE
    assert defect(result.x) <= 2 * PROMISE  # summed in another order
    assert result.success is (result.status.name == "CONVERGED")
    assert result.status.name in hostile.may | ({"INTERRUPTED"} if hostile.raises else set())
    rows = result.history.as_array()
    assert len(rows) >= result.nit + 1
    if result.success:
        assert result.gradient_norm <= 1e-8 * rows["gradient_norm"][0]
        assert rows["gradient_norm"][-1] == result.gradient_norm
    elif math.isfinite(result.fun):
        # The numbers are those of one iteration, not a mixture.
        reported = [result.fun, result.gradient_norm]
        measured = np.stack([rows["value"], rows["gradient_norm"]], axis=1)
        assert any(np.array_equal(row, reported, equal_nan=True) for row in measured)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_objectives_end_with_a_truthful_status(name, method):
    check(*run(name, method))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["wrong sign", "random both", "constant with a gradient"])
def test_hostile_objectives_end_without_a_limit_of_their_own(name, method):
    result, *_ = run(name, method, maxiter=2000, maxfun=100_000)
    ends = ["ROUNDING_LIMIT", "STEP_NOT_FOUND", "MAX_ITERATIONS"]
    # Gradients alone may lead to a critical point; what f says cannot be held against it.
    assert result.status.name in ends + ["CONVERGED"] * (name == "constant with a gradient")


@pytest.mark.parametrize("method", METHODS)
def test_a_wrong_gradient_is_not_called_rounding(method):
    result, *_ = run("wrong sign", method, maxfun=3000)
    assert result.status.name in ("STEP_NOT_FOUND", "MAX_ITERATIONS")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "name",
    ["constant with a gradient", "alternating value", "alternating gradient", "wrong sign"],
)
def test_conjugate_gradients_see_a_contradiction_early(name, seed):
    """Not after the forty trials that a search may take."""
    result, *_ = run(name, "cg", seed, maxfun=3000)
    assert np.diff(result.history["nfev"]).max(initial=0) <= 20


@pytest.mark.parametrize("method", METHODS)
def test_seconds_are_a_limit(method, monkeypatch):
    """With a clock that advances one second a reading, and without patience running out."""
    ticks = itertools.count()
    clock = staticmethod(lambda: float(next(ticks)))
    monkeypatch.setattr("stiefel.backends.ranks.Alone.clock", clock)
    result = stiefel.minimize(
        smooth, stiefel.random_point(N, K, seed=0), method=method, rtol=1e-300, maxtime=20
    )
    assert result.status is stiefel.Status.MAX_TIME
    assert 20 <= result.seconds <= 40


# -- feasibility ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("shape", [(9, 1), (8, 8), (70, 30)], ids=str)
def test_returned_points_are_feasible_in_their_own_precision(method, dtype, shape):
    n, k = shape
    A = np.diag(np.linspace(1, 2, n)).astype(dtype)
    C = np.eye(n, k, dtype=dtype)
    fun = lambda X: (
        float(np.vdot(X, A @ X).real + np.vdot(C, X).real),
        2 * (A @ X) + C,
    )
    x0 = stiefel.Stiefel().random(n, k, seed=1, dtype=dtype)
    x0 = (x0 * (1 + 1e-9 / math.sqrt(k))).astype(dtype)  # a start that is only nearly orthonormal
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a square matrix has a determinant
        for maxiter in (0, 7):
            result = stiefel.minimize(fun, x0, method=method, maxiter=maxiter)
            promise = 10 * np.finfo(dtype).eps * math.sqrt(k)
            assert result.feasibility <= promise
            assert defect(result.x) <= 2 * promise
            assert result.x.dtype == dtype
            # What is reported was measured at the point that is returned.
            f, _ = fun(result.x)
            assert f == result.fun


@pytest.mark.parametrize("method", METHODS)
def test_returned_points_are_feasible_under_a_generalised_constraint(method):
    rng = np.random.default_rng(0)
    R = rng.standard_normal((30, 30))
    B = np.eye(30) + R @ R.T / 30
    manifold = stiefel.Stiefel(B=B)
    x0 = manifold.nearest(rng.standard_normal((30, 4)))
    A = np.diag(np.arange(30.0))
    for maxiter in (0, 20):
        result = stiefel.minimize(
            lambda X: (np.vdot(X, A @ X), 2 * A @ X),
            x0,
            manifold=manifold,
            method=method,
            maxiter=maxiter,
        )
        assert result.feasibility <= 10 * np.finfo(float).eps * 2
        assert defect(result.x, B) <= 4 * 10 * np.finfo(float).eps * 2


def test_leaves_of_different_precision_keep_their_own_promise():
    fun = lambda p: (
        float(p[0][0, 0]) + float(p[1][0, 0]),
        [np.eye(6, 2, dtype=np.float32) * [1, 0], np.eye(6, 2) * [1.0, 0]],
    )
    fun_typed = lambda p: (fun(p)[0], [fun(p)[1][0].astype(np.float32), fun(p)[1][1]])
    x0 = [
        stiefel.Stiefel().random(6, 2, seed=0, dtype=np.float32),
        stiefel.random_point(6, 2, seed=1) * (1 + 1e-9),
    ]
    result = stiefel.minimize(fun_typed, x0, maxiter=0)
    assert defect(result.x[1]) <= 2 * 10 * np.finfo(float).eps * math.sqrt(2)
    assert result.restorations == 1


def test_the_history_shows_the_defect():
    f = Brockett.table(60, 4)
    result = stiefel.minimize(f, stiefel.random_point(60, 4, seed=0), rtol=1e-9, maxiter=2000)
    assert 0 < result.history["defect"].max() < 1e-13


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("shape", [(40, 1), (300, 100), (500, 500), (700, 500)], ids=str)
def test_random_and_nearest_points_keep_the_promise(dtype, shape):
    k = shape[1]
    promise = 10 * np.finfo(dtype).eps * math.sqrt(k)
    X = stiefel.random_point(*shape, seed=0, dtype=dtype)
    scales = np.logspace(0, -2, k)
    nearest = stiefel.nearest((X * scales + 0.1 * np.roll(X, 1, axis=0) * scales).astype(dtype))
    manifold = stiefel.Stiefel()
    for point in (X, nearest):
        assert point.dtype == dtype
        assert manifold.defect(point) <= promise
        assert defect(point) <= promise  # measured in double precision


@pytest.mark.parametrize("manifold", [stiefel.SpecialOrthogonal(), stiefel.Grassmann()], ids=str)
def test_random_points_of_other_manifolds_keep_the_promise(manifold):
    X = stiefel.random_point(300, 300, seed=0, manifold=manifold)
    assert defect(X) <= 10 * np.finfo(float).eps * math.sqrt(300)


def test_random_points_of_a_generalised_constraint_keep_the_promise():
    rng = np.random.default_rng(0)
    R = rng.standard_normal((400, 400))
    manifold = stiefel.Stiefel(B=np.eye(400) + R @ R.T / 400)
    X = stiefel.nearest(rng.standard_normal((400, 200)), manifold=manifold)
    assert manifold.defect(X) <= 10 * np.finfo(float).eps * math.sqrt(200)


def test_one_pair_of_opposite_points_spoils_no_other_of_a_stack():
    X = stiefel.random_point(3, 7, 2, seed=4)
    Y = stiefel.extrapolate(X, stiefel.random_point(3, 7, 2, seed=5), 0.3)
    expected = stiefel.Stiefel().extrapolate(X, Y, 1.5)
    Y[1] = -X[1]
    found = stiefel.Stiefel().extrapolate(X, Y, 1.5)
    assert np.isnan(found[1]).all()
    assert np.array_equal(found[[0, 2]], expected[[0, 2]])


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_opposite_points_have_no_curve_between_them(library):
    for seed in range(3):
        X = stiefel.random_point(7, 2, seed=seed) if seed else np.eye(7, 2)
        X = pytest.importorskip("torch").from_numpy(X) if library == "torch" else X
        with pytest.raises(ValueError, match="singular"):
            stiefel.interpolate(X, -X, 0.5)


ABSURD = [
    stiefel.AcceleratedGradient(initial_step=1e13),
    stiefel.GradientDescent(initial_step=1e13),
    stiefel.LBFGS(initial_length=1e13),
    stiefel.ConjugateGradient(initial_length=1e13),
    stiefel.TrustRegion(initial_radius=1e13),
]


@pytest.mark.parametrize("library", ["numpy", "torch"])
@pytest.mark.parametrize("method", ABSURD, ids=lambda method: type(method).__name__)
def test_first_steps_of_absurd_length_are_shortened(method, library):
    """Their Cayley systems are singular in floating point, or lead to −X with the same f."""
    D, X0 = np.arange(8.0)[:, None], np.eye(8, 2)
    X0[:2] = 0
    X0[[5, 6], [0, 1]] = math.sqrt(0.75)
    X0[[0, 1], [0, 1]] = 0.5
    if library == "torch":
        torch = pytest.importorskip("torch")
        D, X0 = torch.from_numpy(D), torch.from_numpy(X0)
    functions = (
        lambda X: ((X * D * X).sum(), 2 * D * X),
        lambda X: (X.sum(), 0 * X + 1),
    )
    for fun in functions:
        result = stiefel.minimize(fun, X0, jac=True, method=method, maxiter=500)
        assert result.success


# -- buffers, threads ----------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("manifold", [stiefel.Stiefel(), stiefel.Euclidean()], ids=str)
def test_a_function_may_reuse_its_gradient_array(method, manifold):
    A = np.diag(np.arange(1.0, N + 1))
    C = np.random.default_rng(0).standard_normal((N, K))
    buffer = np.empty((N, K))

    def fresh(X):
        return 0.5 * np.vdot(X, A @ X) - np.vdot(C, X), A @ X - C

    def reusing(X):
        f, buffer[...] = fresh(X)
        return f, buffer

    x0 = stiefel.random_point(N, K, seed=0)
    one, two = (
        stiefel.minimize(f, x0, method=method, manifold=manifold, maxiter=25)
        for f in (fresh, reusing)
    )
    assert np.array_equal(one.x, two.x)


@pytest.mark.parametrize("method", METHODS)
def test_threads_do_not_disturb_each_other(method):
    cases = [(Brockett.table(n, k), stiefel.random_point(n, k, seed=n)) for n, k in
             ((40, 3), (40, 5), (50, 3), (31, 1))]  # fmt: skip
    solve = lambda case: stiefel.minimize(case[0], case[1], method=method, maxiter=40).x
    alone = [solve(case) for case in cases]
    together = {}
    threads = [
        threading.Thread(target=lambda i=i: together.__setitem__(i, solve(cases[i % 4])))
        for i in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(together) == 8
    for i, x in together.items():
        assert np.array_equal(x, alone[i % 4])


@pytest.mark.parametrize("method", METHODS)
def test_same_input_same_bits_and_no_global_randomness(method):
    before = np.random.get_state()[1].copy()  # noqa: NPY002 - the state that must not change
    one, two = (run("linear", method)[0] for _ in range(2))
    assert np.array_equal(one.x, two.x)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002
