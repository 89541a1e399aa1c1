"""Gradients that the user did not write: differences, and autodiff for NumPy points."""

import importlib
import sys

import numpy as np
import pytest

import stiefel
from stiefel import Euclidean, Stiefel, minimize

N = 7
A = np.diag(np.arange(1.0, N + 1))
W = np.array([1.0, 2.0])
X0 = stiefel.random_point(N, 2, seed=1)
BEST = 4.0


def pair(X):
    return float(np.sum(X * (A @ X) * W)), 2 * A @ X * W


class Counter:
    """A function of X that knows how often it was called."""

    def __init__(self, fun):
        self.fun, self.calls = fun, 0

    def __call__(self, X, *args):
        self.calls += 1
        return self.fun(X, *args)


VALUES = {
    "2-point": lambda X: np.sum(X * (A @ X) * W),
    "3-point": lambda X: np.sum(X * (A @ X) * W),
    "cs": lambda X: np.sum(X * (A @ X) * W),
}


@pytest.mark.parametrize("rule", VALUES)
def test_differences_find_the_minimum_and_count_every_value(rule):
    fun = Counter(VALUES[rule])
    result = minimize(fun, X0, jac=rule, rtol=1e-5)
    assert result.success, result.message
    assert result.fun == pytest.approx(BEST, rel=1e-8)
    assert result.nfev == fun.calls  # the honest number
    a_gradient = {"2-point": N * 2, "3-point": 2 * N * 2, "cs": N * 2}[rule]
    assert result.njev * a_gradient < result.nfev < result.njev * (a_gradient + 3)


@pytest.mark.parametrize(
    ("rule", "accuracy"), [("2-point", 1e-6), ("3-point", 1e-9), ("cs", 1e-14)]
)
def test_each_rule_is_as_accurate_as_it_says(rule, accuracy):
    rng = np.random.default_rng(0)
    C = rng.standard_normal((N, N))
    value = lambda X: np.sum(np.exp(C @ X / 3))
    exact = C.T @ np.exp(C @ X0 / 3) / 3
    from stiefel.function.differences import Differences
    from stiefel.function.trees import Tree

    found = Differences(value, rule, Tree(X0), (X0,)).gradient(X0)
    error = np.max(np.abs(found - exact)) / np.max(np.abs(exact))
    assert error < accuracy and (rule == "cs" or error > accuracy / 1e4)


def test_complex_and_trees():
    rng = np.random.default_rng(2)
    C = rng.standard_normal((5, 5)) + 1j * rng.standard_normal((5, 5))
    C = C + C.conj().T
    Z0 = stiefel.random_point(5, 2, seed=0, dtype=complex)
    value = lambda Z: float(np.real(np.vdot(Z, C @ Z)))
    result = minimize(value, Z0, jac="3-point", rtol=1e-5)
    assert result.success
    assert result.fun == pytest.approx(np.linalg.eigvalsh(C)[:2].sum(), rel=1e-7)
    tree = {"X": X0, "b": np.ones(3)}
    where = {"X": Stiefel(), "b": Euclidean()}
    both = lambda p: pair(p["X"])[0] + np.sum((p["b"] - 2) ** 2)
    result = minimize(both, tree, manifold=where, jac="2-point", rtol=1e-5)
    assert result.success and np.allclose(result.x["b"], 2, atol=1e-4)


def test_the_limit_on_evaluations_holds_within_a_gradient():
    fun = Counter(VALUES["2-point"])
    result = minimize(fun, X0, jac="2-point", maxfun=40)
    assert result.status == "MAX_EVALUATIONS" and fun.calls <= 40 == result.nfev


def test_a_hint_where_differences_are_dear():
    big = stiefel.random_point(300, 2, seed=0)
    with pytest.warns(UserWarning, match=r'600 times for every gradient.*jac="jax"'):
        minimize(lambda X: float(X[0, 0]), big, jac="2-point", maxiter=0)


def test_the_complex_step_says_what_it_cannot_do():
    with pytest.raises(TypeError, match="returned a real number"):
        minimize(lambda X: float(np.real(np.sum(X))), X0, jac="cs")
    with pytest.raises(TypeError, match="3-point"):
        minimize(lambda X: np.sum(X), X0.astype(complex), jac="cs")


def test_a_function_without_gradient_is_told_what_there_is():
    with pytest.raises(TypeError, match=r'jac="jax" or jac="torch".*jac="3-point"'):
        minimize(lambda X: float(X[0, 0]), X0)
    with pytest.raises(ValueError, match=r"'4-point'.*\"2-point\""):
        minimize(lambda X: float(X[0, 0]), X0, jac="4-point")


def test_a_complex_gradient_asks_for_a_complex_start():
    with pytest.raises(TypeError, match=r"X0\.astype\(complex\)"):
        minimize(lambda X: (1.0, X + 0j), X0)


# -- autodiff of NumPy points -----------------------------------------------------------------


