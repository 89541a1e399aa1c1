"""What the proximal methods promise: stationarity, zeros, descent, counts, truth."""

from __future__ import annotations

import numpy as np
import pytest

import stiefel
from stiefel import L1, RowNorms, Status
from stiefel.backends.arrays import kernels_for

METHODS = ("proximal-lbfgs", "proximal-newton", "proximal-gradient", "accelerated-proximal")
FAST = METHODS[:2]
PLAIN = {
    "plain-lbfgs": stiefel.ProximalLBFGS(learn=False),
    "plain-newton": stiefel.ProximalNewton(learn=False),
}
BUDGET = {"proximal-lbfgs": 20, "proximal-newton": 20, "plain-lbfgs": 125, "plain-newton": 80}


class SparsePCA:
    """f = −‖BX‖²/2 with its Hessian; counts its calls."""

    def __init__(self, n, m=30, seed=0, dtype=float):
        rng = np.random.default_rng(seed)
        B = rng.standard_normal((m, n))
        if dtype is complex:
            B = B + 1j * rng.standard_normal((m, n))
        self.B = B / np.linalg.norm(B, axis=0)
        self.values = self.gradients = self.products = 0

    def value_and_gradient(self, X):
        self.values += 1
        self.gradients += 1
        BX = self.B @ X
        return -0.5 * np.linalg.norm(BX) ** 2, -self.B.conj().T @ BX

    def value(self, X):
        self.values += 1
        return -0.5 * np.linalg.norm(self.B @ X) ** 2

    def hessp(self, X, V):
        self.products += 1
        return -self.B.conj().T @ (self.B @ V)


def solve(n=60, k=3, mu=0.3, method="auto", seed=0, term=L1, **given):
    fun = SparsePCA(n, seed=seed)
    X0 = stiefel.random_point(n, k, seed=seed + 1)
    given = {"rtol": 0, "gtol": 1e-7} | given
    return fun, stiefel.minimize(fun, X0, nonsmooth=term(mu), method=method, **given)


def chi(fun, X, term, t):
    """χ_t by the package's own step, with another t."""
    from stiefel.nonsmooth.space import Sum, space_of
    from stiefel.nonsmooth.subproblem import proximal_step

    h = Sum(space_of(stiefel.Stiefel(), X), (term,))
    G = -fun.B.conj().T @ (fun.B @ X)
    step = proximal_step(h, h.space.flat(X), h.space.flat(G), t, np.zeros(h.space.duals.size))
    return step.length / t


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seed", [0, 1])
def test_kkt_conditions(method, seed):
    """G + ζ = 2XΛ with |ζ| ≤ μ, ζ = μ sign X on the support; exact zeros; XᵀX = I."""
    mu = 0.3
    fun, result = solve(mu=mu, method=method, seed=seed)
    X = result.x
    assert result.status is Status.CONVERGED
    assert result.gradient_norm <= 1e-7
    G = fun.value_and_gradient(X)[1]
    zeta = 2 * X @ result.multiplier - G
    assert np.abs(zeta).max() <= mu + 1e-6
    np.testing.assert_allclose(zeta[X != 0], mu * np.sign(X[X != 0]), atol=1e-6)
    np.testing.assert_allclose(result.multiplier, result.multiplier.T, atol=1e-14)
    assert np.array_equal(result.support, X != 0)
    assert 0.1 < np.mean(X == 0) < 0.9
    assert np.linalg.norm(X.T @ X - np.eye(3)) <= 1e-14
    assert result.fun == pytest.approx(result.smooth + result.nonsmooth, abs=1e-12)
    assert result.nonsmooth == pytest.approx(mu * np.abs(X).sum())


@pytest.mark.parametrize("method", METHODS)
def test_counts_are_the_users(method):
    fun, result = solve(method=method)
    assert (result.nfev, result.njev, result.nhev) == (fun.values, fun.gradients, fun.products)


