"""Fractional occupations: the free energy, its gradient, and PySCF's smeared objects."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate

pytest.importorskip("pyscf", reason="PySCF is not installed")

from pyscf import dft, gto, scf
from pyscf.pbc import dft as pbc_dft
from pyscf.pbc import gto as pbc_gto

from stiefel.applications.scf import Smearing, direct, minimize, run, start
from stiefel.applications.scf.ensemble import SMEARINGS
from stiefel.applications.scf.start import shaken


def atom(symbol="Cr", spin=6, xc="pbe", basis="def2-svp", **smearing):
    mf = dft.UKS(gto.M(atom=symbol, basis=basis, spin=spin, verbose=0), xc=xc)
    mf.grids.level = 0
    return mf.smearing(**{"sigma": 0.01, "fix_spin": True, **smearing})


def chain(kind=pbc_dft.KRKS, **smearing):
    """A metal: one electron of each of two spins in a row of hydrogen atoms."""
    cell = pbc_gto.M(
        a=np.diag([6.0, 6.0, 2.0]),
        atom="H 0 0 0",
        basis="gth-dzv",
        pseudo="gth-pade",
        mesh=[9] * 3,
        unit="B",
        spin=None,
        verbose=0,
    )
    mf = kind(cell, cell.make_kpts([1, 1, 4]), xc="lda,vwn")
    mf.conv_tol = 1e-11
    return mf.smearing(**{"sigma": 0.02, **smearing})


@pytest.mark.parametrize("kind", SMEARINGS)
def test_entropy_is_the_first_moment_of_the_broadened_delta(kind):
    s = Smearing(1.0, kind)
    for x in (-1.3, 0.0, 0.4, 2.0):
        total = scipy.integrate.quad(s.slope, -30, x)[0]
        moment = scipy.integrate.quad(lambda t: t * s.slope(t), -30, x)[0]
        assert s.occupations(x) == pytest.approx(total, abs=1e-8)
        assert s.entropy(x) == pytest.approx(-moment, abs=1e-8)


@pytest.mark.parametrize("kind", SMEARINGS)
@pytest.mark.parametrize("make", [lambda: scf.UHF(gto.M(atom="B", spin=1, verbose=0)), chain])
def test_gradient_matches_differences_of_free_energies(kind, make):
    mf = make()
    mf.build()
    energy, H, _, _ = start(mf, smearing=Smearing(0.3, kind))
    H = shaken(H, 0.1, 0)
    zero = tuple(0.0 * h for h in H)
    move, t = shaken(zero, 1.0, 1), 1e-4  # a Hermitian direction
    up, down = (energy(tuple(h + s * m for h, m in zip(H, move)))[0] for s in (t, -t))
    slope = sum(np.vdot(g, m).real for g, m in zip(energy(H)[1], move))
    assert (up - down) / (2 * t) == pytest.approx(slope, rel=1e-5)


@pytest.mark.parametrize("method", ["fermi", "gaussian"])
@pytest.mark.parametrize("make", [atom, chain])
def test_same_free_energy_as_pyscf(make, method):
    reference = make(method=method)
    reference.conv_tol = 1e-11
    reference.kernel()
    assert reference.converged
    mf = minimize(make(method=method))
    assert mf.converged
    assert mf.e_free == pytest.approx(reference.e_free, abs=1e-8)
    assert mf.e_tot == pytest.approx(reference.e_tot, abs=1e-6)
    assert mf.minimization.energy == pytest.approx(mf.e_free, abs=1e-10)
    assert mf.minimization.fock_builds <= 1.5 * (reference.cycles + 2)
    total = sum(np.sum(part) for part in mf.mo_occ)
    expected = sum(np.sum(part) for part in reference.mo_occ)
    assert total == pytest.approx(expected, abs=1e-8)


def test_electrons_move_between_k_points():
    mf = minimize(chain())
    assert np.ptp([np.sum(f) for f in mf.mo_occ]) > 0.5


def test_descent_alone_reaches_the_same_free_energy():
    """Without a cycle of DIIS, and in few builds."""
    reference = minimize(atom())
    mf = minimize(atom(), diis=0)
    assert mf.converged
    assert mf.e_free <= reference.e_free + 1e-4  # of another minimum, or the same
    assert mf.minimization.fock_builds <= 150


def test_marzari_vanderbilt_tends_to_the_energy_without_smearing():
    """Its free energy depends less on the width than Gaussian smearing's."""

    def energies(kind):
        mf = chain().undo_smearing()
        wide, narrow = (
            minimize(mf.copy(), smearing=Smearing(s, kind)).minimization.energy
            for s in (0.04, 0.01)
        )
        return abs(wide - narrow)

    assert energies("marzari-vanderbilt") < 0.7 * energies("gaussian")


