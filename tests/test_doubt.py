"""Wrong gradients do not end as success, and right ones are never accused: `solvers.doubt`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stiefel
from stiefel import Euclidean, Stiefel
from stiefel.backends.ranks import ALONE
from stiefel.runs import driver
from stiefel.solvers import doubt
from stiefel.solvers.noise import Model, Watch, is_doubtful
from stiefel.solvers.problem import Problem

METHODS = ("auto", "lbfgs", "accelerated", "cg", "trust-region")
SHAPES = ((12, 3), (30, 2), (8, 7), (20, 1), (40, 4))
CHARGES = "contradict its gradient"


class Sum:
    """Tr(XᴴSX diag(1, …, k)) + Re⟨C, X⟩ + Σ|x|⁴, and what may be wrong with its gradient."""

    def __init__(self, seed: int, dtype: Any = float) -> None:
        n, k = SHAPES[seed % len(SHAPES)]
        rng = np.random.default_rng([seed, 77])

        def draw(*shape: int) -> Any:
            values = rng.standard_normal(shape)
            return values if dtype is float else values + 1j * rng.standard_normal(shape)

        M = draw(n, n) / np.sqrt(n)
        self.S, self.K, self.w = M + M.conj().T, (M - M.conj().T) / 2, np.arange(1.0, k + 1)
        self.C, self.D = draw(n, k), draw(n, k)
        self.D /= np.linalg.norm(self.D)
        self.start = stiefel.random_point(n, k, seed=seed + 1000, dtype=dtype)

    def parts(self, X: Any) -> tuple[float, Any, Any, Any]:
        SX, squares = self.S @ X * self.w, np.abs(X) ** 2
        f = np.vdot(X, SX).real + np.vdot(self.C, X).real + np.sum(squares * squares)
        return float(f), 2 * SX, self.C, 4 * squares * X

    def right(self, X: Any) -> tuple[float, Any]:
        f, *parts = self.parts(X)
        return f, sum(parts)

    def relative_norm(self, X: Any) -> float:
        """Of the true gradient."""
        norms = [np.linalg.norm(Stiefel().project(Y, self.right(Y)[1])) for Y in (X, self.start)]
        return float(norms[0] / norms[1])


def first(A: Any) -> Any:
    """Its first column."""
    return A * (np.arange(A.shape[1]) == 0)


# What is subtracted from the gradient, of the terms with S, C and fourth powers.
WRONG = {
    "a sign in a column": lambda p, X, S, C, Q: 2 * first(Q),
    "a missing factor": lambda p, X, S, C, Q: 0.5 * Q,
    "nearly the whole term": lambda p, X, S, C, Q: 0.01 * Q,
    "a small term": lambda p, X, S, C, Q: 1e-3 * Q,
    "of another function": lambda p, X, S, C, Q: 0.02 * p.D,
    "of a near function": lambda p, X, S, C, Q: 2e-3 * p.D,
    "a transposed matrix": lambda p, X, S, C, Q: 0.02 * (p.K @ X) * p.w,
}
COMPLEX = {
    "a real part": lambda p, X, S, C, Q: 1j * Q.imag,
    "a conjugate": lambda p, X, S, C, Q: C - C.conj(),
    "twice a term": lambda p, X, S, C, Q: -C,
}


def wrong(p: Sum, mistake: Any) -> Any:
    def fun(X: Any) -> tuple[float, Any]:
        f, *parts = p.parts(X)
        return f, sum(parts) - mistake(p, X, *parts)

    return fun


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", [*WRONG, *COMPLEX])
def test_a_wrong_gradient_is_no_success(name: str, method: str) -> None:
    """Of 250 such runs 58 ended as converged where only the given gradient vanished."""
    for seed in range(4, 9):
        p = Sum(seed, complex if name in COMPLEX else float)
        fun = wrong(p, (WRONG | COMPLEX)[name])
        result = stiefel.minimize(fun, p.start, method=method, maxfun=2000)
        assert not result.success or p.relative_norm(result.x) < 1e-5, (seed, result.message)


@pytest.mark.parametrize(
    ("name", "seed"),
    [("nearly the whole term", 1), ("a small term", 12), ("of a near function", 0)],
)
def test_what_looks_like_noise_is_no_success(name: str, seed: int) -> None:
    """Conjugate gradients measure a noise that is not there; with SUSPECT_NOISE = 1 they end so."""
    p = Sum(seed)
    assert not stiefel.minimize(wrong(p, WRONG[name]), p.start, method="cg").success


@pytest.mark.parametrize("method", METHODS)
def test_a_wrong_leaf_is_no_success(method: str) -> None:
    for seed in range(4):
        p = Sum(seed)
        k = p.start.shape[1]

        def fun(x: Any, p: Any = p) -> tuple[float, Any]:
            f, G = p.right(x["X"])
            gap = x["v"] - 0.3 * x["X"].sum(0) - 0.5
            coupled = G - 0.6 * gap * np.ones_like(G)
            return f + float(gap @ gap), {"X": coupled, "v": 2 * gap + 0.01}

        start = {"X": p.start, "v": np.zeros(k)}
        where = {"X": Stiefel(), "v": Euclidean()}
        result = stiefel.minimize(fun, start, manifold=where, method=method, maxfun=2000)
        assert not result.success, seed


@pytest.mark.parametrize("method", METHODS)
def test_the_message_says_what_to_do(method: str) -> None:
    p = Sum(9)
    fun, calls = wrong(p, WRONG["of a near function"]), [0]

    def counted(X: Any) -> Any:
        calls[0] += 1
        return fun(X)

    result = stiefel.minimize(counted, p.start, method=method, maxfun=3000)
    assert result.nfev == calls[0]
    if result.status == "STEP_NOT_FOUND":
        assert "check_gradient" in result.message
    assert not stiefel.check_gradient(fun, result.x)


# -- right gradients -----------------------------------------------------------------------------


def asked(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What comes out whenever f is asked at the end of a run."""
    found: list[float] = []
    ask = doubt.contradicting_derivative

    def noted(*arguments: Any) -> float:
        found.append(ask(*arguments))
        return found[-1]

    monkeypatch.setattr(doubt, "contradicting_derivative", noted)
    return found


