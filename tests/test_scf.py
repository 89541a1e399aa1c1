"""Energies of PySCF objects by direct minimisation, against PySCF itself."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("pyscf", reason="needs pip install pyscf")

from pyscf import dft, gto, mp, scf
from pyscf.pbc import dft as pbc_dft
from pyscf.pbc import gto as pbc_gto
from pyscf.pbc import scf as pbc_scf

import stiefel
from molecules import BENZENE, KICK, KICKED, MIX, MIXED_N2, SEEDS, WATER
from stiefel.applications.scf import kicked, minimize, mixed, start

SMALL = "O 0 0 0; H 0 0.75 0.6; H 0 -0.75 0.6"


def molecule(atoms=SMALL, basis="sto-3g", **options):
    return gto.M(atom=atoms, basis=basis, verbose=0, **options)


@pytest.fixture(scope="module")
def cell():
    return pbc_gto.M(
        a=np.diag([5.0, 5.0, 4.0]),
        atom="H 0 0 0; H 0.2 0.1 1.6",
        basis="gth-dzv",
        pseudo="gth-pade",
        mesh=[9] * 3,
        unit="B",
        verbose=0,
    )


def kohn_sham(kind, mol, xc="pbe", **options):
    mf = kind(mol, **options)
    mf.xc = xc
    if hasattr(mf, "grids") and hasattr(mf.grids, "level"):
        mf.grids.level = 0
    return mf


def objects(cell):
    """One object of every kind, each made anew at every call."""
    triplet = molecule("O 0 0 0; O 0 0 1.2", spin=2)
    kpts = cell.make_kpts([1, 1, 3])
    return {
        "RHF": lambda: scf.RHF(molecule()),
        "UHF": lambda: scf.UHF(triplet),
        "GHF": lambda: scf.GHF(molecule("Li 0 0 0", spin=1)),
        "density-fitted RHF": lambda: scf.RHF(molecule()).density_fit(),
        "RKS": lambda: kohn_sham(dft.RKS, molecule()),
        "UKS": lambda: kohn_sham(dft.UKS, triplet, "b3lyp"),
        "KRHF": lambda: pbc_scf.KRHF(cell, kpts),
        "KUHF": lambda: pbc_scf.KUHF(cell, kpts),
        "KRKS": lambda: kohn_sham(pbc_dft.KRKS, cell, "lda,vwn", kpts=kpts),
        "one complex k-point": lambda: pbc_scf.RHF(cell, kpt=kpts[1]),
    }


KINDS = (
    "RHF",
    "UHF",
    "GHF",
    "density-fitted RHF",
    "RKS",
    "UKS",
    "KRHF",
    "KUHF",
    "KRKS",
    "one complex k-point",
)


@pytest.mark.parametrize("kind", KINDS)
def test_same_energy_and_levels_as_pyscf(kind, cell):
    make = objects(cell)[kind]
    reference = make()
    reference.conv_tol = 1e-12
    reference.kernel()
    mf = make()
    assert minimize(mf, check=False, gtol=1e-6) is mf
    assert mf.converged
    assert mf.minimization.result.success
    assert mf.e_tot == pytest.approx(reference.e_tot, abs=1e-9)
    np.testing.assert_allclose(np.sort(mf.mo_energy), np.sort(reference.mo_energy), atol=1e-5)
    np.testing.assert_array_equal(np.shape(mf.mo_occ), np.shape(reference.mo_occ))
    np.testing.assert_allclose(mf.make_rdm1(), reference.make_rdm1(), atol=1e-5)


@pytest.mark.parametrize("kind", ["RHF", "UHF", "RKS", "KUHF"])
def test_gradient_matches_differences_of_energies(kind, cell):
    mf = objects(cell)[kind]()
    mf.build()
    energy, C, V, _ = start(mf)
    C = kicked(C, V, 0.3, seed=4)
    check = stiefel.check_gradient(energy, C, manifold=energy.manifold)
    assert check.correct, check


def test_gradient_norm_is_the_one_of_pyscf():
    mf = scf.RHF(molecule())
    energy, C, V, _ = start(mf)
    point = kicked(C, V, 0.1, seed=1)
    _, G, aux = energy(point)
    (manifold,), (block,) = energy.manifold, energy.blocks
    norm = manifold.norm(point[0], manifold.project(point[0], G[0]))
    coefficients = block.X @ np.hstack([point[0], aux.levels[0].virtual])
    occupied = np.where(np.arange(coefficients.shape[1]) < point[0].shape[1], 2, 0)
    theirs = mf.get_grad(coefficients, occupied, aux.build.matrices)  # 2 F_ai; ours is 4 F_ai
    assert norm == pytest.approx(2 * np.linalg.norm(theirs), rel=1e-10)


def test_every_build_is_counted():
    mf = scf.RHF(molecule())
    calls = 0
    original = mf.get_veff

    def counting(*args, **kwargs):
        nonlocal calls
        calls += 1
        return original(*args, **kwargs)

    mf.get_veff = counting
    minimize(mf)
    assert mf.minimization.fock_builds == calls
    diis_and_start = calls - mf.minimization.result.nfev
    assert diis_and_start > 0


def test_preconditioner_is_linear_symmetric_and_positive():
    mf = scf.RHF(molecule())
    energy, C, V, _ = start(mf)
    C = kicked(C, V, 0.2, seed=0)
    aux = energy(C)[2]
    (manifold,) = energy.manifold
    rng = np.random.default_rng(0)
    P, Q = (manifold.project(C[0], rng.standard_normal(C[0].shape)) for _ in range(2))
    HP, HQ = (energy.precond(C, (W,), aux)[0] for W in (P, Q))
    both = energy.precond(C, (P + 2 * Q,), aux)[0]
    np.testing.assert_allclose(both, HP + 2 * HQ, atol=1e-10)
    inner = manifold.inner
    assert inner(C[0], P, HQ) == pytest.approx(inner(C[0], HP, Q), rel=1e-10)
    assert inner(C[0], P, HP) > 0
    np.testing.assert_allclose(C[0].T @ HP, 0, atol=1e-10)


def test_what_pyscf_does_afterwards_works(tmp_path):
    mol = molecule(basis="6-31g")
    reference = scf.RHF(mol).set(conv_tol=1e-12).run()
    mf = minimize(scf.RHF(mol).set(chkfile=str(tmp_path / "chk")), gtol=1e-8)
    assert mp.MP2(mf).kernel()[0] == pytest.approx(mp.MP2(reference).kernel()[0], abs=1e-8)
    forces = [m.nuc_grad_method().kernel() for m in (mf, reference)]
    np.testing.assert_allclose(forces[0], forces[1], atol=1e-6)
    np.testing.assert_allclose(mf.dip_moment(), reference.dip_moment(), atol=1e-5)
    again = scf.RHF(mol)
    again.init_guess = "chkfile"
    again.chkfile = mf.chkfile
    again.kernel()
    assert again.cycles <= 2


def test_orbitals_of_the_object_are_the_start():
    mf = scf.RHF(molecule()).run(conv_tol=1e-12)
    builds = minimize(mf, gtol=1e-4, check=False).minimization.fock_builds
    assert builds == 1


def test_no_electron_of_the_other_spin():
    mf = minimize(scf.UHF(molecule("He 0 0 0", spin=2, basis="6-31g")))
    reference = scf.UHF(mf.mol).run(conv_tol=1e-12)
    assert mf.e_tot == pytest.approx(reference.e_tot, abs=1e-9)
    np.testing.assert_allclose(mf.mo_energy, reference.mo_energy, atol=1e-6)


def test_what_has_no_meaning_is_refused():
    with pytest.raises(ValueError, match="unrestricted"):
        minimize(scf.RHF(molecule()), mix=0.6)
    with pytest.raises(ValueError, match="smearing"):
        minimize(scf.addons.frac_occ(scf.RHF(molecule("C 0 0 0"))))


def test_kick_moves_by_a_fraction_of_the_norm():
    _, C, V, _ = start(scf.RHF(molecule(basis="6-31g")))
    moved = kicked(C, V, 1e-3, seed=0)[0]
    step = moved - C[0]
    assert np.trace(step.T @ step) == pytest.approx(1e-6 * C[0].shape[1], rel=1e-3)
    np.testing.assert_allclose(moved.T @ moved, np.eye(C[0].shape[1]), atol=1e-12)


def test_mix_breaks_the_symmetry_of_the_spins():
    _, C, V, _ = start(scf.UHF(molecule()))
    turned = mixed(C, V, 0.6)
    overlaps = [np.linalg.svd(c.T @ t)[1] for c, t in zip(C, turned)]
    assert overlaps[0].min() == pytest.approx(np.cos(0.6))
    assert overlaps[1].min() == pytest.approx(1.0)


def test_water():
    mf = minimize(scf.RHF(WATER.molecule()), gtol=1e-6)
    assert mf.e_tot == pytest.approx(WATER.energy, abs=1e-9)
    assert mf.minimization.result.gradient_norm <= 1e-6


def test_benzene():
    mf = minimize(scf.RHF(BENZENE.molecule()))
    assert mf.e_tot == pytest.approx(BENZENE.energy, abs=1e-9)


def test_unrestricted_nitrogen():
    mf = minimize(scf.UHF(MIXED_N2.molecule()), mix=MIX)
    assert mf.e_tot == pytest.approx(MIXED_N2.energy, abs=1e-8)
    assert mf.minimization.stable


def test_unrestricted_nitrogen_where_diis_ends_too_high():
    """From π mixed with a π* that is out of line with it by half a radian."""
    mf = scf.UHF(MIXED_N2.molecule())
    energy, C, (V, _), _ = start(mf)
    V[:, 0] = np.cos(0.5) * V[:, 0] + np.sin(0.5) * V[:, 1]
    C = mixed(C, (V, V), MIX)
    mf.kernel(energy.density(C))
    assert mf.converged
    assert mf.e_tot - MIXED_N2.energy == pytest.approx(0.256, abs=1e-3)
    assert not mf.stability(return_status=True)[2]
    found = stiefel.minimize(
        energy, C, manifold=energy.manifold, method="lbfgs", precond=energy.precond, gtol=1e-6
    )
    assert found.fun == pytest.approx(MIXED_N2.energy, abs=1e-8)


def check_kicked(name, seed):
    case = KICKED[name]
    mf = minimize(scf.RHF(case.molecule()), kick=KICK, seed=seed)
    assert mf.converged
    assert mf.e_tot == pytest.approx(case.energy, abs=1e-7)
    assert mf.minimization.stable


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["N2", "C2"])
def test_kicked_start_finds_a_stable_minimum(name, seed):
    check_kicked(name, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", ["TiO", "Cr2"])
def test_kicked_start_finds_a_stable_minimum_of_a_metal(name, seed):
    check_kicked(name, seed)
