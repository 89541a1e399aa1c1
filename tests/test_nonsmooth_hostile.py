"""Terms, functions and products that go wrong, and the rounding of f + h: how runs end."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import stiefel
from stiefel import L1, Status
from stiefel.nonsmooth import PROXIMAL_METHODS
from test_nonsmooth_solvers import SparsePCA


@pytest.mark.parametrize("seed", range(12))
def test_values_that_cancel_keep_their_rounding(seed):
    """f and h are −2 and 2, F nearly zero: its rounding is theirs.

    With that of F two of these starts end at 2e-8 in ROUNDING_LIMIT.
    """
    fun, target = SparsePCA(40), np.linspace(-1, 1, 7)

    def both(p):
        f, G = fun.value_and_gradient(p["X"])
        r = p["b"] - target
        return f + 0.5 * r @ r, {"X": G, "b": r}

    x0 = {"X": stiefel.random_point(40, 2, seed=seed), "b": np.zeros(7)}
    manifold = {"X": stiefel.Stiefel(), "b": stiefel.Euclidean()}
    terms = {"X": L1(0.3), "b": L1(0.5)}
    result = stiefel.minimize(both, x0, manifold=manifold, nonsmooth=terms, rtol=0, gtol=1e-8)
    assert abs(result.fun) < 0.1 * abs(result.smooth)
    assert result.success, result.message


@pytest.mark.parametrize("seed", range(4))
def test_complex_row_norms_without_hessp(seed):
    """All to 1e-8; with the rounding of F alone three of these four end in ROUNDING_LIMIT."""
    rng = np.random.default_rng(seed)
    B = (rng.standard_normal((30, 100)) + 1j * rng.standard_normal((30, 100))) / 10.0
    fun = lambda X: (-(np.linalg.norm(B @ X) ** 2), -2 * B.conj().T @ (B @ X))
    X0 = stiefel.random_point(100, 4, seed=seed, dtype=complex)
    term = stiefel.RowNorms(0.9)
    result = stiefel.minimize(fun, X0, nonsmooth=term, rtol=0, gtol=1e-8, maxfun=500)
    assert result.success, result.message
    assert np.all(result.support.any(axis=1) == np.abs(result.x).any(axis=1))
    assert 0 < np.count_nonzero(result.support.any(axis=1)) < 60


class WrongSign(L1):
    """A value that contradicts its proximal map."""

    def value(self, X):
        return -super().value(X)


@pytest.mark.parametrize("what", ["nan", "inf", "gradient", "jump", "term"])
@pytest.mark.parametrize("k", [1, 3])
def test_rounding_is_no_excuse(what, k):
    """For steps that are refused far from a solution: f ends, jumps, or the term is wrong."""
    fun, calls = SparsePCA(40), []

    def broken(X):
        calls.append(None)
        f, G = fun.value_and_gradient(X)
        if len(calls) <= 7 or what == "term":
            return f, G
        ends = {"nan": (np.nan, np.nan * G), "inf": (np.inf, G), "gradient": (f, np.nan * G)}
        return ends.get(what, (f + 100.0, G))

    term = WrongSign(0.3) if what == "term" else L1(0.3)
    X0 = stiefel.random_point(40, k, seed=1)
    result = stiefel.minimize(broken, X0, nonsmooth=term, rtol=0, gtol=1e-8, maxfun=300)
    assert result.status is Status.STEP_NOT_FOUND, result.message
    assert np.isfinite(result.fun)


class Lighter(L1):
    """A value that is nine tenths of what its proximal map believes."""

    def value(self, X):
        return 0.9 * super().value(X)


def test_a_contradiction_is_no_rounding():
    """Such runs stand still at 1e-2, and ended in ROUNDING_LIMIT."""
    X0, plain = stiefel.random_point(40, 3, seed=0), stiefel.ProximalLBFGS(learn=False)
    given = {"rtol": 0, "gtol": 1e-8, "method": plain, "maxfun": 600}
    result = stiefel.minimize(SparsePCA(40), X0, nonsmooth=Lighter(0.3), **given)
    assert result.status is Status.STEP_NOT_FOUND
    assert "the proximal map and the value of the term contradict each other" in result.message


def test_rounding_is_an_excuse_near_a_solution():
    """f has a noise of 1e-9 that nobody told of: five of eight, none with NO_EXCUSE 100."""
    ended = []
    for seed in range(8):
        fun, rng = SparsePCA(40), np.random.default_rng(seed)

        def noisy(X, fun=fun, rng=rng):
            f, G = fun.value_and_gradient(X)
            return f + 1e-9 * rng.standard_normal(), G

        X0 = stiefel.random_point(40, 3, seed=seed)
        plain = stiefel.ProximalLBFGS(learn=False)
        result = stiefel.minimize(noisy, X0, nonsmooth=L1(0.3), rtol=0, gtol=1e-12, method=plain)
        assert not result.success and result.gradient_norm <= 1e-4
        ended.append(result.status is Status.ROUNDING_LIMIT)
    assert sum(ended) >= 3


def test_steep_terms_are_no_dearer(monkeypatch):
    """1,139 proximal maps for ten evaluations; 219,571 if their rounding is not known."""
    maps, real = [], stiefel.RowNorms.prox

    def counted(self, V, t):
        maps.append(None)
        return real(self, V, t)

    monkeypatch.setattr(stiefel.RowNorms, "prox", counted)
    B = np.random.default_rng(0).standard_normal((20, 40)) / 6
    fun = lambda X: (-np.sum((B @ X) ** 2), -2 * B.T @ (B @ X))
    X0 = stiefel.random_point(40, 3, seed=0)
    assert stiefel.minimize(fun, X0, nonsmooth=stiefel.RowNorms(1e4)).success
    assert len(maps) <= 10000


@pytest.mark.parametrize("k", [1, 3])
def test_products_that_are_not_finite(k):
    """The method goes on without Newton's steps."""
    fun, X0 = SparsePCA(40), stiefel.random_point(40, k, seed=0)
    given = {"method": stiefel.ProximalNewton(learn=False), "hessp": lambda X, V: np.nan * V}
    result = stiefel.minimize(fun.value_and_gradient, X0, nonsmooth=L1(0.3), **given)
    assert result.success, result.message


