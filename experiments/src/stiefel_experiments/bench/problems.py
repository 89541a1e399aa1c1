"""What the solvers are compared on: instances, starts and tolerances, all from fixed seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy.linalg import eigh_tridiagonal

from stiefel import SpecialOrthogonal, Stiefel
from stiefel.objectives import (
    Brockett,
    CompressedModes,
    JointDiagonalization,
    KohnSham,
    MaxCut,
    Procrustes,
    Quadratic,
    Rayleigh,
    RotationSynchronization,
)
from stiefel.types import Array

INSTANCE_SEED = 2026
START_SEED = 4711


@dataclass(frozen=True)
class Problem:
    """An objective with the shape of its points and the tolerance to reach."""

    name: str
    title: str
    make: Callable[[], Any]
    shape: tuple[int, ...]
    rtol: float
    momentum: float = 0.99  # for the peers that need one: near the best for the condition number
    diagonal: bool = False  # a plain eigenproblem of a diagonal matrix, for the eigensolvers
    quick: bool = False
    rotations: bool = False
    limit: float = 60.0  # CPU seconds that a run may take, more than ten times what `auto` takes
    peers: bool = True  # False: the others' methods do not see the difference to another problem
    improve: Callable[[Any, Array], Array] | None = None  # the start from a random point

    @cached_property
    def objective(self) -> Any:
        return self.make()

    @cached_property
    def manifold(self) -> Any:
        return SpecialOrthogonal() if self.rotations else Stiefel()

    def start(self, number: int) -> Array:
        """Start `number`: the same for every solver and on every machine, up to rounding."""
        seed = [START_SEED, *self.name.encode(), number]
        X = self.manifold.random(*self.shape, seed=np.random.default_rng(seed))
        return X if self.improve is None else self.improve(self.objective, X)


@dataclass(frozen=True)
class Mixed:
    """f(XQ) with a random orthogonal Q: the columns of X mean nothing by themselves."""

    objective: Any
    Q: Array

    def value(self, X: Array) -> float:
        return float(self.objective.value(X @ self.Q))

    def value_and_gradient(self, X: Array) -> tuple[float, Array]:
        f, G = self.objective.value_and_gradient(X @ self.Q)
        return f, G @ self.Q.T

    def hessp(self, X: Array, V: Array) -> Array:
        return self.objective.hessp(X @ self.Q, V @ self.Q) @ self.Q.T


@dataclass(frozen=True)
class Correlation:
    """½‖VVᵀ − C‖² for unit vectors v_i, the rows of V: the nearest correlation matrix of rank p."""

    C: Array

    def value(self, X: Array) -> float:
        return 0.5 * float(((X[..., 0] @ X[..., 0].T - self.C) ** 2).sum())

    def value_and_gradient(self, X: Array) -> tuple[float, Array]:
        V = X[..., 0]
        R = V @ V.T - self.C
        return 0.5 * float((R**2).sum()), 2 * (R @ V)[..., None]

    def hessp(self, X: Array, W: Array) -> Array:
        V, W = X[..., 0], W[..., 0]
        VW = V @ W.T
        return (2 * ((V @ V.T - self.C) @ W + (VW + VW.T) @ V))[..., None]


def _mixed(n: int, k: int) -> Mixed:
    return Mixed(Brockett.table(n, k), Stiefel().random(k, k, seed=INSTANCE_SEED))


def _procrustes(m: int, n: int, k: int, condition: float) -> Procrustes:
    """A with singular values from 1 to `condition`, B = A X + noise."""
    rng = np.random.default_rng(INSTANCE_SEED)
    U, V = Stiefel().random(m, n, seed=rng), Stiefel().random(n, n, seed=rng)
    A = (U * np.geomspace(1.0, condition, n)) @ V.T
    X = Stiefel().random(n, k, seed=rng)
    return Procrustes(A, A @ X + rng.standard_normal((m, k)))


def _synchronisation(m: int, probability: float) -> RotationSynchronization:
    made = RotationSynchronization.random_instance(
        m, edge_probability=probability, noise=0.2, rng=INSTANCE_SEED
    )
    return made[0]


def _joint(n: int, matrices: int) -> JointDiagonalization:
    """Matrices that almost commute: the common eigenvectors are disturbed by a tenth."""
    rng = np.random.default_rng(INSTANCE_SEED)
    C = JointDiagonalization.random_exact(n, matrices, rng).C
    E = rng.standard_normal(C.shape) / np.sqrt(n)
    return JointDiagonalization(C + 0.05 * (E + E.swapaxes(1, 2)))


def _correlation(n: int) -> Correlation:
    i = np.arange(n)
    return Correlation(0.5 + 0.5 * np.exp(-0.05 * abs(i[:, None] - i)))


def _torus(m: int) -> MaxCut:
    """A torus of m³ nodes whose edges have Gaussian weights."""
    index = np.arange(m**3).reshape(m, m, m)
    edges = [np.stack([index, np.roll(index, 1, axis)], -1).reshape(-1, 2) for axis in range(3)]
    weights = np.random.default_rng(INSTANCE_SEED).standard_normal(3 * m**3)
    return MaxCut.from_edges(m**3, np.concatenate(edges), weights)


def _eigenproblem(n: int) -> Rayleigh:
    M = np.random.default_rng(INSTANCE_SEED).standard_normal((n, n))
    return Rayleigh(-(M.T @ M))


def _indefinite(n: int, k: int) -> Quadratic:
    """½ Tr XᵀAX + ⟨G, X⟩: eigenvalues ± 1.01⁻ⁱ, columns of G of lengths 1.01⁻ⁱ."""
    rng = np.random.default_rng(INSTANCE_SEED)
    U, G = Stiefel().random(n, n, seed=rng), rng.standard_normal((n, k))
    A = (U * (1.01 ** -np.arange(n) * rng.choice([-1.0, 1.0], n))) @ U.T
    return Quadratic((A + A.T) / 2, -G / np.linalg.norm(G, axis=0) * 1.01 ** -np.arange(k))


def _at_its_density(f: KohnSham, X: Array) -> Array:
    """The lowest eigenvectors of the Hamiltonian that belongs to a point's density."""
    n, k = X.shape
    L = np.diag(np.full(n, 2.0)) - np.eye(n, k=1) - np.eye(n, k=-1)
    v = f.interaction * np.linalg.solve(L, (X**2).sum(axis=1))
    return np.asarray(eigh_tridiagonal(2 + v, np.full(n - 1, -1.0), select="i",
                                       select_range=(0, k - 1))[1])  # fmt: skip


