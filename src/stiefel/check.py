"""Is the gradient right?  A Taylor test that names the usual mistakes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from stiefel.backends.arrays import to_numpy
from stiefel.function.counted import CountedObjective
from stiefel.function.differences import Differences
from stiefel.function.trees import Tree
from stiefel.geometry.checks import gaussian
from stiefel.types import Array, Manifold, Manifolds

from .arguments import place
from .geometry import Grassmann, Stiefel

DIRECTIONS = 3
FEW_ENTRIES = 1000  # entries, each of which is looked at when a gradient is wrong
LEAST_TAYLOR_SLOPE = 1.8  # of the error of the linear model, which is 2 for a right gradient


@dataclass(frozen=True)
class GradientCheck:
    """The verdict of `check_gradient`; true in a condition if the gradient is right."""

    correct: bool
    slope: float  # of log|f(X_t) − f(X) − t⟨G, T⟩| against log t: 2 if right, 1 if wrong
    relative_error: float  # of the directional derivatives, the largest one
    explanation: str

    def __bool__(self) -> bool:
        return self.correct

    def __str__(self) -> str:
        verdict = "the gradient is right" if self.correct else "the gradient is WRONG"
        return (
            f"{verdict}: Taylor slope {self.slope:.2f} (2 expected), "
            f"relative error {self.relative_error:.1e}. {self.explanation}"
        )


def check_gradient(
    fun: Any, X: Any, *, jac: Any = None, manifold: Manifolds | None = None, seed: int = 0
) -> GradientCheck:
    """Compare the gradient of ``fun`` at X with differences of its values along random curves.

    Only what a method on the manifold can see is tested.  About 50 values are computed; if the
    gradient is wrong, and X has no more than a thousand entries, two more an entry, to find the
    worst of them.

    Parameters
    ----------
    fun : callable or object
        As for `minimize`.
    X : array or structure of arrays
        The point at which the gradient is tested.
    jac : callable, bool, str or None, optional
        As for `minimize`.
    manifold : manifold or structure of manifolds, optional
        As for `minimize`.
    seed : int, optional
        The seed of the random curves.

    Returns
    -------
    GradientCheck
        True in a condition if the gradient is right; printed, it says what is wrong.

    Raises
    ------
    TypeError, ValueError
        If the arguments are not such as `minimize` takes.

    Examples
    --------
    >>> import numpy as np, stiefel
    >>> A = np.diag([1.0, 2.0, 3.0, 4.0])
    >>> X = stiefel.random_point(4, 2, seed=0)
    >>> bool(stiefel.check_gradient(lambda X: (np.sum(X * (A @ X)), 2 * A @ X), X))
    True
    >>> check = stiefel.check_gradient(lambda X: (np.sum(X * (A @ X)), A @ X), X)
    >>> check.correct, check.explanation[:47]
    (False, 'It is half of what it should be: multiply by 2.')
    """
    tree = Tree(X)
    geometry, point = place(tree, X, manifold)
    objective = CountedObjective(fun, jac, tree, point)
    f, gradient, _ = objective.value_and_gradient(point)
    # Not the stream of `random_point`: the Gaussian matrix behind X has no tangent part.
    rng = np.random.default_rng((seed, len("check_gradient")))
    tests = [_Direction(geometry, objective, point, f, rng) for _ in range(DIRECTIONS)]
    measured = [t.derivative for t in tests]
    claimed = [t.pair(gradient) for t in tests]
    scale = max(map(abs, measured + claimed)) or 1.0
    noise = max(t.noise for t in tests)
    error = _largest_gap(measured, claimed) / scale
    slope = min(t.slope(c) for t, c in zip(tests, claimed, strict=True))
    allowed = max(10.0 * noise / scale, math.sqrt(geometry.eps(point)))
    correct = error <= allowed and (slope >= LEAST_TAYLOR_SLOPE or error <= 0.1 * allowed)
    if correct:
        return GradientCheck(True, slope, error, "")
    sentence = _explain(tests, measured, gradient, scale, allowed)
    worst = _worst(geometry, objective, tree, point, gradient) or _pair_of(measured, claimed)
    return GradientCheck(False, slope, error, f"{sentence} {worst}")


@dataclass(frozen=True)
class InvarianceCheck:
    """The verdict of `check_invariance`; true in a condition if f sees the span only."""

    invariant: bool
    change: float  # the largest |f(XQ) − f(X)|/|f(X)| over random unitary Q
    vertical: float  # the part of XᴴG that turns the basis
    explanation: str

    def __bool__(self) -> bool:
        return self.invariant

    def __str__(self) -> str:
        return self.explanation


def check_invariance(fun: Any, X: Array, *, jac: Any = None, B: Any = None) -> InvarianceCheck:
    """Whether f(XQ) = f(X) for unitary Q, as `Grassmann` needs: three values and one gradient."""
    tree = Tree(X)
    geometry, X = place(tree, X, Grassmann(B=B))
    objective = CountedObjective(fun, jac, tree, X)
    f, gradient, _ = objective.value_and_gradient(X)
    rng = np.random.default_rng(0)
    turns = [
        Stiefel().nearest(_gaussian_like(X[..., : X.shape[-1], :], rng)) for _ in range(DIRECTIONS)
    ]
    change = max(abs(objective.value(X @ Q) - f) for Q in turns) / max(abs(f), 1e-300)
    vertical = geometry.vertical_part(X, gradient)
    allowed = math.sqrt(geometry.eps(X))
    same_value, same_gradient = change <= allowed, vertical <= max(1e-4, allowed)
    if same_value and same_gradient:
        sentence = "f depends on the span of X only"
    elif same_value:
        sentence = (
            f"f(XQ) = f(X), but {100 * vertical:.2g} % of XᴴG turns the basis: the gradient "
            "is wrong; see stiefel.check_gradient"
        )
    else:
        sentence = (
            f"f is not a function of the span of X: f(XQ) differs from f(X) by {change:.1e} "
            "(relative) for a random unitary Q; use manifold=Stiefel()"
        )
    return InvarianceCheck(same_value and same_gradient, change, vertical, sentence)


class _Direction:
    """Values of f along one random curve through X."""

    def __init__(
        self, geometry: Manifold, objective: CountedObjective, X: Any, f: float, rng: Any
    ) -> None:
        leaves = X if isinstance(X, tuple) else (X,)
        draws = tuple(_gaussian_like(leaf, rng) for leaf in leaves)
        W = geometry.project_direction(X, draws if isinstance(X, tuple) else draws[0])
        W = geometry.combine(1.0 / geometry.norm(X, W), W, 0.0, W)
        T = geometry.raise_index(X, W)
        self._tangents = T if isinstance(T, tuple) else (T,)
        ray = geometry.ray(X, W)
        eps = geometry.eps(X)
        self.steps = np.geomspace(1e-1, max(1e-5, eps**0.4), 8)
        lengths = self.steps.tolist()  # Python floats: not every library takes NumPy's
        self._f = f
        self._values = [objective.value(ray(t)) for t in lengths]
        h = eps ** (1 / 3)
        central = [
            (objective.value(ray(s)) - objective.value(ray(-s))) / (2 * s) for s in (h, 2 * h)
        ]
        self.derivative = (4.0 * central[0] - central[1]) / 3.0
        self.noise = 10.0 * eps * max(abs(f), 1e-300) / h
        self._rounding = 100.0 * eps * abs(f)

    def pair(self, gradient: Any) -> float:
        """Re⟨G, T⟩."""
        parts = gradient if isinstance(gradient, tuple) else (gradient,)
        return sum(
            float(np.real(np.vdot(np.asarray(g), np.asarray(t))))
            for g, t in zip(parts, self._tangents, strict=True)
        )

    def slope(self, claimed: float) -> float:
        """The order of the error of the linear model, from the steps where it can be seen."""
        errors = np.array(
            [abs(v - self._f - t * claimed) for t, v in zip(self.steps, self._values, strict=True)]
        )
        seen = errors > self._rounding
        if seen.sum() < 3:
            return 2.0  # linear to rounding
        slopes = np.diff(np.log(errors[seen])) / np.diff(np.log(self.steps[seen]))
        return float(np.median(slopes))


def _worst(
    geometry: Manifold, objective: CountedObjective, tree: Tree, point: Any, gradient: Any
) -> str:
    """Where the gradient, seen along the manifold, is furthest from differences of values."""
    leaves = point if isinstance(point, tuple) else (point,)
    if sum(math.prod(leaf.shape) for leaf in leaves) > FEW_ENTRIES:
        return ""
    # Values are asked for in the solvers' form, in which a leaf is the point and a tree a tuple.
    flat = Tree(point)
    try:
        exact = Differences(objective.value, "3-point", flat, leaves).gradient(point)
    except Exception:  # f need not be defined beside the manifold
        return ""
    pairs = [
        tuple(map(np.atleast_1d, map(to_numpy, pair)))
        for pair in zip(
            _leaves(geometry.project(point, gradient)), _leaves(geometry.project(point, exact))
        )
    ]
    gaps = [np.abs(claimed - true) for claimed, true in pairs]
    worst = max(range(len(gaps)), key=lambda i: float(np.max(gaps[i])))
    index = tuple(map(int, np.unravel_index(int(np.argmax(gaps[worst])), gaps[worst].shape)))
    claimed, true = (part[index] for part in pairs[worst])
    return (
        f"The worst entry is X{tree.paths[worst]}{list(index)}: along the manifold the gradient "
        f"is {claimed:.6g} there, and differences of values give {true:.6g}."
    )


def _pair_of(measured: list[float], claimed: list[float]) -> str:
    m, c = max(zip(measured, claimed), key=lambda pair: abs(pair[0] - pair[1]))
    return (
        f"Along a random direction the gradient gives the derivative {c:.6g}, and differences of "
        f"values give {m:.6g}."
    )


def _leaves(G: Any) -> tuple[Any, ...]:
    return G if isinstance(G, tuple) else (G,)


def _gaussian_like(leaf: Array, rng: np.random.Generator) -> Array:
    return gaussian(tuple(leaf.shape), rng, None, leaf)


def _largest_gap(a: list[float], b: list[float]) -> float:
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


def _explain(
    tests: list[_Direction], measured: list[float], gradient: Any, scale: float, allowed: float
) -> str:
    parts = gradient if isinstance(gradient, tuple) else (gradient,)
    arrays = tuple(np.asarray(g) for g in parts)

    def fits(change: Callable[[Any], Any]) -> bool:
        claimed = [t.pair(tuple(change(a) for a in arrays)) for t in tests]
        return _largest_gap(measured, claimed) <= max(allowed, 1e-4) * scale

    for sentence, change in _mistakes(arrays):
        if fits(change):
            return sentence
    ratios = [m / c for m, c in zip(measured, (t.pair(gradient) for t in tests), strict=True) if c]
    if ratios and max(ratios) - min(ratios) <= 1e-3 * abs(ratios[0]):
        return f"It would be right if it were multiplied by {ratios[0]:.6g}."
    return "No factor, sign, conjugate or transpose explains it."


def _mistakes(arrays: tuple[Any, ...]) -> list[tuple[str, Callable[[Any], Any]]]:
    found: list[tuple[str, Callable[[Any], Any]]] = [
        ("It is half of what it should be: multiply by 2.", lambda g: 2.0 * g),
        ("It is twice what it should be: divide by 2.", lambda g: 0.5 * g),
        ("Its sign is wrong: negate it.", lambda g: -g),
    ]
    complex_ = any(np.iscomplexobj(a) for a in arrays)
    square = all(a.ndim >= 2 and a.shape[-1] == a.shape[-2] for a in arrays)
    if complex_:
        found += [
            ("A conjugate is missing: return its complex conjugate.", np.conj),
            ("A conjugate and a factor 2 are missing.", lambda g: 2.0 * np.conj(g)),
            ("A conjugate is missing, and it is twice too large.", lambda g: 0.5 * np.conj(g)),
        ]
    if square:
        found += [("It is transposed: return its transpose.", lambda g: np.swapaxes(g, -1, -2))]
    if square and complex_:
        found += [
            (
                "It is its own adjoint: return its conjugate transpose.",
                lambda g: np.conj(np.swapaxes(g, -1, -2)),
            ),
        ]
    return found
