"""The manifolds under the names people search for, solved and refused."""

import numpy as np
import pytest

import oracles
import stiefel
from cases import LIBRARIES, SOLVERS, to_numpy
from stiefel import (
    ComplexCircle,
    Oblique,
    Orthogonal,
    SpecialOrthogonal,
    Sphere,
    Unitary,
    minimize,
)


def coupled(N, seed=0):
    """Σ M_ij⟨v_i, v_j⟩ of vectors v_i; its value and gradient for vectors in rows."""
    M = np.random.default_rng(seed).standard_normal((N, N))
    M = M + M.T
    return M, lambda V: (float(np.sum(V * (M @ V))), 2 * M @ V)


@pytest.mark.parametrize("method", SOLVERS)
def test_a_stack_of_unit_vectors_longer_than_they_are(method):
    """(N, p) with N > p has the shape of a tall matrix, and is none."""
    _, fun = coupled(20)
    V0 = Sphere().random(20, 3, seed=0)
    rows = minimize(fun, V0, manifold=Sphere(), method=method, rtol=1e-5)
    assert rows.success, rows.message
    assert np.allclose(np.sum(rows.x**2, axis=1), 1)
    transposed = lambda V: (fun(V.T)[0], fun(V.T)[1].T)
    columns = minimize(transposed, V0.T.copy(), manifold=Oblique(), method=method, rtol=1e-5)
    assert columns.success and columns.fun == pytest.approx(rows.fun, rel=1e-3)


@pytest.mark.parametrize("method", SOLVERS)
def test_max_cut_as_unit_columns(method):
    """Burer–Monteiro with p(p+1)/2 > n attains the semidefinite bound of Goemans–Williamson."""
    n, p = 12, 6
    L, _ = coupled(n, seed=3)
    np.fill_diagonal(L, 0.0)
    fun = lambda V: (float(np.sum(V * (V @ L))), 2 * V @ L)
    result = minimize(fun, Oblique().random(p, n, seed=1), manifold=Oblique(), method=method)
    assert result.success, result.message
    multipliers = np.sum(result.x * (result.x @ L), axis=0)  # S = L − diag(λ) ⪰ 0 proves it
    assert np.linalg.eigvalsh(L - np.diag(multipliers))[0] > -1e-3
    assert result.feasibility < 1e-14


@pytest.mark.parametrize("library", LIBRARIES, ids=str)
def test_unit_columns_in_every_library(library):
    pytest.importorskip({"strict": "array_api_strict"}.get(library.name, library.name))
    L = coupled(8)[0]
    V0 = Oblique().random(4, 8, seed=1)
    A = library.asarray(L)

    def fun(V):
        G = V @ A
        return float((G * V).sum() if hasattr(G, "sum") else np.sum(to_numpy(G * V))), 2.0 * G

    here = minimize(fun, library.asarray(V0), jac=True, manifold=Oblique())
    there = minimize(lambda V: (float(np.sum(V * (V @ L))), 2 * V @ L), V0, manifold=Oblique())
    assert here.success and abs(here.nfev - there.nfev) <= 2
    assert here.fun == pytest.approx(there.fun, rel=1e-8)


@pytest.mark.parametrize("method", SOLVERS)
def test_phases_are_found(method):
    """max |aᴴz|² over phases is (Σ|a|)², where z has the phases of a."""
    rng = np.random.default_rng(5)
    a = rng.standard_normal(9) + 1j * rng.standard_normal(9)
    fun = lambda z: (-(abs(np.vdot(a, z)) ** 2), -2 * a * np.vdot(a, z))
    z0 = ComplexCircle().random(9, seed=0)
    result = minimize(fun, z0, manifold=ComplexCircle(), method=method, rtol=1e-6)
    assert result.success, result.message
    assert result.fun == pytest.approx(-(np.abs(a).sum() ** 2), rel=1e-8)
    assert np.allclose(abs(result.x), 1, atol=1e-14)


@pytest.mark.parametrize("manifold", [Oblique(), ComplexCircle()], ids=repr)
def test_the_hessian_is_the_second_derivative_along_geodesics(manifold):
    rng = np.random.default_rng(2)
    X = manifold.random(4, 3, seed=1)
    draw = lambda: rng.standard_normal((4, 3)).astype(X.dtype) * (1 + 1j * np.iscomplexobj(X))
    C = draw()
    f = lambda Y: float(np.sum(np.abs(Y - C) ** 4))
    G = 4 * np.abs(X - C) ** 2 * (X - C)
    W = manifold.project(X, draw())
    E = 4 * np.abs(X - C) ** 2 * W + 8 * np.real(np.conj(X - C) * W) * (X - C)
    found = np.real(np.vdot(manifold.hessian(X, G, W, E), W))
    h = 1e-4
    along = [f(manifold.geodesic(X, W, t)) for t in (-h, 0.0, h)]
    assert found == pytest.approx((along[0] - 2 * along[1] + along[2]) / h**2, rel=1e-5)


