"""Many problems at once: the branch-free solver against the scalar one, and its promises."""

import io
from dataclasses import replace

import numpy as np
import pytest

import stiefel
from cases import PROBLEMS
from stiefel.batched.kernels import jacobi
from stiefel.batched.libraries import kernels_of
from stiefel.batched.numpy_many import NumpyMany, side_by_side
from stiefel.batched.result import ManyProgress
from stiefel.batched.search import MaskedSearch
from stiefel.geometry.metric import mean_metric, spread, surely_near
from stiefel.solvers import METHODS, memory
from stiefel.solvers.wolfe import back_to_cubic

RNG = np.random.default_rng


def brockett(count, n=12, k=3, seed=0, condition=1e3, scales=1e3):
    """Matrices of growing condition and of shuffled scales, with weights and starts."""
    rng = RNG(seed)
    sizes = rng.permutation(np.geomspace(1 / scales, scales, count))
    A = np.empty((count, n, n))
    for b, cond in enumerate(np.geomspace(1.1, condition, count)):
        Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
        A[b] = sizes[b] * (Q * np.geomspace(1, cond, n)) @ Q.T
    return A, np.arange(k, 0, -1.0), stiefel.Stiefel().random(count, n, k, seed=seed + 1)


def many(A, weights):
    def fun(X, index):
        AX = A[index] @ X * weights
        return np.einsum("bij,bij->b", X, AX), 2 * AX

    return fun


def one(A, weights):
    def fun(X):
        AX = A @ X * weights
        return float(np.vdot(X, AX)), 2 * AX

    return fun


def alone(A, weights, x0, **options):
    options["method"] = replace(METHODS["auto"], rows=None)  # a batch has no row model
    return [stiefel.minimize(one(a, weights), x, **options) for a, x in zip(A, x0)]


@pytest.fixture
def searching(monkeypatch):
    """Functions tr(XᵀAXM) are minimised like any other; test_many_quadratic.py is about them."""
    monkeypatch.setattr("stiefel.batched.many.recognisable", lambda border, x: False)


@pytest.fixture(params=["compiled", "arrays"])
def either(request, monkeypatch):
    """With the compiled kernels, where they are installed, and without them."""
    if request.param == "arrays":
        monkeypatch.setattr(kernels_of(np.zeros(1)), "compiled", None)
    elif kernels_of(np.zeros(1)).compiled is None:
        pytest.skip("the compiled kernels are not installed")


def test_evaluations_and_minima_are_those_of_the_scalar_solver(searching, either, monkeypatch):
    monkeypatch.setattr(memory, "ROOM_OF_MATRIX", 0)  # as many pairs as a batch keeps
    A, weights, x0 = brockett(40)
    found = stiefel.minimize_many(many(A, weights), x0, rtol=1e-8)
    single = alone(A, weights, x0, rtol=1e-8)
    counts = np.array([r.nfev for r in single])
    assert found.success.all()
    assert abs(found.nfev.sum() / counts.sum() - 1) < 0.1
    assert found.nfev.max() <= 1.3 * counts.max()
    assert found.calls == found.nfev.max()
    np.testing.assert_allclose(found.fun, [r.fun for r in single], rtol=1e-9)


