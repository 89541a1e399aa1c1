"""Misuse is an error that teaches, and nothing happens; a run that goes wrong returns data."""

import math

import numpy as np
import pytest

import stiefel
from cases import SOLVERS
from stiefel import (
    AcceleratedGradient,
    Euclidean,
    GradientDescent,
    Grassmann,
    MaxIterations,
    MaxSeconds,
    RelativeGradient,
    SpecialOrthogonal,
    Sphere,
    Status,
    Stiefel,
    minimize,
    random_point,
)
from stiefel.solvers import METHODS

A = np.diag(np.arange(1.0, 9.0))
W = np.arange(1.0, 4.0)
X0 = random_point(8, 3, seed=0)


def fun(X):
    return float(np.sum(X * (A @ X) * W)), 2 * A @ X * W


def never(X):
    raise AssertionError("fun was called")


def with_entry(X, value):
    X = X.copy()
    X[0, 0] = value
    return X


# -- the start ------------------------------------------------------------------------------------

BAD_STARTS = {
    "more columns than rows": (X0.T.copy(), ValueError, "columns", "orthonormal", "transpose"),
    "a vector": (np.ones(8), ValueError, r"\(8,\)", "Sphere"),
    "a scalar array": (np.array(1.0), ValueError, r"\(\)", r"\(n, k\)"),
    "integers": (np.eye(8, 3, dtype=int), TypeError, "int", "floating", "astype"),
    "booleans": (np.eye(8, 3, dtype=bool), TypeError, "bool", "floating"),
    "objects": (np.eye(8, 3).astype(object), TypeError, "object|array"),
    "a number": (1.0, TypeError, "1.0", "array"),
    "None": (None, TypeError, "None", "array"),
    "a string": ("X", TypeError, "array"),
    "NaN": (with_entry(X0, math.nan), ValueError, "NaN or infinity", "finite"),
    "infinity": (with_entry(X0, math.inf), ValueError, "NaN or infinity", "finite"),
    "not orthonormal": (2 * X0, ValueError, "not orthonormal", "allowed", r"stiefel\.nearest"),
    "nearly orthonormal": (X0 * (1 + 1e-5), ValueError, "not orthonormal", "e-05"),
    "no columns": (np.zeros((8, 0)), ValueError, "no entries|no columns|0 columns"),
    "no rows": (np.zeros((0, 3)), ValueError, "no entries|0 rows"),
    "an empty stack": (np.zeros((0, 8, 3)), ValueError, "no entries"),
    "an empty dict": ({}, ValueError, "no arrays"),
    "an empty list": ([], ValueError, "no arrays"),
    "a bad leaf": ({"a": X0, "b": 2 * X0}, ValueError, r"X0\['b'\]", "not orthonormal"),
    "a list of numbers": ([1.0, 2.0], TypeError, r"X0\[0\]", "array"),
}


@pytest.mark.parametrize("name", BAD_STARTS)
def test_bad_starts(name):
    start, error, *words = BAD_STARTS[name]
    with pytest.raises(error) as caught:
        minimize(never, start)
    for word in words:
        caught.match(word)


@pytest.mark.parametrize(
    ("manifold", "start", "words"),
    [
        (Sphere(), np.ones(4), ["not orthonormal"]),
        (Sphere(), np.array(1.0), ["scalar", "vector"]),
        (SpecialOrthogonal(), X0, ["square", "Stiefel"]),
        (SpecialOrthogonal(), np.diag([1.0, -1.0]), ["determinant", "nearest"]),
        (Grassmann(), 2 * X0, ["not orthonormal"]),
        (Euclidean(), np.array([1.0, math.nan]), ["NaN"]),
        (Stiefel(B=np.eye(5)), X0, ["B has shape", "8 rows"]),
        (Stiefel(B=-np.eye(8)), X0, ["positive definite"]),
        (Stiefel(B=np.triu(np.ones((8, 8)))), X0, ["Hermitian"]),
        (Stiefel(B=2 * np.eye(8)), X0, ["not orthonormal", "XᵀBX", "manifold.nearest"]),
    ],
    ids=lambda v: type(v).__name__ if not isinstance(v, list) else "-".join(v),
)
def test_bad_starts_on_other_manifolds(manifold, start, words):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        minimize(never, start, manifold=manifold)
    for word in words:
        caught.match(word)


