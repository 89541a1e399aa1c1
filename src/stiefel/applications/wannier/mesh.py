"""A uniform mesh of k-points, and the differences on it that stand for derivatives by k."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stiefel.types import Array

REACH = 3  # mesh steps along every axis in which neighbours are sought
SAME_LENGTH = 1e-6  # relative, of the neighbours in one shell
INDEPENDENT = 1e-5  # the least singular value of shells that say different things
COMPLETE_STENCIL = 1e-8  # of the identity that Σ w b bᵀ must be


@dataclass(frozen=True, eq=False)
class Mesh:
    """k-points k = Σ_i (j_i/N_i) g_i with neighbours k + b such that Σ_b w_b b bᵀ = I.

    Of every pair ±b one is kept, with twice the weight: both say the same of any function here.
    """

    shape: tuple[int, ...]  # N_i
    reciprocal: Array  # (d, d): the vectors g_i as rows, 2π included
    steps: Array  # (B, d), whole numbers: b in steps of the mesh
    weights: Array  # (B,): 2 w_b

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))

    @cached_property
    def vectors(self) -> Array:
        """b, (B, d)."""
        return (self.steps / self.shape) @ self.reciprocal

    @cached_property
    def cells(self) -> Array:
        """The lattice vectors R of the supercell in which k-sums are periodic, (N, d).

        They are the conjugates of the k-points in NumPy's FFT, those nearest to the origin.
        """
        whole = np.stack(np.meshgrid(*map(_signed, self.shape), indexing="ij"), axis=-1)
        return whole.reshape(self.size, -1) @ self.lattice

    @cached_property
    def lattice(self) -> Array:
        """The lattice vectors as rows: a_i·g_j = 2π δ_ij."""
        return 2.0 * np.pi * np.linalg.inv(self.reciprocal).T

    @cached_property
    def neighbours(self) -> Array:
        """The index of k + b, (B, N)."""
        return self._neighbours(self.steps)

    @cached_property
    def origins(self) -> Array:
        """The index of k − b, (B, N)."""
        return self._neighbours(-self.steps)

    def _neighbours(self, steps: Array) -> Array:
        index = np.indices(self.shape).reshape(len(self.shape), -1)
        there = (index[None] + steps[:, :, None]) % np.reshape(self.shape, (1, -1, 1))
        return np.ravel_multi_index(tuple(np.moveaxis(there, 1, 0)), self.shape)

    @cached_property
    def basis(self) -> Array:
        """Indices of d neighbours from which all steps of the mesh can be made, if there are."""
        d = len(self.shape)
        trials = list(itertools.combinations(range(len(self.steps)), d))
        volumes = [abs(round(float(np.linalg.det(self.steps[list(t)])))) for t in trials]
        return np.array(trials[min(range(len(trials)), key=lambda i: volumes[i] or np.inf)])


def uniform_mesh(shape: Sequence[int], reciprocal: Array | float) -> Mesh:
    """The mesh with N_i k-points along every reciprocal vector (2π included), Γ among them.

    Shells of neighbours of rising length are taken until they are complete to second order; one
    that adds nothing to the shorter ones is left out.

    Examples
    --------
    >>> mesh = uniform_mesh((8,), 2 * np.pi)  # a chain of lattice constant 1
    >>> bool(np.isclose(mesh.weights @ mesh.vectors**2, 1.0)[0])
    True
    """
    shape = tuple(int(n) for n in shape)
    g = np.atleast_2d(np.asarray(reciprocal, dtype=float))
    if g.shape != (len(shape), len(shape)) or min(shape) < 1:
        raise ValueError(
            f"shape {shape} with reciprocal vectors {g.shape}; expected one vector of as many "
            "components for each axis, and at least one k-point along it"
        )
    if np.linalg.matrix_rank(g) < len(shape):
        raise ValueError(f"the reciprocal vectors are dependent: {g.tolist()}")
    steps, tensors = _shells(shape, g)
    kept: list[int] = []
    for shell in range(len(steps)):
        if not _independent(tensors[[*kept, shell]]):
            continue
        kept.append(shell)
        weights = _complete(tensors[kept])
        if weights is not None:
            each = [np.full(len(steps[s]), 2.0 * w) for s, w in zip(kept, weights, strict=True)]
            return Mesh(shape, g, np.vstack([steps[s] for s in kept]), np.concatenate(each))
    raise ValueError(f"no shells of neighbours within {REACH} steps are complete for this lattice")


def _shells(shape: tuple[int, ...], g: Array) -> tuple[list[Array], Array]:
    """Half of the neighbours by rising length, and Σ b bᵀ over both halves, flat."""
    d = len(shape)
    grid = np.array(list(itertools.product(range(-REACH, REACH + 1), repeat=d)))
    half = grid[len(grid) // 2 + 1 :]  # the second half holds −b of every b of the first
    b = (half / shape) @ g
    length = np.linalg.norm(b, axis=1)
    order = np.argsort(length, kind="stable")
    jumps = np.flatnonzero(np.diff(length[order]) > SAME_LENGTH * length[order[:-1]]) + 1
    groups = np.split(order, jumps)
    tensors = np.array([2.0 * (b[i].T @ b[i]).ravel() for i in groups])
    return [half[i] for i in groups], tensors


def _independent(tensors: Array) -> bool:
    scaled = tensors / np.linalg.norm(tensors, axis=1, keepdims=True)
    if len(scaled) > scaled.shape[1]:
        return False
    return bool(np.linalg.svd(scaled, compute_uv=False)[-1] > INDEPENDENT)


def _complete(tensors: Array) -> Array | None:
    """Weights w with Σ w b bᵀ = I, if there are any."""
    d = round(np.sqrt(tensors.shape[1]))
    identity = np.eye(d).ravel()
    weights = np.linalg.lstsq(tensors.T, identity, rcond=None)[0]
    good = np.abs(weights @ tensors - identity).max() < COMPLETE_STENCIL
    return weights if good else None


def _signed(n: int) -> Array:
    return np.rint(np.fft.fftfreq(n) * n)
