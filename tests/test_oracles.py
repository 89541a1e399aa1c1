"""The oracles against each other, against SciPy, and against the equations that define them."""

from itertools import islice, pairwise

import numpy as np
import pytest
import scipy.linalg

import oracles as o

FIELDS = [float, complex]
SHAPES = [(7, 1), (7, 3), (4, 3), (3, 3)]


def close(a, b, tolerance=1e-11):
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def relative_difference(a, b):
    return np.linalg.norm(np.asarray(a) - b) / np.linalg.norm(b)


@pytest.fixture(params=FIELDS, ids=["real", "complex"])
def dtype(request):
    return request.param


@pytest.fixture(params=SHAPES, ids=str)
def case(request, dtype):
    """(rng, X, B): B positive definite and X^H B X = I."""
    n, k = request.param
    rng = np.random.default_rng([n, k, dtype is complex])
    B = o.random_positive(rng, n, dtype)
    return rng, o.random_point(rng, n, k, dtype, B=B), B


@pytest.fixture
def standard(case):
    rng, X, _ = case
    return rng, o.random_point(rng, *X.shape, X.dtype)


# Random data


def test_random_points_are_polar_factors(standard):
    _, X = standard
    n, k = X.shape
    Z = o.gaussian(np.random.default_rng(3), n, k, dtype=X.dtype)
    close(o.random_point(np.random.default_rng(3), n, k, X.dtype), scipy.linalg.polar(Z)[0])
    assert X.dtype == Z.dtype
    assert o.defect(X) < 1e-13


def test_random_points_with_B_satisfy_the_constraint(case):
    _, X, B = case
    assert o.defect(X, B) < 1e-13
    assert np.linalg.norm(B - np.eye(len(B))) > 1
    for how in ("sqrt", "cholesky"):
        T, T_inverse = o.standardise(B, how)
        close(o.adjoint(T) @ T, B)
        close(T @ T_inverse, np.eye(len(B)))


def test_random_near_is_at_its_distance(case):
    rng, X, B = case
    Y = o.random_near(rng, X, 1e-3, B=B)
    assert o.defect(Y, B) < 1e-13
    V = Y - X  # nearly tangent
    close(np.sqrt(o.inner_tangent(X, V, V, B=B)), 1e-3, 1e-5)


# Metric, projection, raising and lowering


def test_bases_have_the_dimension_of_the_manifold(case):
    _, X, B = case
    n, k = X.shape
    dimension = 2 * n * k - k * k if X.dtype == complex else n * k - k * (k + 1) // 2
    for V in (tangents := o.tangent_basis(X, B)):
        close(o.adjoint(V) @ B @ X + o.adjoint(X) @ B @ V, 0)
    for W in (cotangents := o.cotangent_basis(X, B)):
        close(o.adjoint(W) @ X + o.adjoint(X) @ W, 0)
    assert len(tangents) == len(cotangents) == dimension


def test_projections_by_formula_and_by_brute_force(case, standard):
    rng, X, B = case
    W = o.gaussian(rng, *X.shape, dtype=X.dtype)
    close(o.project(X, W, B=B), o.project_bruteforce(X, W, B))
    close(o.project(X, W, B=B), o.project(X, W, B=B, how="cholesky"))
    S = o.adjoint(X) @ W
    close(o.project(X, W, B=B), W - B @ X @ (S + o.adjoint(S)) / 2)
    _, X = standard
    close(o.project(X, W), o.project_bruteforce(X, W))
    close(o.project(X, W), o.project_tangent_bruteforce(X, W))
    close(o.project_tangent(X, W), o.project_tangent_bruteforce(X, W))


def test_raising_by_formula_and_by_its_definition(case, standard):
    rng, X, B = case
    W = o.gaussian(rng, *X.shape, dtype=X.dtype)
    V = o.raise_index(X, W, B=B)
    close(V, o.raise_bruteforce(X, W, B))
    close(V, o.raise_index(X, W, B=B, how="cholesky"))
    close(V, np.linalg.solve(B, W) - X @ o.adjoint(W) @ X)
    close(o.lower_index(X, V, B=B), o.project(X, W, B=B))
    _, X = standard
    close(o.raise_index(X, W), o.raise_bruteforce(X, W))
    close(o.raise_index(X, W), W - X @ o.adjoint(W) @ X)


