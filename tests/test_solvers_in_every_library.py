"""The same run in every library, in the host's memory and elsewhere: iterates, counts, dtype.

There is no accelerator here: with `elsewhere` the solvers do not notice that arrays are in the
memory of the host, and compute in the library of the user.
"""

import gc
import weakref

import numpy as np
import pytest

import oracles
import stiefel
from cases import JAX, NUMPY, STRICT, TORCH, gap, to_numpy
from stiefel import AcceleratedGradient, Euclidean, Grassmann, Stiefel
from stiefel.backends.host import DIRECT

N, K = 10, 2
SPECTRUM = np.linspace(1.0, 3.0, N)[:, None]
WEIGHTS = np.arange(1.0, K + 1)
LIBRARIES = [NUMPY, TORCH, STRICT, JAX]


@pytest.fixture
def elsewhere(monkeypatch):
    monkeypatch.setattr("stiefel.arguments.passage_of", lambda x: DIRECT)


def real_sum(x):
    """Σ Re x in the library of x, as a scalar of it."""
    if hasattr(x, "detach"):
        return x.real.sum() if x.is_complex() else x.sum()
    xp = x.__array_namespace__()
    return xp.sum(xp.real(x) if xp.isdtype(x.dtype, "complex floating") else x)


def squares(X, D):
    """(½ Re⟨X, DX⟩, DX)."""
    G = D * X
    return 0.5 * real_sum((G.conj() if hasattr(G, "conj") else conj(G)) * X), G


def conj(x):
    xp = x.__array_namespace__()
    return xp.conj(x) if xp.isdtype(x.dtype, "complex floating") else x


def make(kind, structure, dtype, library):
    """(fun, x0, manifold) of one combination, in one library; columns are weighted on Stiefel."""
    rng = np.random.default_rng(3)
    B = oracles.random_positive(rng, N, dtype) if kind == "generalised" else None
    weights = np.ones(K) if kind == "Grassmann" else WEIGHTS
    D = library.asarray((SPECTRUM * weights).astype(dtype))
    one = lambda: oracles.random_point(rng, N, K, np.result_type(dtype, np.float32), B=B)
    points = [one().astype(dtype) for _ in range(3)]
    if kind == "Grassmann":
        manifold = Grassmann()
    else:
        manifold = Stiefel(B=None if B is None else library.asarray(B.astype(dtype)))
    if structure == "single":
        return (lambda X: squares(X, D)), library.asarray(points[0]), manifold
    if structure == "stack":
        return (lambda X: squares(X, D)), library.asarray(np.stack(points)), manifold

    def fun(p):
        (f, G), (h, H), (e, E) = (
            squares(p["a"][0], D),
            squares(p["a"][1], D),
            squares(p["c"] - 1.0, D[:, 0]),
        )
        return f + h + e, {"a": [G, H], "c": E}

    x0 = {"a": [library.asarray(p) for p in points[:2]], "c": library.asarray(np.zeros(N, dtype))}
    return fun, x0, {"a": [manifold, manifold], "c": Euclidean()}


def run(kind, structure, dtype, library, **options):
    fun, x0, manifold = make(kind, structure, dtype, library)
    return stiefel.minimize(
        fun, x0, jac=True, manifold=manifold, method=AcceleratedGradient(), **options
    )


def flat(x):
    if isinstance(x, dict):
        return tuple(to_numpy(leaf) for leaf in (*x["a"], x["c"]))
    return (to_numpy(x),)


def combinations():
    for library in (TORCH, STRICT, JAX):
        for kind in ("standard", "generalised", "Grassmann"):
            for structure in ("single", "stack", "tree"):
                for dtype in (float, complex):
                    quick = library is not JAX or (kind, structure, dtype) in (
                        ("standard", "single", float),
                        ("generalised", "single", complex),
                        ("Grassmann", "tree", float),
                    )
                    name = f"{library}-{kind}-{structure}-{dtype.__name__}"
                    marks = [] if quick else [pytest.mark.slow]
                    yield pytest.param(kind, structure, dtype, library, id=name, marks=marks)


