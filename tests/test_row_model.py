"""The operator that `auto` learns from its steps: when it is recognised, and what it saves."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scipy import linalg

import stiefel
from cases import LIBRARIES
from runs import problem_of, states
from stiefel import Grassmann, Stiefel
from stiefel.backends.arrays import kernels_for
from stiefel.geometry.metric import CANONICAL
from stiefel.objectives import Brockett, JointDiagonalization, KohnSham, Procrustes
from stiefel.solvers import METHODS, RowModel, row_memory, row_model, row_ritz
from stiefel.solvers.row_inverse import NOTHING_SEEN, Columns, Known
from stiefel.solvers.row_model import GIVEN_UP
from stiefel.solvers.row_recognition import StepEnds, symmetrising
from stiefel.solvers.row_ritz import _reliable, asymmetry

AUTO = METHODS["auto"]
WITHOUT = replace(AUTO, rows=None)
DEAR = replace(AUTO, cost="dear")


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


def with_linear(objective, C):
    def fun(X):
        f, G = objective.value_and_gradient(X)
        return f + float(np.vdot(C, X)), G + C

    return fun


def spent(fun, shape, method, seeds, rtol=1e-9, **options):
    starts = (stiefel.random_point(*shape, seed=seed) for seed in seeds)
    runs = [stiefel.minimize(fun, x, method=method, rtol=rtol, **options) for x in starts]
    assert all(run.success for run in runs), [run.message for run in runs]
    return sum(run.nfev for run in runs)


# -- D by symmetry ----------------------------------------------------------------------------


def normal(rng, *shape, dtype=float):
    real = rng.standard_normal(shape)
    return real if dtype is float else real + 1j * rng.standard_normal(shape)


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("scale", [1.0, 1e-90, 1e90])
def test_two_steps_determine_the_columns(scale, dtype):
    rng, n, k = np.random.default_rng(1), 40, 6
    A = normal(rng, n, n, dtype=dtype)
    A = A + A.conj().T
    Q = stiefel.nearest(normal(rng, k, k, dtype=dtype))
    M = (Q * np.geomspace(1.0, 5e4, k)) @ Q.conj().T
    S = normal(rng, 2, n, k, dtype=dtype)
    Y = scale * (A @ S @ M)
    K = np.concatenate(S, axis=1).conj().T @ np.concatenate(Y, axis=1)
    D = symmetrising(K, k)
    expected = np.linalg.inv(M)
    expected /= np.linalg.det(expected).real ** (1 / k)
    np.testing.assert_allclose(D, expected, rtol=0, atol=1e-9 * np.abs(expected).max())


def test_steps_without_the_structure_have_no_columns():
    K = np.random.default_rng(2).standard_normal((12, 12))
    assert symmetrising(K, 4) is None


@pytest.mark.filterwarnings("error")
def test_blocks_that_say_nothing_give_no_columns():
    """Zeros, infinities, one number in many, and numbers near underflow: no D, and no warning."""
    rng = np.random.default_rng(3)
    for K in (np.zeros((6, 6)), np.full((6, 6), np.inf), np.full((6, 6), np.nan), np.ones((6, 6))):
        assert symmetrising(K, 3) is None
    for _ in range(300):
        K = rng.standard_normal((6, 6)) * 10.0 ** rng.integers(-300, 1, (6, 6))
        D = symmetrising(K, 3)
        assert D is None or np.isfinite(D).all()


def test_asymmetry_does_not_depend_on_the_lengths_of_steps():
    rng = np.random.default_rng(4)
    S, Z = rng.standard_normal((2, 30, 5))
    d = np.geomspace(1e-3, 1e3, 5)
    one = asymmetry(S.T @ Z, np.sum(S * S, axis=0))
    assert one == pytest.approx(asymmetry((S * d).T @ (Z * d), np.sum((S * d) ** 2, axis=0)))
    assert asymmetry(S.T @ S, np.sum(S * S, axis=0)) < 1e-15


# -- what is learned --------------------------------------------------------------------------


def vectors(known):
    """U and Z, one after the other."""
    W, _, used, *_ = known.memory
    rows = W[:used].conj().reshape(-1, 2, W.shape[-1])
    return [rows[:, i] for i in (0, 1)]


@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_it_is_on_after_the_third_step_and_knows_the_operator(offset):
    n, k = 80, 4
    a, w = np.linspace(1.0, 50.0, n), np.arange(1.0, k + 1)
    C = offset * np.random.default_rng(0).standard_normal((n, k))
    fun = with_linear(Brockett(a, w), C)
    taken = states(DEAR, fun, stiefel.random_point(n, k, seed=0), Stiefel(), 30)
    assert [s.rows.on for s in taken] == [False] * 3 + [True] * 27
    D = np.diag(1.0 / w)
    found = taken[-1].rows.known.columns.D
    np.testing.assert_allclose(found, D / np.linalg.det(D) ** (1 / k), atol=1e-8)
    scale = 2.0 * np.linalg.det(D) ** (-1 / k)  # A is known up to the factor that D has
    for s in taken[3:20]:  # steps become short then, and rounding shows
        U, Z = vectors(s.rows.known)
        assert len(U) <= AUTO.rows.blocks * k
        assert np.linalg.norm(Z - scale * a * U) < 1e-6 * np.linalg.norm(Z)
        AX = s.rows.known.memory.AX
        np.testing.assert_allclose(AX, scale * a[:, None] * s.x, rtol=0, atol=1e-7)
        if offset:
            np.testing.assert_allclose(s.rows.known.offset, C, atol=1e-10)


@pytest.mark.parametrize("dtype", [float, complex])
def test_carried_gram_matrices_are_those_of_the_vectors(dtype):
    x = stiefel.random_point(120, 4, seed=1, dtype=dtype)
    taken = states(AUTO, Brockett.table(120, 4), x, Stiefel(), 60)
    kernels = kernels_for(x)
    for s in taken[3:]:
        memory = s.rows.known.memory
        anew = row_memory.with_grams(kernels, memory.W, memory.used, memory.XA, s.at.G)
        scale = 1.0 / np.sqrt(np.maximum(np.diagonal(anew.grams.WW).real, 1e-300))
        for carried, direct in zip(memory.grams, anew.grams, strict=True):
            size = scale[:, None] if len(direct) == len(scale) else 1.0
            size = size * scale if direct.shape == (len(scale),) * 2 else size
            assert np.abs(size * (carried - direct)).max() <= 1e-8 * max(
                1.0, np.abs(size * direct).max()
            )
        np.testing.assert_allclose(memory.seen, anew.seen, atol=1e-12 * np.abs(s.at.norm))
        U = vectors(s.rows.known)[0]
        U = U - memory.grams.WX[: len(U), : s.x.shape[1]].conj() @ s.x.T
        UU = U.conj() @ U.T
        np.testing.assert_allclose(s.rows.known.normal.UU, UU, atol=1e-9)


def newtons(fun, A, M, C, x, rotations):
    """The direction of a model whose memory is the whole space, and its residual.

    ∇²f[T] = P(A T M − T herm(Xᴴ∇f)) with P the projection onto tangents, by n×n matrices.
    """
    problem, x = problem_of(fun, x, Stiefel())
    at, kernels, k = problem.gradient(x), kernels_for(x), x.shape[1]
    rest = linalg.null_space(x.conj().T)
    blocks = -(-rest.shape[1] // k)
    W = np.zeros((blocks * k, 2, len(x)), x.dtype)
    W[: rest.shape[1], 0], W[: rest.shape[1], 1] = rest.conj().T, (A @ rest).conj().T
    W, XA = W.reshape(blocks, 2 * k, len(x)), np.concatenate((x, A @ x), axis=1)
    memory = row_memory.with_grams(kernels, W, blocks, XA, at.G)
    columns, offset = Columns.of(np.linalg.inv(M)), C if np.any(C) else None
    known = Known(memory, columns, offset, *NOTHING_SEEN, True)
    known = row_model.with_ritz(kernels, known, at.level)
    assert len(known.ritz.theta) == rest.shape[1]
    T = -AUTO.rows.direction(problem.geometry, known, None, x, at, not rotations)
    H = A @ T @ M - T @ at.level
    S = x.conj().T @ H
    image = H - x @ (0.5 * (S + S.conj().T))  # its part along tangents
    if not rotations:
        image, G = image - x @ (x.conj().T @ image), at.G - x @ at.rotation
        np.testing.assert_allclose(x.conj().T @ T, 0.0, atol=1e-12)
    else:
        G = at.G
    return image, G, at


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("affine", [False, True])
def test_with_the_whole_space_in_memory_the_direction_is_newtons(dtype, affine):
    """Near a minimum; with a constant part in the gradient rotations are coupled to the rest."""
    rng, n, k = np.random.default_rng(5), 13, 3
    A, w = np.diag(np.linspace(1.0, 9.0, n)).astype(dtype), np.arange(1.0, k + 1)
    Q = stiefel.nearest(normal(rng, k, k, dtype=dtype))
    M = (Q * w) @ Q.conj().T
    C = 2.0 * normal(rng, n, k, dtype=dtype) if affine else np.zeros((n, k), dtype)

    def fun(X):
        G = A @ X @ M
        return 0.5 * np.vdot(X, G).real + np.vdot(C, X).real, G + C

    start = stiefel.random_point(n, k, seed=0, dtype=dtype)
    best = stiefel.minimize(fun, start, rtol=1e-6, options={"rows": None}).x
    x = stiefel.nearest(best + 0.01 * normal(rng, n, k, dtype=dtype))
    image, G, _ = newtons(fun, A, M, C, x, affine)
    np.testing.assert_allclose(image, G, atol=1e-9)


@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_the_direction_is_positive_definite(offset):
    """⟨G, HG⟩ > 0 wherever it is used, also far from the minimum."""
    C = offset * np.random.default_rng(0).standard_normal((60, 5))
    for seed in range(3):
        x = stiefel.random_point(60, 5, seed=seed)
        for s in states(AUTO, with_linear(Brockett.table(60, 5), C), x, Stiefel(), 40):
            if s.rows.on:
                T = s.aim.direction
                assert np.vdot(T, s.at.G) < 0
                assert np.abs(s.x.T @ T + T.T @ s.x).max() < 1e-9 * np.abs(T).max()


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
    fun, shape, original = Brockett.table(200, 5), (200, 5), row_ritz.lowest_and_newest
    thick = spent(fun, shape, AUTO, (0, 1))

    def highest(ritz, normal, lowest, size):
        T, theta = ritz.T[:, ::-1], ritz.theta[::-1]
        return original(ritz._replace(T=T, theta=theta), normal, lowest, size)

    monkeypatch.setattr(row_model, "lowest_and_newest", highest)
    monkeypatch.setattr(RowModel, "advanced", lambda *known: None)  # it has one of its own
    assert spent(fun, shape, AUTO, (0, 1)) > 1.6 * thick


def test_the_step_that_ends_an_exact_model_is_remembered(monkeypatch):
    """Its pair is made then: steps by an exact model make none."""
    original = RowModel.observe_and_aim

    def ends_after_the_sixth(self, problem, rows, ends, metric):
        if rows.exact and rows.known.memory.used == 4:
            return GIVEN_UP, None
        return original(self, problem, rows, ends, metric)

    monkeypatch.setattr(RowModel, "observe_and_aim", ends_after_the_sixth)
    X0 = stiefel.random_point(100, 4, seed=0)
    taken = states(AUTO, Brockett.table(100, 4), X0, Stiefel(), 12)
    (last,) = (i for i, s in enumerate(taken) if s.rows.exact and not taken[i + 1].rows.exact)
    assert taken[last].k == 0 and taken[last + 1].k == 1 and taken[last + 2].k == 2
    pairs, before = taken[last + 1].pairs, taken[last]
    t = np.linalg.norm(pairs.S[0]) / before.aim.curve.length
    np.testing.assert_allclose(pairs.S[0], t * before.aim.curve.transported_velocity(t), atol=1e-12)


def test_a_full_memory_without_ritz_pairs_begins_anew():
    """All of A that was seen is below the shifts: no combination of it is of use."""
    fun, X0 = Brockett.table(100, 4), stiefel.random_point(100, 4, seed=0)
    taken = states(AUTO, fun, X0, Stiefel(), 14)
    s, new = next((s, n) for s, n in pairwise(taken) if s.rows.exact and s.rows.known.memory.full)
    known = s.rows.known
    T, theta = known.ritz
    known = known._replace(ritz=known.ritz._replace(T=T[:, :0], theta=theta[:0]))
    ends = StepEnds(s.x, s.at, new.x, new.at)
    assert AUTO.rows._grown(kernels_for(X0), known, ends).memory.used == 2
    assert AUTO.rows.advanced(Stiefel().bind(X0), known, ends, CANONICAL) is None


def test_old_memory_that_has_decayed_is_forgotten():
    """Errors of images grow where new directions are nearly old ones; then all starts anew."""
    k = 10
    for seed in range(1, 6):
        x = stiefel.random_point(400, k, seed=seed)
        taken = states(AUTO, Brockett.linear(400, k), x, Stiefel(), 90)
        assert all(s.rows.on for s in taken[3:])
        for s in taken[3:]:
            grams = row_ritz.Stacked(s.rows.known.memory.grams.WW)
            squares = np.diagonal(grams.UU)
            assert asymmetry(grams.UZ, squares) <= AUTO.rows.decay
            assert asymmetry(grams.UZ[-k:, -k:], squares[-k:]) < 1e-6
        if taken[-1].rows.known.resets:
            return
    raise AssertionError("no run has forgotten anything")


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
    k, S = kernels_for(X0), rng.standard_normal((30, 3))
    problem, _ = problem_of(lambda X: (0.5 * float(np.vdot(X, a * X)), a * X), X0, Stiefel())
    known = np.eye(3), None
    memory = row_memory.begun(k, 5, S, a * S, X0, problem.gradient(X0), *known)
    X = X0 @ linalg.expm(0.1 * (lambda R: R - R.T)(rng.standard_normal((3, 3))))
    assert row_memory.grown(k, memory, X, problem.gradient(X), *known)[0].used == 1
    X = stiefel.nearest(X + 1e-3 * rng.standard_normal(X.shape))
    assert row_memory.grown(k, memory, X, problem.gradient(X), *known)[0].used == 2


def test_many_columns_are_learned_unless_the_gradient_has_a_constant_part():
    """D costs O(k³); the rotations beside a constant part would cost O(k⁶)."""
    model, C = replace(AUTO, rows=RowModel(widest=3)), np.ones((60, 4))
    x = stiefel.random_point(60, 4, seed=0)
    on = [
        states(model, fun, x, Stiefel(), 15)[-1].rows.on
        for fun in (Brockett.linear(60, 4), with_linear(Brockett.linear(60, 4), C))
    ]
    assert on == [True, False]


def test_nothing_is_held_once_it_is_given_up(monkeypatch):
    x = stiefel.random_point(60, 4, seed=0)
    taken = states(AUTO, columns_apart(60, 4), x, Stiefel(), 15)
    assert taken[-1].rows == GIVEN_UP
    monkeypatch.setattr("stiefel.solvers.lbfgs.LARGE_POINT", 100)
    assert states(AUTO, Brockett.linear(60, 4), x, Stiefel(), 1)[0].rows == GIVEN_UP


# -- a gradient with a constant part ------------------------------------------------------------


def procrustes(m, n, k, condition):
    rng = np.random.default_rng(2)
    U, V = stiefel.random_point(m, n, seed=rng), stiefel.random_point(n, n, seed=rng)
    A = (U * np.geomspace(1.0, condition, n)) @ V.T
    B = A @ stiefel.random_point(n, k, seed=rng) + 0.1 * rng.standard_normal((m, k))
    return Procrustes(A, B)


def test_a_linear_term_is_seen_at_the_mirrored_point():
    """One evaluation at −X shows the constant part of the gradient; there is no second one."""
    fun, seen = procrustes(60, 50, 4, 30.0), []

    def recorded(X):
        seen.append(X.copy())
        return fun.value_and_gradient(X)

    x = stiefel.random_point(50, 4, seed=0)
    result = stiefel.minimize(recorded, x, rtol=1e-9)
    assert result.success and result.nfev == len(seen)
    mirrored = [any(np.array_equal(X, -Y) for Y in seen) for X in seen]
    assert sum(mirrored) == 2  # the point, and its mirror image
    assert spent(fun, (50, 4), AUTO, (0, 1, 2)) < 0.7 * spent(fun, (50, 4), WITHOUT, (0, 1, 2))


def far_from_convex(n, k, condition):
    """½ tr XᵀAX with a weak linear term: far from the minimum the Hessian is indefinite."""
    C = 0.1 * np.random.default_rng(6).standard_normal((n, k))
    A = hermitian(n, np.geomspace(1.0, condition, n), 5)

    def fun(X):
        AX = A @ X
        return 0.5 * float(np.vdot(X, AX)) + float(np.vdot(C, X)), AX + C

    return fun


# The measured evaluations are 139 and 422; without a rest 1,019 and 527, without the model 194 and
# 1,226.  A model that rests for good takes 240 and 1,153.
@pytest.mark.parametrize(("size", "most"), [((300, 20, 30.0), 150), ((120, 6, 1e3), 460)])
def test_a_model_with_a_constant_part_rests_where_it_stumbles(size, most):
    assert spent(far_from_convex(*size), size[:2], DEAR, (0, 1), rtol=1e-6) < most


@pytest.mark.parametrize(
    ("n", "method", "late"), [(999, AUTO, True), (1000, AUTO, False), (999, DEAR, False)]
)
def test_a_constant_part_is_asked_for_late(n, method, late):
    """Where f is not known to be dear: in the first fifteen steps nothing but L-BFGS runs."""
    a, C = np.linspace(1.0, 300.0, n)[:, None], np.random.default_rng(7).standard_normal((n, 3))

    def fun(X):
        return 0.5 * float(np.vdot(X, a * X)) + float(np.vdot(C, X)), a * X + C

    taken = states(method, fun, stiefel.random_point(n, 3, seed=0), Stiefel(), 45)
    assert [s.rows.on for s in taken[:17]] == [False] * 17 if late else taken[10].rows.on
    assert taken[-1].rows.on


@pytest.mark.parametrize(("condition", "asked"), [(10.0, False), (100.0, True)])
def test_a_constant_part_is_not_asked_for_where_the_gradient_falls_fast(condition, asked):
    """Three digits in fifteen steps: what is left is too short for a model."""
    rng = np.random.default_rng(11)
    U, V = stiefel.random_point(60, 40, seed=rng), stiefel.random_point(40, 40, seed=rng)
    A = (U * np.geomspace(1.0, condition, 40)) @ V.T
    B = A @ stiefel.random_point(40, 4, seed=rng) + rng.standard_normal((60, 4))
    fun, x = stiefel.objectives.Procrustes(A, B), stiefel.random_point(40, 4, seed=1)
    taken = states(AUTO, fun.value_and_gradient, x, Stiefel(), 30)
    assert taken[-1].at.norm < 1e-2 * taken[0].at.norm
    assert any(s.rows.on for s in taken) == asked


def test_a_leaf_with_a_constant_part_rests_where_it_stumbles():
    fun = far_from_convex(300, 20, 30.0)

    def tree(p):
        (f, G), b = fun(p["X"]), p["b"] - 1.0
        return f + 0.5 * float(b @ b) + 0.25 * float(np.sum(b**4)), {"X": G, "b": b + b**3}

    x = {"X": stiefel.random_point(300, 20, seed=0), "b": np.zeros(10)}
    result = stiefel.minimize(tree, x, manifold={"X": stiefel.Stiefel()}, rtol=1e-6)
    assert result.success and result.nfev < 100  # 68; without a rest 290


# -- functions of the span that are nearly quadratic -------------------------------------------


def local_energy(n, size, power=2.0):
    """½ tr XᵀAX and a power of the density, which no operator alone describes."""
    a = np.arange(1.0, n + 1)[:, None] ** 2 / n

    def fun(X):
        rho, c = (X * X).sum(axis=1, keepdims=True), size * n ** (power - 1.0)
        f = 0.5 * float((a * X * X).sum()) + c / (2 * power) * float((rho**power).sum())
        return f, (a + c * rho ** (power - 1.0)) * X

    return fun


SPAN = {  # the function, its shape, the tolerance, and the part of evaluations that is left
    "Kohn–Sham": (KohnSham(400, 1.0), (400, 10), 1e-10, 0.8),
    "weakly coupled": (KohnSham(400, 1e-3), (400, 6), 1e-6, 0.9),
    "local 1e-4": (local_energy(200, 1e-4), (200, 5), 1e-9, 0.35),
    "local 1e-2": (local_energy(200, 1e-2), (200, 5), 1e-9, 0.85),
    "cubic": (local_energy(200, 0.1, 3.0), (200, 5), 1e-8, 1.03),
}


@pytest.mark.parametrize("name", SPAN)
def test_functions_of_the_span_gain(name):
    fun, shape, rtol, left = SPAN[name]
    seeds = (0, 1, 2)
    assert spent(fun, shape, AUTO, seeds, rtol) <= left * spent(fun, shape, WITHOUT, seeds, rtol)


def test_ritz_vectors_that_errors_have_spoilt_are_left_out(monkeypatch):
    fun, seeds, early = KohnSham(200, 1.0), (0, 1, 2), replace(AUTO, rows=RowModel(nearly=0.03))
    careful = spent(fun, (200, 6), early, seeds)
    monkeypatch.setattr(row_ritz, "UNRELIABLE", 1e9)
    assert spent(fun, (200, 6), early, seeds) > 1.3 * careful


def trapped_fermions(n):
    """Particles in a trap that repel each other near by: pairs are symmetric to a few per cent."""
    x, h = np.linspace(-8.0, 8.0, n, retstep=True)
    H = (2.0 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)) / (2 * h * h) + np.diag(0.5 * x * x)
    repulsion = 5.0 * np.exp(-((x[:, None] - x) ** 2))

    def fun(X):
        HX, rho = H @ X, (X * X).sum(axis=1)
        v = repulsion @ rho
        return float(np.vdot(X, HX)) + 0.5 * float(rho @ v), 2.0 * (HX + v[:, None] * X)

    return fun


def test_dear_functions_are_modelled_less_closely(monkeypatch):
    """There it saves evaluations; elsewhere it would double the work of most of the steps."""
    fun, seeds, x = trapped_fermions(240), (0, 1, 2), stiefel.random_point(240, 8, seed=0)
    dear = replace(AUTO, cost="dear")
    on = [sum(s.rows.on for s in states(m, fun, x, Stiefel(), 100)) for m in (AUTO, dear)]
    assert on[0] < 10 and on[1] > 30
    less = spent(fun, (240, 8), dear, seeds, 1e-6)
    monkeypatch.setattr(row_model, "DEAR_NEARLY", 1.0)
    assert less < 0.9 * spent(fun, (240, 8), replace(dear), seeds, 1e-6)


def stiff_density(n, alpha):
    """½Tr XᵀLX + (α/4)ρᵀL⁻¹ρ: the operator changes much faster than its lowest levels are apart."""
    L = 2.0 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    inverse = linalg.inv(L)

    def fun(X):
        LX, rho = L @ X, (X * X).sum(axis=1)
        v = alpha * (inverse @ rho)
        return 0.5 * float(np.vdot(X, LX)) + 0.25 * float(rho @ v), LX + v[:, None] * X

    def start(k, seed):
        X = stiefel.random_point(n, k, seed=seed)
        A = L + np.diag(alpha * (inverse @ (X * X).sum(axis=1)))
        return stiefel.nearest(linalg.eigh(A, subset_by_index=(0, k - 1))[1])

    return fun, start


def stiff(method):
    fun, start = stiff_density(800, 100.0)
    runs = [stiefel.minimize(fun, start(10, s), method=method, rtol=1e-10) for s in range(6)]
    assert all(run.success for run in runs)
    return sum(run.nfev for run in runs)


def test_short_runs_have_no_inexact_model():
    """In the first thirty steps it costs more than it gains where the density answers stiffly."""
    fun, start = stiff_density(800, 100.0)
    assert not any(s.rows.on for s in states(AUTO, fun, start(10, 0), Stiefel(), 30))
    at_once = replace(AUTO, rows=RowModel(rest=1))
    assert stiff(AUTO) == stiff(WITHOUT) < 0.85 * stiff(at_once)


def test_long_runs_of_stiff_densities_gain():
    fun, start = stiff_density(400, 1e4)
    late, without = (
        sum(stiefel.minimize(fun, start(10, s), method=m, rtol=1e-10).nfev for s in range(3))
        for m in (AUTO, WITHOUT)
    )
    assert late < 0.75 * without


def test_one_look_shows_that_a_span_has_no_exact_structure():
    x = stiefel.random_point(200, 6, seed=0)
    looking = states(AUTO, KohnSham(200, 1.0), x, Stiefel(), 2)[-1].rows.looking
    assert looking.rests == 1 and looking.rest == AUTO.rows.rest


def test_older_blocks_of_an_inexact_model_are_nearly_symmetric():
    """They are forgotten as soon as they are less symmetric than the pairs that began it."""
    fun, seeds = local_energy(200, 10.0), range(4)
    for s in states(AUTO, fun, stiefel.random_point(200, 5, seed=0), Stiefel(), 60):
        if s.rows.on:
            grams = row_ritz.Stacked(s.rows.known.memory.grams.WW)
            assert grams.UU.shape == (5, 5) or (
                asymmetry(grams.UZ, np.diagonal(grams.UU)) <= AUTO.rows.nearly
            )
    assert spent(fun, (200, 5), AUTO, seeds) <= 1.03 * spent(fun, (200, 5), WITHOUT, seeds)


def test_the_worst_ritz_vector_goes_first():
    skew = np.zeros((4, 4))
    skew[0, 3], skew[3, 0] = 0.5, -0.5
    skew[1, 2], skew[2, 1] = 0.01, -0.01
    above = np.array([1e-2, 1.0, 1.0, 4.0])
    assert _reliable(skew, above).tolist() in ([False, True, True, True], [True, True, True, False])


def test_small_points_of_functions_of_the_span_go_without_an_inexact_model():
    """It would save a tenth of the evaluations there; not where one is said to be dear."""
    nearly, exact = KohnSham(60, 1.0), trace(np.diag(np.arange(1.0, 61.0)))
    x, dear = stiefel.random_point(60, 4, seed=0), replace(AUTO, cost="dear")
    on = [
        [s.rows.on for s in states(method, fun, x, Stiefel(), 40)]
        for method, fun in ((AUTO, nearly), (dear, nearly), (AUTO, exact))
    ]
    assert [any(each) for each in on] == [False, True, True]
    less, more = (spent(nearly, (60, 4), m, range(4), rtol=1e-6) for m in (dear, AUTO))
    assert more < 1.3 * less


@pytest.mark.parametrize(("rows", "inexact"), [(8191, True), (8192, False)])
def test_long_points_of_functions_of_the_span_go_without_an_inexact_model(rows, inexact):
    """It saves a fifth of the evaluations there, and doubles the work of a step."""
    a = np.sqrt(np.arange(1.0, rows + 1))[:, None]

    def fun(X):
        rho = (X * X).sum(axis=1, keepdims=True)
        return 0.5 * float((a * X * X).sum()) + 25.0 * float((rho**2).sum()), (a + 100 * rho) * X

    x, dear = stiefel.random_point(rows, 4, seed=0), replace(AUTO, cost="dear")
    on = [any(s.rows.on for s in states(m, fun, x, Stiefel(), 80)) for m in (AUTO, dear)]
    assert on == [inexact, True]


def test_a_function_of_the_span_is_looked_at_again():
    """Unlike others it is never given up: after a rest, and then after a longer one."""
    x = stiefel.random_point(60, 4, seed=0)
    model = replace(AUTO, rows=RowModel(nearly=1e-12, rest=2), cost="dear")
    taken = states(model, KohnSham(60, 1.0), x, Stiefel(), 40)
    assert not any(s.rows.on for s in taken)
    rests = [s.rows.looking.rest for s in taken]
    assert [r for r, before in zip(rests[1:], rests, strict=False) if r > before] == [2, 4, 8, 16]


# -- everywhere ----------------------------------------------------------------------------------


def saves(fun, x, part=0.5, **options):
    counts = []
    for method in (AUTO, WITHOUT):
        result = stiefel.minimize(fun, x, method=method, **{"rtol": 1e-8, **options})
        assert result.success, result.message
        counts.append(result.nfev)
    assert counts[0] < part * counts[1]


def test_complex_matrices():
    rng, n, k = np.random.default_rng(3), 100, 4
    U = stiefel.random_point(n, n, seed=rng, dtype=complex)
    A = (U * (np.arange(1.0, n + 1) ** 2 / n)) @ U.conj().T
    Q = stiefel.random_point(k, k, seed=rng, dtype=complex)
    M = (Q * np.arange(1.0, k + 1)) @ Q.conj().T

    def fun(X):
        G = A @ X @ M
        return 0.5 * np.vdot(X, G).real, G

    saves(fun, stiefel.random_point(n, k, seed=0, dtype=complex))


@pytest.mark.parametrize("kind", [Stiefel, Grassmann])
def test_generalised_constraints(kind):
    n, k = 100, 4
    B = np.diag(np.linspace(1.0, 3.0, n)) + 0.1 * np.eye(n, k=1) + 0.1 * np.eye(n, k=-1)
    manifold = kind(B=B)
    fun = Brockett.table(n, k) if kind is Stiefel else trace(np.diag(np.arange(1.0, n + 1)))
    saves(fun, manifold.random(n, k, seed=0), 0.6, manifold=manifold)


def test_single_precision():
    fun = Brockett.table(100, 4)

    def single(X):
        f, G = fun.value_and_gradient(X.astype(float))
        return f, G.astype(np.float32)

    x = stiefel.random_point(100, 4, seed=0).astype(np.float32)
    saves(single, x, part=0.6, rtol=1e-4)


@pytest.mark.parametrize("library", LIBRARIES, ids=str)
def test_every_library_needs_as_many_evaluations(library):
    pytest.importorskip({"strict": "array_api_strict"}.get(library.name, library.name))
    n, k = 60, 3
    x = stiefel.random_point(n, k, seed=0)
    a, w = np.arange(1.0, n + 1)[:, None] ** 2 / n, np.arange(1.0, k + 1)
    table = library.asarray(2.0 * a * w)
    xp = kernels_for(table).xp
    fun = lambda X: (0.5 * float(xp.sum(X * (table * X))), table * X)
    count = stiefel.minimize(fun, library.asarray(x), jac=True, rtol=1e-8).nfev
    assert count <= 1.1 * stiefel.minimize(Brockett.table(n, k), x, rtol=1e-8).nfev


# -- what it does not touch -------------------------------------------------------------------


def columns_apart(n, k):
    A = [hermitian(n, np.geomspace(1.0, 100.0, n), i) for i in range(k)]

    def fun(X):
        G = np.stack([a @ x for a, x in zip(A, X.T, strict=True)], axis=1)
        return 0.5 * float(np.vdot(X, G)), G

    return fun


def complex_quartic(n):
    a = np.linspace(1.0, 5.0, n)[:, None]

    def fun(X):
        square = np.abs(X) ** 2
        return float((a * square).sum() + n * (square**2).sum()), 2 * a * X + 4 * n * square * X

    return fun


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
    "linear": (linear(40, 4), (40, 4), {}),
    "complex quartic": (complex_quartic(40), (40, 4), {"dtype": complex}),
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


def test_preconditioners_stay_off():
    problem, x = problem_of(Brockett.table(20, 3), stiefel.random_point(20, 3, seed=0), Stiefel())
    assert AUTO.init(problem, x).rows.looking is not None
    problem = replace(problem, precond=lambda X, G, aux: G)
    assert AUTO.init(problem, x).rows == GIVEN_UP


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


@pytest.mark.parametrize("name", ["Brockett", "Procrustes", "Kohn–Sham", "complex", "at rest"])
def test_a_resumed_run_has_the_same_bits(tmp_path, name):
    others = {
        "Procrustes": procrustes(90, 80, 4, 10.0),
        "Kohn–Sham": KohnSham(80, 1.0),
        "at rest": far_from_convex(80, 4, 1e3),
    }
    fun = others.get(name, Brockett.table(80, 4))
    x = stiefel.random_point(80, 4, seed=0, dtype=complex if name == "complex" else float)
    known = {"rtol": 1e-9, "options": {"cost": "dear"}}  # so that small spans are modelled
    whole = stiefel.minimize(fun, x, **known)
    for cut in (2, 4, 9, 30):
        path = tmp_path / f"{cut}.npz"
        stiefel.minimize(fun, x, **known, maxiter=cut, checkpoint=path)
        rest = stiefel.minimize(fun, x, **known, checkpoint=path, resume=True)
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


@pytest.mark.parametrize("seed", [42, 86, 139, 394])
def test_a_step_without_curvature_in_a_column_ends_no_run(seed):
    """σ must lie above all c: where a column's newest y is rounding, its own bound is c itself."""
    rng = np.random.default_rng(seed)
    n, k = [(6, 2), (8, 3), (5, 2), (7, 1), (12, 4), (6, 5)][seed % 6]
    A = rng.standard_normal((n, n))
    A = A + A.T
    start = np.linalg.eigh(A)[1][:, rng.permutation(n)[:k]]  # a saddle, mostly
    fun = lambda X: (float(np.vdot(X, A @ X)), 2 * A @ X)
    result = stiefel.minimize(fun, start, escape=True, seed=seed)
    assert result.success
    assert result.fun == pytest.approx(np.linalg.eigvalsh(A)[:k].sum(), rel=1e-6)
