"""How PySCF nests the arrays of a mean-field object, [spin][k-point], and the blocks in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from stiefel.types import Array

UNRESTRICTED = {"UHF", "KUHF"}
GENERALISED = {"GHF", "KGHF"}
UNSUPPORTED = {"ROHF", "KROHF", "DHF", "KsymAdaptedKSCF"}


class Block(NamedTuple):
    """One matrix of orbitals: those of one spin at one k-point."""

    spin: int | None  # None where both spins share their orbitals
    kpoint: int | None  # None where there is no list of k-points
    occupied: int

    def of(self, arrays: Any) -> Array:
        """This block's part of arrays nested in PySCF's way."""
        part = arrays if self.spin is None else arrays[self.spin]
        return np.asarray(part if self.kpoint is None else part[self.kpoint])


@dataclass(frozen=True)
class Layout:
    """The blocks of a mean-field object in PySCF's order: spins outside, k-points inside."""

    spins: int | None  # 2, or None where both share their orbitals
    samples: int | None  # the number of k-points, or None where there is no list of them
    occupation: float  # electrons in an occupied orbital
    blocks: tuple[Block, ...]

    @property
    def kpoints(self) -> int:
        return self.samples or 1

    @cached_property
    def active(self) -> tuple[Block, ...]:
        """The blocks that hold electrons."""
        return tuple(b for b in self.blocks if b.occupied)

    def nest(self, parts: Sequence[Array]) -> Any:
        """One array for each of `blocks`, nested in PySCF's way."""
        spins: list[Any] = (
            list(parts)
            if self.samples is None
            else [list(parts[i : i + self.samples]) for i in range(0, len(parts), self.samples)]
        )
        if self.spins is None:
            return spins[0]
        # One array for a molecule, as PySCF's own results have; the spins' shapes may differ.
        if self.samples is None and spins[0].shape == spins[1].shape:
            return np.stack(spins)
        return spins

    def density(self, mf: Any, C: tuple[Array, ...]) -> Any:
        """The density matrices in PySCF's form, tagged with the orbitals they come from."""
        given = dict(zip(self.active, C, strict=True))
        empty = np.zeros((C[0].shape[0], 0), C[0].dtype)
        parts = [given.get(b, empty) for b in self.blocks]
        filling = [np.full(c.shape[1], self.occupation) for c in parts]
        return mf.make_rdm1(self.nest(parts), self.nest(filling))


def layout_of(mf: Any, mo_occ: Any) -> Layout:
    """The layout of a mean-field object whose orbitals are occupied as ``mo_occ`` says."""
    names = {c.__name__ for c in type(mf).__mro__}
    for name in UNSUPPORTED & names:
        raise TypeError(
            f"{type(mf).__name__} is not supported ({name}); expected RHF, UHF, GHF, RKS, UKS, GKS "
            "or their k-point versions: an unrestricted object has the same minimum or a lower one"
        )
    samples = len(mf.kpts) if "KSCF" in names else None
    spins = 2 if names & UNRESTRICTED else None
    occupation = 1.0 if spins or names & GENERALISED else 2.0
    blocks = tuple(
        _block(Block(s, q, 0), mo_occ, occupation)
        for s in (range(2) if spins else (None,))
        for q in (range(samples) if samples else (None,))
    )
    return Layout(spins, samples, occupation, blocks)


def _block(block: Block, mo_occ: Any, occupation: float) -> Block:
    filling = block.of(mo_occ)
    occupied = filling == occupation
    if not np.all(occupied | (filling == 0)):
        raise ValueError(
            f"an orbital holds {filling[~occupied & (filling != 0)][0]:.3g} electrons; expected 0 "
            f"or {occupation:g}: direct minimisation needs whole occupations, without smearing"
        )
    return block._replace(occupied=int(occupied.sum()))
