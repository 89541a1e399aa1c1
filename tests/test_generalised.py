"""The constraint XᴴBX = I: B in every form, against the transformed standard problem and eigh."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse as sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator

import oracles
import stiefel
from stiefel import Grassmann, Stiefel
from stiefel.geometry import constraint as generalized
from stiefel.geometry import frames, rooted
from stiefel.solvers import METHODS

N, K = 24, 3


def tridiagonal(n, off, diagonal):
    return sparse.csr_array(
        sparse.diags_array([off, diagonal, off], offsets=[-1, 0, 1], shape=(n, n))
    )


def mass_matrix(n):
    """Linear finite elements on an interval."""
    return tridiagonal(n, 1 / 6, 4 / 6)


FORMS = {
    "array": lambda B: {"B": B.toarray()},
    "csr": lambda B: {"B": B},
    "csc matrix": lambda B: {"B": sparse.csc_matrix(B)},
    "operator": lambda B: {"B": aslinearoperator(B)},
    "operator with solve": lambda B: {
        "B": aslinearoperator(B),
        "solve": lambda G: np.linalg.solve(B.toarray().astype(G.dtype), G),
    },
    "array with solve": lambda B: {
        "B": B.toarray(),
        "solve": lambda G: np.linalg.solve(B.toarray().astype(G.dtype), G),
    },
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", [(N, K), (2, N, K), (N, 1)])
@pytest.mark.parametrize("dtype", ["f8", "c16", "f4"])
def test_the_projected_gradient_acts_on_tangents_as_the_gradient_does(form, shape, dtype):
    rng = np.random.default_rng(3)
    B = mass_matrix(N)
    manifold = Stiefel(**FORMS[form](B))
    X = manifold.nearest(oracles.gaussian(rng, *shape, dtype=dtype))
    G = oracles.gaussian(rng, *shape, dtype=dtype)
    W = manifold.project(X, G)
    assert W.dtype == X.dtype == np.dtype(dtype)
    assert manifold.defect(X) <= manifold.allowed_defect(X)
    dense, flat = B.toarray(), (-1, *shape[-2:])
    for x, g, w in zip(X.reshape(flat), G.reshape(flat), W.reshape(flat)):
        # The library holds B⁻¹ times the cotangent: B is applied when it is paired.
        expected = np.linalg.solve(dense, oracles.project(x, g, B=dense))
        assert np.abs(w - expected).max() <= 1e3 * np.finfo(dtype).eps


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("restart", ["function", "gradient"])
def test_iterates_are_those_of_the_transformed_standard_problem(form, dtype, restart):
    rng = np.random.default_rng(5)
    B = mass_matrix(N)
    A = oracles.random_hermitian(rng, N, dtype)
    value, gradient = oracles.brockett(A, np.arange(1.0, K + 1))
    X0 = oracles.random_point(rng, N, K, dtype, B=B.toarray())
    T, T_inverse = oracles.standardise(B.toarray())

    def iterates(fun, X0, manifold):
        points = []
        stiefel.minimize(
            fun,
            X0,
            manifold=manifold,
            method=stiefel.AcceleratedGradient(restart=restart),
            callback=lambda s: points.append(s.x),
            maxiter=40,
            rtol=1e-14,
        )
        return points

    def transformed(Z):
        return value(T_inverse @ Z), T_inverse.conj().T @ gradient(T_inverse @ Z)

    points = iterates(lambda X: (value(X), gradient(X)), X0, Stiefel(**FORMS[form](B)))
    expected = [T_inverse @ Z for Z in iterates(transformed, T @ X0, Stiefel())]
    assert len(points) == 40
    for Y, wanted in zip(points, expected, strict=True):
        assert np.abs(Y - wanted).max() <= 1e-9


def test_a_finite_element_pencil():
    """−u″ = λu on a square: bilinear elements, mass and stiffness both sparse."""
    m = 12
    mass, stiffness = mass_matrix(m), tridiagonal(m, -1.0, 2.0)
    A = sparse.csr_array(sparse.kron(stiffness, mass) + sparse.kron(mass, stiffness))
    B = sparse.csr_array(sparse.kron(mass, mass))
    expected = scipy.linalg.eigh(A.toarray(), B.toarray(), eigvals_only=True)[:4]
    manifold = Grassmann(B=B)
    X0 = manifold.random(m * m, 4, seed=0)

    def fun(X):
        AX = A @ X
        return 0.5 * np.vdot(X, AX), AX

    result = stiefel.minimize(fun, X0, manifold=manifold, rtol=1e-8, maxiter=5000)
    assert result.success
    assert result.fun == pytest.approx(0.5 * expected.sum(), rel=1e-10)
    ritz = np.linalg.eigvalsh(result.x.T @ (A @ result.x))
    np.testing.assert_allclose(ritz, expected, rtol=1e-9)


def test_b_is_factorised_once(monkeypatch):
    factorisations = []
    original = generalized._sparse_factor
    monkeypatch.setattr(
        generalized, "_sparse_factor", lambda B: factorisations.append(1) or original(B)
    )
    manifold = Stiefel(B=mass_matrix(N))
    X = manifold.random(N, K, seed=0)
    for _ in range(3):
        manifold.lift(X, manifold.ray(X, manifold.project(X, X[::-1].copy()))(0.1))
    fun = lambda X: (float(X[0, 0]), np.eye(N, K) * (np.arange(K) == 0))
    stiefel.minimize(fun, X, manifold=manifold, maxiter=5)
    assert len(factorisations) == 1
    manifold.random(N, K, seed=0, dtype=np.complex128)  # another kind of point
    assert len(factorisations) == 2


def test_conjugate_gradients_use_few_products():
    """All columns together: the products do not grow with the number of columns."""
    B = mass_matrix(N)
    products = []
    operator = LinearOperator(
        (N, N), matvec=lambda x: B @ x, matmat=lambda M: products.append(1) or B @ M, dtype=float
    )
    manifold = Stiefel(B=operator)
    X = manifold.random(N, K, seed=0)
    manifold.project(X, X)
    before = len(products)
    manifold.project(X, np.ones((N, K)) + X)
    assert 5 < len(products) - before < 60


hidden = np.diag(np.r_[np.ones(N - 1), -1e-3])  # one negative direction among many
BAD = {
    "indefinite": np.diag(np.linspace(-1, 5, N)),
    "hidden": hidden,
    "negative": -np.eye(N),
    "singular": np.diag(np.r_[np.ones(N - 1), 0.0]),
    "zero diagonal": np.kron(np.eye(N // 2), [[0.0, 1.0], [1.0, 0.0]]),
    # A general LU of this one pivots off the diagonal and shows positive pivots only.
    "saddle": np.kron(np.eye(N // 2), [[1.0, 2.0], [2.0, 1.0]]),
}


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array, aslinearoperator])
@pytest.mark.parametrize("kind", BAD)
def test_an_indefinite_matrix_is_refused(kind, make):
    B = BAD[kind]
    if kind == "singular" and make is aslinearoperator:
        pytest.skip("conjugate gradients cannot tell zero from tiny")
    Q = oracles.polar_factor(np.random.default_rng(0).standard_normal((N, N)))
    for M in (B, Q @ B @ Q.T) if make is not sparse.csr_array and kind != "singular" else (B,):
        M = (M + M.T) / 2
        with pytest.raises(ValueError, match="not positive definite"):
            Stiefel(B=make(M)).random(N, K, seed=0)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array, aslinearoperator])
def test_an_indefinite_matrix_with_its_own_solve_is_refused(make):
    B = BAD["indefinite"] + 0.01 * np.eye(N)
    with pytest.raises(ValueError, match="not positive definite"):
        Stiefel(B=make(B), solve=lambda G: np.linalg.solve(B, G)).random(N, K, seed=0)


@pytest.mark.parametrize("make", [np.asarray, sparse.csr_array, aslinearoperator])
def test_a_matrix_that_is_not_symmetric_is_refused(make):
    B = np.eye(N)
    B[0, 3] = 0.1
    with pytest.raises(ValueError, match="not Hermitian"):
        Stiefel(B=make(B)).random(N, K, seed=0)
    symmetric = oracles.random_positive(np.random.default_rng(0), N, complex)
    with pytest.raises(ValueError, match="not Hermitian"):  # symmetric is not Hermitian
        Stiefel(B=make(symmetric + 0.1j * np.eye(N))).random(N, K, seed=0, dtype=complex)


@pytest.mark.parametrize(
    ("B", "dtype", "match"),
    [
        (np.eye(N - 1), float, r"shape \(23, 23\); expected \(24, 24\)"),
        (np.full((N, N), np.nan), float, "NaN"),
        (np.eye(N) * (1 + 0j), float, "B is complex"),
        ([[1.0]], float, "B is a list"),
    ],
)
def test_other_misuse_is_named(B, dtype, match):
    with pytest.raises((ValueError, TypeError), match=match):
        Stiefel(B=B).random(N, K, seed=0, dtype=dtype)


def test_a_solve_that_does_not_solve_is_refused():
    with pytest.raises(ValueError, match="not B⁻¹G"):
        Stiefel(B=mass_matrix(N), solve=lambda G: G).random(N, K, seed=0)


def test_a_sparse_b_beside_a_tensor_is_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="expected a dense B"):
        Stiefel(B=mass_matrix(N)).random(N, K, seed=0, like=torch.zeros(1, dtype=torch.float64))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("last", [0, 3])
def test_a_gradient_that_is_not_finite_ends_with_a_status(form, dtype, last):
    """A dense B raised SciPy's error, and an operator was said to be ill-conditioned."""
    manifold, weights, calls = Stiefel(**FORMS[form](mass_matrix(N))), np.arange(1.0, K + 1), []

    def fun(X):
        G = 2 * np.arange(1.0, N + 1)[:, None] * X * weights
        calls.append(X)
        if len(calls) > last:
            G[0, 0] = np.nan
        return np.vdot(X, G).real / 2, G

    result = stiefel.minimize(fun, manifold.random(N, K, seed=0, dtype=dtype), manifold=manifold)
    assert result.status is stiefel.Status.NOT_FINITE and not result.success


