"""The formulas of `leaves` and `memory` once more, by the compiled kernels: one call each.

For one leaf of small real NumPy matrices of double precision.  What the kernels fill is made here;
what they compute stands in `src/compiled/batch.inc` and `batch_pairs.inc` under the same names, and
`tests/test_many_compiled.py` compares it with the formulas.  Decisions are those of `solver`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from stiefel.types import Array, Leaves

from .learned import Learned, Observer
from .leaves import Leaf, Matrices, Metric
from .memory import Memory
from .numpy_many import Side, empty, stored
from .quadratic import EQUAL_M, GATE, Recogniser
from .shared import DWARFED_NORMAL_PART, Secant, Squares
from .solver import ManyLBFGS
from .state import Asked, At, State

WIDEST = 4  # columns: small matrices in registers
LARGEST_MATRIX = 1024  # entries of a matrix


class CompiledTrial(NamedTuple):
    """`RayTrial` with what the compiled secant pair needs."""

    X: Array
    t: Array
    sigma: Array
    gram: Array
    N: Array


class Seen(NamedTuple):
    """What a step says about curvature: `Curvature` and its `Squares`."""

    B: Array
    yy: Array
    squares: Squares
    numbers: Array  # (5, B): the four of the squares, and ⟨∇f, s⟩ at the end of the step


def compiled_leaf(leaf: Leaf, dtype: Any, shape: tuple[int, ...]) -> Leaf:
    """The leaf by compiled kernels, where there are such for it."""
    fits = isinstance(leaf, Matrices) and leaf.k.compiled is not None
    if not fits or dtype != np.float64 or len(shape) != 3:
        return leaf
    _, n, columns = shape
    if not (columns <= WIDEST and 0 < n * columns <= LARGEST_MATRIX):
        return leaf
    return CompiledMatrices(leaf.k, leaf.learns, leaf.spans_only)


@dataclass(frozen=True)
class CompiledMatrices(Matrices):
    """`Matrices`, by compiled kernels.

    What lives no longer than one evaluation stands in the same place each time: new memory costs
    as much as the arithmetic on it.
    """

    places: dict[str, Array] = field(default_factory=dict, compare=False)

    def _place(self, name: str, *shape: int) -> Array:
        a = self.places.get(name)
        if a is None or a.shape != shape:
            a = self.places[name] = empty(shape, float).view(Side)
        return a

    def lower(self, X: Array, E: Array, scale: Array) -> tuple[Array, Array, Array]:
        count, _, k = X.shape
        G, square = self._place("G", *X.shape), np.empty(count)
        rotation = empty((count, k, k), float).view(Side)
        E = np.ascontiguousarray(E, dtype=float)
        span = int(self.spans_only)
        self.kernels.batch_lower(stored(X), E, scale, span, stored(G), square, stored(rotation))
        return G, square, rotation

    @property
    def kernels(self) -> Any:
        return self.k.compiled

    def trial_or_point(
        self, X: Array, W: Array, t: Array, fresh: Array
    ) -> tuple[CompiledTrial, Array]:
        """`trial`, but X itself where a problem is fresh; and the points as the user sees them."""
        count, _, k = X.shape
        gram, N = (self._place(name, count, 2 * k, 2 * k) for name in ("gram", "N"))
        trial = CompiledTrial(empty(X.shape, float).view(Side), t, np.empty(count), gram, N)
        shown = np.empty(X.shape)
        self.kernels.batch_trial(
            stored(X), stored(W), t, fresh, stored(trial.X), stored(trial.gram), stored(trial.N),
            trial.sigma, shown,
        )  # fmt: skip
        return trial, shown

    def pair(self, X: Array, W: Array, trial: Any, old: Any, new: Any) -> Secant:
        count, _, k = X.shape
        _, t, sigma, gram, N = trial
        tall = [self._place(name, *X.shape) for name in ("s", "y")]
        small = [self._place(name, count, k, k) for name in ("B", "yy", "SS", "TT")]
        numbers = np.empty((5, count))
        self.kernels.batch_pair(
            stored(X), stored(W), t, sigma, stored(gram), stored(N), *map(stored, old),
            *map(stored, new), *map(stored, tall), *map(stored, small), numbers,
        )  # fmt: skip
        (s, y), (B, yy, SS, TT) = tall, small
        return Secant(s, y, Seen(B, yy, Squares(SS, TT, *numbers[:4]), numbers))

    def slope(self, G: Array, pair: Secant) -> Array:
        return pair.curvature.numbers[4]

    def squares(self, pair: Secant) -> Squares:
        return pair.curvature.squares

    def squared_length(self, pair: Secant) -> Array:
        seen = pair.curvature.squares
        return seen.normal_change + seen.rotation_change

    def squared_change(self, X: Array, pair: Secant, metric: Metric) -> Array:
        seen = pair.curvature.squares
        D, normal = metric.D, seen.normal_change
        normal = normal if D is None else self.k.small_inner(D, seen.TT)
        return normal + metric.omega * seen.rotation_change


class CompiledObserver(Observer):
    """`Observer` of one leaf; ``Learned`` changes in place, as the memory does."""

    def _look(
        self, leaf: Leaf, pair: Secant, old: Learned, count: Array, look: Array, eps: float
    ) -> Learned:
        if not leaf.learns:
            return old
        r, seen = self.rules, pair.curvature.squares
        rules = np.array([
            r.power, r.memory, r.news, r.column_change, r.late_change, r.early, r.least,
            r.column_range, r.rotation_change, r.rotation_range, DWARFED_NORMAL_PART * eps,
        ])  # fmt: skip
        self.k.compiled.batch_observe(
            stored(seen.SS), stored(seen.TT), pair.curvature.numbers, look, count, old.horizontal,
            rules, *map(stored, (old.P, old.R, old.D)), old.omega, old.weight, old.judged,
            old.ratio, old.rotation_step, old.rotation_change, old.normal_step, old.normal_change,
            old.found,
        )  # fmt: skip
        return old


@dataclass(frozen=True)
class CompiledLBFGS(ManyLBFGS):
    """`ManyLBFGS` of one leaf of `CompiledMatrices`."""

    @property
    def leaf(self) -> CompiledMatrices:
        (leaf,) = self.leaves
        assert isinstance(leaf, CompiledMatrices)
        return leaf

    @property
    def observer(self) -> Observer:
        return CompiledObserver(self.k, self.rules)

    def init(self, x: Leaves) -> State:
        s = super().init(x)
        (known,) = s.learned
        own = Learned(*(None if a is None else a.copy(order="K") for a in known))
        return s._replace(learned=(own,))

    def _trials(self, s: State) -> Asked:
        trial, shown = self.leaf.trial_or_point(s.x[0], s.W[0], s.search.t, s.fresh)
        trials: Any = (trial,)
        return Asked((trial.X,), trials, (shown,))

    def _remember(
        self, memory: Memory, pairs: tuple[Secant, ...], sy: Array, keep: Array
    ) -> Memory:
        k, (pair,) = self.k, pairs
        unit = k.power_of_two(np.sqrt(np.abs(sy)))
        blocks = _blocks(memory)
        row, size = int(memory.row), memory.diagonal.shape[1]
        self.leaf.kernels.batch_remember(
            *blocks, row, stored(pair.s), stored(pair.y), unit, unit * unit * sy, keep
        )
        return memory._replace(row=(memory.row + 1) % size)

    def _aimed(self, s: State, X: Leaves, at: At, norm: Array, arrived: Array) -> tuple[Any, ...]:
        k, (known,) = self.k, s.learned
        metric = known.metric
        x, x_new, G, G_new, W = s.x[0], X[0], s.G[0], at.G[0], s.W[0]
        rotation, rotation_new = s.rotations[0], at.rotations[0]
        assert rotation is not None and rotation_new is not None
        made = [empty(a.shape, float).view(Side) for a in (x, G, rotation, W)]
        slope, square = np.empty(len(norm)), np.empty(len(norm))
        theta = 0.5 + 0.5 * known.horizontal
        self.leaf.kernels.batch_arrive(
            *_blocks(s.memory), arrived, stored(x), stored(x_new), stored(made[0]), stored(G),
            stored(G_new), stored(made[1]), stored(rotation), stored(rotation_new),
            stored(made[2]), stored(W), stored(made[3]), slope, square, k.power_of_two(norm),
            None if metric.D is None else stored(metric.D), metric.omega, theta, s.gamma,
            self.initial_length,
        )  # fmt: skip
        return *((part,) for part in made), slope, (square,)


class CompiledRecogniser(Recogniser):
    """`Recogniser`, by compiled kernels."""

    def points(
        self, points: Array, G: Array, X: Array, E: Array, scale: Array
    ) -> tuple[Array, Array]:
        fits, E = np.empty(len(X), dtype=bool), np.ascontiguousarray(E, dtype=float)
        self.k.compiled.batch_points(stored(points), stored(G), stored(X), E, scale, GATE, fits)
        return points, fits

    def targets(self, points: Array, gradients: Array) -> tuple[Array, Array, Array]:
        count, _, n, k = points.shape
        target, gamma = empty((count, n, k), float).view(Side), np.empty(count)
        known = np.empty(count, dtype=bool)
        self.k.compiled.batch_recognise(
            stored(points), stored(gradients), GATE, EQUAL_M, stored(target), gamma, known
        )
        return target, known, gamma


def _blocks(memory: Memory) -> tuple[Array, ...]:
    return tuple(map(stored, (memory.S[0], memory.Y[0], memory.inverse, memory.diagonal)))
