"""The operator that `auto` learns from its steps: when it is recognised, and what it saves."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import linalg

import stiefel
from runs import problem_of, states
from stiefel import Grassmann, Stiefel
from stiefel.objectives import Brockett, JointDiagonalization, KohnSham, Procrustes
from stiefel.solvers import METHODS
from stiefel.solvers import row_model as module
from stiefel.solvers.columns import _normal_equations, symmetrising
from stiefel.solvers.row_model import RowModel, Rows, StepEnds, asymmetry

AUTO = METHODS["auto"]
WITHOUT = replace(AUTO, rows=None)


def hermitian(n, values, seed):
    U = stiefel.random_point(n, n, seed=seed)
    A = (U * values) @ U.T
    return (A + A.T) / 2


def trace(A, sign=1.0):
    def fun(X):
        G = sign * (A @ X)
        return 0.5 * float(np.vdot(X, G)), G

    return fun


def mixed(objective, Q):
    def fun(X):
        f, G = objective.value_and_gradient(X @ Q)
        return f, G @ Q.T

    return fun


def perturbed(objective, size):
    def fun(X):
        f, G = objective.value_and_gradient(X)
        c = size * len(X)
        return f + c / 4 * float((X**4).sum()), G + c * X**3

    return fun


def spent(fun, shape, method, seeds, rtol=1e-9, **options):
    starts = (stiefel.random_point(*shape, seed=seed) for seed in seeds)
    runs = [stiefel.minimize(fun, x, method=method, rtol=rtol, **options) for x in starts]
    assert all(run.success for run in runs), [run.message for run in runs]
    return sum(run.nfev for run in runs)


# -- D by symmetry ----------------------------------------------------------------------------


def test_the_normal_equations_are_the_sum_of_squares():
    rng = np.random.default_rng(0)
    L, E = rng.standard_normal((3, 3, 5, 5)), rng.standard_normal((5, 5))
    pairs = [(i, j) for i in range(3) for j in range(3)]
    expected = sum(np.linalg.norm(L[i, j] @ E - E @ L[j, i].T) ** 2 for i, j in pairs)
    found = np.einsum("ab,abcd,cd", E, _normal_equations(L), E)
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("scale", [1.0, 1e-90, 1e90])
def test_two_steps_determine_the_columns(scale):
    rng, n, k = np.random.default_rng(1), 40, 6
    A = hermitian(n, np.linspace(-3.0, 20.0, n), 2)
    Q = stiefel.random_point(k, k, seed=3)
    M = (Q * np.geomspace(1.0, 50.0, k)) @ Q.T
    S = rng.standard_normal((2, n, k))
    Y = scale * (A @ S @ M)
    K = np.concatenate(S, axis=1).T @ np.concatenate(Y, axis=1)
    D = symmetrising(K, k)
    expected = np.linalg.inv(M)
    expected /= np.linalg.det(expected) ** (1 / k)
    np.testing.assert_allclose(D, expected, rtol=0, atol=1e-9 * np.abs(expected).max())


def test_steps_without_the_structure_have_no_columns():
    K = np.random.default_rng(2).standard_normal((12, 12))
    assert symmetrising(K, 4) is None


def test_asymmetry_does_not_depend_on_the_lengths_of_steps():
    rng = np.random.default_rng(4)
    S, Z = rng.standard_normal((2, 30, 5))
    d = np.geomspace(1e-3, 1e3, 5)
    one = asymmetry(S.T @ Z, np.sum(S * S, axis=0))
    assert one == pytest.approx(asymmetry((S * d).T @ (Z * d), np.sum((S * d) ** 2, axis=0)))
    assert asymmetry(S.T @ S, np.sum(S * S, axis=0)) < 1e-15


# -- what is learned --------------------------------------------------------------------------


def test_it_is_on_after_the_third_step_and_knows_the_operator():
    n, k = 80, 4
    a, w = np.linspace(1.0, 50.0, n), np.arange(1.0, k + 1)
    taken = states(AUTO, Brockett(a, w), stiefel.random_point(n, k, seed=0), Stiefel(), 30)
    assert [s.rows.on for s in taken] == [False] * 3 + [True] * 27
    D = np.diag(1.0 / w)
    np.testing.assert_allclose(taken[-1].rows.D, D / np.linalg.det(D) ** (1 / k), atol=1e-8)
    scale = 2.0 * np.linalg.det(D) ** (-1 / k)  # A is known up to the factor that D has
    for s in taken[3:]:
        U, Z = s.rows.V
        assert len(U) <= AUTO.rows.blocks * k
        assert np.linalg.norm(Z - scale * a * U) < 1e-7 * np.linalg.norm(Z)
        np.testing.assert_allclose(s.rows.AX, scale * a[:, None] * s.x, rtol=0, atol=1e-7)


def test_carried_gram_matrices_are_those_of_the_vectors():
    taken = states(
        AUTO, Brockett.table(120, 4), stiefel.random_point(120, 4, seed=1), Stiefel(), 60
    )
    for s in taken[3:]:
        anew = module._grams(s.rows.V, s.x, s.rows.AX)
        for carried, direct in zip(s.rows.grams, anew, strict=True):
            assert np.abs(carried - direct).max() <= 1e-9 * max(1.0, np.abs(direct).max())
        U = s.rows.V[0] - s.rows.grams.XU @ s.x.T
        np.testing.assert_allclose(s.rows.now.UU, U @ U.T, atol=1e-12)


def test_with_the_whole_space_in_memory_the_direction_is_newtons():
    """n − k vectors span all normal directions: H is then the inverse of A V M − V C."""
    n, k = 12, 3
    a, w = np.linspace(1.0, 9.0, n), np.arange(1.0, k + 1)
    x = stiefel.nearest(np.eye(n)[:, k - 1 :: -1] + 0.05 * np.random.default_rng(5).random((n, k)))
    problem, x = problem_of(Brockett(a, w, half=True), x, Stiefel())
    at, D = problem.gradient(x), np.diag(1.0 / w)
    U = linalg.null_space(x.T).T
    V = np.stack((U, U * a))
    rows = Rows(V, a[:, None] * x, D, on=True)
    model = RowModel(blocks=9)
    rows = model._prepared(rows, StepEnds(x, at, x, at))
    assert len(rows.theta) == n - k
    N = -model.direction(rows, x, at, True)
    P = np.eye(n) - x @ x.T
    image = P @ (a[:, None] * N * w) - N @ at.level
    np.testing.assert_allclose(image, at.G - x @ at.rotation, atol=1e-9)
    np.testing.assert_allclose(x.T @ N, 0.0, atol=1e-12)


def test_the_direction_is_positive_definite():
    """⟨G, HG⟩ > 0 wherever it is used, also far from the minimum."""
    for seed in range(3):
        x = stiefel.random_point(60, 5, seed=seed)
        for s in states(AUTO, Brockett.table(60, 5), x, Stiefel(), 40):
            if s.rows.on:
                T = AUTO.rows.direction(s.rows, s.x, s.at, False)
                assert np.vdot(T, s.at.G) < 0
                assert np.abs(s.x.T @ T + T.T @ s.x).max() < 1e-10 * np.abs(T).max()


# -- what it saves ----------------------------------------------------------------------------

BUDGETS = {  # evaluations of three starts together; about 10 % above what was measured
    "table": (lambda: Brockett.table(200, 5), (200, 5), 1e-9, 540),
    "linear": (lambda: Brockett.linear(200, 6), (200, 6), 1e-10, 250),
    "small": (lambda: Brockett.table(60, 20), (60, 20), 1e-8, 230),
    "trace": (lambda: trace(np.diag(np.arange(1.0, 201) ** 2 / 200)), (200, 5), 1e-9, 500),
    "pca": (
        lambda: trace(hermitian(200, 1.0 / np.arange(1.0, 201), 7), -1.0),
        (200, 6),
        1e-9,
        120,
    ),
    "mixed": (
        lambda: mixed(Brockett.table(200, 5), stiefel.random_point(5, 5, seed=8)),
        (200, 5),
        1e-9,
        540,
    ),
    "nearly": (lambda: perturbed(Brockett.table(200, 5), 1e-8), (200, 5), 1e-9, 540),
}


@pytest.mark.parametrize("name", BUDGETS)
def test_evaluations(name):
    make, shape, rtol, budget = BUDGETS[name]
    assert spent(make(), shape, AUTO, (0, 1, 2), rtol) <= budget


def test_minima_are_those_of_an_eigensolver():
    A = hermitian(100, np.geomspace(1.0, 500.0, 100), 9)
    result = stiefel.minimize(trace(A), stiefel.random_point(100, 5, seed=0), rtol=1e-10)
    assert result.fun == pytest.approx(0.5 * linalg.eigvalsh(A)[:5].sum(), rel=1e-12)


def test_functions_of_the_span_gain_on_their_own_manifold():
    A = hermitian(100, np.geomspace(1.0, 500.0, 100), 9)
    options = {"manifold": Grassmann(), "seeds": (0, 1)}
    assert 2 * spent(trace(A), (100, 5), AUTO, **options) < spent(
        trace(A), (100, 5), WITHOUT, **options
    )


def test_the_lowest_ritz_vectors_are_worth_keeping(monkeypatch):
    """With the highest ones in their place twice as many evaluations are needed."""
    fun, shape, original = Brockett.table(200, 5), (200, 5), RowModel._compressed
    thick = spent(fun, shape, AUTO, (0, 1))

    def highest(self, rows, X):
        T, theta = np.ascontiguousarray(rows.T[:, ::-1]), rows.theta[::-1].copy()
        return original(self, rows._replace(T=T, theta=theta), X)

    monkeypatch.setattr(RowModel, "_compressed", highest)
    assert spent(fun, shape, AUTO, (0, 1)) > 1.6 * thick


def test_old_memory_that_has_decayed_is_forgotten():
    """Errors of images grow where new directions are nearly old ones; then all starts anew."""
    x = stiefel.random_point(400, 10, seed=1)
    taken = states(AUTO, Brockett.linear(400, 10), x, Stiefel(), 90)
    assert all(s.rows.on for s in taken[3:])
    assert max(s.rows.resets for s in taken) >= 1
    k = 10
    for s in taken[3:]:
        UZ, UU = s.rows.grams.UZ, s.rows.grams.UU
        assert asymmetry(UZ, np.diagonal(UU)) <= AUTO.rows.decay
        assert asymmetry(UZ[-k:, -k:], np.diagonal(UU)[-k:]) < 1e-6


@pytest.mark.parametrize("size", [1e-6, 2e-5, 1e-4, 1e-2])
def test_functions_that_are_nearly_quadratic_lose_nothing(size):
    fun, seeds = perturbed(Brockett.table(200, 5), size), (0, 1, 2)
    with_rows, without = (spent(fun, (200, 5), method, seeds) for method in (AUTO, WITHOUT))
    assert with_rows <= 1.03 * without
    assert with_rows < 0.4 * without or size > 1e-6


def test_equal_weights_leave_rotations_free():
    w = np.array([1.0, 1.0, 2.0, 2.0, 3.0])
    objective = Brockett(np.arange(1.0, 121.0), w)
    result = stiefel.minimize(objective, stiefel.random_point(120, 5, seed=0), rtol=1e-9)
    assert result.success and result.nfev < 120
    assert result.fun == pytest.approx(objective.minimum, rel=1e-12)


def test_a_step_that_only_rotates_adds_no_block():
    rng = np.random.default_rng(0)
    X0, a = stiefel.random_point(30, 3, seed=1), np.linspace(1.0, 5.0, 30)[:, None]
    X = X0 @ linalg.expm(0.1 * (lambda R: R - R.T)(rng.standard_normal((3, 3))))
    assert module._new_block(X0, a * X0, X, a * X) is None
    Y = stiefel.nearest(X + 1e-3 * rng.standard_normal(X.shape))
    assert module._new_block(X0, a * X0, Y, a * Y) is not None


def test_many_columns_are_tried_with_the_identity():
    model = replace(AUTO, rows=RowModel(widest=3))
    x = stiefel.random_point(60, 4, seed=0)
    on = [
        states(model, fun, x, Stiefel(), 15)[-1].rows.on
        for fun in (trace(np.diag(np.arange(1.0, 61.0))), Brockett.linear(60, 4))
    ]
    assert on == [True, False]


def test_nothing_is_held_once_it_is_given_up(monkeypatch):
    x = stiefel.random_point(60, 4, seed=0)
    taken = states(AUTO, KohnSham(60, 1.0), x, Stiefel(), 15)
    assert taken[-1].rows == AUTO.rows.given_up
    monkeypatch.setattr("stiefel.solvers.lbfgs.LARGE_POINT", 100)
    assert states(AUTO, Brockett.linear(60, 4), x, Stiefel(), 1)[0].rows == AUTO.rows.given_up


# -- what it does not touch -------------------------------------------------------------------


def columns_apart(n, k):
    A = [hermitian(n, np.geomspace(1.0, 100.0, n), i) for i in range(k)]

    def fun(X):
        G = np.stack([a @ x for a, x in zip(A, X.T, strict=True)], axis=1)
        return 0.5 * float(np.vdot(X, G)), G

    return fun


def affine(n, k):
    rng = np.random.default_rng(4)
    A = rng.standard_normal((n, n)) * np.geomspace(1.0, 4.0, n)
    return Procrustes(A, rng.standard_normal((n, k)))


def linear(n, k):
    B = np.random.default_rng(0).standard_normal((n, k))
    return lambda X: (float(np.vdot(B, X)), B.copy())


def joint(n):
    C = [hermitian(n, np.random.default_rng(i).standard_normal(n), i) for i in range(4)]
    return JointDiagonalization(np.stack(C))


UNTOUCHED = {
    "joint diagonalisation": (joint(30), (30, 5), {}),
    "an operator for each column": (columns_apart(40, 4), (40, 4), {}),
    "quartic": (perturbed(Brockett.table(60, 4), 1.0), (60, 4), {}),
    "Kohn–Sham": (KohnSham(60, 1.0), (60, 4), {}),
    "Procrustes": (affine(30, 3), (30, 3), {}),
    "linear": (linear(40, 4), (40, 4), {}),
    "complex": (Brockett.table(60, 4), (60, 4), {"dtype": complex}),
    "single precision": (Brockett.table(60, 4), (60, 4), {"dtype": np.float32}),
    "one column": (Brockett.table(60, 1), (60, 1), {}),
    "nearly square": (Brockett.table(9, 5), (9, 5), {}),
}


@pytest.mark.parametrize("name", UNTOUCHED)
def test_where_it_stays_off_runs_are_the_same_bits(name):
    fun, shape, options = UNTOUCHED[name]
    x = stiefel.random_point(*shape, seed=0, **options)
    rtol = 1e-3 if options.get("dtype") is np.float32 else 1e-7
    with_rows, without = (
        stiefel.minimize(fun, x, method=method, rtol=rtol, maxiter=300)
        for method in (AUTO, WITHOUT)
    )
    assert with_rows.nfev == without.nfev
    assert np.array_equal(with_rows.x, without.x)
    assert np.array_equal(
        with_rows.history.as_array()["value"], without.history.as_array()["value"]
    )


def test_stacks_constraints_and_preconditioners_stay_off():
    B = hermitian(20, np.linspace(1.0, 3.0, 20), 1)
    x = stiefel.random_point(20, 3, manifold=Stiefel(B=B), seed=0)
    problem, x = problem_of(Brockett.table(20, 3), x, Stiefel(B=B))
    assert AUTO.init(problem, x).rows == AUTO.rows.given_up
    problem, x = problem_of(Brockett.table(20, 3), stiefel.random_point(20, 3, seed=0), Stiefel())
    assert AUTO.init(problem, x).rows == Rows()
    problem = replace(problem, precond=lambda X, G, aux: G)
    assert AUTO.init(problem, x).rows == AUTO.rows.given_up
    flip = lambda X: (0.5 * float(np.vdot(X, X[..., ::-1, :])), X[..., ::-1, :].copy())
    problem, x = problem_of(flip, stiefel.random_point(2, 20, 3, seed=0), Stiefel())
    assert AUTO.init(problem, x).rows == AUTO.rows.given_up


# -- invariance -------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-7, 1.3, 1e120])
def test_the_scale_of_the_function_does_not_matter(scale):
    objective, seeds = Brockett.table(100, 4), (0, 1)

    def scaled(X):
        f, G = objective.value_and_gradient(X)
        return scale * f, scale * G

    one, other = (spent(f, (100, 4), AUTO, seeds) for f in (objective, scaled))
    assert abs(one - other) <= 0.15 * one


def test_the_choice_of_columns_does_not_matter():
    objective = Brockett.table(100, 4)
    Q = stiefel.random_point(4, 4, seed=3)
    x = stiefel.random_point(100, 4, seed=5)
    one = states(AUTO, objective, x, Stiefel(), 14)
    other = states(AUTO, mixed(objective, Q), x @ Q.T, Stiefel(), 14)
    assert one[-1].rows.on and other[-1].rows.on
    for a, b in zip(one, other, strict=True):
        np.testing.assert_allclose(b.x @ Q, a.x, atol=1e-6)


# -- hostile ----------------------------------------------------------------------------------


def test_a_resumed_run_has_the_same_bits(tmp_path):
    fun, x = Brockett.table(80, 4), stiefel.random_point(80, 4, seed=0)
    whole = stiefel.minimize(fun, x, rtol=1e-9)
    for cut in (2, 4, 9, 30):
        path = tmp_path / f"{cut}.npz"
        stiefel.minimize(fun, x, rtol=1e-9, maxiter=cut, checkpoint=path)
        rest = stiefel.minimize(fun, x, rtol=1e-9, checkpoint=path, resume=True)
        assert rest.nfev == whole.nfev
        assert np.array_equal(rest.x, whole.x)


def test_a_function_that_changes_its_mind_is_noticed():
    """Quadratic at first, something else from call 30 on: the model goes off, the run goes on."""
    n, k, calls = 60, 4, []
    first, then = Brockett.table(n, k), columns_apart(n, k)

    def fun(X):
        calls.append(1)
        return first.value_and_gradient(X) if len(calls) < 30 else then(X)

    taken = states(AUTO, fun, stiefel.random_point(n, k, seed=0), Stiefel(), 200)
    on = [s.rows.on for s in taken]
    assert any(on) and not on[-1]


def test_noise_in_the_gradient_costs_little():
    rng, objective = np.random.default_rng(0), Brockett.table(200, 5)

    def noisy(X):
        f, G = objective.value_and_gradient(X)
        return f, G * (1.0 + 1e-11 * rng.standard_normal(G.shape))

    exact, rough = (spent(f, (200, 5), AUTO, (0, 1), 1e-6) for f in (objective, noisy))
    assert rough <= 1.5 * exact


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [("ritz", 0, "ritz"), ("blocks", 3, "blocks"), ("gate", 0.0, "gate"), ("decay", 2.0, "decay")],
)
def test_parameters_are_checked(name, value, words):
    with pytest.raises((TypeError, ValueError), match=words):
        RowModel(**{name: value})
