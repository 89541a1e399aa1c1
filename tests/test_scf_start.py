"""The start of a minimisation does not depend on the eigensolver's basis of degenerate levels."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

pytest.importorskip("pyscf", reason="needs pip install pyscf")

from pyscf import gto, scf
from pyscf.pbc import gto as pbc_gto
from pyscf.pbc import scf as pbc_scf

from molecules import BENZENE, MIX, MIXED_N2
from stiefel.applications.scf import kicked, minimize, mixed, start
from stiefel.applications.scf.canonical import canonical

BASES = (0, 1, 2)  # seeds of the eigensolver's choice


def molecule(atoms, basis="sto-3g"):
    return gto.M(atom=atoms, basis=basis, verbose=0)


def tilted(atoms):
    """The molecule turned to an axis that is none of the basis functions'."""
    mol = molecule(atoms, MIXED_N2.basis)
    turn = scipy.linalg.expm(np.array([[0, 0.3, -0.7], [-0.3, 0, 0.5], [0.7, -0.5, 0]]))
    return mol.set_geom_(mol.atom_coords() @ turn, unit="Bohr", inplace=False)


def ring(sites=6):
    """A Hückel ring: no basis functions that PySCF could integrate over."""
    mol = gto.M(verbose=0)
    mol.nelectron = sites
    mf = scf.UHF(mol)
    hopping = -np.roll(np.eye(sites), 1, axis=0)
    mf.get_hcore = lambda *_: hopping + hopping.T
    mf.get_ovlp = lambda *_: np.eye(sites)
    mf._eri = np.zeros((sites,) * 4)
    mf.get_init_guess = lambda *_, **__: np.stack([np.eye(sites) / 2] * 2)
    return mf


def two_components():
    """Both spins of every orbital in one level: PySCF's own guess would tell them apart."""
    mf = scf.GHF(molecule(MIXED_N2.atoms))
    D = scf.RHF(mf.mol).get_init_guess() / 2
    mf.get_init_guess = lambda *_, **__: scipy.linalg.block_diag(D, D)
    return mf


def chain():
    """A cell with levels that its four-fold axis makes degenerate, at complex k-points."""
    cell = pbc_gto.M(
        a=np.diag([5.0, 5.0, 4.0]),
        atom="He 0 0 0",
        basis=[[0, [1.0, 1]], [1, [0.8, 1]]],
        mesh=[9] * 3,
        unit="B",
        verbose=0,
    )
    return pbc_scf.KUHF(cell, cell.make_kpts([1, 1, 3]))


def random_unitary(n, dtype, rng):
    K = rng.standard_normal((n, n)).astype(dtype)
    if K.dtype.kind == "c":
        K += 1j * rng.standard_normal((n, n))
    return scipy.linalg.polar(K)[0]


def rotated(energies, orbitals, rng):
    """As correct an answer of an eigensolver as the given one."""
    cuts = np.flatnonzero(np.diff(energies) > 1e-6) + 1
    levels = np.split(orbitals, cuts, axis=1)
    return np.hstack([c @ random_unitary(c.shape[1], c.dtype, rng) for c in levels])


def with_other_basis(mf, seed):
    """``mf`` with an eigensolver that rotates every degenerate level at random."""
    original, rng = mf.eig, np.random.default_rng(seed)

    def nested(energies, orbitals):
        if np.ndim(energies) == 1:
            return rotated(energies, orbitals, rng)
        return np.stack([nested(e, c) for e, c in zip(energies, orbitals, strict=True)])

    def eig(*args, **options):
        energies, orbitals = original(*args, **options)
        return energies, nested(energies, orbitals)

    mf.eig = eig
    return mf


OBJECTS = {
    "N2": lambda: scf.UHF(MIXED_N2.molecule()),  # with δ levels, which no quadrupole splits
    "tilted N2": lambda: scf.UHF(tilted(MIXED_N2.atoms)),
    "benzene": lambda: scf.UHF(molecule(BENZENE.atoms)),
    "methane": lambda: scf.UHF(
        molecule("C 0 0 0; H 1 1 1; H 1 -1 -1; H -1 1 -1; H -1 -1 1", "6-31g")
    ),
    "neon": lambda: scf.UHF(molecule("Ne 0 0 0", "cc-pvdz")),
    "boron": lambda: scf.UHF(gto.M(atom="B 0 0 0", basis="6-31g", spin=1, verbose=0)),
    "two components": two_components,
    "ring": ring,
    "k-points": chain,
}
TWO_MATRICES = ("N2", "tilted N2", "benzene", "methane", "neon", "boron", "ring")


