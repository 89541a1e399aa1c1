"""The energy of a PySCF mean-field object as a function of its occupied orbitals."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from stiefel import Grassmann
from stiefel.types import Array

from .layout import Block, Layout

Orbitals = tuple[Array, ...]  # one n×n_occ matrix for each block with electrons

GAP_SHIFT = 0.1  # Ha, added to every ε_a − ε_i
LEAST_GAP = 0.2  # Ha; inverted levels would otherwise turn a direction round, or blow it up

KEPT = 4  # Fock matrices, so that the returned point's need not be built again


class Levels(NamedTuple):
    """What diagonalises F_oo and F_vv of one block."""

    rotation: Array  # U: the orbitals C U have the energies ε_i
    virtual: Array  # V, with CᴴSV = 0 and VᴴSV = I
    occupied_energy: Array  # ε_i
    virtual_energy: Array  # ε_a


@dataclass(frozen=True, eq=False)
class Fock:
    """The Fock matrices at the orbitals C: what the preconditioner and PySCF want to know."""

    C: Orbitals
    F: Orbitals
    S: Orbitals
    matrices: Any = None  # all of them, in PySCF's form

    @cached_property
    def levels(self) -> tuple[Levels, ...]:
        """For every block; O(n³), once for each point."""
        return tuple(map(levels, self.C, self.F, self.S))


class FockBuilder:
    """PySCF's Fock matrices, counted."""

    def __init__(self, mf: Any) -> None:
        self.mf, self.builds = mf, 0
        self.core, self.overlap = mf.get_hcore(), mf.get_ovlp()
        self._nuclear = float(mf.energy_nuc())

    def __call__(self, density: Any) -> tuple[float, Any]:
        """(E, F) of density matrices in PySCF's form: one build gives both."""
        mf = self.mf
        self.builds += 1
        potential = mf.get_veff(mf.mol, density)
        electronic = mf.energy_elec(density, self.core, potential)[0]
        F = mf.get_fock(self.core, self.overlap, potential, density)  # bare: no DIIS, no shift
        return float(np.real(electronic)) + self._nuclear, F


class Energy:
    """E(C) with its gradient and preconditioner.

    With D = 2 CCᴴ (one spin: CCᴴ) and dE = Tr F dD, the Euclidean gradient is G = 4 F C for
    doubly occupied orbitals and 2 F C for one spin, divided by the number of k-points because E
    belongs to one cell.  Called with the orbitals of all blocks it returns (E, G, aux), one Fock
    build in all, with the `Fock` matrices as aux.
    """

    def __init__(self, builder: FockBuilder, layout: Layout) -> None:
        self.builder, self.layout = builder, layout
        self._factor = 2.0 * layout.occupation / layout.kpoints
        self._recent: deque[Fock] = deque(maxlen=KEPT)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks that hold electrons, in the order of C."""
        return self.layout.active

    @cached_property
    def S(self) -> Orbitals:
        """The overlap matrix of every block; spins share theirs."""
        return tuple(b._replace(spin=None).of(self.builder.overlap) for b in self.blocks)

    @property
    def manifold(self) -> tuple[Grassmann, ...]:
        """{C : CᴴSC = I}, of which E sees the span, for every block."""
        return tuple(Grassmann(B=S) for S in self.S)

    def __call__(self, C: Orbitals) -> tuple[float, Orbitals, Fock]:
        E, matrices = self.builder(self.layout.density(self.builder.mf, C))
        F = tuple(b.of(matrices).astype(c.dtype, copy=False) for b, c in zip(self.blocks, C))
        G = tuple(self._factor * (f @ c) for f, c in zip(F, C))
        fock = Fock(C, F, self.S, matrices)
        self._recent.append(fock)
        return E, G, fock

    def at(self, C: Orbitals) -> Fock:
        """The Fock matrices at C: those held, if C was evaluated lately, or one build."""
        for fock in self._recent:
            if all(held is c for held, c in zip(fock.C, C, strict=True)):
                return fock
        return self(C)[2]

    def levels(self, fock: Fock) -> list[tuple[Array, Levels]]:
        """(C, levels) of every block of the layout, those without electrons included."""
        given = dict(zip(self.blocks, zip(fock.C, fock.levels, strict=True), strict=True))
        return [given[b] if b in given else self._empty(b, fock) for b in self.layout.blocks]

    def _empty(self, block: Block, fock: Fock) -> tuple[Array, Levels]:
        F, S = block.of(fock.matrices), block._replace(spin=None).of(self.builder.overlap)
        C = fock.C[0][:, :0]
        return C, levels(C, F, S)

    def precond(self, C: Orbitals, G: Orbitals, aux: Fock) -> Orbitals:
        """Divide the parts G_ai between virtual and occupied levels by 4·(ε_a − ε_i).

        That is the Hessian but for integrals between the orbitals a and i.  G comes as a
        direction in the space of points, so that its parts are VᴴSG.
        """
        del C
        return tuple(map(self._divide, aux.levels, aux.S, G))

    def _divide(self, at: Levels, S: Array, G: Array) -> Array:
        gap = at.virtual_energy[:, None] - at.occupied_energy
        hessian = self._factor * np.maximum(gap + GAP_SHIFT, LEAST_GAP)
        parts = at.virtual.conj().T @ (S @ (G @ at.rotation))
        return at.virtual @ (parts / hessian) @ at.rotation.conj().T


def levels(C: Array, F: Array, S: Array) -> Levels:
    """Diagonalise F between the orbitals C, and between those S-orthogonal to them.

    The last n − k columns of a full QR of SC span that complement: no square root of S.
    """
    k = C.shape[1]
    occupied, U = np.linalg.eigh(C.conj().T @ F @ C)
    N = scipy.linalg.qr(S @ C)[0][:, k:] if k else np.eye(len(S))
    if not N.shape[1]:
        return Levels(U, N, occupied, occupied[:0])
    virtual, T = scipy.linalg.eigh(N.conj().T @ F @ N, N.conj().T @ S @ N)
    return Levels(U, N @ T, occupied, virtual)
