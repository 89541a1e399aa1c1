"""Every objective × every law: true value, gradient, Hessian, dtype, layout, known minimum."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import linalg, sparse
from scipy.sparse.linalg import LinearOperator, aslinearoperator

from stiefel import objectives
from stiefel.objectives import (
    Brockett,
    CompressedModes,
    JointDiagonalization,
    KohnSham,
    LogSumExp,
    MaxCut,
    Procrustes,
    Quadratic,
    Rayleigh,
    RotationSynchronization,
    brockett_condition_number,
    optimal_weights,
    rayleigh_condition_number,
)
from stiefel.objectives._base import Cast, matrix_product

Array = Any


def normal(shape: tuple[int, ...], dtype: Any = float, seed: int = 0) -> Array:
    """Standard normal entries, with an imaginary part for a complex dtype."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        Z = Z + 1j * rng.standard_normal(shape)
    return Z.astype(dtype)


def polar(Z: Array) -> Array:
    """The nearest orthonormal matrix, or stack of them."""
    U, _, Vh = np.linalg.svd(Z, full_matrices=False)
    return U @ Vh


def symmetric(n: int, dtype: Any = float, seed: int = 1) -> Array:
    """A symmetric or Hermitian matrix."""
    Z = normal((n, n), dtype, seed)
    return (Z + Z.conj().T) / 2


# The slow transcriptions: loops and full matrices, nothing shared with the code under test.


def slow_brockett(A: Array, w: Array, half: bool) -> Callable[[Array], float]:
    """Σ w_i x_iᴴ A x_i, column by column."""
    c = 0.5 if half else 1.0
    return lambda X: c * sum(w[i] * (X[:, i].conj() @ A @ X[:, i]).real for i in range(len(w)))


def second_difference(n: int, periodic: bool) -> Array:
    """The matrix tridiag(−1, 2, −1), closed to a ring if periodic."""
    L = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    if periodic:
        L[0, -1] -= 1
        L[-1, 0] -= 1
    return L


def slow_kohn_sham(n: int, a: float) -> Callable[[Array], float]:
    """With L and its inverse as full matrices."""
    L = second_difference(n, periodic=False)

    def f(X: Array) -> float:
        rho = (np.abs(X) ** 2).sum(axis=1)
        return float(np.trace(X.conj().T @ L @ X).real / 2 + a / 4 * rho @ np.linalg.inv(L) @ rho)

    return f


def slow_modes(problem: CompressedModes) -> Callable[[Array], float]:
    """H from Kronecker products, and the integrals written with ψ = X/√c."""
    n, c = problem.n, problem.cell_volume
    H = np.zeros((n, n))
    for axis, (points, length) in enumerate(zip(problem.shape, problem.lengths, strict=True)):
        factors = [np.eye(p) for p in problem.shape]
        factors[axis] = second_difference(points, periodic=True) * (points / length) ** 2
        kron = np.eye(1)
        for factor in factors:
            kron = np.kron(kron, factor)
        H += kron / 2
    if problem.potential is not None:
        H += np.diag(problem.potential)

    def f(X: Array) -> float:
        psi = X / np.sqrt(c)
        energy = c * np.trace(psi.conj().T @ H @ psi).real
        return float(energy + c * np.sqrt(np.abs(psi) ** 2 + problem.epsilon**2).sum() / problem.mu)

    return f


def slow_synchronization(problem: RotationSynchronization) -> Callable[[Array], float]:
    """Edge by edge."""

    def f(R: Array) -> float:
        terms = zip(problem.edges, problem.measurements, problem.weights, strict=True)
        return float(sum(w / 2 * linalg.norm(R[i] - Q @ R[j]) ** 2 for (i, j), Q, w in terms))

    return f


def slow_joint(C: Array) -> Callable[[Array], float]:
    """Matrix by matrix."""

    def f(X: Array) -> float:
        total = 0.0
        for c in C:
            M = X.conj().T @ c @ X
            total += (np.abs(M) ** 2).sum() - (np.abs(np.diag(M)) ** 2).sum()
        return float(total)

    return f