@pytest.mark.parametrize(("kind", "structure", "dtype", "library"), tuple(combinations()))
@pytest.mark.parametrize("place", ["host", "elsewhere"])
def test_the_run_is_that_of_numpy(kind, structure, dtype, library, place, request):
    if place == "elsewhere":
        request.getfixturevalue("elsewhere")
    elif library is STRICT:
        pytest.skip("computes in itself in any case")
    expected = run(kind, structure, dtype, NUMPY, maxiter=20, rtol=1e-13)
    result = run(kind, structure, dtype, library, maxiter=20, rtol=1e-13)
    for name in ("nit", "nfev", "njev", "restarts", "status"):
        assert result[name] == expected[name], name
    assert result.fun == pytest.approx(expected.fun, rel=1e-11)
    assert gap(flat(result.x), flat(expected.x)) < 1e-9
    assert gap(flat(result.grad), flat(expected.grad)) < 1e-8
    assert result.feasibility < 1e-14 * N
    if structure == "tree":
        assert set(result.x) == set(result.grad) == {"a", "c"}
        assert isinstance(result.x["a"], list) and isinstance(result.grad["a"], list)
        assert type(result.x["c"]) is type(library.asarray(np.zeros(1)))
    else:
        assert type(result.x) is type(library.asarray(np.zeros(1)))