def test_steps_are_shortened_by_the_cubic_of_the_scalar_search():
    """From the start, and from the longest step that fell enough; NaN where there is no minimum."""
    rng, count = RNG(3), 200
    width, slope = rng.uniform(0.1, 2.0, count), -rng.uniform(0.1, 2.0, count)
    rise, end = rng.uniform(-0.3, 2.0, count), rng.uniform(-3.0, 3.0, count)
    search, fell = MaskedSearch(NumpyMany()), np.arange(count) % 2 == 1
    state = search.start(np.ones(count), np.ones(count))._replace(
        kept=0.1 * fell, rise=-0.05 * fell, slope=0.5 * slope * fell
    )
    found = search._back(state, width, slope, rise, end)
    lows = zip(np.where(fell, rise + 0.05, rise), np.where(fell, 0.5 * slope, slope), strict=True)
    expected = [back_to_cubic(w, r, s, e) for w, (r, s), e in zip(width, lows, end, strict=True)]
    assert 0 < np.isnan(expected).sum() < count
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_every_problem_of_the_test_set_takes_the_evaluations_of_the_scalar_solver(
    problem, searching, either, monkeypatch
):
    """The scalar one without row model and more pairs, which a batch does not have; four starts."""
    monkeypatch.setattr(memory, "ROOM_OF_MATRIX", 0)
    monkeypatch.setattr(memory, "ROOM_OF_REAL_VECTOR", 0)

    def fun(X):
        found = [problem.objective.value_and_gradient(x) for x in X]
        return np.array([float(f) for f, _ in found]), np.stack([g for _, g in found])

    options, rng = {"manifold": problem.manifold, "rtol": 1e-8}, np.random.default_rng(7)
    moved = (0.05 * rng.standard_normal(problem.start.shape) for _ in range(3))
    starts = [problem.start, *(problem.manifold.nearest(problem.start + d) for d in moved)]
    many = stiefel.minimize_many(fun, np.stack(starts), **options)
    method = replace(METHODS["auto"], rows=None)
    single = [stiefel.minimize(problem.objective, x, method=method, **options) for x in starts]
    assert all(run.success for run in single) and many.success.all()
    counts = np.array([run.nfev for run in single])
    assert abs(many.nfev.sum() - counts.sum()) <= 0.1 * counts.sum()
    assert abs(many.nfev - counts).max() <= 0.2 * counts.max()
    np.testing.assert_allclose(many.fun[0], single[0].fun, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("recognises", [True, False])
def test_status_is_true_from_outside(recognises, either, request):
    if not recognises:
        request.getfixturevalue("searching")
    A, weights, x0 = brockett(300, seed=3)
    found = stiefel.minimize_many(many(A, weights), x0, rtol=1e-7)
    _, first = many(A, weights)(x0, np.arange(300))
    values, last = many(A, weights)(found.x, np.arange(300))
    manifold = stiefel.Stiefel()
    norms = [
        (manifold.norm(x, manifold.project(x, g)), manifold.norm(y, manifold.project(y, h)))
        for x, g, y, h in zip(x0, first, found.x, last)
    ]
    assert found.success.all()
    assert all(end <= 1.001e-7 * start for start, end in norms)
    starts, ends = np.transpose(norms)
    assert np.all(abs(found.gradient_norm - ends) <= 1e-3 * ends + 1e-14 * starts)
    np.testing.assert_allclose(found.fun, values, rtol=1e-12)
    exact = np.sum(np.linalg.eigvalsh(A)[:, :3] * weights, axis=1)
    np.testing.assert_allclose(found.fun, exact, rtol=1e-8)
    assert found.feasibility.max() < 1e-14


def test_ended_problems_are_not_touched(searching, either):
    """Their points are the same to the last bit however long the others go on."""
    A, weights, x0 = brockett(64, seed=5)
    whole = stiefel.minimize_many(many(A, weights), x0, rtol=1e-8)
    tolerances = np.full(64, 1e-8)
    slowest = np.argsort(whole.nfev)[32:]
    tolerances[slowest] = 1e-12
    longer = stiefel.minimize_many(many(A, weights), x0, rtol=tolerances)
    done = np.setdiff1d(np.arange(64), slowest)
    assert longer.nfev.max() > whole.nfev.max()
    assert np.array_equal(whole.x[done], longer.x[done])


def test_a_function_that_is_not_told_the_index_sees_every_problem():
    A, weights, x0 = brockett(40)
    shapes = set()

    def fun(X):
        shapes.add(X.shape)
        AX = A @ X * weights
        return np.sum(X * AX, axis=(1, 2)), 2 * AX

    found = stiefel.minimize_many(fun, x0, rtol=1e-8)
    told = stiefel.minimize_many(many(A, weights), x0, rtol=1e-8)
    assert shapes == {x0.shape} and found.success.all()
    np.testing.assert_allclose(found.fun, told.fun, rtol=1e-10)


@pytest.mark.parametrize("factor", [2.0**40, 1e200, 1e-200])
def test_scale_of_one_problem_changes_nothing(factor, searching, either):
    A, weights, x0 = brockett(6, scales=1.0)
    plain = stiefel.minimize_many(many(A, weights), x0, rtol=1e-8)
    A[2] *= factor
    scaled = stiefel.minimize_many(many(A, weights), x0, rtol=1e-8)
    assert scaled.success.all()
    others = [0, 1, 3, 4, 5]
    assert np.array_equal(plain.x[others], scaled.x[others])
    assert abs(int(plain.nfev[2]) - int(scaled.nfev[2])) <= 0.1 * plain.nfev[2]


def test_trees_with_free_leaves_and_complex_matrices():
    rng = RNG(2)
    count, n, k = 20, 8, 2
    H = rng.standard_normal((count, n, n)) + 1j * rng.standard_normal((count, n, n))
    H = H + H.conj().mT
    target = rng.standard_normal((count, 3))
    start = {
        "basis": stiefel.Stiefel().random(count, n, k, seed=1, dtype=complex),
        "shift": np.zeros((count, 3)),
    }

    def fun(point, index):
        X, b = point["basis"], point["shift"]
        HX = H[index] @ X
        gap = b - target[index]
        value = np.sum((X.conj() * HX).real, axis=(1, 2)) + 50 * np.sum(gap**2, axis=1)
        return value, {"basis": 2 * HX, "shift": 100 * gap}

    manifold = {"basis": stiefel.Grassmann(), "shift": stiefel.Euclidean()}
    found = stiefel.minimize_many(fun, start, manifold=manifold, rtol=1e-9)
    assert found.success.all()
    np.testing.assert_allclose(found.x["shift"], target, atol=1e-6)
    np.testing.assert_allclose(found.fun, np.linalg.eigvalsh(H)[:, :k].sum(axis=1), rtol=1e-10)


def test_rotations_and_spheres(either):
    rng = RNG(4)
    M = rng.standard_normal((50, 3, 3))

    def kabsch(R):
        return -np.sum(M * R, axis=(1, 2)), -M

    start = np.broadcast_to(np.eye(3), M.shape).copy()
    found = stiefel.minimize_many(kabsch, start, manifold=stiefel.SpecialOrthogonal(), rtol=1e-9)
    assert found.success.all()
    np.testing.assert_allclose(np.linalg.det(found.x), 1.0)
    best = -np.sum(M * stiefel.SpecialOrthogonal().nearest(M), axis=(1, 2))
    assert np.mean(found.fun <= best + 1e-9) > 0.9  # local minima exist beside the global one

    A = rng.standard_normal((30, 6, 6))
    A = A + A.mT

    def rayleigh(x):
        Ax = np.einsum("bij,bj->bi", A, x)
        return np.sum(x * Ax, axis=1), 2 * Ax

    vectors = stiefel.Sphere().random(30, 6, seed=0)
    found = stiefel.minimize_many(rayleigh, vectors, manifold=stiefel.Sphere(), rtol=1e-9)
    assert found.success.all() and found.x.shape == (30, 6)
    np.testing.assert_allclose(found.fun, np.linalg.eigvalsh(A)[:, 0], rtol=1e-10)


def test_failure_is_data_for_each_problem(either):
    A, weights, x0 = brockett(5, scales=1.0)

    def fun(X, index):
        values, gradients = many(A, weights)(X, index)
        values = np.where(index == 1, np.nan, values)
        gradients = np.where((index == 3)[:, None, None], -gradients, gradients)  # uphill
        return values, gradients

    found = stiefel.minimize_many(fun, x0, rtol=1e-8)
    assert found.success.tolist() == [True, False, True, False, True]
    assert stiefel.Status(found.status[1]) is stiefel.Status.NOT_FINITE
    assert stiefel.Status(found.status[3]) is stiefel.Status.STEP_NOT_FOUND
    assert "3 of 5 problems solved" in repr(found) and "NOT_FINITE (1)" in found.message


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_a_trial_that_is_not_finite_is_shortened(library, searching, either):
    """What it leaves behind is zeros in the memory, not NaN."""
    xp = pytest.importorskip(library)
    A, weights, x0 = brockett(5, scales=1.0, condition=20)
    A, weights, calls = xp.asarray(A), xp.asarray(weights), []

    def fun(X, index):
        calls.append(len(index))
        AX = A[index] @ X * weights
        values = (X * AX).sum(axis=(1, 2))
        if len(calls) in (6, 9):
            values[1], AX[1] = np.nan, np.nan
        return values, 2 * AX

    found = stiefel.minimize_many(fun, xp.asarray(x0), jac=True, rtol=1e-8)
    assert bool(found.success.all())


def test_limits(searching):
    A, weights, x0 = brockett(8)
    few = stiefel.minimize_many(many(A, weights), x0, rtol=1e-8, maxiter=7)
    assert set(map(stiefel.Status, few.status)) == {stiefel.Status.MAX_ITERATIONS}
    assert few.nit.tolist() == [7] * 8
    few = stiefel.minimize_many(many(A, weights), x0, rtol=1e-8, maxfun=9)
    assert few.calls == 9 and few.nfev.tolist() == [9] * 8
    assert set(map(stiefel.Status, few.status)) == {stiefel.Status.MAX_EVALUATIONS}
    late = stiefel.minimize_many(many(A, weights), x0, rtol=1e-8, maxtime=1e-9)
    assert set(map(stiefel.Status, late.status)) == {stiefel.Status.MAX_TIME}


def test_near_rounding_it_ends_and_says_so(either):
    A, weights, x0 = brockett(10, scales=1.0)
    found = stiefel.minimize_many(many(A, weights), x0, rtol=1e-30)
    assert not found.success.any()
    assert set(map(stiefel.Status, found.status)) <= {
        stiefel.Status.ROUNDING_LIMIT,
        stiefel.Status.STEP_NOT_FOUND,
    }
    first = stiefel.minimize_many(many(A, weights), x0, maxiter=0).gradient_norm
    assert (found.gradient_norm <= 1e-12 * first).all()


def test_noise_of_f_is_survived(either):
    A, weights, x0 = brockett(10, scales=1.0, condition=10)
    rng = RNG(0)

    def noisy(X, index):
        values, gradients = many(A, weights)(X, index)
        return values * (1 + 1e-9 * rng.standard_normal(len(index))), gradients

    assert stiefel.minimize_many(noisy, x0, rtol=1e-8).success.all()


def test_messages_teach():
    A, weights, x0 = brockett(4)
    with pytest.raises(ValueError, match="the first axis counts problems"):
        stiefel.minimize_many(many(A, weights), x0[0])
    with pytest.raises(TypeError, match=r"expected an array of shape \(4,\)"):
        stiefel.minimize_many(lambda X: (1.0, X), x0)
    with pytest.raises(TypeError, match="return the gradients too"):
        stiefel.minimize_many(lambda X: np.zeros(4), x0)
    with pytest.raises(TypeError, match=r"an array of shape \(4,\)"):
        stiefel.minimize_many(many(A, weights), x0, rtol=np.ones(3))
    with pytest.raises(ValueError, match="not orthonormal"):
        stiefel.minimize_many(many(A, weights), 2 * x0)
    with pytest.raises(TypeError, match=r"returned a tuple of 3; expected the tuple \(values"):
        stiefel.minimize_many(lambda X: (np.zeros(4), X, None), x0)


@pytest.mark.parametrize(
    "limit",
    [{"maxfun": 2.5}, {"maxfun": True}, {"maxfun": 0}, {"maxiter": 1.5}, {"maxiter": -1}]
    + [{"maxtime": value} for value in (0, -1, np.nan, "3")],
)
def test_limits_that_mean_nothing_are_refused(limit):
    A, weights, x0 = brockett(2)
    with pytest.raises((TypeError, ValueError)):
        stiefel.minimize_many(many(A, weights), x0, **limit)


def test_progress_counts_problems():
    stream = io.StringIO()
    line = ManyProgress(200, stream)
    line.show(50, 12)
    line.close("200 of 200 problems solved")
    assert stream.getvalue() == (
        "[ 25 %] 50 of 200 problems have ended, 12 calls of fun\n200 of 200 problems solved\n"
    )


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("dtype", [float, complex])
def test_rotations_of_jacobi_diagonalise(size, dtype):
    rng, k = RNG(size), NumpyMany()
    A = rng.standard_normal((400, size, size)).astype(dtype)
    if dtype is complex:
        A = A + 1j * rng.standard_normal(A.shape)
    A = A + A.conj().mT
    values, vectors = jacobi(k, side_by_side(A))
    rebuilt = np.asarray(vectors * values[..., None, :]) @ np.asarray(vectors).conj().mT
    np.testing.assert_allclose(rebuilt, A, atol=1e-5)
    np.testing.assert_allclose(np.sort(values), np.linalg.eigvalsh(A), atol=1e-10)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("dtype", [float, complex])
def test_a_metric_that_is_surely_near_is_near(size, dtype):
    """The mean is not computed where traces say enough, which they nearly always do."""
    rng, k, count = RNG(size), NumpyMany(), 2000

    def definite(spread):
        A = rng.standard_normal((count, size, size)).astype(dtype)
        A = A + 1j * rng.standard_normal(A.shape) if dtype is complex else A
        values = np.exp(spread * rng.standard_normal((count, 1, size)))
        Q = np.linalg.qr(A)[0]
        return Q, values

    Q, values = definite(1.0)
    D = (Q * values) @ Q.conj().mT
    P = (Q * np.exp(rng.standard_normal(values.shape))) @ Q.conj().mT
    U, noise = definite(0.4)
    inverse = np.linalg.inv(D) @ ((U * noise) @ U.conj().mT)
    R = inverse @ P @ inverse.conj().mT  # D is their mean, nearly
    P, R, D = map(side_by_side, (P, R, D))
    ratio = np.full(count, 3.0)
    far = spread(k, mean_metric(k, P, R, 1e6), D) > ratio
    sure = surely_near(k, P, R, D, ratio)
    assert not np.any(sure & far)
    assert np.sum(sure) > 0.5 * np.sum(~far) > 0
    assert np.sum(far) > 0


def test_gradients_beyond_the_range_of_single_precision():
    """Pairs of NumPy are in single precision, and scaled: 1e-60 is no less than 1e-6."""
    weights = np.geomspace(1, 1e3, 20)

    def fun(x):
        return np.sum(weights * (x**2 + x**4), axis=1), weights * (2 * x + 4 * x**3)

    def counts(rtol):
        start = RNG(0).standard_normal((5, 20))
        found = stiefel.minimize_many(fun, start, manifold=stiefel.Euclidean(), rtol=rtol)
        assert found.success.all()
        return found.nfev.mean()

    assert counts(1e-45) < 1.3 * (counts(1e-15) + counts(1e-30))


def test_torch_gives_the_same_minima(searching):
    torch = pytest.importorskip("torch")
    A, weights, x0 = brockett(20)
    B, w = torch.as_tensor(A), torch.as_tensor(weights)

    def fun(X):
        return (X * (B @ X) * w).sum(dim=(1, 2))

    found = stiefel.minimize_many(fun, torch.as_tensor(x0), rtol=1e-8)
    numpy = stiefel.minimize_many(many(A, weights), x0, rtol=1e-8)
    assert bool(found.success.all()) and isinstance(found.x, torch.Tensor)
    np.testing.assert_allclose(found.fun.numpy(), numpy.fun, rtol=1e-9)
    assert abs(int(found.nfev.sum()) / int(numpy.nfev.sum()) - 1) < 0.1


@pytest.mark.slow
def test_ten_thousand_problems():
    A, weights, x0 = brockett(10_000, seed=7)
    found = stiefel.minimize_many(many(A, weights), x0, rtol=1e-6)
    assert found.success.all()
    exact = np.sum(np.linalg.eigvalsh(A)[:, :3] * weights, axis=1)
    np.testing.assert_allclose(found.fun, exact, rtol=1e-5)


@pytest.mark.parametrize("power", [0.0, 1.0])
def test_a_function_may_change_the_tensors_that_it_sees(power):
    """They are copies: the solver's own tensors were changed, and no problem was solved."""
    torch = pytest.importorskip("torch")
    A = torch.as_tensor(np.random.default_rng(0).standard_normal((5, 8, 8)))
    X0 = torch.stack([torch.as_tensor(stiefel.random_point(8, 2, seed=i)) for i in range(5)])

    def fun(X):
        AX = (A + A.mT)[: len(X)] @ X
        return (X * AX + power * X**4).sum((1, 2)), 2 * AX + 4 * power * X**3

    def hostile(X):
        found = fun(X)
        X.zero_()
        return found

    expected = stiefel.minimize_many(fun, X0, jac=True)
    result = stiefel.minimize_many(hostile, X0, jac=True)
    assert result.success.all()
    assert torch.equal(result.x, expected.x)
