"""Localised orbitals against PySCF's matrices, cost functions and optimiser."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("pyscf", reason="needs pip install pyscf")

from pyscf import gto, lo, scf

import stiefel
from molecules import BENZENE, WATER
from stiefel.applications.localization import DiagonalSquares, localize, matrices

# Of orbitals that are converged to 1e-9 Ha, PySCF's default, which fixes f to a few 1e-7 of it.
BOYS = {"water": -2.6004686, "benzene": -180.8014940}
ORBITAL_ERROR = 5e-7


@pytest.fixture(scope="module")
def orbitals():
    """Molecule and occupied orbitals: water in cc-pVDZ, benzene in 6-31G."""
    molecules = {
        "water": WATER.molecule(),
        "benzene": gto.M(atom=BENZENE.atoms, basis="6-31g", verbose=0),
    }
    fields = {name: scf.RHF(mol).run() for name, mol in molecules.items()}
    return {name: (mf.mol, mf.mo_coeff[:, mf.mo_occ > 0]) for name, mf in fields.items()}


@pytest.mark.parametrize("name", BOYS)
def test_boys(name, orbitals):
    mol, C = orbitals[name]
    values = [localize(mol, C, start=seed).value for seed in range(3)]
    assert values == pytest.approx([BOYS[name]] * 3, rel=ORBITAL_ERROR)
    assert np.ptp(values) < 1e-9 * abs(values[0])


@pytest.mark.parametrize("kind", ["boys", "pipek-mezey"])
@pytest.mark.parametrize("name", BOYS)
def test_pyscf_finds_nothing_better_nearby(name, kind, orbitals):
    mol, C = orbitals[name]
    found = localize(mol, C, kind)
    optimiser = (lo.Boys if kind == "boys" else lo.PipekMezey)(mol, found.orbitals)
    optimiser.init_guess = None
    n = C.shape[1]
    gradient = optimiser.get_grad(np.eye(n))
    assert np.abs(gradient).max() < 1e-4
    before = optimiser.cost_function(np.eye(n))
    optimiser.kernel()
    sign = 1 if kind == "boys" else -1  # Boys is minimised, Pipek–Mezey maximised
    after = optimiser.cost_function(np.eye(n))
    assert sign * (before - after) < 1e-6 * abs(before)


def test_value_is_pyscfs_cost(orbitals):
    """Boys: Σ⟨r²⟩ − Σ‖⟨r⟩‖²; Pipek–Mezey: the value with the opposite sign."""
    mol, C = orbitals["water"]
    pipek = localize(mol, C, "pipek-mezey")
    cost = lo.PipekMezey(mol, pipek.orbitals).cost_function(np.eye(C.shape[1]))
    assert pipek.value == pytest.approx(-cost, rel=1e-10)
    boys = localize(mol, C)
    spread = lo.Boys(mol, boys.orbitals).cost_function(np.eye(C.shape[1]))
    spread_before = lo.Boys(mol, C).cost_function(np.eye(C.shape[1]))
    before = DiagonalSquares(matrices(mol, C, "boys"))(np.eye(C.shape[1]))[0]
    assert spread - spread_before == pytest.approx(boys.value - before, rel=1e-8)


def test_orbitals_span_what_they_spanned(orbitals):
    mol, C = orbitals["water"]
    found = localize(mol, C)
    np.testing.assert_allclose(found.orbitals @ found.orbitals.T, C @ C.T, atol=1e-10)


def test_gradient():
    rng = np.random.default_rng(0)
    M = rng.standard_normal((3, 5, 5))
    objective = DiagonalSquares(M + M.swapaxes(1, 2))
    U = stiefel.SpecialOrthogonal().random(5, 5, seed=1)
    check = stiefel.check_gradient(objective, U, manifold=stiefel.SpecialOrthogonal())
    assert check.correct, check


def test_reflected_start_and_misuse(orbitals):
    mol, C = orbitals["water"]
    start = np.diag([-1.0, 1, 1, 1, 1]) @ stiefel.SpecialOrthogonal().random(5, 5, seed=2)
    assert localize(mol, C, start=start).value == pytest.approx(BOYS["water"], rel=ORBITAL_ERROR)
    with pytest.raises(ValueError, match="pipek-mezey"):
        localize(mol, C, "edmiston")
    with pytest.raises(TypeError, match="complex"):
        localize(mol, C.astype(complex))
