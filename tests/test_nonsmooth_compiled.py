"""The compiled kernels of the proximal step, of its system and of restoration: against the text."""

from __future__ import annotations

import numpy as np
import pytest

import stiefel
from stiefel.backends.arrays import kernels_for
from stiefel.nonsmooth.compiled import Normals
from stiefel.nonsmooth.learned_operator import LearnedOperator
from stiefel.nonsmooth.normal_system import CompiledSystem, NormalSystem, normal_system
from stiefel.nonsmooth.pattern import Tangents, restore
from stiefel.nonsmooth.quasi_newton import BOLD, model_of
from stiefel.nonsmooth.space import Sum, space_of
from stiefel.nonsmooth.subproblem import proximal_step
from stiefel.nonsmooth.terms import Diagonal

KERNELS = kernels_for(np.zeros(1))
SIZES = [(1, 1), (30, 1), (4, 4), (9, 2), (40, 5), (60, 12)]

pytestmark = pytest.mark.skipif(KERNELS.compiled is None, reason="the kernels are not built")


def both(monkeypatch, n, k, term, seed=0):
    """(Sum with kernels, Sum without, x, g)."""
    X, rng = stiefel.random_point(n, k, seed=seed), np.random.default_rng(seed)
    geometry = stiefel.Stiefel().bind(X)
    fast = Sum(space_of(geometry, X), (term,), scale=1.25)
    assert isinstance(fast.space.compiled, Normals)
    with monkeypatch.context() as without:
        without.setattr(KERNELS, "compiled", None)
        text = Sum(space_of(geometry, X), (term,), scale=1.25)
        assert text.space.compiled is None and text.soft_weights is None
    return fast, text, X.reshape(-1).copy(), rng.standard_normal(n * k)


def close(a, b, size=1.0, digits=1e-11):
    return np.linalg.norm(a - b) <= digits * (size + np.linalg.norm(b))


def weights_of(kind, n, k):
    if kind == "zeros":
        return np.where(np.arange(n * k).reshape(n, k) % 3, 0.4, 0.0)
    return {"one": 0.3, "steep": 1e4, "rows": np.linspace(0.0, 0.5, n)[:, None]}[kind]


@pytest.mark.parametrize(("n", "k"), SIZES)
@pytest.mark.parametrize("weights", ["one", "rows", "zeros", "steep"])
@pytest.mark.parametrize("pairs", [0, 1, 4])
@pytest.mark.parametrize("part", [None, 0.1, 0.01])
def test_the_proximal_step(monkeypatch, n, k, weights, pairs, part):
    fast, text, x, g = both(monkeypatch, n, k, stiefel.L1(weights_of(weights, n, k)))
    S = np.random.default_rng(1).standard_normal((pairs, n * k))
    t, memory = 0.4, model_of(S, S * np.linspace(1.0, 5.0, n * k), 2.0, 1e-3)[1]
    L = text.space.gather(x, g)
    a = proximal_step(fast, x, g, t, L, memory, part)
    b = proximal_step(text, x, g, t, L, memory, part)
    assert a.solved == b.solved
    if not b.solved:  # then the caller takes another step, and the last digits decide where it ends
        return
    size = 1.0 + float(np.max(weights_of(weights, n, k)))
    for one, other in zip(a[:4], b[:4], strict=True):
        assert close(one, other, size, 1e-9)
    assert (a.system is None) == (b.system is None)
    if b.system is not None and pairs == 0:
        rhs = np.random.default_rng(2).standard_normal((2, len(L)))
        assert close(a.system.solve(rhs), b.system.solve(rhs), digits=1e-6)


@pytest.mark.parametrize(("n", "k"), SIZES)
@pytest.mark.parametrize("curved", [0, 1, 3, 4])
def test_the_model_of_pairs(monkeypatch, n, k, curved):
    """With pairs left out, the newest among them, and with the change of the Lagrangian."""
    fast, text, x, g = both(monkeypatch, n, k, stiefel.L1(0.3))
    rng = np.random.default_rng(6)
    S = rng.standard_normal((4, n * k))
    L = 0.01 * text.space.gather(x, g)
    Y = S * np.where(np.arange(4) < curved, 2.0, -1.0)[:, None] * np.linspace(1.0, 3.0, n * k)
    sigma, expected = model_of(S, Y - text.space.normal(S, L), 2.0, 1e-3)
    found, U, K_inverse = fast.space.compiled.model(x, S, Y, L, BOLD, 1e-3, 2.0)
    assert abs(found - sigma) <= 1e-12 * sigma and len(U) == 2 * curved
    assert (expected is None) == (curved == 0)
    if expected is not None:
        assert close(U, expected.U) and close(K_inverse, expected.K_inverse)


