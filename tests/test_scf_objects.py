"""What surrounds the energy: extensions of PySCF, near dependence, conventions, `direct`."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("pyscf", reason="PySCF is not installed")

import h5py
from pyscf import cc, dft, gto, mcscf, mp, qmmm, scf, tdscf, x2c
from pyscf.pbc import gto as pbc_gto
from pyscf.pbc import scf as pbc_scf

from stiefel.applications.scf import Block, descent, direct, minimize
from stiefel.applications.scf.energy import Orbitals
from stiefel.applications.scf.stability import internal

WATER = "O 0 0 0; H 0 0.75 0.6; H 0 -0.75 0.6"
OXYGEN = "O 0 0 0; O 0 0 1.2"


def molecule(atoms=WATER, basis="sto-3g", **options):
    return gto.M(atom=atoms, basis=basis, verbose=0, **options)


def kohn_sham(kind, mol, xc):
    mf = kind(mol, xc=xc)
    mf.grids.level = 0
    return mf


def triplet():
    return molecule(OXYGEN, "6-31g", spin=2)


EXTENSIONS = {
    "SGX": lambda: scf.RHF(molecule("He 0 0 0; He 0 0 2")).COSX(),
    "PCM": lambda: scf.RHF(molecule()).PCM(),
    "ddCOSMO": lambda: scf.UHF(triplet()).ddCOSMO(),
    "point charges": lambda: qmmm.mm_charge(scf.RHF(molecule()), [[0, 0, 4.0]], [0.4]),
    "scalar X2C": lambda: scf.UHF(triplet()).x2c1e(),
    "density fitting, two spins": lambda: scf.UHF(triplet()).density_fit(),
    "density fitting, hybrid": lambda: kohn_sham(dft.UKS, triplet(), "b3lyp").density_fit(),
    "ROHF": lambda: scf.ROHF(triplet()),
    "ROKS": lambda: kohn_sham(dft.ROKS, triplet(), "pbe"),
    "meta-GGA": lambda: kohn_sham(dft.RKS, molecule(), "scan"),
    "range-separated": lambda: kohn_sham(dft.RKS, molecule(), "wb97x"),
    "symmetry": lambda: scf.RHF(molecule(symmetry=True)),
    "symmetry, two spins": lambda: scf.UHF(molecule(OXYGEN, "6-31g", spin=2, symmetry=True)),
}


def check_same_energy(make, tolerance=1e-8, **options):
    reference = make()
    reference.conv_tol = 1e-11
    reference.kernel()
    mf = minimize(make(), gtol=1e-6, check=False, **options)
    assert mf.converged
    assert mf.e_tot == pytest.approx(reference.e_tot, abs=tolerance)
    return mf, reference


@pytest.mark.parametrize("name", EXTENSIONS)
def test_extensions_of_pyscf(name):
    mf, reference = check_same_energy(EXTENSIONS[name])
    assert np.shape(mf.mo_coeff) == np.shape(reference.mo_coeff)
    np.testing.assert_allclose(np.sort(mf.mo_energy), np.sort(reference.mo_energy), atol=2e-4)


@pytest.mark.parametrize("xc", ["b3lyp-d3bj", "b3lyp-d4", "wb97x-d3bj"])
def test_dispersion_is_in_the_energy(xc):
    pytest.importorskip("pyscf.dispersion", reason="pyscf-dispersion is not installed")
    argon = molecule("Ar 0 0 0; Ar 0 0 3.8", "sto-3g")
    mf, _ = check_same_energy(lambda: kohn_sham(dft.RKS, argon, xc))
    assert abs(mf.scf_summary["dispersion"]) > 1e-4


def test_dispersion_of_the_object():
    pytest.importorskip("pyscf.dispersion", reason="pyscf-dispersion is not installed")
    argon = molecule("Ar 0 0 0; Ar 0 0 3.8", "sto-3g")
    check_same_energy(lambda: scf.RHF(argon).set(disp="d3bj"))


@pytest.mark.parametrize("distance", [0.9, 0.5])
def test_nearly_dependent_functions_are_left_out_as_pyscf_does(distance):
    atoms = "; ".join(f"H 0 0 {i * distance}" for i in range(8))
    make = lambda: scf.RHF(molecule(atoms, "aug-cc-pvdz"))
    mf, reference = check_same_energy(make, 1e-7, diis=0)
    assert mf.mo_coeff.shape == reference.mo_coeff.shape


def test_remove_linear_dep_is_honoured():
    """PySCF's own iteration does not converge here: its DIIS works in another space."""
    atoms = "; ".join(f"H 0 0 {i * 0.5}" for i in range(6))
    mf = scf.RHF(molecule(atoms, "aug-cc-pvdz"))
    with pytest.warns(DeprecationWarning, match="remove_linear_dep_"):
        scf.addons.remove_linear_dep_(mf, threshold=1e-4, lindep=1e-4)
    minimize(mf)
    assert mf.converged
    kept = scf.addons.canonical_orth_(mf.get_ovlp(), 1e-4)
    assert mf.mo_coeff.shape == kept.shape
    inside = kept @ np.linalg.lstsq(kept, mf.mo_coeff, rcond=None)[0]
    np.testing.assert_allclose(inside, mf.mo_coeff, atol=1e-8)