@pytest.mark.parametrize("method", METHODS[:3])
def test_F_never_rises(method):
    _, result = solve(method=method)
    values = result.history["value"]
    assert np.all(np.diff(values) <= 1e-13 * np.abs(values).max())


@pytest.mark.parametrize("method", BUDGET)
def test_evaluations(method):
    """A budget over seeds: a wrong multiplier in y, or σ from one quotient, needs twice as many."""
    spent = [solve(n=200, k=4, method=PLAIN.get(method, method), seed=s)[1] for s in range(6)]
    assert all(r.success for r in spent)
    assert np.median([r.nfev for r in spent]) <= BUDGET[method]
    assert np.median([r.nhev for r in spent]) <= 300


def test_newton_is_quadratic_at_the_end():
    _, result = solve(method=PLAIN["plain-newton"], gtol=1e-11, n=200, k=4)
    norms = result.history["gradient_norm"]
    assert result.success
    assert norms[-1] < 1e-2 * norms[-2]


def test_chi_does_not_depend_on_t_at_solutions():
    fun, result = solve(gtol=1e-9)
    for t in (0.1, 1.0, 10.0):
        assert chi(fun, result.x, L1(0.3), t) <= 1e-7
    start = stiefel.random_point(60, 3, seed=5)
    assert chi(fun, start, L1(0.3), 1.0) > 1e-2


@pytest.mark.parametrize("method", FAST)
def test_without_weight_it_is_the_smooth_problem(method):
    fun, result = solve(mu=0.0, method=method)
    smooth = stiefel.minimize(fun, stiefel.random_point(60, 3, seed=1), rtol=0, gtol=1e-7)
    assert result.success
    assert result.fun == pytest.approx(smooth.fun, rel=1e-10)
    G = fun.value_and_gradient(result.x)[1]
    M = result.x.T @ G
    tangent = G - 0.5 * result.x @ (M + M.T)
    assert result.gradient_norm == pytest.approx(np.linalg.norm(tangent), rel=0.05, abs=1e-12)
    assert result.support.all()


def test_permutations_and_signs_of_the_start():
    """Columns permuted or negated give the same answer, permuted or negated."""
    fun = SparsePCA(40)
    X0 = stiefel.random_point(40, 3, seed=2)
    D = np.array([[0, -1, 0], [1, 0, 0], [0, 0, -1.0]])
    one, two = (
        stiefel.minimize(fun, X, nonsmooth=L1(0.3), rtol=0, gtol=1e-9) for X in (X0, X0 @ D)
    )
    np.testing.assert_allclose(one.x @ D, two.x, atol=1e-6)


def test_rows_vanish_together():
    fun, result = solve(term=RowNorms, mu=0.5)
    X, mu = result.x, 0.5
    zero = np.all(X == 0, axis=1)
    assert result.success
    assert 0.05 < zero.mean() < 0.95
    assert np.array_equal(zero, np.any(X == 0, axis=1))
    zeta = 2 * X @ result.multiplier - fun.value_and_gradient(X)[1]
    assert np.linalg.norm(zeta, axis=1).max() <= mu + 1e-6
    norms = np.linalg.norm(X[~zero], axis=1, keepdims=True)
    np.testing.assert_allclose(zeta[~zero], mu * X[~zero] / norms, atol=1e-6)


@pytest.mark.parametrize("method", FAST)
@pytest.mark.parametrize("term", [L1(0.3), RowNorms(0.5)], ids=repr)
def test_complex(method, term):
    fun = SparsePCA(40, dtype=complex)
    X0 = stiefel.random_point(40, 2, seed=0, dtype=complex)
    result = stiefel.minimize(fun, X0, nonsmooth=term, method=method, rtol=0, gtol=1e-7)
    X, L = result.x, result.multiplier
    assert result.success, result.message
    np.testing.assert_allclose(L, L.conj().T, atol=1e-12)
    zeta = 2 * X @ L - fun.value_and_gradient(X)[1]
    np.testing.assert_allclose(term.prox(X + zeta, 1.0), X, atol=1e-6)
    assert np.any(X == 0)


