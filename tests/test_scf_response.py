"""Second derivatives from PySCF's response: products, minima of free energies, Newton's finish."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("pyscf", reason="PySCF is not installed")

from pyscf import dft, gto, scf
from pyscf.pbc import gto as pbc_gto
from pyscf.pbc import scf as pbc_scf

import stiefel
from stiefel.applications.scf import Smearing, descent, minimize
from stiefel.applications.scf.start import start


def molecule(atoms, basis="6-31g", **options):
    return gto.M(atom=atoms, basis=basis, verbose=0, **options)


def kohn_sham(kind, mol, xc):
    mf = kind(mol, xc=xc)
    mf.grids.level = 0
    return mf


def chain():
    cell = pbc_gto.M(
        a=np.diag([5.0, 5.0, 4.0]),
        atom="H 0 0 0; H 0.2 0.1 1.6",
        basis="gth-szv",
        pseudo="gth-pade",
        mesh=[9] * 3,
        unit="B",
        verbose=0,
    )
    return pbc_scf.KRHF(cell, cell.make_kpts([1, 1, 3]))


KINDS = {
    "RHF": lambda: scf.RHF(molecule("O 0 0 0; H 0 0.75 0.6; H 0 -0.75 0.6")),
    "UKS": lambda: kohn_sham(dft.UKS, molecule("O 0 0 0; O 0 0 1.2", spin=2), "b3lyp"),
    "GHF": lambda: scf.GHF(molecule("Li 0 0 0", spin=1)),
    "k-points": chain,
    "symmetry": lambda: scf.RHF(molecule("N 0 0 0; N 0 0 1.1", symmetry=True)),
}


def differences(energy, Y, V, h):
    ahead = energy(tuple(y + h * v for y, v in zip(Y, V, strict=True)))[1]
    behind = energy(tuple(y - h * v for y, v in zip(Y, V, strict=True)))[1]
    return [(a - b) / (2 * h) for a, b in zip(ahead, behind, strict=True)]


@pytest.mark.parametrize("name", KINDS)
def test_products_are_differences_of_gradients(name):
    begin = start(KINDS[name](), diis=3, confined=name == "symmetry")
    rng = np.random.default_rng(0)
    V = tuple(0.1 * rng.standard_normal(y.shape).astype(y.dtype) for y in begin.occupied)
    product = begin.energy.hessian_product(begin.occupied, V)
    expected = differences(begin.energy, begin.occupied, V, 1e-4)
    for mine, other in zip(product, expected, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-6 * np.abs(other).max())


def test_products_of_a_free_energy_where_it_is_stationary():
    mol = molecule("N 0 0 0", "sto-3g", spin=3)
    mf = minimize(scf.UHF(mol), smearing=Smearing(0.05), gtol=1e-8)
    energy = start(scf.UHF(mol), dm0=mf.make_rdm1(), smearing=Smearing(0.05)).energy
    H = mf.minimization.result.x
    rng = np.random.default_rng(0)
    V = tuple(0.01 * (r + r.T) for r in (rng.standard_normal(h.shape) for h in H))
    product, expected = energy.hessian_product(H, V), differences(energy, H, V, 1e-3)
    for mine, other in zip(product, expected, strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-4 * np.abs(other).max())


def test_a_saddle_of_the_free_energy_is_left():
    """Spins that start equal, and may exchange electrons, stay equal: Fe and Cr end so, too."""
    mol = molecule("N 0 0 0", spin=3)
    guess = scf.UHF(mol).get_init_guess()
    equal = np.stack([0.5 * (guess[0] + guess[1])] * 2)
    saddle = minimize(scf.UHF(mol), dm0=equal, smearing=Smearing(0.01), check=False)
    mf = minimize(scf.UHF(mol), dm0=equal, smearing=Smearing(0.01))
    assert mf.converged
    assert mf.minimization.stable is True
    assert "not a minimum" in [stage.verdict for stage in mf.minimization.path]
    assert mf.minimization.energy < saddle.minimization.energy - 0.05
    assert abs(mf.mo_occ[0].sum() - mf.mo_occ[1].sum()) == pytest.approx(3, abs=0.01)


def test_a_stalled_descent_goes_on_with_newton(monkeypatch):
    """Stopped by hand after four iterations, as if energies had drowned in rounding errors."""
    monkeypatch.setattr(descent, "STALLED", (stiefel.Status.STOPPED_BY_CALLBACK,))
    seen = []

    def stop(snapshot):
        seen.append(snapshot.gradient_norm)
        return len(seen) == 4

    mf = minimize(KINDS["RHF"](), diis=0, check=False, gtol=1e-9, callback=stop)
    assert mf.converged
    assert mf.minimization.result.gradient_norm <= 1e-9
    assert 0 < mf.minimization.products <= 60
    assert mf.minimization.fock_builds <= 20