def test_two_components():
    def make():
        return x2c.UHF(molecule("Li 0 0 0", spin=1))

    mf, _ = check_same_energy(make)
    assert mf.minimization.stable is True


def test_four_components_are_refused():
    with pytest.raises(TypeError, match="DHF"):
        minimize(scf.DHF(molecule("He 0 0 0")))


# -- minima ----------------------------------------------------------------------------------


def test_a_saddle_is_left():
    """DIIS, and descent from its orbitals, end half a Hartree above."""
    mol = molecule("N 0 0 0; N 0 0 2.2", "cc-pvdz")
    saddle = minimize(scf.UHF(mol), check=False)
    assert saddle.minimization.path[0].verdict == "not analysed"
    assert not saddle.minimization.stable
    mf = minimize(scf.UHF(mol))
    assert mf.e_tot == pytest.approx(-108.774536700, abs=1e-8)
    path = mf.minimization.path
    assert [s.verdict for s in path] == ["not a minimum", "a minimum"]
    assert sum(s.builds for s in path) <= mf.minimization.fock_builds <= 40
    assert mf.minimization.products > 0


def test_the_step_off_a_saddle_is_as_short_as_it_must_be(monkeypatch):
    """A first step that is far too long is cut until the energy is below that of the saddle."""
    monkeypatch.setattr(descent, "FIRST_STEP", 60.0)
    energies = []
    mol = molecule("N 0 0 0; N 0 0 2.2", "6-31g")
    mf = minimize(scf.UHF(mol), callback=lambda snapshot: energies.append(snapshot.fun))
    assert len(mf.minimization.path) > 1
    assert np.all(np.diff(energies) < 1e-9)


@pytest.mark.parametrize(
    ("atoms", "spin", "most"), [("Cr 0 0 0", 6, 20), ("Fe 0 0 0; O 0 0 1.6", 4, 60)]
)
def test_open_shells_descend_in_few_builds(atoms, spin, most):
    """With rotations between the shells divided by something else: 38 to 1000."""
    basis = "def2-svp" if atoms.startswith("Cr") else "sto-3g"
    mf = minimize(scf.ROHF(molecule(atoms, basis, spin=spin)), diis=0, check=False)
    assert mf.converged
    assert mf.minimization.fock_builds <= most


def test_stability_of_two_components_and_without_virtuals():
    assert minimize(scf.GHF(molecule("Li 0 0 0", spin=1))).minimization.stable is True
    assert minimize(scf.RHF(molecule("He 0 0 0"))).minimization.stable is True


def test_external_verdict():
    mol = molecule("H 0 0 0; H 0 0 2.5", "6-31g")
    mf = minimize(scf.RHF(mol))
    assert mf.minimization.stable is True
    assert mf.minimization.externally_stable is False


