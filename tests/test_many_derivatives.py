"""Derivatives of minimisers against central differences of the minimisers themselves."""

import warnings

import numpy as np
import pytest

import stiefel

N, K = 8, 3
RNG = np.random.default_rng(0)
A = RNG.standard_normal((N, N))
A = A + A.T
SECOND = np.diag(np.arange(N) * 1.0)
C = RNG.standard_normal((N, K))
DATA = RNG.standard_normal((20, N))
H = RNG.standard_normal((N, N)) + 1j * RNG.standard_normal((N, N))
H = H + H.conj().T
B = RNG.standard_normal((N, N))
B = B @ B.T + N * np.eye(N)
D = RNG.standard_normal(N)
WEIGHTS = np.array([3.0, 2.0, 1.0])
X0 = stiefel.Stiefel().random(N, K, seed=1)
Z0 = stiefel.Stiefel().random(N, 1, seed=2, dtype=complex)
Y0 = np.linalg.solve(np.linalg.cholesky(B).T, X0)


class Case:
    """A minimiser of θ and a smooth function of it, for either library ``xp``."""

    def __init__(self, theta, start, manifold, objective, loss):
        self.theta, self.start, self.manifold = theta, start, manifold
        self.objective, self.loss = objective, loss


CASES = {
    "brockett": Case(
        WEIGHTS, X0, None,
        lambda xp, X, t: xp.sum(X * (xp.asarray(A) @ X) * t) + xp.sum(X * (xp.asarray(SECOND) @ X)),
        lambda xp, x: xp.sum(xp.asarray(C) * x),
    ),
    "procrustes": Case(
        RNG.standard_normal((20, K)), X0, None,
        lambda xp, X, t: xp.sum((xp.asarray(DATA) @ X - t) ** 2),
        lambda xp, x: xp.sum(xp.asarray(C) * x**2),
    ),
    "complex": Case(
        RNG.standard_normal(N), Z0, None,
        lambda xp, X, t: xp.sum(xp.real(xp.conj(X) * ((xp.asarray(H) + xp.diag(t)) @ X))),
        lambda xp, x: xp.sum(xp.asarray(D) * xp.abs(x[:, 0]) ** 2),
    ),
    "generalised": Case(
        RNG.standard_normal(N), Y0, stiefel.Stiefel(B=B),
        lambda xp, X, t: xp.sum(
            X * ((xp.asarray(A) + xp.diag(t)) @ X) * xp.asarray(WEIGHTS)
        ),
        lambda xp, x: xp.sum(xp.asarray(C) * x**2),
    ),
    "span": Case(
        RNG.standard_normal(N), X0, stiefel.Grassmann(),
        lambda xp, X, t: xp.sum(X * ((xp.asarray(A) + xp.diag(t)) @ X)),
        lambda xp, x: xp.sum(xp.asarray(D) * xp.sum(x * x, axis=1)),
    ),
    "span without saying so": Case(
        RNG.standard_normal(N), X0, None,
        lambda xp, X, t: xp.sum(X * ((xp.asarray(A) + xp.diag(t)) @ X)),
        lambda xp, x: xp.sum(xp.asarray(D) * xp.sum(x * x, axis=1)),
    ),
}  # fmt: skip

MORE = pytest.mark.slow
FEW = ("brockett", "complex")
JAX_CASES = [c if c in FEW else pytest.param(c, marks=MORE) for c in CASES]


def directional(f, theta, v, h=2e-3):
    """Central differences of sixth order."""
    g = [f(theta + j * h * v) - f(theta - j * h * v) for j in (1, 2, 3)]
    return (45 * g[0] - 9 * g[1] + g[2]) / (60 * h)


@pytest.fixture
def jax():
    jax = pytest.importorskip("jax")
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield jax
    jax.config.update("jax_enable_x64", before)


@pytest.mark.parametrize("name", JAX_CASES)
def test_jax(name, jax):
    import stiefel.jax

    case, jnp = CASES[name], jax.numpy

    def loss(theta):
        found = stiefel.jax.minimize(
            lambda X, t: case.objective(jnp, X, t),
            jnp.asarray(case.start),
            args=(theta,),
            manifold=case.manifold,
            rtol=1e-13,
            gtol=1e-12,
        )
        return case.loss(jnp, found.x)

    v = np.random.default_rng(5).standard_normal(case.theta.shape)
    both = jax.jit(
        lambda t: (jax.value_and_grad(loss)(t), jax.jvp(loss, (t,), (jnp.asarray(v),))[1])
    )
    (_, gradient), forward = both(jnp.asarray(case.theta))
    expected = directional(lambda t: float(both(jnp.asarray(t))[0][0]), case.theta, v)
    assert np.vdot(gradient, v) == pytest.approx(expected, rel=1e-8)
    assert float(forward) == pytest.approx(expected, rel=1e-8)


