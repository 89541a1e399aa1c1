"""Wannier functions: the functional, closed forms of chains, and PySCF's crystals."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import stiefel
from stiefel.applications.wannier import (
    MeanPhases,
    Spread,
    band_overlaps,
    model_overlaps,
    uniform_mesh,
    wannierize,
)
from stiefel.applications.wannier.spread import State, curvatures

LATTICES = {
    "chain": ((8,), [[2.0]]),
    "square": ((4, 4), [[1.0, 0], [0, 1]]),
    "hexagonal": ((4, 4), [[1.0, 0], [0.5, np.sqrt(0.75)]]),
    "oblique": ((3, 4), [[2.0, 0.3], [0.5, 1.7]]),
    "cubic": ((2, 3, 4), np.eye(3)),
    "face-centred": ((2, 2, 2), [[0, 1.0, 1], [1, 0, 1], [1, 1, 0]]),
    "body-centred": ((3, 3, 3), [[-1, 1.0, 1], [1, -1, 1], [1, 1, -1]]),
    "wire in a box": ((1, 1, 8), np.diag([10.0, 10, 2.5])),
    "triclinic": ((2, 2, 2), [[1.0, 0.1, 0.2], [0.3, 1.2, 0.1], [0.2, -0.3, 0.9]]),
}


def mesh_of(name):
    shape, lattice = LATTICES[name]
    return uniform_mesh(shape, 2 * np.pi * np.linalg.inv(np.asarray(lattice)).T)


def chain(ratio, points, seed=0):
    """The lower band of a chain with bonds 1 and ``ratio``, in a random gauge; a = 1."""
    k = 2 * np.pi * np.arange(points) / points
    phase = 1 + ratio * np.exp(1j * k)
    gauge = np.exp(2j * np.pi * np.random.default_rng(seed).random(points))
    vectors = np.stack([gauge, -gauge * phase / np.abs(phase)], axis=1)[:, :, None] / np.sqrt(2)
    return model_overlaps(vectors, uniform_mesh((points,), 2 * np.pi))


@pytest.fixture(scope="module")
def plane():
    """Three bands of five in an oblique plane."""
    rng, mesh = np.random.default_rng(1), mesh_of("oblique")
    angles = 2 * np.pi * np.indices(mesh.shape).reshape(2, -1).T / mesh.shape
    H = np.diag([0, 0.3, 0.5, 3, 4.0]) + np.zeros((mesh.size, 1, 1))
    for i in range(2):
        hop = 0.3 * rng.standard_normal((5, 5)) * np.exp(1j * angles[:, i])[:, None, None]
        H = H + hop + hop.conj().swapaxes(1, 2)
    vectors = np.linalg.eigh(H)[1][:, :, :3]
    return model_overlaps(vectors, mesh, rng.random((5, 2)) @ mesh.lattice)


@pytest.mark.parametrize("name", LATTICES)
def test_neighbours_are_complete_to_second_order(name):
    mesh = mesh_of(name)
    identity = np.einsum("b,bi,bj->ij", mesh.weights, mesh.vectors, mesh.vectors)
    np.testing.assert_allclose(identity, np.eye(len(mesh.shape)), atol=1e-10)
    np.testing.assert_array_equal(mesh.origins[0][mesh.neighbours[0]], np.arange(mesh.size))


def transcription(M, mesh, U, near):
    """Marzari and Vanderbilt's ⟨r²⟩ − ⟨r⟩² in loops, over both b and −b."""
    N, n = U.shape[:2]
    r, square = np.zeros((n, mesh.vectors.shape[1])), np.zeros(n)
    for s, (b, w) in enumerate(zip(mesh.vectors, mesh.weights / 2, strict=True)):
        for k in range(N):
            there = mesh.neighbours[s, k]
            for i in range(n):
                m = U[k][:, i].conj() @ M[s, k] @ U[there][:, i]
                phase = np.angle(m * np.exp(1j * b @ near[i])) - b @ near[i]
                for sign in (1, -1):
                    r[i] -= w * sign * b * sign * phase / N
                    square[i] += w * (1 - abs(m) ** 2 + phase**2) / N
    return r, square - np.sum(r**2, axis=1)


def test_the_spread_is_the_printed_one(plane):
    U = stiefel.Unitary().random(12, 3, 3, seed=0)
    spread = Spread(plane.matrices, plane.mesh, np.zeros((3, 2))).about(U)
    value, _, state = spread(U)
    r, spreads = transcription(plane.matrices, plane.mesh, U, spread.near)
    np.testing.assert_allclose(state.centers, r, atol=1e-10)
    np.testing.assert_allclose(state.spreads, spreads, atol=1e-9)
    parts = spread.invariant() + spread.off_diagonal(U)
    assert parts <= value + 1e-12


