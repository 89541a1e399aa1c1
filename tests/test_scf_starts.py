"""Several starts: what they are, what they are called, and that they lose nothing."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("pyscf", reason="PySCF is not installed")

from pyscf import gto, scf

from stiefel.applications.scf import direct, minimize, run


def stretched(distance=2.2, basis="sto-3g"):
    return gto.M(atom=f"N 0 0 0; N 0 0 {distance}", basis=basis, verbose=0)


def names(mf):
    return {m.start for m in mf.minimization.minima}


def test_the_first_of_several_starts_is_the_call_itself():
    one = minimize(scf.UHF(stretched()))
    several = minimize(scf.UHF(stretched()), starts=3)
    first = min(several.minimization.minima, key=lambda m: abs(m.energy - one.e_tot))
    assert first.energy == pytest.approx(one.e_tot, abs=1e-9)
    assert first.builds == one.minimization.fock_builds
    assert "kicked" not in first.start
    assert several.e_tot <= one.e_tot + 1e-9


def test_names_say_where_a_start_comes_from():
    mf = direct(scf.UHF(stretched()), starts=3)
    mf.kernel()
    assert {n.split(",")[0] for n in names(mf)} == {"guess"}
    assert sum("DIIS" in n for n in names(mf)) == 2
    mf.kernel()  # from the orbitals it has
    assert {n.split(",")[0] for n in names(mf)} == {"own orbitals"}
    assert sum("DIIS" in n for n in names(mf)) == 1
    mf.kernel(mf.make_rdm1())
    assert {n.split(",")[0] for n in names(mf)} == {"dm0"}


def test_cycles_asked_for_are_done_from_orbitals_that_are_there():
    mf = direct(scf.UHF(stretched()), diis=4)
    mf.kernel()
    mf.kernel()
    assert "DIIS" in mf.minimization.minima[0].start


@pytest.mark.parametrize("seed", [0, np.int64(0)], ids=["int", "NumPy's"])
def test_every_kicked_guess_has_its_own_seed(seed):
    mf = minimize(scf.RHF(stretched(1.1)), starts=5, seed=seed)
    assert len(names(mf)) == 5
    assert sum(n.endswith("seed 1") for n in names(mf)) == 2


def test_a_lower_end_that_did_not_converge_is_said():
    ends = [
        SimpleNamespace(
            name=name,
            converged=converged,
            warnings=[],
            result=SimpleNamespace(fun=energy),
        )
        for name, converged, energy in (("one", True, -1.0), ("two", False, -1.5))
    ]
    assert "'two' has not converged and is 0.5 Ha lower" in run._lower_ends(ends[0], ends)[0]
    ends[1].result.fun = -1.0 - 1e-9  # the same, not quite there
    assert run._lower_ends(ends[0], ends) == []
    assert run._lower_ends(ends[0], ends[:1]) == []


@pytest.mark.parametrize("seed", ["a", 1.5, [1, 2]])
def test_seeds_without_a_meaning_are_refused(seed):
    with pytest.raises(ValueError, match="seed"):
        minimize(scf.RHF(stretched()), seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("atoms", "spin", "energy"),
    [
        ("Co 0 0 0; O 0 0 1.629", 3, -1455.929905),  # two kicked starts end 3.3 mHa above
        ("V 0 0 0; N 0 0 1.566", 2, -997.054799),  # the default ends 1.2 mHa above
    ],
)
def test_two_starts_find_the_lowest_minimum_known(atoms, spin, energy):
    mol = gto.M(atom=atoms, basis="def2-svp", spin=spin, verbose=0)
    mf = minimize(scf.UHF(mol), starts=2)
    assert mf.converged
    assert mf.e_tot == pytest.approx(energy, abs=1e-4)
