"""The molecules whose energies are known, with the most Fock builds that a run may take."""

from __future__ import annotations

import math
from typing import NamedTuple

from pyscf import gto


class Case(NamedTuple):
    atoms: str
    basis: str
    energy: float  # Ha
    builds: int  # at most

    def molecule(self) -> gto.Mole:
        return gto.M(atom=self.atoms, basis=self.basis, verbose=0)


def _benzene() -> str:
    atoms = []
    for i in range(6):
        x, y = math.cos(i * math.pi / 3), math.sin(i * math.pi / 3)
        atoms += [f"C {1.3915 * x} {1.3915 * y} 0", f"H {2.4715 * x} {2.4715 * y} 0"]
    return "; ".join(atoms)


WATER = Case("O 0 0 0.1173; H 0 0.7572 -0.4692; H 0 -0.7572 -0.4692", "cc-pvdz", -76.0267720534, 30)
BENZENE = Case(_benzene(), "6-31g*", -230.702233126, 25)

# Restricted, from a start kicked by 10 %: DIIS ends higher for some of them.
KICKED = {
    "N2": Case("N 0 0 0; N 0 0 2.2", "cc-pvdz", -108.42455060, 150),
    "C2": Case("C 0 0 0; C 0 0 1.25", "cc-pvdz", -75.41959712, 350),
    "TiO": Case("Ti 0 0 0; O 0 0 1.62", "def2-svp", -923.00214325, 400),
    "Cr2": Case("Cr 0 0 0; Cr 0 0 1.68", "def2-svp", -2085.83928867, 420),
}
KICK = 0.1
SEEDS = (0, 1, 2)

# Unrestricted, the highest occupied α orbital turned by 0.6 into the lowest virtual one.
MIXED_N2 = Case("N 0 0 0; N 0 0 2.2", "cc-pvdz", -108.774536700, 75)
MIX = 0.6
