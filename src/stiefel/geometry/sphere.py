"""Unit vectors: the Stiefel manifold with k = 1, with or without the axis of length one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar

import numpy as np

from stiefel.backends.base import Kernels
from stiefel.types import Array, Curve, Metric

from . import checks, real_vector
from .metric import CANONICAL
from .ray import Lowered, Secant, pair_by_transport
from .real_columns import is_column_stack, unit_products, units_gradient
from .real_vector import RealVectorRay, is_real_vector
from .stiefel import Stiefel
from .unit import RowCircle


def _has_columns(X: Array) -> bool:
    return len(X.shape) >= 2 and X.shape[-1] == 1


def _is_real_stack(k: Kernels, X: Array) -> bool:
    """Whether `real_columns` has versions for X, a stack of vectors."""
    shape = X.shape
    is_stack = len(shape) >= 2 and shape[-1] != 1 and k.pure_numpy
    return is_stack and X.dtype.char in "fd" and X.size > 0


def _on_columns(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of `Stiefel` on columns (..., n, 1), applied to vectors (..., n)."""

    @wraps(method)
    def wrapped(self: Sphere, X: Array, *others: Any) -> Any:
        if _has_columns(X):
            return method(self, X, *others)
        columns = [v[..., None] if hasattr(v, "shape") and v.shape else v for v in others]
        result = method(self, X[..., None], *columns)
        return result[..., 0] if hasattr(result, "shape") and result.shape else result

    return wrapped


