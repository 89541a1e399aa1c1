"""Forty problems of many kinds on which evaluations are counted; see `evaluations`.

Each is a function of no arguments that returns a `Task`: f with its gradient, a start for every
seed, the manifold, and what must be reached.  Instances come from fixed seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from scipy import linalg

import stiefel
from stiefel import ComplexCircle, Euclidean, Grassmann, Oblique, Orthogonal, Sphere, Stiefel
from stiefel import SpecialOrthogonal as Rotations
from stiefel.objectives import Brockett, JointDiagonalization, KohnSham, Procrustes


@dataclass(frozen=True)
class Task:
    """A function, its starts and its manifold; ``value``: the run ends at this f instead."""

    fun: Any
    start: Callable[[int], Any]
    manifold: Any = field(default_factory=Stiefel)
    rtol: float = 1e-6
    value: float | None = None


def points(*shape: int, manifold: Any = None, **options: Any) -> Callable[[int], Any]:
    manifold = manifold or Stiefel()
    return lambda seed: manifold.random(*shape, seed=1000 + seed, **options)


def symmetric(values: Any, seed: int, dtype: Any = float) -> Any:
    U = stiefel.random_point(len(values), len(values), seed=seed, dtype=dtype)
    A = (U * np.asarray(values)) @ U.conj().T
    return (A + A.conj().T) / 2


def quadratic(A: Any, weights: Any = 1.0, linear: Any = 0.0) -> Any:
    """½ Tr(XᴴAX diag(weights)) + Re⟨linear, X⟩."""

    def fun(X: Any) -> tuple[float, Any]:
        AX = (A @ X) * weights
        return float(np.vdot(X, 0.5 * AX + linear).real), AX + linear

    return fun


# -- the ARNT set --------------------------------------------------------------------------------


def kohn_sham(n: int, p: int, alpha: float, rtol: float) -> Task:
    """½Tr XᵀLX + (α/4)ρᵀL⁻¹ρ, from the lowest eigenvectors at the density of a random point."""
    bands = np.stack([np.full(n, -1.0), np.full(n, 2.0)])

    def solve(rho: Any) -> Any:
        return linalg.solveh_banded(bands, rho, check_finite=False)

    def fun(X: Any) -> tuple[float, Any]:
        LX = 2.0 * X
        LX[1:] -= X[:-1]
        LX[:-1] -= X[1:]
        rho = np.einsum("ij,ij->i", X, X)
        v = alpha * solve(rho)
        f = 0.5 * float(np.vdot(X, LX)) + 0.25 * float(rho @ v)
        return f, LX + v[:, None] * X

    def start(seed: int) -> Any:
        X = stiefel.random_point(n, p, seed=1000 + seed)
        v = 2.0 + alpha * solve(np.einsum("ij,ij->i", X, X))
        lowest = {"select": "i", "select_range": (0, p - 1)}
        return stiefel.nearest(linalg.eigh_tridiagonal(v, np.full(n - 1, -1.0), **lowest)[1])

    return Task(fun, start, rtol=rtol)


def random_eigenproblem(rtol: float) -> Task:
    """−½Tr XᵀMᵀMX with a Gaussian M."""
    M = np.random.default_rng(1).standard_normal((1000, 1000))
    return Task(quadratic(-M.T @ M), points(1000, 6), rtol=rtol)


def quadratic_plus_linear(definite: bool, rtol: float) -> Task:
    n, k, rng = 1000, 20, np.random.default_rng(2)
    values = 1.01 ** -np.arange(n)
    if not definite:
        values *= rng.choice([-1.0, 1.0], n)
    G = rng.standard_normal((n, k))
    G *= 1.01 ** -np.arange(k) / np.linalg.norm(G, axis=0)
    return Task(quadratic(symmetric(values, 3), linear=G), points(n, k), rtol=rtol)


def procrustes(rtol: float) -> Task:
    """½‖AX − B‖² with A Gaussian plus ten on the diagonal's singular values."""
    n, k, rng = 500, 50, np.random.default_rng(4)
    A = rng.standard_normal((n, n)) / np.sqrt(n)
    U, _, Vt = np.linalg.svd(A)
    A = (U * np.linspace(1.0, 10.0, n)) @ Vt
    B = A @ stiefel.random_point(n, k, seed=5) + 0.1 * rng.standard_normal((n, k))
    return Task(Procrustes(A, B), points(n, k), rtol=rtol)


