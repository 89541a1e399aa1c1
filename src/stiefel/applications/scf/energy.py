"""The energy of a PySCF mean-field object as a function of its occupied orbitals."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.linalg

from stiefel import Euclidean, Grassmann, Stiefel
from stiefel.types import Array

from .builder import Build, FockBuilder
from .layout import Block, OrbitalLayout
from .response import Responses

OrbitalPoint = tuple[Array, ...]  # one matrix for each block

GAP_SHIFT = 0.1  # Ha, added to every ε_a − ε_i
LEAST_GAP = 0.2  # Ha; inverted levels would otherwise turn a direction round, or blow it up

KEPT = 4  # Fock matrices, so that the returned point's need not be built again


class Orbitals(NamedTuple):
    """A determinant in PySCF's arrangement."""

    coefficients: Any
    energies: Any
    filling: Any
    labels: Any = None  # of irreps, where the symmetry is kept


class Aux(Protocol):
    """What one evaluation leaves behind."""

    Y: OrbitalPoint
    build: Build


class Ansatz(Protocol):
    """An energy of a PySCF object as a function on a manifold, as `stiefel.minimize` wants it."""

    builder: FockBuilder
    layout: OrbitalLayout
    kind: str

    @property
    def manifold(self) -> tuple[Grassmann | Stiefel | Euclidean, ...]: ...
    def __call__(self, Y: OrbitalPoint) -> tuple[float, OrbitalPoint, Any]: ...
    def precond(self, Y: OrbitalPoint, G: OrbitalPoint, aux: Any) -> OrbitalPoint: ...
    def at(self, Y: OrbitalPoint) -> Any: ...
    def orbitals(self, aux: Any) -> Orbitals: ...
    def point_of(self, mo_coeff: Any, mo_occ: Any) -> OrbitalPoint: ...


class Levels(NamedTuple):
    """What diagonalises F_oo and F_vv of one block, in its orthonormal basis."""

    rotation: Array  # U: the orbitals Y U have the energies ε_i
    virtual: Array  # V, with YᴴV = 0 and VᴴV = I
    occupied_energy: Array  # ε_i
    virtual_energy: Array  # ε_a


@dataclass(frozen=True, eq=False)
class Fock:
    """The Fock matrices at the orbitals Y: what the preconditioner and PySCF want to know."""

    Y: OrbitalPoint
    F: OrbitalPoint  # in the orthonormal bases of the blocks
    build: Build

    @cached_property
    def levels(self) -> tuple[Levels, ...]:
        """For every block; O(n³), once for each point."""
        return tuple(map(levels, self.Y, self.F))


class Recent:
    """The last few evaluations, found again by their point."""

    def __init__(self) -> None:
        self._recent: deque[Any] = deque(maxlen=KEPT)

    def keep(self, value: float, aux: Any) -> None:
        self._recent.append((value, aux))

    def find(self, Y: OrbitalPoint) -> tuple[float, Any] | None:
        for value, aux in self._recent:
            if all(held is y or np.array_equal(held, y) for held, y in zip(aux.Y, Y, strict=True)):
                return value, aux
        return None