def slow_log_sum_exp(p: LogSumExp) -> Callable[[Array], float]:
    """As written in the docstring."""

    def f(x: Array) -> float:
        y = x - p.center
        total = np.exp(p.rows @ y / p.temperature).sum()
        return float(p.temperature * np.log(total) + p.regularization / 2 * y @ y)

    return f


@dataclass(frozen=True)
class Case:
    """An objective, the shape of its points, a slow transcription, and the dtypes it takes."""

    name: str
    objective: Any
    shape: tuple[int, ...]
    oracle: Callable[[Array], float]
    kinds: str = "fc"  # real and complex X
    manifold: str = "stiefel"


def make_cases() -> list[Case]:
    """Every objective, in every form of its data."""
    n, k = 9, 3
    w = np.array([2.0, 0.5, 3.0])  # not sorted
    d = normal((n,), seed=2)
    S, H = symmetric(n), symmetric(n, complex)
    cases = []

    def add(name: str, objective: Any, shape: tuple[int, ...], oracle: Any, *more: str) -> None:
        cases.append(Case(name, objective, shape, oracle, *more))

    for half in (False, True):
        tag = "-half" if half else ""
        add(
            f"brockett-diagonal{tag}",
            Brockett(d, w, half),
            (n, k),
            slow_brockett(np.diag(d), w, half),
        )
        add(f"brockett-dense{tag}", Brockett(S, w, half), (n, k), slow_brockett(S, w, half))
        ones = np.ones(k)
        add(f"rayleigh{tag}", Rayleigh(S, half, k), (n, k), slow_brockett(S, ones, half))
    add("brockett-sparse", Brockett(sparse.csr_array(S), w), (n, k), slow_brockett(S, w, False))
    add("brockett-operator", Brockett(aslinearoperator(S), w), (n, k), slow_brockett(S, w, False))
    add("brockett-hermitian", Brockett(H, w), (n, k), slow_brockett(H, w, False), "c")
    signed = np.array([1.0, -2.0, 0.0, -0.5])
    add("brockett-signed", Brockett(d, signed), (n, 4), slow_brockett(np.diag(d), signed, False))
    big, wide = normal((3000,), seed=3), np.arange(1.0, 13.0)  # more than two blocks
    add("brockett-blocks", Brockett(big, wide), (3000, 12), lambda X: big @ np.abs(X) ** 2 @ wide)
    add("rayleigh-sphere", Rayleigh(d), (n, 1), slow_brockett(np.diag(d), [1.0], True))
    add("rayleigh-hermitian", Rayleigh(H, True, k), (n, k), slow_brockett(H, np.ones(k), True), "c")
    add("kohn-sham", KohnSham(n, 1.7), (n, k), slow_kohn_sham(n, 1.7))

    def procrustes(name: str, A: Array, B: Array, kinds: str = "fc") -> None:
        def oracle(X: Array) -> float:
            return float((np.abs(A @ X - B) ** 2).sum() / 2)

        add(name, Procrustes(A, B), (A.shape[1], B.shape[1]), oracle, kinds)

    procrustes("procrustes", normal((12, n)), normal((12, k), seed=4))
    procrustes("procrustes-balanced", 1.5 * polar(normal((12, n))), normal((12, k), seed=4))
    procrustes("procrustes-square", normal((7, 4)), normal((7, 4), seed=4))
    Q = polar(normal((12, n), complex))
    procrustes("procrustes-complex", 1.5 * Q, normal((12, k), complex, 4), "c")

    exact, _ = RotationSynchronization.random_instance(8, 3, 0.4, 0.0, 5)
    noisy, _ = RotationSynchronization.random_instance(8, 2, 0.4, 0.3, 6)
    weighted = RotationSynchronization(
        noisy.edges, noisy.measurements, np.linspace(0.5, 2, len(noisy.edges))
    )
    unitary = RotationSynchronization(
        exact.edges, polar(normal((len(exact.edges), 3, 3), complex)), 0.7
    )
    add("synchronization-exact", exact, (8, 3, 3), slow_synchronization(exact))
    add("synchronization-weighted", weighted, (8, 2, 2), slow_synchronization(weighted))
    add("synchronization-unitary", unitary, (8, 3, 3), slow_synchronization(unitary), "c")

    line = CompressedModes((n,), (4.0,), 2.0, 0.3)
    plane = CompressedModes((4, 5), (3.0, 2.0), 0.7, 0.5, normal((4, 5), seed=7))
    add("compressed-modes-1d", line, (n, k), slow_modes(line))
    add("compressed-modes-2d", plane, (20, 2), slow_modes(plane))

    joint = JointDiagonalization.random_exact(5, 4, 8)
    C = np.stack([symmetric(6, complex, s) for s in range(3)])
    add("joint-exact", joint, (5, 5), slow_joint(joint.C))
    add("joint-hermitian", JointDiagonalization(C), (6, 2), slow_joint(C), "c")

    P = S @ S + np.eye(n)
    for name, A in (
        ("dense", P),
        ("sparse", sparse.csr_array(P)),
        ("operator", aslinearoperator(P)),
    ):
        b = normal((n,), seed=9)
        quadratic = Quadratic(A, b)
        add(f"quadratic-{name}", quadratic, (n,), _slow_quadratic(P, b), "fc", "euclidean")
    b = normal((n, 2), seed=9)
    diagonal = np.diag(np.exp(d))
    quadratic = Quadratic(np.exp(d), b)
    add("quadratic-diagonal", quadratic, (n, 2), _slow_quadratic(diagonal, b), "fc", "euclidean")
    lse = LogSumExp.random_instance(20, 6, 0.5, 0.1, 10)
    add("log-sum-exp", lse, (6,), slow_log_sum_exp(lse), "f", "euclidean")

    def maxcut(name: str, problem: MaxCut, L: Array, p: int, kinds: str = "fc") -> None:
        def oracle(X: Array) -> float:
            Y = X[:, :, 0].T
            return float(-np.trace(Y.conj() @ L @ Y.T).real / 4)

        add(name, problem, (len(L), p, 1), oracle, kinds)

    maxcut("maxcut-odd", MaxCut.cycle(7), second_difference(7, True), 2)
    maxcut("maxcut-even", MaxCut.cycle(6), second_difference(6, True), 3)
    maxcut("maxcut-hermitian", MaxCut(H), H, 3, "c")
    return cases