@pytest.mark.parametrize(
    "manifold", [Stiefel, "stiefel", 3, {"a": Stiefel()}, (Stiefel(), Stiefel())], ids=str
)
def test_bad_manifolds(manifold):
    with pytest.raises(TypeError, match=r"manifold|instance"):
        minimize(never, X0, manifold=manifold)


def test_the_advice_works():
    for start in (2 * X0, X0 * (1 + 1e-5), X0 + 0.1):
        assert minimize(fun, stiefel.nearest(start)).success


def test_the_start_is_left_alone():
    start = X0.copy()
    minimize(fun, start)
    assert np.array_equal(start, X0)


# -- the function ---------------------------------------------------------------------------------

BAD_FUNCTIONS = {
    "returns nothing": (lambda X: None, TypeError, "None", "value, gradient"),
    "returns only a value": (lambda X: 1.0, TypeError, "gradient", "jac="),
    "returns a NumPy value": (lambda X: np.sum(X), TypeError, "gradient", "jac="),
    "returns four things": (lambda X: (1, X, 2, 3), TypeError, "tuple of 4", "value, gradient"),
    "returns an array for a value": (lambda X: (X, X), TypeError, "shape", "scalar"),
    "returns a vector for a value": (lambda X: (np.ones(1), X), TypeError, "scalar"),
    "returns a complex value": (lambda X: (1j, X), TypeError, "real"),
    "returns a string for a value": (lambda X: ("1", X), TypeError, "scalar"),
    "returns None for a value": (lambda X: (None, X), TypeError, "None", "scalar"),
    "gives no gradient": (lambda X: (1.0, None), TypeError, "gradient is None"),
    "gives a transposed gradient": (lambda X: (1.0, X.T), ValueError, r"\(3, 8\)", r"\(8, 3\)"),
    "gives a flat gradient": (lambda X: (1.0, X.ravel()), ValueError, r"\(24,\)", "shape"),
    "gives a complex gradient": (lambda X: (1.0, X + 0j), TypeError, "complex128", "float64"),
    "gives a float32 gradient": (lambda X: (1.0, X.astype("f4")), TypeError, "float32", "convert"),
    "gives integers": (lambda X: (1.0, np.ones((8, 3), int)), TypeError, "int", "float64"),
    "is not a function": (3.0, TypeError, "fun is", "function"),
    "is None": (None, TypeError, "fun is None"),
}


@pytest.mark.parametrize("name", BAD_FUNCTIONS)
def test_bad_functions(name):
    bad, error, *words = BAD_FUNCTIONS[name]
    with pytest.raises(error) as caught:
        minimize(bad, X0)
    for word in words:
        caught.match(word)


def test_gradients_of_another_library():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"torch.*library of X \(numpy\)"):
        minimize(lambda X: (1.0, torch.zeros(8, 3)), X0)
    X = torch.from_numpy(X0.copy())
    with pytest.raises(TypeError, match=r"numpy.*library of X \(torch\)"):
        minimize(lambda X: (1.0, np.zeros((8, 3))), X, jac=True)
    with pytest.raises(TypeError, match="does not depend on X"):
        minimize(lambda X: torch.tensor(1.0), X)
    with pytest.raises(TypeError, match=r"tuple of 2.*jac=True"):
        minimize(lambda X: (X.sum(), X), X)


def test_starts_of_two_libraries():
    torch = pytest.importorskip("torch")
    start = {"W": torch.eye(4, 2, dtype=torch.float64), "b": np.ones(3)}
    with pytest.raises(TypeError, match=r"X0\['W'\] \(torch\) and X0\['b'\] \(numpy\)"):
        minimize(lambda p: (0.0, p), start, manifold={"W": stiefel.Stiefel()})


@pytest.mark.parametrize("jac", [False, 3])
def test_bad_jac(jac):
    with pytest.raises(TypeError, match=r"jac is .*expected a function"):
        minimize(never, X0, jac=jac)


def test_a_pair_where_a_value_is_expected():
    with pytest.raises(TypeError, match=r"tuple of 2.*jac=True"):
        minimize(fun, X0, jac=lambda X: fun(X)[1])


def test_the_gradient_of_a_tree():
    start = {"X": X0, "b": np.ones(2)}
    manifold = {"X": Stiefel(), "b": Euclidean()}
    with pytest.raises(TypeError, match=r"gradient.*keys"):
        minimize(lambda p: (1.0, {"X": p["X"]}), start, manifold=manifold)
    with pytest.raises(ValueError, match=r"gradient at \['b'\].*shape"):
        minimize(lambda p: (1.0, {"X": p["X"], "b": np.ones(3)}), start, manifold=manifold)