def densities(mf, perturbed):
    energy, C, V, _ = start(mf)
    return [c @ c.conj().T for c in energy.coefficients(perturbed(C, V))]


def check_same_density(name, perturbed):
    first, *others = (
        densities(with_other_basis(OBJECTS[name](), seed), perturbed) for seed in BASES
    )
    for other in others:
        for D, E in zip(first, other, strict=True):
            np.testing.assert_allclose(E, D, atol=1e-8)


@pytest.mark.parametrize("name", TWO_MATRICES)
def test_mixed_density_is_the_same_from_every_basis(name):
    check_same_density(name, lambda C, V: mixed(C, V, MIX))


@pytest.mark.parametrize("name", OBJECTS)
def test_density_is_the_same_from_every_basis(name):
    check_same_density(name, lambda C, V: C)


@pytest.mark.parametrize("name", OBJECTS)
def test_kicked_density_is_the_same_from_every_basis(name):
    check_same_density(name, lambda C, V: kicked(C, V, 0.1, seed=3))


@pytest.mark.parametrize("name", ["N2", "tilted N2"])
def test_frontier_pair_is_the_one_with_the_largest_transition_dipole(name):
    mf = OBJECTS[name]()
    energy, C, V, _ = start(with_other_basis(mf, 5))
    X = energy.blocks[0].X
    dipoles, C, V = mf.mol.intor("int1e_r"), X @ C[0], X @ V[0]
    pairs = np.einsum("xpq,pi,qa->xia", dipoles, C[:, -2:], V[:, :2])
    strength = np.square(pairs).sum(axis=0)
    assert strength[-1, 0] == pytest.approx(strength.max(), rel=1e-6)
    assert strength[-1, 1] < 1e-4 * strength.max()  # between πₓ and π_y*


@pytest.mark.parametrize("name", ["N2", "tilted N2"])
@pytest.mark.parametrize("seed", BASES)
def test_nitrogen_ends_at_its_energy_from_every_basis(name, seed):
    mf = minimize(with_other_basis(OBJECTS[name](), seed), mix=MIX)
    assert mf.e_tot == pytest.approx(MIXED_N2.energy, abs=1e-8)
    assert mf.minimization.stable


def test_nitrogen_with_labelled_orbitals_ends_at_its_energy():
    mol = gto.M(atom=MIXED_N2.atoms, basis=MIXED_N2.basis, symmetry=True, verbose=0)
    assert minimize(scf.UHF(mol), mix=MIX).e_tot == pytest.approx(MIXED_N2.energy, abs=1e-8)


def test_single_levels_keep_their_orbitals_up_to_a_sign():
    mf = scf.RHF(molecule("O 0 0 0; H 0 0.75 0.6; H 0 -0.75 0.6")).run()
    given = mf.mo_coeff
    energy, (C,), (V,), _ = start(mf)
    found = energy.blocks[0].X @ np.hstack([C, V])
    signs = np.sign(np.sum(given * found, axis=0))
    np.testing.assert_array_equal(found, given * signs)


def test_levels_come_by_rising_energy_with_their_spans():
    rng = np.random.default_rng(0)
    C, A = random_unitary(6, float, rng), np.diag(np.arange(6.0))
    energies = np.array([1.0, 0.0, 1.0 + 1e-9, 2.0, 0.0, 1.0])
    turned = canonical(C, energies, A)
    np.testing.assert_allclose(turned.T @ turned, np.eye(6), atol=1e-12)
    for level, columns in (([1, 4], slice(0, 2)), ([0, 2, 5], slice(2, 5)), ([3], slice(5, 6))):
        T = turned[:, columns]
        np.testing.assert_allclose(T @ T.T, C[:, level] @ C[:, level].T, atol=1e-12)
        values = T.T @ A @ T
        np.testing.assert_allclose(values, np.diag(np.sort(np.diag(values))), atol=1e-12)


@pytest.mark.parametrize("phase", [1, -1, 1j])
def test_phase_is_fixed_where_coefficients_tie_up_to_rounding(phase):
    A = np.eye(3)
    for noise in (1e-15, -1e-15):
        c = np.array([[0.1], [1 + noise], [-1 - 2 * noise]])
        np.testing.assert_allclose(canonical(phase * c, [0.0], A), c, atol=1e-14)