def _slow_quadratic(A: Array, b: Array) -> Callable[[Array], float]:
    return lambda x: float(((x.conj() * (A @ x)).sum() / 2 - (b.conj() * x).sum()).real)


CASES = make_cases()
DTYPES = {"f": (np.float64, np.float32), "c": (np.complex128, np.complex64)}
PAIRS = [(c, t) for c in CASES for kind in c.kinds for t in DTYPES[kind]]
DOUBLE = [(c, t) for c, t in PAIRS if np.finfo(t).eps < 1e-10]
KNOWN = [(c, t) for c, t in DOUBLE if hasattr(c.objective, "minimum")]


def name_of(value: Any) -> str:
    """Test ids."""
    return value.name if isinstance(value, Case) else np.dtype(value).name


def law(pairs: Any) -> Any:
    """Run a test on all the given pairs of a case and a dtype."""
    return pytest.mark.parametrize(("case", "dtype"), pairs, ids=name_of)


def on_manifold(case: Case, Z: Array) -> Array:
    """Z made feasible."""
    return Z if case.manifold == "euclidean" else polar(Z)


def inner(G: Array, H: Array) -> float:
    """Re⟨G, H⟩ in double precision."""
    return float((G.conj() * H).real.sum(dtype=float))


@law(PAIRS)
def test_value_is_the_formula_and_dtypes_are_kept(case: Case, dtype: Any) -> None:
    """On feasible and on arbitrary X; the call, the pair and the value agree to the last bit."""
    for X in (normal(case.shape, dtype), on_manifold(case, normal(case.shape, dtype))):
        kept = X.copy()
        f, G = case.objective.value_and_gradient(X)
        wide = X.astype(np.result_type(dtype, float))
        tolerance = 1e3 * np.finfo(dtype).eps
        size = abs(case.oracle(wide)) + inner(G, G) ** 0.5  # f may vanish by cancellation
        assert abs(f - case.oracle(wide)) <= tolerance * size
        assert case.objective.value(X) == f == case.objective(X)[0]
        assert type(f) is type(case.objective.value(X)) is float
        assert G.dtype == X.dtype == case.objective.hessp(X, X).dtype
        assert G.shape == X.shape == case.objective.hessp(X, X).shape
        assert np.array_equal(X, kept) and not np.may_share_memory(G, X)
        exact = case.objective.value_and_gradient(wide)[1]
        assert linalg.norm((G - exact).ravel()) <= tolerance * linalg.norm(exact.ravel())