def test_inner_products_agree_through_raising(case):
    rng, X, B = case
    W, G = o.random_cotangent(rng, X, B), o.random_cotangent(rng, X, B)
    V, Z = o.raise_index(X, W, B=B), o.raise_index(X, G, B=B)
    close(o.inner_dual(X, W, G, B=B), o.inner_tangent(X, V, Z, B=B))
    close(o.inner_dual(X, W, G, B=B), o.pair(W, Z))
    close(o.inner_dual(X, W, G, B=B), o.pair(W, o.dual_metric_matrix(X, B) @ G))
    close(o.inner_tangent(X, V, Z, B=B), o.pair(V, o.metric_matrix(X, B) @ Z))
    close(o.metric_matrix(X, B), B - B @ X @ o.adjoint(X) @ B / 2)
    close(o.dual_metric_matrix(X, B), np.linalg.inv(B) + X @ o.adjoint(X))
    close(o.norm_dual(X, W, B=B) ** 2, o.inner_dual(X, W, W, B=B))
    # the normal part may be left in one of the two arguments, not in both
    N = B @ X @ o.random_hermitian(rng, X.shape[1], X.dtype)
    close(o.inner_dual(X, W, G + N, B=B), o.inner_dual(X, W, G, B=B))


# Geodesics and the Cayley retraction


def test_geodesics_for_tangents_and_cotangents(case):
    rng, X, B = case
    W = o.gaussian(rng, *X.shape, dtype=X.dtype)
    V = o.raise_index(X, W, B=B)
    for t in (0.0, 0.3, -1.2):
        Y = o.geodesic(X, V, t, B=B)
        close(Y, o.geodesic_dual(X, W, t, B=B), 1e-10)
        close(Y, o.geodesic_dual(X, o.project(X, W, B=B), t, B=B), 1e-10)
        assert o.defect(Y, B) < 1e-12
    S = np.linalg.solve(B, W) @ o.adjoint(X) @ B - X @ o.adjoint(W)
    close(o.geodesic_dual(X, W, 0.3, B=B), scipy.linalg.expm(0.3 * S) @ X, 1e-10)


def test_geodesics_satisfy_the_geodesic_equation_of_the_canonical_metric(standard):
    """Edelman, Arias, Smith (2.41): Y'' + Y' Y'^H Y + Y ((Y^H Y')^2 + Y'^H Y') = 0."""
    rng, X = standard
    V, h = o.random_tangent(rng, X), 1e-3
    V = V / np.linalg.norm(V)
    Y = [o.geodesic(X, V, 0.4 + j * h) for j in (-2, -1, 0, 1, 2)]
    velocity = (Y[0] - 8 * Y[1] + 8 * Y[3] - Y[4]) / (12 * h)
    acceleration = (-Y[0] + 16 * Y[1] - 30 * Y[2] + 16 * Y[3] - Y[4]) / (12 * h * h)
    A, D = o.adjoint(Y[2]) @ velocity, o.adjoint(velocity)
    residual = acceleration + velocity @ D @ Y[2] + Y[2] @ (A @ A + D @ velocity)
    assert np.linalg.norm(residual) < 1e-8
    close(o.inner_tangent(Y[2], velocity, velocity), o.inner_tangent(X, V, V), 1e-9)


def test_cayley_and_its_forms(case, standard):
    rng, X, B = case
    W = o.gaussian(rng, *X.shape, dtype=X.dtype)
    Y = o.cayley(X, W, B=B)
    assert o.defect(Y, B) < 1e-12
    close(Y, o.cayley_woodbury(X, W, B=B))
    close(Y, o.cayley(X, W, B=B, how="cholesky"))
    close(Y, o.cayley(X, o.project(X, W, B=B), B=B))
    close(Y, o.cayley_tangent(X, o.raise_index(X, W, B=B), B=B))
    S = (np.linalg.solve(B, W) @ o.adjoint(X) @ B - X @ o.adjoint(W)) / 2
    close(Y, np.linalg.solve(np.eye(len(X)) - S, X + S @ X))
    close(o.cayley(X, 0 * W, B=B), X)
    _, X = standard
    close(o.cayley(X, W), o.cayley_woodbury(X, W))


