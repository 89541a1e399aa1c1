"""The metric that `auto` learns: what it minimises, and what it does not depend on."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import linalg

import stiefel
from cases import LIBRARIES, gap, to_numpy
from runs import states
from stiefel import LBFGS, ComplexCircle, Euclidean, Stiefel
from stiefel.backends.arrays import kernels_for
from stiefel.geometry import fused
from stiefel.geometry.metric import mean_metric, spread
from stiefel.geometry.ray import squares
from stiefel.objectives import Brockett, KohnSham, Procrustes
from stiefel.solvers import METHODS
from stiefel.solvers.learned_metric import LearnedMetric, _mistake
from stiefel.solvers.problem import Gradient

AUTO = replace(METHODS["auto"], rows=None)  # what is learned about A takes the metric's place
NO_COLUMNS = LearnedMetric(column_change=1e9, late_change=1e9)  # D is never learned


def positive(rng, k, condition, dtype=float):
    Q = stiefel.random_point(k, k, seed=rng, dtype=dtype)
    return (Q * np.geomspace(1.0, condition, k)) @ Q.conj().T


def product_of_traces(D, P, R):
    return (np.trace(R @ D) * np.trace(P @ np.linalg.inv(D))).real


@pytest.mark.parametrize("dtype", [float, complex])
@pytest.mark.parametrize("library", LIBRARIES, ids=str)
def test_the_columns_of_the_metric_minimise_what_they_should(library, dtype):
    """Tr(RD) Tr(PD⁻¹), which the stretching of any direction makes larger."""
    rng, k = np.random.default_rng(1), 4
    P, R = positive(rng, k, 5.0, dtype), positive(rng, k, 30.0, dtype)
    x = library.asarray(stiefel.random_point(9, k, seed=2, dtype=dtype))
    geometry = Stiefel().bind(x)
    D = to_numpy(mean_metric(geometry.kernels_at(x), library.asarray(P), library.asarray(R), 1e9))
    assert gap(D, D.conj().T) < 1e-13
    assert np.linalg.det(D).real == pytest.approx(1.0)
    least = product_of_traces(D, P, R)
    assert least == pytest.approx(np.sum(np.sqrt(linalg.eigvals(P @ R).real)) ** 2, rel=1e-4)
    for _ in range(20):
        E = linalg.expm(0.1 * positive(rng, k, 3.0, dtype))
        other = E @ D @ E.conj().T
        assert product_of_traces(other / np.linalg.norm(other), P, R) > least


def test_the_condition_of_the_metric_is_bounded():
    rng, x = np.random.default_rng(3), stiefel.random_point(9, 4, seed=2)
    geometry = Stiefel().bind(x)
    P, R = positive(rng, 4, 1e3), positive(rng, 4, 1e9)
    for most in (10.0, 100.0):
        D = mean_metric(geometry.kernels_at(x), P, R, most)
        assert np.linalg.cond(D) == pytest.approx(most)
        assert np.linalg.det(D) == pytest.approx(1.0)


def test_metrics_are_compared_by_their_relative_condition():
    rng, x = np.random.default_rng(4), stiefel.random_point(9, 4, seed=2, dtype=complex)
    geometry = Stiefel().bind(x)
    D, E = positive(rng, 4, 20.0, complex), positive(rng, 4, 7.0, complex)
    values = linalg.eigh(D, E, eigvals_only=True)
    assert spread(geometry.kernels_at(x), D, E) == pytest.approx(values[-1] / values[0])
    assert spread(geometry.kernels_at(x), D, None) == pytest.approx(20.0)
    assert spread(geometry.kernels_at(x), 5.0 * D, D) == pytest.approx(1.0)


def test_steps_are_weighed_by_their_stiffness():
    """The sums of the module's formulas, one after the other and all at once."""
    rng, x = np.random.default_rng(5), stiefel.random_point(12, 3, seed=6)
    geometry, learning = Stiefel().bind(x), LearnedMetric(power=1.5)
    at = geometry.gradient(x, rng.standard_normal(x.shape))
    learned = learning.init(geometry, x, Gradient(0.0, at.G, 1.0, rotation=at.rotation))
    seen = []
    for size in (1.0, 30.0, 0.1, 7.0, 2.0):
        ray = geometry.ray(x, geometry.project(x, rng.standard_normal(x.shape)))
        new = geometry.gradient(ray(0.1), size * rng.standard_normal(x.shape))
        pair = ray.secant_pair(0.1, at, new)
        learned = learning.observe(geometry, x, pair, learned)
        seen.append(squares(geometry.kernels_at(x), pair.curvature))
    stiffness = np.array([s.normal_change / s.normal_step for s in seen])
    weights = (stiffness / stiffness.max()) ** 1.5
    P = sum(w * s.SS / s.normal_step for w, s in zip(weights, seen, strict=True))
    R = sum(w * s.TT / s.normal_step for w, s in zip(weights, seen, strict=True))
    assert gap(learned[0].P, P) < 1e-12 * np.linalg.norm(P)
    assert gap(learned[0].R, R) < 1e-12 * np.linalg.norm(R)
    assert learned[0].weight == pytest.approx(weights.sum())