@law(DOUBLE)
def test_gradient_against_central_differences(case: Case, dtype: Any) -> None:
    """And the remainder of Taylor's formula falls with slope 2, to the Hessian's coefficient."""
    X, H = on_manifold(case, normal(case.shape, dtype)), normal(case.shape, dtype, 1)
    f, G = case.objective.value_and_gradient(X)
    value, slope = case.objective.value, inner(G, H)
    t = 1e-4
    difference = (value(X + t * H) - value(X - t * H)) / (2 * t)
    assert difference == pytest.approx(slope, rel=1e-6, abs=1e-7 * linalg.norm(G.ravel()))
    remainder = [value(X + t * H) - f - t * slope for t in (1e-2, 1e-3)]
    assert np.log10(abs(remainder[0] / remainder[1])) == pytest.approx(2, abs=0.2)
    curvature = inner(case.objective.hessp(X, H), H)
    assert remainder[1] / 1e-6 == pytest.approx(curvature / 2, rel=0.05)


@law(DOUBLE)
def test_hessian_against_gradient_differences(case: Case, dtype: Any) -> None:
    """In every entry, not along one direction only."""
    X, V = normal(case.shape, dtype), normal(case.shape, dtype, 1)
    gradient = case.objective.value_and_gradient
    t = 1e-5
    difference = (gradient(X + t * V)[1] - gradient(X - t * V)[1]) / (2 * t)
    HV = case.objective.hessp(X, V)
    assert linalg.norm((difference - HV).ravel()) <= 1e-7 * linalg.norm(HV.ravel())


@law(DOUBLE)
def test_memory_layout_does_not_matter(case: Case, dtype: Any) -> None:
    """Column-major X and X with gaps give what row-major X gives."""
    X = normal(case.shape, dtype)
    gaps = np.zeros((*X.shape[:-1], 2 * X.shape[-1]), dtype)[..., ::2]
    gaps[...] = X
    f, G = case.objective.value_and_gradient(X)
    for other in (np.asfortranarray(X), gaps):
        f_other, G_other = case.objective.value_and_gradient(other)
        assert f_other == pytest.approx(f, rel=1e-12)
        assert case.objective.value(other) == f_other
        np.testing.assert_allclose(G_other, G, rtol=1e-11, atol=1e-12 * np.abs(G).max())


@law(KNOWN)
def test_minimum_is_attained_and_not_undercut(case: Case, dtype: Any) -> None:
    """By random feasible points, and by feasible neighbours of the minimiser in 20 directions."""
    X = case.objective.minimizer.astype(dtype)
    if case.manifold == "stiefel":
        gram = X.conj().swapaxes(-1, -2) @ X
        assert np.abs(gram - np.eye(X.shape[-1])).max() < 1e-12
    f, G = case.objective.value_and_gradient(X)
    slack = 1e-11 * (1 + abs(f) + linalg.norm(G.ravel()))
    assert abs(case.objective.minimum - f) <= slack
    for seed in range(20):
        Z = normal(X.shape, dtype, seed)
        assert case.objective.value(on_manifold(case, Z)) >= f
        for t in (1e-4, 1e-2):
            assert case.objective.value(on_manifold(case, X + t * Z)) >= f - slack


