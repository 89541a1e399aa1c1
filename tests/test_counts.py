"""``nfev`` and ``njev`` equal counters inside the user's function: every solver, every way."""

import numpy as np
import pytest

import stiefel
from cases import PROBLEMS, SOLVERS
from runs import Counted
from stiefel import Status

BROCKETT = next(p for p in PROBLEMS if p.name == "brockett")


def by_pair(c):
    return {"fun": c.pair}


def by_pair_and_true(c):
    return {"fun": c.pair, "jac": True}


def by_triple(c):
    return {"fun": c.triple}


def by_jac(c):
    return {"fun": c.value, "jac": c.gradient}


def by_object(c):
    return {"fun": c}


class PairOnly:
    """An object that has no cheaper way to a value."""

    def __init__(self, counted):
        self.value_and_gradient = counted.value_and_gradient


def by_object_without_value(c):
    return {"fun": PairOnly(c)}


WAYS = (by_pair, by_pair_and_true, by_triple, by_jac, by_object, by_object_without_value)


@pytest.mark.parametrize("way", WAYS, ids=lambda w: w.__name__)
@pytest.mark.parametrize("method", SOLVERS)
@pytest.mark.parametrize("limit", [{}, {"maxfun": 7}, {"maxiter": 3}], ids=str)
def test_counts(method, way, limit):
    counted = Counted(BROCKETT.objective)
    call = way(counted)
    result = stiefel.minimize(x0=BROCKETT.start, method=method, rtol=1e-5, **call, **limit)
    assert result.success or limit
    assert (result.nfev, result.njev) == (counted.values, counted.gradients)
    assert result.history["nfev"][-1] <= result.nfev
    assert np.all(np.diff(result.history["nfev"]) >= 0)
    if "maxfun" in limit:
        assert result.status is Status.MAX_EVALUATIONS
        assert result.nfev <= 7
    if "maxiter" in limit:
        assert result.status is Status.MAX_ITERATIONS
        assert result.nit == 3


@pytest.mark.parametrize("method", SOLVERS)
def test_values_and_gradients_apart_cost_less_than_pairs(method):
    """Trials of a line search pay for no gradients where the function lets them."""
    together, apart = Counted(BROCKETT.objective), Counted(BROCKETT.objective)
    stiefel.minimize(together.pair, BROCKETT.start, method=method)
    stiefel.minimize(apart, BROCKETT.start, method=method)
    assert apart.gradients <= together.gradients


@pytest.mark.parametrize("method", SOLVERS)
def test_counts_with_a_callback_that_stops(method):
    counted = Counted(BROCKETT.objective)
    stop = lambda s: s.nit == 5
    result = stiefel.minimize(counted.pair, BROCKETT.start, method=method, callback=stop)
    assert result.status is Status.STOPPED_BY_CALLBACK
    assert result.nit == 5
    assert (result.nfev, result.njev) == (counted.values, counted.gradients)


@pytest.mark.parametrize("method", SOLVERS)
def test_counts_with_torch_autodiff(method):
    torch = pytest.importorskip("torch")
    weights = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    A = torch.from_numpy(np.array(BROCKETT.objective.A))
    seen = {"values": 0, "gradients": 0}

    def fun(X):
        seen["values"] += 1
        seen["gradients"] += X.requires_grad
        return torch.sum(X * (A @ X) * weights)

    X0 = torch.from_numpy(BROCKETT.start.copy())
    result = stiefel.minimize(fun, X0, method=method)
    assert result.success
    assert (result.nfev, result.njev) == (seen["values"], seen["gradients"])


@pytest.mark.parametrize("method", SOLVERS)
def test_counts_with_jax_autodiff(method):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    weights = jax.numpy.asarray([1.0, 2.0, 3.0])
    A = jax.numpy.asarray(BROCKETT.objective.A)
    seen = []

    def fun(X):
        jax.debug.callback(lambda: seen.append(1))  # runs whenever the function does
        return jax.numpy.sum(X * (A @ X) * weights)

    result = stiefel.minimize(fun, jax.numpy.asarray(BROCKETT.start), method=method, rtol=0.02)
    jax.effects_barrier()
    assert result.success
    assert result.nfev == len(seen)
    assert 0 < result.njev <= result.nfev


def test_counts_of_a_tree():
    counted = {"values": 0}

    def fun(point):
        counted["values"] += 1
        f, G = BROCKETT.objective.value_and_gradient(point["X"])
        b = point["b"]
        return f + float(b @ b), {"X": G, "b": 2 * b}

    x0 = {"X": BROCKETT.start, "b": np.ones(3)}
    manifold = {"X": stiefel.Stiefel(), "b": stiefel.Euclidean()}
    result = stiefel.minimize(fun, x0, manifold=manifold)
    assert result.success
    assert result.nfev == result.njev == counted["values"]
