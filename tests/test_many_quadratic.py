"""Functions tr(XᵀAXM) of a batch: recognised from a few gradients, and no others."""

import numpy as np
import pytest

import stiefel
from stiefel.batched import quadratic
from stiefel.batched.border import border_of
from stiefel.batched.libraries import kernels_of
from stiefel.batched.many import _solver, recognisable
from stiefel.batched.numpy_many import side_by_side
from stiefel.batched.quadratic import (
    completed,
    evaluations_needed,
    fits,
    points_needed,
    recognised,
    symmetrising_columns,
)

RNG = np.random.default_rng


@pytest.fixture(params=["compiled", "arrays"], autouse=True)
def either(request, monkeypatch):
    """With the compiled kernels, where they are installed, and without them."""
    if request.param == "arrays":
        monkeypatch.setattr(kernels_of(np.zeros(1)), "compiled", None)
    elif kernels_of(np.zeros(1)).compiled is None:
        pytest.skip("the compiled kernels are not installed")


def matrices(count, n, seed=0, condition=100.0):
    rng = RNG(seed)
    Q = np.linalg.qr(rng.standard_normal((count, n, n)))[0]
    return (Q * np.geomspace(-1.0, -condition, n)[::-1]) @ Q.mT + 0.3 * condition * np.eye(n)


def trace_function(A, M, extra=None):
    """½ tr(XᵀAXM), and what `extra` adds."""

    def fun(X, index):
        E = A[index] @ X @ M
        f = 0.5 * np.sum(X * E, axis=(1, 2))
        if extra is None:
            return f, E
        more, gradient = extra(X)
        return f + more, E + gradient

    return fun


def lowest(A, M):
    """The minimum, by eigenvalues: the largest of M with the lowest of A, signs of M minded."""
    mu, values = np.sort(np.linalg.eigvalsh(M))[::-1], np.linalg.eigvalsh(A)
    n, k = A.shape[-1], len(mu)
    pairs = [values[:, i] if m > 0 else values[:, n - k + i] for i, m in enumerate(mu)]
    return 0.5 * sum(m * v for m, v in zip(mu, pairs))


WEIGHTS = {
    "rising": np.diag([1.0, 2.0, 3.0]),
    "full": np.array([[2.0, 0.5, 0.1], [0.5, 1.0, 0.2], [0.1, 0.2, 3.0]]),
    "equal": np.eye(3),
    "signs": np.diag([2.0, -1.0, 1.0]),
    "two equal": np.diag([2.0, 1.0, 1.0]),
    "one column": np.eye(1),
    "five columns": np.diag([5.0, 4.0, 3.0, 2.0, 1.0]),
}


@pytest.mark.parametrize("name", WEIGHTS)
@pytest.mark.parametrize("n", [6, 12, 13])
def test_the_minimum_is_found_in_few_evaluations(name, n):
    M = WEIGHTS[name]
    A, k = matrices(30, n, seed=n), len(M)
    x0 = stiefel.Stiefel().random(30, n, k, seed=1)
    found = stiefel.minimize_many(trace_function(A, M), x0, rtol=1e-8)
    assert found.success.all() and found.feasibility.max() < 1e-14
    np.testing.assert_allclose(found.fun, lowest(A, M), rtol=1e-9, atol=1e-9 * np.abs(A).max())
    assert np.all(found.nfev == evaluations_needed(n, k))


def test_functions_of_the_span():
    A = matrices(20, 10)
    x0 = stiefel.Stiefel().random(20, 10, 2, seed=1)
    fun = trace_function(A, np.eye(2))
    for manifold in (stiefel.Stiefel(), stiefel.Grassmann()):
        found = stiefel.minimize_many(fun, x0, manifold=manifold, rtol=1e-9)
        assert found.success.all() and found.nfev.max() <= evaluations_needed(10, 2) + 1
        np.testing.assert_allclose(found.fun, lowest(A, np.eye(2)), rtol=1e-10)


def test_equal_weights_leave_the_nearest_basis():
    """`EQUAL_M`: without it the basis of the lowest space is one of many, as rounding chose it."""
    A = matrices(10, 9)
    x = stiefel.Stiefel().random(10, 9, 2, seed=3)
    points = completed(x)
    Y, known, _ = recognised(points, A[:, None] @ points)
    assert known.all()
    for y, near in zip(Y, x):
        np.testing.assert_allclose(y.T @ near, (y.T @ near).T, atol=1e-10)  # symmetric, positive
        assert np.linalg.eigvalsh(y.T @ near).min() > 0