def test_unit_vectors_and_oblique_matrices():
    fun = SparsePCA(50)
    vector = lambda x: (fun.value(x[:, None]), fun.value_and_gradient(x[:, None])[1][:, 0])
    x0 = stiefel.random_point(50, seed=0, manifold=stiefel.Sphere())
    one = stiefel.minimize(
        vector, x0, manifold=stiefel.Sphere(), nonsmooth=L1(0.2), gtol=1e-8, rtol=0
    )
    column = stiefel.minimize(fun, x0[:, None], nonsmooth=L1(0.2), gtol=1e-8, rtol=0)
    assert one.success
    assert column.success
    np.testing.assert_allclose(one.x, column.x[:, 0], atol=1e-7)

    def rows(X):  # four vectors, each for itself
        pairs = [vector(x) for x in X]
        return sum(f for f, _ in pairs), np.stack([g for _, g in pairs])

    starts = stiefel.random_point(4, 50, seed=3, manifold=stiefel.Sphere())
    stack = stiefel.minimize(
        rows, starts, manifold=stiefel.Sphere(), nonsmooth=L1(0.2), gtol=1e-8, rtol=0
    )
    assert stack.success
    assert stack.multiplier.shape == (4, 1, 1)
    for x in stack.x:
        alone = stiefel.minimize(
            vector, x, manifold=stiefel.Sphere(), nonsmooth=L1(0.2), gtol=1e-7, rtol=0
        )
        np.testing.assert_allclose(alone.x, x, atol=1e-6)


def test_a_tree_with_free_parameters():
    """Sparse X and sparse b in one problem; the term of b is scipy-checkable: soft thresholds."""
    fun = SparsePCA(40)
    target = np.linspace(-1, 1, 7)

    def both(p):
        f, G = fun.value_and_gradient(p["X"])
        r = p["b"] - target
        return f + 0.5 * r @ r, {"X": G, "b": r}

    x0 = {"X": stiefel.random_point(40, 2, seed=0), "b": np.zeros(7)}
    manifold = {"X": stiefel.Stiefel(), "b": stiefel.Euclidean()}
    terms = {"X": L1(0.3), "b": L1(0.5)}
    result = stiefel.minimize(both, x0, manifold=manifold, nonsmooth=terms, rtol=0, gtol=1e-8)
    assert result.success
    np.testing.assert_allclose(result.x["b"], L1(0.5).prox(target, 1.0), atol=1e-7)
    alone = stiefel.minimize(fun, x0["X"], nonsmooth=L1(0.3), rtol=0, gtol=1e-8)
    assert result.fun - 0.5 * np.sum((result.x["b"] - target) ** 2) - 0.5 * np.abs(
        result.x["b"]
    ).sum() == pytest.approx(alone.fun, abs=0.3)
    assert result.multiplier["b"] is None
    some = stiefel.minimize(
        both, x0, manifold=manifold, nonsmooth={"X": L1(0.3), "b": None}, rtol=0, gtol=1e-8
    )
    np.testing.assert_allclose(some.x["b"], target, atol=1e-7)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_other_libraries(library):
    module = pytest.importorskip(library)
    fun = SparsePCA(40)
    X0 = stiefel.random_point(40, 2, seed=0)
    if library == "torch":
        B, start = module.from_numpy(fun.B), module.from_numpy(X0.copy())
        value = lambda X: -0.5 * module.sum((B @ X) ** 2)
    else:
        module.config.update("jax_enable_x64", True)
        B, start = module.numpy.asarray(fun.B), module.numpy.asarray(X0)
        value = lambda X: -0.5 * module.numpy.sum((B @ X) ** 2)
    ours = stiefel.minimize(
        fun.value_and_gradient, X0, nonsmooth=L1(0.3), rtol=0, gtol=1e-8, method="proximal-lbfgs"
    )
    for method in FAST:
        theirs = stiefel.minimize(value, start, nonsmooth=L1(0.3), rtol=0, gtol=1e-8, method=method)
        assert theirs.success
        assert type(theirs.x) is type(start)
        assert theirs.fun == pytest.approx(ours.fun, rel=1e-9)