def learned_by(fun, X0, steps=15):
    return states(AUTO, fun, X0, Stiefel(), steps)[-1].learned[0].metric


def test_the_metric_finds_its_scales():
    """Columns with weights 1 to 100 are a hundred times as stiff: D is their inverse, roughly."""
    weights = np.geomspace(1.0, 100.0, 5)
    A = np.diag(np.linspace(1.0, 3.0, 60))
    metric = learned_by(Brockett(A, weights), stiefel.random_point(60, 5, seed=1), 40)
    scales = np.diag(metric.D) * weights
    assert scales.max() / scales.min() < 10.0
    assert np.diag(metric.D).max() / np.diag(metric.D).min() > 20.0


def test_the_metric_does_not_depend_on_the_scale_of_f_nor_on_the_choice_of_columns():
    plain, X0 = Brockett.table(60, 4), stiefel.random_point(60, 4, seed=2)
    Q = stiefel.random_point(4, 4, seed=3)

    def scaled(X):
        f, G = plain.value_and_gradient(X)
        return 1.7e-5 * f, 1.7e-5 * G

    def mixed(X):
        f, G = plain.value_and_gradient(X @ Q)
        return f, G @ Q.T

    metric = learned_by(plain, X0)
    assert metric.D is not None and np.linalg.cond(metric.D) > 1.5
    for other, turn in ((learned_by(scaled, X0), np.eye(4)), (learned_by(mixed, X0 @ Q.T), Q)):
        assert gap(turn.T @ other.D @ turn, metric.D) < 1e-6
        assert other.omega == pytest.approx(metric.omega, rel=1e-6)


def test_nothing_is_compared_where_there_is_no_news(monkeypatch):
    looks = looks_of(monkeypatch)
    X0 = stiefel.random_point(200, 5, seed=4)
    result = stiefel.minimize(Brockett.table(200, 5), X0, method=AUTO, rtol=1e-9)
    assert result.success and result.nit > 300
    assert 1 <= sum(0 < new.weight == new.judged for new in looks) <= 30


def looks_of(monkeypatch):
    """What is known after each look, in the text and in compiled arrivals."""
    found = []
    for name in ("_look", "taught"):
        look = getattr(LearnedMetric, name)
        noted = lambda *known, look=look: found.append(look(*known)) or found[-1]
        monkeypatch.setattr(LearnedMetric, name, noted)
    return found


def test_spans_are_looked_at_less(monkeypatch):
    """Their D shows in the first steps or not at all; a look is a tenth of a small step."""
    looks = looks_of(monkeypatch)
    X0 = stiefel.random_point(50, 3, seed=30)
    result = stiefel.minimize(KohnSham(50, 10.0), X0, method=AUTO, rtol=1e-8)
    assert result.success and result.nit > 30
    assert abs(len(looks) - 8 - (result.nit - 8) / 4) <= 1