def correlation(p: int, rtol: float) -> Task:
    """½‖VᵀV − C‖² over unit columns."""
    i = np.arange(500)
    C = 0.5 + 0.5 * np.exp(-0.05 * np.abs(i[:, None] - i))

    def fun(V: Any) -> tuple[float, Any]:
        R = V.T @ V - C
        return 0.5 * float(np.vdot(R, R)), 2.0 * V @ R

    return Task(fun, points(p, 500, manifold=Oblique()), Oblique(), rtol)


def max_cut(rtol: float) -> Task:
    """On a torus of 8×8×8 with Gaussian weights, p = 16."""
    rng, index = np.random.default_rng(6), np.arange(512).reshape(8, 8, 8)
    W = np.zeros((512, 512))
    for axis in range(3):
        weights = rng.standard_normal(512)
        a, b = index.ravel(), np.roll(index, 1, axis).ravel()
        W[a, b] += weights
        W[b, a] += weights

    def fun(V: Any) -> tuple[float, Any]:
        VW = V @ W
        return 0.5 * float(np.vdot(V, VW)), VW

    return Task(fun, points(16, 512, manifold=Oblique()), Oblique(), rtol)


ARNT_SETUPS: dict[str, Callable[[float], Task]] = {
    "Kohn-Sham a=1": partial(kohn_sham, 2000, 10, 1.0),
    "Kohn-Sham a=10": partial(kohn_sham, 2000, 10, 10.0),
    "Kohn-Sham a=100": partial(kohn_sham, 2000, 10, 100.0),
    "Kohn-Sham a=1000": partial(kohn_sham, 2000, 10, 1000.0),
    "Kohn-Sham 5000x20": partial(kohn_sham, 5000, 20, 1.0),
    "random eigenproblem": random_eigenproblem,
    "quadratic+linear, definite": partial(quadratic_plus_linear, True),
    "quadratic+linear, indefinite": partial(quadratic_plus_linear, False),
    "Procrustes 500x50": procrustes,
    "correlation p=5": partial(correlation, 5),
    "correlation p=20": partial(correlation, 20),
    "max-cut torus": max_cut,
}


# -- one matrix ----------------------------------------------------------------------------------


def brockett_wide() -> Task:
    return Task(Brockett(np.linspace(1.0, 200.0, 200), np.arange(1.0, 51.0)), points(200, 50))


def brockett_hard() -> Task:
    return Task(Brockett.table(300, 6), points(300, 6))


def spread_weights() -> Task:
    """Weights 1 to 100, and a linear term, so that no operator can be learned."""
    A, rng = np.linspace(1.0, 30.0, 120)[:, None], np.random.default_rng(11)
    weights = np.geomspace(1.0, 100.0, 5)

    def fun(X: Any) -> tuple[float, Any]:
        AX = A * X * weights
        return float(np.vdot(X, AX) + 5.0 * np.sum(X**4 * weights)), 2 * AX + 20 * X**3 * weights

    _ = rng
    return Task(fun, points(120, 5))


def wide_eigenproblem() -> Task:
    return Task(quadratic(symmetric(np.linspace(1.0, 100.0, 1000), 12)), points(1000, 20))


def trace_ratio() -> Task:
    """−Tr XᵀAX/Tr XᵀBX, a function of the span."""
    rng, n = np.random.default_rng(13), 300
    Z = rng.standard_normal((n, 40)) * np.geomspace(5.0, 0.5, 40)
    A, B = Z @ Z.T / n, symmetric(np.geomspace(0.05, 5.0, n), 14)

    def fun(X: Any) -> tuple[float, Any]:
        AX, BX = A @ X, B @ X
        a, b = float(np.vdot(X, AX)), float(np.vdot(X, BX))
        return -a / b, (-2.0 * AX + (2.0 * a / b) * BX) / b

    return Task(fun, points(n, 10))


def sum_of_forms() -> Task:
    """Σ x_iᵀA_i x_i: every column has an operator of its own."""
    n, k = 60, 4
    A = np.stack([symmetric(np.geomspace(1.0, 50.0, n), 15 + i) for i in range(k)])

    def fun(X: Any) -> tuple[float, Any]:
        AX = np.einsum("kij,jk->ik", A, X)
        return float(np.vdot(X, AX)), 2.0 * AX

    return Task(fun, points(n, k))


