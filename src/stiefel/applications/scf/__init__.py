"""Hartree–Fock and Kohn–Sham by direct minimisation over orbitals, for PySCF objects.

    mf = pyscf.scf.RHF(mol)                     # or UHF, ROHF, RKS, UKS, …, and k-point versions
    mf = stiefel.applications.scf.minimize(mf)  # the same object, with its results set

    mf = stiefel.applications.scf.direct(mf)    # an SCF object: mf.kernel(), scanners, gradients

The energy is a function of the occupied orbitals C = X Y, where X is the orthonormal basis that
PySCF keeps, and only of their span: the manifold is `stiefel.Grassmann`, one for every spin and
every k-point.  One Fock matrix gives value and gradient.
"""

from .builder import Build, FockBuilder
from .direct import direct
from .energy import Energy, Fock
from .ensemble import FreeEnergy, Smearing
from .layout import Block
from .open_shell import OpenShellEnergy
from .run import Minimum, Options, Outcome, Stage, minimize
from .stability import Verdict
from .start import kicked, mixed, start

__all__ = [
    "Block",
    "Build",
    "Energy",
    "Fock",
    "FockBuilder",
    "FreeEnergy",
    "Minimum",
    "OpenShellEnergy",
    "Options",
    "Outcome",
    "Smearing",
    "Stage",
    "Verdict",
    "direct",
    "kicked",
    "minimize",
    "mixed",
    "start",
]