class Energy:
    """E(Y) with its gradient and preconditioner, for orbitals C = X Y.

    With D = 2 CCᴴ (one spin: CCᴴ) and dE = Tr F dD, the Euclidean gradient is G = 4 F Y for
    doubly occupied orbitals and 2 F Y for one spin, F = XᴴF_AO X, divided by the number of k-points
    because E belongs to one cell.  Called with the orbitals of all blocks it returns (E, G, aux),
    one Fock build in all, with the `Fock` matrices as aux.
    """

    kind = "orbitals"

    def __init__(self, builder: FockBuilder, layout: OrbitalLayout) -> None:
        self.builder, self.layout = builder, layout
        self._factor = 2.0 * layout.occupation / layout.kpoints
        self._recent, self.responses = Recent(), Responses(builder)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks that hold electrons, in the order of Y."""
        return self.layout.active

    @property
    def manifold(self) -> tuple[Grassmann, ...]:
        """{Y : YᴴY = I}, of which E sees the span, for every block."""
        return tuple(Grassmann() for _ in self.blocks)

    def coefficients(self, Y: OrbitalPoint) -> OrbitalPoint:
        """C = X Y for every block."""
        return tuple(b.X @ y for b, y in zip(self.blocks, Y, strict=True))

    def density(self, Y: OrbitalPoint) -> Any:
        """The density matrices in PySCF's form."""
        return self.layout.density(self.builder.mf, self.coefficients(Y))

    def __call__(self, Y: OrbitalPoint) -> tuple[float, OrbitalPoint, Fock]:
        E, fock = self._recent.find(Y) or self.hold(Y, self.builder(self.density(Y)))
        return E, tuple(self._factor * (f @ y) for f, y in zip(fock.F, Y)), fock

    def hold(self, Y: OrbitalPoint, build: Build) -> tuple[float, Fock]:
        """Keep what a build at Y gave."""
        F = tuple(b.within(b.of(build.matrices)) for b in self.blocks)
        F = tuple(f.astype(y.dtype, copy=False) for f, y in zip(F, Y, strict=True))
        fock = Fock(tuple(Y), F, build)
        self._recent.keep(build.energy, fock)
        return build.energy, fock

    def at(self, Y: OrbitalPoint) -> Fock:
        """The Fock matrices at Y: those held, if Y was evaluated lately, or one build."""
        return self(Y)[2]

    def precond(self, Y: OrbitalPoint, G: OrbitalPoint, aux: Fock) -> OrbitalPoint:
        """Divide the parts G_ai between virtual and occupied levels by 4·(ε_a − ε_i).

        That is the Hessian but for integrals between the orbitals a and i.
        """
        del Y
        return tuple(map(self._divide, aux.levels, G))

    def _divide(self, at: Levels, G: Array) -> Array:
        gap = at.virtual_energy[:, None] - at.occupied_energy
        parts = at.virtual.conj().T @ (G @ at.rotation)
        return at.virtual @ (parts / (self._factor * positive(gap))) @ at.rotation.conj().T

    def hessian_product(self, Y: OrbitalPoint, V: OrbitalPoint) -> OrbitalPoint:
        """dG = factor·(F V + dF Y), with dF for dD = g X(VYᴴ + YVᴴ)Xᴴ: one product of PySCF's."""
        aux = self.at(Y)
        change = self.responses.at(aux, self.orbitals)
        triples = list(zip(self.blocks, V, Y, strict=True))
        dD = self.layout.sums(self.blocks, [_symmetric(b.X @ v, b.X @ y) for b, v, y in triples])
        dF = change(self.layout.occupation * dD)
        return tuple(
            self._factor * (f @ v + b.within(b.of(dF)).astype(y.dtype, copy=False) @ y)
            for (b, v, y), f in zip(triples, aux.F, strict=True)
        )

    def point_of(self, mo_coeff: Any, mo_occ: Any) -> OrbitalPoint:
        """Y of the occupied orbitals among these, which lie in the spaces of the blocks."""
        return tuple(
            self._inverse(b) @ b.of(mo_coeff)[:, self._mine(b, mo_coeff, mo_occ)]
            for b in self.blocks
        )

    def _inverse(self, block: Block) -> Array:
        S = replace(block, spin=None).of(self.builder.overlap)
        return block.X.conj().T @ S

    def _mine(self, block: Block, mo_coeff: Any, mo_occ: Any) -> Array:
        occupied = block.of(mo_occ) > 0
        if block.label is None:
            return occupied
        weight = np.linalg.norm(self._inverse(block) @ block.of(mo_coeff), axis=0)
        return occupied & (weight > 0.5)

    def orbitals(self, aux: Fock) -> Orbitals:
        """Canonical orbitals, occupied and virtual ones by rising energy."""
        found = dict(zip(self.blocks, zip(aux.Y, aux.levels, strict=True), strict=True))
        parts = [self._canonical(b, found.get(b), aux) for b in self.layout.blocks]
        return arranged(self.layout, parts)

    def _canonical(self, block: Block, given: Any, aux: Fock) -> tuple[Block, Array, Array, Array]:
        if given is None:
            Y = np.zeros((block.X.shape[1], 0), block.X.dtype)
            given = Y, levels(Y, block.within(block.of(aux.build.matrices)))
        Y, at = given
        C = block.X @ np.hstack([Y @ at.rotation, at.virtual])
        energies = np.concatenate([at.occupied_energy, at.virtual_energy])
        occupied = np.arange(len(energies)) < block.occupied
        return block, C, energies, np.where(occupied, self.layout.occupation, 0.0)


def _symmetric(A: Array, B: Array) -> Array:
    """ABᴴ + BAᴴ."""
    product = A @ B.conj().T
    return product + product.conj().T


def arranged(layout: OrbitalLayout, parts: Sequence[tuple[Block, Array, Array, Array]]) -> Orbitals:
    """(block, C, ε, occupations) of all blocks, merged and nested in PySCF's way."""
    merged = [_merged([p for p in parts if p[0].place == place]) for place in layout.places]
    C, energies, filling, labels = ([m[i] for m in merged] for i in range(4))
    names = layout.nest(labels) if layout.confined else None
    return Orbitals(layout.nest(C), layout.nest(energies), layout.nest(filling), names)


def _merged(parts: Sequence[tuple[Block, Array, Array, Array]]) -> tuple[Array, ...]:
    C, energies, filling = (np.concatenate([p[i] for p in parts], axis=-1) for i in (1, 2, 3))
    labels = np.concatenate([np.full(len(p[2]), p[0].label or 0) for p in parts])
    order = np.lexsort((energies, filling <= 0))
    C, energies, filling, labels = C[:, order], energies[order], filling[order], labels[order]
    missing = 0 if parts[0][0].kpoint is None else len(C) - C.shape[1]
    if missing:  # removed functions: PySCF's form for k-points is square
        from pyscf.pbc.scf.hf import INVALID_ORBITAL_ENERGY

        C = np.hstack([C, np.zeros((len(C), missing), C.dtype)])
        energies = np.concatenate([energies, np.full(missing, INVALID_ORBITAL_ENERGY)])
        filling = np.concatenate([filling, np.zeros(missing)])
    return C, energies, filling, labels


def positive(gap: Array) -> Array:
    """The gap with a shift and a floor: what the preconditioner divides by."""
    return np.maximum(gap + GAP_SHIFT, LEAST_GAP)


def levels(Y: Array, F: Array) -> Levels:
    """Diagonalise F between the orbitals Y, and between those orthogonal to them.

    The last n − k columns of a full QR of Y span that complement.
    """
    k = Y.shape[1]
    occupied, U = np.linalg.eigh(Y.conj().T @ F @ Y)
    N = complement(Y)
    if not N.shape[1]:
        return Levels(U, N, occupied, occupied[:0])
    virtual, T = np.linalg.eigh(N.conj().T @ F @ N)
    return Levels(U, N @ T, occupied, virtual) if k else Levels(U, T, occupied, virtual)


def complement(Y: Array) -> Array:
    """Orthonormal columns that complete those of Y."""
    k = Y.shape[1]
    return scipy.linalg.qr(Y)[0][:, k:] if k else np.eye(len(Y), dtype=Y.dtype)


EnergyMaker = Callable[[FockBuilder, OrbitalLayout], Ansatz]