@pytest.mark.slow
def test_jax_derivatives_in_batches_and_of_second_order(jax):
    import stiefel.jax

    case, jnp = CASES["brockett"], jax.numpy

    def loss(theta):
        return case.loss(
            jnp,
            stiefel.jax.minimize(
                lambda X: case.objective(jnp, X, theta), jnp.asarray(X0), rtol=1e-13, gtol=1e-12
            ).x,
        )

    gradient = jax.jit(jax.grad(loss))
    thetas = jnp.asarray(WEIGHTS + np.abs(np.random.default_rng(1).standard_normal((3, K))))
    single = np.stack([gradient(t) for t in thetas])
    mapped = jax.jit(jax.vmap(jax.grad(loss)))(thetas)
    summed = jax.jit(jax.grad(lambda T: jax.vmap(loss)(T).sum()))(thetas)
    np.testing.assert_allclose(mapped, single, rtol=1e-7)
    np.testing.assert_allclose(summed, single, rtol=1e-7)
    hessian = jax.jit(jax.hessian(loss))(jnp.asarray(WEIGHTS))
    v = np.array([1.0, -0.5, 0.3])
    rows = [directional(lambda t: float(gradient(jnp.asarray(t))[i]), WEIGHTS, v) for i in range(K)]
    np.testing.assert_allclose(hessian @ v, rows, rtol=1e-6)


@pytest.mark.slow
def test_jax_gives_nan_and_a_warning_at_a_saddle_point(jax):
    import stiefel.jax

    jnp = jax.numpy
    saddle = jnp.asarray(np.linalg.eigh(A)[1][:, [3, 1, 5]])

    def loss(weights):
        found = stiefel.jax.minimize(
            lambda X: jnp.sum(X * (A @ X) * weights), saddle, gtol=1e-6, rtol=0.0
        )
        return jnp.sum(C * found.x)

    def derivative():
        found = np.asarray(jax.jit(jax.grad(loss))(jnp.asarray(WEIGHTS)))
        jax.effects_barrier()
        return found

    with pytest.warns(RuntimeWarning, match="no strict minimum"):
        found = derivative()
    assert np.isnan(found).all()


@pytest.mark.parametrize("name", CASES)
def test_torch(name):
    torch = pytest.importorskip("torch")
    import array_api_compat.torch as xp
    import torch.autograd.forward_ad as forward_ad

    import stiefel.torch

    case = CASES[name]

    def loss(theta):
        found = stiefel.torch.minimize(
            lambda X: case.objective(xp, X, theta),
            torch.as_tensor(case.start),
            manifold=case.manifold,
            rtol=1e-13,
            gtol=1e-12,
        )
        return case.loss(xp, found.x)

    theta = torch.as_tensor(case.theta).clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(loss(theta), theta)
    v = np.random.default_rng(5).standard_normal(case.theta.shape)
    expected = directional(lambda t: float(loss(torch.as_tensor(t)).detach()), case.theta, v)
    assert np.vdot(gradient.numpy(), v) == pytest.approx(expected, rel=1e-8)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(theta.detach(), torch.as_tensor(v))
        tangent = forward_ad.unpack_dual(loss(dual)).tangent
    assert float(tangent) == pytest.approx(expected, rel=1e-8)


def test_torch_derivative_of_the_value_and_no_second_derivative():
    torch = pytest.importorskip("torch")
    import stiefel.torch

    weights = torch.as_tensor(WEIGHTS).clone().requires_grad_(True)
    M, x0 = torch.as_tensor(A), torch.as_tensor(X0)
    found = stiefel.torch.minimize(lambda X: (X * (M @ X) * weights).sum(), x0, rtol=1e-10)
    (gradient,) = torch.autograd.grad(found.fun, weights, retain_graph=True)
    np.testing.assert_allclose(gradient, np.linalg.eigvalsh(A)[:K], rtol=1e-8)
    (first,) = torch.autograd.grad((found.x**2).sum(), weights, create_graph=True)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(first.sum(), weights)


@pytest.mark.parametrize("where", ["saddle", "flat"])
def test_torch_gives_nan_and_a_warning_where_there_is_no_strict_minimum(where):
    torch = pytest.importorskip("torch")
    import stiefel.torch

    values, U = np.linalg.eigh(A)
    if where == "saddle":
        M, x0 = torch.as_tensor(A), torch.as_tensor(U[:, [3, 1, 5]].copy())
    else:  # the smallest eigenvalue is double, and the perturbation chooses an eigenvector
        values[1] = values[0]
        M, x0 = torch.as_tensor((U * values) @ U.T), torch.as_tensor(X0[:, :1])
    shift = torch.zeros(N, dtype=torch.float64, requires_grad=True)
    found = stiefel.torch.minimize(
        lambda X: (
            (X * ((M + torch.diag(shift)) @ X)).sum(dim=0)
            @ torch.arange(X.shape[1], 0, -1, dtype=torch.float64)
        ),
        x0,
        rtol=1e-12,
        gtol=1e-6 if where == "saddle" else 0.0,
    )
    with pytest.warns(RuntimeWarning, match="no strict minimum"):
        (torch.as_tensor(C[:, : x0.shape[1]]) * found.x**2).sum().backward()
    assert torch.isnan(shift.grad).all()


def test_a_derivative_that_is_zero_is_a_number():
    """Eigenvectors do not depend on Brockett's weights: the right-hand side is rounding."""
    torch = pytest.importorskip("torch")
    import stiefel.torch

    weights = torch.as_tensor(WEIGHTS).clone().requires_grad_(True)
    M, x0 = torch.as_tensor(A), torch.as_tensor(X0)
    found = stiefel.torch.minimize(lambda X: (X * (M @ X) * weights).sum(), x0, rtol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (torch.as_tensor(C) * found.x).sum().backward()
    assert float(weights.grad.abs().max()) < 1e-9