def test_starts_return_the_lowest_with_a_table():
    mol = molecule("N 0 0 0; N 0 0 2.2", "6-31g")
    mf = minimize(scf.UHF(mol), starts=3)
    minima = mf.minimization.minima
    assert len(minima) == 3
    assert [m.energy for m in minima] == sorted(m.energy for m in minima)
    assert mf.e_tot == pytest.approx(minima[0].energy, abs=1e-9)
    assert mf.minimization.fock_builds == sum(m.builds for m in minima)
    assert mf.minimization.table().count("\n") == 3


def test_symmetry_confines_the_descent_unless_it_is_perturbed():
    mol = molecule("N 0 0 0; N 0 0 2.2", "6-31g", symmetry=True)
    free = minimize(scf.RHF(molecule("N 0 0 0; N 0 0 2.2", "6-31g")))
    mf = minimize(scf.RHF(mol))
    assert mf.e_tot > free.e_tot + 0.01  # the minimum without the symmetry is lower
    overlap = mf.mo_coeff.T @ mf.get_ovlp()
    for orbitals, label in zip(mol.symm_orb, mol.irrep_id, strict=True):
        weight = np.square(overlap @ np.linalg.qr(orbitals)[0]).sum(axis=1) > 1e-8
        assert np.all(np.asarray(mf.mo_coeff.orbsym)[weight] == label)
    assert minimize(scf.RHF(mol), kick=0.1).e_tot == pytest.approx(free.e_tot, abs=1e-6)


# -- options and conventions -------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"kick": -0.1},
        {"kick": "a"},
        {"mix": np.nan},
        {"maxfun": 0},
        {"maxfun": 1},
        {"starts": 0},
        {"starts": 1.5},
        {"diis": -1},
        {"gtol": 0.0},
    ],
)
def test_options_without_a_meaning_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        minimize(scf.RHF(molecule()), **options)


@pytest.fixture(scope="module")
def cell():
    return pbc_gto.M(
        a=np.diag([5.0, 5.0, 4.0]),
        atom="H 0 0 0; H 0.2 0.1 1.6",
        basis="gth-szv",
        pseudo="gth-pade",
        mesh=[9] * 3,
        unit="B",
        verbose=0,
    )


def test_mix_needs_two_spins_and_not_two_matrices(cell):
    with pytest.raises(ValueError, match="KRHF"):
        minimize(pbc_scf.KRHF(cell, cell.make_kpts([1, 1, 2])), mix=0.6)


def test_inverted_levels_are_said():
    """Two atoms of aluminium with 2 × 2 × 1 k-points end so; here with made-up levels."""
    run = object.__new__(descent.Descent)
    blocks = [Block(None, kpoint, None, 1, np.eye(2)) for kpoint in range(2)]
    run.energy = SimpleNamespace(layout=SimpleNamespace(blocks=blocks))
    # The second are partners of one level, apart by the error of a converged run.
    for second, expected in ((0.5, 0), (0.4 - 1e-5, 0), (0.2, 1)):
        run.warnings = []
        levels = [np.array([0.1, 0.6]), np.array([0.4, second])]
        run._warn_of_inverted_levels(Orbitals(None, levels, [np.array([2.0, 0.0])] * 2))
        assert len(run.warnings) == expected


def test_stability_of_unrestricted_k_points(cell):
    mf = minimize(pbc_scf.KUHF(cell, cell.make_kpts([1, 1, 2])))
    assert mf.minimization.stable in (True, False)


def test_tolerances_and_limits_of_the_object():
    loose = minimize(scf.RHF(molecule(basis="6-31g")).set(conv_tol_grad=1e-2), diis=0)
    assert loose.minimization.result.message.count("2.00e-02")
    tight = minimize(scf.RHF(molecule(basis="6-31g")).set(conv_tol=1e-13), diis=0)
    assert tight.minimization.result.gradient_norm <= 0.1 * np.sqrt(1e-13)
    short = minimize(scf.RHF(molecule(basis="6-31g")).set(max_cycle=2), diis=0)
    assert not short.converged
    assert short.cycles == 2
    guess = minimize(scf.RHF(molecule(basis="6-31g")).set(max_cycle=0))
    assert not guess.converged
    assert guess.minimization.fock_builds <= 2
    for unfinished in (short, guess):
        assert unfinished.minimization.stable is None  # no verdict: the point is not stationary


