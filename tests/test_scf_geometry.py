"""Geometries through `direct`: forces of PySCF, SciPy's BFGS, and a minimum at every point."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

pytest.importorskip("pyscf", reason="PySCF is not installed")

from pyscf import gto, scf

from stiefel.applications.scf import direct

SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("atoms", "options", "distance"),
    [
        ("O 0 0 0; H 0 0 1.1", {"spin": 1}, 1.9161),
        ("C 0 0 0.1; H 0 1.08 0; H 0.935 -0.54 0; H -0.935 -0.54 0", {"spin": 1}, 2.0406),
        ("Ti 0 0 0; O 0 0 1.7", {"spin": 2}, 3.0364),
        pytest.param(
            "Cr 0 0 0; O 0 0 2.1; H 0 0.78 2.7; H 0 -0.78 2.7",
            {"spin": 5, "charge": 1},
            3.7789,
            marks=SLOW,
        ),
        pytest.param("Ni 0 0 0; C 0 0 1.75; O 0 0 2.92", {}, 3.3636, marks=SLOW),
    ],
    ids=["OH", "CH3", "TiO", "Cr(H2O)+", "NiCO"],
)
def test_every_point_on_the_way_is_a_minimum(atoms, options, distance):
    """Two radicals, and metals with their ligands; DIIS ends on a saddle of NiCO."""
    mol = gto.M(atom=atoms, basis="sto-3g", verbose=0, **options)
    scanner = direct(scf.UHF(mol)).nuc_grad_method().as_scanner()
    minima = []

    def energy_and_forces(x):
        E, gradient = scanner(mol.set_geom_(x.reshape(-1, 3), unit="Bohr", inplace=False))
        minima.append(scanner.base.converged and scanner.base.minimization.stable)
        return E, gradient.ravel()

    start = mol.atom_coords().ravel()
    found = scipy.optimize.minimize(
        energy_and_forces, start, jac=True, method="BFGS", options={"gtol": 1e-4}
    )
    assert found.success
    assert len(minima) > 3
    assert all(minima)
    places = found.x.reshape(-1, 3)
    assert np.linalg.norm(places[1] - places[0]) == pytest.approx(distance, abs=2e-3)