def test_minimum_is_absent_where_unknown() -> None:
    """`hasattr` answers honestly, so that a table of cases can ask."""
    known = {c.name for c, _ in KNOWN}
    unknown = {c.name for c in CASES} - known
    assert unknown == {
        "kohn-sham",
        "procrustes",
        "synchronization-weighted",
        "synchronization-unitary",
        "compressed-modes-1d",
        "compressed-modes-2d",
        "joint-hermitian",
        "maxcut-hermitian",
    }
    assert not any(hasattr(c.objective, "minimizer") for c in CASES if c.name in unknown)
    assert not hasattr(Quadratic(np.array([1.0, -1.0]), np.ones(2)), "minimum")


@pytest.mark.parametrize("form", ["diagonal", "dense", "sparse", "operator"])
def test_minimum_of_large_operators_against_numpy(form: str) -> None:
    """n above the dense limit, so that shift-and-invert and Lanczos are used; eigvalsh judges."""
    n, w = 700, np.array([-1.0, 2.0, 3.0, 0.5])
    band = sparse.diags_array(
        [np.linspace(-1, 5, n) ** 2, np.full(n - 1, 0.3), np.full(n - 1, 0.3)], offsets=[0, 1, -1]
    )
    A: Any = {
        "diagonal": lambda: np.linspace(-1, 5, n) ** 2,
        "dense": band.toarray,
        "sparse": band.tocsr,
        "operator": lambda: aslinearoperator(band.tocsr()),
    }[form]()
    lam = np.sort(A) if form == "diagonal" else np.linalg.eigvalsh(band.toarray())
    problem = Brockett(A, w, half=True)
    expected = 0.5 * (3 * lam[0] + 2 * lam[1] + 0.5 * lam[2] - lam[-1])
    assert problem.minimum == pytest.approx(expected, rel=1e-10)
    assert problem.value(problem.minimizer) == pytest.approx(expected, rel=1e-10)
    assert Rayleigh(A, columns=2).minimum == pytest.approx((lam[0] + lam[1]) / 2, rel=1e-10)


def numerical_condition_number(problem: Any, k: int, flat: int = 0) -> float:
    """κ of the Riemannian Hessian at the minimiser, by differences of f along exact geodesics.

    A geodesic of the canonical metric from X is [X X⊥] expm(t [[Ω, −Bᵀ], [B, 0]]) [I; 0]; the unit
    skew matrices and the entries of B are an orthonormal basis. `flat` curvatures are left out.
    """
    X = problem.minimizer
    n = X.shape[0]
    frame = np.hstack([X, linalg.null_space(X.T)])
    basis = []
    for j in range(k):
        for i in range(j + 1, n):
            E = np.zeros((n, n))
            E[i, j], E[j, i] = 1, -1
            basis.append(E)

    def along(E: Array) -> float:
        t = 1e-3
        f = [problem.value((frame @ linalg.expm(s * E))[:, :k]) for s in (-t, 0, t)]
        return (f[0] - 2 * f[1] + f[2]) / t**2

    H = np.diag([along(E) for E in basis])
    for a, E in enumerate(basis):
        for b, F in enumerate(basis[:a]):
            H[a, b] = H[b, a] = (along(E + F) - along(E - F)) / 4
    curvatures = np.linalg.eigvalsh(H)
    assert np.abs(curvatures[:flat]).max(initial=0) < 1e-3 * curvatures[-1]
    return float(curvatures[-1] / curvatures[flat])