# -- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"method": "acelerated"}, ValueError, ["unknown method", "'accelerated'"]),
        ({"method": "Nelder-Mead"}, ValueError, ["no gradients", "2-point"]),
        ({"method": "dogleg"}, ValueError, ["unknown method", "trust-region"]),
        ({"options": {"metric": "canonical"}}, TypeError, ["LBFGS.metric", "None"]),
        ({"maxiter": 3, "options": {"maxiter": 4}}, ValueError, ["maxiter is given twice"]),
        ({"options": 3}, TypeError, ["options is a int", "dict"]),
        ({"hess": True}, TypeError, ["hessp"]),
        ({"method": 3}, TypeError, ["method is", "AcceleratedGradient"]),
        ({"rtoll": 1e-3}, TypeError, ["unknown option", "'rtol'"]),
        ({"max_iter": 10}, TypeError, ["unknown option", "'maxiter'"]),
        ({"zzz": 1}, TypeError, ["unknown option", "known:"]),
        ({"method": "accelerated", "options": {"growht": 2.0}}, ValueError, ["'growth'"]),
        ({"method": AcceleratedGradient(), "options": {"growth": 2.0}}, TypeError, ["by name"]),
        ({"rtol": -1e-3}, ValueError, ["rtol", "≥ 0"]),
        ({"rtol": math.nan}, ValueError, ["rtol"]),
        ({"rtol": math.inf}, ValueError, ["rtol"]),
        ({"gtol": -1.0}, ValueError, ["gtol"]),
        ({"ftol": -1.0}, ValueError, ["ftol"]),
        ({"rtol": 0.0}, ValueError, ["all zero", "positive"]),
        ({"maxiter": -1}, ValueError, ["MaxIterations", "-1"]),
        ({"maxiter": 2.5}, ValueError, ["MaxIterations", "integer"]),
        ({"maxfun": 0}, ValueError, ["MaxEvaluations"]),
        ({"maxtime": 0.0}, ValueError, ["MaxSeconds", "positive"]),
        ({"maxtime": -3.0}, ValueError, ["MaxSeconds", "positive"]),
        ({"fnoise": -1.0}, ValueError, ["fnoise"]),
        ({"precond": 3}, TypeError, ["precond is", "function"]),
        ({"callback": 3}, TypeError, ["callback is", "function"]),
        ({"stop": 3}, TypeError, ["stop is", "RelativeGradient"]),
        ({"rtol": "1e-6"}, TypeError, ["rtol is", "number"]),
        ({"maxiter": "10"}, TypeError, ["maxiter is|MaxIterations", "10"]),
    ],
    ids=str,
)
def test_bad_options(options, error, words):
    with pytest.raises(error) as caught:
        minimize(never, X0, **options)
    for word in words:
        caught.match(word)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: AcceleratedGradient(initial_step=0.0), ["initial_step", "positive"]),
        (lambda: AcceleratedGradient(initial_step=math.nan), ["initial_step"]),
        (lambda: AcceleratedGradient(initial_step="0.1"), ["initial_step", "positive number"]),
        (lambda: AcceleratedGradient(growth=1.0), ["growth", "between 1"]),
        (lambda: AcceleratedGradient(growth_threshold=0.5), ["growth_threshold", "0.5"]),
        (lambda: AcceleratedGradient(growth_threshold=1.0), ["growth_threshold"]),
        (lambda: AcceleratedGradient(sufficient_decrease=0.0), ["sufficient_decrease"]),
        (lambda: AcceleratedGradient(least_decrease=0.5), ["least_decrease", "every step"]),
        (lambda: AcceleratedGradient(least_decrease=-0.1), ["least_decrease", "at least 0"]),
        (lambda: AcceleratedGradient(restart="often"), ["restart", "'function'"]),
        (lambda: AcceleratedGradient(search="wolfe"), ["search", "'two-sided'"]),
        (lambda: GradientDescent(growth=0.5), ["growth"]),
        (lambda: RelativeGradient(0.0), ["RelativeGradient", "positive"]),
        (lambda: RelativeGradient(math.nan), ["RelativeGradient", "positive"]),
        (lambda: MaxIterations(-1), ["MaxIterations"]),
        (lambda: MaxSeconds(0), ["MaxSeconds", "positive"]),
        (lambda: random_point(3, 5, seed=0), ["columns|rows"]),
        (lambda: stiefel.nearest(np.full((4, 2), math.nan)), ["NaN"]),
        (lambda: stiefel.interpolate(X0, random_point(5, 3, seed=1), 0.5), ["shape"]),
    ],
)
def test_bad_parameters(make, words):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        make()
    for word in words:
        caught.match(word)


