"""Terms, functions and products that go wrong, and the rounding of f + h: how runs end."""

from __future__ import annotations

import numpy as np
import pytest

import stiefel
from stiefel import L1, Status
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