@pytest.mark.parametrize(
    ("spectrum", "weights"),
    [
        ([1.0, 2.5, 3.0, 5.0, 5.7, 9.0], [1.0, 2.0, 3.5]),  # a rotation decides
        ([1.0, 2.5, 4.0, 4.3, 5.7, 9.0], [3.5, 1.0, 2.0]),  # a normal direction decides
        ([1.0, 1.2, 4.0, 5.5, 6.0], [0.7, 4.0]),
        ([-1.0, 1.2, 4.0], [1.0, 3.0, 3.5]),  # n = k
        ([1.0, 3.0, 4.0, 7.0], [2.0]),
    ],
)
def test_brockett_condition_number_is_the_hessians(spectrum: Any, weights: Any) -> None:
    """The paper's formula against a numerical Hessian, for a full and for a diagonal A."""
    n = len(spectrum)
    Q = polar(normal((n, n)))
    problem = Brockett(Q @ np.diag(spectrum) @ Q.T, weights)
    kappa = brockett_condition_number(spectrum, weights)
    assert numerical_condition_number(problem, len(weights)) == pytest.approx(kappa, rel=1e-4)
    assert problem.condition_number == pytest.approx(kappa, rel=1e-10)
    assert Brockett(np.array(spectrum), weights).condition_number == pytest.approx(kappa, rel=1e-12)


@pytest.mark.parametrize("k", [1, 2])
def test_rayleigh_condition_number_is_the_hessians(k: int) -> None:
    """For k = 2 the one rotation within the columns is flat: κ is Grassmann's."""
    spectrum = np.array([1.0, 1.5, 2.2, 4.0, 6.0])
    kappa = (6.0 - 1.0) / (spectrum[k] - spectrum[k - 1])
    Q = polar(normal((5, 5)))
    problem = Rayleigh(Q @ np.diag(spectrum) @ Q.T, columns=k)
    assert numerical_condition_number(problem, k, flat=k - 1) == pytest.approx(kappa, rel=1e-4)
    assert rayleigh_condition_number(spectrum, k) == pytest.approx(kappa, rel=1e-12)
    assert problem.condition_number == pytest.approx(kappa, rel=1e-10)


def test_optimal_weights_attain_the_optimum_and_none_are_better() -> None:
    """κ_opt = (λ_n − λ_1) Σ 1/(λ_{i+1} − λ_i), on a spectrum with uneven gaps."""
    lam = np.array([0.3, 1.0, 1.2, 3.0, 3.4, 8.0])
    for k in range(1, 6):
        stated = (lam[-1] - lam[0]) * sum(1 / (b - a) for a, b in pairwise(lam[: k + 1]))
        alpha = optimal_weights(lam, k)
        assert alpha.shape == (k,) and (np.diff(alpha) > 0).all()
        assert brockett_condition_number(lam, alpha) == pytest.approx(stated, rel=1e-12)
        for seed in range(200):
            other = alpha * np.exp(0.3 * normal((k,), seed=seed))
            assert brockett_condition_number(lam, other) >= stated * (1 - 1e-12)


def test_the_papers_problems() -> None:
    """Spectra and weights of Figures 1 and 2 and of the tables; α_i = i is optimal for λ_j = j."""
    np.testing.assert_allclose(
        optimal_weights(np.arange(1.0, 51), 10), np.arange(1, 11), rtol=1e-12
    )
    table = Brockett.table(1000, 10)
    assert table.minimum == pytest.approx(sum((11 - j) * j**2 / 1000 for j in range(1, 11)))
    assert table.condition_number == pytest.approx(10 * (1000 - 1 / 1000) / (3 / 1000))
    assert Brockett.table(50, 4, half=True).minimum == Brockett.table(50, 4).minimum / 2
    assert Brockett.linear(100, 10).condition_number == pytest.approx(10 * 99)
    assert Rayleigh.linear(100).condition_number == pytest.approx(99)
    assert brockett_condition_number([1, 1, 2], [1, 2]) == np.inf
    assert brockett_condition_number([1, 2, 3], [1, 1]) == np.inf


def test_convexity_constants() -> None:
    """μ and L bound the curvature; for the quadratic they are attained."""
    A = symmetric(6) @ symmetric(6) + np.eye(6)
    quadratic = Quadratic(A, np.ones(6))
    lam = np.linalg.eigvalsh(A)
    assert (quadratic.mu, quadratic.L) == pytest.approx((lam[0], lam[-1]))
    problem = LogSumExp.random_instance(30, 4, 0.2, 0.3, 0)
    for seed in range(5):
        x = problem.minimizer + 0.3 * normal((4,), seed=seed)
        H = np.stack([problem.hessp(x, e) for e in np.eye(4)])
        curvatures = np.linalg.eigvalsh(H)
        assert problem.mu <= curvatures[0] and curvatures[-1] <= problem.L