def test_where_diis_does_not_converge():
    reference = atom("Ni", 2, fix_spin=False)
    reference.kernel()
    assert not reference.converged
    mf = direct(atom("Ni", 2, fix_spin=False))
    mf.kernel()
    assert mf.converged
    assert mf.e_free < reference.e_free - 1.0


@pytest.mark.slow
def test_iron_leaves_a_shallow_saddle():
    """A spherical atom with the scaled curvature −0.034, where DIIS ends."""
    reference = atom("Fe", 4)
    reference.kernel()
    assert reference.converged
    mf = minimize(atom("Fe", 4))
    assert mf.converged
    assert mf.minimization.stable is True
    assert mf.minimization.path[0].verdict == "not a minimum"
    assert mf.e_free < reference.e_free - 2e-5
    assert mf.minimization.fock_builds <= 160  # with ten pairs 190, with stiffness 351


@pytest.mark.parametrize(
    ("symbol", "spin"), [pytest.param("Fe", 4, marks=pytest.mark.slow), ("Cr", 6)]
)
def test_free_spins_find_the_unpaired_electrons(symbol, spin):
    """PySCF's cycles below the saddle of equal spins; descent alone ends 0.26 Ha too high."""
    mf = minimize(atom(symbol, spin, fix_spin=False), maxfun=400)
    assert mf.converged
    assert mf.minimization.stable is True
    fixed = minimize(atom(symbol, spin), check=False)
    assert mf.e_free < fixed.e_free + 1e-6


def test_a_saddle_at_the_end_is_not_converged(monkeypatch):
    monkeypatch.setattr(run, "FOLLOWED", 0)
    mf = minimize(atom("Cr", 6, fix_spin=False))
    assert mf.minimization.stable is False
    assert not mf.converged
    assert "a saddle" in mf.minimization.warnings[0]


def test_the_verdict_on_fractional_occupations_is_our_own():
    """Also where the run itself did not ask; PySCF's analysis knows whole occupations only."""
    mf = minimize(atom("Cr", 6, fix_spin=False), check=False)
    assert mf.converged
    assert mf.minimization.stable is False
    assert mf.minimization.externally_stable is None


def test_the_analysis_of_fractional_occupations_takes_few_products():
    """An eigenvalue to all digits takes 69, and the verdict is the same."""
    mf = minimize(atom("Cr", 6))
    assert mf.minimization.stable is True
    assert mf.minimization.verdict.curvature == pytest.approx(0.0, abs=1e-6)
    assert mf.minimization.products <= 30


def test_one_level_is_analysed():
    mf = minimize(scf.RHF(gto.M(atom="He", basis="sto-3g", verbose=0)).smearing(0.01))
    assert mf.converged
    assert mf.minimization.stable is True


@pytest.mark.parametrize("sigma", [0.0, -1.0])
def test_a_width_must_be_positive(sigma):
    with pytest.raises(ValueError, match="sigma"):
        Smearing(sigma)


def test_what_has_no_meaning_is_refused():
    with pytest.raises(ValueError, match="not known"):
        Smearing(0.1, "cold")
    with pytest.raises(ValueError, match="mu0"):
        minimize(atom(mu0=0.1))
