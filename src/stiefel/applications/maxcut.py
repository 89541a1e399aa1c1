"""The max-cut relaxation in its low-rank form, with its dual bound and a rounded cut.

    max ¼ tr(Y L Yᵀ)   over unit vectors y_i in Rᵖ,      L the Laplacian of the graph.

With p > sqrt(2m) almost no graph has local minima that are not global.  The dual slack matrix is
Diag(z) − ¼L with z_i = ¼⟨y_i, (LY)_i⟩; every cut is at most Σz + m·max(0, −λ_min).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

import stiefel
from stiefel.objectives import MaxCut
from stiefel.types import Array

from .certificate import Certificate, smallest_eigenvalue


@dataclass(frozen=True, eq=False)
class Cut:
    """The relaxation's solution and a cut rounded from it."""

    value: float  # of the relaxation: no cut is larger than certificate.bound
    certificate: Certificate
    sides: Array  # ±1 for each node
    cut_value: float  # the total weight of the edges that are cut
    result: stiefel.Result


def max_cut(
    graph: Any,
    *,
    rank: int | None = None,
    rounds: int = 100,
    seed: Any = 0,
    rtol: float = 1e-9,
    method: Any = "lbfgs",
    progress: bool = False,
) -> Cut:
    """Solve the relaxation, certify it, and round it to a cut.

    Parameters
    ----------
    graph
        A symmetric matrix of weights (dense or sparse), a `MaxCut` objective, or a networkx graph.
    rank
        p; ceil(sqrt(2m)) + 1 unless given.
    rounds
        Random hyperplanes to try; each cut is improved by moving single nodes.
    seed
        Of the start and of the hyperplanes.
    """
    problem = _problem(graph)
    L = scipy.sparse.csr_array(problem.L)
    m = L.shape[0]
    p = rank or math.ceil(math.sqrt(2 * m)) + 1
    rng = np.random.default_rng(seed)
    start = stiefel.random_point(m, p, 1, seed=rng)
    result = stiefel.minimize(problem, start, method=method, rtol=rtol, progress=progress)
    sides = max(
        (improved(L, MaxCut.cut(result.x, rng)) for _ in range(max(rounds, 1))),
        key=lambda s: cut_value(L, s),
    )
    certificate = certify(L, result.x)
    return Cut(-result.fun, certificate, sides, cut_value(L, sides), result)


def certify(L: Any, X: Array) -> Certificate:
    """The dual bound at the unit vectors X (m, p, 1)."""
    Y = X[:, :, 0]
    LY = L @ Y
    z = 0.25 * np.einsum("ip,ip->i", Y, LY)
    slack = scipy.sparse.diags_array(z) - 0.25 * L
    least = smallest_eigenvalue(slack)
    bound = float(z.sum()) + len(z) * max(0.0, -least)
    return Certificate(float(z.sum()), bound, least)


def cut_value(L: Any, sides: Array) -> float:
    """The total weight of the edges between the two sides: ¼ sᵀLs."""
    return 0.25 * float(sides @ (L @ sides))


def improved(L: Any, sides: Array) -> Array:
    """A cut from which no single move of a node to the other side gains anything."""
    sides = sides.astype(float)
    degree = L.diagonal()
    while True:
        gain = degree - sides * (L @ sides)  # of moving each node, from ¼ sᵀLs
        best = int(np.argmax(gain))
        if gain[best] <= 1e-12 * max(float(np.abs(degree).max()), 1.0):
            return sides
        sides[best] = -sides[best]


def _problem(graph: Any) -> MaxCut:
    if isinstance(graph, MaxCut):
        return graph
    if hasattr(graph, "edges") and hasattr(graph, "nodes"):
        index = {node: i for i, node in enumerate(graph.nodes)}
        edges = [(index[a], index[b]) for a, b in graph.edges]
        weights = [w for *_, w in graph.edges(data="weight", default=1.0)]
        return MaxCut.from_edges(len(index), edges, weights)
    W = scipy.sparse.csr_array(graph)
    if W.shape[0] != W.shape[1] or abs(W - W.T).max() > 1e-12 * max(abs(W).max(), 1e-300):
        raise ValueError(
            f"the weights have shape {W.shape}; expected a symmetric square matrix, "
            "a stiefel.objectives.MaxCut or a networkx graph"
        )
    return MaxCut(scipy.sparse.csr_array(scipy.sparse.diags_array(W.sum(axis=1)) - W))