def test_cayley_agrees_with_the_geodesic_to_second_order(case):
    rng, X, B = case
    W = o.random_cotangent(rng, X, B)
    W = W / o.norm_dual(X, W, B=B)

    def error(t):
        return np.linalg.norm(o.cayley(X, t * W, B=B) - o.geodesic_dual(X, W, t, B=B))

    assert 2.9 < np.log2(error(2e-2) / error(1e-2)) < 3.1
    V = o.raise_index(X, W, B=B)
    close((o.cayley(X, 1e-5 * W, B=B) - o.cayley(X, -1e-5 * W, B=B)) / 2e-5, V, 1e-8)


# Lift and extrapolation


def test_lift_by_formula_and_by_brute_force(case, standard):
    rng, X, B = case
    Y = o.random_near(rng, X, 2.0, B=B)  # a random point may lie on the other component if n = k
    V = o.lift(X, Y, B=B)
    close(V, o.lift_bruteforce(X, Y, B), 1e-8)
    close(V, o.lift(X, Y, B=B, how="cholesky"), 1e-9)
    close(V, o.project(X, V, B=B), 1e-9)
    close(o.cayley(X, V, B=B), Y, 1e-9)
    W = o.random_cotangent(rng, X, B)
    close(o.lift(X, o.cayley(X, W, B=B), B=B), W, 1e-9)
    _, X = standard
    Y = o.random_near(rng, X, 2.0)
    close(o.lift(X, Y), o.lift_bruteforce(X, Y), 1e-8)


def test_extrapolation_is_a_curve_through_both_points(case):
    rng, X, B = case
    Y = o.random_near(rng, X, 0.7, B=B)
    close(o.extrapolate(X, Y, 0.0, B=B), X)
    close(o.extrapolate(X, Y, 1.0, B=B), Y)
    for a in (-0.5, 0.4, 1.9):
        Z = o.extrapolate(X, Y, a, B=B)
        close(Z, o.extrapolate_bruteforce(X, Y, a, B))
        assert o.defect(Z, B) < 1e-12
        if a == 0.4 and X.shape[1] == 1 and X.dtype == float:  # on the sphere: in their plane
            assert np.linalg.matrix_rank(np.hstack([X, Y, Z]), tol=1e-10) == 2


def test_lemma_bounds_the_condition_number(standard):
    rng, X = standard
    for distance in (0.1, 0.6, 1.2):
        V = o.random_tangent(rng, X)
        V *= distance / np.sqrt(o.inner_tangent(X, V, V))
        Y = o.geodesic(X, V)
        length = o.path_length(X, o.lower_index(X, V))
        close(length, distance)
        assert np.linalg.norm(X - Y) <= np.sqrt(2) * length + 1e-14
        M = np.eye(X.shape[1]) + o.adjoint(X) @ Y
        assert np.linalg.cond(M) <= o.lemma_bound(length) * (1 + 1e-14)


# Grassmann


def test_principal_angles_against_scipy(standard):
    rng, X = standard
    for Y in (o.random_point(rng, *X.shape, X.dtype), o.random_near(rng, X, 1e-6)):
        # SciPy leaves 2e-8 where an angle is 0 (n < 2k)
        close(o.principal_angles(X, Y), scipy.linalg.subspace_angles(X, Y)[::-1], 1e-7)
    X, Y = X[:, :1], o.random_near(rng, X, 1e-6)[:, :1]
    close(o.principal_angles(X, Y) * 1e6, scipy.linalg.subspace_angles(X, Y) * 1e6, 1e-8)
    Q = o.random_point(rng, X.shape[1], X.shape[1], X.dtype)
    assert o.grassmann_distance(X, X @ Q) < 1e-13


