"""Complex unit vectors, which the default method solves as real ones of twice the length."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import stiefel
from cases import LIBRARIES, to_numpy
from stiefel import Euclidean, Oblique, Sphere
from stiefel.geometry.doubled import doubled

RNG = np.random.default_rng(3)
A = RNG.standard_normal((8, 8)) + 1j * RNG.standard_normal((8, 8))
A = A + A.conj().T
LEAST = np.linalg.eigvalsh(A)[0]
SHAPES = [(Sphere(), (8,)), (Sphere(), (8, 1)), (Sphere(), (5, 8)), (Oblique(), (8, 5))]
NAMES = ["vector", "column", "stack", "columns"]


def applied(X: Any) -> Any:
    """A to every vector."""
    return X @ A.T if X.shape[-1] == 8 else A @ X


def form(X: Any) -> Any:
    Y = applied(X)
    return float(np.vdot(X, Y).real), 2 * Y


@pytest.mark.parametrize(("manifold", "shape"), SHAPES, ids=NAMES)
@given(seed=st.integers(0, 99), many=st.integers(1, 3), single=st.booleans())
def test_real_vectors_have_the_lengths_and_products_of_complex_ones(
    manifold: Any, shape: Any, seed: int, many: int, single: bool
) -> None:
    rng = np.random.default_rng(seed)
    shape = (many, *shape)
    x, y = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape) for _ in range(2))
    x, y = (a.astype(np.complex64 if single else complex) for a in (x, y))
    found = doubled(manifold, x)
    assert found is not None
    passage = found[0]
    a, b = passage.inward(x), passage.inward(np.asfortranarray(y))
    assert a.dtype == x.real.dtype and a.size == 2 * x.size
    assert passage.outward(a).dtype == x.dtype and np.array_equal(passage.outward(a), x)
    assert not np.shares_memory(passage.outward(a), a)
    along = -2 if shape[-1] == 1 or isinstance(manifold, Oblique) else -1
    expected = np.sum((x.conj() * y).real, axis=along)
    assert np.allclose(np.sum(a * b, axis=along), expected, rtol=0, atol=1e-5 if single else 1e-13)


@pytest.mark.parametrize(("manifold", "shape"), SHAPES, ids=NAMES)
@pytest.mark.parametrize("library", LIBRARIES, ids=str)
def test_eigenvectors_in_every_library(library: Any, manifold: Any, shape: Any) -> None:
    """The user sees complex arrays only, of the library and the shape of the start."""
    start = library.asarray(manifold.random(*shape, seed=1, dtype=complex))
    seen = set()

    def fun(X: Any) -> Any:
        seen.add((type(X), tuple(X.shape), str(X.dtype)))
        f, G = form(to_numpy(X))
        return f, library.asarray(G)

    points: list[Any] = []
    callback = lambda snapshot: points.append(snapshot.x)
    result = stiefel.minimize(fun, start, jac=True, manifold=manifold, rtol=1e-8, callback=callback)
    assert result.success, result.message
    vectors = 1 if 1 in shape or len(shape) == 1 else 5
    assert result.fun == pytest.approx(vectors * LEAST, abs=1e-10)
    assert seen == {(type(start), tuple(start.shape), str(start.dtype))}
    for X in (result.x, result.grad, points[0]):
        assert (type(X), tuple(X.shape), X.dtype) == (type(start), tuple(start.shape), start.dtype)
    plain = manifold.project(to_numpy(result.x), form(to_numpy(result.x))[1])
    assert np.allclose(to_numpy(result.grad), plain, atol=1e-6)


@pytest.mark.parametrize(("manifold", "shape"), SHAPES, ids=NAMES)
def test_evaluations_are_few(manifold: Any, shape: Any) -> None:
    starts = [manifold.random(*shape, seed=seed, dtype=complex) for seed in range(5)]
    runs = [stiefel.minimize(form, X, manifold=manifold, rtol=1e-8) for X in starts]
    assert all(run.success for run in runs)
    assert sum(run.nfev for run in runs) <= 5 * 60


def test_what_functions_keep_is_theirs() -> None:
    """Points are copies, and cannot be written to; an answer can."""
    kept: list[Any] = []

    def fun(X: Any) -> Any:
        with pytest.raises(ValueError, match="read-only"):
            X[0] = 0
        kept.append((X, X.copy()))
        return form(X)

    result = stiefel.minimize(fun, Sphere().random(8, seed=2, dtype=complex), manifold=Sphere())
    assert all(np.array_equal(X, copy) for X, copy in kept)
    result.x[0] = 0


def test_trees_have_such_leaves_beside_others() -> None:
    """A vector, and a free number that multiplies it: the best approximation of rank one."""
    B = RNG.standard_normal((6, 4)) + 1j * RNG.standard_normal((6, 4))

    def fun(p: Any) -> Any:
        R = np.outer(p["u"], p["v"]) - B
        return 0.5 * np.vdot(R, R).real, {"u": R @ p["v"].conj(), "v": p["u"].conj() @ R}

    start = {"u": Sphere().random(6, seed=1, dtype=complex), "v": np.ones(4, complex)}
    result = stiefel.minimize(fun, start, manifold={"u": Sphere(), "v": Euclidean()}, rtol=1e-8)
    assert result.success, result.message
    assert result.x["u"].shape == (6,) and result.x["u"].dtype == complex
    rest = np.linalg.svd(B, compute_uv=False)[1:]
    assert result.fun == pytest.approx(0.5 * np.sum(rest**2), rel=1e-8)


def test_runs_are_resumed_where_they_stopped(tmp_path: Any) -> None:
    start = Sphere().random(3, 8, seed=4, dtype=complex)
    options: Any = {"manifold": Sphere()}
    whole = stiefel.minimize(form, start, **options)
    file = tmp_path / "run.npz"
    stiefel.minimize(form, start, maxiter=4, checkpoint=file, **options)
    again = stiefel.minimize(form, start, checkpoint=file, resume=True, **options)
    assert again.nfev == whole.nfev and np.array_equal(again.x, whole.x)


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (np.full((3, 8), 1.0 + 0j), "orth|length|constraint|manifold"),
        (np.full((3, 8), np.nan + 0j), "finite|NaN|nan"),
    ],
)
def test_errors_speak_of_the_users_array(start: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words) as error:
        stiefel.minimize(form, start, manifold=Sphere())
    assert "16" not in str(error.value)


def test_what_is_not_such_a_vector_is_left_alone() -> None:
    x = Sphere().random(8, seed=1, dtype=complex)
    assert doubled(Sphere(), x.real) is None
    assert doubled(Sphere(B=np.eye(8)), x) is None
    assert doubled(stiefel.Stiefel(), x[:, None]) is None
    assert doubled(Sphere(), x.astype(x.dtype.newbyteorder())) is None


@pytest.mark.parametrize(("manifold", "shape"), SHAPES, ids=NAMES)
def test_the_solver_sees_real_arrays(monkeypatch: Any, manifold: Any, shape: Any) -> None:
    kinds, init = [], stiefel.LBFGS.init

    def spied(self: Any, problem: Any, x: Any) -> Any:
        kinds.append((x.dtype, x.size))
        return init(self, problem, x)

    monkeypatch.setattr(stiefel.LBFGS, "init", spied)
    start = manifold.random(*shape, seed=1, dtype=complex)
    stiefel.minimize(form, start, manifold=manifold, maxiter=3)
    assert kinds == [(np.dtype(float), 2 * start.size)]
