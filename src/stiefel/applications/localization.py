"""Orbital localisation on O(n), with PySCF's own matrices.

    Boys                    f(U) = −Σ_i ‖⟨i|r|i⟩‖²        (the spread up to a constant)
    Pipek–Mezey             f(U) = −Σ_i Σ_A ⟨i|P_A|i⟩²    (P_A: meta-Löwdin populations)
    intrinsic bond orbitals f(U) = −Σ_i Σ_A ⟨i|P_A|i⟩⁴    (P_A: those of intrinsic atomic orbitals)
    Edmiston–Ruedenberg     f(U) = −Σ_i (ii|ii) = −Σ_i Σ_L ⟨i|B_L|i⟩²

with (ij|kl) = Σ_L (B_L)_ij (B_L)_kl.  All are −Σ_x Σ_i A_ii^p, A = UᵀM_xU, for symmetric matrices
M_x between the orbitals.  The gradient is −2p Σ_x M_x U diag(A_ii^(p−1)).  Cost: 2·x·n³ flops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

import stiefel
from stiefel.types import Array

LOCALIZATIONS = ("boys", "pipek-mezey", "ibo", "edmiston-ruedenberg")
POWERS = {"ibo": 4}
FLOOR = 0.002  # of the mean size of the second derivatives
NEGLIGIBLE_INTEGRALS = 1e-12  # of the largest eigenvalue of the integrals (ij|kl)


@dataclass(frozen=True, eq=False)
class Localized:
    """Localised orbitals."""

    orbitals: Array  # (nao, n)
    rotation: Array  # U: orbitals = given orbitals @ U
    value: float  # f, which is minimised
    result: stiefel.Result


class DiagonalSquares:
    """f(U) = −Σ_x Σ_i (UᵀM_xU)_ii^p of symmetric matrices M (x, n, n); p = 2 unless given.

    Newton's method asks for many products at one U; what depends on U alone is kept.
    """

    def __init__(self, M: Array, power: int = 2) -> None:
        self.M, self.power = M, power
        self._at: _Rotated | None = None

    def at(self, U: Array) -> _Rotated:
        """What depends on U alone."""
        if self._at is None or not np.array_equal(self._at.U, U):
            self._at = _Rotated(np.array(U), self.M, self.power)
        return self._at

    def value_and_gradient(self, U: Array) -> tuple[float, Array]:
        at, p = self.at(U), self.power
        value = -float(np.vdot(at.slopes, at.diagonals))
        return value, -2.0 * p * np.einsum("xij,xj->ij", at.MU, at.slopes)

    __call__ = value_and_gradient

    def hessp(self, U: Array, V: Array) -> Array:
        """−2p Σ_x [M_x V diag(a^(p−1)) + 2(p−1) M_x U diag(a^(p−2) diag(UᵀM_xV))]."""
        at, MV, p = self.at(U), self.M @ V, self.power
        b = np.einsum("ij,xij->xj", at.U, MV)
        first = np.einsum("xij,xj->ij", MV, at.slopes)
        second = np.einsum("xij,xj->ij", at.MU, 2.0 * (p - 1) * at.diagonals ** (p - 2) * b)
        return -2.0 * p * (first + second)

    def curvatures(self, U: Array) -> Array:
        """The second derivatives by the angles between the orbitals i and j, (n, n)."""
        return self.at(U).curvatures

    def precond(self, U: Array, G: Array) -> Array:
        """G = U g with a skew g, divided by the size of the second derivatives of every angle."""
        skew = U.T @ G
        return U @ (0.5 * (skew - skew.T) / self.at(U).sizes)


class _Rotated:
    """The matrices between the rotated orbitals, and the second derivatives by single angles."""

    def __init__(self, U: Array, M: Array, power: int) -> None:
        self.U, self.power = U, power
        self.MU = M @ U
        self.diagonals = np.einsum("ij,xij->xj", U, self.MU)
        self.slopes = self.diagonals ** (power - 1)

    @cached_property
    def curvatures(self) -> Array:
        """2(A_ii − A_jj)(φ'_i − φ'_j) − 4A_ij²(φ''_i + φ''_j), φ = A^p, summed over x."""
        A, a, p = self.U.T @ self.MU, self.diagonals, self.power
        slope, bend = p * self.slopes, p * (p - 1) * a ** (p - 2)
        squares = np.einsum("xij,xij,xi->ij", A, A, bend)
        return 2.0 * _differences(a, a, slope, slope) - 4.0 * (squares + squares.T)

    @cached_property
    def sizes(self) -> Array:
        """|curvatures| with a floor: what the preconditioner divides by."""
        H = np.abs(self.curvatures)
        mean = float(H.sum()) / max(len(H) * (len(H) - 1), 1)
        return np.maximum(H, FLOOR * mean or 1.0)


def _differences(a: Array, b: Array, s: Array, t: Array) -> Array:
    """Σ_x (a_i − b_j)(s_i − t_j)."""
    same = np.einsum("xi,xi->i", a, s)
    return same[:, None] + same - a.T @ t - s.T @ b


def localize(
    mol: Any,
    orbitals: Array,
    kind: str = "boys",
    *,
    start: Array | int | None = None,
    rtol: float = 1e-7,
    method: Any = "trust-region",
    precond: bool = True,
    progress: bool = False,
) -> Localized:
    """Localise real orbitals (nao, n) of a PySCF molecule; usually the occupied ones.

    Parameters
    ----------
    mol, orbitals
        The molecule, and the orbitals, orthonormal in its overlap.
    kind
        "boys", "pipek-mezey", "ibo" or "edmiston-ruedenberg".
    start
        An orthogonal matrix (n, n), a seed of a random one, or None for seed 0.  The given
        orbitals themselves are no start: symmetry makes them a saddle as a rule.
    rtol, method, progress
        As for `stiefel.minimize`; the method "trust-region" uses exact products with the Hessian,
        each as dear as an evaluation.
    precond
        Whether steps are divided by the second derivatives of the angles between two orbitals.

    Returns
    -------
    Localized
    """
    power = POWERS.get(kind, 2)
    objective = DiagonalSquares(matrices(mol, orbitals, kind), power)
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
        precond=objective.precond if precond and n > 1 else None,
        rtol=rtol,
        progress=progress,
    )
    return Localized(orbitals @ result.x, result.x, result.fun, result)


def matrices(mol: Any, orbitals: Array, kind: str) -> Array:
    """M_x: dipole integrals about the centre of charge, populations, or factors of (ij|kl)."""
    if kind not in LOCALIZATIONS:
        raise ValueError(f"kind is {kind!r}; expected {' or '.join(map(repr, LOCALIZATIONS))}")
    orbitals = np.asarray(orbitals)
    if orbitals.dtype.kind == "c":
        raise TypeError("the orbitals are complex; localisation here is for real ones")
    makers: dict[str, Callable[[Any, Array], Array]] = {
        "boys": _dipoles,
        "pipek-mezey": lambda mol, C: _populations(mol, C, None),
        "ibo": lambda mol, C: _populations(mol, C, "iao"),
        "edmiston-ruedenberg": _factors,
    }
    return np.ascontiguousarray(makers[kind](mol, orbitals))


def _dipoles(mol: Any, orbitals: Array) -> Array:
    from pyscf.lo.boys import dipole_integral

    return dipole_integral(mol, orbitals)


def _populations(mol: Any, orbitals: Array, method: str | None) -> Array:
    """Of every atom; by PySCF's default method unless one is named."""
    from pyscf.lo import PipekMezey

    return PipekMezey(mol, orbitals).atomic_pops(mol, orbitals, method)


def _factors(mol: Any, orbitals: Array) -> Array:
    """B_L with (ij|kl) = Σ_L (B_L)_ij (B_L)_kl, from the eigenvectors of the integrals."""
    from pyscf import ao2mo

    n = orbitals.shape[1]
    integrals = ao2mo.restore(1, ao2mo.kernel(mol, orbitals), n).reshape(n * n, n * n)
    values, vectors = np.linalg.eigh(integrals)
    kept = values > NEGLIGIBLE_INTEGRALS * values[-1]
    B = (vectors[:, kept] * np.sqrt(values[kept])).T.reshape(-1, n, n)
    return 0.5 * (B + B.swapaxes(1, 2))
