"""The solvers that users compare with: known answers, SciPy on a flat problem, counts, rounding."""

import numpy as np
import pytest
import scipy.optimize

import stiefel
from cases import JAX, LIBRARIES, PROBLEMS, TORCH, to_numpy
from runs import problem_of
from stiefel import LBFGS, ConjugateGradient, Euclidean, Status, Stiefel, TrustRegion
from stiefel.objectives import Brockett, Procrustes
from stiefel.solvers.conjugate_gradient import BETA_RULES

METHODS = ("lbfgs", "cg", "trust-region")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_known_minimum_to_twelve_digits(method, problem):
    options = {"manifold": problem.manifold, "method": method, "rtol": 1e-12}
    result = stiefel.minimize(problem.objective, problem.start, **options)
    scale = max(1.0, abs(problem.minimum))
    assert result.success or result.status is Status.ROUNDING_LIMIT, result.message
    assert abs(result.fun - problem.minimum) <= 1e-12 * scale
    assert result.gradient_norm <= 1e-10 * result.history.as_array()["gradient_norm"][0]


@pytest.mark.parametrize("rule", BETA_RULES)
def test_every_rule_of_conjugate_gradients(rule):
    objective = Brockett.linear(60, 4)
    x0 = Stiefel().random(60, 4, seed=1)
    result = stiefel.minimize(objective, x0, method="cg", options={"rule": rule}, rtol=1e-10)
    assert result.success, result.message
    assert result.fun == pytest.approx(objective.minimum, rel=1e-13)
    # Steepest descent with the same search: what a wrong β would be worth.
    assert result.nit < 1000


# -- flat problems -------------------------------------------------------------------------------


def rosenbrock(x):
    return scipy.optimize.rosen(x), scipy.optimize.rosen_der(x)


def test_lbfgs_keeps_up_with_scipy_on_a_flat_problem():
    x0 = np.tile([-1.2, 1.0], 10)
    ours = stiefel.minimize(rosenbrock, x0, manifold=Euclidean(), method="lbfgs", rtol=1e-10)
    options = {"maxcor": 10, "ftol": 0.0, "gtol": 1e-10 * np.linalg.norm(rosenbrock(x0)[1])}
    theirs = scipy.optimize.minimize(rosenbrock, x0, jac=True, method="L-BFGS-B", options=options)
    assert ours.success and theirs.success
    assert np.allclose(ours.x, theirs.x, atol=1e-8) and np.allclose(ours.x, 1.0, atol=1e-8)
    assert ours.nfev <= 1.3 * theirs.nfev


@pytest.mark.parametrize("rule", BETA_RULES)
def test_conjugate_gradients_end_a_quadratic_in_as_many_steps_as_dimensions(rule):
    H, b = np.diag(np.arange(1.0, 9.0)), np.ones(8)
    result = stiefel.minimize(
        lambda x: (0.5 * x @ H @ x - b @ x, H @ x - b),
        np.zeros(8),
        manifold=Euclidean(),
        method=ConjugateGradient(rule=rule, curvature=1e-3),
        rtol=1e-6,
    )
    assert result.success and result.nit <= 10


def test_trust_region_solves_a_quadratic_in_one_step():
    H = np.diag(np.arange(1.0, 9.0))
    result = stiefel.minimize(
        lambda x: (0.5 * x @ H @ x - x.sum(), H @ x - 1.0),
        np.zeros(8),
        hessp=lambda x, v: H @ v,
        manifold=Euclidean(),
        method=TrustRegion(initial_radius=10.0, residual_factor=1e-12, residual_exponent=20.0),
        rtol=1e-3,
    )
    assert result.success and result.nit <= 2 and result.nhev <= 18