def _kohn_sham(n: int, a: float, rtol: float, momentum: float) -> Problem:
    title = f"Kohn–Sham model, n = {n}, k = 10, a = {a:g}, to {rtol:g}"
    name = f"kohn-sham-{n}-{rtol:.0e}"
    return Problem(name, title, lambda: KohnSham(n, a), (n, 10), rtol, momentum)


_FULL = (
    Problem("table1", "Table 1: Brockett, n = 1000, k = 10, spectrum j²/n",
            lambda: Brockett.table(1000, 10), (1000, 10), 1e-9, 0.998, diagonal=True),
    Problem("table1-mixed", "Table 1 with its columns mixed: f(XQ)",
            lambda: _mixed(1000, 10), (1000, 10), 1e-9, peers=False),
    Problem("table2", "Table 2: Brockett, n = 2000, k = 20, spectrum j²/n",
            lambda: Brockett.table(2000, 20), (2000, 20), 1e-9, 0.999, diagonal=True, limit=120.0),
    Problem("brockett-linear", "Brockett, n = 400, k = 10, spectrum j",
            lambda: Brockett.linear(400, 10), (400, 10), 1e-10, 0.97, diagonal=True),
    Problem("sphere", "One eigenvector on the sphere, n = 10,000, spectrum j",
            lambda: Rayleigh.linear(10_000), (10_000, 1), 1e-10, 0.98, diagonal=True),
    _kohn_sham(400, 1.0, 1e-6, 0.9),
    _kohn_sham(400, 1.0, 1e-10, 0.9),
    _kohn_sham(2000, 1e-4, 1e-6, 0.99),
    _kohn_sham(2000, 1e-4, 1e-10, 0.99),
    Problem("procrustes", "Unbalanced Procrustes, A 400 × 300 of condition 100, k = 10",
            lambda: _procrustes(400, 300, 10, 100.0), (300, 10), 1e-9, 0.98),
    Problem("synchronisation", "Synchronisation of 200 rotations, noise 0.2",
            lambda: _synchronisation(200, 0.02), (200, 3, 3), 1e-9, 0.95, rotations=True),
    Problem("compressed-modes", "Compressed modes, 256 grid points, k = 6, μ = 10, ε = 0.01",
            lambda: CompressedModes((256,), (50.0,), 10.0, 0.01), (256, 6), 1e-6, 0.98),
    Problem("joint-diagonalisation", "Joint diagonalisation of 5 matrices of order 30",
            lambda: _joint(30, 5), (30, 30), 1e-9, 0.9, rotations=True),
)  # fmt: skip

