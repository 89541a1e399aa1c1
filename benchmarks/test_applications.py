"""Evaluations that the applications may take: counts, not times, so every machine agrees.

Run with ``pytest benchmarks/test_applications.py``; what each took is in its failure message and,
with ``-rP``, in the report.
"""

from __future__ import annotations

import networkx as nx
import pytest
from pyscf import scf

import stiefel
from molecules import BENZENE, KICK, KICKED, MIX, MIXED_N2, SEEDS, WATER
from stiefel.applications.compressed_modes import closed_form, compressed_modes, refined
from stiefel.applications.localization import localize
from stiefel.applications.maxcut import max_cut
from stiefel.applications.scf import minimize
from stiefel.applications.synchronization import synchronize
from stiefel.objectives import RotationSynchronization


def within(bound: int, count: int, what: str) -> None:
    print(f"{what}: {count} of at most {bound}")
    assert count <= bound, f"{what}: {count} evaluations, more than {bound}"


@pytest.mark.parametrize("case", [WATER, BENZENE], ids=["water", "benzene"])
def test_restricted(case):
    mf = minimize(scf.RHF(case.molecule()))
    assert mf.e_tot == pytest.approx(case.energy, abs=1e-9)
    within(case.builds, mf.minimization.fock_builds, "Fock builds")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", KICKED)
def test_kicked(name, seed):
    case = KICKED[name]
    mf = minimize(scf.RHF(case.molecule()), kick=KICK, seed=seed)
    assert mf.e_tot == pytest.approx(case.energy, abs=1e-7)
    within(case.builds, mf.minimization.fock_builds, f"Fock builds of {name}, seed {seed}")


def test_mixed():
    mf = minimize(scf.UHF(MIXED_N2.molecule()), mix=MIX)
    assert mf.e_tot == pytest.approx(MIXED_N2.energy, abs=1e-8)
    within(MIXED_N2.builds, mf.minimization.fock_builds, "Fock builds")


@pytest.mark.parametrize("seed", SEEDS)
def test_compressed_modes_in_one_dimension(seed):
    modes = compressed_modes((1000,), (100.0,), 10, 5.0, seed=seed)
    assert modes.energy == pytest.approx(10 * closed_form(5.0, 1).energy, rel=2e-4)
    within(130, modes.evaluations, f"1-D modes, seed {seed}")


@pytest.mark.parametrize("seed", SEEDS)
def test_compressed_modes_in_two_dimensions(seed):
    box = (16.0, 16.0)
    coarse = compressed_modes((48, 48), box, 4, 5.0, seed=seed)
    fine = compressed_modes((96, 96), box, 4, 5.0, start=refined(coarse), stages=(1e-3, 3e-4))
    last = [modes.results[-1] for modes in (coarse, fine)]
    assert all(result.success for result in last)
    sharp = sum(result.nfev for result in last)
    smooth = coarse.evaluations + fine.evaluations - sharp
    within(200, smooth, f"2-D modes on both grids, seed {seed}, smoothed")
    within(1000, sharp, f"2-D modes on both grids, seed {seed}, last stages")


def test_synchronization():
    problem, _ = RotationSynchronization.random_instance(500, noise=0.1, rng=0)
    random = stiefel.SpecialOrthogonal().random(500, 3, 3, seed=1)
    for name, start in (("the spectral", None), ("a random", random)):
        found = synchronize(problem, start=start)
        assert found.certificate.proves_optimality(1e-8)
        within(100, found.result.nfev, f"500 rotations from {name} start")


@pytest.mark.parametrize("seed", SEEDS)
def test_max_cut(seed):
    cut = max_cut(nx.karate_club_graph(), seed=seed)
    assert cut.value == pytest.approx(183.645289, abs=1e-6)
    within(650, cut.result.nfev, f"the karate club's relaxation, seed {seed}")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("name", "bound"), [("water", 85), ("benzene", 400)])
def test_boys_localisation(name, bound, seed):
    mol = WATER.molecule() if name == "water" else BENZENE._replace(basis="6-31g").molecule()
    mf = scf.RHF(mol).run()
    found = localize(mol, mf.mo_coeff[:, mf.mo_occ > 0], start=seed)
    assert found.result.success
    within(bound, found.result.nfev, f"Boys orbitals of {name}, seed {seed}")
