"""The geometry of one leaf of a batch: matrices with orthonormal columns, or free parameters.

A leaf has shape (B, ..., n, k), or (B, ...) where it is free.  Both kinds offer the same few
functions, in which a number t, ω or a flag has shape (B,):

    lower(X, E, scale)     the Euclidean gradient scale·E as a cotangent G, ‖G‖²_g*, and XᴴG
    trial(X, W, t)         the point at t on the ray along the cotangent W, and what `pair` needs
    pair(…)                the secant pair of the step, and what it says about curvature
    slope(G, pair)         ⟨G, s⟩
    raise_index(X, W, m)   φ(W) in a learned metric
    aim(X, T, …)           the cotangent of the tangent nearest to T, and ‖T‖² of that tangent
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from stiefel.types import Array, Leaves

from .kernels import PerProblem
from .shared import (
    Curvature,
    Frame,
    Secant,
    Squares,
    cayley,
    lower_gradient,
    lower_span_gradient,
    raise_columns,
    raise_rotation,
    secant_pair,
    squared_change,
    squares,
)


class Metric(NamedTuple):
    """φ(N + XA) = scale (N D + ω X A); D is None for the identity, ω = 0 if horizontal."""

    D: Array | None
    omega: Array  # (B,)
    scale: Array  # (B,), of this leaf among the leaves of a tree


class RayTrial(NamedTuple):
    """A point on the ray, and the matrices that the secant pair of the step to it needs."""

    X: Array
    t: Array
    U: Array | None = None  # W made about as large as X
    frame: Frame | None = None
    N: Array | None = None


class Leaf(Protocol):
    @property
    def k(self) -> PerProblem: ...
    @property
    def learns(self) -> bool: ...  # a metric of columns
    @property
    def spans_only(self) -> bool: ...  # rotations XA are no directions
    @property
    def size_limited(self) -> bool: ...  # a step has a longest length

    def lower(self, X: Array, E: Array, scale: Array) -> tuple[Array, Array, Array | None]: ...
    def trial(self, X: Array, W: Array, t: Array) -> RayTrial: ...
    def pair(self, X: Array, W: Array, trial: RayTrial, old: Any, new: Any) -> Secant: ...
    def raise_index(self, X: Array, W: Array, metric: Metric) -> Array: ...
    def aim(self, X: Array, T: Array, horizontal: Array) -> tuple[Array, Array]: ...
    def dot(self, V: Array, W: Array) -> Array: ...
    def slope(self, G: Array, pair: Secant) -> Array: ...
    def squares(self, pair: Secant) -> Squares: ...
    def squared_length(self, pair: Secant) -> Array: ...
    def squared_change(self, X: Array, pair: Secant, metric: Metric) -> Array: ...
    def turning(self, rotation: Array | None, like: Array) -> Array: ...
    def defect(self, X: Array, like: Array) -> Array: ...
    def feasibility(self, X: Array) -> Array | None: ...
    def restore(self, X: Array) -> Array: ...


@dataclass(frozen=True)
class Matrices:
    """Stiefel, Grassmann, spheres and rotations; with XᴴMX = I where the kernels are weighted."""

    k: PerProblem
    learns: bool
    spans_only: bool = False
    size_limited: bool = True

    def lower(self, X: Array, E: Array, scale: Array) -> tuple[Array, Array, Array | None]:
        lower = lower_span_gradient if self.spans_only else lower_gradient
        E = self.k.own(E)
        return lower(self.k, X, self.k.spread_out(scale, E) * E)[:3]

    def trial(self, X: Array, W: Array, t: Array) -> RayTrial:
        k = self.k
        sigma = cayley.scale_of(k, k.matrix_dots(W, k.weigh(W)))
        U, t = sigma * W, k.spread_out(t, X) / sigma
        frame = cayley.unit_frame(k, cayley.Grams(*k.grams(X, U)))
        X, N = cayley.point(k, X, U, frame, t)
        return RayTrial(X, t, U, frame, N)

    def pair(self, X: Array, W: Array, trial: RayTrial, old: Any, new: Any) -> Secant:
        _, t, U, frame, N = trial
        assert frame is not None
        return secant_pair(self.k, X, U, frame, N, t, *old, *new)

    def raise_index(self, X: Array, W: Array, metric: Metric) -> Array:
        omega = self.k.spread_out(metric.omega, X)
        if metric.D is None:
            return raise_rotation(self.k, X, W, omega)
        return raise_columns(self.k, X, W, metric.D, omega)

    def aim(self, X: Array, T: Array, horizontal: Array) -> tuple[Array, Array]:
        """W = T − X(herm m + θ skew m) with m = XᴴT, θ = ½, or 1 for a horizontal ray.

        ‖φ(W)‖² = ‖W‖² + 3‖XᴴW‖², and XᴴW = (1 − θ) skew m.
        """
        k = self.k
        m = k.gram(X, T)
        theta = k.spread_out(0.5 + 0.5 * k.numbers(horizontal), X)
        rotation = k.skew(m)
        W = k.subtract(T, X, k.hermitian(m) + theta * rotation)
        return W, self._largest(W, k.weigh(W)) + 3.0 * self._largest(
            rotation, (1.0 - theta) ** 2 * rotation
        )

    def _largest(self, A: Array, B: Array) -> Array:
        """Re⟨A, B⟩ of the matrices of a problem, the largest."""
        return self.k.largest(self.k.matrix_dots(A, B))

    def dot(self, V: Array, W: Array) -> Array:
        return self.k.dot(V, W)

    def slope(self, G: Array, pair: Secant) -> Array:
        return self.dot(G, pair.s)

    def squares(self, pair: Secant) -> Squares:
        return squares(self.k, pair.curvature)

    def squared_length(self, pair: Secant) -> Array:
        return self.k.trace(pair.curvature.yy)

    def squared_change(self, X: Array, pair: Secant, metric: Metric) -> Array:
        seen: Curvature = pair.curvature
        return metric.scale * squared_change(self.k, seen, metric.D, metric.omega)

    def turning(self, rotation: Array | None, like: Array) -> Array:
        """‖A‖_F of the rotation part of a gradient."""
        return self.k.xp.sqrt(self.k.squared_frobenius(rotation))

    def defect(self, X: Array, like: Array) -> Array:
        """‖XᴴX − I‖/(10 eps √k): more than 1 breaks the promise."""
        eps = float(self.k.xp.finfo(X.dtype).eps)
        return self.feasibility(X) / (10.0 * eps * math.sqrt(X.shape[-1]))

    def feasibility(self, X: Array) -> Array:
        """‖XᴴX − I‖_F, the largest of a problem."""
        E = self.k.gram(X, X) - self.k.eye(X)
        return self.k.xp.sqrt(self._largest(E, E))

    def restore(self, X: Array) -> Array:
        for _ in range(2):
            X = self.k.subtract(1.5 * X, X, 0.5 * self.k.gram(X, X))
        return X


@dataclass(frozen=True)
class Free:
    """Arrays without a constraint: rays are straight lines."""

    k: PerProblem
    learns: bool = False
    spans_only: bool = False
    size_limited: bool = False

    def lower(self, X: Array, E: Array, scale: Array) -> tuple[Array, Array, Array | None]:
        E = self.k.own(E)
        G = self.k.spread_out(scale, E) * E
        return G, self.k.dot(G, G), None

    def trial(self, X: Array, W: Array, t: Array) -> RayTrial:
        t = self.k.spread_out(t, X)
        return RayTrial(X + t * W, t)

    def pair(self, X: Array, W: Array, trial: RayTrial, old: Any, new: Any) -> Secant:
        return Secant(trial.t * W, new[0] - old[0])

    def raise_index(self, X: Array, W: Array, metric: Metric) -> Array:
        return W

    def aim(self, X: Array, T: Array, horizontal: Array) -> tuple[Array, Array]:
        return T, self.k.dot(T, T)

    def dot(self, V: Array, W: Array) -> Array:
        return self.k.dot(V, W)

    def slope(self, G: Array, pair: Secant) -> Array:
        return self.dot(G, pair.s)

    def squares(self, pair: Secant) -> Squares:
        raise NotImplementedError("a free leaf has no normal part")

    def squared_length(self, pair: Secant) -> Array:
        return self.k.dot(pair.y, pair.y)

    def squared_change(self, X: Array, pair: Secant, metric: Metric) -> Array:
        return metric.scale * self.k.dot(pair.y, pair.y)

    def turning(self, rotation: Array | None, like: Array) -> Array:
        return 0.0 * like

    def defect(self, X: Array, like: Array) -> Array:
        return 0.0 * like

    def feasibility(self, X: Array) -> Array | None:
        return None

    def restore(self, X: Array) -> Array:
        return X


def small_real_matrices(leaves: Sequence[Any], x: Leaves, largest: int) -> bool:
    """Whether problems are one real matrix each, n×k with k < n ≤ largest and B = I."""
    if len(x) > 1 or not isinstance(leaves[0], Matrices) or leaves[0].k._weigh is not None:
        return False
    shape = x[0].shape
    return len(shape) == 3 and "float64" in str(x[0].dtype) and shape[2] < shape[1] <= largest