# The set of Hu, Milzarek, Wen and Yuan (ARNT), after Wen and Yin: sizes and starts are theirs.
_ARNT = (
    *(Problem(f"arnt-kohn-sham-{a:g}", f"ARNT: Kohn–Sham model, n = 2000, k = 10, α = {a:g}",
              partial(KohnSham, 2000, a), (2000, 10), 1e-6, 0.95, improve=_at_its_density)
      for a in (1.0, 1000.0)),
    Problem("arnt-eigenproblem", "ARNT: six eigenvectors of a random matrix, n = 1000",
            lambda: _eigenproblem(1000), (1000, 6), 1e-6, 0.98),
    Problem("arnt-quadratic", "ARNT: indefinite quadratic with a linear term, n = 1000, k = 20",
            lambda: _indefinite(1000, 20), (1000, 20), 1e-6, 0.95),
    Problem("arnt-correlation", "ARNT: nearest correlation matrix of rank 5, 500 unit vectors",
            lambda: _correlation(500), (500, 5, 1), 1e-6, 0.95),
    Problem("arnt-max-cut", "ARNT: max-cut on a torus of 512 nodes, rank 16",
            lambda: _torus(8), (512, 16, 1), 1e-6, 0.95),
)  # fmt: skip

_SMALL: Any = {"quick": True, "limit": 3.0}
_QUICK = (
    Problem("quick-brockett", "Brockett, n = 100, k = 4, spectrum j",
            lambda: Brockett.linear(100, 4), (100, 4), 1e-7, 0.9, diagonal=True, **_SMALL),
    Problem("quick-sphere", "One eigenvector on the sphere, n = 500, spectrum j",
            lambda: Rayleigh.linear(500), (500, 1), 1e-7, 0.95, diagonal=True, **_SMALL),
    Problem("quick-kohn-sham", "Kohn–Sham model, n = 100, k = 5, a = 1",
            lambda: KohnSham(100, 1.0), (100, 5), 1e-6, 0.9, **_SMALL),
    Problem("quick-procrustes", "Unbalanced Procrustes, A 60 × 40 of condition 10, k = 4",
            lambda: _procrustes(60, 40, 4, 10.0), (40, 4), 1e-7, 0.9, **_SMALL),
    Problem("quick-synchronisation", "Synchronisation of 20 rotations, noise 0.2",
            lambda: _synchronisation(20, 0.2), (20, 3, 3), 1e-7, 0.9, rotations=True, **_SMALL),
)  # fmt: skip

PROBLEMS = {problem.name: problem for problem in _FULL + _ARNT + _QUICK}