EXTRAS = {
    "quartic": lambda X: (np.sum(X**4, axis=(1, 2)), 4 * X**3),
    "slightly quartic": lambda X: (1e-4 * np.sum(X**4, axis=(1, 2)), 4e-4 * X**3),
    "linear": lambda X: (np.sum(X[:, 0], axis=1), np.eye(12, 1) + 0.0 * X),
}


@pytest.mark.parametrize("name", EXTRAS)
def test_other_functions_are_minimised_as_ever(name, monkeypatch):
    """`GATE`: they are not taken for what they are not, and cost no evaluation more."""
    A, M = matrices(20, 12), WEIGHTS["rising"]
    x0 = stiefel.Stiefel().random(20, 12, 3, seed=1)
    fun = trace_function(A, M, EXTRAS[name])
    found = stiefel.minimize_many(fun, x0, rtol=1e-8)
    monkeypatch.setattr("stiefel.batched.many.recognisable", lambda border, x: False)
    searched = stiefel.minimize_many(fun, x0, rtol=1e-8)
    assert found.success.all() and np.array_equal(found.nfev, searched.nfev)
    assert np.array_equal(found.x, searched.x)


def test_a_target_is_taken_only_where_f_is_lower():
    """Values that do not belong to the gradients: the search goes on where it was."""
    A, M = matrices(6, 12), WEIGHTS["rising"]
    x0 = stiefel.Stiefel().random(6, 12, 3, seed=1)
    seen = []

    def fun(X, index):
        f, E = trace_function(A, M)(X, index)
        seen.append(X.copy())
        return f + 1e3 * (len(seen) == evaluations_needed(12, 3)), E

    found = stiefel.minimize_many(fun, x0, rtol=1e-8)
    assert found.success.all() and found.calls > evaluations_needed(12, 3) + 3
    assert np.array_equal(seen[1], seen[evaluations_needed(12, 3)])  # the trial that waited
    np.testing.assert_allclose(found.fun, lowest(A, M), rtol=1e-9, atol=1e-7)


@pytest.mark.parametrize("ended", [False, True])
def test_a_target_that_is_refused_is_no_arrival(ended):
    """Of a problem whose next evaluation was to be at x itself; and none leaps that has ended."""
    A, M = matrices(3, 6), np.diag([2.0, 1.0])
    x0, Y = (stiefel.Stiefel().random(3, 6, 2, seed=i) for i in (1, 2))
    border = border_of(x0, None)
    solver = _solver(border, (x0,), 1e-8, 0.0, 0.0, 100, None, None)
    fun, all_ = trace_function(A, M), np.arange(3)

    def evaluate(X):
        f, E = fun(np.array(X[0]), all_)
        return f + (0.0 if ended else 1e3 * (np.abs(np.asarray(X[0]) - Y).max() < 1e-12)), (E,)

    s = solver.step(evaluate, solver.init((side_by_side(x0),)))
    leaps = s.model._replace(target=side_by_side(Y), leaps=~s.fresh, count=np.intp(4))
    s = s._replace(model=leaps, fresh=~s.fresh, status=0 * s.status if ended else s.status)
    after = solver.step(evaluate, s)
    assert np.array_equal(np.asarray(after.x[0]), x0) and after.fresh.all()
    assert not after.model.leaps.any() or ended


@pytest.mark.parametrize("when", [2, 3, 6])
def test_values_that_are_not_finite_among_the_points_and_at_the_target(when):
    A, M = matrices(6, 12), WEIGHTS["rising"]
    x0 = stiefel.Stiefel().random(6, 12, 3, seed=1)
    calls = []

    def fun(X, index):
        calls.append(len(index))
        f, E = trace_function(A, M)(X, index)
        if len(calls) == when:
            f[index == 2], E[index == 2] = np.nan, np.nan
        return f, E

    found = stiefel.minimize_many(fun, x0, rtol=1e-8)
    assert found.success.all()
    np.testing.assert_allclose(found.fun, lowest(A, M), rtol=1e-9, atol=1e-7)


