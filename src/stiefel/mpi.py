"""Runs on many ranks: who holds which rows, random points, bringing rows together.

``stiefel.minimize(..., comm=MPI.COMM_WORLD)`` is the call; these functions serve it.  A matrix of
n rows is cut into contiguous blocks in the order of the ranks.  The solvers accept any cut;
`row_range` is the even one.  NumPy arrays only: other libraries convert at the border.

Needs mpi4py: ``pip install mpi4py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from stiefel.backends.arrays import describe
from stiefel.backends.ranks import RankError, Ranks
from stiefel.geometry.layout import Distributed, Replicated
from stiefel.types import Array, LibraryManifold

from .geometry import Stiefel

ROWS_PER_STREAM = 1024  # of random numbers, so that a cut of the rows changes nothing


def row_range(n: int, comm: Any) -> tuple[int, int]:
    """(start, stop) of this rank's rows in an even cut of n rows."""
    if int(n) != n or n < 0:
        raise ValueError(f"n is {n!r}; expected a number of rows ≥ 0")
    rank, size = comm.Get_rank(), comm.Get_size()
    return int(n) * rank // size, int(n) * (rank + 1) // size


def random_point(
    *shape: int,
    comm: Any,
    seed: int,
    dtype: Any = np.float64,
    rows: tuple[int, int] | None = None,
    manifold: LibraryManifold | None = None,
) -> Array:
    """This rank's rows of a uniformly distributed point (n, k) or stack (..., n, k).

    The Gaussian matrix behind it is the same for every number of ranks, bit for bit; its polar
    factor is, to rounding.  ``rows`` is this rank's (start, stop) where it is not `row_range`.
    """
    *stack, n, k = shape
    dtype = np.dtype(dtype)
    if dtype.kind not in "fc":
        raise TypeError(f"dtype is {dtype}; expected a real or complex floating-point dtype")
    start, stop = row_range(n, comm) if rows is None else rows
    stream = start // ROWS_PER_STREAM
    blocks = range(stream, -(-stop // ROWS_PER_STREAM) if stop > start else stream)
    parts = [_block(seed, b, (*stack, ROWS_PER_STREAM, k), dtype.kind == "c") for b in blocks]
    drawn = np.concatenate([np.empty((*stack, 0, k), dtype), *parts], axis=-2)
    first = blocks.start * ROWS_PER_STREAM
    local = drawn[..., start - first : stop - first, :].astype(dtype)
    return nearest(np.ascontiguousarray(local), comm=comm, manifold=manifold)


def _block(seed: int, block: int, shape: tuple[int, ...], is_complex: bool) -> Array:
    rng = np.random.default_rng([seed, block])
    values = rng.standard_normal(shape)
    return values + 1j * rng.standard_normal(shape) if is_complex else values


def nearest(A: Array, *, comm: Any, manifold: LibraryManifold | None = None) -> Array:
    """This rank's rows of the point nearest to the matrix whose rows are spread over the ranks."""
    manifold = manifold or Stiefel()
    if comm.Get_size() == 1:
        return manifold.nearest(A)
    return manifold.bind(A, Ranks(comm)).nearest(A)


def gather(X: Array, comm: Any, root: int | None = 0) -> Array | None:
    """All rows, in the order of the ranks: on ``root`` (None elsewhere), or everywhere if None."""
    X = _checked(X)
    rows_first = np.ascontiguousarray(np.moveaxis(X, -2, 0))
    sizes = np.zeros(comm.Get_size(), dtype=np.int64)
    comm.Allgather(np.array([rows_first.shape[0]]), sizes)
    each = int(np.prod(rows_first.shape[1:])) * X.itemsize
    here = root is None or comm.Get_rank() == root
    total = (int(sizes.sum()) if here else 0, *rows_first.shape[1:])
    everything = np.empty(total, X.dtype)
    target = (everything.view(np.uint8).reshape(-1), (sizes * each).tolist()) if here else None
    source = rows_first.view(np.uint8).reshape(-1)
    if root is None:
        comm.Allgatherv(source, target)
    else:
        comm.Gatherv(source, target, root=root)
    return np.ascontiguousarray(np.moveaxis(everything, 0, -2)) if here else None


def scatter(X: Array | None, comm: Any, root: int = 0) -> Array:
    """This rank's rows of the matrix that ``root`` holds; the other ranks pass None."""
    ranks = Ranks(comm)
    with ranks.together():
        facts = ""
        if comm.Get_rank() == root:
            X = _checked(X)
            facts = f"{X.dtype.str} {' '.join(map(str, X.shape))}"
    name, *numbers = ranks.texts(facts)[root].split()
    *stack, n, k = map(int, numbers)
    dtype = np.dtype(name)
    size = comm.Get_size()
    cuts = np.array([n * r // size for r in range(size + 1)])
    each = int(np.prod([*stack, k])) * dtype.itemsize
    source = None
    if X is not None and comm.Get_rank() == root:
        rows_first = np.ascontiguousarray(np.moveaxis(X, -2, 0))
        source = (rows_first.view(np.uint8).reshape(-1), (np.diff(cuts) * each).tolist())
    start, stop = row_range(n, comm)
    local = np.empty((stop - start, *stack, k), dtype)
    comm.Scatterv(source, local.view(np.uint8).reshape(-1), root=root)
    return np.ascontiguousarray(np.moveaxis(local, 0, -2))


def _checked(X: Array) -> Array:
    if not isinstance(X, np.ndarray) or X.ndim < 2:
        raise TypeError(f"X is {describe(X)}; expected a NumPy array (n, k) or (..., n, k)")
    return X


__all__ = [
    "Distributed",
    "RankError",
    "Replicated",
    "gather",
    "nearest",
    "random_point",
    "row_range",
    "scatter",
]