def test_lbfgs_direction_is_that_of_dense_bfgs():
    """The Gram form of the two-loop recursion against the n×n update formula."""
    solver = LBFGS(memory=4)
    problem, x = problem_of(rosenbrock, np.tile([-1.2, 1.0], 4), Euclidean())
    s = solver.init(problem, x)
    for _ in range(15):
        before = s
        rows, (S, Y) = list(s.pairs.rows), np.split(s.pairs.S.copy(), 2)
        s = solver.step(problem, s)
        # The blocks are rings, and yet the state before is as good as it was.
        assert np.array_equal(before.pairs.S[:5][rows], S[rows])
        assert np.array_equal(before.pairs.S[5:][rows], Y[rows])
        assert 1 <= s.pairs.in_use <= 4
        H = s.gamma * np.eye(8)
        rows = list(s.pairs.rows)
        for p, y in zip(s.pairs.S[:5][rows], s.pairs.S[5:][rows], strict=True):
            V = np.eye(8) - np.outer(y, p) / (p @ y)
            H = V.T @ H @ V + np.outer(p, p) / (p @ y)
        g = scipy.optimize.rosen_der(s.x)
        assert np.allclose(s.aim.direction, -H @ g, rtol=1e-9, atol=1e-12 * np.linalg.norm(H @ g))


# -- counting ------------------------------------------------------------------------------------


class Counting:
    """Pairs only, with a Hessian product; counts its calls."""

    def __init__(self, objective):
        self.objective, self.calls, self.products = objective, 0, 0

    def __call__(self, X):
        self.calls += 1
        return self.objective.value_and_gradient(X)

    def hessp(self, X, V):
        self.products += 1
        return self.objective.hessp(X, V)


@pytest.mark.parametrize("method", METHODS)
def test_counts_are_those_of_the_users_function(method):
    fun = Counting(Brockett.linear(40, 3))
    x0 = Stiefel().random(40, 3, seed=2)
    result = stiefel.minimize(fun, x0, method=method, hessp=fun.hessp, rtol=1e-9)
    assert (result.nfev, result.njev) == (fun.calls, fun.calls)
    assert result.nhev == fun.products
    assert (result.nhev > 0) == (method == "trust-region")


def test_an_iteration_of_lbfgs_costs_one_evaluation():
    x0 = Stiefel().random(100, 4, seed=0)
    result = stiefel.minimize(Brockett.table(100, 4), x0, method="lbfgs", rtol=1e-9)
    assert result.success
    assert result.nit < result.nfev <= 1.05 * result.nit + 10
    assert result.nfev <= 1200  # 1002; plain gradient descent needs a hundred times as many


# -- rounding ------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_an_impossible_tolerance_ends_at_rounding(method):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((20, 20))
    objective = Brockett(A + A.T, np.arange(1.0, 4.0))
    x0 = Stiefel().random(20, 3, seed=1)
    result = stiefel.minimize(objective, x0, method=method, rtol=1e-30, maxiter=20_000)
    assert result.status is Status.ROUNDING_LIMIT, result.message
    assert result.gradient_norm < 1e-13 * result.history.as_array()["gradient_norm"][0] * 100
    assert result.nit < 2000


@pytest.mark.parametrize("method", METHODS)
def test_a_large_constant_in_f_does_not_stop_the_gradient(method):
    """f + 1e6 has lost half its digits: values cannot see the last five orders of the gradient."""
    objective = Brockett.linear(30, 3)

    def shifted(X):
        f, G = objective.value_and_gradient(X)
        return f + 1e6, G

    x0 = Stiefel().random(30, 3, seed=1)
    result = stiefel.minimize(shifted, x0, hessp=objective.hessp, method=method, rtol=1e-12)
    assert result.success, result.message


@pytest.mark.parametrize("method", METHODS)
def test_scaling_f_by_a_power_of_two_changes_nothing(method):
    objective, x0 = Brockett.linear(30, 3), Stiefel().random(30, 3, seed=1)

    def run(c):
        def fun(X):
            f, G = objective.value_and_gradient(X)
            return c * f, c * G

        def hessp(X, V):
            return c * objective.hessp(X, V)

        return stiefel.minimize(fun, x0, hessp=hessp, method=method, rtol=1e-9)

    plain, scaled = run(1.0), run(2.0**40)
    assert np.array_equal(plain.x, scaled.x) and plain.nfev == scaled.nfev