# -- a dense B is taken out of the way: `rooted`


def quartic(n, k, dtype, seed=7):
    rng = np.random.default_rng(seed)
    A, C = oracles.random_hermitian(rng, n, dtype), oracles.gaussian(rng, n, k, dtype=dtype)

    def fun(X):
        AX = A @ X
        f = np.vdot(X, AX).real + np.vdot(C, X).real + np.sum(np.abs(X) ** 4)
        return float(f), 2 * AX + C + 4 * X * np.abs(X) ** 2

    return fun


def dense(dtype, n=N, seed=8):
    """Real beside complex points for ``float``, complex for ``complex``."""
    H = oracles.random_hermitian(np.random.default_rng(seed), n, dtype)
    return H @ H + 0.5 * np.eye(n)


KINDS = [(float, float), (complex, float), (complex, complex)]


@pytest.mark.parametrize(("dtype", "of_B"), KINDS)
def test_a_point_without_its_b(dtype, of_B):
    rng, B = np.random.default_rng(0), dense(of_B)
    manifold = Stiefel(B=B)
    X = manifold.random(N, K, seed=1, dtype=dtype)
    bound = manifold.bind(X)
    root, Z = frames.framed(bound, X)
    E = oracles.gaussian(rng, N, K, dtype=dtype)
    np.testing.assert_allclose(Z.conj().T @ Z, np.eye(K), atol=1e-13)
    np.testing.assert_allclose(root.seen(Z), X, atol=1e-13)
    expected, found = bound.gradient(X, E), root.gradient(Z, E)
    np.testing.assert_allclose(root.ambient(Z, found.G), expected.G, atol=1e-12)
    assert found.square == pytest.approx(expected.square, rel=1e-12)
    np.testing.assert_allclose(found.level, expected.level, atol=1e-12)
    np.testing.assert_allclose(root.seen(root.project(Z, E)), bound.project(X, E), atol=1e-12)
    assert root.defect(Z) == bound.defect(root.seen(Z))


