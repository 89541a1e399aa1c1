"""Rotation synchronisation by a relaxation whose rank climbs until it is certified.

The stack of orthogonal matrices R_i (d×d) is relaxed to matrices Y_i (d×p) with orthonormal rows,

    min ½ tr YᵀLY,     Y_iY_iᵀ = I,     p = d, d+1, …

With Λ_i = sym((LY)_iY_iᵀ), a positive semidefinite L − Λ proves that Y is a minimum of the
semidefinite relaxation (p = m·d), and ½ tr Λ is a lower bound of every value, that of the best
rotations included.  Otherwise an eigenvector v of a negative eigenvalue leads down with one more
column: Y ← [Y, t v].  The rank that is needed is small; outliers raise it.  The rotations are
those nearest to the d leading columns, and descent on the rotations themselves comes last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

import stiefel
from stiefel.objectives import RotationSynchronization
from stiefel.types import Array

from .certificate import Certificate, smallest_eigenpair
from .synchronization import Synchronization, inverse_laplacian, spectral_start, synchronize

STEPS = (0.3, 0.1, 0.03, 0.01, 0.003)  # along the new column, of the mean row's norm


class Floor(NamedTuple):
    """What one rank of the relaxation gave."""

    rank: int
    value: float
    smallest_eigenvalue: float
    evaluations: int


@dataclass(frozen=True, eq=False)
class Staircase:
    """Rotations with the bound of the relaxation, and the ranks that led to it.

    ``certificate`` compares the rotations with the bound; ``tight`` says whether the relaxation
    itself was solved to the tolerance, so that no better bound of this kind exists.
    """

    rotations: Array
    result: stiefel.Result
    certificate: Certificate
    floors: tuple[Floor, ...]
    tight: bool
    scale: float = 0.0  # Σ w d, the value of rotations at random

    @property
    def relative_gap(self) -> float:
        """How far the value can be above the minimum, of the value.

        Exact measurements have the value zero, to rounding: at least 1.5e-8 of the value that
        rotations at random have is what the gap is compared with.
        """
        least = np.sqrt(np.finfo(float).eps) * self.scale or 1.0
        return float(self.certificate.gap / max(self.certificate.value, least))


@dataclass(frozen=True, eq=False)
class Relaxation:
    """f(X) = ½ tr YᵀLY for a stack X of shape (m, p, d), X_i = Y_iᵀ with orthonormal columns."""

    problem: RotationSynchronization

    def value_and_gradient(self, X: Array) -> tuple[float, Array]:
        LY = self.applied(self.problem.laplacian.__matmul__, X)
        return 0.5 * float(np.vdot(X, LY)), LY

    __call__ = value_and_gradient

    @staticmethod
    def applied(operator: Callable[[Array], Array], X: Array) -> Array:
        """The stack of (A Y)_iᵀ, for an operator A on tall matrices."""
        m, p, d = X.shape
        tall = X.swapaxes(1, 2).reshape(m * d, p)
        return operator(tall).reshape(m, d, p).swapaxes(1, 2)

    def precond(self, solve: Callable[[Array], Array]) -> Callable[[Array, Array], Array]:
        """An operator on tall matrices as a preconditioner."""
        return lambda _, G: self.applied(solve, G)

    def multipliers(self, X: Array) -> Array:
        """Λ_i, a stack of symmetric d×d matrices."""
        blocks = self(X)[1].swapaxes(1, 2) @ X
        return 0.5 * (blocks + blocks.swapaxes(1, 2))

    def slack(self, X: Array) -> Any:
        """L − Λ."""
        m = len(X)
        L, blocks = self.problem.laplacian, self.multipliers(X)
        Lambda = scipy.sparse.bsr_array((blocks, np.arange(m), np.arange(m + 1)), shape=L.shape)
        return (L - Lambda).tocsr()


def staircase(
    problem: RotationSynchronization,
    *,
    start: Array | None = None,
    max_rank: int = 20,
    tolerance: float = 1e-6,
    rtol: float = 1e-8,
    method: Any = "lbfgs",
    precond: bool | None = None,
) -> Staircase:
    """Minimise over rotations, with the lower bound of the semidefinite relaxation.

    Parameters
    ----------
    problem
        The measurements.
    start
        A stack of rotations; by default the spectral one.
    max_rank
        The largest p.
    tolerance
        The relaxation is solved when the smallest eigenvalue of L − Λ is at least minus this,
        relative to the mean diagonal of L.
    rtol, method
        As for `stiefel.minimize`, at every rank.
    precond
        As for `synchronize`.

    Returns
    -------
    Staircase

    Raises
    ------
    ValueError
        If ``max_rank`` is smaller than the dimension of the rotations.

    Examples
    --------
    >>> problem, _ = RotationSynchronization.random_instance(10, noise=0.1, rng=0)
    >>> staircase(problem).relative_gap < 1e-5
    True
    """
    d = problem.measurements.shape[1]
    if max_rank < d:
        raise ValueError(f"max_rank is {max_rank}; expected at least {d}, the rotations' dimension")
    relaxation = Relaxation(problem)
    begin = spectral_start(problem) if start is None else start
    X = np.ascontiguousarray(np.asarray(begin).swapaxes(1, 2))
    allowed = tolerance * float(problem.laplacian.diagonal().mean())
    solve = inverse_laplacian(problem, precond)
    floors, bound = [], -np.inf
    while True:
        # Square matrices have two components, and rotations are in one of them.
        manifold = stiefel.Stiefel() if X.shape[1] > d else stiefel.SpecialOrthogonal()
        result = stiefel.minimize(
            relaxation,
            X,
            manifold=manifold,
            method=method,
            rtol=rtol,
            gtol=1e-12 * allowed,
            precond=None if solve is None else relaxation.precond(solve),
        )
        X = result.x
        least, v = smallest_eigenpair(relaxation.slack(X))
        floors.append(Floor(X.shape[1], float(result.fun), least, result.nfev))
        bound = max(bound, lower_bound(relaxation, X, least))
        if least >= -allowed or X.shape[1] == max_rank:
            break
        X = with_one_more_row(relaxation, X, v)
    found = _best(problem, begin, rounded(X, d), rtol=rtol, method=method, precond=precond)
    certificate = Certificate(found.certificate.value, bound, least)
    scale = d * float(np.sum(problem.weights))
    tight = least >= -allowed
    return Staircase(found.rotations, found.result, certificate, tuple(floors), tight, scale)


def _best(
    problem: RotationSynchronization, begin: Array, end: Array, **options: Any
) -> Synchronization:
    """The better of the descents from the relaxation's rotations and from the first start."""
    runs = [synchronize(problem, start=R, **options) for R in (end, begin)]
    return min(runs, key=lambda run: run.certificate.value)