@pytest.mark.parametrize(("n", "k"), [(30, 1), (40, 5), (30, 12), (60, 15)])
@pytest.mark.parametrize("kind", ["symmetric", "low rank", "other"])
def test_lessons(n, k, kind):
    """Until the operator is known, with steps that are not new and columns that are zero."""
    rng, B = np.random.default_rng(7), np.random.default_rng(8).standard_normal((n, n))
    A = {"symmetric": B + B.T, "low rank": B[:, :2] @ B[:, :2].T, "other": B}[kind]
    X = stiefel.random_point(n, k, seed=0)
    operator = LearnedOperator.unknown(space_of(stiefel.Stiefel().bind(X), X))
    S = rng.standard_normal((n, k))
    for i in range(4):
        S = rng.standard_normal((n, k)) if i != 2 else S + 1e-5 * rng.standard_normal((n, k))
        S[:, 0] *= 0.0 if i == 1 and k > 1 else 1.0
        a = operator._compiled_lesson(KERNELS.compiled, S, A @ S)
        b = operator._lesson(S, A @ S)
        assert a.error == b.error or abs(a.error - b.error) <= 1e-9 * (b.error + 1e-3)
        assert a.Q.shape == b.Q.shape
        if len(b.Q) == 0:
            continue
        assert abs(a.asymmetry - b.asymmetry) <= 1e-12 * b.squares
        assert abs(a.squares - b.squares) <= 1e-12 * b.squares
        for name in ("Q", "P"):  # of each the span, by the operator that it makes
            one, other = getattr(a, name), getattr(b, name)
            assert close(one.T @ a.Q, other.T @ b.Q, digits=1e-9)
        if kind != "low rank" or i == 0:  # then R is rounding
            assert close(*((L.T.T / L.theta) @ L.T for L in (a, b)), digits=1e-6)
        operator = operator._replace(
            Q=np.concatenate((operator.Q, b.Q)),
            P=np.concatenate((operator.P, b.P)),
            model=operator.model.with_rows(b.T, b.theta),
        )


@pytest.mark.parametrize(("n", "k"), SIZES)
@pytest.mark.parametrize("delta", [0.0, 1e-3])
@pytest.mark.parametrize("weighing", ["mask", "numbers"])
def test_the_system(monkeypatch, n, k, delta, weighing):
    fast, text, x, _ = both(monkeypatch, n, k, stiefel.L1(0.3))
    rng = np.random.default_rng(3)
    D = rng.random(n * k) + 0.1 if weighing == "numbers" else np.ones(n * k)
    D[:: max(3, k)] = 0.0 if n * k > 4 else 1.0
    a, b = (normal_system(h.space, x, Diagonal(D), delta) for h in (fast, text))
    assert isinstance(a, CompiledSystem)
    rhs = rng.standard_normal((3, fast.space.duals.size))
    assert close(a.solve(rhs), b.solve(rhs), digits=1e-9)
    assert close(a.solve(rhs[0]), b.solve(rhs[0]), digits=1e-9)


def test_a_singular_system_is_solved_by_its_pseudo_inverse(monkeypatch):
    """Two columns without a common row, and a third with one row for each of them."""
    fast, text, x, _ = both(monkeypatch, 8, 3, stiefel.L1(0.3))
    mask = np.zeros((8, 3))
    mask[:3, 0] = mask[3:6, 1] = mask[[0, 7], 2] = 1.0
    for pseudo in (False, True):
        a, b = (
            normal_system(h.space, x, Diagonal(mask.reshape(-1)), 0.0, pseudo) for h in (fast, text)
        )
        rhs = b.apply(np.arange(1.0, 7.0))  # one that has a solution
        assert close(a.solve(rhs), b.solve(rhs), digits=1e-9)


@pytest.mark.parametrize(("n", "k"), SIZES[1:])
@pytest.mark.parametrize("zeros", [0.0, 0.4, 0.8])
@pytest.mark.parametrize("known", [False, True])
def test_restoration(monkeypatch, n, k, zeros, known):
    """With a system that is known or without, with columns that share one row only or none."""
    fast, text, x, _ = both(monkeypatch, n, k, stiefel.L1(0.3))
    rng, restored = np.random.default_rng(4), 0
    for _ in range(10):
        mask = np.where(rng.random(n * k) < zeros, 0.0, 1.0)
        z = mask * (x + 0.02 * rng.standard_normal(n * k))
        if zeros and k > 1:  # small entries where the others have large ones
            z = mask * _nearly_orthonormal(z, n, k, rng)
        a, b = (
            restore(
                h.space,
                z,
                mask,
                1e-14,
                normal_system(h.space, z, Diagonal(mask), 1e-3) if known else None,
            )
            for h in (fast, text)
        )
        assert (a is None) == (b is None)
        if b is not None:
            restored += 1
            assert close(a, b) and np.array_equal(a == 0, b == 0)
            assert np.linalg.norm(text.space.defect(a)) <= 1e-14
    assert restored or zeros