SHAPES = {
    "matrix": ((40, 3), float),
    "vector": ((40, 1), float),
    "many columns": ((40, 32), float),
    "complex": ((40, 3), complex),
}


class InfiniteProx(L1):
    """An answer that is infinite from the twentieth one on."""

    def prox(self, V, t):
        object.__setattr__(self, "calls", getattr(self, "calls", 0) + 1)
        return super().prox(V, t) if self.calls < 20 else np.full_like(V, np.inf)


class InfiniteGradient(L1):
    def gradient(self, X):
        return np.full_like(X, np.inf)


class InfiniteDerivative(L1):
    def prox_derivative(self, V, t):
        return lambda W: np.full_like(W, np.inf)


@pytest.fixture
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.usefixtures("no_warnings")
@pytest.mark.parametrize("where", SHAPES)
@pytest.mark.parametrize("kind", [InfiniteProx, InfiniteGradient, InfiniteDerivative])
def test_infinite_answers_are_no_warnings(kind, where):
    (n, k), dtype = SHAPES[where]
    fun, X0 = SparsePCA(n, dtype=dtype), stiefel.random_point(n, k, seed=0, dtype=dtype)
    result = stiefel.minimize(fun.value_and_gradient, X0, nonsmooth=kind(0.3), maxfun=40)
    assert not result.success and np.isfinite(result.fun)
    assert result.status is not Status.CONVERGED