def components() -> Task:
    """Independent components: −Σ log cosh of projections, whitened data."""
    rng = np.random.default_rng(19)
    S = rng.laplace(size=(12, 2000))
    Z = np.linalg.svd(rng.standard_normal((12, 12)) @ S, full_matrices=False)[2] * np.sqrt(2000)

    def fun(W: Any) -> tuple[float, Any]:
        Y = W.T @ Z
        y = np.abs(Y)
        f = float(np.sum(y + np.log1p(np.exp(-2 * y)))) / 2000
        return f, Z @ np.tanh(Y).T / 2000

    return Task(fun, points(12, 5))


def nearly_linear_procrustes() -> Task:
    rng = np.random.default_rng(20)
    A = rng.standard_normal((60, 40)) * np.geomspace(1.0, 10.0, 40)
    return Task(Procrustes(A, rng.standard_normal((60, 4))), points(40, 4))


def smooth_l1() -> Task:
    """Sparse components: −½‖AX‖² + Σ √(x² + δ²)."""
    A = np.random.default_rng(21).standard_normal((50, 120)) / 10

    def fun(X: Any) -> tuple[float, Any]:
        root = np.sqrt(X * X + 1e-4)
        AX = A @ X
        return float(0.3 * np.sum(root) - 0.5 * np.vdot(AX, AX)), 0.3 * X / root - A.T @ AX

    return Task(fun, points(120, 4), rtol=1e-5)


def robust_subspace() -> Task:
    """Σ log(1 + ‖(I − XXᵀ)z‖²): a function of the span that is not quadratic."""
    rng = np.random.default_rng(22)
    Z = rng.standard_normal((40, 4)) @ rng.standard_normal((4, 300))
    Z += 0.1 * rng.standard_normal(Z.shape)
    Z[:, :60] = 3.0 * rng.standard_normal((40, 60))
    squares = np.sum(Z * Z, axis=0)

    def fun(X: Any) -> tuple[float, Any]:
        C = X.T @ Z
        r = squares - np.sum(C * C, axis=0)
        return float(np.sum(np.log1p(r))), -2.0 * (Z / (1.0 + r)) @ C.T

    return Task(fun, points(40, 4))


def subspace_mean() -> Task:
    """A mean of subspaces in the projection metric of fourth powers, on Grassmann."""
    rng = np.random.default_rng(23)
    U = [stiefel.nearest(np.eye(50, 5) + 0.2 * rng.standard_normal((50, 5))) for _ in range(20)]
    V = np.stack(U)

    def fun(X: Any) -> tuple[float, Any]:
        C = V.swapaxes(-1, -2) @ X
        r = 5.0 - np.sum(C * C, axis=(-2, -1))
        return float(np.sum(r * r)), -4.0 * np.einsum("m,mij,mjk->ik", r, V, C)

    return Task(fun, points(50, 5, manifold=Grassmann()), Grassmann())


def generalised() -> Task:
    B = symmetric(np.geomspace(0.2, 5.0, 80), 24)
    fun = Brockett(symmetric(np.linspace(1.0, 60.0, 80), 25), np.arange(1.0, 5.0))
    return Task(fun, points(80, 4, manifold=Stiefel(B=B)), Stiefel(B=B))


def generalised_kohn_sham() -> Task:
    B = symmetric(np.linspace(0.5, 2.0, 60), 26)
    return Task(KohnSham(60, 3.0), points(60, 4, manifold=Stiefel(B=B)), Stiefel(B=B))


def complex_trace() -> Task:
    fun = Brockett(symmetric(np.linspace(1.0, 60.0, 80), 27, complex), np.arange(1.0, 6.0))
    return Task(fun, points(80, 5, dtype=complex))


def complex_fourth_powers() -> Task:
    rng = np.random.default_rng(28)
    Z = rng.standard_normal((200, 20)) + 1j * rng.standard_normal((200, 20))
    Z *= np.linspace(1.0, 3.0, 20)

    def fun(X: Any) -> tuple[float, Any]:
        Y = Z @ X
        s = np.abs(Y) ** 2
        return -float(np.sum(s * s)) / 200, -4.0 * Z.conj().T @ (s * Y) / 200

    return Task(fun, points(20, 4, dtype=complex))


# -- square matrices and rotations ---------------------------------------------------------------


