"""Compressed modes: localised solutions of a Schrödinger problem by an l1 term, smoothed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stiefel.types import NumpyArray as Array

from ._base import Cast, Objective, real_inner, real_type, row_inner


@dataclass(frozen=True, eq=False)
class CompressedModes(Objective):
    """f(X) = ⟨X, H X⟩ + (√c/μ) Σ_ij sqrt(|X_ij|² + c ε²), H = −½Δ + potential, periodic.

    The scaling: with h_a = lengths_a/shape_a and cell volume c = Π h_a, the functions are
    ψ_j = X_j/√c, so that XᴴX = I says ∫ψ_iψ_j = δ_ij, ⟨X, H X⟩ is Σ∫ψHψ, and the last term is the
    midpoint sum of (1/μ) Σ∫ sqrt(|ψ|² + ε²). So μ and ε mean the same on every grid. Δ is the
    second-order difference stencil in any number of dimensions; the rows of X (n, k), n = Π shape,
    are the grid points in C order. G = 2 H X + (√c/μ) X/sqrt(|X|² + cε²).
    Cost: about 4 passes over X for each dimension and 4 for the l1 term.
    """

    shape: tuple[int, ...]
    lengths: tuple[float, ...]
    mu: float  # μ: large is smooth and spread out, small is localised
    epsilon: float = 1e-3  # ε, in the units of ψ
    potential: Array | None = None  # (n,) or `shape`

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.lengths) or not self.shape or min(self.shape) < 3:
            raise ValueError(
                f"shape {self.shape} and lengths {self.lengths} must have one entry for each "
                "dimension, with at least 3 points in each"
            )
        if not (self.mu > 0 and self.epsilon > 0 and min(self.lengths) > 0):
            raise ValueError("mu, epsilon and the lengths must be positive")
        if self.potential is not None:
            potential = np.asarray(self.potential).reshape(-1)
            if potential.size != self.n:
                raise ValueError(f"the potential has {potential.size} entries; expected {self.n}")
            object.__setattr__(self, "potential", potential)

    @property
    def n(self) -> int:
        """The number of grid points."""
        return math.prod(self.shape)

    @property
    def cell_volume(self) -> float:
        """c = Π h_a; ψ = X/√c."""
        return math.prod(self.lengths) / self.n

    @cached_property
    def _potential(self) -> Cast | None:
        return None if self.potential is None else Cast(np.asarray(self.potential))

    @cached_property
    def _constants(self) -> tuple[float, float, tuple[float, ...]]:
        """√c/μ, c ε², and 1/h² for each dimension."""
        c = self.cell_volume
        spacing = tuple((p / x) ** 2 for p, x in zip(self.shape, self.lengths, strict=True))
        return math.sqrt(c) / self.mu, c * self.epsilon**2, spacing

    def value(self, X: Array) -> float:
        """f(X), the quadratic part as a sum of squared differences; no gradient is formed."""
        f = self._quadratic(X, None)
        weight, delta, _ = self._constants
        return f + weight * float(_smooth_modulus(X, delta).sum())

    def value_and_gradient(self, X: Array) -> tuple[float, Array]:
        """f(X) and G = 2 H X + (√c/μ) X/sqrt(|X|² + cε²)."""
        G = np.zeros(X.shape, X.dtype)
        f = self._quadratic(X, G)
        weight, delta, _ = self._constants
        s = _smooth_modulus(X, delta)
        f += weight * float(s.sum())
        np.divide(weight, s, out=s)
        G += s * X
        return f, G

    def hessp(self, X: Array, V: Array) -> Array:
        """2 H V + (√c/μ) (V/s − X Re(conj(X) V)/s³), s = sqrt(|X|² + cε²), entry by entry."""
        weight, delta, _ = self._constants
        HV = np.zeros(V.shape, V.dtype)
        self._quadratic(V, HV)
        s = _smooth_modulus(X, delta)
        HV += (weight / s) * V
        HV -= (weight / s**3) * (X.conj() * V).real * X
        return HV

    def _quadratic(self, X: Array, G: Array | None) -> float:
        """⟨X, H X⟩, adding 2 H X to G unless it is None."""
        if X.ndim != 2 or X.shape[0] != self.n:
            raise ValueError(f"X has shape {X.shape}; expected ({self.n}, k)")
        real_type(X.dtype)
        f = 0.0
        if self._potential is not None:
            V = self._potential(X.dtype)
            f += float(np.dot(V, row_inner(X, X)))
            if G is not None:
                np.multiply((2 * V)[:, None], X, out=G)
        grid = X.reshape(*self.shape, X.shape[1])
        G_grid = None if G is None else G.reshape(grid.shape)
        for axis, scale in enumerate(self._constants[2]):
            U = np.moveaxis(grid, axis, 0)
            D = np.empty_like(grid)
            D_axis = np.moveaxis(D, axis, 0)
            np.subtract(U[1:], U[:-1], out=D_axis[:-1])
            np.subtract(U[0], U[-1], out=D_axis[-1])
            f += 0.5 * scale * real_inner(D, D)
            if G_grid is not None:
                D *= scale
                G_axis = np.moveaxis(G_grid, axis, 0)
                G_axis -= D_axis
                G_axis[1:] += D_axis[:-1]
                G_axis[0] += D_axis[-1]
        return f


def _smooth_modulus(X: Array, delta: float) -> Array:
    """sqrt(|X|² + delta), real, in the precision of X."""
    if X.dtype.kind == "c":
        s = np.square(X.real)
        s += np.square(X.imag)
    else:
        s = np.square(X)
    s += delta
    return np.asarray(np.sqrt(s, out=s))
