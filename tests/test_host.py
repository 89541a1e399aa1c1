"""Points of PyTorch and JAX in the host's memory: NumPy inside, the user's library outside."""

import numpy as np
import pytest

import stiefel
from stiefel import Euclidean, Grassmann, Sphere, Stiefel
from stiefel.backends import host
from stiefel.backends.host import DIRECT, passage_of

N, K = 40, 4
SPECTRUM = np.linspace(1.0, 30.0, N)[:, None]
WEIGHTS = np.linspace(1.0, 2.0, K)
METHODS = ("auto", "lbfgs", "accelerated", "cg", "trust-region")


def in_torch(values):
    return pytest.importorskip("torch").as_tensor(np.array(values))


def in_jax(values):
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    return jax.numpy.asarray(values)


BOTH = [pytest.param(in_torch, id="torch"), pytest.param(in_jax, id="jax")]


def quadratic(array):
    """½Σ w_j⟨X_j, AX_j⟩ + ⟨C, X⟩ with its gradient."""
    a, w = array(SPECTRUM), array(WEIGHTS)
    C = array(np.random.default_rng(3).standard_normal((N, K)))

    def fun(X):
        G = a * X * w
        return (X * (0.5 * G + C)).sum(), G + C

    return fun


def start(array, seed=0):
    return array(stiefel.random_point(N, K, seed=seed))


# -- the user's library outside --------------------------------------------------------------


@pytest.mark.parametrize("array", BOTH)
@pytest.mark.parametrize("method", METHODS)
def test_runs_repeat_those_of_numpy_and_functions_see_their_library(array, method):
    seen = []

    def watched(X):
        seen.append(type(X))
        return quadratic(array)(X)

    options = {"jac": True, "method": method, "rtol": 1e-8, "maxiter": 12}
    expected = stiefel.minimize(quadratic(np.asarray), start(np.asarray), **options)
    note = lambda snapshot: seen.append(type(snapshot.x))
    result = stiefel.minimize(watched, start(array), callback=note, **options)
    assert set(seen) == {type(start(array))}
    assert (result.nit, result.nfev) == (expected.nit, expected.nfev)
    assert result.fun == pytest.approx(expected.fun, rel=1e-12)
    for mine, theirs in ((result.x, expected.x), (result.grad, expected.grad)):
        assert type(mine) is type(start(array))
        assert np.abs(np.asarray(mine) - theirs).max() < 1e-6


@pytest.mark.parametrize("array", BOTH)
def test_hessians_preconditioners_and_structures_are_of_the_users_library(array):
    seen, kind = set(), type(start(array))
    note = lambda *arrays: seen.update(map(type, arrays))
    a, w = array(SPECTRUM), array(WEIGHTS)

    def hessp(p, V):
        note(p["X"], V["X"], V["b"])
        return {"X": a * V["X"] * w, "b": V["b"]}

    def precond(p, G):
        note(p["X"], G["X"], p["b"])
        return {"X": G["X"] / w, "b": G["b"]}

    def fun(p):
        f, G = quadratic(array)(p["X"])
        return f + ((p["b"] - 1) ** 2).sum(), {"X": G, "b": 2 * (p["b"] - 1)}

    x0 = {"X": start(array), "b": array(np.zeros(3))}
    where = {"X": Stiefel(), "b": Euclidean()}
    for options in ({"hessp": hessp, "method": "trust-region"}, {"precond": precond}):
        result = stiefel.minimize(fun, x0, jac=True, manifold=where, **options)
        assert result.success and type(result.x["b"]) is type(result.grad["X"]) is kind
    assert seen == {kind}


@pytest.mark.parametrize("array", BOTH)
@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.complex128])
def test_dtypes_are_kept(array, dtype):
    rng = np.random.default_rng(0)
    values = rng.standard_normal((N, K)) + (1j if np.dtype(dtype).kind == "c" else 0) * rng.random()
    x0 = array(stiefel.nearest(values.astype(dtype)))
    a = array(SPECTRUM.astype(np.zeros(1, dtype).real.dtype))
    fun = lambda X: (
        (X.conj() * X * a).real.sum() if "complex" in str(X.dtype) else (X * X * a).sum()
    )
    result = stiefel.minimize(fun, x0, manifold=Grassmann())
    assert result.success
    assert result.x.dtype == result.grad.dtype == x0.dtype


