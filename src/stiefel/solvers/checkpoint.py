"""Save a run every so often, and go on from there bit for bit.

A checkpoint holds the solver's state, the history and the driver's counters after a completed
iteration, and the fingerprint of what was solved: start, manifold, method and its parameters.
Everything in it is a number, a name or an array; the ray of `Local` is rebuilt, which repeats
the same arithmetic.  The file format is `stiefel.interop.archive`.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from stiefel.interop import archive
from stiefel.interop.arrays import is_array, library, to_numpy

from .history import DTYPE, History
from .problem import Local
from .saved_types import check_saved

Array = Any

AGREEMENT = 1e-6  # of f and ‖∇f‖ at x0: another machine rounds differently, another problem differs


class CheckpointError(archive.ArchiveError):
    """A checkpoint that was refused; the message says why and what to do."""


class Saved(NamedTuple):
    """A run after a completed iteration."""

    state: Any
    history: History
    counters: dict[str, Any]
    nfev: int
    njev: int
    scale: float
    seconds: float


@dataclass
class Checkpoint:
    """Where, how often, and for which problem and method a run is saved."""

    path: Path
    interval: float
    solver: Any
    fingerprint: dict[str, str]
    x0: Array
    error: str | None = None
    clock: Callable[[], float] = time.monotonic
    _last: float = field(default=-math.inf, repr=False)

    def due(self) -> bool:
        return self.clock() - self._last >= self.interval

    def exists(self) -> bool:
        return self.path.exists()

    def _write(self, header: dict[str, Any], arrays: list[Any]) -> None:
        archive.write(self.path, header, arrays)

    def _read(self) -> tuple[dict[str, Any], list[Any]]:
        return archive.read(self.path)

    def save(self, saved: Saved) -> None:
        """Write; an error leaves the last file whole, is told once, and the run goes on."""
        encoder = archive.Encoder(lambda cls: _is_known(cls, self.solver))
        body = saved._asdict()
        body["state"], body["history"] = _without_rays(saved.state), saved.history.as_array()
        header = {"fingerprint": self.fingerprint, "body": encoder(body), "tuples": encoder.tuples}
        try:
            self._write(header, encoder.arrays)
        except (OSError, MemoryError) as error:
            if self.error is None:
                warnings.warn(
                    f"the checkpoint {self.path} could not be written ({error}); the run goes on, "
                    "and tries again after every interval",
                    stacklevel=2,
                )
            self.error = f"{type(error).__name__}: {error}"
        else:
            self.error = None
        self._last = self.clock()

    def load(self, geometry: Any) -> Saved:
        """The saved run, or a `CheckpointError`."""
        try:
            header, arrays = self._read()
            self._compare(header.get("fingerprint"))
            tuples = header["tuples"]
            like = self.x0[0] if isinstance(self.x0, tuple) else self.x0
            decode = archive.Decoder(arrays, tuples, _known_classes(self.solver), like)
            body = decode(header["body"])
            table = body["history"]
            if table.dtype != DTYPE:
                raise archive.ArchiveError("its history has other columns")
            check_saved(body)
            self._check_point(body["state"].x)
            if not len(table):
                raise archive.ArchiveError("its history is empty")
            body["state"] = _with_rays(body["state"], geometry)
            return Saved(**{**body, "history": History(table)})
        except (archive.ArchiveError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise self._refuse(error) from None

    def recognise(self, saved: Saved, local: Local, scale: float, noise: float) -> None:
        """Refuse to go on with another function: f and ‖∇f‖ at x0 must be the saved ones."""
        f, norm = local.f / scale, local.norm / scale
        f0, norm0 = (saved.counters[name] / saved.scale for name in ("initial_f", "initial_norm"))
        if abs(f - f0) > AGREEMENT * max(abs(f0), norm0) + 10.0 * noise or abs(
            norm - norm0
        ) > AGREEMENT * norm0 + 10.0 * math.sqrt(noise):
            raise self._refuse(
                f"it is of a run of another function (at x0 there f = {f0:.10g} with gradient norm "
                f"{norm0:.6g}, here {f:.10g} with {norm:.6g})"
            )

    def _refuse(self, why: object) -> CheckpointError:
        return CheckpointError(
            f"cannot resume from {self.path}: {why}; "
            "pass another path, or move the file away to start anew"
        )

    def _check_point(self, x: Any) -> None:
        leaves, expected = (p if isinstance(p, tuple) else (p,) for p in (x, self.x0))
        if [(a.shape, a.dtype) for a in leaves] != [(a.shape, a.dtype) for a in expected]:
            raise archive.ArchiveError("its point does not have the shape of x0")

    def _compare(self, stored: Any) -> None:
        if not isinstance(stored, dict):
            raise archive.ArchiveError("it does not say what was solved")
        for name, mine in self.fingerprint.items():
            theirs = stored.get(name)
            if theirs != mine:
                detail = "" if name == "x0" else f" (there {theirs}, here {mine})"
                raise archive.ArchiveError(f"it is of a run with another {name}{detail}")


def open_checkpoint(
    path: Any,
    interval: float,
    resume: bool,
    solver: Any,
    geometry: Any,
    x0: Array,
    **others: Any,
) -> Checkpoint:
    """Check the arguments before anything is computed."""
    where = check_place(path, interval, resume)
    return Checkpoint(where, interval, solver, fingerprint(solver, geometry, x0, **others), x0)


def check_place(path: Any, interval: float, resume: bool, exists: bool = True) -> Path:
    """The path, if a checkpoint can be kept there; ``exists``: look whether there is one."""
    try:
        where = Path(os.fspath(path))
    except TypeError:
        raise TypeError(
            f"checkpoint is {path!r}; expected the path of a file, such as 'run.npz'"
        ) from None
    if not (isinstance(interval, (int, float)) and 0 <= interval < math.inf):
        raise ValueError(f"checkpoint_interval is {interval!r}; expected seconds ≥ 0")
    if where.is_dir() or not where.parent.is_dir():
        raise FileNotFoundError(
            f"checkpoint is {str(where)!r}; expected a file in a folder that exists"
        )
    if exists and where.exists() and not resume:
        raise FileExistsError(
            f"{where} exists already; pass resume=True to go on from it, or move it away"
        )
    return where


# -- what was solved -----------------------------------------------------------------------


def fingerprint(
    solver: Any,
    geometry: Any,
    x0: Array,
    precond: Any = None,
    hessp: Any = None,
    fnoise: float | None = None,
    nonsmooth: Any = None,
) -> dict[str, str]:
    """Names and hashes by which a run is recognised; everything that decides its next bit."""
    leaves = x0 if isinstance(x0, tuple) else (x0,)
    digest = hashlib.sha256()
    for leaf in leaves:
        digest.update(archive.array_digest(to_numpy(leaf)))
    shapes = ", ".join(f"{tuple(leaf.shape)} {leaf.dtype}" for leaf in leaves)
    return {
        "method": type(solver).__name__,
        "method parameters": describe(solver),
        "array library": library(leaves[0]),
        "shape or dtype of x0": shapes,
        "x0": digest.hexdigest(),
        "manifold": describe(geometry),
        "precond": "none" if precond is None else "given",
        "hessp": "none" if hessp is None else "given",
        "fnoise": repr(fnoise),
        "nonsmooth": describe(nonsmooth),
    }


def describe(value: Any) -> str:
    """A text that is the same in every process: no addresses, arrays by their hash."""
    if is_dataclass(value) and not isinstance(value, type):
        names = (f.name for f in fields(value) if f.compare)
        parts = (f"{name}={describe(getattr(value, name))}" for name in names)
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, tuple):
        return f"({', '.join(map(describe, value))})"
    if scipy.sparse.issparse(value):
        coo = value.tocoo()
        return f"sparse {value.shape} {_hash(coo.row)} {_hash(coo.col)} {_hash(coo.data)}"
    if is_array(value):
        return f"array {tuple(value.shape)} {_hash(to_numpy(value))}"
    if value is None or isinstance(value, (bool, int, float, str, np.generic, Enum)):
        return repr(value)
    name = getattr(value, "__qualname__", None) or type(value).__qualname__
    return f"{name}{getattr(value, 'shape', '')}"


def _hash(values: Any) -> str:
    return archive.array_digest(np.asarray(values)).hex()[:16]


# -- the state -----------------------------------------------------------------------------


def _modules(solver: Any) -> list[str]:
    packages = (__package__ + ".", "stiefel.geometry.", "stiefel.nonsmooth.")
    own = [name for name in sys.modules if name.startswith(packages)]
    return [*own, type(solver).__module__]


def _is_known(cls: type, solver: Any) -> bool:
    return cls.__module__ in _modules(solver)


def _known_classes(solver: Any) -> dict[str, type]:
    """Records and enums that a state may be made of: those of solvers and geometry alone."""
    found = {}
    for module in _modules(solver):
        for cls in vars(sys.modules[module]).values():
            if isinstance(cls, type) and (hasattr(cls, "_fields") or issubclass(cls, Enum)):
                found[f"{cls.__module__}.{cls.__qualname__}"] = cls
    return found


def _map_records(value: Any, change: Callable[[Any], Any]) -> Any:
    """``change`` applied to every NamedTuple in a value, innermost first."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return change(type(value)(*(_map_records(v, change) for v in value)))
    return value


def _without_rays(state: Any) -> Any:
    return _map_records(state, lambda r: r._replace(ray=None) if isinstance(r, Local) else r)


def _with_rays(state: Any, geometry: Any) -> Any:
    def rebuild(record: Any) -> Any:
        local = getattr(record, "local", None)
        if not isinstance(local, Local):
            return record
        return record._replace(local=local.with_ray(geometry, record.x))

    return _map_records(state, rebuild)
