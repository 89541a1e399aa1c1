"""Several solves from different starts, and the minima that they find.

A run finds one minimum, the one that its start leads to; orthogonal matrices have two components
besides, and a run stays in the one it starts in.  Solves from random starts show which minima
there are and how often each is met.  Two ends X and Y are the same minimum if their values agree
and Y is XQ, where Q is a symmetry of f: Q is the unitary matrix that takes X nearest to Y, and f
is asked whether f(ZQ) = f(Z) at random points Z.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from stiefel.backends.arrays import describe
from stiefel.function.counted import CountedObjective
from stiefel.function.trees import Tree
from stiefel.geometry import Euclidean, Grassmann, Sphere, Stiefel
from stiefel.geometry.checks import gaussian
from stiefel.geometry.rotations import determinant_signs
from stiefel.runs.result import Result
from stiefel.solvers.curvature import LOOKS
from stiefel.types import Array, LibraryManifold, Manifold, Manifolds

from .arguments import leaves_of, place

SAME_VALUE = 1e-6  # relative to the values and to how far they fell from their starts
SAME_POINT = 1e-2  # ‖XQ − Y‖/√k: points of different minima are further apart


@dataclass(frozen=True)
class Minimum:
    """One of the minima found."""

    fun: float
    x: Any
    count: int  # how many starts led to it
    starts: tuple[int, ...]  # which ones
    gradient_norm: float


@dataclass(frozen=True)
class Minima:
    """What the starts led to: ``result.starts`` of a run with ``starts=``; prints as a table.

    Attributes
    ----------
    minima : the minima, the best one first.
    lost : the numbers of the starts whose runs did not converge.
    results : the results of all runs, in the order of the starts.
    """

    minima: tuple[Minimum, ...]
    lost: tuple[int, ...]
    results: tuple[Result, ...]

    def __len__(self) -> int:
        return len(self.minima)

    def __iter__(self) -> Iterator[Minimum]:
        return iter(self.minima)

    def __getitem__(self, i: int) -> Minimum:
        return self.minima[i]

    def __repr__(self) -> str:
        lines = [f"{'value':>22}  {'found':>5}  {'gradient':>9}  first start"]
        for m in self.minima:
            lines.append(f"{m.fun:22.15g}  {m.count:5d}  {m.gradient_norm:9.1e}  {m.starts[0]}")
        if self.lost:
            lines.append(f"{len(self.lost)} of {len(self.results)} runs did not converge")
        return "\n".join(lines)


def solve_from_many(minimize: Callable[..., Result], given: dict[str, Any]) -> Result:
    """The best result of several solves, with the table of all of them in ``result.starts``."""
    for name in ("checkpoint", "comm"):
        if given.get(name) is not None:
            raise ValueError(f"starts= does not go with {name}=: save or spread the single solves")
    workers = given.pop("workers")
    points = starts_of(given["x0"], given["manifold"], given.pop("starts"), given.pop("seed"))
    if not (isinstance(workers, (int, np.integer)) and workers >= 1):
        raise ValueError(f"workers is {workers!r}; expected a number of processes ≥ 1")
    if workers > 1 and given["callback"] is not None:
        raise ValueError("callback= is called in this process; it does not go with workers > 1")
    results = _solve_all(minimize, given, points, int(workers))
    table, asked = _table(results, given)
    best = _lowest([results[i] for i in table[0].starts] if table.minima else results)
    answer = Result(best)  # its own counts stay in the table
    for name in ("nfev", "njev", "nhev"):
        answer[name] = sum(r[name] for r in results)
    answer.nfev, answer.starts = answer.nfev + asked, table
    found = f"{len(table)} different minima" if len(table) != 1 else "one minimum"
    answer.message += f" (best of {len(results)} starts: {found}, {len(table.lost)} runs lost)"
    return answer


def _lowest(results: Sequence[Result]) -> Result:
    return min(results, key=lambda r: r.fun if math.isfinite(r.fun) else math.inf)


# -- starts --------------------------------------------------------------------------------


def starts_of(x0: Any, manifold: Manifolds, starts: Any, seed: Any) -> list[Any]:
    """x0 and random points, or the points given."""
    if isinstance(starts, (int, np.integer)) and not isinstance(starts, bool):
        if starts < 1:
            raise ValueError(f"starts is {starts}; expected at least 1")
        rng = np.random.default_rng(seed)
        return [x0, *(_random_like(x0, manifold, i, rng) for i in range(1, int(starts)))]
    if not isinstance(starts, (list, tuple)) or not starts:
        raise TypeError(
            f"starts is {describe(starts)}; expected a number of starts, or a list of points"
        )
    return list(starts)


def _random_like(x0: Any, manifold: Manifolds, number: int, rng: np.random.Generator) -> Any:
    """A random point in the structure of x0; orthogonal ones alternate between components."""
    tree = Tree(x0)
    parts = []
    for leaf, factor, _ in leaves_of(tree, x0, manifold).values():
        if isinstance(factor, Euclidean):
            size = math.sqrt(factor.dot(leaf, leaf) / max(math.prod(leaf.shape), 1))
            parts.append(leaf + max(size, 1.0) * gaussian(tuple(leaf.shape), rng, None, leaf))
            continue
        X = factor.nearest(gaussian(tuple(leaf.shape), rng, None, leaf))
        parts.append(_in_component(factor, leaf, X, number))
    return parts[0] if tree.is_leaf else tree.unflatten(tuple(parts))


def _in_component(factor: LibraryManifold, x0: Array, X: Array, number: int) -> Array:
    """X in the component of x0 for even numbers, in the other one for odd numbers."""
    free = type(factor) is Stiefel and factor.B is None and X.shape[-1] == X.shape[-2]
    if not free or len(X.shape) > 2 or determinant_signs(X) is None:
        return X
    same = str(determinant_signs(X)) == str(determinant_signs(x0))
    if same == (number % 2 == 0):
        return X
    signs = np.where(np.arange(X.shape[-1]), 1.0, -1.0)
    return X * factor.kernels_at(X).asarray(signs.astype(str(X.dtype).removeprefix("torch.")), X)


# -- solves --------------------------------------------------------------------------------

_work: tuple[Callable[..., Result], dict[str, Any], list[Any]] | None = None


def _install(*work: Any) -> None:
    global _work
    _work = work  # type: ignore[assignment]


def _solve(i: int) -> Result:
    assert _work is not None
    minimize, given, points = _work
    with warnings.catch_warnings():
        # Both components are tried: the warning that a run stays in its own has no object here.
        warnings.filterwarnings("ignore", message=r".* is square: orthogonal matrices have two")
        return minimize(**given | {"x0": points[i]})


def _solve_all(
    minimize: Callable[..., Result], given: dict[str, Any], points: list[Any], workers: int
) -> list[Result]:
    if workers == 1:
        _install(minimize, given, points)
        try:
            return [_solve(i) for i in range(len(points))]
        finally:
            globals()["_work"] = None
    # A forked process has everything already; threads of PyTorch and JAX do not survive a fork.
    plain = all(isinstance(leaf, np.ndarray) for leaf in Tree(points[0]).flatten(points[0]))
    context = multiprocessing.get_context("fork" if plain and hasattr(os, "fork") else "spawn")
    work = (minimize, given, points)
    pool = ProcessPoolExecutor(min(workers, len(points)), context, _install, work)
    try:
        with warnings.catch_warnings():
            # Other libraries' threads are not used in the children, and ours survive a fork.
            warnings.filterwarnings("ignore", message=r".*fork\(\)")
            futures = [pool.submit(_solve, i) for i in range(len(points))]
        return [future.result() for future in futures]
    finally:
        pool.shutdown(cancel_futures=True)


# -- which of them are the same ------------------------------------------------------------


def _table(results: list[Result], given: dict[str, Any]) -> tuple[Minima, int]:
    """The minima found, and how many values of f it took to tell them apart."""
    good = [i for i, r in enumerate(results) if r.success]
    lost = tuple(i for i in range(len(results)) if i not in good)
    fall = max(
        (float(results[i].history["value"].max()) - results[i].fun for i in good), default=0.0
    )
    judge = _Judge(given, results[0].x, fall)
    groups: list[list[int]] = []
    for i in sorted(good, key=lambda i: results[i].fun):
        for group in groups:
            if judge.same(results[group[0]], results[i]):
                group.append(i)
                break
        else:
            groups.append([i])
    found = []
    for group in groups:
        first = results[group[0]]
        found.append(
            Minimum(first.fun, first.x, len(group), tuple(sorted(group)), first.gradient_norm)
        )
    return Minima(tuple(found), lost, tuple(results)), judge.calls


class _Judge:
    """Whether two results are the same minimum, up to a symmetry of f."""

    def __init__(self, given: dict[str, Any], x: Any, fall: float) -> None:
        self.given, self.fall = given, fall
        self.tree = Tree(x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.geometry, X = place(self.tree, x, given["manifold"])
        self.factors = getattr(self.geometry, "factors", (self.geometry,))
        self.objective = CountedObjective(given["fun"], given["jac"], self.tree, X)
        self.points: list[tuple[tuple[Array, ...], float]] = []
        self._like = X

    @property
    def calls(self) -> int:
        return self.objective.nfev

    def same(self, a: Result, b: Result) -> bool:
        size = max(abs(a.fun), abs(b.fun), self.fall)
        if abs(a.fun - b.fun) > SAME_VALUE * size:
            return False
        turns = []
        for m, x, y in zip(self.factors, self.tree.flatten(a.x), self.tree.flatten(b.x)):
            near, Q = _aligned(m, x, y)
            if not near:
                return False
            turns.append(Q)
        return all(Q is None for Q in turns) or self._is_symmetry(turns, size)

    def _is_symmetry(self, turns: list[Any], size: float) -> bool:
        """f(ZQ) = f(Z) at random points, to what the distance of the two ends explains."""
        if not self.points:
            rng = np.random.default_rng(0)
            for number in range(LOOKS):
                example = self.objective.user_point(self._like)
                Z = _random_like(example, self.given["manifold"], 2 * number, rng)
                leaves = self.tree.flatten(Z)
                self.points.append((leaves, self._value(leaves)))
        reach = max(abs(f) for _, f in self.points) + size
        for leaves, f in self.points:
            turned = tuple(z if Q is None else _turned(m, z, Q)
                           for m, z, Q in zip(self.factors, leaves, turns))  # fmt: skip
            if abs(self._value(turned) - f) > SAME_POINT * reach:
                return False
        return True

    def _value(self, leaves: tuple[Array, ...]) -> float:
        return self.objective.value(leaves if isinstance(self._like, tuple) else leaves[0])


def _aligned(factor: Manifold, x: Array, y: Array) -> tuple[bool, Array | None]:
    """Whether y is near xQ for a unitary Q; and Q, or None if it is the identity."""
    if not isinstance(factor, Stiefel):
        change = factor.combine(1.0, x, -1.0, y)
        size = 1.0 + math.sqrt(factor.dot(x, x))
        return math.sqrt(factor.dot(change, change)) <= SAME_POINT * size, None
    X, Y = (v if _has_columns(factor, x) else v[..., None] for v in (x, y))
    k = factor.kernels_at(X)
    if _gap(k, X, Y) <= SAME_POINT:
        return True, None
    Q = Stiefel().nearest(k.gram(X, Y))
    return _gap(k, X @ Q, Y) <= SAME_POINT, None if isinstance(factor, Grassmann) else Q


def _gap(k: Any, X: Array, Y: Array) -> float:
    """‖X − Y‖_F/√k, of a stack the largest."""
    E = X - Y
    squares = k.xp.sum(k.real(k.conj(E) * E), axis=(-2, -1))
    return math.sqrt(float(k.xp.max(squares)) / X.shape[-1])


def _turned(factor: Manifold, z: Array, Q: Array) -> Array:
    return z @ Q if _has_columns(factor, z) else (z[..., None] @ Q)[..., 0]


def _has_columns(factor: Manifold, x: Array) -> bool:
    return not isinstance(factor, Sphere) or (len(x.shape) >= 2 and x.shape[-1] == 1)