def test_horizontal_parts(case):
    rng, X, B = case
    W = o.gaussian(rng, *X.shape, dtype=X.dtype)
    H = o.horizontal(X, W, B=B)
    close(H, W - B @ X @ o.adjoint(X) @ W)
    if X.shape[0] > X.shape[1]:
        close(H, o.horizontal_bruteforce(X, W, B))
    close(o.adjoint(X) @ H, 0)
    V = o.raise_index(X, H, B=B)
    close(V, o.horizontal_tangent(X, V, B=B))
    close(V, np.linalg.solve(B, H))


def test_grassmann_lift_and_logarithm(case):
    rng, X, B = case
    Y = o.random_point(rng, *X.shape, X.dtype, B=B)
    V = o.grassmann_lift(X, Y, B=B)
    close(o.horizontal(X, V, B=B), V, 1e-9)
    assert o.grassmann_distance(o.cayley(X, V, B=B), Y, B=B) < 1e-9
    Z = o.grassmann_log(X, Y, B=B)
    assert o.grassmann_distance(o.geodesic(X, Z, B=B), Y, B=B) < 1e-9
    length = np.sqrt(o.inner_tangent(X, Z, Z, B=B))
    close(length, o.grassmann_distance(X, Y, B=B), 1e-9)


# Objectives


def objectives(rng, n, k, dtype):
    A = o.random_hermitian(rng, n, dtype)
    C = o.gaussian(rng, n, k, dtype=dtype)
    return {
        "brockett": o.brockett(A, np.arange(1, k + 1)),
        "brockett without the half": o.brockett(A, np.arange(1, k + 1), half=False),
        "procrustes": o.procrustes(A, C),
        "quartic": o.quartic(A, 2.0),
    }


@pytest.mark.parametrize("name", objectives(np.random.default_rng(0), 2, 1, float))
def test_gradients_are_derivatives(case, name):
    rng, X, B = case
    value, gradient = objectives(rng, *X.shape, X.dtype)[name]
    W = o.random_cotangent(rng, X, B)
    W = W / o.norm_dual(X, W, B=B)
    G = o.project(X, gradient(X), B=B)
    expected = o.directional_derivative(value, lambda t: o.cayley(X, t * W, B=B))
    close(o.inner_dual(X, G, W, B=B), expected, 1e-8)
    close(o.pair(gradient(X), o.raise_index(X, W, B=B)), expected, 1e-8)


def test_brockett_minimum_is_a_minimum(case):
    rng, X, B = case
    A, weights = o.random_hermitian(rng, len(X), X.dtype), rng.uniform(1, 2, X.shape[1])
    value, gradient = o.brockett(A, weights)
    f, X_star = o.brockett_minimum(A, weights, B)
    assert o.defect(X_star, B) < 1e-12
    close(value(X_star), f)
    close(o.project(X_star, gradient(X_star), B=B), 0)
    for distance in (0.01, 0.3, 2.0):
        assert value(o.random_near(rng, X_star, distance, B=B)) >= f - 1e-13


@pytest.mark.parametrize("k", [1, 3])
def test_condition_numbers_and_optimal_weights(k):
    lam = np.array([1.0, 1.7, 2.9, 3.3, 5.0])
    for weights in (np.arange(1.0, k + 1), o.optimal_weights(lam, k)):
        value, _ = o.brockett(np.diag(lam), weights)
        _, X = o.brockett_minimum(np.diag(lam), weights)
        eigenvalues = o.hessian_eigenvalues(value, X)
        kappa = eigenvalues[-1] / eigenvalues[0]
        close(kappa, o.brockett_condition_number(lam, weights), 1e-6)
        assert kappa >= o.optimal_condition_number(lam, k) * (1 - 1e-6)
    close(kappa, o.optimal_condition_number(lam, k), 1e-6)
    close(o.optimal_weights(np.arange(1.0, 9.0), k), np.arange(1, k + 1))


# The algorithms


ALGORITHMS = [o.function_restart, o.gradient_restart, o.gradient_descent]


