"""Rotations from noisy measurements R_ij ≈ R_i R_jᵀ of their ratios, with a certificate.

    min ½ Σ w_ij ‖R_i − R_ij R_j‖²_F = ½ tr RᵀLR      over a stack R of rotations

with the connection Laplacian L.  Its relaxation has the dual slack matrix L − Λ, with Λ the
symmetric d×d blocks (LR)_i R_iᵀ on the diagonal.  Where it is positive semidefinite, R is a global
minimum: ½ tr ZᵀLZ ≥ ½ tr Λ for every stack Z of orthogonal matrices.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
import scipy.sparse.linalg

import stiefel
from stiefel.objectives import RotationSynchronization
from stiefel.types import Array

from .certificate import DENSE_ROWS, Certificate, smallest_eigenvalue

EDGES_PER_NODE = 5  # above, distances are short and factors dense: a test's graph of 26 has none
SHIFT = 1e-4  # of the mean diagonal of L: a test's ring takes 19 evaluations, with 1e-2 85


@dataclass(frozen=True, eq=False)
class Synchronization:
    """The rotations found, and what is known about them."""

    rotations: Array  # (m, d, d); determined up to one common rotation from the right
    result: stiefel.Result
    certificate: Certificate


def synchronize(
    problem: RotationSynchronization,
    *,
    start: Array | None = None,
    rtol: float = 1e-10,
    method: Any = "lbfgs",
    precond: bool | None = None,
    progress: bool = False,
) -> Synchronization:
    """Minimise, and certify.

    ``start`` is a stack of rotations; by default the spectral one.  All rotations are one stack of
    shape (m, d, d): a step costs a few batched products, whatever m is.  L-BFGS, since one
    evaluation is enough for most steps, with `inverse_laplacian` where ``precond`` is True; by
    default up to m·d = 2500 and five measurements for each rotation.  Chains and maps need it;
    graphs whose nodes are all near each other do not, and have dense factors.
    """
    start = spectral_start(problem) if start is None else start
    solve = inverse_laplacian(problem, precond)
    result = stiefel.minimize(
        problem,
        start,
        manifold=stiefel.SpecialOrthogonal(),
        method=method,
        rtol=rtol,
        precond=None if solve is None else _on_stack(solve),
        # The spectral start is the answer itself for exact measurements: nothing is left to fall.
        gtol=1e-12 * float(np.sum(problem.weights)),
        progress=progress,
    )
    return Synchronization(result.x, result, certify(problem, result.x))


def inverse_laplacian(
    problem: RotationSynchronization, wanted: bool | None
) -> Callable[[Array], Array] | None:
    """T ↦ (L + σ)⁻¹T for tall T, by a sparse factorisation; None where it is not wanted.

    L is the Hessian, but for the multipliers.
    """
    L = problem.laplacian
    few = len(np.asarray(problem.edges)) <= EDGES_PER_NODE * problem.m
    small = few and L.shape[0] <= DENSE_ROWS and L.dtype.kind == "f"
    diagonal = float(np.real(L.diagonal()).mean())
    if not (small if wanted is None else wanted) or not diagonal:
        return None
    shifted = (L + SHIFT * diagonal * scipy.sparse.eye_array(L.shape[0])).tocsc()
    factors = scipy.sparse.linalg.splu(
        shifted, "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
    )
    return lambda tall: np.asarray(factors.solve(np.ascontiguousarray(tall)))


def _on_stack(solve: Callable[[Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda _, G: solve(G.reshape(-1, G.shape[-1])).reshape(G.shape)


def spectral_start(problem: RotationSynchronization, seed: int = 0) -> Array:
    """The rotations nearest to the blocks of the d lowest eigenvectors of L."""
    m, d = problem.m, problem.measurements.shape[1]
    guess = np.random.default_rng(seed).standard_normal((m * d, d))
    # A block method: without noise the eigenvalue is d-fold, and one vector would find one copy.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it is a start: it need not converge
        vectors = scipy.sparse.linalg.lobpcg(
            problem.laplacian, guess, largest=False, tol=1e-3, maxiter=30
        )[1]
    blocks = vectors.reshape(m, d, d)
    # Eigenvectors come with any sign: choose the one for which most blocks are rotations.
    if np.sum(np.sign(np.linalg.det(blocks))) < 0:
        blocks[:, :, 0] *= -1
    return stiefel.SpecialOrthogonal().nearest(blocks)


def certify(problem: RotationSynchronization, R: Array) -> Certificate:
    """The dual bound at R: ½ tr Λ, lowered by ½ m d·|λ_min| where the slack is indefinite."""
    m, d = problem.m, problem.measurements.shape[1]
    LR = problem.value_and_gradient(R)[1]
    blocks = LR @ R.swapaxes(1, 2)
    blocks = 0.5 * (blocks + blocks.swapaxes(1, 2))
    L = problem.laplacian
    index = np.arange(m)
    Lambda = scipy.sparse.bsr_array((blocks, index, np.arange(m + 1)), shape=L.shape)
    least = smallest_eigenvalue((L - Lambda).tocsr())
    bound = 0.5 * float(np.trace(blocks, axis1=1, axis2=2).sum()) + 0.5 * m * d * min(least, 0.0)
    return Certificate(problem.value(R), bound, least)


def alignment(R: Array, Q: Array) -> Array:
    """R turned by the one common rotation from the right that brings it nearest to Q."""
    common = np.einsum("mij,mik->jk", R, Q)
    return R @ stiefel.SpecialOrthogonal().nearest(common)
