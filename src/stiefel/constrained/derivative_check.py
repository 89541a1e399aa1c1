"""Whether the Jacobians of the user agree with the values of the constraints, at the end of a run.

A wrong Jacobian has stationary points of its own, at which every residual vanishes.  So a run that
has converged looks once, along one direction, at a difference of values on both sides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from stiefel.arguments import bind, leaves_of
from stiefel.backends.ranks import ALONE
from stiefel.function.trees import Tree
from stiefel.types import Manifolds

from .blocks import ConstraintBlock

STEP = 1e-5
ALLOWED = 1e-3  # of the Jacobian's own size


def contradicting(
    blocks: Sequence[ConstraintBlock], W: Sequence[Any], X: Any, manifold: Manifolds
) -> str | None:
    """The name of a block whose Jacobian is not that of its values; None if there is none.

    Constraints without a force are left out.  The two points lie on the manifold.
    """
    if not any(b.given is not None and np.any(w != 0) for b, w in zip(blocks, W)):
        return None
    tree = Tree(X)
    geometry, point = bind(tree, leaves_of(tree, X, manifold), ALONE)
    rng = np.random.default_rng(0)
    leaves = point if isinstance(point, tuple) else (point,)
    D = [rng.standard_normal(x.shape) for x in leaves]
    ends = []
    for step in (STEP, -STEP):
        moved = tuple(x + step * d for x, d in zip(leaves, D))
        near = geometry.nearest(moved if isinstance(point, tuple) else moved[0])
        ends.append(near if isinstance(near, tuple) else (near,))
    V = np.concatenate([(a - b).ravel() for a, b in zip(*ends)])
    for block, w in zip(blocks, W):
        if block.given is None or not np.any(w != 0):
            continue
        J = block.given(X)
        change = block.value(tree.unflatten(ends[0])) - block.value(tree.unflatten(ends[1]))
        error = np.abs(change - J @ V)
        sizes = np.sqrt(np.sum(J**2, axis=1)) * np.linalg.norm(V) + np.abs(change)
        if np.any(error[w != 0] > ALLOWED * sizes[w != 0]):
            return block.name
    return None