def test_what_cannot_be_minimised_is_refused():
    with pytest.raises(ValueError, match="no electrons"):
        minimize(scf.RHF(molecule("H 0 0 0", charge=1)))
    with pytest.raises(TypeError, match="int is no mean-field object"):
        minimize(3)


def test_callback_summary_and_checkpoint_are_pyscfs(tmp_path):
    seen = []

    def callback(envs):
        density = envs["mf"].make_rdm1(envs["mo_coeff"], envs["mo_occ"])
        np.testing.assert_allclose(density, envs["dm"], atol=1e-8)
        seen.append((envs["cycle"], envs["e_tot"]))
        with h5py.File(envs["mf"].chkfile) as file:
            assert "scf/mo_coeff" in file

    mf = scf.RHF(molecule(basis="6-31g")).set(callback=callback, chkfile=str(tmp_path / "chk"))
    minimize(mf, diis=0)
    assert [cycle for cycle, _ in seen] == list(range(mf.cycles))
    assert [E for _, E in seen] == sorted([E for _, E in seen], reverse=True)
    assert seen[-1][1] == pytest.approx(mf.e_tot, abs=1e-12)
    reference = scf.RHF(mf.mol).run()
    for name, value in reference.scf_summary.items():
        assert mf.scf_summary[name] == pytest.approx(value, abs=1e-4)


def test_callback_and_checkpoint_see_the_cycles_of_diis(tmp_path):
    """From the first cycle on, each once, as in PySCF's own iterations."""
    seen = []

    def callback(envs):
        seen.append(envs["cycle"])
        with h5py.File(envs["mf"].chkfile) as file:
            assert "scf/mo_coeff" in file

    mf = scf.RHF(molecule(basis="6-31g")).set(callback=callback, chkfile=str(tmp_path / "chk"))
    minimize(mf)
    assert mf.cycles > 6
    assert seen == list(range(mf.cycles))


@pytest.mark.parametrize("options", [{}, {"diis": 0}])
def test_log_lists_the_cycles(options, tmp_path):
    log = tmp_path / "log"
    mol = gto.M(atom=WATER, basis="6-31g", verbose=4, output=str(log))
    mf = minimize(scf.RHF(mol), **options)
    text = log.read_text()
    assert re.findall(r"cycle= (\d+)", text) == [str(i + 1) for i in range(mf.cycles)]
    assert "nan" not in text
    assert "stability analysis: a minimum" in text
    assert "converged SCF energy" in text


# -- the object --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair():
    mol = molecule(basis="6-31g")
    mf = direct(scf.RHF(mol), gtol=1e-7)
    mf.kernel()
    return mf, scf.RHF(mol).set(conv_tol=1e-12).run()


def test_direct_is_an_scf(pair):
    mf, reference = pair
    assert isinstance(mf, scf.hf.RHF)
    assert mf.e_tot == pytest.approx(reference.e_tot, abs=1e-9)
    np.testing.assert_allclose(
        mf.nuc_grad_method().kernel(), reference.nuc_grad_method().kernel(), atol=1e-6
    )
    assert mp.MP2(mf).run().e_tot == pytest.approx(mp.MP2(reference).run().e_tot, abs=1e-8)
    assert cc.CCSD(mf).run().e_tot == pytest.approx(cc.CCSD(reference).run().e_tot, abs=1e-6)
    ours, theirs = (tdscf.TDA(m).run(nstates=2).e for m in (mf, reference))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    ours, theirs = (mcscf.CASSCF(m, 2, 2).run().e_tot for m in (mf, reference))
    assert ours == pytest.approx(theirs, abs=1e-6)


def test_direct_runs_again_and_can_be_undone(pair):
    mf, _ = pair
    before = mf.e_tot
    assert mf.kernel() == pytest.approx(before, abs=1e-10)
    assert mf.minimization.fock_builds <= 2  # from its own orbitals
    plain = mf.undo_direct()
    assert type(plain) is scf.hf.RHF
    assert plain.e_tot == mf.e_tot
    with pytest.raises(TypeError, match="nosuch"):
        direct(plain, nosuch=1)


