"""Checkpoints of runs on several ranks, which any number of ranks can go on from.

    run.npz            what is complete: the generation, the number of parts, whose rows they hold
    run.npz.a.0, …     one part per rank: the state with that rank's rows, as `checkpoint` writes it
    run.npz.b.0, …     the other generation, while it is being written

Parts are written first and the small file last, by rank 0, when all parts are on the disk: a job
that dies at any moment leaves one complete generation.  All ranks must see the same folder.
Resuming, a rank reads the parts that overlap its own rows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stiefel.backends.arrays import library
from stiefel.types import Array, NumpyArray, Solver

from . import archive
from .checkpoint import Checkpoint, check_place, identity_text, state_type

REPLICATED = -1  # an array that is the same on every rank


@dataclass
class RankCheckpoint(Checkpoint):
    """A `Checkpoint` whose arrays with rows on the ranks are cut as x0 is."""

    ranks: Any = None
    leaves: Sequence[Array] = ()  # those with rows on the ranks
    generation: str = "a"
    cuts: NumpyArray = field(
        default_factory=lambda: np.zeros((0, 0, 2), int)
    )  # rank, leaf, start/stop

    def exists(self) -> bool:
        """As rank 0 sees it."""
        return bool(self.ranks.total(self.ranks.rank == 0 and self.path.exists()))

    def __enter__(self) -> RankCheckpoint:
        """Rank 0 owns the path for all."""
        with self.ranks.together():
            if self.ranks.rank == 0:
                super().__enter__()
        return self

    # -- saving ----------------------------------------------------------------------------

    def _write(self, header: dict[str, Any], arrays: list[NumpyArray]) -> None:
        own = header | {"spread": self._spread(arrays)}
        self._on_all(lambda: archive.write(self._part(self.ranks.rank), own, arrays))
        whole = {"generation": self.generation, "cuts": self.cuts.tolist()}
        self._on_all(lambda: self._finish(whole))
        self.generation = "b" if self.generation == "a" else "a"
        if self.ranks.rank == 0:
            for stale in self.path.parent.glob(f"{self.path.name}.{self.generation}.*"):
                stale.unlink(missing_ok=True)

    def _finish(self, whole: dict[str, Any]) -> None:
        if self.ranks.rank == 0:
            archive.write(self.path, whole, [])

    def _on_all(self, write: Any) -> None:
        """An `OSError` on one rank is one on every rank: a generation is whole or not there."""
        error: Exception | None = None
        try:
            write()
        except (OSError, MemoryError) as caught:
            error = caught
        if self.ranks.total(error is not None):
            raise error or OSError("another rank could not write its part")

    def _part(self, rank: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{self.generation}.{rank}")

    def _spread(self, arrays: list[NumpyArray]) -> list[int]:
        """For each array the leaf that it is cut like, on every rank; small ones are not cut."""
        votes = np.array([[self._like(a, leaf) for leaf in self.leaves] for a in arrays], float)
        (totals,) = self.ranks.sum([votes.ravel()])
        agreed = totals.reshape(votes.shape) == self.ranks.size
        return [int(np.argmax(row)) if row.any() else REPLICATED for row in agreed]

    def _like(self, a: NumpyArray, leaf: Array) -> bool:
        shape = tuple(leaf.shape)
        same_type = np.dtype(a.dtype).name == str(leaf.dtype).removeprefix("torch.")
        return same_type and tuple(a.shape[-len(shape) :]) == shape

    # -- resuming --------------------------------------------------------------------------

    def _read(self) -> tuple[dict[str, Any], list[NumpyArray]]:
        with self.ranks.together():
            whole, _ = archive.read(self.path)
            if "cuts" not in whole:
                raise archive.ArchiveError("it was saved by a run without comm=")
            self.generation = str(whole["generation"])
            saved = np.array(whole["cuts"], dtype=int).reshape(-1, len(self.leaves), 2)
            self._check_cuts(saved)
            parts = {r: archive.read(self._part(r)) for r in self._needed(saved)}
            header, first = next(iter(parts.values()))
            arrays = [
                first[i] if leaf == REPLICATED else self._rows(i, leaf, saved, parts)
                for i, leaf in enumerate(header["spread"])
            ]
        self.generation = "b" if self.generation == "a" else "a"
        return header, arrays

    def _check_cuts(self, saved: NumpyArray) -> None:
        rows = [(saved[-1, i, 1], self.cuts[-1, i, 1]) for i in range(len(self.leaves))]
        for there, here in rows:
            if there != here:
                raise archive.ArchiveError(f"its points have {there} rows, x0 has {here}")
        if len(saved) != len(self.cuts):
            for i, leaf in enumerate(self.leaves):
                if len(leaf.shape) > 1 and np.all(np.diff(saved[:, i]) == leaf.shape[-1]):
                    raise archive.ArchiveError(
                        "every rank held as many rows as columns, so that small matrices cannot "
                        f"be told from tall ones: resume on {len(saved)} ranks"
                    )

    def _needed(self, saved: NumpyArray) -> list[int]:
        """The parts that overlap this rank's rows; one at least, for what is not cut."""
        start, stop = self.cuts[self.ranks.rank].T
        overlap = (saved[..., 0] < stop) & (saved[..., 1] > start)
        return np.flatnonzero(overlap.any(axis=1)).tolist() or [0]

    def _rows(self, i: int, leaf: int, saved: NumpyArray, parts: dict[int, Any]) -> NumpyArray:
        axis = -2 if len(self.leaves[leaf].shape) > 1 else -1
        start, stop = self.cuts[self.ranks.rank, leaf]
        pieces = []
        for rank, (_, arrays) in parts.items():
            first, last = saved[rank, leaf]
            window = slice(max(start - first, 0), max(min(stop, last) - first, 0))
            pieces.append(arrays[i][(..., window, slice(None)) if axis == -2 else (..., window)])
        joined = np.concatenate(pieces, axis=axis)
        return np.asfortranarray(joined) if _is_fortran(pieces[0]) else joined