@pytest.mark.parametrize("library", LIBRARIES, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
@pytest.mark.parametrize("structure", ["single", "stack", "tree"])
@pytest.mark.parametrize("kind", ["standard", "generalised", "Grassmann"])
def test_single_precision_converges_to_its_own_precision(kind, structure, dtype, library):
    if library is JAX and (kind, structure, dtype) != ("standard", "single", np.float32):
        pytest.skip("compiles too long")
    result = run(kind, structure, dtype, library)
    double = np.result_type(dtype, np.float64)
    exact = run(kind, structure, double, NUMPY, rtol=1e-9)
    assert result.success, result.message
    assert {leaf.dtype for leaf in flat(result.x) + flat(result.grad)} == {np.dtype(dtype)}
    assert result.feasibility <= 10 * np.finfo(dtype).eps * np.sqrt(K)
    assert result.fun == pytest.approx(exact.fun, rel=1e-4)


# -- gradients by autodiff, in this library's convention ----------------------------------------


@pytest.mark.parametrize("library", [TORCH, JAX], ids=str)
@pytest.mark.parametrize("dtype", [float, complex])
def test_autodiff_gives_the_gradient_of_the_convention(library, dtype):
    """f(X+H) = f(X) + Re⟨G, H⟩, against finite differences, on a function that mixes parts."""
    rng = np.random.default_rng(0)
    X0 = library.asarray(oracles.random_point(rng, N, K, dtype))
    C = library.asarray(oracles.gaussian(rng, N, K, dtype=dtype))
    fun = lambda X: real_sum(C * X * X) + real_sum(conj_any(C) * X)
    assert stiefel.check_gradient(fun, X0)
    result = stiefel.minimize(fun, X0, method="accelerated", maxiter=3)
    assert np.iscomplexobj(to_numpy(result.x)) == (dtype is complex)


def conj_any(x):
    return x.conj()


@pytest.mark.parametrize("library", [NUMPY, TORCH, STRICT], ids=str)
def test_unitary_procrustes_has_its_closed_form(library):
    """max Re⟨C, X⟩ over unitary X is the sum of the singular values of C."""
    C = oracles.gaussian(np.random.default_rng(1), 5, 5, dtype=complex)
    target = library.asarray(C)
    adjoint = target.conj() if library is TORCH else conj(target)
    fun = lambda X: (-real_sum(adjoint * X), -target)
    start = library.asarray(oracles.random_point(np.random.default_rng(2), 5, 5, complex))
    result = stiefel.minimize(fun, start, jac=True, method="accelerated", rtol=1e-8)
    U, S, Vh = np.linalg.svd(C)
    assert result.fun == pytest.approx(-S.sum(), rel=1e-12)
    np.testing.assert_allclose(to_numpy(result.x), U @ Vh, atol=1e-6)


# -- no way through NumPy ------------------------------------------------------------------------


def test_torch_elsewhere_does_not_pass_through_numpy(monkeypatch, elsewhere):
    torch = pytest.importorskip("torch")
    conversions = []
    for name in ("numpy", "__array__", "tolist"):
        original = getattr(torch.Tensor, name)
        monkeypatch.setattr(
            torch.Tensor,
            name,
            lambda self, *a, _f=original, **k: conversions.append(self.shape) or _f(self, *a, **k),
        )
    original_from = torch.from_numpy
    monkeypatch.setattr(
        torch, "from_numpy", lambda a: conversions.append(a.shape) or original_from(a)
    )
    X0 = stiefel.random_point(30, 3, seed=0, like=torch.zeros(1, dtype=torch.float64))
    conversions.clear()  # random numbers are NumPy's
    D = torch.arange(1.0, 31.0, dtype=torch.float64)[:, None]
    weighted = Stiefel(B=torch.diag(torch.ones(30, dtype=torch.float64)))
    runs = [(Stiefel(), "accelerated"), (weighted, "accelerated"), (Stiefel(), "lbfgs")]
    for manifold, method in runs:
        conversions.clear()
        result = stiefel.minimize(
            lambda X: (D * X * X * torch.tensor([1.0, 2.0, 3.0])).sum(),
            X0,
            manifold=manifold,
            method=method,
        )
        assert result.success and result.nit > 10
        if method == "accelerated":  # nothing but the probe of B, once
            assert len(conversions) <= 2, conversions
        else:  # a limited memory decides on its m inner products, as numbers
            assert all(len(shape) == 1 and shape[0] < 30 for shape in conversions)


def test_jax_elsewhere_does_not_pass_through_numpy(elsewhere):
    """JAX itself refuses transfers of arrays; scalars are what decisions are taken on."""
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    JAX.asarray(np.zeros(1))
    D = jnp.arange(1.0, N + 1.0)[:, None]
    X0 = stiefel.random_point(N, K, seed=0, like=D)
    moved = []
    original = type(X0).__array__
    cls = type(X0)
    try:
        cls.__array__ = lambda self, *a, **k: moved.append(self.shape) or original(self, *a, **k)
    except TypeError:
        pytest.skip("JAX's array type cannot be watched")
    try:
        result = stiefel.minimize(
            lambda X: (D * X * X).sum(), X0, method="accelerated", maxiter=15, rtol=1e-12
        )
    finally:
        cls.__array__ = original
    assert result.nit == 15
    assert [shape for shape in moved if shape != ()] == []


# -- hints ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("library", [TORCH, JAX], ids=str)
def test_a_numpy_start_with_a_function_of_another_library_is_explained(library):
    X0 = stiefel.random_point(6, 2, seed=0)
    C = library.asarray(np.ones((6, 2)))
    scalar = lambda X: (C * library.asarray(X)).sum()
    with pytest.raises(TypeError, match="X0 is a NumPy array; pass"):
        stiefel.minimize(scalar, X0)
    with pytest.raises(TypeError, match="autodiff"):
        stiefel.minimize(lambda X: (scalar(X), C), X0)
    if library is JAX:
        with pytest.raises(TypeError, match="jax_enable_x64"):
            stiefel.minimize(scalar, X0)


def test_compiled_jax_functions_are_differentiated_once():
    jax = pytest.importorskip("jax")
    JAX.asarray(np.zeros(1))
    traces = []

    def loss(X):
        traces.append(1)
        return jax.numpy.sum(X**4)

    X0 = stiefel.random_point(N, K, seed=0, like=jax.numpy.zeros(1))
    compiled = jax.jit(loss)
    stiefel.minimize(compiled, X0, method="accelerated", maxiter=10, rtol=1e-12)
    assert len(traces) <= 3
    traces.clear()
    stiefel.minimize(compiled, 1.0 * X0, method="accelerated", maxiter=10, rtol=1e-12)
    assert not traces  # nor in a second run
    alive = weakref.ref(compiled)
    del compiled
    gc.collect()
    assert alive() is None