@pytest.mark.parametrize(("dtype", "of_B"), KINDS)
@pytest.mark.parametrize("kind", [Stiefel, Grassmann])
def test_steps_are_the_same_with_and_without_b(dtype, of_B, kind, monkeypatch):
    manifold = kind(B=dense(of_B))
    A = np.arange(1.0, N + 1)[:, None] ** 1.5
    span = lambda X: (float(np.vdot(X, A * X).real), 2.0 * A * X)
    fun = quartic(N, K, dtype) if kind is Stiefel else span
    X0 = manifold.random(N, K, seed=2, dtype=dtype)

    # A model of rows takes decisions that rounding may turn: its steps are compared at the end.
    plainly = replace(METHODS["auto"], rows=None)

    def trace():
        points = []
        options = {"rtol": 1e-12, "callback": lambda s: points.append(s.x), "method": plainly}
        stiefel.minimize(fun, X0, manifold=manifold, maxiter=25, **options)
        return points, stiefel.minimize(fun, X0, manifold=manifold, rtol=1e-8)

    points, result = trace()
    monkeypatch.setattr(frames, "rooted", lambda manifold, X: None)
    expected, wanted = trace()
    assert len(points) == len(expected)
    for X, Y in zip(points, expected, strict=True):
        assert np.abs(X - Y).max() <= 1e-11
    assert result.success and wanted.success
    assert result.fun == pytest.approx(wanted.fun, rel=1e-11)
    assert result.feasibility == manifold.defect(result.x)
    assert np.abs(result.grad - wanted.grad).max() <= 1e-4 * np.abs(fun(X0)[1]).max()