def test_spans_whose_columns_are_apart_have_scales():
    """Started at eigenvectors, as in electronic structure: half the evaluations."""
    n, alpha, spent = 100, 100.0, []
    L = 2.0 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    V = np.linalg.inv(L)

    def f(X):
        rho = (X * X).sum(axis=1)
        LX, v = L @ X, V @ rho
        return 0.5 * np.vdot(X, LX) + 0.25 * alpha * (rho @ v), LX + alpha * v[:, None] * X

    for method in (AUTO, LBFGS(memory=AUTO.memory)):
        rho = (stiefel.random_point(n, 6, seed=31) ** 2).sum(axis=1)
        X0 = np.linalg.eigh(L + alpha * np.diag(V @ rho))[1][:, :6].copy()
        spent.append(stiefel.minimize(f, X0, method=method, rtol=1e-8).nfev)
    assert spent[0] < 0.7 * spent[1]


def test_learning_costs_nothing_where_there_is_nothing_to_learn():
    """f of the span: no column differs from another."""
    objective, spent = KohnSham(60, 1.0), []
    for method in (AUTO, LBFGS(memory=AUTO.memory)):
        starts = (stiefel.random_point(60, 4, seed=seed) for seed in range(6))
        runs = [stiefel.minimize(objective, X0, method=method, rtol=1e-8) for X0 in starts]
        assert all(run.success for run in runs)
        spent.append(sum(run.nfev for run in runs))
    assert spent[0] <= 1.1 * spent[1]


def test_without_a_step_nothing_is_learned():
    start = states(AUTO, Brockett.table(60, 4), stiefel.random_point(60, 4, seed=5), Stiefel(), 1)
    assert start[0].learned[0].metric.D is None


def test_scales_of_columns_save_evaluations():
    """Weights from 1 to 100: with D less than two thirds of the evaluations without it."""
    A, weights = np.linspace(1.0, 30.0, 60), np.geomspace(1.0, 100.0, 5)
    objective, spent = Brockett(np.diag(A), weights), []
    for metric in (LearnedMetric(), NO_COLUMNS):
        method = LBFGS(metric=metric)
        starts = (stiefel.random_point(60, 5, seed=seed) for seed in range(3))
        runs = [stiefel.minimize(objective, X0, method=method, rtol=1e-8) for X0 in starts]
        assert all(run.success for run in runs)
        spent.append(sum(run.nfev for run in runs))
    assert spent[0] < 0.67 * spent[1], spent


# -- scales of leaves and of the matrices of a stack, and what D is good for --------------------


def spent_on(fun, starts, **options):
    runs = [stiefel.minimize(fun, X0, **options) for X0 in starts]
    assert all(run.success for run in runs), [run.message for run in runs]
    return sum(run.nfev for run in runs)


def kernel_discrepancy(seed: int, samples: int, n: int = 25) -> Any:
    """Of two domains seen through X, less their variance: the first steps mislead."""
    rng = np.random.default_rng(seed)
    widths, other = np.geomspace(2.0, 0.5, n), rng.uniform(0.7, 1.4, n)
    shift = 0.8 * rng.standard_normal(n) * (rng.random(n) < 0.4)
    first, second = rng.standard_normal((2, samples, n)) * widths
    Z = np.concatenate([first, second * other + shift])
    signs = np.repeat([1.0, -1.0], samples) / samples
    weights, variance = np.outer(signs, signs), 0.02 * np.cov(Z.T)

    def fun(X):
        U, V = Z @ X, variance @ X
        squares = np.sum(U * U, axis=1)
        K = weights * np.exp((2 * U @ U.T - squares - squares[:, None]) / 16)
        return K.sum() - np.vdot(X, V), -0.25 * Z.T @ (K.sum(1)[:, None] * U - K @ U) - 2 * V

    return fun


def test_columns_that_mislead_are_dropped():
    """556 evaluations, with them 647."""
    starts = [stiefel.Grassmann().random(25, 6, seed=seed) for seed in range(4)]
    spent = 0
    for seed, samples in ((0, 40), (5, 40), (0, 100), (2, 100)):
        fun = kernel_discrepancy(seed, samples)
        assert stiefel.check_gradient(fun, starts[0])
        spent += spent_on(fun, starts, manifold=stiefel.Grassmann(), rtol=1e-6)
    assert spent <= 600, spent