@pytest.mark.parametrize("method", METHODS)
def test_extreme_functions_are_rescaled_with_their_hessian(method):
    objective, x0 = Brockett.linear(20, 2), Stiefel().random(20, 2, seed=1)
    c = 1e-200

    def fun(X):
        f, G = objective.value_and_gradient(X)
        return c * f, c * G

    def hessp(X, V):
        return c * objective.hessp(X, V)

    result = stiefel.minimize(fun, x0, hessp=hessp, method=method, rtol=1e-9)
    assert result.success, result.message
    assert result.fun / c == pytest.approx(objective.minimum, rel=1e-12)


# -- hostile functions ---------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_long_steps_that_are_not_finite_are_shortened(method):
    objective = Procrustes(np.eye(6), np.eye(6)[:, :2])
    x0 = stiefel.nearest(np.eye(6)[:, :2] + 0.3 * np.random.default_rng(0).standard_normal((6, 2)))
    allowed = np.linalg.norm(x0 - np.eye(6)[:, :2]) * 1.01

    def fun(X):
        if np.linalg.norm(X - np.eye(6)[:, :2]) > allowed:
            return np.nan, np.full_like(X, np.nan)
        return objective.value_and_gradient(X)

    result = stiefel.minimize(fun, x0, method=method, rtol=1e-9)
    assert result.success, result.message
    assert np.allclose(result.x, np.eye(6)[:, :2], atol=1e-7)


@pytest.mark.parametrize("method", METHODS)
def test_a_wrong_gradient_is_found_out(method):
    objective = Brockett.linear(20, 2)

    def fun(X):
        f, G = objective.value_and_gradient(X)
        return f, -G

    x0 = Stiefel().random(20, 2, seed=1)
    result = stiefel.minimize(fun, x0, method=method, rtol=1e-9, maxiter=500)
    assert not result.success
    assert result.nfev < 2000


# -- array libraries, structures, preconditioners ------------------------------------------------


def matrix_problem(library, n=25, k=3):
    """A quadratic that every array library can compute."""
    A = library.asarray(np.diag(np.linspace(1.0, 4.0, n)))
    w = library.asarray(np.arange(1.0, k + 1))

    def gradient(X):
        return (A @ X) * w

    def fun(X):
        G = gradient(X)
        return 0.5 * float(np.sum(to_numpy(X) * to_numpy(G))), G

    return fun