def written_in(library):
    if library == "jax":
        jnp = pytest.importorskip("jax.numpy")
        return lambda X: jnp.sum(X * (jnp.asarray(A) @ X) * W)
    torch = pytest.importorskip("torch")
    return lambda X: torch.sum(X * (torch.as_tensor(A) @ X) * torch.as_tensor(W))


@pytest.mark.parametrize("library", ["jax", "torch"])
@pytest.mark.parametrize("method", ["auto", "trust-region"])
def test_borrowed_gradients_give_the_run_of_exact_ones(library, method):
    fun = Counter(written_in(library))
    result = minimize(fun, X0, jac=library, method=method, rtol=1e-9)
    assert result.success, result.message  # at 1e-9: float64 throughout, whatever JAX's setting
    assert type(result.x) is np.ndarray is type(result.grad) and result.x.dtype == np.float64
    assert result.fun == pytest.approx(BEST, rel=1e-12)
    if method == "auto":
        ours = minimize(pair, X0, rtol=1e-9)
        assert result.nfev == fun.calls and abs(result.nfev - ours.nfev) <= 3
    else:
        assert result.nhev > 0


@pytest.mark.parametrize("library", ["jax", "torch"])
def test_borrowed_gradients_of_a_tree(library):
    fun = written_in(library)
    start = {"X": X0, "b": np.ones(3)}
    both = lambda p: fun(p["X"]) + ((p["b"] - 2) ** 2).sum()
    result = minimize(both, start, jac=library, manifold={"X": Stiefel(), "b": Euclidean()})
    assert result.success and np.allclose(result.x["b"], 2, atol=1e-4)
    assert type(result.x["b"]) is np.ndarray


def test_single_precision_stays_single():
    result = minimize(written_in("jax"), X0.astype(np.float32), jac="jax")
    assert result.success and result.x.dtype == result.grad.dtype == np.float32


def test_points_of_another_library_are_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match=r"NumPy points.*leave jac out"):
        minimize(lambda X: X.sum(), torch.as_tensor(X0), jac="torch")


def test_a_missing_library_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(ImportError, match="pip install jax"):
        minimize(lambda X: X.sum(), X0, jac="jax")
    assert importlib.import_module("stiefel") is stiefel


# -- a wrong gradient is pointed at -----------------------------------------------------------


def test_the_worst_entry_of_a_wrong_gradient_is_named():
    def wrong(X):
        f, G = pair(X)
        G = G.copy()
        G[4, 1] += 3.0
        return f, G

    check = stiefel.check_gradient(wrong, X0)
    assert not check and "X[4, 1]" in str(check)
    project = Stiefel().project
    claimed, exact = project(X0, wrong(X0)[1])[4, 1], project(X0, pair(X0)[1])[4, 1]
    assert f"{claimed:.6g}" in str(check) and f"{exact:.6g}" in str(check)


def test_the_worst_leaf_of_a_tree_is_named():
    start = {"X": X0, "b": np.array([1.0, 2.0, 3.0])}
    where = {"X": Stiefel(), "b": Euclidean()}

    def wrong(p):
        f, G = pair(p["X"])
        return f + p["b"] @ p["b"], {"X": G, "b": 2 * p["b"] + np.array([0.0, 0.0, 5.0])}

    check = stiefel.check_gradient(wrong, start, manifold=where)
    assert not check and "X['b'][2]" in str(check) and " 11 " in str(check)


def test_large_and_undefined_functions_get_two_numbers_all_the_same():
    big = stiefel.random_point(400, 3, seed=0)
    check = stiefel.check_gradient(lambda X: (float(X[0, 0]), 0 * X), big)
    assert not check and "random direction" in str(check)

    def only_on_the_manifold(X):
        if np.linalg.norm(X.T @ X - np.eye(2)) > 1e-8:
            raise RuntimeError("not orthonormal")
        return float(X[0, 0]), 0 * X

    assert "random direction" in str(stiefel.check_gradient(only_on_the_manifold, X0))


# -- leaves that are not named are free -------------------------------------------------------


def test_a_missing_leaf_is_free():
    start = {"X": X0, "b": {"c": np.ones(3), "d": np.ones(2)}}
    fun = lambda p: (
        pair(p["X"])[0] + sum(np.sum((v - 2) ** 2) for v in p["b"].values()),
        {"X": pair(p["X"])[1], "b": {k: 2 * (v - 2) for k, v in p["b"].items()}},
    )
    result = minimize(fun, start, manifold={"X": Stiefel()})
    assert result.success and np.allclose(result.x["b"]["c"], 2, atol=1e-4)
    same = minimize(fun, start, manifold={"X": Stiefel(), "b": Euclidean()})  # a whole branch
    assert same.nfev == result.nfev
    with pytest.raises(TypeError, match=r"keys.*'X', 'b'"):
        minimize(fun, start, manifold={"X": Stiefel(), "bb": Euclidean()})


def test_a_free_vector_is_told_where_it_lives():
    with pytest.raises(ValueError, match=r"X0\['b'\].*free parameter.*Euclidean\(\)"):
        minimize(pair, {"X": X0, "b": np.ones(3)})
