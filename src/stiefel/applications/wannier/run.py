"""From overlaps, or a PySCF object, to maximally localised Wannier functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import stiefel
from stiefel.types import Array

from .mesh import Mesh
from .overlaps import Overlaps, band_overlaps
from .spread import MeanPhases, Spread

FIRST_STAGE = 1e-2  # the tolerance at which the mean phases have done their part


@dataclass(frozen=True, eq=False)
class Wannier:
    """Wannier functions of a group of bands; lengths are those of the mesh (Bohr from PySCF)."""

    rotation: Array  # (N, n, n): U_k, in the order in which the k-points were given
    centers: Array  # (n, d)
    spreads: Array  # (n,): ⟨r²⟩ − ⟨r⟩² of every function
    invariant: float  # Ω_I: no gauge can be below it
    off_diagonal: float  # Ω_OD
    diagonal: float  # Ω_D
    mesh: Mesh
    orbitals: Array | None  # (N, nao, n): bands in the new gauge, Σ over bands of C_k U_k
    kpoints: Array | None
    result: stiefel.Result
    evaluations: int  # of both stages

    @property
    def spread(self) -> float:
        """Ω, the sum over the functions; what is minimised."""
        return float(self.spreads.sum())

    def functions(self) -> tuple[Array, Array]:
        """(R, w): lattice vectors (N, d), and w (N, nao, n), the coefficients in these cells.

        |w_n⟩ = Σ_R Σ_μ w[R, μ, n] |R, μ⟩, the function of the home cell.
        """
        if self.orbitals is None:
            raise ValueError("these overlaps came without orbitals")
        k = self.kpoints if self.kpoints is not None else _points(self.mesh)
        phases = np.exp(1j * (self.mesh.cells @ k.T)) / self.mesh.size
        return self.mesh.cells, np.einsum("Rk,kpn->Rpn", phases, self.orbitals)


def wannierize(
    bands: Any,
    *,
    choose: Sequence[int] | None = None,
    spin: int | None = None,
    start: Array | int | None = None,
    rtol: float = 1e-8,
    maxfun: int = 10_000,
    method: Any = "lbfgs",
    precond: bool = True,
    progress: bool = False,
) -> Wannier:
    """Minimise the spread of the Wannier functions of a group of bands.

    Parameters
    ----------
    bands
        A converged PySCF object with a uniform mesh of k-points, or `Overlaps`.
    choose, spin
        Which bands of the object, by default the occupied ones, and which of its spins.
    start
        Unitary matrices (N, n, n), a seed of random ones, or None for projections on local
        functions, which a pivoted QR chooses.
    rtol
        Converged when ‖∇Ω‖ ≤ rtol·Ω/√N, with N k-points.
    maxfun, method, progress
        As for `stiefel.minimize`.
    precond
        Whether steps are divided by the squared distances between the functions that they mix.

    Returns
    -------
    Wannier

    Examples
    --------
    >>> k = 2 * np.pi * np.arange(8) / 8
    >>> from stiefel.applications.wannier import model_overlaps, uniform_mesh
    >>> phase = (1 + 0.5 * np.exp(1j * k)) / np.abs(1 + 0.5 * np.exp(1j * k))
    >>> vectors = np.stack([np.ones_like(phase), -phase], axis=1)[:, :, None] / np.sqrt(2)
    >>> found = wannierize(model_overlaps(vectors, uniform_mesh((8,), 2 * np.pi)))
    >>> bool(np.isclose(found.spread, found.invariant))  # one band of a chain
    True
    """
    given = bands if isinstance(bands, Overlaps) else band_overlaps(bands, choose, spin)
    M, mesh = given.matrices, given.mesh
    U = _first(given, start)
    run = _Runs(mesh.size, maxfun, precond, {"method": method, "progress": progress})
    U = run(MeanPhases(M, mesh), U, FIRST_STAGE).x
    spread = Spread(M, mesh, np.zeros((M.shape[-1], len(mesh.shape)))).about(U)
    return _wannier(given, spread, run(spread, U, rtol), run.evaluations)


class _Runs:
    """Descents with one budget of evaluations, to a gradient that is small beside the spread."""

    def __init__(self, points: int, most: int, precond: bool, options: dict[str, Any]) -> None:
        self.points, self.left, self.precond, self.options = points, most, precond, options
        self.evaluations = 0

    def __call__(self, objective: Spread | MeanPhases, U: Array, tolerance: float) -> Any:
        scale = objective(U)[0] / np.sqrt(self.points)  # every k-point has its share
        result = stiefel.minimize(
            objective,
            U,
            manifold=stiefel.Unitary(),
            precond=objective.precond if self.precond else None,
            rtol=0.0,
            gtol=tolerance * abs(scale) or 1e-300,
            maxfun=max(self.left - self.evaluations, 1),
            **self.options,
        )
        self.evaluations += result.nfev
        return result


def _first(given: Overlaps, start: Array | int | None) -> Array:
    N, n = given.matrices.shape[1:3]
    if start is None:
        return given.start()
    if isinstance(start, int):
        return stiefel.Unitary().random(N, n, n, seed=start)
    U = np.asarray(start, dtype=complex)
    return U if given.order is None else U[np.argsort(given.order)]


def _wannier(given: Overlaps, spread: Spread, result: stiefel.Result, evaluations: int) -> Wannier:
    U = result.x
    _, _, state = spread(U)
    invariant, off = spread.invariant(), spread.off_diagonal(U)
    C = None if given.orbitals is None else given.orbitals @ U
    order = np.arange(len(U)) if given.order is None else given.order
    k = None if given.kpoints is None else given.kpoints[order]
    return Wannier(
        U[order],
        state.centers,
        state.spreads,
        invariant,
        off,
        float(state.spreads.sum()) - invariant - off,
        given.mesh,
        None if C is None else C[order],
        k,
        result,
        evaluations,
    )


def _points(mesh: Mesh) -> Array:
    index = np.indices(mesh.shape).reshape(len(mesh.shape), -1).T
    return (index / mesh.shape) @ mesh.reciprocal
