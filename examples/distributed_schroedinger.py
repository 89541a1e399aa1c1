"""A distributed run with MPI: a 3-D Schrödinger operator

    mpiexec -n 2 python -m mpi4py examples/distributed_schroedinger.py --points 100

This program computes the lowest states of H = −½Δ + ½|r|² on a cube, by seven-point differences,
with n = points³ unknowns. A rank holds some planes of the grid and exchanges one plane with each
neighbour for each product. The operator is a sum of three one-dimensional ones, so that its
eigenvalues are known exactly. Without mpiexec the same program runs on one rank, as it did for
this page. SLEPc is the tool for plain eigenvalue problems on many machines; here the energy can be
any function.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
from mpi4py import MPI

import stiefel
from stiefel import mpi

BOX = 10.0


class Slab:
    """This rank's planes of the grid, and H on them."""

    def __init__(self, points, comm):
        self.comm, self.points = comm, points
        self.start, self.stop = mpi.row_range(points, comm)
        if points < comm.size:
            raise SystemExit(f"{points} planes do not fill {comm.size} ranks")
        self.h = BOX / (points + 1)
        x = self.h * np.arange(1, points + 1) - BOX / 2
        squares = x[self.start : self.stop, None, None] ** 2 + x[:, None] ** 2 + x**2
        self.diagonal = (3.0 / self.h**2 + 0.5 * squares)[..., None]

    @property
    def rows(self):
        plane = self.points**2
        return self.start * plane, self.stop * plane

    def exchange(self, u):
        """The planes before and after this slab."""
        below = self.comm.rank - 1 if self.comm.rank > 0 else MPI.PROC_NULL
        above = self.comm.rank + 1 if self.comm.rank + 1 < self.comm.size else MPI.PROC_NULL
        before, after = np.zeros_like(u[0]), np.zeros_like(u[0])
        self.comm.Sendrecv(u[-1], dest=above, recvbuf=before, source=below)
        self.comm.Sendrecv(u[0], dest=below, recvbuf=after, source=above)
        return before, after

    def apply(self, X):
        """This rank's rows of H X."""
        p = self.points
        u = np.ascontiguousarray(X).reshape(self.stop - self.start, p, p, -1)
        before, after = self.exchange(u)
        neighbours = np.empty_like(u)
        neighbours[1:] = u[:-1]
        neighbours[0] = before
        neighbours[:-1] += u[1:]
        neighbours[-1] += after
        neighbours[:, 1:] += u[:, :-1]
        neighbours[:, :-1] += u[:, 1:]
        neighbours[:, :, 1:] += u[:, :, :-1]
        neighbours[:, :, :-1] += u[:, :, 1:]
        neighbours *= -0.5 / self.h**2
        neighbours += self.diagonal * u
        return neighbours.reshape(X.shape)

    def energy(self, X):
        """This rank's share of ½ Tr XᵀHX, and its rows of the gradient HX."""
        HX = self.apply(X)
        return 0.5 * np.vdot(X, HX), HX


def exact(points, states):
    """The lowest eigenvalues, from those of the one-dimensional operator."""
    h = BOX / (points + 1)
    x = h * np.arange(1, points + 1) - BOX / 2
    T = np.diag(1.0 / h**2 + 0.5 * x**2) - 0.5 / h**2 * (np.eye(points, k=1) + np.eye(points, k=-1))
    e = np.linalg.eigvalsh(T)[: states + 1]
    return np.sort((e[:, None, None] + e[:, None] + e).ravel())[:states]


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--points", type=int, default=12, help="grid points in each direction")
    parser.add_argument("--states", type=int, default=4)
    parser.add_argument("--rtol", type=float, default=1e-5)
    parser.add_argument("--maxiter", type=int, default=2000)
    parser.add_argument("--checkpoint", default=None)
    given = parser.parse_args()

    comm = MPI.COMM_WORLD
    slab = Slab(given.points, comm)
    n, k = given.points**3, given.states
    X0 = mpi.random_point(n, k, comm=comm, seed=0, rows=slab.rows)
    result = stiefel.minimize(
        slab.energy,
        X0,
        comm=comm,
        manifold=stiefel.Grassmann(),  # the energy depends on the span only
        rtol=given.rtol,
        maxiter=given.maxiter,
        checkpoint=given.checkpoint,
        resume=given.checkpoint is not None,
    )
    small = result.x.T @ slab.apply(result.x)
    comm.Allreduce(MPI.IN_PLACE, small)
    energies = np.linalg.eigvalsh(small)
    if comm.rank == 0:
        print(f"{n} rows on {comm.size} ranks, {k} states: {result.message}")
        print(f"{result.nit} iterations, {result.nfev} evaluations, {result.seconds:.1f} s")
        print("energies:", energies, "error:", np.abs(energies - exact(given.points, k)).max())
        fig, ax = plt.subplots(figsize=(4.6, 2.8), layout="constrained")
        ax.semilogy(result.history["nfev"], result.history["gradient_norm"])
        ax.set(xlabel="evaluations", ylabel="gradient norm", title=f"{n} rows, {comm.size} ranks")
    if result.success:
        assert np.allclose(energies, exact(given.points, k), atol=1e-3)


if __name__ == "__main__":
    main()
