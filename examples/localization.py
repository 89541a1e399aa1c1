"""Localised orbitals of water

Foster–Boys orbitals: two bonds, two lone pairs and a core. PySCF's own `lo.Boys` maximises the
same function. Needs the extra `[chem]`.
"""

import numpy as np
from pyscf import gto, scf

from stiefel.applications.localization import localize

atoms = "O 0 0 0.1173; H 0 0.7572 -0.4692; H 0 -0.7572 -0.4692"
mol = gto.M(atom=atoms, basis="cc-pvdz", verbose=0)
mf = scf.RHF(mol).run()
found = localize(mol, mf.mo_coeff[:, mf.mo_occ > 0], "boys")
centres = np.einsum("ai,xab,bi->ix", found.orbitals, mol.intor("int1e_r"), found.orbitals)
print(f"value {found.value:.7f} in {found.result.nfev} evaluations; centres (Bohr):")
print(np.array2string(centres, precision=3, suppress_small=True))
assert abs(found.value - -2.6004686) < 1e-6
