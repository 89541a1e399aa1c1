"""Save a run every so often, and go on from there bit for bit.

A checkpoint holds the solver's state, the history and the driver's counters after a completed
iteration, and the fingerprint of what was solved: start, manifold, method and its parameters.
Everything in it is a number, a name or an array in one flat dict (`saved_types`); the ray of
`Aim` is made again, which repeats the same arithmetic.  The file format is
`stiefel.runs.archive`.  While a run goes on it owns the path (`stiefel.runs.files.Lock`).
"""

from __future__ import annotations

import hashlib
import math
import os
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import numpy as np
import scipy

from stiefel.backends.arrays import is_array, kernels_for, library, to_numpy
from stiefel.geometry.frames import cotangent_shapes
from stiefel.types import Array, Gradient, Manifold, Solver

from . import archive
from .files import Lock, refuse_special, remove_partial
from .ledger import COUNTERS, DTYPE, History, Ledger
from .saved_types import Flat, freeze, is_record, thaw

AGREEMENT = 1e-6  # of f and ∇f at x0: another machine rounds differently, another problem differs
ROUNDINGS = 1e3  # units of rounding that are allowed in any precision
SAVED_COUNTS = ("nfev", "njev", "scale", "seconds")


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


def _parts(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


@dataclass
class Checkpoint:
    """Where, how often, and for which problem and method a run is saved."""

    path: Path
    interval: float
    solver: Solver
    fingerprint: dict[str, str]
    x0: Array
    resume: bool = False
    error: str | None = None
    clock: Callable[[], float] = time.monotonic
    _last: float = field(default=-math.inf, repr=False)
    _geometry: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self.lock = Lock(self.path)

    def due(self) -> bool:
        return self.clock() - self._last >= self.interval

    def exists(self) -> bool:
        return self.path.exists()

    def _write(self, header: dict[str, Any], arrays: list[Any]) -> None:
        archive.write(self.path, header, arrays)

    def _read(self) -> tuple[dict[str, Any], list[Any]]:
        return archive.read(self.path)

    def __enter__(self) -> Checkpoint:
        """Own the path; a file that came into being since is not overwritten."""
        self.lock.acquire()
        try:
            if self.path.exists() and not self.resume:
                raise _exists(self.path)
            remove_partial(self.path)
        except BaseException:
            self.lock.release()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.lock.release()

    def save(self, saved: Saved) -> None:
        """Write; an error leaves the last file whole, is told once, and the run goes on."""
        flat = freeze(saved.state, "state") | {"history": saved.history.as_array()}
        for name, value in saved.counters.items():
            flat |= freeze(value, f"counters.{name}")
        flat |= {name: getattr(saved, name) for name in SAVED_COUNTS}
        arrays = {n: v for n, v in flat.items() if is_array(v) or isinstance(v, np.generic)}
        owners = {name: _owner(value) for name, value in arrays.items()}
        values = {n: v for n, v in flat.items() if n not in arrays}
        header = {"fingerprint": self.fingerprint, "values": values, "arrays": owners}
        try:
            self._write(header, [to_numpy(value) for value in arrays.values()])
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

    def load(self, geometry: Manifold) -> Saved:
        """The saved run, or a `CheckpointError`."""
        self._geometry = geometry
        try:
            header, arrays = self._read()
            self._compare(header.get("fingerprint"))
            saved = self._thawed(self._flat(header, arrays))
            points = [tuple(a.shape) for a in _parts(self.x0)]
            self._check_shapes(saved.state.x, points, "point")
            gradients = cotangent_shapes(geometry, self.x0)
            self._check_shapes(saved.counters["initial_gradient"], gradients, "first gradient")
            return saved._replace(state=_with_rays(saved.state, geometry))
        except (archive.ArchiveError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise self._refuse(error) from None

    def _flat(self, header: dict[str, Any], arrays: list[Any]) -> Flat:
        values, owners = header.get("values"), header.get("arrays")
        if not isinstance(values, dict) or not isinstance(owners, dict):
            raise archive.ArchiveError("it has no values")
        if len(owners) != len(arrays) or set(owners) & set(values):
            raise archive.ArchiveError("its arrays are not the ones that it names")
        like = self.x0[0] if isinstance(self.x0, tuple) else self.x0
        found = zip(owners.items(), arrays)
        return values | {name: _returned(a, owner, like) for (name, owner), a in found}

    def _thawed(self, flat: Flat) -> Saved:
        """The record in a flat dict, each value checked against its annotation."""
        state, hints = thaw(state_type(self.solver), flat, "state"), get_type_hints(Ledger)
        counters = {name: thaw(hints[name], flat, f"counters.{name}") for name in COUNTERS}
        nfev, njev = (thaw(int, flat, name) for name in ("nfev", "njev"))
        scale, seconds = (thaw(float, flat, name) for name in ("scale", "seconds"))
        if not (0 < scale < math.inf and 0 <= seconds < math.inf):
            raise archive.ArchiveError(f"its scale is '{scale}' and its seconds are '{seconds}'")
        table = flat.pop("history", None)
        if getattr(table, "dtype", None) != DTYPE or table.ndim != 1 or not len(table):
            raise archive.ArchiveError("its history is empty, or has other columns")
        if flat:
            raise archive.ArchiveError(
                f"it holds {next(iter(flat))}, which this method does not use"
            )
        return Saved(state, History(table), counters, nfev, njev, scale, seconds)

    def recognise(self, saved: Saved, at: Gradient, scale: float, noise: float) -> None:
        """Refuse to go on with another function: f and ∇f at x0 must be the saved ones."""
        geometry, first = self._geometry, saved.counters["initial_gradient"]
        f, f0 = at.f / scale, saved.counters["initial_f"] / saved.scale
        norm0 = saved.counters["initial_norm"] / saved.scale
        change = geometry.combine(1.0 / scale, at.G, -1.0 / saved.scale, first)
        gap = geometry.norm(self.x0, change)
        agreement = max(AGREEMENT, ROUNDINGS * geometry.eps(self.x0))
        # Comparisons with what is not finite are false, and such a start has nothing to go on with.
        if abs(f - f0) > agreement * max(abs(f0), norm0) + 10.0 * noise or (
            gap > agreement * norm0 + 10.0 * math.sqrt(noise)
        ):
            raise self._refuse(
                f"it is of a run of another function (at x0 there f = {f0:.10g}, here {f:.10g}; "
                f"the gradients differ by {gap:.3g}, of {norm0:.3g})"
            )

    def _refuse(self, why: object) -> CheckpointError:
        return CheckpointError(
            f"cannot resume from {self.path}: {why}; "
            "pass another path, or move the file away to start anew"
        )

    def _check_shapes(self, x: Any, shapes: list[tuple[int, ...]], what: str) -> None:
        expected = [(shape, a.dtype) for shape, a in zip(shapes, _parts(self.x0), strict=True)]
        if [(tuple(a.shape), a.dtype) for a in _parts(x)] != expected:
            raise archive.ArchiveError(f"its {what} does not have the shape of x0")

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
    solver: Solver,
    geometry: Manifold,
    x0: Array,
    **others: Any,
) -> Checkpoint:
    """Check the arguments before anything is computed."""
    where = check_place(path, interval, resume)
    state_type(solver)
    facts = fingerprint(solver, geometry, x0, **others)
    return Checkpoint(where, interval, solver, facts, x0, resume)


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
    if exists:
        refuse_special(where)
    if exists and where.exists() and not resume:
        raise _exists(where)
    return where


def _exists(path: Path) -> FileExistsError:
    return FileExistsError(
        f"{path} exists already; pass resume=True to go on from it, or move it away"
    )


def owned(saver: Checkpoint | None) -> AbstractContextManager[Any]:
    """The path is this run's, if it has one."""
    return nullcontext() if saver is None else saver


# -- what was solved -----------------------------------------------------------------------


def fingerprint(
    solver: Solver,
    geometry: Manifold,
    x0: Array,
    precond: Any = None,
    hessp: Any = None,
    fnoise: float | None = None,
    nonsmooth: Any = None,
    given: tuple[Array, ...] = (),
) -> dict[str, str]:
    """Names and hashes by which a run is recognised; everything that decides its next bit.

    ``given`` is x0 as the user gave it; x0 itself may be of another library.
    """
    leaves = x0 if isinstance(x0, tuple) else (x0,)
    digest = hashlib.sha256()
    for leaf in leaves:
        digest.update(archive.array_digest(to_numpy(leaf)))
    shapes = ", ".join(f"{tuple(leaf.shape)} {leaf.dtype}" for leaf in leaves)
    return {
        "method": type(solver).__name__,
        "method parameters": identity_text(solver),
        "array library": library((given or leaves)[0]),
        "shape or dtype of x0": shapes,
        "x0": digest.hexdigest(),
        "manifold": identity_text(geometry),
        "precond": "none" if precond is None else "given",
        "hessp": "none" if hessp is None else "given",
        "fnoise": repr(fnoise),
        "nonsmooth": identity_text(nonsmooth),
    }


def identity_text(value: Any) -> str:
    """A text that is the same in every process: no addresses, arrays by their hash."""
    if is_dataclass(value) and not isinstance(value, type):
        names = (f.name for f in fields(value) if f.compare)
        parts = (f"{name}={identity_text(getattr(value, name))}" for name in names)
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, tuple):
        return f"({', '.join(map(identity_text, value))})"
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