def test_sparse_constraints_go_with_torch_and_with_jax():
    import scipy.sparse

    B = scipy.sparse.diags_array(np.linspace(1.0, 2.0, N)).tocsc()
    expected = None
    for array in (np.asarray, in_torch, in_jax):
        x0 = array(Stiefel(B=B).random(N, K, seed=0))
        result = stiefel.minimize(quadratic(array), x0, jac=True, manifold=Stiefel(B=B), rtol=1e-8)
        expected = expected or result
        assert result.success and result.fun == pytest.approx(expected.fun, rel=1e-12)


# -- what users may rely on ------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_function_of_tensors_may_keep_and_change_its_point(method):
    """Points are copies: neither writing into X nor writing later reaches the solver."""
    kept = []

    def hostile(X):
        f, G = quadratic(in_torch)(X)
        for old in kept:
            old.fill_(float("nan"))
        kept.append(X)
        if len(kept) > 3:
            kept.pop(0)
        X.zero_()
        return f, G

    options = {"jac": True, "method": method}
    expected = stiefel.minimize(quadratic(in_torch), start(in_torch), **options)
    result = stiefel.minimize(
        hostile, start(in_torch), callback=lambda s: s.x.zero_() is None, **options
    )
    assert (result.nfev, result.fun) == (expected.nfev, expected.fun)
    assert np.array_equal(np.asarray(result.x), np.asarray(expected.x))


def test_starts_with_gradients_and_views_are_taken_as_they_are():
    torch = pytest.importorskip("torch")
    x0 = stiefel.random_point(N, K, seed=0, dtype=complex)
    fun = lambda X: (X.conj() * in_torch(SPECTRUM) * X).real.sum()
    plain = stiefel.minimize(fun, in_torch(x0), manifold=Grassmann())
    given = (
        torch.nn.Parameter(in_torch(x0)),
        in_torch(x0.conj()).conj(),  # a view with a bit, not with other numbers
        in_torch(np.ascontiguousarray(x0.T)).T,
    )
    for start_point in given:
        before = start_point.detach().clone()
        result = stiefel.minimize(fun, start_point, manifold=Grassmann())
        assert result.fun == pytest.approx(plain.fun, rel=1e-12)
        assert type(result.x) is torch.Tensor and not result.x.requires_grad
        assert torch.equal(before, start_point.detach())


class Mine(Stiefel):
    """A manifold of the user's own, which may expect tensors."""

    def project(self, X, G):
        assert hasattr(X, "detach")
        return super().project(X, G)


@pytest.mark.parametrize(
    "manifold", [Mine(), Stiefel(B=np.eye(N), solve=lambda G: G.clone())], ids=["own", "solve"]
)
def test_code_of_the_users_keeps_its_library(manifold):
    result = stiefel.minimize(
        quadratic(in_torch), start(in_torch), jac=True, manifold=manifold, maxiter=5
    )
    assert type(result.x) is type(start(in_torch))


def test_precision_that_was_turned_off_does_not_change_a_start_of_jax():
    jax = pytest.importorskip("jax")
    x0 = start(in_jax)
    jax.config.update("jax_enable_x64", False)
    try:
        assert passage_of(x0) is DIRECT
    finally:
        jax.config.update("jax_enable_x64", True)
    assert passage_of(x0) is not DIRECT


def test_devices_of_jax_are_kept():
    jax = pytest.importorskip("jax")
    x0 = jax.device_put(start(in_jax), jax.devices()[0])
    result = stiefel.minimize(jax.jit(quadratic(in_jax)), x0, jac=True, maxiter=3)
    assert result.x.committed and result.x.devices() == x0.devices()
    assert not stiefel.minimize(quadratic(in_jax), start(in_jax), jac=True).x.committed


# -- how often the host waits ----------------------------------------------------------------