def test_a_run_with_b_is_resumed_bit_for_bit(tmp_path):
    manifold, fun, place = Stiefel(B=dense(float)), quartic(N, K, float), tmp_path / "run"
    X0 = manifold.random(N, K, seed=3)
    whole = stiefel.minimize(fun, X0, manifold=manifold, rtol=1e-9)
    stiefel.minimize(fun, X0, manifold=manifold, rtol=1e-9, maxiter=7, checkpoint=place)
    rest = stiefel.minimize(fun, X0, manifold=manifold, rtol=1e-9, checkpoint=place, resume=True)
    assert rest.x.tobytes() == whole.x.tobytes() and rest.nfev == whole.nfev
    other, X0 = Stiefel(B=2.0 * dense(float)), X0 / np.sqrt(2.0)
    with pytest.raises(ValueError, match="of a run with another"):
        stiefel.minimize(fun, X0, manifold=other, checkpoint=place, resume=True)


def test_a_leaf_with_b_beside_others(monkeypatch):
    manifold, fun = Stiefel(B=dense(float)), quartic(N, K, float)
    start = {"X": manifold.random(N, K, seed=4), "c": np.ones(5)}

    def both(p):
        f, G = fun(p["X"])
        d = p["c"] - np.arange(5.0) * (1.0 + p["X"][0, 0])
        G = G.copy()
        G[0, 0] -= d @ np.arange(5.0)
        return f + 0.5 * float(d @ d), {"X": G, "c": d}

    where = {"X": manifold, "c": stiefel.Euclidean()}
    result = stiefel.minimize(both, start, manifold=where, rtol=1e-9)
    monkeypatch.setattr(frames, "rooted", lambda manifold, X: None)
    wanted = stiefel.minimize(both, start, manifold=where, rtol=1e-9)
    assert result.success and result.fun == pytest.approx(wanted.fun, rel=1e-12)
    assert abs(result.nfev - wanted.nfev) <= 3


@pytest.mark.parametrize("form", ["csr", "csc matrix"])
@pytest.mark.parametrize("dtype", [float, complex])
def test_a_small_sparse_b_is_as_good_as_a_dense_one(form, dtype, monkeypatch):
    manifold, dense_B = Stiefel(**FORMS[form](mass_matrix(N))), mass_matrix(N).toarray()
    X = manifold.random(N, K, seed=0, dtype=dtype)
    root, Z = frames.framed(manifold.bind(X), X)
    np.testing.assert_allclose(Z, np.linalg.cholesky(dense_B).T @ X, atol=1e-13)
    np.testing.assert_allclose(root.seen(Z), X, atol=1e-13)
    monkeypatch.setattr(rooted, "SMALL_SPARSE", N - 1)
    assert frames.framed(manifold.bind(X), X)[1] is X


@pytest.mark.parametrize("form", [name for name in FORMS if "operator" in name or "solve" in name])
def test_other_forms_of_b_stay_where_they_are(form):
    manifold = Stiefel(**FORMS[form](mass_matrix(N)))
    X = manifold.random(N, K, seed=0)
    geometry, Z = frames.framed(manifold.bind(X), X)
    assert Z is X and type(geometry) is Stiefel


def test_a_function_of_more_than_the_span_is_refused_with_b_too():
    manifold = Grassmann(B=dense(float))
    with pytest.raises(ValueError, match="not a function of the span"):
        stiefel.minimize(quartic(N, K, float), manifold.random(N, K, seed=5), manifold=manifold)


# -- what rounding leaves of XᴴBX --------------------------------------------------------------


@pytest.mark.parametrize("method", ["auto", "cg", "trust-region"])
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csc_array])
@pytest.mark.parametrize("condition", [1e3, 1e5])
def test_no_smaller_defect_is_asked_than_the_product_has(condition, form, method):
    """With 10 eps √k alone these runs end in ROUNDING_LIMIT, restored again and again."""
    for n, k, seed in ((6, 2, 0), (30, 4, 1), (30, 4, 2)):
        Q = stiefel.random_point(n, n, seed=seed)
        B = (Q * np.geomspace(1.0, 1.0 / condition, n)) @ Q.T
        manifold = Stiefel(B=form((B + B.T) / 2))
        M = np.random.default_rng(seed).standard_normal((n, n))
        A, w, X0 = M + M.T, np.arange(1.0, k + 1), manifold.random(n, k, seed=seed)

        def fun(X, A=A, w=w):
            AX = A @ X * w
            return float(np.vdot(X, AX)), 2 * AX

        result = stiefel.minimize(fun, X0, manifold=manifold, method=method, maxfun=3000)
        assert result.success, result.message
        eps, square = np.finfo(float).eps, np.linalg.norm(result.x) ** 2
        assert result.feasibility <= eps * np.abs(B).sum(axis=1).max() * square / np.sqrt(k)
