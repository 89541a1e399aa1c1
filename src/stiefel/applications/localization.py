"""Orbital localisation on O(n): Foster–Boys and Pipek–Mezey, with PySCF's own matrices.

    Boys            f(U) = −Σ_i ‖⟨i|r|i⟩‖²          (the spread up to a constant)
    Pipek–Mezey     f(U) = −Σ_i Σ_A ⟨i|P_A|i⟩²

Both are −Σ_x Σ_i (UᵀM_xU)_ii² for symmetric matrices M_x between the orbitals, and the gradient
is −4 Σ_x M_x U diag(UᵀM_xU).  Cost: 2·x·n³ flops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import stiefel
from stiefel.types import Array

KINDS = ("boys", "pipek-mezey")


@dataclass(frozen=True, eq=False)
class Localized:
    """Localised orbitals."""

    orbitals: Array  # (nao, n)
    rotation: Array  # U: orbitals = given orbitals @ U
    value: float  # f, which is minimised
    result: stiefel.Result


@dataclass(frozen=True, eq=False)
class DiagonalSquares:
    """f(U) = −Σ_x Σ_i (UᵀM_xU)_ii² of symmetric matrices M (x, n, n)."""

    M: Array

    def value_and_gradient(self, U: Array) -> tuple[float, Array]:
        MU = self.M @ U
        diagonal = np.einsum("ij,xij->xj", U, MU)
        return -float(np.vdot(diagonal, diagonal)), -4.0 * np.einsum("xij,xj->ij", MU, diagonal)

    __call__ = value_and_gradient


def localize(
    mol: Any,
    orbitals: Array,
    kind: str = "boys",
    *,
    start: Array | int | None = None,
    rtol: float = 1e-7,
    method: Any = "lbfgs",
    progress: bool = False,
) -> Localized:
    """Localise real orbitals (nao, n) of a PySCF molecule; usually the occupied ones.

    ``start`` is an orthogonal matrix (n, n), a seed of a random one, or None for seed 0.  The
    given orbitals themselves are no start: symmetry makes them a saddle as a rule.
    """
    objective = DiagonalSquares(matrices(mol, orbitals, kind))
    n = orbitals.shape[1]
    if start is None or isinstance(start, int):
        start = stiefel.SpecialOrthogonal().random(n, n, seed=start or 0)
    if np.linalg.det(start) < 0:  # the sign of an orbital means nothing
        start = start * np.where(np.arange(n) == 0, -1.0, 1.0)
    result = stiefel.minimize(
        objective,
        start,
        manifold=stiefel.SpecialOrthogonal(),
        method=method,
        rtol=rtol,
        progress=progress,
    )
    return Localized(orbitals @ result.x, result.x, result.fun, result)


def matrices(mol: Any, orbitals: Array, kind: str) -> Array:
    """M_x: the dipole integrals about the centre of charge, or the atoms' Mulliken populations."""
    if kind not in KINDS:
        raise ValueError(f"kind is {kind!r}; expected {' or '.join(map(repr, KINDS))}")
    orbitals = np.asarray(orbitals)
    if orbitals.dtype.kind == "c":
        raise TypeError("the orbitals are complex; localisation here is for real ones")
    if kind == "boys":
        from pyscf.lo.boys import dipole_integral

        return np.ascontiguousarray(dipole_integral(mol, orbitals))
    from pyscf.lo import PipekMezey

    return np.ascontiguousarray(PipekMezey(mol, orbitals).atomic_pops(mol, orbitals))
