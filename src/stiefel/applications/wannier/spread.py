"""The spread of Wannier functions as a function of the gauge, and two of its relatives.

With M = ⟨u_mk|u_n,k+b⟩, a unitary U_k for every k-point, m = (U_kᴴ M U_{k+b})_nn and its phase φ,

    r_n = −(1/N) Σ_kb w b φ,        Ω = (1/N) Σ_kb w Σ_n (1 − |m|² + q²),      q = φ + b·r_n

(Marzari and Vanderbilt 1997, their Ω with the square completed, so that no large squares of
positions cancel).  dΩ = Re ⟨g, dm⟩ with g = (2w/N)(−m + iq/m̄), and dm = dU_kᴴ M U_{k+b} + U_kᴴ M
dU_{k+b}.  One evaluation costs 4·B·N products of n×n matrices.

The phase has a branch; it is taken nearest to −b·c_n with given centres c.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy.fft

from stiefel.types import Array

from .mesh import Mesh

SPREAD_FLOOR = 0.5  # of the mean spread; see `curvatures`
LEAST_MODULUS = 1e-8  # |m| where a phase means nothing, and its derivative is infinite


class State(NamedTuple):
    """What an evaluation knows."""

    centers: Array  # r_n, (n, d)
    spreads: Array  # of every function


@dataclass(frozen=True, eq=False)
class MeanPhases:
    """f(U) = Σ_b w Σ_n (1 − |z_nb|²), z = (1/N) Σ_k m: near Ω, a polynomial, without branches.

    For one k-point it is Silvestrelli's function; the first stage from any start.
    """

    M: Array  # (B, N, n, n)
    mesh: Mesh

    def __call__(self, U: Array) -> tuple[float, Array, State]:
        MU, m = _diagonals(self.M, self.mesh, U)
        z = m.mean(axis=1)
        w = self.mesh.weights[:, None]
        spreads = np.sum(w * (1.0 - np.abs(z) ** 2), axis=0)
        g = np.broadcast_to((-2.0 * w * z / self.mesh.size)[:, None, :], m.shape)
        state = State(centers_of(z, self.mesh), spreads)
        return float(spreads.sum()), _gradient(self.M, self.mesh, U, MU, g), state

    def precond(self, U: Array, G: Array, aux: State) -> Array:
        return divided(self.mesh, U, G, aux)


@dataclass(frozen=True, eq=False)
class Spread:
    """Ω(U), with the branches of the phases by the centres ``near`` (n, d)."""

    M: Array
    mesh: Mesh
    near: Array

    def __call__(self, U: Array) -> tuple[float, Array, State]:
        mesh = self.mesh
        MU, m = _diagonals(self.M, mesh, U)
        q, state = self._phases(m)
        size = np.maximum(np.abs(m), LEAST_MODULUS)
        g = (2.0 / mesh.size) * mesh.weights[:, None, None] * (-m + 1j * q * m / size**2)
        return float(state.spreads.sum()), _gradient(self.M, mesh, U, MU, g), state

    def _phases(self, m: Array) -> tuple[Array, State]:
        mesh, w = self.mesh, self.mesh.weights
        turn = mesh.vectors @ self.near.T  # b·c, (B, n)
        angle = np.angle(m * np.exp(1j * turn)[:, None, :])  # φ + b·c
        shift = -np.einsum("b,bd,bkn->nd", w, mesh.vectors, angle) / mesh.size  # r − c
        q = angle + (mesh.vectors @ shift.T)[:, None, :]
        spreads = np.einsum("b,bkn->n", w, 1.0 - np.abs(m) ** 2 + q * q) / mesh.size
        return q, State(self.near + shift, spreads)

    def precond(self, U: Array, G: Array, aux: State) -> Array:
        return divided(self.mesh, U, G, aux)

    def about(self, U: Array) -> Spread:
        """The same with branches by the mean phases at U."""
        z = _diagonals(self.M, self.mesh, U)[1].mean(axis=1)
        return replace(self, near=centers_of(z, self.mesh))

    def invariant(self) -> float:
        """Ω_I, which no gauge changes, and below which no spread is."""
        n, w = self.M.shape[-1], self.mesh.weights
        lost = n - np.sum(np.abs(self.M) ** 2, axis=(2, 3))
        return float(w @ lost.mean(axis=1))

    def off_diagonal(self, U: Array) -> float:
        """Ω_OD = (1/N) Σ w Σ_{m≠n} |M_mn|²; what is left of Ω is Ω_D = (1/N) Σ w q²."""
        turned = U.conj().swapaxes(-1, -2) @ (self.M @ U[self.mesh.neighbours])
        total = np.abs(turned) ** 2
        outside = total.sum(axis=(2, 3)) - np.einsum("bknn->bk", total)
        return float(self.mesh.weights @ outside.mean(axis=1))


def centers_of(z: Array, mesh: Mesh) -> Array:
    """r_n with b·r_n = −arg z_nb: from d neighbours exactly, then from all in the mean.

    d of them decide the branches of the others: a sum of two b has the sum of their phases.
    """
    chosen = mesh.basis
    first = np.linalg.solve(mesh.vectors[chosen], -np.angle(z[chosen]))  # (d, n)
    rest = np.angle(z * np.exp(1j * (mesh.vectors @ first)))
    return (first - np.einsum("b,bd,bn->dn", mesh.weights, mesh.vectors, rest)).T


def _diagonals(M: Array, mesh: Mesh, U: Array) -> tuple[Array, Array]:
    """M U_{k+b}, and m."""
    MU = M @ U[mesh.neighbours]
    return MU, np.einsum("kin,bkin->bkn", U.conj(), MU)


def _gradient(M: Array, mesh: Mesh, U: Array, MU: Array, g: Array) -> Array:
    """Re ⟨G, dU⟩ = Σ Re ⟨g, dm⟩."""
    G = np.einsum("bkin,bkn->kin", MU, g.conj())
    back = (M.conj().swapaxes(-1, -2) @ U) * g[:, :, None, :]  # belongs to k + b
    for b, origin in enumerate(mesh.origins):
        G += back[b, origin]
    return G


def curvatures(mesh: Mesh, state: State) -> Array:
    """Second derivatives of Ω·N/2 where functions do not overlap, (N, n, n) over cells R.

    U_k → U_k exp(W_k) with W_k = Σ_R W_R exp(ik·R) mixes functions at the distance
    d = R + r_n − r_m.  Where both are points that adds Σ_b 2w (1 − cos b·d) ≈ |d|² to the spread.
    The floor stands for the overlap of functions that are near each other.
    """
    r = state.centers
    d = mesh.cells[:, None, None, :] + r - r[:, None, :]
    angle = np.einsum("bx,kmnx->bkmn", mesh.vectors, d)
    H = np.einsum("b,bkmn->kmn", mesh.weights, 2.0 * (1.0 - np.cos(angle)))
    return np.maximum(H, SPREAD_FLOOR * float(np.mean(state.spreads)) or 1.0)


def divided(mesh: Mesh, U: Array, G: Array, state: State) -> Array:
    """G = U_k g_k with skew g, divided by the curvatures in the space of lattice vectors."""
    skew = U.conj().swapaxes(-1, -2) @ G
    skew = 0.5 * (skew - skew.conj().swapaxes(-1, -2))
    axes = tuple(range(len(mesh.shape)))
    on_mesh = skew.reshape(*mesh.shape, *skew.shape[1:])
    H = curvatures(mesh, state).reshape(on_mesh.shape)
    turned = scipy.fft.ifftn(scipy.fft.fftn(on_mesh, axes=axes) / H, axes=axes)
    return (0.5 * mesh.size) * (U @ turned.reshape(skew.shape))