@pytest.fixture(params=[(12, 1), (12, 3)], ids=str)
def problem(request, dtype):
    n, k = request.param
    rng = np.random.default_rng([n, k, 7])
    A = np.diag(np.arange(1.0, n + 1)).astype(dtype)
    weights = np.arange(1.0, k + 1)
    return (*o.brockett(A, weights), o.random_point(rng, n, k, dtype), A, weights)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_algorithms_find_the_minimum(problem, algorithm):
    value, gradient, X0, A, weights = problem
    run = o.run_until(algorithm(value, gradient, X0), 1e-7, 4000)
    assert run[-1].gradient_norm <= 1e-7 * run[0].gradient_norm
    assert len(run) > 10
    close(run[-1].f_Y, o.brockett_minimum(A, weights)[0], 1e-9)
    assert max(o.defect(s.Y) for s in run) < 1e-12
    first = run[0]
    assert (first.gamma, first.k, first.restarted) == (0.1, 0, False)
    assert first.X is first.Y is X0


@pytest.mark.parametrize("algorithm", ALGORITHMS[:2])
def test_iterates_satisfy_the_algorithm_line_by_line(problem, algorithm):
    """Transitions recomputed from their two ends, by brute force: the first, and some restarts."""
    value, gradient, X0, *_ = problem
    run = o.run_until(algorithm(value, gradient, X0), 1e-6, 4000)
    restarts = [t for t in range(1, len(run)) if run[t].restarted][:2]
    assert restarts
    for t in [*range(6), *(t - 2 for t in restarts), *(t - 1 for t in restarts), *restarts]:
        s, following = run[t], run[t + 1]
        G = o.project_bruteforce(s.Y, gradient(s.Y))
        slope = o.pair(G, o.raise_bruteforce(s.Y, G))
        close(s.gradient_norm, np.sqrt(slope), 1e-9)
        close(s.f_Y, value(s.Y), 1e-14)
        gamma = following.gamma
        exponent = np.log(gamma / s.gamma) / np.log(1.7)
        assert abs(exponent - round(exponent)) < 1e-9
        X_new = o.cayley_woodbury(s.Y, -gamma * gradient(s.Y))
        assert value(X_new) <= s.f_Y - 0.5 * gamma * slope + 1e-13
        X_old, W = s.X, o.lift_bruteforce(s.Y, s.X)
        if algorithm is o.function_restart:
            margin = value(X_new) - value(X_old) + 0.01 * gamma * slope
        else:
            margin = -gamma * slope - o.pair(gradient(s.Y), o.raise_index(s.Y, W))
        if abs(margin) > 1e-12:
            assert following.restarted == (margin > 0)
        if following.restarted:
            assert following.X is following.Y is s.X
            assert following.k == 0 < s.k
        else:
            close(following.X, X_new, 1e-10)
            assert following.k == s.k + 1
            close(following.Y, o.extrapolate_bruteforce(s.X, X_new, 1 + s.k / (s.k + 3)), 1e-9)


@pytest.mark.parametrize("algorithm", ALGORITHMS[:2])
def test_both_algorithms_do_restart(algorithm):
    rng = np.random.default_rng(5)
    value, gradient = o.brockett(np.diag(np.arange(1.0, 41.0)), [1.0, 2.0])
    run = o.run_until(algorithm(value, gradient, o.random_point(rng, 40, 2)), 1e-7, 4000)
    restarts = sum(s.restarted for s in run)
    assert 0 < restarts < len(run) / 10
    if algorithm is o.function_restart:
        values = [value(s.X) for s in run]
        assert all(b <= a for a, b in pairwise(values))


@pytest.mark.parametrize("c_R", [0.0, 0.45])
def test_function_restart_demands_its_decrease(c_R):
    """Accepted steps gain c_R gamma slope; a large c_R (below 1/2) refuses where 0 would accept."""
    rng = np.random.default_rng(5)
    value, gradient = o.brockett(np.diag(np.arange(1.0, 21.0)), [1.0, 2.0])
    run = list(islice(o.function_restart(value, gradient, o.random_point(rng, 20, 2), c_R=c_R), 80))
    refused_gains = 0
    for s, following in pairwise(run):
        X_new = o.cayley(s.Y, -following.gamma * gradient(s.Y))
        gain, least = value(s.X) - value(X_new), c_R * following.gamma * s.gradient_norm**2
        if abs(gain - least) > 1e-12:
            assert following.restarted == (gain < least)
        refused_gains += following.restarted and gain > 1e-12
    assert (refused_gains > 0) == (c_R > 0)


