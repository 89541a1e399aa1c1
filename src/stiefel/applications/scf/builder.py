"""PySCF's Fock matrices, and its own orthonormal basis."""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import numpy as np

from stiefel.types import Array

from .layout import at_place

NEVER_REMOVED = 1e-5  # eigenvalues of the overlap that no setting of PySCF calls dependent


class Build(NamedTuple):
    """What one Fock build gives."""

    energy: float
    matrices: Any  # the Fock matrices, in PySCF's form
    density: Any
    potential: Any


class FockBuilder:
    """PySCF's energies and Fock matrices, counted.

    The energy is the object's own ``energy_tot``: dispersion, solvents, point charges, and
    whatever else an extension of PySCF adds, are in it.
    """

    def __init__(self, mf: Any) -> None:
        self.mf, self.builds = mf, 0
        self.core, self.overlap = mf.get_hcore(), mf.get_ovlp()

    @property
    def electrons(self) -> int:
        return int(self.mf.mol.nelectron)

    def __call__(self, density: Any) -> Build:
        """Energy and Fock matrices of density matrices in PySCF's form: one build gives both."""
        self.builds += 1
        return self.of(density, self.mf.get_veff(self.mf.mol, density))

    def of(self, density: Any, potential: Any) -> Build:
        """The same where the potential is known: no build."""
        mf = self.mf
        E = float(np.real(mf.energy_tot(density, self.core, potential)))
        F = mf.get_fock(self.core, self.overlap, potential, density)  # bare: no DIIS, no shift
        return Build(E, F, density, potential)

    def diagonalise(self, F: Any) -> tuple[Any, Any]:
        """(energies, orbitals) of Fock matrices, in the functions that PySCF itself keeps."""
        mf = self.mf
        if "x" not in inspect.signature(mf.eig).parameters:  # older versions remove nothing
            return mf.eig(F, self.overlap)
        return mf.eig(F, self.overlap, x=mf.check_linear_dependency(self.overlap, 0))

    def is_basis(self, mo_coeff: Any, places: Any) -> bool:
        """Whether these orbitals are S-orthonormal, and as many as PySCF keeps."""
        return all(self._complete(at_place(mo_coeff, p), p[1]) for p in places)

    def _complete(self, C: Array, kpoint: int | None) -> bool:
        S = at_place(self.overlap, (None, kpoint))
        if C.ndim != 2 or len(C) != len(S):
            return False
        C = C[:, np.linalg.norm(C, axis=0) > 0]
        certain = int(np.sum(np.linalg.eigvalsh(S) > NEVER_REMOVED))
        enough = C.shape[1] >= certain
        return enough and bool(np.allclose(C.conj().T @ S @ C, np.eye(C.shape[1]), atol=1e-6))