def lower_bound(relaxation: Relaxation, X: Array, least: float) -> float:
    """½ tr Λ, lowered where L − Λ is indefinite: tr(L − Λ)YYᵀ ≥ λ_min·m·d."""
    m, _, d = X.shape
    trace = float(np.trace(relaxation.multipliers(X), axis1=1, axis2=2).sum())
    return 0.5 * trace + 0.5 * m * d * min(least, 0.0)


def with_one_more_row(relaxation: Relaxation, X: Array, v: Array) -> Array:
    """X with one more row for every matrix, moved along v as far as f falls."""
    m, _, d = X.shape
    before = relaxation(X)[0]
    wide = np.concatenate([X, np.zeros((m, 1, d))], axis=1)
    move = np.zeros_like(wide)
    move[:, -1, :] = v.reshape(m, d) * np.sqrt(m)
    for t in STEPS:
        trial = stiefel.nearest(wide + t * move)
        if relaxation(trial)[0] < before:
            return trial
    return trial


def rounded(X: Array, d: int) -> Array:
    """The rotations nearest to the d leading principal columns of Y."""
    m, p, _ = X.shape
    tall = X.swapaxes(1, 2).reshape(m * d, p)
    U, s, _ = np.linalg.svd(tall, full_matrices=False)
    blocks = (U[:, :d] * s[:d]).reshape(m, d, d)
    if np.sum(np.sign(np.linalg.det(blocks))) < 0:
        blocks[:, :, 0] *= -1
    return stiefel.SpecialOrthogonal().nearest(blocks)