def test_orthogonal_procrustes_in_both_components():
    rng = np.random.default_rng(0)
    A, B = rng.standard_normal((2, 10, 4))
    fun = lambda Q: (float(np.sum((A @ Q - B) ** 2)), 2 * A.T @ (A @ Q - B))
    group = Orthogonal()
    runs = [
        minimize(fun, Q0, manifold=group, rtol=1e-8)
        for Q0 in (np.eye(4), group.reflected(np.eye(4)))
    ]
    assert [run.determinant for run in runs] == [1.0, -1.0]
    U, _, Vh = np.linalg.svd(A.T @ B)
    assert min(run.fun for run in runs) == pytest.approx(fun(U @ Vh)[0], rel=1e-10)
    assert runs[0].fun != pytest.approx(runs[1].fun, rel=1e-3)
    assert "determinant" in repr(runs[0])
    several = minimize(fun, np.eye(4), manifold=group, starts=6)
    assert several.fun == pytest.approx(fun(U @ Vh)[0], rel=1e-8)  # in whichever component


def test_a_square_start_with_orthogonal_is_not_warned_about(recwarn):
    minimize(lambda Q: (Q[0, 1], np.eye(2)[:, ::-1] * [[1], [0]]), np.eye(2), manifold=Orthogonal())
    assert not recwarn


def test_rotations_are_averaged_as_a_stack():
    """The mean of 2-D rotations is the mean of their angles, for every matrix of a stack."""
    angles = np.array([0.1, 0.3, 0.5]) + np.linspace(0, 6, 4)[:, None]
    data = np.stack([[np.cos(angles), -np.sin(angles)], [np.sin(angles), np.cos(angles)]])
    total = np.moveaxis(data, (0, 1), (-2, -1)).sum(axis=1)  # (4, 2, 2)
    fun = lambda R: (-float(np.sum(total * R)), -total)
    start = np.broadcast_to(np.eye(2), (4, 2, 2)).copy()
    result = minimize(fun, start, manifold=SpecialOrthogonal())
    assert result.success
    found = np.arctan2(result.x[:, 1, 0], result.x[:, 0, 0])
    assert np.allclose(np.exp(1j * found), np.exp(1j * angles.mean(axis=1)), atol=1e-5)


def test_refusals():
    with pytest.raises(TypeError, match=r"Unitary\(\) needs complex.*Orthogonal"):
        minimize(lambda U: (0.0, U), np.eye(3), manifold=Unitary())
    with pytest.raises(ValueError, match="square"):
        minimize(lambda U: (0.0, U), oracles.random_point(np.random.default_rng(0), 4, 2),
                 manifold=Orthogonal())  # fmt: skip
    with pytest.raises(ValueError, match=r"unit columns.*Oblique\(\)\.nearest"):
        minimize(lambda V: (0.0, V), np.ones((3, 2)), manifold=Oblique())
    with pytest.raises(ValueError, match="Sphere"):
        minimize(lambda V: (0.0, V), np.ones(3), manifold=Oblique())
    with pytest.raises(TypeError, match=r"ComplexCircle.*complex"):
        minimize(lambda z: (0.0, z), np.ones(3), manifold=ComplexCircle())
    assert Oblique().nearest(np.ones((3, 2))).shape == (3, 2)


def test_lazy_modules():
    """`import stiefel; stiefel.torch` works, and imports no library before it is asked for."""
    import subprocess
    import sys

    code = (
        "import sys, stiefel; assert 'jax' not in sys.modules and 'torch' not in sys.modules\n"
        "assert set(('torch', 'jax', 'mpi')) <= set(dir(stiefel))\n"
        "print(stiefel.mpi.row_range, stiefel.{0}.__name__, '{0}' in sys.modules)"
    )
    for name in ("torch", "jax"):
        pytest.importorskip(name)
        command = [sys.executable, "-c", code.format(name)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0 and f"stiefel.{name} True" in done.stdout, done.stderr
    with pytest.raises(AttributeError, match=r"no attribute 'minimise'.*minimize"):
        stiefel.minimise  # noqa: B018