def square_brockett() -> Task:
    A, w = symmetric(np.linspace(1.0, 10.0, 40), 29), np.linspace(1.0, 3.0, 40)
    return Task(quadratic(A, w), points(40, 40, manifold=Orthogonal()), Orthogonal())


def joint_diagonalisation() -> Task:
    rng, U = np.random.default_rng(30), stiefel.random_point(30, 30, seed=31)
    C = [(U * rng.standard_normal(30)) @ U.T for _ in range(8)]
    C = [c + 0.02 * symmetric(np.linspace(-1, 1, 30), 32 + i) for i, c in enumerate(C)]

    def start(seed: int) -> Any:
        noise = np.random.default_rng(1000 + seed).standard_normal((30, 30))
        return stiefel.nearest(U + 0.1 * noise)

    return Task(JointDiagonalization(np.stack([(c + c.T) / 2 for c in C])), start)


def fourth_powers() -> Task:
    """Dictionary learning: −Σ (XᵀY)⁴ over orthogonal matrices."""
    rng = np.random.default_rng(40)
    Y = rng.standard_normal((30, 1500)) * (rng.random((30, 1500)) < 0.2)

    def fun(X: Any) -> tuple[float, Any]:
        C = X.T @ Y
        return -float(np.sum(C**4)) / 1500, -4.0 * Y @ (C**3).T / 1500

    return Task(fun, points(30, 30, manifold=Orthogonal()), Orthogonal())


def gate() -> Task:
    """Two unitary 6×6 matrices around a fixed one: −|Tr T^H V D U|²."""
    T, D = (stiefel.random_point(6, 6, seed=s, dtype=complex) for s in (41, 42))
    C = symmetric(np.linspace(0.0, 2.0, 6), 43, complex)

    def fun(p: Any) -> tuple[float, Any]:
        U, V = p["U"], p["V"]
        M = V @ D @ U - T
        CM = C @ M
        left = CM @ U.conj().T @ D.conj().T
        right = D.conj().T @ V.conj().T @ CM
        return 0.5 * float(np.vdot(M, CM).real), {"U": right, "V": left}

    def start(seed: int) -> Any:
        draw = lambda i: stiefel.random_point(6, 6, seed=1000 + 2 * seed + i, dtype=complex)
        return {"U": draw(0), "V": draw(1)}

    return Task(fun, start, {"U": stiefel.Unitary(), "V": stiefel.Unitary()})


def rotation_averaging() -> Task:
    """Rotations of a graph with measured relative ones, weights from 0.1 to 10."""
    rng, n = np.random.default_rng(44), 100
    R = Rotations().random(n, 3, 3, seed=45)
    i = np.concatenate([np.arange(n - 1), rng.integers(0, n, 200)])
    j = np.concatenate([np.arange(1, n), rng.integers(0, n, 200)])
    i, j = i[i != j], j[i != j]
    noise = Stiefel().nearest(np.eye(3) + 0.1 * rng.standard_normal((len(i), 3, 3)))
    M, w = R[i] @ noise @ R[j].swapaxes(-1, -2), 10.0 ** rng.uniform(-1, 1, len(i))

    def fun(X: Any) -> tuple[float, Any]:
        D = X[i] - M @ X[j]
        G, wD = np.zeros_like(X), w[:, None, None] * D
        np.add.at(G, i, wD)
        np.add.at(G, j, -M.swapaxes(-1, -2) @ wD)
        return 0.5 * float(np.vdot(D, wD)), G

    return Task(fun, points(n, 3, 3, manifold=Rotations()), Rotations())


# -- spheres and stacks --------------------------------------------------------------------------


def one_vector() -> Task:
    A = np.geomspace(1.0, 1000.0, 2000)
    return Task(
        lambda x: (0.5 * float(x @ (A * x)), A * x), points(2000, manifold=Sphere()), Sphere()
    )


def quartic_vector() -> Task:
    """Gross–Pitaevskii: ½xᵀLx + ¼β Σx⁴ on a line."""
    n = 300

    def fun(x: Any) -> tuple[float, Any]:
        Lx = 2.0 * x
        Lx[1:] -= x[:-1]
        Lx[:-1] -= x[1:]
        Lx = Lx + 1e-3 * ((np.arange(n) - n / 2) / 30) ** 2 * x
        return 0.5 * float(x @ Lx) + 0.25 * float(np.sum(x**4)), Lx + x**3

    return Task(fun, points(n, manifold=Sphere()), Sphere())