@pytest.mark.parametrize("library", LIBRARIES, ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_every_array_library(method, library):
    x0 = library.asarray(Stiefel().random(25, 3, seed=4))
    result = stiefel.minimize(matrix_problem(library), x0, jac=True, method=method, rtol=1e-9)
    assert result.success, result.message
    assert type(result.x) is type(x0)
    # Weights 1, 2, 3 against the three smallest of linspace(1, 4, 25), largest weight first.
    expected = 0.5 * (3 * 1.0 + 2 * 1.125 + 1 * 1.25)
    assert result.fun == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("library", [TORCH, JAX], ids=str)
@pytest.mark.parametrize("dtype", [float, complex])
def test_hessian_products_by_autodiff(library, dtype):
    rng = np.random.default_rng(1)
    A = rng.standard_normal((12, 12)).astype(dtype)
    A = A + 1j * rng.standard_normal((12, 12)) if dtype is complex else A
    A = A + A.conj().T
    weights = np.arange(1.0, 3.0)
    a, w = library.asarray(A), library.asarray(weights.astype(dtype))
    objective = Brockett(A, weights)

    def fun(X):
        product = X.conj() * ((a @ X) * w)
        return (product.real if dtype is complex else product).sum()

    x0 = library.asarray(Stiefel().random(12, 2, seed=1, dtype=np.dtype(dtype)))
    result = stiefel.minimize(fun, x0, method="trust-region", rtol=1e-11)
    assert result.success and result.nhev > result.nit
    # No differences of gradients: beside the products, which run the function too, one evaluation
    # an outer iteration.
    assert result.nfev - result.nhev < 40
    assert result.fun == pytest.approx(objective.minimum, rel=1e-13)


@pytest.mark.parametrize("method", METHODS)
def test_several_matrices_with_a_free_parameter(method):
    """Two matrices of different shape and dtype and a vector, coupled."""
    rng = np.random.default_rng(2)
    A, C = np.diag(np.arange(1.0, 13.0)), rng.standard_normal(3)

    def fun(p):
        X, Z, v = p["X"], p["Z"], p["v"]
        coupling = float(v @ v)
        AX, AZ = (A @ X) * [1.0, 2.0, 3.0], A[:8, :8] @ Z
        fX, fZ = np.vdot(X, AX).real, np.vdot(Z, AZ).real
        f = fX + fZ + 0.5 * np.sum((v - C) ** 2) + 0.01 * coupling * fX
        gradient = {
            "X": (2 + 0.02 * coupling) * AX,
            "Z": 2 * AZ,
            "v": v - C + 0.02 * fX * v,
        }
        return float(f), gradient

    x0 = {
        "X": Stiefel().random(12, 3, seed=1),
        "Z": Stiefel().random(8, 2, seed=2, dtype=complex),
        "v": np.zeros(3),
    }
    manifold = {"X": Stiefel(), "Z": stiefel.Grassmann(), "v": Euclidean()}
    result = stiefel.minimize(fun, x0, manifold=manifold, method=method, rtol=1e-9)
    assert result.success, result.message
    fX = 3 * 1 + 2 * 2 + 1 * 3.0
    v = C / (1 + 0.02 * fX)
    assert np.allclose(result.x["v"], v, atol=1e-7)
    expected = fX + 3.0 + 0.5 * np.sum((v - C) ** 2) + 0.01 * (v @ v) * fX
    assert result.fun == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_a_preconditioner_saves_iterations(method):
    d = np.concatenate([[1.0, 2.0], np.geomspace(10.0, 1e5, 48)])
    objective = Brockett(d, [1.0, 2.0])
    x0 = stiefel.nearest(np.eye(50)[:, [1, 0]] + 1e-3 * np.ones((50, 2)))

    def fun(X):
        f, G = objective.value_and_gradient(X)
        return f, G, {"inverse": 1.0 / d[:, None]}

    def precond(X, G, aux):
        return aux["inverse"] * G

    def cost(result):
        return result.nhev if method == "trust-region" else result.nfev

    options = {"method": method, "rtol": 1e-9, "hessp": objective.hessp}
    plain = stiefel.minimize(fun, x0, **options)
    helped = stiefel.minimize(fun, x0, precond=precond, **options)
    assert plain.success and helped.success
    assert 3 * cost(helped) < cost(plain)


@pytest.mark.parametrize("method", METHODS)
def test_resumes_bit_for_bit(method, tmp_path):
    objective, x0 = Brockett.linear(30, 3), Stiefel().random(30, 3, seed=5)
    options = {"method": method, "rtol": 1e-10}
    whole = stiefel.minimize(objective, x0, **options)
    path = tmp_path / "run.npz"
    stiefel.minimize(objective, x0, checkpoint=path, maxiter=whole.nit // 2, **options)
    rest = stiefel.minimize(objective, x0, checkpoint=path, resume=True, **options)
    assert np.array_equal(rest.x, whole.x)
    assert (rest.nit, rest.nfev, rest.nhev) == (whole.nit, whole.nfev, whole.nhev)


@pytest.mark.parametrize(
    ("solver", "message"),
    [
        (lambda: LBFGS(memory=0), "LBFGS.memory is 0; expected an integer ≥ 1"),
        (lambda: LBFGS(curvature=1e-5), "LBFGS.curvature"),
        (lambda: ConjugateGradient(rule="fletcher"), "expected one of 'hager-zhang'"),
        (lambda: TrustRegion(initial_radius=-1.0), "TrustRegion.initial_radius is -1.0"),
    ],
)
def test_parameters_are_checked(solver, message):
    with pytest.raises(ValueError, match=message):
        solver()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "field", "limit"),
    [("lbfgs", "nfev", 20_000), ("cg", "nit", 30_000), ("trust-region", "nhev", 30_000)],
)
def test_table_1(method, field, limit):
    x0 = Stiefel().random(1000, 10, seed=0)
    result = stiefel.minimize(Brockett.table(1000, 10), x0, method=method, rtol=1e-9)
    assert result.success and result[field] <= limit
