"""Wannier functions of bands: a chain, and the bonds of diamond

This recipe finds maximally localised functions from the bands at many k-points, in whatever phases
the eigensolver left them. The chain has a closed form to compare with. The second half needs the
extra `[chem]`.
"""

import sys

import numpy as np
from pyscf.pbc import dft, gto

from stiefel.applications.wannier import model_overlaps, uniform_mesh, wannierize

# A chain with bonds 1 and 0.6: one band, in whatever phases the eigensolver left it.
k = 2 * np.pi * np.arange(64) / 64
H = np.zeros((64, 2, 2), complex)
H[:, 0, 1] = 1 + 0.6 * np.exp(-1j * k)
H[:, 1, 0] = H[:, 0, 1].conj()
band = np.linalg.eigh(H)[1][:, :, :1]
found = wannierize(model_overlaps(band, uniform_mesh((64,), 2 * np.pi)))
exact = 0.36 / (8 * (1 - 0.36))
print(f"chain: spread {found.spread:.6f}; with infinitely many k-points {exact:.6f}")
assert abs(found.spread - exact) < 1e-3

# Diamond: four bands, four bonds.
h = 1.7834
cell = gto.M(
    a=[[0, h, h], [h, 0, h], [h, h, 0]],
    atom=f"C 0 0 0; C {h / 2} {h / 2} {h / 2}",
    basis="gth-szv",
    pseudo="gth-pade",
    mesh=[15] * 3,
    verbose=0,
)
mf = dft.KRKS(cell, cell.make_kpts([3, 3, 3]), xc="lda,vwn").run()
bonds = wannierize(mf)
print(f"diamond: {bonds.evaluations} evaluations, spreads in Bohr²: {bonds.spreads.round(4)}")
print(f"of {bonds.spread:.4f} no gauge can change {bonds.invariant:.4f}")
assert np.ptp(bonds.spreads) < 1e-3


def along_the_bonds(found, number, points):
    """The function ``number`` at points of space: a sum over the atoms of all cells."""
    R, w = found.functions()
    values = [cell.to_mol().eval_gto("GTOval", points - shift) @ c for shift, c in zip(R, w)]
    psi = sum(v[:, number] for v in values)
    return (psi * np.exp(-1j * np.angle(psi[np.argmax(np.abs(psi))]))).real


def tail(found):
    """Weight of the functions by the distance of the cell, the largest at each distance."""
    R, w = found.functions()
    return np.linalg.norm(R, axis=1), np.linalg.norm(w, axis=(1, 2))


def draw(path):
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4), layout="constrained")
    x, z = np.meshgrid(np.linspace(-5.5, 5.5, 111), np.linspace(-5.5, 5.5, 111))
    atoms = cell.atom_coords()
    middle = atoms[1] / 2  # of the bond between the two atoms of the cell
    toward = (bonds.centers - middle) @ np.linalg.inv(cell.lattice_vectors())
    number = int(np.argmin(np.abs(toward - toward.round()).sum(axis=1)))
    across = np.array([1.0, 1, 0]) / np.sqrt(2)  # this plane holds two of the four bonds
    points = bonds.centers[number] + x[..., None] * across + z[..., None] * np.array([0, 0, 1.0])
    psi = along_the_bonds(bonds, number, points.reshape(-1, 3)).reshape(x.shape)
    most = np.abs(psi).max()
    filled = left.contourf(x, z, psi, np.linspace(-most, most, 25), cmap="RdBu_r")
    figure.colorbar(filled, ax=left, label="w(r)", format="%.1f")
    for atom in atoms:
        for n in np.ndindex(5, 5, 5):
            place = atom + (np.array(n) - 2) @ cell.lattice_vectors() - bonds.centers[number]
            if abs(place @ np.cross(across, [0, 0, 1])) < 1e-3:
                left.plot(place @ across, place[2], "ko", markersize=5)
    left.set(xlim=(-5.5, 5.5), ylim=(-5.5, 5.5), xlabel="along [110], Bohr", ylabel="along [001]")
    left.set_title("One of four bonds of diamond")
    rough = wannierize(mf, start=0, maxfun=1)
    for name, one, mark in (("random gauge", rough, "x"), ("minimal spread", bonds, "o")):
        right.semilogy(*tail(one), mark, label=name)
    right.set(xlabel="distance of the cell, Bohr", ylabel="norm of the coefficients in it")
    right.set_title("How fast the functions fall")
    right.legend()
    if path:
        figure.savefig(path, dpi=110)


draw(sys.argv[1] if len(sys.argv) > 1 else None)