def scaled(fun: Any, factor: float) -> Any:
    return lambda X: tuple(factor * part for part in fun(X))


def single(fun: Any) -> Any:
    def rounded(X: Any) -> Any:
        f, G = fun(X.astype(complex if np.iscomplexobj(X) else float))
        return np.float32(f), G.astype(X.dtype)

    return rounded


@pytest.mark.parametrize("method", METHODS)
def test_a_right_gradient_costs_nothing(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """With PER_LENGTH = 0 nine or more of these 140 runs ask; rounding may make one."""
    found = asked(monkeypatch)
    for seed in range(10):
        for dtype in (float, complex):
            p = Sum(seed, dtype)
            for rtol in (None, 1e-1, 1e-2, 1e-12):
                stiefel.minimize(p.right, p.start, method=method, rtol=rtol, maxfun=1000)
            for factor in (1e12, 1e-12):
                stiefel.minimize(scaled(p.right, factor), p.start, method=method, maxfun=1000)
            start = p.start.astype(np.float32 if dtype is float else np.complex64)
            stiefel.minimize(single(p.right), start, method=method, maxfun=1000)
    assert len(found) <= 1 and not any(found)


def test_noise_that_rounding_explains_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conjugate gradients measure some; with SUSPECT_NOISE = 1e-5 f is asked."""
    found, rng = asked(monkeypatch), np.random.default_rng(20)
    A = rng.standard_normal((60, 40)) * np.geomspace(1.0, 10.0, 40)
    fun = stiefel.objectives.Procrustes(A, rng.standard_normal((60, 4)))
    result = stiefel.minimize(fun, stiefel.random_point(40, 4, seed=1000), method="cg")
    assert result.success
    assert found == []


def noisy(fun: Any, level: float, seed: int) -> Any:
    rng = np.random.default_rng(seed)

    def with_noise(X: Any) -> Any:
        f, G = fun(X)
        return f + level * rng.standard_normal(), G

    return with_noise


def bent(fun: Any, delta: float) -> Any:
    """Σ √(x² + δ²) beside it."""

    def with_bends(X: Any) -> Any:
        f, G = fun(X)
        root = np.sqrt(X * X + delta * delta)
        return f + float(root.sum()), G + X / root

    return with_bends


@pytest.mark.parametrize("method", METHODS)
def test_noise_is_asked_and_not_accused(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    found = asked(monkeypatch)
    for seed in range(8):
        p = Sum(seed)
        for level in (1e-10, 1e-8, 1e-6):
            fun = noisy(p.right, level, seed)
            stiefel.minimize(fun, p.start, method=method, maxfun=1000)
        rounded = lambda X, p=p: (float(np.float32(p.right(X)[0])), p.right(X)[1])
        stiefel.minimize(rounded, p.start, method=method, maxfun=1000)
    assert len(found) > 5
    assert not any(found)


@pytest.mark.parametrize("method", METHODS)
def test_bends_are_not_accused(method: str) -> None:
    for seed in range(4):
        p = Sum(seed)
        for delta in (1e-2, 1e-4, 1e-6):
            result = stiefel.minimize(bent(p.right, delta), p.start, method=method, maxfun=1000)
            assert CHARGES not in result.message


# -- the parts -----------------------------------------------------------------------------------


def problem_of(fun: Any, X: Any) -> Problem:
    from stiefel.function.counted import CountedObjective
    from stiefel.function.trees import Tree

    objective = CountedObjective(fun, None, Tree(X), X)
    return Problem(Stiefel().bind(X, ALONE), objective, noise=Model())


def ask(fun: Any, X: Any, norm: float) -> float:
    """What is found at X by values if every gradient up to ``norm`` is a success."""
    problem = problem_of(fun, X)
    at = problem.gradient(X)
    return doubt.contradicting_derivative(problem, X, at, lambda size: size <= norm)


@pytest.mark.parametrize("seed", range(5))
def test_a_derivative_is_measured(seed: int) -> None:
    """Values alone tell it: the gradient that is given is zero."""
    p = Sum(seed)
    fun = lambda X: (p.right(X)[0], 0 * X)
    norm = Stiefel().norm(p.start, Stiefel().project(p.start, p.right(p.start)[1]))
    slope = abs(ask(fun, p.start, 1e-3 * norm))
    assert 0.01 * norm / np.sqrt(p.start.size) < slope <= norm
    assert ask(fun, p.start, norm) == 0.0  # no larger than the norm that is given


def stationary(fun: Any, start: Any) -> Any:
    result = stiefel.minimize(fun, start, rtol=1e-11)
    assert result.gradient_norm < 1e-8
    return result.x


def test_a_stationary_point_has_no_derivative() -> None:
    for seed in range(5):
        p = Sum(seed)
        assert ask(p.right, stationary(p.right, p.start), 1e-6) == 0.0


def test_noise_has_no_derivative() -> None:
    """With two lengths one or two of these are derivatives."""
    p = Sum(3)
    X = stationary(p.right, p.start)
    assert not any(ask(noisy(p.right, 1e-6, seed), X, 1e-6) for seed in range(2000))


def test_a_bend_beneath_all_lengths_has_no_derivative() -> None:
    """Beyond its bend √(x² + δ²) goes up on both sides, and something straight is left beside it.

    Without STRAIGHTENED the straight part is taken for the derivative.
    """
    C = np.eye(6, 2) + 0.1 * np.cos(np.arange(12.0)).reshape(6, 2)

    def fun(X: Any, delta: float = 1e-9) -> Any:
        root = np.sqrt(X * X + delta * delta)
        return float(root.sum() - np.vdot(C, X)), X / root - C

    X = np.eye(6, 2)
    assert ask(lambda X: (fun(X)[0], 0 * X), X, 1e-6) == 0.0


def test_values_that_are_not_finite_say_nothing() -> None:
    X = np.eye(6, 2)
    fun = lambda Y: (0.0 if np.array_equal(Y, X) else np.nan, 0 * Y)
    assert ask(fun, X, 1e-6) == 0.0


def test_doubt_is_by_the_last_step_that_could_be_read() -> None:
    slopes, level = (-1.0, -0.5), 1e-9
    assert not is_doubtful(True, -0.75, slopes, 0.01, level)
    assert is_doubtful(False, -1.75, slopes, 0.01, level)
    assert is_doubtful(False, -0.72, slopes, 0.01, level)
    assert not is_doubtful(False, -0.72, slopes, 0.1, level)  # a long step
    for before in (False, True):
        assert is_doubtful(before, -3.0, slopes, 0.01, 0.1) is before
        assert is_doubtful(before, -0.752, slopes, 1e-6, 1e-3) is False
        assert is_doubtful(before, -0.76, slopes, 1e-6, 2e-3) is before  # rounding, perhaps


def test_doubt_survives_a_restoration(monkeypatch: pytest.MonkeyPatch) -> None:
    """A point that is brought back begins a new state, but what was seen of f is still true."""
    p = Sum(7)
    answers = iter([False])
    real = driver.is_feasible
    monkeypatch.setattr(driver, "is_feasible", lambda *a: next(answers, None) is None and real(*a))
    fun = wrong(p, WRONG["a small term"])
    result = stiefel.minimize(fun, p.start, method="trust-region")
    assert result.restorations == 1
    assert not result.success


def test_a_limit_on_evaluations_leaves_the_doubt() -> None:
    p = Sum(7)
    fun = wrong(p, WRONG["a small term"])
    whole = stiefel.minimize(fun, p.start, method="trust-region")
    assert CHARGES in whole.message
    result = stiefel.minimize(fun, p.start, method="trust-region", maxfun=whole.nfev - 1)
    assert result.status == "MAX_EVALUATIONS"
    assert result.nfev == whole.nfev - 1


def test_a_resumed_run_has_the_same_doubt(tmp_path: Any) -> None:
    p = Sum(7)
    fun, path = wrong(p, WRONG["a small term"]), tmp_path / "run"
    whole = stiefel.minimize(fun, p.start, method="trust-region")
    stiefel.minimize(fun, p.start, method="trust-region", checkpoint=path, maxiter=whole.nit - 1)
    options = {"method": "trust-region", "checkpoint": path, "resume": True}
    again = stiefel.minimize(fun, p.start, **options)
    assert (again.message, again.nfev, again.fun) == (whole.message, whole.nfev, whole.fun)


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_other_libraries_are_asked(library: str) -> None:
    arrays = pytest.importorskip("torch" if library == "torch" else "jax.numpy")
    p = Sum(7)
    made = wrong(p, WRONG["a small term"])

    def fun(X: Any) -> Any:
        f, G = made(np.asarray(X))
        return f, arrays.asarray(G, dtype=X.dtype)

    start = arrays.asarray(p.start)
    if start.dtype != arrays.float64:
        pytest.skip("single precision")
    for method in ("trust-region", "accelerated"):
        result = stiefel.minimize(fun, start, jac=True, method=method, maxfun=2000)
        assert not result.success


def test_a_watch_says_nothing_at_first() -> None:
    assert Watch() == (0.0, False, False, np.inf)
