"""Dissociation curves and fractional occupations with PySCF

`direct` makes an SCF object whose `kernel` minimises. This recipe uses it for a scanner along a
dissociation curve, for several starts, and for smeared occupations. PySCF's own UHF (DIIS) ends on
the closed-shell saddle when the bond is stretched; the picture has both curves. Needs the extra
`[chem]`: `pip install ".[chem]"`.
"""

import matplotlib.pyplot as plt
from pyscf import dft, gto, scf

from stiefel.applications.scf import direct, minimize

mol = gto.M(atom="H 0 0 0; H 0 0 0.74", basis="6-31g", verbose=0)
scanner = direct(scf.UHF(mol)).as_scanner()
distances, energies, pyscf_energies = (0.74, 1.0, 1.25, 1.5, 2.0, 3.0), [], []
for distance in distances:
    energy = scanner(f"H 0 0 0; H 0 0 {distance}")
    run = scanner.minimization
    print(f"{distance:4.2f} Å: {energy:.8f} Ha, a minimum: {run.stable}, {len(run.path)} stage(s)")
    assert run.stable
    energies.append(energy)
    alone = gto.M(atom=f"H 0 0 0; H 0 0 {distance}", basis="6-31g", verbose=0)
    pyscf_energies.append(scf.UHF(alone).run().e_tot)  # DIIS from PySCF's own start

atoms = 2 * scf.UHF(gto.M(atom="H", basis="6-31g", spin=1, verbose=0)).run().e_tot
assert abs(energy - atoms) < 1e-3  # two atoms: the spins are on different ones

# Several starts, and a table of where they ended.
oxide = gto.M(atom="O 0 0 0; O 0 0 1.2", basis="sto-3g", spin=2, verbose=0)
mf = minimize(scf.UHF(oxide), starts=2)
print(mf.minimization.table())

# Fractional occupations: the free energy, with orbitals and occupations together.
atom = dft.UKS(gto.M(atom="Ti", basis="sto-3g", spin=2, verbose=0), xc="pbe")
atom.grids.level = 0
smeared = minimize(atom.smearing(0.02, fix_spin=True))
print(f"Ti: free energy {smeared.e_free:.8f} Ha, {smeared.minimization.fock_builds} Fock builds")
assert smeared.converged

plt.plot(distances, pyscf_energies, "s--", label="PySCF's UHF, DIIS from its own start")
plt.plot(distances, energies, "o-", label="direct minimisation")
plt.axhline(atoms, color="grey", linewidth=0.8, label="two atoms")
plt.xlabel("distance (Å)")
plt.ylabel("energy (Ha)")
plt.legend()