def chain(length, rows, size, seed):
    """−log(1 + tr(Π X_iᵀT_i)²) of isometries in a chain."""
    T = np.random.default_rng(seed).standard_normal((length, rows, size))

    def fun(X):
        M, left, right = X.mT @ T, [np.eye(size)], [np.eye(size)]
        for A in M:
            left.append(left[-1] @ A)
        for A in M[::-1]:
            right.append(A @ right[-1])
        trace = np.trace(left[-1])
        G = np.stack([t @ (r @ a) for t, r, a in zip(T, right[-2::-1], left[:-1], strict=True)])
        return -float(np.log1p(trace**2)), -2.0 * trace / (1.0 + trace**2) * G

    return fun


def weighted_residuals(seed):
    """½Σ w_ij (AX − B)²_ij: columns that the first steps tell apart, and later ones do not."""
    rng = np.random.default_rng(seed)
    A, B = rng.standard_normal((100, 80)), rng.standard_normal((100, 30))
    W = rng.uniform(0.1, 3.0, (100, 30))

    def fun(X):
        E = A @ X - B
        return 0.5 * float(np.vdot(E, W * E)), A.T @ (W * E)

    return fun


def test_columns_that_mislead_a_stack_or_a_matrix_are_dropped():
    """2,205 evaluations of chains, with the columns 3,734; 1,137 of matrices, with them 1,199."""
    starts = [Stiefel().random(6, 8, 4, seed=seed) for seed in (0, 3)]
    chained = sum(spent_on(chain(6, 8, 4, seed), starts, rtol=1e-6) for seed in (1, 2, 4, 5))
    assert chained <= 2800, chained
    starts = [stiefel.random_point(80, 30, seed=seed) for seed in range(4)]
    residuals = sum(spent_on(weighted_residuals(seed), starts, rtol=1e-6) for seed in range(2))
    assert residuals <= 1170, residuals


@pytest.mark.parametrize("dtype", [float, complex])
def test_the_mistake_of_columns_is_what_they_add_to_the_product_of_traces(dtype):
    rng = np.random.default_rng(6)
    P, R, D = (positive(rng, 4, 20.0, dtype) for _ in range(3))
    expected = np.log(product_of_traces(D, P, R) / product_of_traces(np.eye(4), P, R))
    assert _mistake(D, P, R) == pytest.approx(expected, rel=1e-12)
    assert _mistake(D, P, 0.0 * R) == 0.0


def test_a_leaf_whose_gradient_starts_at_zero_is_not_frozen():
    """½‖F − P B‖² with phases P and the best free B for the first ones."""
    rng = np.random.default_rng(8)
    F = rng.standard_normal((24, 3)) + 1j * rng.standard_normal((24, 3))

    def fun(p):
        R = p["P"] @ p["B"] - F
        return 0.5 * float(np.vdot(R, R).real), {
            "P": R @ p["B"].conj().T,
            "B": p["P"].conj().T @ R,
        }

    manifold = {"P": ComplexCircle(), "B": Euclidean()}
    starts = []
    for seed in range(3):
        P = ComplexCircle().random(24, 4, seed=seed, dtype=complex)
        starts.append({"P": P, "B": np.linalg.lstsq(P, F, rcond=None)[0]})
    assert spent_on(fun, starts, manifold=manifold, rtol=1e-6) <= 1500


def test_a_stiff_free_leaf_costs_little():
    """½‖Y − X C‖² with C in units a thousand times too small: a ratio of curvatures of 1e6."""
    rng, ratio = np.random.default_rng(9), 1e3
    Y = rng.standard_normal((20, 3)) @ rng.standard_normal((3, 10)) + 0.1

    def fun(p):
        R = p["X"] @ (ratio * p["C"]) - Y
        return 0.5 * float(np.vdot(R, R)), {
            "X": R @ (ratio * p["C"]).T,
            "C": ratio * (p["X"].T @ R),
        }

    manifold = {"X": Stiefel(), "C": Euclidean()}
    starts = [
        {"X": stiefel.random_point(20, 3, seed=s), "C": rng.standard_normal((3, 10)) / ratio}
        for s in range(3)
    ]
    assert spent_on(fun, starts, manifold=manifold, rtol=1e-6) <= 400