def conversions(monkeypatch, array):
    """A list that grows with every number and every array that comes to the host."""
    found, kind = [], type(start(array))
    names = ("__float__", "__bool__", "__int__", "item", "tolist", "numpy")
    for name in filter(lambda name: hasattr(kind, name), names):
        original = getattr(kind, name)
        note = lambda self, *a, _f=original, _n=name, **k: found.append(_n) or _f(self, *a, **k)
        monkeypatch.setattr(kind, name, note)
    if array is in_jax:  # NumPy reads memory without asking for a method
        passage = host.passage_of(start(array))
        watched = passage._replace(inward=lambda x: found.append("array") or passage.inward(x))
        monkeypatch.setattr("stiefel.arguments.passage_of", lambda x: watched)
    return found


@pytest.mark.parametrize("array", BOTH)
@pytest.mark.parametrize("method", ["auto", "lbfgs"])
def test_the_host_waits_at_most_three_times_an_iteration(monkeypatch, array, method):
    found, fun, x0 = conversions(monkeypatch, array), quadratic(array), start(array)
    result = stiefel.minimize(fun, x0, jac=True, method=method, maxiter=30, rtol=1e-14)
    assert result.nit == 30
    assert len(found) <= 2 * result.nfev + 4 and len(found) <= 3 * result.nit, found


def test_elsewhere_the_host_waits_ten_times_an_iteration(monkeypatch):
    """Of which four would be for a curve's numbers if they did not travel together."""
    monkeypatch.setattr("stiefel.arguments.passage_of", lambda x: DIRECT)
    found, fun, x0 = conversions(monkeypatch, in_torch), quadratic(in_torch), start(in_torch)
    at = []
    stiefel.minimize(
        fun,
        x0,
        jac=True,
        method="lbfgs",
        maxiter=30,
        rtol=1e-14,
        callback=lambda s: at.append((s.nfev, len(found))),
    )
    (calls, first), (more, last) = at[15], at[-1]
    assert last - first <= 10 * (len(at) - 16) + 3 * (more - calls - len(at) + 16)


def test_nothing_is_compiled_as_a_run_goes_on():
    jax = pytest.importorskip("jax")
    events, at = [], []
    jax.monitoring.register_event_duration_secs_listener(lambda name, *_, **__: events.append(name))
    fun, x0 = jax.jit(quadratic(in_jax)), start(in_jax)
    stiefel.minimize(
        fun, x0, jac=True, maxiter=30, rtol=1e-14, callback=lambda s: at.append(len(events))
    )
    assert len(at) == 30 and at[0] > 0
    assert at[1] == at[-1], events[at[1] :]


@pytest.mark.parametrize("manifold", [Stiefel(), Sphere()], ids=str)
def test_compiled_functions_are_called_once_an_evaluation(manifold):
    jax = pytest.importorskip("jax")
    traced = []

    @jax.jit
    def fun(X):
        traced.append(1)
        return jax.numpy.sum(X**4 * in_jax(SPECTRUM))

    x0 = in_jax(manifold.random(N, 1, seed=0))
    result = stiefel.minimize(fun, x0, manifold=manifold, method="trust-region")
    assert result.success and len(traced) <= 3


@pytest.mark.parametrize("method", ["auto", "accelerated"])
def test_a_compiled_function_may_return_its_argument(method):
    """Compiled functions get NumPy's arrays; JAX may hand out the same memory as the gradient."""
    jax = pytest.importorskip("jax")
    half = lambda x: (0.5 * (x * x).sum(), x)
    x0, where = np.linspace(-1.0, 2.0, 64).reshape(16, 4), Euclidean()  # aligned, or not
    options = {"jac": True, "manifold": where, "method": method, "rtol": 1e-8}
    expected = stiefel.minimize(half, x0, **options)
    result = stiefel.minimize(jax.jit(half), in_jax(x0), **options)
    assert (result.nit, result.nfev) == (expected.nit, expected.nfev)
    assert np.abs(np.asarray(result.x) - expected.x).max() < 1e-12
    assert np.array_equal(np.asarray(in_jax(x0)), x0)
