"""Hartree–Fock and Kohn–Sham by direct minimisation over orbitals, for PySCF objects.

    mf = pyscf.scf.RHF(mol)                     # or UHF, RKS, UKS, and their k-point versions
    mf = stiefel.applications.scf.minimize(mf)  # the same object, with its results set

The energy is a function of the occupied orbitals under the constraint CᴴSC = I, S the overlap of
the basis functions, and only of their span: the manifold is `stiefel.Grassmann(B=S)`, one for
every spin and every k-point.  One Fock matrix gives value and gradient.
"""

from .energy import Energy, Fock
from .layout import Block
from .run import Outcome, minimize
from .start import kicked, mixed, start

__all__ = ["Block", "Energy", "Fock", "Outcome", "kicked", "minimize", "mixed", "start"]
