"""Where the minimisation starts: PySCF's own guess, and perturbations of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from stiefel.types import Array

from .canonical import canonical, canonical_levels, probe
from .energy import Energy, FockBuilder
from .layout import layout_of

Orbitals = tuple[Array, ...]


def start(mf: Any, dm0: Any = None) -> tuple[Energy, Orbitals, Orbitals]:
    """(energy, occupied, virtual orbitals) to start from.

    The orbitals of ``mf`` where it has some and ``dm0`` is not given; otherwise those of the Fock
    matrix of ``dm0``, by default PySCF's initial guess, which costs one build.  Both come by rising
    energy and `canonical` within their levels: the two orbitals at the gap are a pair of the same
    direction where their levels are degenerate.
    """
    builder = FockBuilder(mf)
    A = probe(mf.mol, builder.overlap)
    mo_energy, mo_coeff, mo_occ = mf.mo_energy, mf.mo_coeff, mf.mo_occ
    if dm0 is not None or mo_coeff is None or mo_occ is None:
        dm0 = mf.get_init_guess(mf.mol, mf.init_guess) if dm0 is None else dm0
        mo_energy, mo_coeff = mf.eig(builder(dm0)[1], builder.overlap)
        if not mf.mol.symmetry:  # which labels the orbitals, and occupies them by label
            mo_energy, mo_coeff = canonical_levels(mo_energy, mo_coeff, A)
        mo_occ = mf.get_occ(mo_energy, mo_coeff)
    layout = layout_of(mf, mo_occ)
    C, V = [], []
    for block in layout.active:
        orbitals, occupied = block.of(mo_coeff), block.of(mo_occ) > 0
        energies = np.arange(len(occupied)) if mo_energy is None else block.of(mo_energy)
        C.append(canonical(orbitals[:, occupied], energies[occupied], A))
        V.append(canonical(orbitals[:, ~occupied], energies[~occupied], -A))
    return Energy(builder, layout), tuple(C), tuple(V)


def kicked(C: Orbitals, V: Orbitals, fraction: float, seed: Any = None) -> Orbitals:
    """C moved into random virtual orbitals by ``fraction`` of its norm.

    A start with the symmetry of the molecule keeps it, and may end on a saddle; a kick does not.
    """
    rng = np.random.default_rng(seed)
    return tuple(_rotated(c, v, _random(c, v, fraction, rng)) for c, v in zip(C, V, strict=True))


def mixed(C: Orbitals, V: Orbitals, angle: float) -> Orbitals:
    """The highest occupied orbital of the first spin turned by ``angle`` into the lowest virtual.

    The usual way to tell the two spins of a singlet apart.  C and V as `start` gives them: where
    these levels are degenerate, as π and π* are, the pair is chosen there.
    """
    if len(C) != 2 or not V[0].shape[1]:
        raise ValueError(
            f"mix turns the orbitals of one of two spins; this object has {len(C)} block(s) of "
            "orbitals: use an unrestricted molecule (UHF, UKS) with virtual orbitals"
        )
    c = C[0].copy()
    c[:, -1] = np.cos(angle) * C[0][:, -1] + np.sin(angle) * V[0][:, 0]
    return (c, C[1])


def _random(c: Array, v: Array, fraction: float, rng: np.random.Generator) -> Array:
    K = rng.standard_normal((v.shape[1], c.shape[1])).astype(c.dtype)
    if c.dtype.kind == "c":
        K += 1j * rng.standard_normal(K.shape)
    size = float(np.linalg.norm(K))
    return K * (fraction * np.sqrt(c.shape[1]) / size) if size else K


def _rotated(c: Array, v: Array, K: Array) -> Array:
    """(C + V K)(I + KᴴK)^{-1/2}, orthonormal as C and V are."""
    values, vectors = np.linalg.eigh(np.eye(c.shape[1]) + K.conj().T @ K)
    return (c + v @ K) @ (vectors * values**-0.5) @ vectors.conj().T
