"""The formulas of `subproblem`, `normal_system` and `pattern` once more, by the compiled kernels.

For one real matrix of few columns.  What the kernels fill is made here; what they compute stands in
`src/compiled/normal.c` and `proximal.c`, and `tests/test_nonsmooth_compiled.py` compares it with
the formulas.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from stiefel.types import Array


class Normals(NamedTuple):
    """The kernels at the points of one run: n×k matrices, Λ by q coordinates."""

    kernels: Any
    n: int
    k: int
    q: int

    def factor(self, x: Array, weights: Array, delta: float, pseudo: bool) -> Array:
        """Λ ↦ sym XᵀD(XΛ) + δΛ, factorised: numbers for `solve`."""
        system = self._empty_system()
        self.kernels.normal_factor(self._matrix(x), weights, delta, pseudo, system)
        return system

    def solve(self, system: Array, rhs: Array) -> Array:
        """The Λ of one right-hand side, or of several in front."""
        found = np.array(rhs, order="C")
        self.kernels.normal_solve(system, found)
        return found

    def tangent(
        self,
        x: Array,
        mask: Array,
        system: Array,
        v: Array,
        w: Array | None = None,
        L: Array | None = None,
    ) -> Array:
        """P(V − WL − XΛ) with the Λ for which it is tangent; WL is zero if none are given."""
        out = np.empty(x.size)
        self.kernels.tangent_part(self._matrix(x), mask, system, v, w, L, out)
        return out

    def restore(
        self, z: Array, mask: Array, allowed: float, system: Array | None
    ) -> tuple[Array | None, Array]:
        """The point of M_S near z, None if there is none, and the mask of S, which may be fewer."""
        x, fewer = np.empty((2, z.size))
        done = self.kernels.restore_zeros(self._matrix(z), mask, allowed, system, x, fewer)
        return (x if done else None), fewer

    def step(
        self,
        x: Array,
        g: Array,
        t: float,
        weights: Array,
        L: Array,
        memory: tuple[Array | None, Array | None],
        part: float,
    ) -> tuple[Array, Array, Array, Array, float, bool, Array | None]:
        """The fields of a `subproblem.ProximalStep`; ``part`` is −1 for none."""
        z, v = np.empty(x.size), np.empty(x.size)
        M, E, system = np.empty(self.q), np.empty(self.q), self._empty_system()
        residual, solved, stepped = self.kernels.proximal_step(
            self._matrix(x), g, t, weights, L, *memory, part, z, v, M, E, system
        )
        return z, v, M, E, residual, bool(solved), system if stepped else None

    def model(
        self, x: Array, S: Array, Y: Array, L: Array, bold: float, caution: float, sigma: float
    ) -> tuple[float, Array, Array]:
        """σ, the rows of U and K⁻¹ of pairs with raw changes Y; no rows if none has curvature."""
        m = len(S)
        U, K = np.empty((2 * m, x.size)), np.empty(4 * m * m)
        sigma, kept = self.kernels.compact_model(
            self._matrix(x), S, Y, L, bold, caution, sigma, U, K
        )
        return sigma, U[: 2 * kept], K[: 4 * kept * kept].reshape(2 * kept, 2 * kept)

    def _matrix(self, x: Array) -> Array:
        return x.reshape(self.n, self.k)

    def _empty_system(self) -> Array:
        return np.empty(1 + self.q + self.q * self.q)
