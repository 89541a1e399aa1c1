"""Localised orbitals of water

The Foster–Boys orbitals of water are two bonds, two lone pairs and a core. PySCF's own `lo.Boys`
maximises the same function; from its own start it ends here at a smaller value, a saddle point,
from which its method `stability` would lead on. Needs the extra `[chem]`.
"""

import matplotlib.pyplot as plt
import numpy as np
from pyscf import gto, lo, scf

from stiefel.applications.localization import localize

atoms = "O 0 0 0.1173; H 0 0.7572 -0.4692; H 0 -0.7572 -0.4692"
mol = gto.M(atom=atoms, basis="cc-pvdz", verbose=0)
mf = scf.RHF(mol).run()
found = localize(mol, mf.mo_coeff[:, mf.mo_occ > 0], "boys")
centres = np.einsum("ai,xab,bi->ix", found.orbitals, mol.intor("int1e_r"), found.orbitals)
print(f"value {found.value:.7f} in {found.result.nfev} evaluations; centres (Bohr):")
print(np.array2string(centres, precision=3, suppress_small=True))
assert abs(found.value - -2.6004686) < 1e-6

theirs = lo.Boys(mol, mf.mo_coeff[:, mf.mo_occ > 0])
theirs.verbose = 0
orbitals = theirs.kernel()
squares = np.einsum("ai,xab,bi->ix", orbitals, mol.intor("int1e_r"), orbitals)
print(f"sum of squared centres: PySCF {np.sum(squares**2):.7f}, here {np.sum(centres**2):.7f}")

for symbol, place in zip("OHH", mol.atom_coords()):
    plt.plot(place[1], place[2], "ko", markersize=16, fillstyle="none")
    plt.annotate(symbol, place[1:], ha="center", va="center")
plt.plot(centres[:, 1], centres[:, 2], "C1x", markersize=10, label="centres of the orbitals")
plt.gca().set(aspect="equal", xlabel="y (Bohr)", ylabel="z (Bohr)", title="Water in its plane")
plt.legend()
