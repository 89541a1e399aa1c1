"""Hartree–Fock with PySCF: a minimum where DIIS stops on a saddle

The molecule is stretched N2 in a restricted calculation. DIIS converges to a stationary point that
is a saddle, and says that it converged. `stiefel.applications.scf.minimize` takes the same PySCF
object, minimises, and lets PySCF's stability analysis confirm the minimum. Needs the extra
`[chem]`: `pip install ".[chem]"`.
"""

import matplotlib.pyplot as plt
import numpy as np
from pyscf import gto, scf

from stiefel.applications.scf import minimize

mol = gto.M(atom="N 0 0 0; N 0 0 2.2", basis="cc-pvdz", verbose=0)

diis = scf.RHF(mol).run()
print(f"DIIS:    {diis.e_tot:.8f} Ha, stable: {diis.stability(return_status=True)[2]}")

# The guess has the molecule's symmetry, which descent would keep: a kick breaks it.
mf = minimize(scf.RHF(mol), kick=0.1, seed=0)
run = mf.minimization
print(f"descent: {mf.e_tot:.8f} Ha, stable: {run.stable}, {run.fock_builds} Fock builds")

assert mf.e_tot < diis.e_tot - 0.1
assert abs(mf.e_tot - -108.42455060) < 1e-7

distances = np.linspace(1.0, 2.4, 6)
curves = {"DIIS": [], "minimize": []}
for r in distances:
    small = gto.M(atom=f"N 0 0 0; N 0 0 {r}", basis="sto-3g", verbose=0)
    curves["DIIS"].append(scf.RHF(small).run().e_tot)
    curves["minimize"].append(minimize(scf.RHF(small), kick=0.1, seed=0).e_tot)
fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
for (name, energies), style in zip(curves.items(), ("x--", "o-")):
    ax.plot(distances, energies, style, label=name)
ax.set(xlabel="distance (Å)", ylabel="energy (Ha)", title="restricted N2, STO-3G")
ax.legend()
