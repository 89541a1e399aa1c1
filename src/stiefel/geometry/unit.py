"""Unit vectors side by side: the columns of a matrix, or complex numbers of modulus one.

A point X is an array that falls into unit vectors x of a real Euclidean space: Re⟨x, x⟩ = 1 for
each.  Its tangents, which are its cotangents too (the metric is that of the space around), are the
W with Re⟨x, w⟩ = 0 for each.  Curves are those of the Cayley transform,

    x(t) = ((1 − s²) x + t w)/(1 + s²),     s = tθ/2,  θ = ‖w‖,

which run on great circles, with an angle φ of tan φ/2 = s.  What is orthogonal to x and w is
carried along unchanged, and w is turned by φ.  Everything is a few operations on whole arrays:
sums over the entries of a vector, broadcast back.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from stiefel.backends.base import Kernels, kernel
from stiefel.types import Array, Metric

from . import checks
from .euclidean import FlatMetric
from .ray import Lowered, PlainStride, Secant, pair_by_transport
from .real_columns import RealCircle, units_gradient

# What a vector is: a column, a row or an entry.  All are empty to JAX, to which numbers are data.
UnitKind = tuple[()] | tuple[tuple[()]] | None
COLUMN: UnitKind = ()
ROW: UnitKind = ((),)
ENTRY: UnitKind = None
REAL_TYPES = {"D": np.dtype(np.float64), "F": np.dtype(np.float32)}  # of complex numbers


@dataclass(frozen=True)
class _UnitVectors(FlatMetric):
    """What `Oblique` and `ComplexCircle` share: ``kind`` says what a vector is."""

    kind: ClassVar[UnitKind] = COLUMN
    what: ClassVar[str] = "unit vectors"

    def project(self, X: Array, G: Array) -> Array:
        """G − X Re⟨x, g⟩, vector by vector."""
        return _project(self.kernels_at(X), self.kind, X, G)

    def project_direction(self, X: Array, W: Array) -> Array:
        return self.project(X, W)

    def gradient(self, X: Array, E: Array) -> Lowered:
        k = self.kernels or self.kernels_at(X)
        if self._real_columns(X):
            return units_gradient(k, X, E, by_rows=False)
        if self._phases(X):
            G, square, *_ = units_gradient(k, _reals(X), _reals(E), by_rows=True)
            return Lowered(_complex_like(X, G), square)
        G = self.project(X, E)
        return Lowered(G, self.dot(G, G))

    def cotangent_of(self, X: Array, T: Array, metric: Metric | None = None) -> Array:
        return self.project(X, T)

    def bounded_length(self, T: Array) -> float:
        """The length of the longest vector."""
        k = self.kernels_at(T)
        return math.sqrt(float(k.xp.max(_squares(k, self.kind, T, T))))

    def hessian(self, X: Array, gradient: Array, W: Array, E: Array) -> Array:
        """The projection of E − W Re⟨x, g⟩, with the Euclidean gradient g."""
        k = self.kernels_at(X)
        return self.project(X, E - W * _squares(k, self.kind, X, gradient))

    def ray(self, X: Array, W: Array) -> Circle:  # type: ignore[override]
        k = self.kernels_at(X)
        if self._phases(X):
            return PhaseCircle(k, X, W)
        return ColumnCircle(k, X, W) if self._real_columns(X) else Circle(k, self.kind, X, W)

    def aim_along(self, X: Array, G: Array, T: Array, into: Any = None) -> tuple[float, Circle]:
        """⟨G, T⟩ and the curves along T; of real unit columns and phases see `real_columns`."""
        known = self.kernels_at(X), X, T, G, into
        if self._real_columns(X) or self._phases(X):
            circle = (ColumnCircle if self.kind is COLUMN else PhaseCircle)(*known)
            return circle.slope, circle
        return self.dot(G, T), self.ray(X, T)

    def _real_columns(self, X: Array) -> bool:
        """Whether `real_columns` has versions for X."""
        k = self.kernels or self.kernels_at(X)
        return self.kind is COLUMN and k.pure_numpy and X.dtype.kind != "c"

    def _phases(self, X: Array) -> bool:
        """Whether entries of X are unit vectors of two real numbers in NumPy."""
        return self.kind is ENTRY and self.kernels_at(X).pure_numpy and X.dtype.kind == "c"

    def ray_along(self, X: Array, T: Array, metric: Metric) -> Circle:  # type: ignore[override]
        return self.ray(X, T)

    def lift(self, X: Array, Y: Array) -> Array:
        """2(y − mx)/(1 + m), m = Re⟨x, y⟩; not finite for y = −x, to which every circle leads."""
        return _lift(self.kernels_at(X), self.kind, X, Y)

    def extrapolate(self, X: Array, Y: Array, tau: float) -> Array:
        return self.ray(X, self.lift(X, Y))(tau)

    def geodesic(self, X: Array, W: Array, t: float = 1.0) -> Array:
        """x cos tθ + (w/θ) sin tθ."""
        return _geodesic(self.kernels_at(X), self.kind, X, W, t)

    exponential = geodesic

    def transport(self, X: Array, Y: Array, W: Array) -> Array:
        return self.project(Y, W)

    def defect(self, X: Array) -> float:
        """The largest |‖x‖² − 1|."""
        k = self.kernels_at(X)
        return float(k.xp.max(k.xp.abs(_squares(k, self.kind, X, X) - 1.0)))

    def allowed_defect(self, X: Array) -> float:
        return 10.0 * self.eps(X)

    def restore(self, X: Array) -> Array:
        return self.nearest(X)

    def nearest(self, A: Array) -> Array:
        """Every vector divided by its length."""
        k = self.kernels_at(A)
        return A / k.xp.sqrt(_squares(k, self.kind, A, A))

    def random(
        self,
        *shape: int,
        seed: int | np.random.Generator | None = None,
        dtype: Any = None,
        like: Array | None = None,
    ) -> Array:
        """Uniformly distributed unit vectors."""
        dtype = np.float64 if dtype is None else dtype
        return self.nearest(checks.gaussian(shape, seed, dtype, like))

    def check_point(self, X: Array, name: str = "X0") -> None:
        super().check_point(X, name)
        allowed = max(checks.ORTHONORMAL_TOLERANCE, 100.0 * self.eps(X))
        if not self.defect(X) <= allowed:
            raise ValueError(
                f"{name} does not have {self.what}: a squared length differs from 1 by "
                f"{self.defect(X):.1e} (allowed {allowed:.0e}); "
                f"pass {type(self).__name__}().nearest({name})"
            )

    def dimension(self, X: Array) -> int:
        """One less than the real entries of each vector."""
        vectors = math.prod(X.shape) // (1 if self.kind is ENTRY else X.shape[-2])
        return super().dimension(X) - vectors


@dataclass(frozen=True)
class Oblique(_UnitVectors):
    """Matrices ``(..., n, k)`` whose columns have length one, without being orthogonal.

    Correlation matrices VᵀV of low rank, max-cut by Burer and Monteiro, dictionaries.

    Parameters
    ----------
    kernels : Kernels, optional
        Set by `bind`; not for users.

    Examples
    --------
    >>> import numpy as np, stiefel
    >>> C = np.array([[1.0, 0.9, -0.3], [0.9, 1.0, 0.6], [-0.3, 0.6, 1.0]])  # not positive
    >>> def fun(V):  # the nearest correlation matrix of rank two
    ...     R = V.T @ V - C
    ...     return np.sum(R * R) / 4, V @ R
    >>> V0 = stiefel.Oblique().random(2, 3, seed=0)
    >>> result = stiefel.minimize(fun, V0, manifold=stiefel.Oblique())
    >>> result.success, bool(np.allclose(np.diag(result.x.T @ result.x), 1))
    (True, True)
    """

    what: ClassVar[str] = "unit columns"

    def check_point(self, X: Array, name: str = "X0") -> None:
        """Raise an error that says what is wrong with X as a point, or return."""
        checks.check_array(X, name)
        if len(X.shape) < 2:
            raise ValueError(
                f"{name} has shape {tuple(X.shape)}; Oblique() needs matrices (..., n, k) with "
                "unit columns: use Sphere() for a unit vector"
            )
        super().check_point(X, name)


@dataclass(frozen=True)
class ComplexCircle(_UnitVectors):
    """Complex arrays of any shape whose entries have modulus one.

    Phases: beamforming and radar codes of constant modulus, phase retrieval, synchronisation.

    Parameters
    ----------
    kernels : Kernels, optional
        Set by `bind`; not for users.

    Examples
    --------
    >>> import numpy as np, stiefel
    >>> a = np.exp(1j * np.arange(4.0))
    >>> fun = lambda z: (-abs(np.vdot(a, z)) ** 2, -2 * a * np.vdot(a, z))
    >>> z0 = stiefel.ComplexCircle().random(4, seed=0)
    >>> result = stiefel.minimize(fun, z0, manifold=stiefel.ComplexCircle())
    >>> result.success, round(result.fun, 6)
    (True, -16.0)
    """

    kind: ClassVar[UnitKind] = ENTRY
    what: ClassVar[str] = "entries of modulus one"

    def check_point(self, X: Array, name: str = "X0") -> None:
        """Raise an error that says what is wrong with X as a point, or return."""
        checks.check_array(X, name)
        if not self.kernels_at(X).is_complex(X):
            raise TypeError(
                f"{name} has dtype {X.dtype}; ComplexCircle() needs complex numbers: "
                f"pass {name}.astype(complex)"
            )
        super().check_point(X, name)

    def random(
        self,
        *shape: int,
        seed: int | np.random.Generator | None = None,
        dtype: Any = None,
        like: Array | None = None,
    ) -> Array:
        """Uniformly distributed phases."""
        dtype = np.complex128 if dtype is None or np.dtype(dtype).kind != "c" else dtype
        return super().random(*shape, seed=seed, dtype=dtype, like=like)


class Circle:
    """The curves that leave X along W, on great circles."""

    _kernels: Kernels
    _X: Array
    _squares: Array
    squared_norm: float
    length: float
    bounded_length: float

    def __init__(self, kernels: Kernels, kind: UnitKind, X: Array, W: Array) -> None:
        W = _project(kernels, kind, X, W)  # a part along x is no way to go
        self._kernels, self._kind, self._X, self._W = kernels, kind, X, W
        self._squares = _squares(kernels, kind, W, W)  # θ²
        self.squared_norm = float(kernels.xp.sum(self._squares))
        self.bounded_length = self.length = math.sqrt(float(kernels.xp.max(self._squares)))

    @property
    def defect(self) -> float:
        k = self._kernels
        return float(k.xp.max(k.xp.abs(_squares(k, self._kind, self._X, self._X) - 1.0)))

    def __call__(self, t: float) -> Array:
        return _point(self._kernels, self._kind, self._X, self._W, self._squares, t)

    def velocity(self, t: float) -> Array:
        """X'(t) = ((1 − s²) w − tθ² x)/(1 + s²)²."""
        return self.transported_velocity(t) / (1.0 + (0.25 * t * t) * self._squares)

    def transported_velocity(self, t: float) -> Array:
        """w, turned by φ."""
        return _transported(self._kernels, self._X, self._W, self._squares, t)

    def transport(self, t: float, V: Array) -> Array:
        """V with its part along w turned: v − Re⟨w, v⟩ (t²w/2 + t x)/(1 + s²)."""
        arguments = self._X, self._W, self._squares, t, V
        return _transport(self._kernels, self._kind, *arguments)

    def secant_pair(self, t: float, old: Any, new: Any) -> Secant:
        return pair_by_transport(self, t, old, new)


