"""One basis for every degenerate level, whatever basis the eigensolver returned.

Orbitals of one energy are determined up to a rotation among themselves, and which one LAPACK
returns depends on rounding errors.  A start that picks single orbitals, or moves them by random
coefficients, would differ from run to run; here a fixed operator decides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg

from stiefel.types import Array

SAME_LEVEL = 1e-5  # Ha between neighbours; symmetry alone leaves about 1e-10
PROBES = (  # (weight, Bohr from the middle of the atoms); on no likely symmetry element
    (1.0, (2.3, 1.1, 1.7)),
    (0.05, (-1.3, 2.1, 0.6)),
)
SECOND_SPIN = 0.5  # the weight of the second component of two-component orbitals
LARGE_COEFFICIENT = 0.7  # of the largest; symmetry makes several equal, and 1, 1/√2, 1/2 common


def probe(mol: Any, S: Array) -> Array:
    """The matrix of 1/|r − p| + 0.05/|r − q|, for points that no likely symmetry leaves in place.

    About any axis all multipoles of the first have the same phase and sign, so that it orders the
    partners of alike levels alike: if it is larger for πₓ than for π_y, then for πₓ* too.  The
    second, weak enough to leave that so, splits what is symmetric about the line to p, as the
    levels of an atom are.  A model without basis functions gets falling weights of its sites.
    """
    n, nao = np.shape(S)[-1], mol.nao  # S: one matrix, or one for each k-point
    if not nao or n not in (nao, 2 * nao):
        return S @ np.diag(1.0 / np.arange(1, n + 1)) @ S
    A = sum(weight * _inverse_distance(mol, point) for weight, point in PROBES)
    return A if n == nao else scipy.linalg.block_diag(A, SECOND_SPIN * A)


def _inverse_distance(mol: Any, point: tuple[float, float, float]) -> Array:
    with mol.with_rinv_origin(mol.atom_coords().mean(axis=0) + point):
        return mol.intor("int1e_rinv")


def canonical(C: Array, energies: Array, A: Array) -> Array:
    """C by rising energy; each level in the eigenvectors of A, smallest first; phases fixed.

    The span of each level stays, and a single orbital changes its phase at most.  O(n²k).
    """
    if not C.shape[1]:
        return C
    order = np.argsort(energies, kind="stable")
    C, energies = C[:, order], np.asarray(energies)[order]
    levels = np.split(np.arange(len(order)), np.flatnonzero(np.diff(energies) > SAME_LEVEL) + 1)
    return np.hstack([_in_phase(_diagonal(C[:, level], A)) for level in levels])


def canonical_levels(energies: Any, orbitals: Any, A: Array) -> tuple[Any, Any]:
    """What PySCF's ``eig`` returned, nested as it is, `canonical`: largest values of A first.

    Before occupations are chosen, so that those of a partly filled level are the same in every run.
    """
    if np.ndim(energies[0]) == 0:
        return np.sort(energies), canonical(orbitals, energies, -A)
    parts = [canonical_levels(e, c, A) for e, c in zip(energies, orbitals, strict=True)]
    new_energies, new_orbitals = map(list, zip(*parts, strict=True))
    if isinstance(energies, np.ndarray):
        return np.stack(new_energies), np.stack(new_orbitals)
    return new_energies, new_orbitals


def _diagonal(C: Array, A: Array) -> Array:
    if C.shape[1] == 1:
        return C
    return C @ np.linalg.eigh(C.conj().T @ A @ C)[1]


def _in_phase(C: Array) -> Array:
    """Each column's first large coefficient made positive."""
    size = np.abs(C)
    first = np.argmax(size >= LARGE_COEFFICIENT * size.max(axis=0), axis=0)[None]
    pivot = np.take_along_axis(C, first, axis=0)
    large = np.abs(pivot)  # zero for the empty columns that PySCF has for removed functions
    return C * np.where(large > 0, pivot.conj() / np.where(large > 0, large, 1.0), 1.0)