@dataclass(frozen=True)
class Sphere(Stiefel):
    """Unit vectors ``(n,)``, stacks ``(..., n)`` of them, or columns ``(..., n, 1)``.

    Parameters
    ----------
    B : array, sparse matrix or LinearOperator, optional
        The matrix of a generalised constraint XᴴBX = I, Hermitian positive definite.  It is
        factorised once and must not be changed afterwards.
    solve : callable, optional
        ``solve(G)`` = B⁻¹G.  By default B is factorised once, or inverted by conjugate gradients
        when it is an operator.
    kernels : Kernels, optional
        Set by `bind`; not for users.

    Examples
    --------
    >>> import numpy as np, stiefel
    >>> A = np.diag([3.0, 1.0, 2.0])
    >>> x0 = np.array([0.6, 0.0, 0.8])
    >>> fun = lambda x: (x @ A @ x, 2 * A @ x)
    >>> start = stiefel.nearest(x0 + 0.1, manifold=stiefel.Sphere())
    >>> round(stiefel.minimize(fun, start, manifold=stiefel.Sphere()).fun, 6)
    1.0
    """

    learns: ClassVar[bool] = False  # a single column has no others to be weighed against

    project = _on_columns(Stiefel.project)
    project_direction = _on_columns(Stiefel.project_direction)
    inner = _on_columns(Stiefel.inner)
    inner_tangent = _on_columns(Stiefel.inner_tangent)
    lower_index = _on_columns(Stiefel.lower_index)
    cotangent_of = _on_columns(Stiefel.cotangent_of)
    bounded_length = _on_columns(Stiefel.bounded_length)
    dual = _on_columns(Stiefel.dual)
    pair = _on_columns(Stiefel.pair)
    hessian = _on_columns(Stiefel.hessian)
    lift = _on_columns(Stiefel.lift)
    extrapolate = _on_columns(Stiefel.extrapolate)
    geodesic = _on_columns(Stiefel.geodesic)
    _raise_index = _on_columns(Stiefel.raise_index)
    _defect = _on_columns(Stiefel.defect)
    _allowed_defect = _on_columns(Stiefel.allowed_defect)
    restore = _on_columns(Stiefel.restore)
    nearest = _on_columns(Stiefel.nearest)
    dimension = _on_columns(Stiefel.dimension)

    def has_plain_metric(self, X: Array) -> bool:
        """Whether tangents are cotangents, in real NumPy arrays: see `solvers.plain_pairs`."""
        k = self.kernels_at(X)
        return is_real_vector(k, X) or is_column_stack(k, X) or _is_real_stack(k, X)

    def gradient(self, X: Array, E: Array) -> Lowered:
        k = self.kernels or self._resolve(X)
        if _is_real_stack(k, X):
            return units_gradient(k, X, E, by_rows=True)
        if is_real_vector(k, X):
            return real_vector.vector_gradient(k, X, E)
        if _has_columns(X):
            return super().gradient(X, E)
        lowered = super().gradient(X[..., None], E[..., None])
        return lowered._replace(G=lowered.G[..., 0])

    def raise_index(self, X: Array, W: Array, metric: Metric | None = None) -> Array:
        k = self.kernels_at(X)
        if metric is not None and metric.D is None and _is_real_stack(k, X):
            return units_gradient(k, X, W, by_rows=True).G
        return self._raise_index(X, W, metric)

    def defect(self, X: Array) -> float:
        if _is_real_stack(self.kernels_at(X), X):
            return float(np.abs(unit_products(X, X, by_rows=True) - 1.0).max())
        return float(self._defect(X))

    def allowed_defect(self, X: Array) -> float:
        return 10.0 * self.eps(X) if self.B is None else float(self._allowed_defect(X))

    def raise_onto(self, X: Array, W: Array, metric: Metric) -> Array:
        if _has_columns(X):
            return super().raise_onto(X, W, metric)
        return super().raise_onto(X[..., None], W[..., None], metric)[..., 0]

    def ray(self, X: Array, W: Array) -> Any:
        k = self.kernels_at(X)
        if is_real_vector(k, X):
            return RealVectorRay(k, X, W)
        if _is_real_stack(k, X):
            return RowCircle(k, X, W)
        if _has_columns(X):
            return super().ray(X, W)
        return _VectorRay(super().ray(X[..., None], W[..., None]))

    def ray_along(self, X: Array, T: Array, metric: Any = CANONICAL) -> Any:
        k = self.kernels_at(X)
        if is_real_vector(k, X):
            return RealVectorRay(k, X, T, tangent=True)
        if _is_real_stack(k, X):
            return RowCircle(k, X, T)
        return self.ray(X, self.cotangent_of(X, T, metric))

    def aim_along(self, X: Array, G: Array, T: Array, into: Any = None) -> tuple[float, Any]:
        """⟨G, T⟩ and the ray along T, of real vectors in NumPy."""
        if X.ndim == 1:
            ray = RealVectorRay(self.kernels_at(X), X, T, G, into, tangent=True)
            return ray.slope, ray
        if X.shape[-1] == 1:
            return super().aim_along(X, G, T, into)
        circle = RowCircle(self.kernels_at(X), X, T, G, into)
        return circle.slope, circle

    def dot(self, C: Array, D: Array) -> float:
        if self.kernels_at(C).pure_numpy:
            return float(np.vdot(C, D).real)
        if _has_columns(C):
            return super().dot(C, D)
        return super().dot(C[..., None], D[..., None])

    def check_point(self, X: Array, name: str = "X0") -> None:
        checks.check_array(X, name, may_be_empty=self.kernels is not None)
        if len(X.shape) == 0:
            raise ValueError(f"{name} is a scalar; expected a vector (n,) or a stack (..., n)")
        checks.check_finite(self.kernels_at(X), X, name)
        checks.check_orthonormal(self, X, name)

    def random(
        self,
        *shape: int,
        seed: int | np.random.Generator | None = None,
        dtype: Any = np.float64,
        like: Array | None = None,
    ) -> Array:
        """Uniformly distributed unit vectors of the given shape."""
        return self.nearest(checks.gaussian(shape, seed, dtype, like))


class _VectorRay:
    def __init__(self, ray: Curve) -> None:
        self._ray = ray

    @property
    def squared_norm(self) -> float:
        return self._ray.squared_norm

    @property
    def defect(self) -> float:
        return self._ray.defect

    @property
    def bounded_length(self) -> float:
        return self._ray.bounded_length

    @property
    def length(self) -> float:
        return self._ray.length

    def __call__(self, t: float) -> Array:
        return self._ray(t)[..., 0]

    def velocity(self, t: float) -> Array:
        return self._ray.velocity(t)[..., 0]

    def transported_velocity(self, t: float) -> Array:
        return self._ray.transported_velocity(t)[..., 0]

    def transport(self, t: float, V: Array) -> Array:
        return self._ray.transport(t, V[..., None])[..., 0]

    def secant_pair(self, t: float, old: Any, new: Any) -> Secant:
        return pair_by_transport(self, t, old, new)