def test_acceleration_accelerates():
    rng = np.random.default_rng(6)
    value, gradient = o.brockett(np.diag(np.arange(1.0, 61.0)), [1.0, 2.0])
    X0 = o.random_point(rng, 60, 2)
    function, grad, descent = (
        len(o.run_until(algorithm(value, gradient, X0), 1e-6, 4000)) for algorithm in ALGORITHMS
    )
    assert max(function, grad) < descent / 2


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_algorithms_with_B(algorithm, dtype):
    rng = np.random.default_rng(8)
    n, k = 10, 2
    B, weights = o.random_positive(rng, n, dtype), [1.0, 2.0]
    A = o.random_hermitian(rng, n, dtype) + 3 * np.eye(n)
    value, gradient = o.brockett(A, weights)
    X0 = o.random_point(rng, n, k, dtype, B=B)
    run = o.run_until(algorithm(value, gradient, X0, B=B), 1e-7, 4000)
    close(run[-1].f_Y, o.brockett_minimum(A, weights, B)[0], 1e-9)
    for s in run[:: max(1, len(run) // 10)]:
        assert o.defect(s.Y, B) < 1e-12
        close(s.gradient_norm, o.norm_dual(s.Y, gradient(s.Y), B=B), 1e-9)
    X1 = o.cayley(X0, -run[1].gamma * gradient(X0), B=B)
    close(run[1].X, X1)
    close(run[1].Y, X1)  # k = 0: no momentum in the first step
    same = o.run_until(algorithm(value, gradient, X0, B=np.eye(n)), 0.5, 20)
    plain = o.run_until(algorithm(value, gradient, X0), 0.5, 20)
    for s, p in zip(same, plain, strict=True):
        close(s.Y, p.Y)


def test_two_sided_search_runs_both_loops_in_sequence():
    """f(x) = x^2/2 from 1: 1 - f is gamma (1 - gamma/2) slope, so each loop's end is known."""

    def value(x):
        return x * x / 2

    def search(gamma, **options):
        return o.two_sided_search(value, lambda s: 1.0 - s, 0.5, 1.0, gamma, **options)[2]

    # growth stops when gamma >= 2 (1 - c_L), Armijo holds when gamma <= 1
    close(search(0.1), 0.1 * 1.7**4)
    close(search(0.1, c_L=0.9), 0.1 * 1.7**2)
    close(search(0.1, grow=False), 0.1)
    close(search(0.59), 0.59 * 1.7 / 1.7)  # grows to 1.003, is sent back
    close(search(3.0), 3.0 / 1.7**3)
    assert search(0.7) == 0.7
    with pytest.raises(OverflowError):
        o.two_sided_search(lambda x: x, lambda s: -s, 0.0, 1.0, 1.0)


# Section 3


@pytest.fixture
def quadratic():
    """(value, gradient, x0, mu, L), with minimum 0 at 0."""
    spectrum = np.geomspace(0.02, 4.0, 15)
    x0 = np.random.default_rng(9).standard_normal(15)
    return (
        lambda x: 0.5 * float(np.sum(spectrum * x * x)),
        lambda x: spectrum * x,
        x0,
        spectrum[0],
        spectrum[-1],
    )


def test_strongly_convex_scheme_keeps_its_bound(quadratic):
    value, gradient, x0, mu, L = quadratic
    gap = value(x0)
    for t, (x, _) in enumerate(islice(o.euclidean_strongly_convex(gradient, x0, mu, L), 200)):
        assert value(x) <= o.strongly_convex_bound(mu, L, t, gap)
    assert value(x) < 1e-9 * gap


Q_SEQUENCES = {
    "t": lambda t: t,
    "t/2": lambda t: t / 2,
    "sqrt t": np.sqrt,
    "largest": o.largest_q,
    "waves": lambda t: t / 2 + 0.5 * abs(np.sin(t)),
    "zero": lambda t: 0,
}


@pytest.mark.parametrize("name", Q_SEQUENCES)
def test_q_family_keeps_its_bound(quadratic, name):
    value, gradient, x0, *_ = quadratic
    q = Q_SEQUENCES[name]
    distance = np.linalg.norm(x0)
    last = np.inf
    iterates = o.euclidean_q_family(value, gradient, x0, q, gamma=1.0)
    for t, (x, y, gamma, q_t) in enumerate(islice(iterates, 80)):
        assert name == "largest" or o.q_is_admissible(q, t)
        assert gamma <= last
        assert value(x) <= o.q_family_bound(gamma, q_t, distance)
        lyapunov = gamma * q_t * (q_t + 2) * value(x) + 0.5 * np.sum((2 * y + q_t * (y - x)) ** 2)
        assert lyapunov <= 2 * distance**2 * (1 + 1e-12)
        last = gamma


def test_largest_q_is_the_largest():
    assert o.largest_q(0) == 0
    for t in range(10):
        close((o.largest_q(t + 1) + 1) ** 2, (o.largest_q(t) + 2) ** 2 + 1)
        assert o.largest_q(t) >= t
    assert not o.q_is_admissible(lambda t: 1.5 * t, 3)
    assert not o.q_is_admissible(lambda t: t + 1, 3)


def test_q_equal_t_is_the_momentum_of_the_algorithms(quadratic):
    """Without growth and before any restart, q_t = t gives Algorithm 1's k/(k+3)."""
    value, gradient, x0, *_ = quadratic
    family = o.euclidean_q_family(value, gradient, x0, lambda t: t)
    restart = o.euclidean_function_restart(value, gradient, x0, grow=False)
    for (x, y, gamma, _), s in zip(islice(family, 10), restart, strict=False):
        assert not s.restarted
        close(x, s.X)
        close(y, s.Y)
        assert gamma == s.gamma


@pytest.mark.parametrize("algorithm", [o.euclidean_function_restart, o.euclidean_gradient_restart])
@pytest.mark.parametrize("grow", [True, False])
def test_euclidean_restarts_converge(quadratic, algorithm, grow):
    value, gradient, x0, *_ = quadratic
    run = o.run_until(algorithm(value, gradient, x0, grow=grow), 1e-8, 3000)
    assert run[-1].gradient_norm <= 1e-8 * run[0].gradient_norm
    assert any(s.restarted for s in run)
    for s, following in pairwise(run):
        assert grow or following.gamma <= s.gamma
        x_new = s.Y - following.gamma * gradient(s.Y)
        if algorithm is o.euclidean_gradient_restart:
            # the form that the manifold uses: <grad f(y), x - y> < -gamma ||grad f(y)||^2
            left = gradient(s.Y) @ (s.X - s.Y) + following.gamma * s.gradient_norm**2
            if abs(left) > 1e-14 * s.gradient_norm:
                assert following.restarted == (left < 0)
        if following.restarted:
            assert following.X is following.Y is s.X
            assert following.k == 0 < s.k
        else:
            close(following.X, x_new)
            close(following.Y, s.X + (1 + s.k / (s.k + 3)) * (x_new - s.X))


def test_function_restart_drives_gradients_to_zero_without_convexity():
    """Section 4.1's theorem on f(x) = sum cos(x_i) + |x|^2/20, which is not convex."""

    def value(x):
        return float(np.sum(np.cos(x) + x * x / 20))

    def gradient(x):
        return -np.sin(x) + x / 10

    x0 = np.random.default_rng(10).standard_normal(6) * 3
    run = o.run_until(o.euclidean_function_restart(value, gradient, x0, grow=False), 1e-8, 3000)
    assert np.linalg.norm(gradient(run[-1].X)) < 1e-6
    for s, following in pairwise(run):
        least = 0 if following.restarted else 0.01 * following.gamma * s.gradient_norm**2
        assert value(following.X) <= value(s.X) - least


# Mutants: each must differ, or a test that uses it proves nothing


@pytest.mark.parametrize("with_B", [False, True])
def test_printed_maps_differ(dtype, with_B):
    rng = np.random.default_rng(11)
    n, k = 9, 3
    B = o.random_positive(rng, n, dtype) if with_B else None
    X = o.random_point(rng, n, k, dtype, B=B)
    for distance in (None, 0.5):
        Y = (
            o.random_point(rng, n, k, dtype, B=B)
            if distance is None
            else o.random_near(rng, X, distance, B=B)
        )
        assert relative_difference(o.printed_lift(X, Y, B=B), o.lift(X, Y, B=B)) > 0.05
        back = o.cayley(X, o.printed_lift(X, Y, B=B), B=B)
        assert np.linalg.norm(back - Y) > 0.05
        meant = o.lift(Y, X, B=B)
        assert relative_difference(o.printed_restart_lift(Y, X, B=B), meant) > 0.5
    W, G = o.random_cotangent(rng, X, B), o.random_cotangent(rng, X, B)
    missing = o.inner_dual(X, W, G, B=B) - o.printed_inner_dual(X, W, G, B=B)
    close(missing, o.pair(o.adjoint(X) @ W, o.adjoint(X) @ G))
    rotation = W - o.horizontal(X, W, B=B)  # for it the second term is as large as the first
    printed, exact = (f(X, rotation, rotation, B=B) for f in (o.printed_inner_dual, o.inner_dual))
    assert exact > 0
    close(printed, exact / 2)
    N = o.gaussian(rng, n, k, dtype=dtype)
    exact, printed = o.raise_index(X, N, B=B), o.printed_raise_index(X, N, B=B)
    assert relative_difference(printed, exact) > 0.1
    assert np.linalg.norm(printed - o.project_tangent(X, printed, B=B)) > 0.1
    close(o.printed_raise_index(X, W, B=B), o.raise_index(X, W, B=B))  # on cotangents they agree


def test_printed_restart_quantity_has_the_wrong_sign_on_random_data():
    rng = np.random.default_rng(12)
    wrong = 0
    for _ in range(50):
        Y = o.random_point(rng, 9, 3)
        X, G = o.random_near(rng, Y, 0.5), o.random_cotangent(rng, Y)
        meant = o.inner_dual(Y, G, o.lift(Y, X))
        wrong += meant * o.inner_dual(Y, G, o.printed_restart_lift(Y, X)) < 0
    assert wrong > 10


def test_printed_lift_is_right_on_the_real_sphere_only():
    """k = 1 real: X^T Y is a number, so the transposes agree. Tests need k > 1 or complex data."""
    rng = np.random.default_rng(13)
    X, Y = o.random_point(rng, 6, 1), o.random_point(rng, 6, 1)
    close(o.printed_lift(X, Y), o.lift(X, Y))
    X, Y = o.random_point(rng, 6, 1, complex), o.random_point(rng, 6, 1, complex)
    assert relative_difference(o.printed_lift(X, Y), o.lift(X, Y)) > 0.05


def test_printed_algorithms_differ():
    rng = np.random.default_rng(14)
    value, gradient = o.brockett(np.diag(np.arange(1.0, 31.0)), [1.0, 2.0, 3.0])
    X0 = o.random_point(rng, 30, 3)
    for meant, printed in [
        (o.function_restart, o.printed_function_restart),
        (o.gradient_restart, o.printed_gradient_restart),
    ]:
        good = o.run_until(meant(value, gradient, X0), 1e-6, 1000)
        bad = o.run_until(printed(value, gradient, X0), 1e-6, 1000)
        assert len(good) < 300
        assert len(bad) > 1.5 * len(good)
        assert np.linalg.norm(good[5].Y - bad[5].Y) > 1e-4
    only_W = o.printed_gradient_restart(value, gradient, X0, lift_map=o.lift)
    good = [(s.restarted, s.k) for s in good]
    assert good != [(s.restarted, s.k) for s in islice(only_W, len(good))]
    no_second_term = o.gradient_restart(value, gradient, X0, inner=o.printed_inner_dual)
    assert good != [(s.restarted, s.k) for s in islice(no_second_term, len(good))]


def test_printed_weights_differ():
    lam = np.array([1.0, 1.7, 2.9, 3.3, 5.0])
    assert relative_difference(o.printed_optimal_weights(lam, 3), o.optimal_weights(lam, 3)) > 0.1
