"""Stretched N2: where DIIS stops on a saddle, direct minimisation finds the minimum.

Needs the extra ``[chem]``: ``pip install ".[chem]"``.
"""

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