class ColumnCircle(RealCircle, Circle):
    """`Circle`, of real unit columns in NumPy."""

    kind: ClassVar[UnitKind] = COLUMN

    def __init__(
        self, kernels: Kernels, X: Array, U: Array, G: Array | None = None, into: Any = None
    ) -> None:
        RealCircle.__init__(self, kernels, X, U, G, into)

    @property
    def _kind(self) -> UnitKind:  # type: ignore[override]
        return self.kind

    @cached_property
    def _W(self) -> Array:  # type: ignore[override]
        return self._U - self._X * self._M


class StackCircle(ColumnCircle):
    """`ColumnCircle`, of matrices with one column; its defect is that of `Stiefel`."""

    def _measure(self, numbers: tuple[float, ...]) -> None:
        self.squared_norm, largest, _, _, _, squares = numbers
        self.bounded_length = self.length = math.sqrt(largest) if largest > 0 else 0.0
        self.defect = math.sqrt(squares)


class RowCircle(StackCircle):
    """`StackCircle`, of vectors (..., n)."""

    kind = ROW
    by_rows = True


class PhaseCircle(ColumnCircle):
    """`Circle`, of complex numbers of modulus one in NumPy: rows of two real numbers."""

    landing = None
    kind = ROW
    by_rows = True

    def __init__(
        self, kernels: Kernels, X: Array, U: Array, G: Array | None = None, into: Any = None
    ) -> None:
        self._like, self._gradient = X, G
        reals = _reals(X), _reals(U), None if G is None else _reals(G)
        super().__init__(kernels, *reals, into)

    def aimed_by(self, X: Array, G: Array, T: Array, pairs: Any, into: Any) -> PhaseCircle:
        new = super().aimed_by(_reals(X), _reals(G), _reals(T), pairs, into)
        new._like, new._gradient = X, G
        return new

    def strides_from(self, G: Array) -> bool:
        return G is self._gradient and super().strides_from(self._G)

    def stride(
        self, t: float, Y: Array, E: Array, of_memory: tuple[Any, ...], rules: Any, vectors: Any
    ) -> PlainStride:
        ended = super().stride(t, _reals(Y), _reals(E), of_memory, rules, vectors)
        T = ended.T if ended.T is None else _complex_like(Y, ended.T)
        return ended._replace(G=_complex_like(Y, ended.G), T=T)

    def after(self, X: Array, G: Array, ended: PlainStride, into: Any) -> PhaseCircle:
        own = ended._replace(T=_reals(ended.T))
        new = super().after(_reals(X), _reals(G), own, into)
        new._like, new._gradient = X, G
        return new

    def __call__(self, t: float) -> Array:
        return _complex_like(self._like, super().__call__(t))

    def velocity(self, t: float) -> Array:
        return self.transported_velocity(t) / (1.0 + (0.25 * t * t) * self._entries(self._squares))

    def transported_velocity(self, t: float) -> Array:
        return _complex_like(self._like, super().transported_velocity(t))

    def transport(self, t: float, V: Array) -> Array:
        return _complex_like(self._like, super().transport(t, _reals(V)))

    def secant_pair(self, t: float, old: Any, new: Any) -> Secant:
        G = self._G if old.G is self._gradient else _reals(old.G)
        pair = super().secant_pair(t, Lowered(G, 0.0), Lowered(_reals(new.G), 0.0))
        if pair.kept is not None:
            return pair
        s, y = _complex_like(self._like, pair.s), _complex_like(self._like, pair.y)
        return pair._replace(s=s, y=y)

    def _entries(self, numbers: Array) -> Array:
        return numbers.reshape(self._like.shape)