@pytest.mark.parametrize("kind", ["mean phases", "spread"])
def test_gradients(kind, plane):
    U = stiefel.Unitary().random(12, 3, 3, seed=2)
    first = MeanPhases(plane.matrices, plane.mesh)
    spread = Spread(plane.matrices, plane.mesh, np.zeros((3, 2))).about(U)
    fun = first if kind == "mean phases" else spread
    check = stiefel.check_gradient(lambda V: fun(V)[:2], U, manifold=stiefel.Unitary())
    assert check.correct, check


def test_curvatures_are_those_of_points():
    """Functions that are single orbitals: mixing two costs the square of their distance."""
    mesh = uniform_mesh((5,), 2 * np.pi)
    given = model_overlaps(np.tile(np.eye(2), (5, 1, 1)), mesh, [[0.1], [0.5]])
    U, t = np.tile(np.eye(2, dtype=complex), (5, 1, 1)), 1e-3
    spread = Spread(given.matrices, mesh, np.zeros((2, 1))).about(U)
    _, _, state = spread(U)
    # spreads of points are 0, and 1 stands for the floor
    H = curvatures(mesh, State(state.centers, np.full(2, 1e-6)))
    k = 2 * np.pi * np.arange(5) / 5
    for cell, (i, j) in ((1, (0, 1)), (4, (0, 1)), (2, (1, 0))):
        turn = np.zeros((5, 2, 2), complex)
        turn[:, i, j] = np.exp(1j * k * cell)
        turn[:, j, i] = -turn[:, i, j].conj()
        values, vectors = np.linalg.eigh(1j * turn)
        moved = (vectors * np.exp(-1j * t * values)[:, None, :]) @ vectors.conj().swapaxes(1, 2)
        assert spread(moved)[0] / t**2 == pytest.approx(2 * H[cell, i, j], rel=1e-3)


def test_one_band_of_a_chain_has_the_closed_form():
    """Ω = Ω_I, and as N → ∞ it is r²/8(1 − r²) with the ratio r of the bonds."""
    exact = 0.36 / 8 / (1 - 0.36)
    errors = []
    for points in (16, 32, 64):
        found = wannierize(chain(0.6, points))
        assert found.result.success
        assert found.spread == pytest.approx(found.invariant, abs=1e-12)
        assert found.diagonal == pytest.approx(0, abs=1e-12)
        assert found.evaluations <= 10  # the curvatures are exact here, on every mesh
        errors.append(exact - found.spread)
    np.testing.assert_allclose(np.divide(errors[:-1], errors[1:]), 4, rtol=0.05)
    assert found.centers == pytest.approx(0, abs=1e-10)
    assert abs(wannierize(chain(1.7, 32)).centers[0, 0]) == pytest.approx(0.5)


def test_functions_have_the_centres_and_spreads_of_the_positions():
    """Position operators between the functions themselves, in a long chain."""
    given = chain(0.5, 64)
    R, w = wannierize(given).functions()
    weight = np.sum(np.abs(w[:, :, 0]) ** 2, axis=1)
    assert weight.sum() == pytest.approx(1)
    mean = weight @ R[:, 0]
    assert mean == pytest.approx(0, abs=1e-8)
    assert weight @ R[:, 0] ** 2 - mean**2 == pytest.approx(0.25 / 8 / 0.75, rel=1e-8)


def test_every_start_finds_the_same_functions_in_few_evaluations(plane):
    """Without the curvatures: 42, and 113 to 128."""
    found = wannierize(plane)
    assert found.evaluations <= 25
    assert found.spread >= found.invariant
    total = found.invariant + found.off_diagonal + found.diagonal
    assert found.spread == pytest.approx(total, abs=1e-12)
    for seed in range(3):
        other = wannierize(plane, start=seed)
        assert other.spread == pytest.approx(found.spread, abs=1e-10)
        assert other.evaluations <= 75


def test_meshes_that_cannot_be():
    with pytest.raises(ValueError, match="one vector"):
        uniform_mesh((2, 2), np.eye(3))
    with pytest.raises(ValueError, match="dependent"):
        uniform_mesh((2, 2), [[1.0, 0.0], [2.0, 0.0]])
    with pytest.raises(ValueError, match="k-points"):
        model_overlaps(np.zeros((3, 2, 1)), uniform_mesh((4,), 1.0))


# -- PySCF ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def diamond():
    gto = pytest.importorskip("pyscf.pbc.gto", reason="PySCF is not installed")
    from pyscf.pbc import dft

    h = 1.7834
    cell = gto.M(
        a=[[0, h, h], [h, 0, h], [h, h, 0]],
        atom=f"C 0 0 0; C {h / 2} {h / 2} {h / 2}",
        basis="gth-szv",
        pseudo="gth-pade",
        mesh=[15] * 3,
        verbose=0,
    )
    return dft.KRKS(cell, cell.make_kpts([2, 2, 2]), xc="lda,vwn").run()


