"""The formulas of training against SciPy's factorisations, in NumPy, PyTorch and JAX."""

import numpy as np
import pytest
import scipy.linalg
from scipy.optimize import linprog

import stiefel.training.formulas as F  # noqa: N812

SHAPES = [(7, 3), (32, 16), (6, 6), (3, 9, 4)]
DTYPES = ["float64", "complex128", "float32"]


def library(name):
    """From NumPy and back."""
    if name == "numpy":
        return np.asarray, np.asarray
    if name == "torch":
        torch = pytest.importorskip("torch")
        return torch.from_numpy, lambda x: x.resolve_conj().numpy()
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    return jax.numpy.asarray, np.asarray


def normal(rng, shape, dtype):
    A = rng.standard_normal(shape)
    if dtype.startswith("complex"):
        A = A + 1j * rng.standard_normal(shape)
    return A.astype(dtype)


def svd_sign(M):
    U, _, Vh = np.linalg.svd(M, full_matrices=False)
    return U @ Vh


def case(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    X, G = svd_sign(normal(rng, shape, dtype)), normal(rng, shape, dtype)
    return X, G, np.eye(shape[-1], dtype=dtype)


def adjoint(A):
    return np.swapaxes(A, -1, -2).conj()


def sym(A):
    return (A + adjoint(A)) / 2


def spectral(A):
    return np.linalg.norm(A, 2, axis=(-2, -1))


def eps(dtype):
    return float(np.finfo(dtype).eps)


@pytest.mark.parametrize("name", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_tangent_is_the_orthogonal_projection(name, dtype, shape):
    to, back = library(name)
    X, G, _ = case(shape, dtype)
    H = case(shape, dtype, 1)[1]
    for s in (1.0, 2.5):
        P = lambda Z: back(F.tangent(to(s * X), to(Z), s))
        assert np.abs(sym(adjoint(X) @ P(G))).max() < 50 * eps(dtype)
        np.testing.assert_allclose(P(P(G)), P(G), atol=100 * eps(dtype))
        left, right = np.vdot(H, P(G)).real, np.vdot(P(H), G).real  # inner products are real
        assert left == pytest.approx(right, abs=1e3 * eps(dtype))


@pytest.mark.parametrize("name", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_retraction_is_the_polar_factor(name, dtype, shape):
    to, back = library(name)
    X, G, eye = case(shape, dtype)
    V = G - X @ sym(adjoint(X) @ G)
    V *= 0.4 / spectral(V).max()  # below k^(-1/8)/2: not shortened
    for s in (1.0, 0.4):
        Y = back(F.polar(to((s * X).astype(dtype)), to((s * V).astype(dtype)), to(eye), s))
        assert Y.dtype == dtype
        np.testing.assert_allclose(Y, s * svd_sign(X + V), atol=40 * eps(dtype))
    if len(shape) == 2:
        np.testing.assert_allclose(Y, s * scipy.linalg.polar(X + V)[0], atol=40 * eps(dtype))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [1e-6, 1e-2, 0.3, 1.0, 30.0, 1e8, 1e16])
def test_every_step_ends_on_the_manifold(dtype, size):
    """Long steps are shortened along the same direction, and to no less than the bound allows."""
    X, G, eye = case((4, 40, 24), dtype)
    V = G - X @ sym(adjoint(X) @ G)
    V = (V * (size / spectral(V))[:, None, None]).astype(dtype)
    Y = F.polar(X, V, eye)
    # The spectral norm of a Gram matrix of k columns, whose entries carry a few roundings each.
    assert spectral(adjoint(Y).astype("f8") @ Y.astype("f8") - eye).max() < 30 * eps(dtype)
    long = min(size, F.LARGEST**0.5)
    short = min(size, (F.LARGEST / 24**0.25) ** 0.5)
    # The tangent part of Y − X in polar coordinates is V(I + VᴴV)^(-1/2): at most the sine.
    moved = spectral(Y.astype("f8") - X)
    assert (moved <= 1.01 * long).all()
    assert (moved >= 0.9 * short).all()


def test_one_step_mends_a_defect():
    X, _, eye = case((30, 10), "float64")
    rng = np.random.default_rng(2)
    for size in (1e-8, 1e-3, 4e-2):
        Z = X + size * X @ sym(rng.uniform(-1, 1, (10, 10)) / 4)
        Y = F.polar(Z, 0 * Z, eye)
        assert spectral(adjoint(Y) @ Y - eye) < 1e-14
        np.testing.assert_allclose(Y, scipy.linalg.polar(Z)[0], atol=1e-14)


def test_the_degrees_are_what_the_dtypes_need():
    x = np.linspace(-F.LARGEST_DEFECT, F.LARGEST, 5001)
    for (c, _), bound in ((F.SINGLE, eps("float32") / 4), (F.DOUBLE, 8 * eps("float64"))):
        assert c[0] == 0.0
        assert np.abs((1 + np.polyval(c[::-1], x)) * np.sqrt(1 + x) - 1).max() < bound
    coarse = F._inverse_root(4)
    error = np.abs((1 + np.polyval(coarse[::-1], x)) * np.sqrt(1 + x) - 1).max()
    assert error > eps("float32")  # degree 4 would not do


def test_many_long_steps_do_not_drift():
    X, G, eye = case((24, 12), "float32")
    for i in range(2000):
        G = np.roll(G, 1, 0)
        X = F.polar(X, F.tangent(X, (10.0 ** (i % 9 - 4)) * G).astype("float32"), eye)
    D = adjoint(X).astype("f8") @ X.astype("f8") - eye
    assert spectral(D) < 1e-6


@pytest.mark.parametrize("name", ["numpy", "torch", "jax"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(30, 7), (12, 12), (2, 16, 8)])
def test_msign_against_the_svd(name, dtype, shape):
    to, back = library(name)
    rng = np.random.default_rng(3)
    k = shape[-1]
    U = svd_sign(normal(rng, shape, dtype))
    Q = svd_sign(normal(rng, (*shape[:-2], k, k), dtype))
    M = (U * np.geomspace(1, 0.01, k)) @ Q * 37.0
    S = back(F.msign(to(M.astype(dtype)), to(np.eye(k, dtype=dtype))))
    assert spectral(S - U @ Q).max() < 0.0055
    zero = back(F.msign(to(np.zeros(shape, dtype)), to(np.eye(k, dtype=dtype))))
    assert not zero.any()


def test_msign_of_a_skew_matrix_is_skew():
    A = case((9, 9), "float64")[1]
    S = F.msign(A - A.T, np.eye(9))
    np.testing.assert_allclose(S, -S.T, atol=1e-13)


def test_the_sign_steps_are_the_best_polynomials():
    low, high = F.SMALLEST_SIGN, 1.0
    for given in F.SIGN_STEPS:
        x = np.geomspace(low, high, 3000)
        P = np.stack([x, x**3, x**5], 1)
        one = np.ones((len(x), 1))
        best = linprog(
            [0, 0, 0, 1],
            A_ub=np.block([[P, -one], [-P, -one]]),
            b_ub=np.concatenate([np.ones(len(x)), -np.ones(len(x))]),
            bounds=[(None, None)] * 4,
        ).x[3]
        error = np.abs(P @ given - 1).max()
        assert error < best * 1.001 + 1e-5
        low, high = 1 - error, 1 + error
    assert error < 0.0051


def optimum(X, G):
    """max ⟨G, A⟩ over tangent ‖A‖₂ ≤ 1 is the nuclear norm of skew(GXᴴ)."""
    W = G @ adjoint(X)
    return np.linalg.svd((W - adjoint(W)) / 2, compute_uv=False).sum()


def test_the_optimum_by_duality():
    """The same number from the dual problem min ‖G + XΛ‖_* over Hermitian Λ, by a fixed point."""
    X, G, _ = case((24, 8), "float64")
    C = adjoint(X) @ G
    L = -sym(C)
    for _ in range(400):
        _, s, Vh = np.linalg.svd(G + X @ L, full_matrices=False)
        R = Vh @ C @ adjoint(Vh) / s
        L = -adjoint(Vh) @ ((R + adjoint(R)) / (1 / s[:, None] + 1 / s)) @ Vh
    dual = np.linalg.svd(G + X @ L, compute_uv=False).sum()
    assert dual == pytest.approx(optimum(X, G), rel=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize(
    ("shape", "least"), [((32, 32), 0.99), ((64, 8), 0.9), ((32, 16), 0.88), ((20, 16), 0.86)]
)
def test_muon_is_steepest_in_the_spectral_norm(dtype, shape, least):
    for seed in range(5):
        X, G, eye = case(shape, dtype, seed)
        for s in (1.0, 3.0):
            A = F.muon_direction(s * X, G, eye, s)
            assert np.abs(sym(adjoint(X) @ A)).max() < 1e-10  # tangent
            assert spectral(A) < (1.01 if shape[0] == shape[1] else 1.2)
            assert np.vdot(G, A).real / spectral(A) > least * optimum(X, G)
        gradient = F.tangent(X, G)
        plain = np.vdot(G, gradient).real / spectral(gradient)
        assert plain < (least - 0.04) * optimum(X, G)  # the gradient itself is far less steep


def test_second_moments():
    G = case((2, 5, 3), "complex128")[1]
    S = np.abs(G) ** 2
    expected = {
        "matrix": S.mean((1, 2), keepdims=True),
        "rows": S.mean(2, keepdims=True),
        "columns": S.mean(1, keepdims=True),
        "entries": S,
    }
    assert set(expected) == set(F.MOMENTS)
    for kind, value in expected.items():
        np.testing.assert_allclose(F.second_moment(G, kind), value)