def _reals(X: Array) -> Array:
    """Complex numbers as rows of two real ones, in the same memory if it is in order."""
    X = X if X.ndim and X.flags.c_contiguous else np.ascontiguousarray(X)
    return X.view(REAL_TYPES[X.dtype.char]).reshape(-1, 2)


def _complex_like(X: Array, rows: Array) -> Array:
    return rows.view(X.dtype).reshape(X.shape)


def _squares(k: Kernels, kind: UnitKind, A: Array, B: Array) -> Array:
    """Re⟨a, b⟩ of the vectors, of the shape that broadcasts against them; in A's dtype."""
    products = k.real(k.conj(A) * B)
    if kind is ENTRY:
        return products
    return k.xp.sum(products, axis=-2 if kind == COLUMN else -1, keepdims=True)


@kernel
def _project(k: Kernels, kind: UnitKind, X: Array, G: Array) -> Array:
    return G - X * _squares(k, kind, X, G)


@kernel
def _lift(k: Kernels, kind: UnitKind, X: Array, Y: Array) -> Array:
    m = _squares(k, kind, X, Y)
    return (Y - X * m) * (2.0 / (1.0 + m))


@kernel
def _point(k: Kernels, kind: UnitKind, X: Array, W: Array, squares: Array, t: Any) -> Array:
    ss = (0.25 * t * t) * squares
    Y = (X * (1.0 - ss) + W * t) / (1.0 + ss)
    return Y * (1.5 - 0.5 * _squares(k, kind, Y, Y))  # lengths do not drift


@kernel
def _transported(k: Kernels, X: Array, W: Array, squares: Array, t: Any) -> Array:
    ss = (0.25 * t * t) * squares
    return (W * (1.0 - ss) - X * (t * squares)) / (1.0 + ss)


@kernel
def _transport(
    k: Kernels, kind: UnitKind, X: Array, W: Array, squares: Array, t: Any, V: Array
) -> Array:
    share = _squares(k, kind, W, V) / (1.0 + (0.25 * t * t) * squares)
    return V - (W * (0.5 * t * t) + X * t) * share


@kernel
def _geodesic(k: Kernels, kind: UnitKind, X: Array, W: Array, t: Any) -> Array:
    W = W - X * _squares(k, kind, X, W)
    theta = k.xp.sqrt(_squares(k, kind, W, W))
    some = k.xp.where(theta > 0, theta, k.xp.ones_like(theta))
    sine = k.xp.where(theta > 0, k.xp.sin(t * some) / some, t * k.xp.ones_like(theta))
    return X * k.xp.cos(t * theta) + W * sine
