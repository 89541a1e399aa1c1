"""Λ ↦ herm XᴴD(XΛ), the matrix of the multipliers, to be solved.

A factorisation a matrix, or conjugate gradients where k is large; a division where X is a vector.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import scipy

from stiefel.types import Array

from .compiled import Normals
from .space import DENSE_COLUMNS, OneMatrix, OneVector, Space, column_pairs, hermitian_basis
from .terms import Diagonal, Linear

SINGULAR = 1e-12  # of the largest eigenvalue


def normal_system(
    space: Space, x: Array, D: Linear, delta: float = 0.0, pseudo: bool = False
) -> NormalSystem:
    """Λ ↦ herm XᴴD(XΛ) + δΛ.  ``pseudo``: where it is singular, its pseudo-inverse solves it."""
    if space.compiled is not None and isinstance(D, Diagonal):
        numbers = space.compiled.factor(x, D.weights, delta, pseudo)
        return CompiledSystem(space.compiled, x, numbers)
    if isinstance(space, OneMatrix) and space.columns <= DENSE_COLUMNS:
        return MatrixSystem(space, x, D, delta, pseudo)
    if isinstance(space, OneVector) and isinstance(D, Diagonal):
        return NumberSystem(space, x, D, delta, pseudo)
    return NormalSystem(space, x, D, delta, pseudo)


class NormalSystem:
    """The system of any point: by a factorisation a matrix, or by conjugate gradients."""

    def __init__(self, space: Space, x: Array, D: Linear, delta: float, pseudo: bool) -> None:
        self.space, self.x, self.D, self.delta = space, x, D, delta
        self.dense = space.columns <= DENSE_COLUMNS
        if self.dense:
            self._factorise(delta, pseudo)

    def _factorise(self, delta: float, pseudo: bool) -> None:
        blocks = dense_blocks(self.space, self.x, self.D)
        for b in blocks:
            np.einsum("...ii->...i", b)[...] += delta
        self._solvers = [_solver(b, pseudo) for b in blocks]

    def apply(self, L: Array) -> Array:
        s = self.space
        return s.gather(self.x, self.D(s.normal(self.x, L))) + self.delta * L

    def solve(self, rhs: Array) -> Array:
        """The Λ of one right-hand side, or of several in front."""
        if not self.space.duals.size:
            return np.zeros_like(rhs)
        if self.dense:
            return self._solve_blocks(rhs)
        if rhs.ndim > 1:
            return np.stack([self.solve(r) for r in rhs])
        return semidefinite_solution(self.apply, rhs, 1e-14, 2 * self.space.columns + 50)

    def _solve_blocks(self, rhs: Array) -> Array:
        parts, rows = [], rhs.reshape(-1, rhs.shape[-1])
        duals = self.space.duals
        for M, solve, dtype in zip(duals.split(rows), self._solvers, duals.dtypes):
            E = hermitian_basis(M.shape[-1], np.dtype(dtype).kind == "c")
            flat = M.reshape(*M.shape[:-2], -1)
            flat = np.ascontiguousarray(flat).view(float) if flat.dtype.kind == "c" else flat
            c = solve(np.moveaxis(flat @ E.T, 0, -1))  # (b, q, r)
            back = np.ascontiguousarray(np.moveaxis(c, -1, 0) @ E)
            back = back.view(complex) if np.dtype(dtype).kind == "c" else back
            parts.append(back.reshape(M.shape))
        return duals.join(parts).reshape(rhs.shape)


class MatrixSystem(NormalSystem):
    """The system of one real matrix, in the coordinates that Λ has there."""

    def _factorise(self, delta: float, pseudo: bool) -> None:
        if isinstance(self.D, Diagonal):
            W = self.D.weights.reshape(-1, self.space.columns)
            block = _masked_blocks(self.space.products(self.x)[0], W)
        else:
            block = dense_blocks(self.space, self.x, self.D)[0][0]
        if delta:
            block.reshape(-1)[:: len(block) + 1] += delta
        self.solve_columns = _block_solver(block, pseudo)

    def solve(self, rhs: Array) -> Array:
        return self.solve_columns(rhs.T).T


class CompiledSystem(NormalSystem):
    """The system of one real matrix, as the kernels have factorised it."""

    dense = True

    def __init__(self, kernels: Normals, x: Array, numbers: Array) -> None:
        self._kernels, self.x, self.numbers = kernels, x, numbers

    def solve(self, rhs: Array) -> Array:
        return self._kernels.solve(self.numbers, rhs)

    def tangent(
        self, mask: Array, v: Array, w: Array | None = None, L: Array | None = None
    ) -> Array:
        """P(V − WL − XΛ), tangent: the system is that of the mask."""
        return self._kernels.tangent(self.x, mask, self.numbers, v, w, L)


class NumberSystem(NormalSystem):
    """The system of one vector: Σ Dx² + δ, a number."""

    def _factorise(self, delta: float, pseudo: bool) -> None:
        own = float((self.D.weights * self.x) @ self.x)  # type: ignore[attr-defined]
        self._inverse = 1.0 / (own + delta) if own + delta > 0.0 else 0.0

    def solve(self, rhs: Array) -> Array:
        return self._inverse * rhs


def _solver(block: Array, pseudo: bool) -> Linear:
    """right-hand side (b, q, r) ↦ the solution, of b blocks."""
    if block.shape[0] > 1 or block.shape[-1] == 0:
        inverse = np.linalg.pinv(block, SINGULAR, True) if pseudo else np.linalg.inv(block)
        return lambda c: inverse @ c
    solve = _block_solver(block[0], pseudo)
    return lambda c: solve(c[0])[None]


def _block_solver(block: Array, pseudo: bool) -> Linear:
    """right-hand side (q) or (q, r) ↦ the solution, of one symmetric block."""
    dead = None
    if pseudo:
        own = block.diagonal()
        dead = np.flatnonzero(own <= SINGULAR * own.max())
        if dead.size:  # columns without a common row; then all of the row is zero
            block = block.copy()
            block[dead, dead] += 1.0
    factor, failed = scipy.linalg.lapack.dpotrf(block.T, 1, 0)
    pivots = factor.diagonal().tolist()
    if failed or min(pivots) ** 2 <= SINGULAR * max(pivots) ** 2:
        inverse = np.linalg.pinv(block, SINGULAR, True)
        return lambda c: inverse @ c

    def solve(c: Array) -> Array:
        found = scipy.linalg.lapack.dpotrs(factor, c, 1)[0]
        if dead is not None and dead.size:
            found[dead] = 0.0
        return found  # type: ignore[no-any-return]

    return solve


def dense_blocks(space: Space, x: Array, D: Linear) -> list[Array]:
    """The matrices of Λ ↦ herm XᴴD(XΛ) in `hermitian_basis`, (b, q, q) for every leaf."""
    real = all(np.dtype(d).kind != "c" for d in space.points.dtypes)
    if isinstance(D, Diagonal) and real:
        masks = space.matrices(D.weights)
        return [_masked_blocks(P, W) for P, W in zip(space.products(x), masks)]
    blocks = []
    for i, dtype in enumerate(space.duals.dtypes):
        is_complex = np.dtype(dtype).kind == "c"
        b, k, _ = space.duals.shapes[i]
        E = hermitian_basis(k, is_complex)
        parts = [
            np.zeros((len(E), *s), dtype=complex if np.dtype(d).kind == "c" else float)
            for s, d in zip(space.duals.shapes, space.duals.dtypes)
        ]
        basis = (E.view(complex) if is_complex else E).reshape(len(E), 1, k, k)
        parts[i] = np.broadcast_to(basis, (len(E), b, k, k))
        L = space.duals.join(parts)
        image = space.duals.split(space.gather(x, D(space.normal(x, L))))[i]
        flat = np.ascontiguousarray(image.reshape(len(E), b, k * k))
        flat = flat.view(float) if is_complex else flat
        blocks.append(np.moveaxis(flat, 0, 1) @ E.T)
    return blocks


def _masked_blocks(P: Array, W: Array) -> Array:
    """With D a diagonal, column j of XᵀD(XΛ) is (Xᵀ diag(w_j) X) Λ_j: k Gram matrices; nk³.

    ``P`` has the products of two columns of X.  ⟨E_p, XᵀD(XE_q)⟩ is an entry of a Gram matrix for
    every index that p and q have in common: one, or two on the diagonal.
    """
    k, q = W.shape[-1], P.shape[-1]
    grams = W.swapaxes(-1, -2) @ P
    grams = grams.reshape(*grams.shape[:-2], k * q)  # (..., j pairs)
    place, weight, second, own = _assembly(k)
    blocks = grams.take(place, axis=-1)
    blocks *= weight
    blocks.reshape(*grams.shape[:-1], q * q)[..., :: q + 1] += grams.take(second, axis=-1) * own
    return blocks  # type: ignore[no-any-return]


@cache
def _assembly(k: int) -> tuple[Array, Array, Array, Array]:
    """Where ⟨E_p, XᵀD(XE_q)⟩ = Σ_j E_p[i, j] G_j[i, l] E_q[l, j] is in the G_j, and its weight.

    Both for all p, q, and for the second index that p = q has in common.
    """
    pairs = list(zip(*(index.tolist() for index in column_pairs(k))))
    number = {pair: p for p, pair in enumerate(pairs)}
    place, weight = np.zeros((2, len(pairs), len(pairs)))
    second, own = np.zeros((2, len(pairs)))
    for p, (a, b) in enumerate(pairs):
        for q, (c, d) in enumerate(pairs):
            for count, j in enumerate({a, b} & {c, d}):
                i, m = a + b - j, c + d - j
                entry = j * len(pairs) + number[max(i, m), min(i, m)]
                size = math.sqrt((1.0 if a == b else 0.5) * (1.0 if c == d else 0.5))
                if count:
                    second[p], own[p] = entry, size
                else:
                    place[p, q], weight[p, q] = entry, size
    return place.astype(int), weight, second.astype(int), own


def semidefinite_solution(apply: Linear, rhs: Array, tolerance: float, most: int) -> Array:
    """The solution of a positive semidefinite system, to a relative residual."""
    y, r = np.zeros_like(rhs), rhs.copy()
    p, rr = r.copy(), float(r @ r)
    target = tolerance**2 * rr
    for _ in range(most):
        if rr <= target or rr == 0.0:
            break
        Ap = apply(p)
        curvature = float(p @ Ap)
        if not curvature > 0:
            break
        alpha = rr / curvature
        y, r = y + alpha * p, r - alpha * Ap
        rr, old = float(r @ r), rr
        p = r + (rr / old) * p
    return y