def test_invariances() -> None:
    """Rayleigh and Kohn–Sham depend on the subspace, synchronisation on ratios, Brockett on X."""
    X, Q = polar(normal((9, 3))), polar(normal((3, 3), seed=3))
    for problem in (Rayleigh(symmetric(9)), KohnSham(9, 2.0)):
        assert problem.value(X @ Q) == pytest.approx(problem.value(X), rel=1e-12)
    brockett = Brockett(symmetric(9), [1.0, 2.0, 3.0])
    assert abs(brockett.value(X @ Q) - brockett.value(X)) > 1e-3
    sync, planted = RotationSynchronization.random_instance(10, 3, 0.3, 0.2, 1)
    assert sync.value(planted @ Q) == pytest.approx(sync.value(planted), rel=1e-12)
    for R in (planted, sync.measurements):
        assert np.allclose(np.linalg.det(R), 1) and np.allclose(R @ R.swapaxes(1, 2), np.eye(3))


def test_synchronization_noise_is_measured_at_the_planted_rotations() -> None:
    """E‖I − exp(σS)‖² ≈ σ²d(d−1), so f is σ²d(d−1)E/2; without noise only rounding is left."""
    sigma = 1e-3
    problem, planted = RotationSynchronization.random_instance(60, 3, 0.5, sigma, 2)
    edges = len(problem.edges)
    assert problem.value(planted) == pytest.approx(sigma**2 * 6 * edges / 2, rel=0.1)
    assert 0.4 < edges / (60 * 59 / 2) < 0.6
    exact, planted = RotationSynchronization.random_instance(60, 3, 0.5, 0.0, 2)
    assert abs(exact.value(planted)) < 1e-27  # ½⟨R, L R⟩ would leave 1e-13
    chain, _ = RotationSynchronization.random_instance(5, 2, 0.0, 0.0, 2)
    assert chain.edges.tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]


def test_compressed_modes_do_not_depend_on_the_grid() -> None:
    """The same functions on a finer grid: the energy converges with second order."""

    def energy(points: int) -> float:
        x = np.arange(points) * (2 * np.pi / points)
        problem = CompressedModes((points,), (2 * np.pi,), 3.0, 0.2, np.cos(x))
        psi = np.stack([np.full(points, 1.0), np.sqrt(2) * np.sin(x)], axis=1) / np.sqrt(2 * np.pi)
        return problem.value(psi * np.sqrt(problem.cell_volume))

    coarse, middle, fine = energy(50), energy(100), energy(1600)
    assert (coarse - fine) / (middle - fine) == pytest.approx(4, abs=0.1)


def test_kohn_sham_kinetic_energy_of_smooth_columns_keeps_its_digits() -> None:
    """Low modes of L on 20,000 points, against extended precision: ⟨x, Lx⟩ is off by 2e-13."""
    n = 20_000
    for mode in (1, 2, 3, 5, 8):
        x = np.sin(mode * np.pi * np.arange(1, n + 1) / (n + 1))[:, None]
        x /= linalg.norm(x)
        y = np.pad(x[:, 0].astype(np.longdouble), 1)
        exact = float((np.diff(y) ** 2).sum() / 2)
        assert KohnSham(n, 0.0).value(x) == pytest.approx(exact, rel=5e-15, abs=0)


def test_an_operator_that_returns_its_argument_is_not_overwritten() -> None:
    """The gradient is scaled in place; X must not be."""
    same = LinearOperator((4, 4), matvec=lambda x: x, matmat=lambda X: X, dtype=float)
    X = normal((4, 2))
    kept = X.copy()
    _, G = Brockett(same, [1.0, 2.0]).value_and_gradient(X)
    assert np.array_equal(X, kept)
    np.testing.assert_allclose(G, X * [2.0, 4.0])


