"""⟨u_mk|u_n,k+b⟩ between neighbouring k-points: all that the spread needs to know of the bands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg

from stiefel.types import Array

from .mesh import Mesh, uniform_mesh

ON_MESH = 1e-6  # in fractions of a reciprocal vector


@dataclass(frozen=True, eq=False)
class Overlaps:
    """Overlaps of bands on a mesh, with local functions to start from."""

    matrices: Array  # (B, N, n, n): ⟨u_mk|u_n,k+b⟩
    mesh: Mesh
    trials: Array  # (N, n, p): ⟨ψ_mk|χ_pk⟩ with p ≥ n local orthonormal functions
    orbitals: Array | None = None  # (N, nao, n): the bands in a basis
    kpoints: Array | None = None  # (N, d), in the order of the mesh
    order: Array | None = None  # position in the mesh of every k-point as it was given

    def start(self) -> Array:
        """Unitary matrices nearest to the projections on n of the trial functions.

        A pivoted QR chooses those that the bands hold best at all k-points, and that differ most
        (after Damle, Lin, Ying 2017); no random numbers decide.
        """
        n, p = self.trials.shape[1:]
        pivots = scipy.linalg.qr(self.trials.reshape(-1, p), mode="r", pivoting=True)[1][:n]
        U, _, V = np.linalg.svd(self.trials[:, :, pivots])
        return U @ V


def model_overlaps(vectors: Array, mesh: Mesh, positions: Array | None = None) -> Overlaps:
    """Of a tight-binding model with orthonormal orbitals at the given positions in the cell.

    Parameters
    ----------
    vectors
        (N, orbitals, n): eigenvectors at the k-points of the mesh, as coefficients of
        Σ_R exp(ik·R)|R, orbital⟩.
    mesh
        From `uniform_mesh`.
    positions
        (orbitals, d), in the unit in which the lattice vectors are; all 0 by default.
    """
    C = np.asarray(vectors, dtype=complex)
    N, p, _ = C.shape
    if mesh.size != N:
        raise ValueError(f"vectors at {N} k-points; the mesh has {mesh.size}")
    tau = np.zeros((p, len(mesh.shape))) if positions is None else np.reshape(positions, (p, -1))
    turn = np.exp(-1j * (mesh.vectors @ tau.T))  # (B, p)
    ahead = turn[:, None, :, None] * C[mesh.neighbours]
    return Overlaps(C.conj().swapaxes(1, 2) @ ahead, mesh, C.conj().swapaxes(1, 2), C)


def band_overlaps(mf: Any, bands: Sequence[int] | None = None, spin: int | None = None) -> Overlaps:
    """Of a converged PySCF object with a uniform mesh of k-points.

    Parameters
    ----------
    mf
        A k-point object (KRHF, KRKS, KUHF, KUKS, …).
    bands
        Which bands, the same at all k-points; by default those that are occupied.  They must be
        separated from the others by a gap at every k-point.
    spin
        0 or 1 for objects with two spins.
    """
    C, filling = _one_spin(mf, spin)
    cell, kpts = mf.cell, np.asarray(mf.kpts)
    shape, order = mesh_of(cell, kpts)
    mesh = uniform_mesh(shape, cell.reciprocal_vectors())
    at = np.argsort(order)  # the given index of every point of the mesh
    chosen = _bands(filling, bands)
    C = np.stack([np.asarray(C[k])[:, chosen[k]] for k in at]).astype(complex)
    S = np.stack([np.asarray(mf.get_ovlp()[k]) for k in at])
    M = np.stack([_products(cell, b, kpts[at][n]) for b, n in zip(mesh.vectors, mesh.neighbours)])
    M = C.conj().swapaxes(1, 2) @ M @ C[mesh.neighbours]
    trials = C.conj().swapaxes(1, 2) @ _roots(S)
    return Overlaps(M, mesh, trials, C, kpts[at], order)


def mesh_of(cell: Any, kpts: Array) -> tuple[tuple[int, ...], Array]:
    """(N_1, N_2, N_3) and the place of every k-point in that mesh; ``ValueError`` without one."""
    scaled = np.asarray(cell.get_scaled_kpts(kpts))
    apart = (scaled - scaled[0] + ON_MESH) % 1.0 - ON_MESH
    shape = tuple(len(np.unique(np.round(apart[:, i], 6))) for i in range(3))
    places = np.rint(apart * shape)
    on_mesh = np.abs(apart * shape - places).max() < ON_MESH * max(shape)
    order = np.ravel_multi_index(tuple(places.astype(int).T % np.reshape(shape, (3, 1))), shape)
    if not on_mesh or len(set(order.tolist())) != len(kpts) or np.prod(shape) != len(kpts):
        raise ValueError(
            f"{len(kpts)} k-points that are no uniform mesh: make them with cell.make_kpts(mesh)"
        )
    return shape, order


def _one_spin(mf: Any, spin: int | None) -> tuple[Any, Any]:
    if not hasattr(mf, "kpts") or mf.mo_coeff is None:
        raise TypeError(
            f"{type(mf).__name__} has no bands: pass a k-point object (KRHF, KRKS, …) that has run"
        )
    if not {c.__name__ for c in type(mf).__mro__} & {"KUHF"}:
        return mf.mo_coeff, mf.mo_occ
    if spin not in (0, 1):
        raise ValueError(f"spin is {spin!r}; expected 0 or 1 for {type(mf).__name__}")
    return mf.mo_coeff[spin], mf.mo_occ[spin]


def _bands(filling: Any, bands: Sequence[int] | None) -> list[Array]:
    if bands is not None:
        return [np.asarray(bands)] * len(filling)
    occupied = [np.flatnonzero(np.asarray(f) > 0) for f in filling]
    full = max(float(np.max(f)) for f in filling)
    partly = any(np.any((np.asarray(f) > 1e-6) & (np.asarray(f) < full - 1e-6)) for f in filling)
    if partly or len({len(o) for o in occupied}) > 1:
        raise ValueError("the k-points do not hold the same number of full bands: pass bands=")
    return occupied


def _products(cell: Any, b: Array, kptjs: Array) -> Array:
    """∫ φ̄_k exp(−ib·r) φ_{k+b} of the basis functions, for every k + b, (N, nao, nao)."""
    from pyscf.pbc.df.ft_ao import ft_aopair_kpts

    return ft_aopair_kpts(cell, np.zeros((1, 3)), q=b, kptjs=kptjs)[:, 0]


def _roots(S: Array) -> Array:
    """S^{1/2} of every matrix: the overlaps with Löwdin's orthonormal functions."""
    values, vectors = np.linalg.eigh(S)
    roots = np.sqrt(np.maximum(values, 0.0))[:, None, :]
    return (vectors * roots) @ vectors.conj().swapaxes(1, 2)