# -- runs that go wrong ---------------------------------------------------------------------------


class Oops(Exception):
    pass


@pytest.mark.parametrize("error", [Oops, KeyboardInterrupt, SystemExit, MemoryError])
@pytest.mark.parametrize("method", SOLVERS)
def test_exceptions_propagate_with_the_best_point(method, error):
    calls = []

    def failing(X):
        calls.append(fun(X)[0])
        if len(calls) == 8:
            raise error("stop")
        return fun(X)

    with pytest.raises(error) as caught:
        minimize(failing, X0, method=method)
    partial = caught.value.partial_result
    assert not partial.success
    assert partial.nfev == len(calls)
    assert Stiefel().defect(partial.x) < 1e-13
    assert partial.fun == pytest.approx(fun(partial.x)[0])
    assert partial.fun < calls[0]
    assert error.__name__ in partial.message
    assert any("partial_result" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("true", [True, np.True_, np.array(True)], ids=["bool", "numpy", "array"])
@pytest.mark.parametrize("method", SOLVERS)
def test_a_callback_that_returns_true_of_any_library_stops_the_run(method, true):
    result = minimize(fun, X0, method=method, callback=lambda s: true if s.nit == 3 else not true)
    assert result.status.name == "STOPPED_BY_CALLBACK"
    assert result.nit == 3


@pytest.mark.parametrize("value", [None, 1, 2.5, "yes", np.array([True, True]), [True], np.False_])
def test_a_callback_that_returns_anything_else_does_not(value):
    assert minimize(fun, X0, callback=lambda s: value, maxiter=3).nit == 3


@pytest.mark.parametrize("error", [Oops, KeyboardInterrupt])
def test_exceptions_in_the_callback(error):
    def callback(snapshot):
        if snapshot.nit == 4:
            raise error

    with pytest.raises(error) as caught:
        minimize(fun, X0, callback=callback)
    assert caught.value.partial_result.nit == 4


def test_exceptions_in_the_first_call():
    """There is no point to attach yet; the exception is the user's own."""

    def failing(X):
        raise Oops("at once")

    with pytest.raises(Oops, match="at once"):
        minimize(failing, X0)


def test_the_callback_sees_and_stops():
    seen = []

    def callback(snapshot):
        seen.append(snapshot)
        return len(seen) == 6

    result = minimize(fun, X0, callback=callback)
    assert result.status is Status.STOPPED_BY_CALLBACK
    assert not result.success
    assert [s.nit for s in seen] == list(range(6))
    assert seen[-1].nfev == result.nfev
    assert all(np.isfinite(s.fun) and s.gradient_norm > 0 for s in seen)


@pytest.mark.parametrize("value", [0, "yes", np.array([1, 2]), None, 1])
def test_only_true_stops(value):
    assert minimize(fun, X0, callback=lambda s: value).success


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", range(4))
def test_a_step_that_cannot_be_found(method, seed):
    """The gradient points uphill: no step decreases f, and the run says so."""
    start = random_point(8, 3, seed=seed)
    result = minimize(lambda X: (fun(X)[0], -fun(X)[1]), start, method=method)
    assert result.status is Status.STEP_NOT_FOUND
    assert np.array_equal(result.x, start)


def test_rounding_is_reached_and_said():
    U = random_point(8, 8, seed=1)
    H = U @ A @ U.T  # a diagonal matrix has gradients that vanish exactly

    def dense(X):
        return float(np.sum(X * (H @ X) * W)), 2 * H @ X * W

    result = minimize(dense, X0, rtol=1e-30, maxiter=20_000)
    assert result.status is Status.ROUNDING_LIMIT
    assert not result.success
    assert result.gradient_norm < 1e-11 * result.history["gradient_norm"][0]


def test_a_start_that_is_already_the_answer():
    answer = np.eye(8)[:, [2, 1, 0]].copy()
    result = minimize(fun, answer, rtol=1e-6)
    assert result.nit == 0 or result.fun == pytest.approx(10.0)
    assert result.fun == pytest.approx(10.0)
    assert minimize(fun, answer, gtol=1e-6).success


def test_limits_are_statuses():
    assert minimize(fun, X0, maxiter=0).status is Status.MAX_ITERATIONS
    assert minimize(fun, X0, maxfun=1).status is Status.MAX_EVALUATIONS
    assert minimize(fun, X0, maxtime=1e-9).status is Status.MAX_TIME
    assert minimize(fun, X0, stop=MaxIterations(2)).nit == 2


# -- check_gradient -------------------------------------------------------------------------------


def variants(G):
    return {
        "right": (G, True, ""),
        "twice": (2 * G, False, "divide by 2"),
        "half": (0.5 * G, False, "multiply by 2"),
        "negated": (-G, False, "sign"),
        "thrice": (3 * G, False, "multiplied by 0.333"),
    }


def to(library, array):
    if library == "torch":
        return pytest.importorskip("torch").from_numpy(np.array(array))
    if library == "jax":
        jax = pytest.importorskip("jax")
        jax.config.update("jax_enable_x64", True)
        return jax.numpy.asarray(array)
    if library == "strict":
        return pytest.importorskip("array_api_strict").asarray(array)
    return array


def numpy_of(X):
    return np.asarray(X.detach() if hasattr(X, "detach") else X)


LIBRARIES = ("numpy", "torch", "jax", "strict")


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", ["right", "twice", "half", "negated", "thrice", "conjugate"])
def test_verdicts_on_complex_functions(library, name):
    rng = np.random.default_rng(4)
    H = rng.standard_normal((7, 7)) + 1j * rng.standard_normal((7, 7))
    H = H + H.conj().T

    def wrong(X):
        x = numpy_of(X)
        G = 2 * H @ x * np.array([1.0, 2.0])
        f = float(np.real(np.vdot(x, G)) / 2)
        change = {k: v[0] for k, v in variants(G).items()} | {"conjugate": G.conj()}
        return f, to(library, change[name])

    X = to(library, random_point(7, 2, seed=3, dtype=complex))
    verdict = stiefel.check_gradient(wrong, X, jac=True)
    if name == "conjugate":
        assert not verdict and "conjugate" in str(verdict)
        return
    _, right, words = variants(H)[name]
    assert bool(verdict) is right, str(verdict)
    assert words in str(verdict)
    assert (verdict.slope > 1.8) is right


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("transposed", [False, True])
def test_verdicts_on_transposes(library, transposed):
    C = np.random.default_rng(5).standard_normal((4, 4))
    U = SpecialOrthogonal().random(4, 4, seed=1)

    def linear(X):
        G = C.T if transposed else C
        return float(np.sum(C * numpy_of(X))), to(library, np.ascontiguousarray(G))

    verdict = stiefel.check_gradient(linear, to(library, U), jac=True, manifold=Stiefel())
    assert bool(verdict) is not transposed
    assert ("transpose" in str(verdict)) is transposed


def test_verdicts_on_nonsense_and_on_autodiff():
    verdict = stiefel.check_gradient(lambda X: (fun(X)[0], X**2), X0)
    assert not verdict and "No factor" in str(verdict)
    torch = pytest.importorskip("torch")
    assert stiefel.check_gradient(lambda X: (X**4).sum(), torch.from_numpy(X0.copy()))
    assert stiefel.check_gradient(fun, X0)
    assert stiefel.check_gradient(fun, X0, jac=None, manifold=Stiefel(), seed=7)


def test_many_problems_are_shown_copies():
    """A function that writes into X changes nothing but its own values."""
    A = np.diag(np.arange(1.0, 9.0))

    def writes(X):
        X *= 2
        return np.sum(X * (A @ X), axis=(1, 2)) / 4, A @ X

    X0 = stiefel.random_point(5, 8, 2, seed=0)
    result = stiefel.minimize_many(writes, X0)
    assert (
        result.success.all() and np.allclose(result.fun, 3.0) and result.feasibility.max() < 1e-14
    )
    with pytest.raises(TypeError, match="expected real numbers"):
        stiefel.minimize_many(lambda X: (np.ones(len(X), bool), X), X0)


def test_true_is_no_number_of_iterations():
    with pytest.raises(TypeError, match="MaxIterations"):
        stiefel.minimize(lambda X: (0.0, X), stiefel.random_point(4, 2, seed=0), maxiter=True)
