"""How PySCF nests the arrays of a mean-field object, [spin][k-point], and the blocks in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from stiefel.types import Array

SpinAndSample = tuple[int | None, int | None]  # spin, k-point

UNRESTRICTED = {"UHF", "KUHF"}
GENERALISED = {"GHF", "KGHF"}
UNSUPPORTED_OBJECTS = {
    "KROHF": "an unrestricted object (KUHF, KUKS) has the same minimum or a lower one",
    "DHF": "four-component energies have no minimum; a two-component object (x2c) has",
    "KsymAdaptedKSCF": "use k-points without symmetry: cell.make_kpts(mesh)",
}


@dataclass(frozen=True, eq=False)
class Block:
    """One matrix of orbitals: those of one spin at one k-point, and of one irrep with symmetry.

    The orbitals are C = X Y, with the orthonormal functions X (XᴴSX = I) that PySCF keeps of the
    basis: nearly dependent combinations are not among them.
    """

    spin: int | None  # None where both spins share their orbitals
    kpoint: int | None  # None where there is no list of k-points
    label: int | None  # of the irrep, or None
    occupied: int
    X: Array

    @property
    def place(self) -> SpinAndSample:
        return self.spin, self.kpoint

    def of(self, arrays: Any) -> Array:
        """This block's part of arrays nested in PySCF's way."""
        return at_place(arrays, self.place)

    def within(self, F: Array) -> Array:
        """XᴴFX of a matrix in the basis of the atoms."""
        return self.X.conj().T @ (F @ self.X)


def at_place(arrays: Any, place: SpinAndSample) -> Array:
    """The part of arrays nested in PySCF's way that belongs to one spin and k-point."""
    spin, kpoint = place
    part = arrays if spin is None else arrays[spin]
    return np.asarray(part if kpoint is None else part[kpoint])


@dataclass(frozen=True, eq=False)
class OrbitalLayout:
    """The blocks of a mean-field object in PySCF's order: spins outside, k-points inside."""

    spins: int | None  # 2, or None where both share their orbitals
    samples: int | None  # the number of k-points, or None where there is no list of them
    occupation: float  # electrons in an occupied orbital
    blocks: tuple[Block, ...] = ()

    @property
    def kpoints(self) -> int:
        return self.samples or 1

    @cached_property
    def active(self) -> tuple[Block, ...]:
        """The blocks that hold electrons."""
        return tuple(b for b in self.blocks if b.occupied)

    @cached_property
    def confined(self) -> bool:
        """Whether the blocks keep the symmetry of the molecule."""
        return any(b.label is not None for b in self.blocks)

    @property
    def places(self) -> Iterator[SpinAndSample]:
        for spin in range(self.spins) if self.spins else (None,):
            for kpoint in range(self.samples) if self.samples else (None,):
                yield spin, kpoint

    def nest(self, parts: Sequence[Array]) -> Any:
        """One array for each of `places`, nested in PySCF's way."""
        spins: list[Any] = (
            list(parts)
            if self.samples is None
            else [_together(parts[i : i + self.samples]) for i in self._first_samples(parts)]
        )
        return spins[0] if self.spins is None else _together(spins)

    def _first_samples(self, parts: Sequence[Array]) -> range:
        return range(0, len(parts), self.kpoints)

    def density(self, mf: Any, C: Sequence[Array]) -> Any:
        """The density matrices in PySCF's form, tagged with the orbitals they come from.

        Spins with fewer electrons get empty orbitals, so that all matrices have one shape.
        """
        width = max(sum(c.shape[1] for c in self._gather(C, p)) for p in self.places)
        parts, filling = [], []
        for place in self.places:
            orbitals = np.hstack(self._gather(C, place))
            n, k = orbitals.shape
            parts.append(np.hstack([orbitals, np.zeros((n, width - k), orbitals.dtype)]))
            filling.append(np.where(np.arange(width) < k, self.occupation, 0.0))
        return mf.make_rdm1(self.nest(parts), self.nest(filling))

    def _gather(self, C: Sequence[Array], place: SpinAndSample) -> list[Array]:
        found = [c for b, c in zip(self.active, C, strict=True) if b.place == place]
        return found or [np.zeros((C[0].shape[0], 0), C[0].dtype)]

    def sums(self, blocks: Sequence[Block], matrices: Sequence[Array]) -> Array:
        """Matrices of blocks in the basis of the atoms, added at their places; one array."""
        zero = np.zeros_like(matrices[0])
        pairs = list(zip(blocks, matrices, strict=True))
        parts = [sum((m for b, m in pairs if b.place == p), start=zero) for p in self.places]
        return np.asarray(self.nest(parts))

    def filled_as(self, mo_coeff: Any, mo_occ: Any, labels: Any = None) -> OrbitalLayout:
        """This layout with the blocks of orbitals that are occupied as ``mo_occ`` says."""
        blocks: list[Block] = []
        for place in self.places:
            C, filling = at_place(mo_coeff, place), at_place(mo_occ, place)
            kept = np.linalg.norm(C, axis=0) > 0  # PySCF fills removed orbitals with zeros
            occupied = _whole(filling, self.occupation)
            names = None if labels is None else at_place(labels, place)
            for label in (None,) if names is None else np.unique(names):
                mine = kept if names is None else kept & (names == label)
                blocks.append(Block(*place, label, int(occupied[mine].sum()), C[:, mine]))
        return replace(self, blocks=tuple(blocks))


def _together(parts: Sequence[Any]) -> Any:
    """One array, as PySCF's own results have, where the shapes allow it."""
    alike = all(isinstance(p, np.ndarray) and p.shape == parts[0].shape for p in parts)
    return np.stack(parts) if alike else list(parts)


def _whole(filling: Array, occupation: float) -> Array:
    occupied = filling == occupation
    other = filling[~occupied & (filling != 0)]
    if other.size:
        raise ValueError(
            f"an orbital holds {other[0]:.3g} electrons; expected 0 or {occupation:g}: for "
            "fractional occupations use mf.smearing(sigma), or pass smearing=Smearing(sigma)"
        )
    return occupied


def kinds(mf: Any) -> set[str]:
    """The names of the object's classes; two-component ones count as generalised."""
    classes = type(mf).__mro__
    names = {c.__name__ for c in classes}
    if any(c.__module__ == "pyscf.x2c.x2c" and c.__name__ == "SCF" for c in classes):
        return (names - UNRESTRICTED) | {"GHF", "two components"}
    return names


def layout_of(mf: Any) -> OrbitalLayout:
    """The layout of a mean-field object, without its blocks; ``TypeError`` where there is none."""
    names = kinds(mf)
    for name in UNSUPPORTED_OBJECTS.keys() & names:
        raise TypeError(
            f"{type(mf).__name__} is not supported ({name}): {UNSUPPORTED_OBJECTS[name]}"
        )
    if {"two components", "RHF"} <= names:
        raise TypeError(f"{type(mf).__name__} with two components is not supported: use x2c.UHF")
    samples = len(mf.kpts) if "KSCF" in names else None
    spins = 2 if names & UNRESTRICTED else None
    return OrbitalLayout(spins, samples, 1.0 if spins or names & GENERALISED else 2.0)