def test_matrices_of_a_stack_have_scales_of_their_own():
    """Twelve problems as one sum, with scales from 1e-3 to 1e3, cost what they cost without."""
    A = np.stack([positive(np.random.default_rng(i), 12, 10.0 ** (i % 3)) for i in range(12)])
    weights, spent = np.arange(1.0, 4.0), []
    for scales in (np.ones(12), np.geomspace(1e-3, 1e3, 12)):
        scaled = A * scales[:, None, None]

        def fun(X, scaled=scaled):
            G = (scaled @ X) * weights
            return 0.5 * float(np.vdot(X, G)), G

        starts = [stiefel.random_point(12, 12, 3, seed=s) for s in range(2)]
        spent.append(spent_on(fun, starts, rtol=1e-9, maxfun=1000))
    assert spent[1] <= 1.5 * spent[0], spent


def test_scales_of_columns_do_not_spoil_rotations():
    """Brockett with many weights: normal directions want D, rotations do not."""
    objective = Brockett(np.linspace(1.0, 80.0, 80), np.arange(1.0, 31.0))
    starts = [stiefel.random_point(80, 30, seed=seed) for seed in range(2)]
    spent = [
        spent_on(objective, starts, method=replace(AUTO, metric=metric), rtol=1e-6)
        for metric in (LearnedMetric(), NO_COLUMNS)
    ]
    assert spent[0] <= spent[1], spent


def test_columns_are_left_alone_where_the_first_steps_show_no_scales():
    """Procrustes: one operator for all columns.  A late D costs a little, until it is dropped."""
    rng, n, k = np.random.default_rng(4), 150, 15
    U, Q, X = (stiefel.random_point(n, m, seed=m + i) for i, m in enumerate((n, n, k)))
    A = (U * np.linspace(1.0, 10.0, n)) @ Q.T
    objective = Procrustes(A, A @ X + 0.1 * rng.standard_normal((n, k)))
    starts = [stiefel.random_point(n, k, seed=seed) for seed in range(3)]
    spent = [
        spent_on(objective, starts, method=replace(AUTO, metric=metric), rtol=1e-6)
        for metric in (LearnedMetric(), LearnedMetric(early=10**6))
    ]
    assert spent[0] <= 0.98 * spent[1], spent


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_spans_in_single_precision(dtype: Any) -> None:
    """Rotation parts are rounding there too; learned from, they cost 14,546 evaluations."""
    rng = np.random.default_rng(5)
    B = rng.standard_normal((60, 60)) + 1j * rng.standard_normal((60, 60))
    A = (B + B.conj().T).astype(dtype) if dtype is np.complex64 else (B + B.T).real.astype(dtype)

    def fun(X: Any) -> tuple[float, Any]:
        AX = A @ X
        return float(np.vdot(X, AX).real), 2 * AX

    for seed in range(3):
        X0 = stiefel.random_point(60, 4, seed=seed, dtype=dtype)
        assert stiefel.minimize(fun, X0, rtol=1e-4).nfev <= 35


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_mean_metric_of_differences_that_are_rounding(dtype):
    """R = yy − BB may have eigenvalues beneath zero, by rounding; D is positive all the same."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        Q = np.linalg.qr(rng.standard_normal((4, 4)))[0]
        P = (Q * np.array([1.0, 1e-2, 1e-4, 1e-8])) @ Q.T
        R = (Q * np.array([1.0, 1e-9, -1e-6, -1e-3])) @ Q.T
        D = fused.mean_metric(kernels_for(P), P.astype(dtype), R.astype(dtype), 100.0)
        values = np.linalg.eigvalsh(D.astype(float))
        assert values[0] > 0
        assert values[-1] / values[0] <= 101
        assert np.prod(values) == pytest.approx(1.0, rel=1e-3)


def test_a_tree_of_one_leaf_that_depends_on_its_span_is_solved():
    """As orbitals of closed shells are: one leaf is a tree, too."""
    A = np.diag(np.arange(1.0, 21.0))
    fun = lambda tree: (float(np.vdot(tree[0], A @ tree[0])), [2.0 * A @ tree[0]])
    result = stiefel.minimize(fun, [stiefel.random_point(20, 3, seed=0)], manifold=[Stiefel()])
    assert result.success
    assert result.fun == pytest.approx(6.0, rel=1e-9)