def frame() -> Task:
    """Unit vectors far from each other: Σ ⟨x_i, x_j⟩⁴, a stack of rows."""

    def fun(X: Any) -> tuple[float, Any]:
        K = X @ X.T
        return float(np.sum(K**4)), 8.0 * K**3 @ X

    return Task(fun, points(60, 8, manifold=Sphere()), Sphere())


def heisenberg() -> Task:
    """A spin glass: 200 unit vectors in three dimensions with random couplings."""
    rng = np.random.default_rng(46)
    J = rng.standard_normal((200, 200)) * (rng.random((200, 200)) < 0.03)
    J = J + J.T
    return Task(quadratic(J), points(200, 3, manifold=Sphere()), Sphere())


def stack_of_traces() -> Task:
    A = np.stack([symmetric(np.linspace(1.0, 10.0 * (i + 1), 24), 47 + i) for i in range(5)])
    return Task(quadratic(A, np.arange(1.0, 4.0)), points(5, 24, 3))


def small_problems(scaled: bool) -> Task:
    """Forty Brockett problems 12×3, conditions 1 to 1e3, as one sum with scales 1e-3 to 1e3."""
    rng, count = np.random.default_rng(48), 40
    conditions = np.geomspace(1.0, 1e3, count)
    A = np.stack(
        [symmetric(np.geomspace(1.0, 1.5 * c, 12), 49 + i) for i, c in enumerate(conditions)]
    )
    size = np.max(np.abs(A), axis=(-2, -1))[:, None, None]
    scales = 10.0 ** rng.uniform(-3.0, 3.0, count)[:, None, None]
    A = A / size if scaled else A / size * scales
    return Task(quadratic(A, np.arange(1.0, 4.0)), points(count, 12, 3), rtol=1e-9)


# -- trees ---------------------------------------------------------------------------------------


def tree(ratio: float) -> Task:
    """½‖Y − X C‖² with free coefficients, whose unit is ``ratio`` times too small."""
    rng = np.random.default_rng(90)
    Y = (rng.standard_normal((40, 3)) * [3.0, 2.0, 1.0]) @ rng.standard_normal((3, 25)) / 10
    Y += 0.1 * rng.standard_normal(Y.shape)

    def fun(p: Any) -> tuple[float, Any]:
        X, C = p["X"], ratio * p["C"]
        R = X @ C - Y
        f = 0.5 * float(np.vdot(R, R)) + 0.05 * float(np.vdot(C, C))
        return f, {"X": R @ C.T, "C": ratio * (X.T @ R + 0.1 * C)}

    def start(seed: int) -> Any:
        C = np.random.default_rng(1000 + seed).standard_normal((3, 25)) / ratio
        return {"X": stiefel.random_point(40, 3, seed=1000 + seed), "C": C}

    return Task(fun, start, {"X": Stiefel(), "C": Euclidean()})


def beamforming(zero: bool = True) -> Task:
    """‖F − P B‖² with phases P, from the best free B: its gradient is zero."""
    rng = np.random.default_rng(91)
    F = rng.standard_normal((64, 4)) + 1j * rng.standard_normal((64, 4))
    F /= np.linalg.norm(F)

    def fun(p: Any) -> tuple[float, Any]:
        P, B = p["P"], p["B"]
        R = P @ B - F
        return 0.5 * float(np.vdot(R, R).real), {"P": R @ B.conj().T, "B": P.conj().T @ R}

    def start(seed: int) -> Any:
        P = ComplexCircle().random(64, 8, seed=1000 + seed, dtype=complex)
        B = np.linalg.lstsq(P, F, rcond=None)[0]
        return {"P": P, "B": B if zero else 0.5 * B}

    return Task(fun, start, {"P": ComplexCircle(), "B": Euclidean()})


