"""Convex functions h with a cheap proximal map: sums of norms of entries or of rows.

    L1(mu):        h(X) = Σ_ij μ_ij |X_ij|          RowNorms(mu):   h(X) = Σ_i μ_i ‖X_i‖

Both are h = Σ_g μ_g ‖X_g‖ over groups g of entries; a group of one entry is its modulus.  With
r = ‖V_g‖, u = V_g/r and c = tμ_g/r:

    prox_th(V)_g  = (1 − c) V_g  where c < 1, else 0
    its derivative: W_g ↦ (1 − c) W_g + c u Re⟨u, W_g⟩  where c < 1, else 0
    h'(X)_g = μ_g u,     h''(X)[W]_g = (μ_g/r)(W_g − u Re⟨u, W_g⟩)      on the support {r > 0}

A real group of one entry has W = u Re⟨u, W⟩: its derivative is a mask and its h'' is zero.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from stiefel.types import Array

Linear = Callable[[Array], Array]


@runtime_checkable
class Term(Protocol):
    """What the methods ask of h; `stiefel.testing.check_term` checks the laws between the answers.

    Arrays have the shape of the point.  Directions may carry further axes in front.
    """

    def value(self, X: Array) -> float:
        """h(X)."""
        ...

    def prox(self, V: Array, t: float) -> Array:
        """The Z that minimises h(Z) + ‖Z − V‖²/(2t)."""
        ...

    def prox_derivative(self, V: Array, t: float) -> Linear:
        """W ↦ the derivative of ``prox(·, t)`` at V along W, symmetric, between 0 and 1."""
        ...

    def support(self, Z: Array) -> Array:
        """True where an entry may move without meeting a kink of h."""
        ...

    def gradient(self, X: Array) -> Array:
        """The gradient of h along the support of X, zero off it."""
        ...

    def hessian(self, X: Array, W: Array) -> Array:
        """The second derivative of h along the support of X times W, zero off it."""
        ...

    def stop_at_kinks(self, X: Array, Y: Array) -> Array:
        """Y with zeros where the straight way from X to Y has passed a kink."""
        ...


@dataclass(frozen=True)
class Diagonal:
    """W ↦ weights · W, entry by entry."""

    weights: Array

    def __call__(self, W: Array) -> Array:
        return self.weights * W


@dataclass(frozen=True, eq=False)
class Norms:
    """Σ_g μ_g ‖X_g‖; the subclasses say what a group is."""

    by_rows: ClassVar[bool] = False

    mu: Any

    def __post_init__(self) -> None:
        name = type(self).__name__
        if isinstance(self.mu, (bool, str)) or not isinstance(self.mu, (numbers.Real, np.ndarray)):
            raise TypeError(f"{name}(mu) got {self.mu!r}; expected a number or an array of weights")
        weights = np.asarray(self.mu, dtype=float)
        if not (np.all(np.isfinite(weights)) and np.all(weights >= 0)):
            raise ValueError(f"{name}(mu) got weights that are not finite and ≥ 0")
        # One weight is a number: arithmetic with an array of no axes costs more than the sums.
        object.__setattr__(
            self, "_weights", self._spread(weights) if weights.ndim else float(weights)
        )

    def _spread(self, weights: Array) -> Array:
        return weights

    def check(self, X: Array, name: str) -> None:
        """Raise an error if the weights do not fit a point like X."""
        weights = np.shape(self._weights)  # type: ignore[attr-defined]
        try:
            fits = np.broadcast_shapes(weights, X.shape) == tuple(X.shape)
        except ValueError:
            fits = False
        if not fits:
            raise ValueError(
                f"{type(self).__name__}(mu) has weights of shape {np.shape(self.mu)}, and {name} "
                f"has shape {tuple(X.shape)}; expected a number or weights that fit {name}"
            )

    def _sizes(self, X: Array) -> Array:
        """‖X_g‖ of every group, of a shape that broadcasts against X."""
        if self.by_rows:
            return np.sqrt(np.sum(np.abs(X) ** 2, axis=-1, keepdims=True))
        return np.abs(X)

    def _along(self, U: Array, W: Array) -> Array:
        """Re⟨U_g, W_g⟩ of every group."""
        products = (U.conj() * W).real
        return products.sum(axis=-1, keepdims=True) if self.by_rows else products

    def _is_mask(self, X: Array) -> bool:
        return not self.by_rows and X.dtype.kind != "c"

    def value(self, X: Array) -> float:
        sizes = self._sizes(X)
        if isinstance(self._weights, float):  # type: ignore[attr-defined]
            return self._weights * float(sizes.sum())  # type: ignore[attr-defined]
        return float(np.sum(self._weights * sizes))  # type: ignore[attr-defined]

    def prox(self, V: Array, t: float) -> Array:
        threshold = t * self._weights  # type: ignore[attr-defined]
        if self._is_mask(V):
            clipped = np.maximum(V, -threshold)
            np.minimum(clipped, threshold, out=clipped)
            return np.subtract(V, clipped, out=clipped)
        r = self._sizes(V)
        return V * np.maximum(1.0 - threshold / np.maximum(r, _TINY), 0.0)

    def prox_derivative(self, V: Array, t: float) -> Linear:
        threshold = t * self._weights  # type: ignore[attr-defined]
        r = self._sizes(V)
        inside = r > threshold
        if self._has_zeros:
            inside |= threshold == 0
        if self._is_mask(V):
            return Diagonal(inside.astype(float))
        r = np.maximum(r, _TINY)
        c, u = np.where(inside, threshold / r, 1.0), V / r
        return lambda W: (1.0 - c) * W + np.where(inside, c, 0.0) * u * self._along(u, W)

    @property
    def _has_zeros(self) -> bool:
        """Whether a weight is zero."""
        weights = self._weights  # type: ignore[attr-defined]
        return weights == 0.0 if isinstance(weights, float) else not weights.all()

    def support(self, Z: Array) -> Array:
        free = self._sizes(Z) > 0 if self.by_rows else Z != 0
        if self._has_zeros:
            free = free | (self._weights == 0)  # type: ignore[attr-defined]
        return free if free.shape == Z.shape else np.broadcast_to(free, Z.shape)

    def gradient(self, X: Array) -> Array:
        return self._weights * (X / np.maximum(self._sizes(X), _TINY))  # type: ignore[attr-defined]

    def hessian(self, X: Array, W: Array) -> Array:
        if self._is_mask(X):
            return np.zeros_like(W)
        r = self._sizes(X)
        u, r = X / np.maximum(r, _TINY), np.where(r > 0, r, math.inf)
        return self._weights / r * (W - u * self._along(u, W))  # type: ignore[attr-defined]

    def stop_at_kinks(self, X: Array, Y: Array) -> Array:
        passed = (self._along(X, Y) <= 0) & (self._weights > 0)  # type: ignore[attr-defined]
        return np.where(passed, 0.0, Y)


_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class L1(Norms):
    """h(X) = Σ μ_ij |X_ij|, which makes single entries exactly zero.

    Parameters
    ----------
    mu : float or array
        The weight, a number ≥ 0, or an array of weights that broadcasts against the point.
    of : matrix or LinearOperator, optional
        A linear map A for h(AX) = Σ μ_ij |(AX)_ij|: a matrix or a
        `scipy.sparse.linalg.LinearOperator`.  Such a term is minimised by an augmented Lagrangian,
        and AX has small entries rather than exact zeros.

    Raises
    ------
    TypeError, ValueError
        If the weights are not numbers, or not finite and ≥ 0.

    Examples
    --------
    >>> import numpy as np
    >>> import stiefel
    >>> stiefel.L1(0.5).value(np.array([[3.0, -4.0]]))
    3.5
    >>> stiefel.L1(0.5).prox(np.array([[3.0, -0.2]]), 1.0)
    array([[2.5, 0. ]])
    """

    of: Any = None


@dataclass(frozen=True, eq=False)
class RowNorms(Norms):
    """h(X) = Σ μ_i ‖X_i‖ over the rows of X (ℓ2,1), which makes whole rows exactly zero.

    Parameters
    ----------
    mu : float or array
        The weight, a number ≥ 0, or one weight for each row.

    Raises
    ------
    TypeError, ValueError
        If the weights are not numbers, or not finite and ≥ 0.

    Examples
    --------
    >>> import numpy as np
    >>> import stiefel
    >>> stiefel.RowNorms(1.0).value(np.array([[3.0, -4.0], [0.0, 0.0]]))
    5.0
    """

    by_rows: ClassVar[bool] = True

    def _spread(self, weights: Array) -> Array:
        return weights[..., None]

    def check(self, X: Array, name: str) -> None:
        if len(X.shape) < 2:
            raise ValueError(
                f"RowNorms needs a matrix; {name} has shape {tuple(X.shape)}: pass columns (n, 1), "
                "or use L1"
            )
        super().check(X, name)


@dataclass(frozen=True)
class Nothing:
    """h = 0, for leaves of a tree that have no term."""

    def value(self, X: Array) -> float:
        return 0.0

    def prox(self, V: Array, t: float) -> Array:
        return V

    def prox_derivative(self, V: Array, t: float) -> Linear:
        return Diagonal(np.ones(V.shape))

    def support(self, Z: Array) -> Array:
        return np.ones(Z.shape, dtype=bool)

    def gradient(self, X: Array) -> Array:
        return np.zeros_like(X)

    def hessian(self, X: Array, W: Array) -> Array:
        return np.zeros_like(W)

    def stop_at_kinks(self, X: Array, Y: Array) -> Array:
        return Y