def state_type(solver: Solver) -> type:
    """The NamedTuple that ``solver.init`` says it returns."""
    found = get_type_hints(type(solver).init).get("return")
    if not is_record(found):
        raise TypeError(
            f"the method {type(solver).__name__} cannot be saved: its init must be annotated with "
            "the NamedTuple that it returns"
        )
    return found  # type: ignore[return-value]


def _owner(value: Any) -> str:
    """Whether an array is a NumPy array or scalar, or of the library of x0."""
    if isinstance(value, np.generic):
        return "scalar"
    return "numpy" if isinstance(value, np.ndarray) else "x0"


def _returned(values: Any, owner: Any, like: Array) -> Any:
    if owner == "numpy":
        return values
    if owner == "scalar" and values.shape == ():
        return values[()]
    if owner != "x0":
        raise archive.ArchiveError("one of its arrays is of an unknown kind")
    k = kernels_for(like)
    return k.xp.asarray(values, device=k.device(like))


def _map_records(value: Any, change: Callable[[Any], Any]) -> Any:
    """``change`` applied to every NamedTuple in a value, innermost first."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return change(type(value)(*(_map_records(v, change) for v in value)))
    return value


def _with_rays(state: Any, geometry: Manifold) -> Any:
    def rebuild(record: Any) -> Any:
        if hasattr(record, "with_curve"):
            return record.with_curve(geometry)
        aim = getattr(record, "aim", None)
        return record._replace(aim=aim.remade(geometry, record.x)) if aim else record

    return _map_records(state, rebuild)