def test_points_complete_the_start():
    """Whatever the start is; the last point repeats columns of it where k does not divide n."""
    for n, k in ((6, 2), (7, 3), (4, 3), (5, 1)):
        x = stiefel.Stiefel().random(4, n, k, seed=1)
        x[1] = np.eye(n, k)
        points = completed(x)
        assert points.shape == (4, points_needed(n, k), n, k) and np.array_equal(points[:, 0], x)
        Q = points.transpose(0, 2, 1, 3).reshape(4, n, -1)
        np.testing.assert_allclose(
            Q[..., :n] @ Q[..., :n].mT, np.stack([np.eye(n)] * 4), atol=1e-14
        )
        np.testing.assert_allclose(
            points.mT @ points, np.eye(k) + 0.0 * points.mT @ points, atol=1e-14
        )


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_matrices_of_low_rank(rank):
    """Descents stay in few rows, which show little of A; and most of its values are equal."""
    F = RNG(rank).standard_normal((50, 24, rank))
    A, M = -(F @ F.mT), np.diag([3.0, 2.0, 1.0])
    x0 = stiefel.Stiefel().random(50, 24, 3, seed=2)
    found = stiefel.minimize_many(trace_function(A, M), x0, rtol=1e-9)
    assert found.success.all() and found.nfev.max() <= evaluations_needed(24, 3)
    np.testing.assert_allclose(found.fun, lowest(A, M), rtol=1e-10)


def test_many_points_wait_for_the_search():
    """`FEW_POINTS`: an easy problem ends before, a hard one costs twice the points at most."""
    n = 30
    assert points_needed(n, 1) > quadratic.FEW_POINTS
    Q = np.linalg.qr(RNG(1).standard_normal((20, n, n)))[0]
    x0 = stiefel.Stiefel().random(20, n, 1, seed=3)
    easy, hard = ((Q * values) @ Q.mT for values in (np.arange(n) > 0, np.geomspace(1, 1e4, n)))
    quick = stiefel.minimize_many(trace_function(easy, np.eye(1)), x0, rtol=1e-8)
    slow = stiefel.minimize_many(trace_function(hard, np.eye(1)), x0, rtol=1e-8)
    assert quick.success.all() and slow.success.all()
    assert quick.nfev.max() < n < slow.nfev.min() and slow.nfev.max() <= 2 * n + 2


def test_few_evaluations_are_left_to_the_search():
    """Points that complete a basis are no progress: with few evaluations none is spent on them."""
    A, M = matrices(6, 12), WEIGHTS["rising"]
    x0 = stiefel.Stiefel().random(6, 12, 3, seed=1)
    most = evaluations_needed(12, 3)
    few, enough = (
        stiefel.minimize_many(trace_function(A, M), x0, rtol=1e-8, maxfun=maxfun)
        for maxfun in (most - 1, most)
    )
    start = trace_function(A, M)(x0, np.arange(6))[0]
    assert np.all(few.fun < start) and not few.success.any() and few.nfev.max() == most - 1
    assert enough.success.all()


def test_the_step_after_a_target_is_short():
    """γ is the inverse of the largest curvature: the target expects little of one more step."""
    A, M = matrices(6, 12), WEIGHTS["rising"]
    x0 = stiefel.Stiefel().random(6, 12, 3, seed=1)
    found = stiefel.minimize_many(trace_function(A, M), x0, rtol=1e-8)
    spans = np.ptp(np.linalg.eigvalsh(A), axis=1) * np.diag(M).max()
    bound = found.gradient_norm**2 / spans
    assert np.all(found.expected_decrease <= 2.0 * bound)


def test_hostile_points_give_no_target():
    points = completed(stiefel.Stiefel().random(6, 8, 2, seed=0))
    A = matrices(6, 8)
    E = A[:, None] @ points @ np.diag([2.0, 1.0])
    E[1] = 0.0
    E[2, 3] = np.nan
    E[3] = np.inf
    E[4] = E[4] @ np.diag([1.0, 0.0])  # M is singular
    _, known, _ = recognised(points, E)
    assert known.tolist() == [True, False, False, False, False, True]