def _nearly_orthonormal(z, n, k, rng):
    """Columns with few common entries."""
    own = np.arange(n) % k
    Z = np.where(own[:, None] == np.arange(k), 1.0, 0.02 * rng.standard_normal((n, k)))
    return (Z / np.linalg.norm(Z, axis=0)).reshape(-1)


@pytest.mark.parametrize(("n", "k"), SIZES[1:])
def test_tangents(monkeypatch, n, k):
    fast, text, x, g = both(monkeypatch, n, k, stiefel.L1(0.3))
    mask = np.where(np.arange(n * k) % 5, 1.0, 0.0)
    a, b = (Tangents(h.space, x, mask) for h in (fast, text))
    L = text.space.gather(x, g)
    w = np.random.default_rng(5).standard_normal(n * k)
    assert close(a.project(g), b.project(g)) and close(a.multiplier(g), b.multiplier(g))
    assert close(a.curvature(g, w, L), b.project(g - text.space.normal(w, L)))
    assert close(b.curvature(g, w, L), b.project(g - text.space.normal(w, L)))


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("hessp", [False, True])
def test_runs_do_not_depend_on_the_kernels(monkeypatch, k, hessp):
    """Nor does the number of evaluations, beside one or two at the end."""
    B = np.random.default_rng(0).standard_normal((20, 50)) / 7
    fun = lambda X: (-np.sum((B @ X) ** 2), -2 * B.T @ (B @ X))
    given = {"hessp": lambda X, V: -2 * B.T @ (B @ V)} if hessp else {}
    solve = lambda: stiefel.minimize(
        fun,
        stiefel.random_point(50, k, seed=1),
        nonsmooth=stiefel.L1(0.2),
        rtol=0,
        gtol=1e-9,
        **given,
    )
    a = solve()
    monkeypatch.setattr(KERNELS, "compiled", None)
    b = solve()
    assert a.success and b.success and np.array_equal(a.support, b.support)
    assert np.allclose(a.x, b.x, atol=1e-8) and abs(a.nfev - b.nfev) <= 2


def test_a_factorisation_pays_to_thirty_columns(monkeypatch):
    """No product in conjugate gradients; 80,000 if they are used from twelve columns on."""
    products, real = [], NormalSystem.apply
    monkeypatch.setattr(NormalSystem, "apply", lambda s, L: products.append(0) or real(s, L))
    B = np.random.default_rng(5).standard_normal((20, 40)) / 6
    fun = lambda X: (-np.sum((B @ X) ** 2), -2 * B.T @ (B @ X))
    X0 = stiefel.random_point(40, 14, seed=5)
    result = stiefel.minimize(fun, X0, nonsmooth=stiefel.L1(0.3), rtol=1e-8)
    assert result.success and result.nfev <= 10, result.message
    assert not products


def test_wrong_arrays_are_told():
    """No kernel reads beyond what it was handed."""
    c, X, q = KERNELS.compiled, np.eye(4, 2), 3
    numbers = np.zeros(1 + q + q * q)
    with pytest.raises(ValueError, match="bytes"):
        c.normal_factor(X, np.ones(7), 0.0, 0, numbers)
    with pytest.raises(ValueError, match="bytes"):
        c.normal_factor(X, np.ones(8), 0.0, 0, numbers[:-1].copy())
    with pytest.raises(ValueError, match="right-hand side"):
        c.normal_solve(numbers, np.ones(4))
    with pytest.raises(ValueError, match="right-hand side"):
        c.normal_solve(np.zeros(4), np.ones(3))
    with pytest.raises(ValueError, match="multiplier"):
        c.tangent_part(X, np.ones(8), numbers, np.ones(8), np.ones(8), None, np.ones(8))
    out = np.empty(8), np.empty(8), np.empty(3), np.empty(3), numbers
    for mu, U, K in ((np.ones(2), None, None), (np.ones(1), np.ones(12), np.ones((1, 1)))):
        with pytest.raises(ValueError, match=r"fit each other|bytes"):
            c.proximal_step(X, np.ones(8), 0.1, mu, np.ones(3), U, K, -1.0, *out)
    with pytest.raises(ValueError, match="double precision"):
        c.restore_zeros(X.astype(np.float32), np.ones(8), 0.1, None, np.ones(8), np.ones(8))
    with pytest.raises(TypeError, match="1 arguments"):
        c.restore_zeros(X)