def tucker() -> Task:
    """Three orthonormal factors of a tensor: −½‖T ×₁ U ×₂ V ×₃ W‖²."""
    rng = np.random.default_rng(92)
    T = np.einsum(
        "abc,ia,jb,kc->ijk",
        rng.standard_normal((4, 3, 2)),
        *(
            stiefel.random_point(n, k, seed=93 + i)
            for i, (n, k) in enumerate([(20, 4), (15, 3), (10, 2)])
        ),
    ) + 0.05 * rng.standard_normal((20, 15, 10))

    def fun(p: Any) -> tuple[float, Any]:
        U, V, W = p
        A = np.einsum("ijk,jb,kc->ibc", T, V, W)
        C = np.einsum("ibc,ia->abc", A, U)
        B = np.einsum("ijk,ia,kc->jac", T, U, W)
        E = np.einsum("ijk,ia,jb->kab", T, U, V)
        G = (
            -np.einsum("ibc,abc->ia", A, C),
            -np.einsum("jac,abc->jb", B, C),
            -np.einsum("kab,abc->kc", E, C),
        )
        return -0.5 * float(np.vdot(C, C)), G

    def start(seed: int) -> Any:
        shapes = enumerate([(20, 4), (15, 3), (10, 2)])
        return tuple(stiefel.random_point(*s, seed=1000 + 3 * seed + i) for i, s in shapes)

    return Task(fun, start, (Stiefel(), Stiefel(), Stiefel()))


def network() -> Task:
    """64-128-128-10 on digits, two orthonormal weights beside free leaves; loss 1e-3."""
    from sklearn.datasets import load_digits

    data = load_digits()
    Z, labels = data.data / 16.0, np.eye(10)[data.target]
    count = len(Z)

    def fun(p: Any) -> tuple[float, Any]:
        H1 = np.tanh(Z @ p["W1"].T + p["b1"])
        H2 = np.tanh(H1 @ p["W2"].T + p["b2"])
        out = H2 @ p["W3"].T + p["b3"]
        out -= out.max(axis=1, keepdims=True)
        total = np.log(np.sum(np.exp(out), axis=1, keepdims=True))
        f = float(np.sum(total - np.sum(out * labels, axis=1, keepdims=True))) / count
        D3 = (np.exp(out - total) - labels) / count
        D2 = (D3 @ p["W3"]) * (1.0 - H2 * H2)
        D1 = (D2 @ p["W2"]) * (1.0 - H1 * H1)
        return f, {
            "W1": D1.T @ Z, "b1": D1.sum(0), "W2": D2.T @ H1, "b2": D2.sum(0),
            "W3": D3.T @ H2, "b3": D3.sum(0),
        }  # fmt: skip

    def start(seed: int) -> Any:
        rng = np.random.default_rng(1000 + seed)
        free = lambda *shape: rng.uniform(-1, 1, shape) / np.sqrt(128)
        return {
            "W1": stiefel.random_point(128, 64, seed=1000 + seed), "b1": free(128) * np.sqrt(2),
            "W2": stiefel.random_point(128, 128, seed=2000 + seed), "b2": free(128),
            "W3": free(10, 128), "b3": free(10),
        }  # fmt: skip

    free = dict.fromkeys(("b1", "b2", "W3", "b3"), Euclidean())
    return Task(fun, start, {"W1": Stiefel(), "W2": Orthogonal(), **free}, value=1e-3)


PROBLEMS: dict[str, Callable[[], Task]] = {
    **{name: partial(make, 1e-6) for name, make in ARNT_SETUPS.items()},
    "Brockett 200x50": brockett_wide,
    "Brockett 300x6, hard": brockett_hard,
    "spread weights": spread_weights,
    "eigenproblem 1000x20": wide_eigenproblem,
    "trace ratio": trace_ratio,
    "sum of forms": sum_of_forms,
    "independent components": components,
    "Procrustes 40x4": nearly_linear_procrustes,
    "smooth L1": smooth_l1,
    "robust subspace": robust_subspace,
    "subspace mean": subspace_mean,
    "generalised": generalised,
    "generalised Kohn-Sham": generalised_kohn_sham,
    "complex trace": complex_trace,
    "complex fourth powers": complex_fourth_powers,
    "square Brockett": square_brockett,
    "joint diagonalisation": joint_diagonalisation,
    "fourth powers": fourth_powers,
    "gate": gate,
    "rotation averaging": rotation_averaging,
    "one vector": one_vector,
    "quartic vector": quartic_vector,
    "frame of vectors": frame,
    "spin glass": heisenberg,
    "stack of traces": stack_of_traces,
    "40 problems, scaled": partial(small_problems, True),
    "40 problems, raw": partial(small_problems, False),
    "tree": partial(tree, 1.0),
    "tree, ratio 1e3": partial(tree, 1e3),
    "beamforming": beamforming,
    "Tucker": tucker,
    "network on digits": network,
}
ARNT_TIGHT = {f"{name}, 1e-10": partial(make, 1e-10) for name, make in ARNT_SETUPS.items()}