def test_overlaps_are_integrals_over_the_cell(diamond):
    given, cell = band_overlaps(diamond), diamond.cell
    points = cell.get_uniform_grids([21] * 3)
    basis = cell.pbc_eval_gto("GTOval", points, kpts=diamond.kpts)
    bands = [phi @ C[:, :4] for phi, C in zip(basis, diamond.mo_coeff, strict=True)]
    for s, k in ((0, 0), (1, 3), (3, 7)):
        there = bands[given.mesh.neighbours[s, k]]
        turned = np.exp(-1j * points @ given.mesh.vectors[s])[:, None] * there
        integral = bands[k].conj().T @ turned * (cell.vol / len(points))
        np.testing.assert_allclose(given.matrices[s, k], integral, atol=1e-7)


def test_the_functions_of_diamond_are_its_four_bonds(diamond):
    found = wannierize(diamond)
    assert found.evaluations <= 40
    np.testing.assert_allclose(found.spreads, found.spreads[0], rtol=1e-4)
    assert found.diagonal < 1e-6  # inversion
    scaled = found.centers @ np.linalg.inv(diamond.cell.lattice_vectors())
    eighths = np.sort(np.round(8 * scaled).astype(int) % 8, axis=1)
    assert {tuple(e) for e in eighths.tolist()} == {(1, 1, 1), (1, 1, 5)}
    np.testing.assert_allclose(scaled * 8, np.round(scaled * 8), atol=1e-4)
    C, S = found.orbitals, diamond.get_ovlp()
    for k in range(8):
        np.testing.assert_allclose(C[k].conj().T @ S[k] @ C[k], np.eye(4), atol=1e-8)


def test_the_order_of_the_k_points_does_not_matter(diamond):
    order = np.random.default_rng(0).permutation(8)
    other = SimpleNamespace(
        cell=diamond.cell,
        kpts=diamond.kpts[order],
        mo_coeff=np.asarray(diamond.mo_coeff)[order],
        mo_occ=np.asarray(diamond.mo_occ)[order],
        get_ovlp=lambda: np.asarray(diamond.get_ovlp())[order],
    )
    found = wannierize(other)
    assert found.spread == pytest.approx(wannierize(diamond).spread, abs=1e-7)
    again = wannierize(other, start=found.rotation)
    assert again.evaluations <= 6
    np.testing.assert_allclose(found.orbitals, other.mo_coeff[:, :, :4] @ found.rotation)


def test_refusals(diamond):
    mixed = SimpleNamespace(cell=diamond.cell, kpts=diamond.kpts, mo_coeff=diamond.mo_coeff)
    mixed.mo_occ = [np.full(8, 1.0 + (k == 0)) for k in range(8)]
    with pytest.raises(ValueError, match="full bands"):
        wannierize(mixed)
    mixed.kpts = diamond.kpts + np.linspace(0, 0.01, 8)[:, None]
    with pytest.raises(ValueError, match="uniform mesh"):
        wannierize(mixed)
    with pytest.raises(TypeError, match="k-point object"):
        wannierize(SimpleNamespace(mo_coeff=None))


def test_a_molecule_in_a_large_box_has_the_spread_of_boys():
    """The differences by k are good to second order: errors fall as 1/L²."""
    pytest.importorskip("pyscf", reason="PySCF is not installed")
    from pyscf import gto, lo, scf
    from pyscf.pbc import gto as pbc_gto

    atoms = "O 0 0 0; H 0 0.75 0.6; H 0 -0.75 0.6"
    mol = gto.M(atom=atoms, basis="sto-3g", verbose=0)
    mf = scf.RHF(mol).run()
    C = mf.mo_coeff[:, :5]
    # Not every start leads to the smallest spread; the molecular orbitals are a saddle point.
    starts = [C @ stiefel.random_point(5, 5, seed=seed) for seed in range(8)]
    solvers = [lo.Boys(mol, start) for start in starts]
    for solver in solvers:
        solver.init_guess = None
    orbitals = [solver.kernel() for solver in solvers]
    exact = min(lo.Boys(mol, each).cost_function(np.eye(5)) for each in orbitals)
    errors = []
    for length in (12.0, 24.0):
        cell = pbc_gto.M(a=np.eye(3) * length, atom=atoms, basis="sto-3g", verbose=0, mesh=[3] * 3)
        bands = SimpleNamespace(
            cell=cell,
            kpts=np.zeros((1, 3)),
            mo_coeff=[C],
            mo_occ=[np.full(5, 2.0)],
            get_ovlp=lambda: [mol.intor("int1e_ovlp")],
        )
        errors.append(exact - min(wannierize(bands, start=seed).spread for seed in range(1, 4)))
    assert abs(errors[1]) < 0.02 * exact
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.15)
