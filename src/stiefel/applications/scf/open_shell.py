"""Restricted open shells: doubly and singly occupied orbitals, of one set for both spins."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from stiefel import Stiefel
from stiefel.types import Array

from .builder import Build, FockBuilder
from .energy import OrbitalPoint, Orbitals, Recent, complement, positive
from .layout import Block, OrbitalLayout


class Shells(NamedTuple):
    """Orbitals Y U = [closed, open] and V, and the diagonals of F_α and F_β between them."""

    rotation: Array
    virtual: Array
    alpha: tuple[Array, Array, Array]  # closed, open, virtual
    beta: tuple[Array, Array, Array]


@dataclass(frozen=True, eq=False)
class OpenFock:
    """F_α and F_β at the orbitals Y."""

    Y: OrbitalPoint
    alpha: Array
    beta: Array
    closed: int
    build: Build

    @cached_property
    def shells(self) -> Shells:
        (Y,), c = self.Y, self.closed
        mean = 0.5 * (self.alpha + self.beta)
        U = np.zeros((Y.shape[1], Y.shape[1]), Y.dtype)
        for part, F in ((slice(0, c), mean), (slice(c, None), self.alpha)):
            U[part, part] = np.linalg.eigh(Y[:, part].conj().T @ F @ Y[:, part])[1]
        N = complement(Y)
        V = N @ np.linalg.eigh(N.conj().T @ mean @ N)[1] if N.shape[1] else N
        Z = Y @ U
        spaces = Z[:, :c], Z[:, c:], V
        alpha, beta = (tuple(_diagonal(Q, F) for Q in spaces) for F in (self.alpha, self.beta))
        return Shells(U, V, alpha, beta)  # type: ignore[arg-type]


class OpenShellEnergy:
    """E(Y), Y = [Y_c, Y_o] orthonormal, D_β = C_cC_cᴴ, D_α = D_β + C_oC_oᴴ.

    dE = Tr F_α dD_α + Tr F_β dD_β, so that G = [2(F_α + F_β)Y_c, 2F_αY_o].  E is the same for
    rotations inside Y_c and inside Y_o, and not for those between them: the manifold is Stiefel.
    """

    kind = "open shells"

    def __init__(self, builder: FockBuilder, layout: OrbitalLayout, closed: int) -> None:
        self.builder, self.layout, self.closed = builder, layout, closed
        self._recent = Recent()

    @property
    def block(self) -> Block:
        return self.layout.blocks[0]

    @property
    def manifold(self) -> tuple[Stiefel, ...]:
        return (Stiefel(),)

    def density(self, Y: OrbitalPoint) -> Any:
        filling = np.where(np.arange(Y[0].shape[1]) < self.closed, 2.0, 1.0)
        return self.builder.mf.make_rdm1(self.block.X @ Y[0], filling)

    def __call__(self, Y: OrbitalPoint) -> tuple[float, OrbitalPoint, OpenFock]:
        E, fock = self._recent.find(Y) or self.hold(Y, self.builder(self.density(Y)))
        G = 2.0 * (fock.alpha @ Y[0])
        G[:, : self.closed] += 2.0 * (fock.beta @ Y[0][:, : self.closed])
        return E, (G,), fock

    def hold(self, Y: OrbitalPoint, build: Build) -> tuple[float, OpenFock]:
        F = build.matrices
        fock = OpenFock(
            tuple(Y), self.block.within(F.focka), self.block.within(F.fockb), self.closed, build
        )
        self._recent.keep(build.energy, fock)
        return build.energy, fock

    def at(self, Y: OrbitalPoint) -> OpenFock:
        return self(Y)[2]

    def precond(self, Y: OrbitalPoint, G: OrbitalPoint, aux: OpenFock) -> OrbitalPoint:
        """Divide the parts between the three spaces by the gaps of the spins that change.

        A direction W = Z a + V b moves along 2 Z a + V b; a rotation between closed and open
        orbitals appears twice in a, which cancels that factor.
        """
        at = aux.shells
        Z, g = Y[0] @ at.rotation, G[0] @ at.rotation
        a, b = Z.conj().T @ g, at.virtual.conj().T @ g
        W = Z @ (0.5 * (a - a.conj().T) / self._between(at)) + at.virtual @ (b / self._up(at))
        return (W @ at.rotation.conj().T,)

    def _between(self, at: Shells) -> Array:
        """2(ε_o − ε_c) of the spin β, for closed and open orbitals; 1 inside of the spaces."""
        c, o = len(at.beta[0]), len(at.beta[1])
        H = np.ones((c + o, c + o))
        H[c:, :c] = 2.0 * positive(at.beta[1][:, None] - at.beta[0])
        H[:c, c:] = H[c:, :c].T
        return H

    def _up(self, at: Shells) -> Array:
        alpha = at.alpha[2][:, None] - np.concatenate(at.alpha[:2])
        beta = at.beta[2][:, None] - at.beta[0]
        H = 2.0 * positive(alpha)
        H[:, : len(at.beta[0])] += 2.0 * positive(beta)
        return H

    def point_of(self, mo_coeff: Any, mo_occ: Any) -> OrbitalPoint:
        """[Y_c, Y_o] of orbitals in PySCF's arrangement."""
        filling = np.asarray(mo_occ)
        order = np.concatenate([np.flatnonzero(filling == n) for n in (2, 1)])
        C = np.asarray(mo_coeff)[:, order]
        return (self.block.X.conj().T @ (self.builder.overlap @ C),)

    def orbitals(self, aux: OpenFock) -> Orbitals:
        """PySCF's canonical orbitals: of Roothaan's effective matrix in each of the spaces."""
        Z = np.hstack([aux.Y[0], aux.shells.virtual])
        k = aux.Y[0].shape[1]
        filling = np.zeros(Z.shape[1])
        filling[:k], filling[: self.closed] = 1.0, 2.0
        from pyscf.scf.rohf import canonicalize

        energies, C = canonicalize(self.builder.mf, self.block.X @ Z, filling, aux.build.matrices)
        return Orbitals(C, energies, filling)


def _diagonal(Q: Array, F: Array) -> Array:
    return np.real(np.einsum("pi,pi->i", Q.conj(), F @ Q))
