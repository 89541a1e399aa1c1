"""What the branch-free solver knows about every problem; arrays have a leading axis of problems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from stiefel.types import Array, Leaves

from .learned import Learned
from .leaves import RayTrial
from .memory import Memory
from .search import Search
from .shared import Status

Evaluate = Callable[[Leaves], tuple[Array, Leaves]]  # (B,) values and Euclidean gradients

RUNNING = -1
CODES = {status: code for code, status in enumerate(Status)}


class Limits(NamedTuple):
    """When a problem ends; numbers, or arrays of shape (B,)."""

    rtol: Any
    gtol: Any
    ftol: Any
    maxiter: Any
    maxfun: Any


class Best(NamedTuple):
    """The best point seen: the smallest value, and among equal values the smallest gradient."""

    x: Leaves
    f: Array
    norm: Array
    decrease: Array  # ½⟨∇f, H∇f⟩: what the model expects of one more step


class Books(NamedTuple):
    """What is counted and compared; shape (B,)."""

    nit: Array
    nfev: Array
    restarts: Array
    restorations: Array
    last_progress: Array
    reference_f: Array
    reference_norm: Array
    initial_norm: Array
    values: Array  # (B, WINDOW + 1), the newest last


class State(NamedTuple):
    x: Leaves
    f: Array  # scaled, as everything
    G: Leaves  # cotangents
    rotations: tuple[Array | None, ...]  # XᴴG
    norm: Array
    W: Leaves  # cotangents of the search direction
    slope: Array
    size: Array  # ‖φ(W)‖, of several matrices the largest
    search: Search
    memory: Memory
    learned: tuple[Learned, ...]
    steps: Array
    gamma: Array
    noise: Array
    blind: Array
    fresh: Array
    scale: Array
    magnitude: Array  # |f(x0)|
    status: Array  # RUNNING, or the code of a `Status`
    best: Best
    books: Books
    model: Any = None  # of functions that are recognised: `TraceModel`, or `FirstPoint` for JAX


class Asked(NamedTuple):
    """Where problems are to be evaluated, and what `tell` needs to know of the way there."""

    X: Leaves
    trials: tuple[RayTrial, ...]
    shown: Leaves  # X, or an array of its values for the user


class At(NamedTuple):
    """Value and gradient at the trials."""

    f: Array
    G: Leaves
    norm: Array
    rotations: tuple[Array | None, ...]
    finite: Array