def test_single_precision():
    fun = SparsePCA(40)
    fun.B = fun.B.astype(np.float32)
    X0 = stiefel.random_point(40, 2, seed=0, dtype=np.float32)
    result = stiefel.minimize(fun.value_and_gradient, X0, nonsmooth=L1(0.3))
    assert result.success, result.message
    assert result.x.dtype == np.float32
    assert np.any(result.x == 0)


@pytest.mark.parametrize("way", ["kernels", "conjugate gradients"])
def test_many_columns(way, monkeypatch):
    if way != "kernels":
        monkeypatch.setattr(kernels_for(np.zeros(1)), "compiled", None)
    fun, result = solve(n=80, k=16, mu=0.1, gtol=1e-6)
    assert result.success
    zeta = 2 * result.x @ result.multiplier - fun.value_and_gradient(result.x)[1]
    np.testing.assert_allclose(L1(0.1).prox(result.x + zeta, 1.0), result.x, atol=1e-5)
    assert np.any(result.x == 0)


@pytest.mark.parametrize("method", FAST)
def test_stopped_and_resumed_bit_for_bit(method, tmp_path):
    _, whole = solve(method=method)
    path = tmp_path / "run.npz"
    solve(method=method, checkpoint=path, maxiter=7)
    _, resumed = solve(method=method, checkpoint=path, resume=True)
    assert np.array_equal(whole.x, resumed.x)
    assert (whole.nit, whole.nfev, whole.nhev) == (resumed.nit, resumed.nfev, resumed.nhev)


def test_a_checkpoint_of_another_term_is_refused(tmp_path):
    path = tmp_path / "run.npz"
    solve(checkpoint=path, maxiter=3)
    with pytest.raises(Exception, match="another nonsmooth"):
        solve(mu=0.31, checkpoint=path, resume=True)


def test_limits_and_callbacks():
    _, result = solve(maxfun=9)
    assert result.status is Status.MAX_EVALUATIONS
    assert result.nfev <= 9
    _, result = solve(maxiter=4)
    assert result.status is Status.MAX_ITERATIONS
    _, result = solve(callback=lambda s: s.nit == 3)
    assert result.status is Status.STOPPED_BY_CALLBACK
    assert result.nit == 3


# -- hostile terms and functions ------------------------------------------------------------------


class Inconsistent(L1):
    """A proximal map that does not belong to the value."""

    def prox(self, V, t):
        return 0.5 * V


class Broken(L1):
    def prox(self, V, t):
        return np.full_like(V, np.nan)


class Infinite(L1):
    def value(self, X):
        return np.inf


class NotANumber(L1):
    def value(self, X):
        return np.nan


class OtherWeight(L1):
    """The proximal map of a larger weight: it has stationary points of its own."""

    def prox(self, V, t):
        return L1(1.3 * self.mu).prox(V, t)


class Negative(L1):
    """−h, which is concave, with the proximal map of h."""

    def value(self, X):
        return -super().value(X)


class BreaksLater(L1):
    """Infinite after eight values."""

    def value(self, X):
        object.__setattr__(self, "calls", getattr(self, "calls", 0) + 1)
        return super().value(X) if self.calls <= 8 else np.inf


class Raises(L1):
    def prox(self, V, t):
        raise KeyError("mine")


class WrongShape(L1):
    def prox(self, V, t):
        return V[:3]


HOSTILE = (Inconsistent, Broken, Infinite, NotANumber, OtherWeight, Negative, BreaksLater)


