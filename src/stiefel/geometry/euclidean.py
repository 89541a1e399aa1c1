"""Rⁿ (or Cⁿ) as a manifold: Section 3's methods, and free parameters beside orthonormal ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from stiefel.backends.arrays import kernels_for
from stiefel.backends.base import Kernels, kernel
from stiefel.backends.ranks import ALONE, Alone, Ranks
from stiefel.types import Array, Metric

from . import checks
from .compiled import straight_pair
from .ray import Lowered, Secant, pair_by_transport, pair_with_products


class Line:
    """The curve t ↦ X + tW."""

    defect = 0.0
    bounded_length = 0.0  # no step is too long for a flat space

    def __init__(
        self, X: Array, W: Array, squared_norm: float, local: Kernels | None = None
    ) -> None:
        self._X, self._W, self._local = X, W, local  # local: of NumPy arrays, on one machine
        self.squared_norm = squared_norm

    @property
    def length(self) -> float:
        return math.sqrt(self.squared_norm)

    def __call__(self, t: float) -> Array:
        return self._X + t * self._W

    def velocity(self, t: float) -> Array:
        return self._W

    def transport(self, t: float, V: Array) -> Array:
        return V

    def transported_velocity(self, t: float) -> Array:
        return self._W

    def secant_pair(self, t: float, old: Any, new: Any) -> Secant:
        W, k = self._W, self._local
        if k is not None and k.compiled is not None and W.dtype.char in "dD":
            s, y, slope, _, _, _, square = straight_pair(k, W, t, old.G, new.G)
            return Secant(s, y, None, square, slope)
        pair = pair_by_transport(self, t, old, new)
        return pair if k is None else pair_with_products(pair, new.G)


@dataclass(frozen=True)
class FlatMetric:
    """Arrays whose tangents are cotangents too; without a constraint unless a subclass has one."""

    rows_on_ranks: ClassVar[bool] = False  # with comm=; see `layout`

    kernels: Kernels | None = field(default=None, repr=False, compare=False)

    def bind(self, X: Array, ranks: Alone | Ranks = ALONE) -> Self:
        return replace(self, kernels=kernels_for(X, ranks))

    def kernels_at(self, X: Array) -> Kernels:
        return self.kernels or kernels_for(X)

    def has_plain_metric(self, X: Array) -> bool:
        """Whether tangents are cotangents, in NumPy arrays: see `solvers.plain_pairs`."""
        return self.kernels_at(X).pure_numpy and X.dtype.char in "fdFD"

    def project(self, X: Array, G: Array) -> Array:
        # The user's function may write its next gradient into the same array.
        return G.copy("K") if type(G) is np.ndarray else 1.0 * G

    def gradient(self, X: Array, E: Array) -> Lowered:
        if self._is_bare(E):
            G = E.copy("K")
            return Lowered(G, float(np.vdot(G, G).real))
        G = self.project(X, E)
        return Lowered(G, self.inner(X, G, G))

    def _is_bare(self, X: Array) -> bool:
        """Whether the formulas here can be written out: free arrays of NumPy."""
        k = self.kernels
        return type(self) is Euclidean and k is not None and k.pure_numpy and type(X) is np.ndarray

    def project_direction(self, X: Array, W: Array) -> Array:
        return W

    def inner(self, X: Array, V: Array, W: Array) -> float:
        """Re⟨V, W⟩."""
        return self.dot(V, W)

    inner_tangent = pair = inner

    def norm(self, X: Array, W: Array) -> float:
        return math.sqrt(self.inner(X, W, W))

    def raise_index(self, X: Array, W: Array, metric: Any = None) -> Array:
        return W

    lower_index = cotangent_of = raise_index

    def bounded_length(self, T: Array) -> float:
        return 0.0

    def hessian(self, X: Array, gradient: Array, W: Array, E: Array) -> Array:
        """E, the Hessian times W."""
        return E

    def ray(self, X: Array, W: Array) -> Line:
        k = self.kernels_at(X)
        return Line(X, W, self.inner(X, W, W), k if k.pure_numpy else None)

    def lift(self, X: Array, Y: Array) -> Array:
        return Y - X

    def extrapolate(self, X: Array, Y: Array, tau: float) -> Array:
        return X + tau * (Y - X)

    def geodesic(self, X: Array, W: Array, t: float = 1.0) -> Array:
        return X + t * W

    exponential = geodesic

    def transport(self, X: Array, Y: Array, W: Array) -> Array:
        return W

    def combine(self, a: float, V: Array, b: float, W: Array) -> Array:
        return self.kernels_at(V).axpby(a, V, b, W)

    def scale(self, a: float, V: Array) -> Array:
        return a * V

    def dot(self, C: Array, D: Array) -> float:
        k = self.kernels_at(C)
        return float(np.vdot(C, D).real if k.pure_numpy else _dot(k, C, D))

    def dual(self, C: Array) -> Array:
        return C

    def raise_onto(self, X: Array, W: Array, metric: Metric) -> Array:
        return W

    def ray_along(self, X: Array, T: Array, metric: Metric) -> Line:
        if self._is_bare(T):
            return Line(X, T, float(np.vdot(T, T).real), self.kernels)
        return self.ray(X, T)

    def defect(self, X: Array) -> float:
        return 0.0

    def allowed_defect(self, X: Array) -> float:
        return 0.0

    def restore(self, X: Array) -> Array:
        return X

    def nearest(self, A: Array) -> Array:
        return A

    def random(
        self,
        *shape: int,
        seed: int | np.random.Generator | None = None,
        dtype: Any = np.float64,
        like: Array | None = None,
    ) -> Array:
        """A Gaussian array."""
        return checks.gaussian(shape, seed, dtype, like)

    def eps(self, X: Array) -> float:
        return self.kernels_at(X).eps(X)

    def check_point(self, X: Array, name: str = "X0") -> None:
        checks.check_array(X, name, may_be_empty=self.kernels is not None)
        checks.check_finite(self.kernels_at(X), X, name)

    def dimension(self, X: Array) -> int:
        size = math.prod(X.shape)
        return 2 * size if self.kernels_at(X).is_complex(X) else size


@dataclass(frozen=True)
class Euclidean(FlatMetric):
    """Arrays of any shape without a constraint: free parameters beside orthonormal ones.

    Parameters
    ----------
    kernels : Kernels, optional
        Set by `bind`; not for users.

    Examples
    --------
    >>> import numpy as np, stiefel
    >>> fun = lambda p: (  # a direction and an offset
    ...     float(np.sum((p["u"] - p["b"]) ** 2)),
    ...     {"u": 2 * (p["u"] - p["b"]), "b": -2 * (p["u"] - p["b"])},
    ... )
    >>> start = {"u": np.eye(3, 1), "b": np.full((3, 1), 2.0)}
    >>> where = {"u": stiefel.Stiefel(), "b": stiefel.Euclidean()}
    >>> result = stiefel.minimize(fun, start, manifold=where)
    >>> result.success, bool(np.allclose(result.x["u"], result.x["b"], atol=1e-4))
    (True, True)
    """


@kernel
def _dot(k: Kernels, C: Array, D: Array) -> Array:
    return k.dot(C, D)