def test_the_equations_have_the_solution_that_they_were_made_of():
    A, M = matrices(5, 9), WEIGHTS["full"]
    for points in (
        stiefel.Stiefel().random(5, 2, 9, 3, seed=0),
        completed(stiefel.Stiefel().random(5, 9, 3, seed=0)),
    ):
        E = A[:, None] @ points @ M
        D, K, left = symmetrising_columns(points.mT, E.mT)
        product = D @ M
        scale = product[:, :1, :1]
        np.testing.assert_allclose(product / scale, np.broadcast_to(np.eye(3), D.shape), atol=1e-10)
        assert left.max() < 1e-14 and fits(points, E).all()
        tall = points.mT.reshape(5, -1, 9)
        np.testing.assert_allclose(K / scale, tall @ A @ tall.mT, atol=1e-9 * np.abs(A).max())


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_the_compiled_recognition_is_the_same(k):
    compiled = pytest.importorskip("stiefel.backends._compiled")
    n, count = 9, 21
    rng = RNG(k)
    A = matrices(count, n, seed=k)
    M = np.diag(rng.uniform(0.5, 3.0, k) * np.where(np.arange(k) == 2, -1.0, 1.0))
    x, trial = (stiefel.Stiefel().random(count, n, k, seed=i) for i in (k, k + 9))
    E, scale = A @ trial @ M, 2.0 ** rng.integers(-3, 3, count)
    E[3] += 0.1 * trial[3] ** 3
    E[5, 1] = np.nan
    E /= scale[:, None, None]
    G = A @ x @ M
    fit = fits(np.stack([x, trial], axis=1), np.stack([G, scale[:, None, None] * E], axis=1))
    points = np.zeros((points_needed(n, k), n, k, count))
    points[0] = last(x)
    flags = np.empty(count, dtype=bool)
    compiled.batch_points(points, last(G), last(trial), E, scale, quadratic.GATE, flags)
    assert np.array_equal(flags, fit) and fit.sum() == count - 2
    whole = np.moveaxis(points, -1, 0)
    assert np.array_equal(whole[:, 0], x)
    Q = whole.transpose(0, 2, 1, 3).reshape(count, n, -1)[..., :n]
    np.testing.assert_allclose(Q @ Q.mT, np.eye(n) + 0.0 * Q, atol=1e-13)

    E = A[:, None] @ whole @ M
    E[3] += 0.1 * whole[3] ** 3
    E[5, 1] = np.nan
    Y, known, gamma = recognised(whole, E)
    got, curvature = np.zeros((n, k, count)), np.zeros(count)
    gates = quadratic.GATE, quadratic.EQUAL_M
    compiled.batch_recognise(points, last(E), *gates, got, curvature, flags)
    assert np.array_equal(flags, known) and known.sum() == count - 2
    np.testing.assert_allclose(np.moveaxis(got, -1, 0)[known], Y[known], atol=1e-8)
    np.testing.assert_allclose(curvature[known], gamma[known], rtol=1e-10)


def last(a):
    return np.ascontiguousarray(np.moveaxis(a, 0, -1))


def test_where_it_is_looked_for():
    """Only small real matrices of NumPy; a square matrix could be turned inside out."""
    A, M = matrices(4, 3), np.eye(3)
    x0 = np.broadcast_to(np.eye(3), (4, 3, 3)).copy()
    found = stiefel.minimize_many(
        trace_function(A, M + np.diag([0.1, 0.2, 0.3])), x0, manifold=stiefel.SpecialOrthogonal()
    )
    np.testing.assert_allclose(np.linalg.det(found.x), 1.0)
    n = quadratic.LARGEST_N + 1
    for size, dtype, looked_for in ((n - 1, float, True), (n, float, False), (9, complex, False)):
        x0 = np.zeros((2, size, 2), dtype)
        assert recognisable(border_of(x0, None), (x0,)) is looked_for


@pytest.mark.parametrize(("n", "k"), [(2, 1), (6, 4), (8, 3)])
def test_starts_at_the_wrong_end_stay_on_the_manifold(n, k):
    """Targets are orthogonal to x there: the rotation nearest to it is a matter of rounding."""
    A = np.random.default_rng(0).standard_normal((200, n, n))
    A = A + A.mT
    x0 = np.ascontiguousarray(np.linalg.eigh(A)[1][:, :, -k:])

    def fun(X, index):
        AX = A[index] @ X
        return np.sum(X * AX, axis=(1, 2)), 2 * AX

    found = stiefel.minimize_many(fun, x0)
    defects = np.linalg.norm(found.x.mT @ found.x - np.eye(k), axis=(1, 2))
    assert defects.max() < 1e-12