def test_direct_scans_and_is_a_minimum_at_every_point():
    scanner = direct(scf.UHF(molecule("H 0 0 0; H 0 0 1", "6-31g"))).as_scanner()
    for distance in (0.74, 2.0, 3.0):
        E = scanner(molecule(f"H 0 0 0; H 0 0 {distance}", "6-31g"))
        assert scanner.minimization.stable
    atoms = 2 * scf.UHF(molecule("H 0 0 0", "6-31g", spin=1)).run().e_tot
    assert abs(E - atoms) < 3e-3  # UHF dissociates; RHF would be 0.2 above


def test_geometry_optimisation():
    pytest.importorskip("geometric", reason="geomeTRIC is not installed")
    mol = molecule("O 0 0 0; H 0 0 1.1", "6-31g", spin=1)
    stable = []
    mf = direct(scf.UHF(mol))
    optimiser = mf.Gradients().optimizer(solver="geomeTRIC")
    optimiser.callback = lambda envs: stable.append(envs["g_scanner"].base.minimization.stable)
    best = optimiser.kernel()
    reference = scf.UHF(mol).Gradients().optimizer(solver="geomeTRIC").kernel()
    ours, theirs = (np.linalg.norm(np.diff(m.atom_coords(), axis=0)) for m in (best, reference))
    assert ours == pytest.approx(theirs, abs=1e-3)
    assert stable
    assert all(stable)


@pytest.mark.parametrize("name", ["PCM", "ddCOSMO", "point charges", "scalar X2C"])
def test_extensions_are_analysed(name):
    """A solvent's response asks a copy of the object for that in vacuum."""
    mf = minimize(EXTENSIONS[name]())
    assert mf.minimization.verdict.stable is True, mf.minimization.verdict
    assert mf.minimization.products > 3
    assert not {"gen_response", "get_veff"} & mf.__dict__.keys()


@pytest.mark.parametrize("name", ["conv_tol", "conv_tol_grad"])
@pytest.mark.parametrize("value", [0, -1e-8, np.nan])
def test_tolerances_of_the_object_without_a_meaning(name, value):
    mf = direct(scf.RHF(molecule()))
    setattr(mf, name, value)
    with pytest.raises(ValueError, match=name):
        mf.kernel()


def test_what_is_no_mean_field_object_is_refused():
    with pytest.raises(TypeError, match="int is no mean-field object"):
        direct(3)
    with pytest.raises(TypeError, match="no mean-field object"):
        direct(mp.MP2(scf.RHF(molecule())))


def test_a_verdict_says_why_there_is_none():
    mf = scf.RHF(molecule()).run()
    mf.stability = lambda *args, **options: (_ for _ in ()).throw(NotImplementedError("not here"))
    verdict = internal(mf)
    assert verdict.stable is None
    assert "not here" in str(verdict)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("atoms", "spin", "energy"),
    [
        ("Co 0 0 0; H 0 0 1.542", 2, -1381.738063),
        ("V 0 0 0; O 0 0 1.589", 3, -1017.529795),  # a valley with curvatures near −1e-5
        ("Cr 0 0 0; O 0 0 1.615", 4, -1117.932633),
        ("Mn 0 0 0; N 0 0 1.6", 4, -1203.960917),
    ],
)
def test_metals_end_in_minima(atoms, spin, energy):
    mf = minimize(scf.UHF(molecule(atoms, "def2-svp", spin=spin)))
    assert mf.converged
    assert mf.stability(return_status=True)[2]  # with PySCF's own three roots
    assert mf.e_tot == pytest.approx(energy, abs=1e-4)
    assert mf.minimization.fock_builds <= 150


@pytest.mark.slow
@pytest.mark.parametrize(
    ("symbol", "basis"), [("He", "cc-pvtz"), ("Ne", "cc-pvtz"), ("Zn", "def2-svp")]
)
def test_gradients_below_the_noise_of_energies(symbol, basis):
    """|E|·1e-16 is 1e-13: differences of energies say nothing below |g| = 1e-7."""
    mf = minimize(scf.RHF(molecule(symbol, basis)), gtol=1e-9)
    assert mf.converged
    assert mf.minimization.result.gradient_norm <= 1e-9
    assert mf.minimization.fock_builds <= 30