@pytest.mark.parametrize("method", METHODS)
def test_values_that_are_no_numbers_are_called_so(method):
    fun, X0 = SparsePCA(30), stiefel.random_point(30, 2, seed=0)
    for term in (NotANumber(0.3), Infinite(0.3)):
        result = stiefel.minimize(fun, X0, nonsmooth=term, method=method, maxfun=300)
        assert result.status is Status.NOT_FINITE
        assert result.nit == 0


def test_a_term_that_raises_or_has_another_shape():
    fun, X0 = SparsePCA(30), stiefel.random_point(30, 2, seed=0)
    with pytest.raises(KeyError, match="mine"):
        stiefel.minimize(fun, X0, nonsmooth=Raises(0.3))
    with pytest.raises(ValueError, match=r"prox of nonsmooth returned the shape \(3, 2\)"):
        stiefel.minimize(fun, X0, nonsmooth=WrongShape(0.3))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_terms_end_truthfully(method, kind):
    term = kind(0.3)
    result = stiefel.minimize(
        SparsePCA(30),
        stiefel.random_point(30, 2, seed=0),
        nonsmooth=term,
        method=method,
        maxfun=300,
    )
    assert not result.success
    assert result.status is not Status.CONVERGED


@pytest.mark.parametrize("method", METHODS)
def test_a_function_that_breaks(method):
    fun = SparsePCA(30)

    def breaking(X):
        f, G = fun.value_and_gradient(X)
        return (f, G) if fun.values < 6 else (np.nan, np.nan * G)

    X0 = stiefel.random_point(30, 2, seed=0)
    hessp = fun.hessp if method == "proximal-newton" else None
    result = stiefel.minimize(
        breaking, X0, nonsmooth=L1(0.3), method=method, hessp=hessp, maxfun=200
    )
    assert not result.success
    assert np.isfinite(result.fun)


@pytest.mark.parametrize("scale", [1e-150, 1e-8, 1e8, 1e150])
def test_scales(scale):
    """f and h scaled together have the same answer."""
    fun = SparsePCA(60)
    X0 = stiefel.random_point(60, 3, seed=1)
    scaled = lambda X: tuple(scale * v for v in fun.value_and_gradient(X))
    one = stiefel.minimize(fun.value_and_gradient, X0, nonsmooth=L1(0.3), rtol=1e-8)
    other = stiefel.minimize(scaled, X0, nonsmooth=L1(0.3 * scale), rtol=1e-8)
    assert other.success
    assert other.fun == pytest.approx(scale * one.fun, rel=1e-9)
    assert other.gradient_norm < 1e-6 * scale


def test_misuse():
    fun, X0 = SparsePCA(20), stiefel.random_point(20, 2, seed=0)
    call = lambda **given: stiefel.minimize(fun, X0, **given)
    with pytest.raises(TypeError, match="without value"):
        call(nonsmooth=0.5)
    with pytest.raises(ValueError, match="weights of shape"):
        call(nonsmooth=L1(np.ones(3)))
    with pytest.raises(ValueError, match="method is 'lbfgs'"):
        call(nonsmooth=L1(0.5), method="lbfgs")
    with pytest.raises(ValueError, match="precond"):
        call(nonsmooth=L1(0.5), precond=lambda X, G: G)
    with pytest.raises(ValueError, match="Grassmann"):
        call(nonsmooth=L1(0.5), manifold=stiefel.Grassmann())
    with pytest.raises(ValueError, match="XᴴBX"):
        call(nonsmooth=L1(0.5), manifold=stiefel.Stiefel(B=np.eye(20)))
    with pytest.raises(ValueError, match="needs products"):
        stiefel.minimize(fun.value_and_gradient, X0, nonsmooth=L1(0.5), method="proximal-newton")
    with pytest.raises(ValueError, match="did you mean 'memory'"):
        call(nonsmooth=L1(0.5), method="proximal-lbfgs", options={"memery": 3})
    with pytest.raises(ValueError, match="not finite"):
        L1(-1.0)
    with pytest.raises(TypeError, match="expected a number"):
        RowNorms("much")