def test_real_data_stay_real_beside_complex_points() -> None:
    """A complex copy of a large real A would double the memory and the flops."""
    for A in (symmetric(5), sparse.csr_array(symmetric(5))):
        cast = Cast(A)
        assert cast(np.dtype(np.complex64)).dtype == np.float32
        assert cast(np.dtype(np.complex128)) is cast.matrix or sparse.issparse(A)
        assert cast(np.dtype(np.float32)) is cast(np.dtype(np.float32))  # converted once
        for shape in ((5,), (5, 1), (5, 3)):
            X = normal(shape, complex)
            np.testing.assert_allclose(matrix_product(A, X), A @ X, rtol=1e-13)


def test_maxcut_of_edges_and_rounding() -> None:
    """f at ±1 vectors is minus the weight of the cut."""
    edges, weights = np.array([[0, 1], [1, 2], [2, 0], [2, 3]]), np.array([1.0, 2.0, 4.0, 8.0])
    problem = MaxCut.from_edges(4, edges, weights)
    signs = np.array([1.0, 1.0, -1.0, 1.0])
    assert problem.value(signs[:, None, None]) == -(2.0 + 4.0 + 8.0)
    even = MaxCut.cycle(6)
    rounded = MaxCut.cut(even.minimizer, 0)
    assert even.value(rounded.astype(float)[:, None, None]) == -6


@pytest.mark.parametrize(
    ("build", "error", "words"),
    [
        (lambda: Brockett(normal((4, 4)), [1.0]), ValueError, "not symmetric"),
        (lambda: Brockett(sparse.csr_array(normal((4, 4))), [1.0]), ValueError, "not symmetric"),
        (lambda: Brockett(np.array([1.0, np.nan]), [1.0]), ValueError, "not symmetric"),
        (lambda: Brockett(normal((4, 3)), [1.0]), ValueError, "shape"),
        (lambda: Brockett(np.ones(3), np.ones(4)), ValueError, "weights"),
        (lambda: Brockett(np.ones(4), [1.0]).value(np.ones((4, 2))), ValueError, "one column"),
        (lambda: Brockett(np.ones(4), [1.0]).value(np.ones((4, 1), int)), TypeError, "astype"),
        (lambda: KohnSham(4).value(np.ones((4, 1), int)), TypeError, "astype"),
        (lambda: Rayleigh(symmetric(4, complex)).value(np.ones((4, 1))), TypeError, "complex X"),
        (lambda: Procrustes(np.ones((3, 2)), np.ones((4, 2))), ValueError, "expected"),
        (lambda: JointDiagonalization(normal((2, 3, 3))), ValueError, "not symmetric"),
        (lambda: RotationSynchronization([[0, 0]], np.eye(2)[None]), ValueError, "different"),
        (lambda: MaxCut.cycle(4).value(np.ones((4, 2))), ValueError, "unit vectors"),
        (lambda: CompressedModes((8,), (1.0, 1.0), 1.0), ValueError, "dimension"),
        (lambda: LogSumExp(np.ones((3, 2)), np.zeros(2)), ValueError, "sum to zero"),
        (lambda: optimal_weights([1, 1, 2], 1), ValueError, "distinct"),
        (lambda: brockett_condition_number([1, 2, 3], [-1, 2]), ValueError, "positive"),
    ],
)
def test_misuse_is_an_exception_that_teaches(build: Any, error: Any, words: str) -> None:
    """What was given, what was expected."""
    with pytest.raises(error, match=words):
        build()


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_objects_are_frozen_and_travel(case: Case) -> None:
    """An objective survives pickling, as a checkpoint or another process needs it."""
    with pytest.raises(AttributeError):
        case.objective.anything = 1
    X = normal(case.shape, complex if case.kinds == "c" else float)
    copy = pickle.loads(pickle.dumps(case.objective))
    assert copy.value(X) == case.objective.value(X)


def test_public_names() -> None:
    """Everything exported exists and says what it is."""
    assert sorted(objectives.__all__) == objectives.__all__
    assert all(getattr(objectives, name).__doc__ for name in objectives.__all__)