@pytest.mark.usefixtures("no_warnings")
@pytest.mark.parametrize("where", SHAPES)
@pytest.mark.parametrize("number", [np.inf, -np.inf, 1e308])
def test_infinite_products_are_no_warnings(number, where):
    (n, k), dtype = SHAPES[where]
    fun, X0 = SparsePCA(n, dtype=dtype), stiefel.random_point(n, k, seed=0, dtype=dtype)
    given = {"method": stiefel.ProximalNewton(learn=False, patience=0)}
    given["hessp"] = lambda X, V: np.full_like(V, number)
    result = stiefel.minimize(
        fun.value_and_gradient, X0, nonsmooth=L1(0.3), maxfun=60, rtol=1e-3, **given
    )
    assert np.isfinite(result.fun)
    assert result.success or result.status is Status.MAX_EVALUATIONS


@pytest.mark.parametrize("maxfun", [1, 2, 3, 5])
@pytest.mark.parametrize("method", sorted(PROXIMAL_METHODS))
def test_few_evaluations_are_enough_to_say_so(method, maxfun):
    fun, X0 = SparsePCA(40), stiefel.random_point(40, 3, seed=0)
    given = {"method": method, "maxfun": maxfun, "hessp": fun.hessp}
    result = stiefel.minimize(fun.value_and_gradient, X0, nonsmooth=L1(0.3), **given)
    assert result.status is Status.MAX_EVALUATIONS and result.nfev == fun.values <= maxfun
    assert np.isfinite(result.gradient_norm) and result.gradient_norm > 0


def test_a_proximal_method_needs_a_term():
    X0 = stiefel.random_point(40, 3, seed=0)
    with pytest.raises(ValueError, match="is for functions with a nonsmooth term: pass nonsmooth="):
        stiefel.minimize(SparsePCA(40), X0, method="proximal-lbfgs")


@pytest.mark.usefixtures("no_warnings")
@pytest.mark.parametrize("where", SHAPES)
@pytest.mark.parametrize("term", [L1, stiefel.RowNorms])
def test_huge_weights(term, where):
    """f and h are scaled by the larger of the two; infinite sums are called so."""
    (n, k), dtype = SHAPES[where]
    fun, X0 = SparsePCA(n, dtype=dtype), stiefel.random_point(n, k, seed=0, dtype=dtype)
    result = stiefel.minimize(fun.value_and_gradient, X0, nonsmooth=term(1e200), maxfun=300)
    assert result.success, result.message
    assert 0.5e200 <= result.fun <= 40e200
    result = stiefel.minimize(fun.value_and_gradient, X0, nonsmooth=term(1.5e308), maxfun=300)
    assert result.status is Status.NOT_FINITE


def test_warnings_of_the_function_are_the_users():
    fun, calls = SparsePCA(40), []

    def warning(X):
        calls.append(None)
        if len(calls) == 5:
            np.log(np.array([-1.0]))
        return fun.value_and_gradient(X)

    X0 = stiefel.random_point(40, 3, seed=0)
    with pytest.warns(RuntimeWarning, match="invalid value encountered in log"):
        assert stiefel.minimize(warning, X0, nonsmooth=L1(0.3)).success


@pytest.mark.parametrize(
    ("method", "answer", "error", "sentence"),
    [
        ("value", 1j, TypeError, "the value of nonsmooth is 1j; expected a real number"),
        ("value", "much", TypeError, "the value of nonsmooth is 'much'; expected a real number"),
        ("gradient", np.zeros(3), ValueError, r"gradient of nonsmooth returned the shape \(3,\)"),
        ("support", np.ones(3), ValueError, r"support of nonsmooth returned the shape \(3,\)"),
        ("hessian", np.zeros((2, 2)), ValueError, r"the shape \(2, 2\); expected \(40, 3\)"),
        ("stop_at_kinks", 0.0, ValueError, r"stop_at_kinks of nonsmooth returned the shape \(\)"),
        ("prox_derivative", lambda W: W[0], ValueError, r"prox_derivative .* the shape \(3,\)"),
    ],
)
def test_answers_of_another_form_are_told(method, answer, error, sentence):
    kind = type("Mine", (L1,), {method: lambda self, *arguments: answer})
    X0 = stiefel.random_point(40, 3, seed=0)
    with pytest.raises(error, match=sentence):
        stiefel.minimize(SparsePCA(40), X0, nonsmooth=kind(0.3))
