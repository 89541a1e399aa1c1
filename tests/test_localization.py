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


def test_what_depends_on_the_point_alone_is_kept_until_it_moves():
    """Curvatures at every product took a quarter of the time; a point moved in place is new."""
    rng = np.random.default_rng(0)
    M = rng.standard_normal((3, 5, 5))
    objective = DiagonalSquares(M + M.swapaxes(1, 2))
    U = stiefel.SpecialOrthogonal().random(5, 5, seed=1)
    V = rng.standard_normal((5, 5))
    first = objective.at(U)
    objective(U), objective.hessp(U, V), objective.precond(U, V)
    assert objective.at(U.copy()) is first
    U[:, :2] = U[:, [1, 0]]
    fresh = DiagonalSquares(objective.M)
    np.testing.assert_array_equal(objective.hessp(U, V), fresh.hessp(U, V))
    np.testing.assert_array_equal(objective.precond(U, V), fresh.precond(U, V))


def test_reflected_start_and_misuse(orbitals):
    mol, C = orbitals["water"]
    start = np.diag([-1.0, 1, 1, 1, 1]) @ stiefel.SpecialOrthogonal().random(5, 5, seed=2)
    assert localize(mol, C, start=start).value == pytest.approx(BOYS["water"], rel=ORBITAL_ERROR)
    with pytest.raises(ValueError, match="pipek-mezey"):
        localize(mol, C, "edmiston")
    with pytest.raises(TypeError, match="complex"):
        localize(mol, C.astype(complex))


SF6 = "S 0 0 0; F 1.56 0 0; F -1.56 0 0; F 0 1.56 0; F 0 -1.56 0; F 0 0 1.56; F 0 0 -1.56"


@pytest.mark.parametrize(("kind", "most"), [("boys", 800), ("pipek-mezey", 800)])
@pytest.mark.parametrize("method", ["lbfgs", "trust-region"])
def test_preconditioner_saves_evaluations(kind, most, method):
    """Without it these take 1,200 to 11,000 evaluations and products."""
    mol = gto.M(atom=SF6, basis="sto-3g", verbose=0)
    mf = scf.RHF(mol).run()
    found = localize(mol, mf.mo_coeff[:, mf.mo_occ > 0], kind, method=method)
    assert found.result.success
    assert found.result.nfev + found.result.nhev <= most


def test_edmiston_ruedenberg_is_pyscfs(orbitals):
    mol, C = orbitals["water"]
    found = localize(mol, C, "edmiston-ruedenberg")
    optimiser = lo.EdmistonRuedenberg(mol, found.orbitals)
    cost = optimiser.cost_function(np.eye(C.shape[1]))
    assert found.value == pytest.approx(-cost, rel=1e-8)
    assert np.abs(optimiser.get_grad(np.eye(C.shape[1]))).max() < 1e-4


def test_intrinsic_bond_orbitals_are_pyscfs(orbitals):
    mol, C = orbitals["benzene"]
    found = localize(mol, C, "ibo")
    theirs = lo.PipekMezey(mol, C, pop_method="iao")
    theirs.exponent = 4
    rotation = np.linalg.lstsq(C, theirs.kernel(), rcond=None)[0]
    value = DiagonalSquares(matrices(mol, C, "ibo"), 4)(rotation)[0]
    assert found.value <= value + 1e-6 * abs(value)


@pytest.mark.parametrize("power", [2, 4])
def test_derivatives_of_powers(power):
    rng = np.random.default_rng(0)
    M = rng.standard_normal((3, 5, 5))
    objective = DiagonalSquares(M + M.swapaxes(1, 2), power)
    U = stiefel.SpecialOrthogonal().random(5, 5, seed=1)
    check = stiefel.check_gradient(objective, U, manifold=stiefel.SpecialOrthogonal())
    assert check.correct, check
    V, t = rng.standard_normal((5, 5)), 1e-5
    difference = (objective(U + t * V)[1] - objective(U - t * V)[1]) / (2 * t)
    scale = np.abs(difference).max()
    np.testing.assert_allclose(objective.hessp(U, V), difference, atol=1e-6 * scale)

    def turned(angle):
        W = U.copy()
        W[:, 1] = np.cos(angle) * U[:, 1] + np.sin(angle) * U[:, 3]
        W[:, 3] = np.cos(angle) * U[:, 3] - np.sin(angle) * U[:, 1]
        return objective(W)[0]

    second = (turned(1e-3) - 2 * turned(0) + turned(-1e-3)) / 1e-6
    assert objective.curvatures(U)[1, 3] == pytest.approx(second, rel=1e-4)