def _is_fortran(a: NumpyArray) -> bool:
    return a.flags.f_contiguous and not a.flags.c_contiguous


def open_rank_checkpoint(
    ranks: Any,
    leaves: Sequence[tuple[Any, Any, bool]],
    path: str | os.PathLike[str],
    interval: float,
    resume: bool,
    solver: Solver,
    x0: Array,
    **others: Any,
) -> RankCheckpoint:
    """Check the arguments; ``leaves`` are (array, manifold, whether its rows live on the ranks)."""
    with ranks.together():
        where = check_place(path, interval, resume, exists=ranks.rank == 0)
        state_type(solver)
    spread = [leaf for leaf, _, distributed in leaves if distributed]
    cuts = _cuts(ranks, spread)
    facts = {
        "method": type(solver).__name__,
        "method parameters": identity_text(solver),
        "array library": library(leaves[0][0]),
        "dtype of x0": ", ".join(str(leaf.dtype) for leaf, _, _ in leaves),
        "manifold": ", ".join(type(manifold).__name__ for _, manifold, _ in leaves),
        "layout": ", ".join("rows" if d else "copy" for _, _, d in leaves),
    } | {name: "none" if v is None else "given" for name, v in others.items()}
    result = RankCheckpoint(where, interval, solver, facts, x0, resume)
    result.ranks, result.leaves, result.cuts = ranks, spread, cuts
    if ranks.size > 1:
        result.clock = ranks.clock
    return result


def _cuts(ranks: Any, leaves: Sequence[Array]) -> NumpyArray:
    sizes = np.zeros((ranks.size, len(leaves)))
    sizes[ranks.rank] = [leaf.shape[-2 if len(leaf.shape) > 1 else -1] for leaf in leaves]
    (flat,) = ranks.sum([sizes.ravel()])
    counts = np.rint(flat).astype(int).reshape(sizes.shape)
    stops = np.cumsum(counts, axis=0)
    return np.stack([stops - counts, stops], axis=-1)
