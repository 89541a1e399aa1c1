"""The quadratic preconditioner against dense brute force over a basis of tangents."""

import numpy as np
import pytest

import oracles
import stiefel
from cases import JAX, NUMPY, STRICT, TORCH, to_numpy
from stiefel import Grassmann, Stiefel
from stiefel.preconditioners import QuadraticPreconditioner, diagonal

N, K = 7, 2


def brute_force(basis, P, E):
    """The T = Σ c_i T_i that minimises −⟨E, T⟩ + ½⟨T, P T⟩, E a Euclidean gradient."""
    H = np.array([[oracles.pair(S, P @ T) for T in basis] for S in basis])
    return oracles.combine(np.linalg.solve(H, [oracles.pair(E, T) for T in basis]), basis)


@pytest.mark.parametrize("with_B", [False, True])
@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("manifold", [Stiefel, Grassmann])
def test_it_minimises_the_quadratic_model_over_tangents(manifold, dtype, with_B):
    rng = np.random.default_rng(0)
    B = oracles.random_positive(rng, N, dtype) if with_B else None
    P = oracles.random_positive(rng, N, dtype)
    X, E = oracles.random_point(rng, N, K, dtype, B=B), oracles.gaussian(rng, N, K, dtype=dtype)
    M = manifold(B=B)
    basis = oracles.tangent_basis(X, B)
    if manifold is Grassmann:
        weight = np.eye(N) if B is None else B
        basis = oracles._null_space(lambda V: X.conj().T @ weight @ V, X)
    expected = brute_force(basis, P, E)

    W = QuadraticPreconditioner(lambda Y: np.linalg.solve(P, Y), M)(X, M.project(X, E))
    W = M.project_direction(X, W)
    np.testing.assert_allclose(M.raise_index(X, W), expected, atol=1e-12)
    slope = M.inner(X, M.project(X, E), W)  # ⟨G, φ(W)⟩ is the derivative along the tangent
    assert slope == pytest.approx(oracles.pair(E, expected))


@pytest.mark.parametrize("library", [NUMPY, TORCH, STRICT, JAX], ids=str)
def test_a_diagonal_one_in_every_library_and_on_stacks(library):
    rng = np.random.default_rng(1)
    d = np.linspace(1.0, 9.0, N)
    X = np.stack([oracles.random_point(rng, N, K) for _ in range(3)])
    G = np.stack([oracles.project(x, oracles.gaussian(rng, N, K)) for x in X])
    W = diagonal(library.asarray(d))(library.asarray(X), library.asarray(G))
    assert type(W) is type(library.asarray(d))
    for x, g, w in zip(X, G, to_numpy(W)):
        T = brute_force(oracles.tangent_basis(x), np.diag(d), g)
        np.testing.assert_allclose(oracles.raise_index(x, w), T, atol=1e-12)


def test_it_pays():
    """A badly scaled eigenproblem: P is the diagonal of A, shifted."""
    n, d = 60, np.geomspace(1.0, 1e4, 60)
    A = np.diag(d) + 0.1 * oracles.random_hermitian(np.random.default_rng(2), n)

    def fun(X):
        return 0.5 * np.vdot(X, A @ X), A @ X

    X0 = stiefel.random_point(n, 3, seed=0)
    runs = {
        name: stiefel.minimize(
            fun, X0, manifold=Grassmann(), method="accelerated", precond=p, rtol=1e-9
        )
        for name, p in {"plain": None, "diagonal": diagonal(d, Grassmann())}.items()
    }
    assert all(r.success for r in runs.values())
    expected = 0.5 * np.linalg.eigvalsh(A)[:3].sum()
    assert all(r.fun == pytest.approx(expected, rel=1e-9) for r in runs.values())
    assert runs["diagonal"].nit < 0.2 * runs["plain"].nit


@pytest.mark.parametrize("method", ["accelerated", "gradient-descent", "cg", "lbfgs"])
def test_aux_reaches_the_preconditioner_and_bad_directions_fall_back(method):
    d = np.linspace(1.0, 30.0, 20)
    seen = []

    def fun(X):
        G = d[:, None] * X
        return 0.5 * np.vdot(X, G), G, "aux"

    def ascent(X, G, aux):  # its slope is never positive
        seen.append(aux)
        return -G

    X0 = stiefel.random_point(20, 2, seed=0)
    common = {"manifold": Grassmann(), "method": method, "maxiter": 25, "rtol": 1e-12}
    plain = stiefel.minimize(fun, X0, **common)
    fallen_back = stiefel.minimize(fun, X0, precond=ascent, **common)
    assert set(seen) == {"aux"}
    assert fallen_back.fun == pytest.approx(plain.fun, rel=1e-6)


def test_misuse_is_named():
    with pytest.raises(ValueError, match="not positive"):
        diagonal(np.array([1.0, 0.0]))
    with pytest.raises(TypeError, match="vector of n"):
        diagonal(np.eye(3))
    with pytest.raises(ValueError, match="the direction of precond has shape"):
        stiefel.minimize(
            lambda X: (0.0, X), stiefel.random_point(5, 2, seed=0), precond=lambda X, G: G[:, :1]
        )
