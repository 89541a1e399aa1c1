"""Points as flat real vectors, and the normal space of XᴴX = I in them.

All leaves of a point, real or complex, matrices or stacks, lie one after the other in one vector x
of N real numbers; Λ, Hermitian k×k for every orthonormal matrix, in one vector of Q numbers.  Then

    normal(x, Λ) = XΛ,      gather(x, v) = herm(XᴴV)

are adjoint to each other, v is tangent at x if gather(x, v) = 0, and everything that the methods do
with several leaves, a memory or a tree is algebra of vectors.  Free leaves have no Λ.

Most points are one real matrix of few columns: there Λ is given by its k(k+1)/2 coordinates in an
orthonormal basis of the symmetric matrices, and every product is one call of BLAS (`OneMatrix`); of
a vector, k = 1, it is a number (`OneVector`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np

from stiefel.backends.arrays import kernels_for, to_numpy
from stiefel.geometry.compiled import COUNTED_BY_BLAS
from stiefel.types import Array, Manifold

from .compiled import Normals
from .terms import L1, Diagonal, Linear, Term

DENSE_COLUMNS = 12  # columns: with more, conjugate gradients need less time than a factorisation
# The same by the compiled kernels: test_a_factorisation_pays_to_thirty_columns.
KERNEL_COLUMNS = 30


@cache
def hermitian_basis(k: int, is_complex: bool) -> Array:
    """An orthonormal basis of the Hermitian k×k matrices, one flat real row each."""
    rows = []
    for i in range(k):
        for j in range(i + 1):
            E = np.zeros((k, k), complex if is_complex else float)
            E[i, j] = E[j, i] = 1.0 if i == j else math.sqrt(0.5)
            rows.append(E)
            if is_complex and i != j:
                F = np.zeros((k, k), complex)
                F[i, j], F[j, i] = 1j * math.sqrt(0.5), -1j * math.sqrt(0.5)
                rows.append(F)
    flat = np.stack(rows).reshape(len(rows), k * k)
    return flat.view(float) if is_complex else flat


@cache
def column_pairs(k: int) -> tuple[Array, Array]:
    """Every two columns a ≥ b."""
    return np.tril_indices(k)


def all_finite(v: Array) -> bool:
    """Whether a vector has neither infinities nor NaN: one product tells nearly always."""
    return math.isfinite(v.dot(v)) or bool(np.isfinite(v).all())


class FlatLayout:
    """Arrays of given shapes and dtypes, one after the other in a real vector."""

    def __init__(self, shapes: Sequence[tuple[int, ...]], dtypes: Sequence[Any]) -> None:
        self.shapes, self.dtypes = tuple(shapes), tuple(dtypes)
        self._work = tuple(complex if np.dtype(d).kind == "c" else float for d in dtypes)
        sizes = [math.prod(s) * (2 if w is complex else 1) for s, w in zip(self.shapes, self._work)]
        self._ends = np.cumsum([0, *sizes]).tolist()
        self.size = int(self._ends[-1])
        self._one_real_array = len(self.shapes) == 1 and self._work == (float,)

    def split(self, v: Array) -> list[Array]:
        """The arrays of v; axes in front of the last one stay in front."""
        if self._one_real_array:
            return [v.reshape(*v.shape[:-1], *self.shapes[0])]
        parts = []
        for i, (shape, work) in enumerate(zip(self.shapes, self._work)):
            part = v[..., self._ends[i] : self._ends[i + 1]]
            if work is complex:
                part = np.ascontiguousarray(part).view(complex)
            parts.append(part.reshape(*v.shape[:-1], *shape))
        return parts

    def join(self, parts: Sequence[Array]) -> Array:
        """The vector of the arrays, with axes in front kept."""
        if self._one_real_array:
            part = np.asarray(parts[0], dtype=float)
            return part.reshape(*part.shape[: part.ndim - len(self.shapes[0])], self.size)
        flat = []
        for part, shape, work in zip(parts, self.shapes, self._work):
            front = part.shape[: part.ndim - len(shape)]
            row = np.ascontiguousarray(part, dtype=work).reshape(*front, math.prod(shape))
            flat.append(row.view(float) if work is complex else row)
        return flat[0] if len(flat) == 1 else np.concatenate(flat, axis=-1)


class SymmetricLayout(FlatLayout):
    """One symmetric k×k matrix by its coordinates."""

    def __init__(self, k: int) -> None:
        super().__init__([(1, k, k)], [float])
        self._basis = hermitian_basis(k, False)
        self.size = len(self._basis)

    def split(self, v: Array) -> list[Array]:
        return [(v @ self._basis).reshape(*v.shape[:-1], *self.shapes[0])]

    def join(self, parts: Sequence[Array]) -> Array:
        flat = parts[0].reshape(*parts[0].shape[:-3], self._basis.shape[1])
        return flat @ self._basis.T


class LeafStack(NamedTuple):
    """One array of a point as a stack of matrices (b, n, k)."""

    stack: tuple[int, int, int]
    orthonormal: bool


@dataclass(frozen=True, eq=False)
class Space:
    """The vectors of one run."""

    leaves: tuple[LeafStack, ...]
    points: FlatLayout  # in the shapes of the user
    duals: FlatLayout
    likes: tuple[Linear, ...]  # a NumPy array as one like the user's
    is_tree: bool
    _last_products: tuple[Array, list[Array]] | None = field(default=None, repr=False)

    def flat(self, X: Array) -> Array:
        """A point or gradient in the solvers' form as a vector of its own."""
        return np.array(self.points.join(list(map(to_numpy, X if self.is_tree else (X,)))))

    def point(self, x: Array) -> Array:
        """The vector x in the solvers' form: the library and precision of the user."""
        if self.matrix is not None and not self.is_tree:
            return self.likes[0](x.reshape(self.points.shapes[0]))
        parts = tuple(like(p) for like, p in zip(self.likes, self.points.split(x)))
        return parts if self.is_tree else parts[0]

    @cached_property
    def columns(self) -> int:
        """The largest k of a matrix."""
        return max((leaf.stack[2] for leaf in self.leaves if leaf.orthonormal), default=0)

    @cached_property
    def matrix(self) -> tuple[int, int] | None:
        """(n, k) of a point that is one real matrix, which most are: fewer layers for it."""
        one = len(self.leaves) == 1 and self.leaves[0].orthonormal and self.leaves[0].stack[0] == 1
        real = np.dtype(self.points.dtypes[0]).kind != "c"
        return self.leaves[0].stack[1:] if one and real else None

    @cached_property
    def compiled(self) -> Normals | None:
        """The kernels of one real matrix of few columns, where they are built."""
        return None

    @cached_property
    def identity(self) -> Array:
        """Λ = I."""
        return self.duals.join([np.broadcast_to(np.eye(s[-1]), s) for s in self.duals.shapes])

    def matrices(self, v: Array) -> list[Array]:
        """The orthonormal leaves of v as stacks (..., b, n, k)."""
        parts = zip(self.points.split(v), self.leaves)
        return [p.reshape(*v.shape[:-1], *leaf.stack) for p, leaf in parts if leaf.orthonormal]

    def products(self, x: Array) -> list[Array]:
        """X_a X_b, entry by entry, of every two columns a ≥ b; those of the last x are held."""
        if self._last_products is None or self._last_products[0] is not x:
            each = []
            for X in self.matrices(x):
                rows, cols = column_pairs(X.shape[-1])
                T = np.ascontiguousarray(X.swapaxes(-1, -2))
                each.append((T[:, rows] * T[:, cols]).swapaxes(-1, -2))
            object.__setattr__(self, "_last_products", (x, each))
        return self._last_products[1]  # type: ignore[index]

    def normal(self, x: Array, L: Array) -> Array:
        """XΛ; zero on free leaves.  x and Λ may carry axes in front."""
        pairs = iter(zip(self.matrices(x), self.duals.split(L)))
        front = np.broadcast_shapes(x.shape[:-1], L.shape[:-1])
        parts = []
        for leaf, shape in zip(self.leaves, self.points.shapes):
            if leaf.orthonormal:
                X, M = next(pairs)
                parts.append((X @ M).reshape(*front, *shape))
            else:
                parts.append(np.zeros((*front, *shape)))
        return self.points.join(parts)

    def gather(self, x: Array, v: Array) -> Array:
        """herm(XᴴV), the adjoint of `normal` at x; v may carry axes in front."""
        if not self.duals.shapes:
            return np.zeros((*v.shape[:-1], 0))
        parts = []
        for X, V in zip(self.matrices(x), self.matrices(v)):
            M = X.conj().swapaxes(-1, -2) @ V
            parts.append(0.5 * (M + M.conj().swapaxes(-1, -2)))
        return self.duals.join(parts)

    def defect(self, x: Array) -> Array:
        """XᴴX − I of every matrix."""
        return self.gather(x, x) - (self.identity if self.duals.size else 0.0)


class OneReal(Space):
    """One real matrix of few columns."""

    @cached_property
    def compiled(self) -> Normals | None:
        kernels = _kernels()
        n, k = self.leaves[0].stack[1:]
        if kernels is None or n * k >= COUNTED_BY_BLAS:
            return None
        return Normals(kernels, n, k, self.duals.size)


_NO_ARRAY = np.zeros(0)


def _kernels() -> Any:
    return kernels_for(_NO_ARRAY).compiled


class OneMatrix(OneReal):
    """A real matrix of few columns, and more than one."""

    def products(self, x: Array) -> list[Array]:
        if self._last_products is None or self._last_products[0] is not x:
            rows, cols = column_pairs(self.columns)
            T = x.reshape(-1, self.columns).T
            object.__setattr__(self, "_last_products", (x, [(T[rows] * T[cols]).T]))
        return self._last_products[1]  # type: ignore[index]

    @cached_property
    def _basis(self) -> Array:
        return hermitian_basis(self.columns, False)

    def normal(self, x: Array, L: Array) -> Array:
        k = self.columns
        if L.ndim == 1:  # of one x, or of several
            return x.reshape(-1, k).dot(L.dot(self._basis).reshape(k, k)).reshape(x.shape)
        product = x.reshape(-1, k) @ (L @ self._basis).reshape(*L.shape[:-1], k, k)
        return product.reshape(*L.shape[:-1], x.size)

    def gather(self, x: Array, v: Array) -> Array:
        k = self.columns
        if v.ndim == 1:
            return self._basis.dot(x.reshape(-1, k).T.dot(v.reshape(-1, k)).reshape(-1))
        M = x.reshape(-1, k).T @ v.reshape(*v.shape[:-1], -1, k)
        return M.reshape(*v.shape[:-1], k * k) @ self._basis.T  # type: ignore[no-any-return]


class OneVector(OneReal):
    """A real vector, or a matrix of one column: Λ is a number."""

    def normal(self, x: Array, L: Array) -> Array:
        return L * x

    def gather(self, x: Array, v: Array) -> Array:
        return v.dot(x.reshape(-1, 1))


def space_of(geometry: Manifold, X: Array) -> Space:
    """The vectors of points like X, or an error for constraints that the methods do not know."""
    factors = getattr(geometry, "factors", None)
    leaves = X if factors is not None else (X,)
    kinds = [_leaf(m, x) for m, x in zip(factors or (geometry,), leaves)]
    arrays = [to_numpy(x) for x in leaves]
    points = FlatLayout([x.shape for x in arrays], [x.dtype for x in arrays])
    k = [(leaf.stack[0], leaf.stack[2], leaf.stack[2]) for leaf in kinds if leaf.orthonormal]
    kept = [d for d, leaf in zip(points.dtypes, kinds) if leaf.orthonormal]
    likes, is_tree = tuple(map(_like, leaves)), factors is not None
    one = len(k) == len(kinds) == 1 and k[0][0] == 1 and np.dtype(kept[0]).kind != "c"
    if one and k[0][1] <= (DENSE_COLUMNS if _kernels() is None else KERNEL_COLUMNS):
        kind = OneVector if k[0][1] == 1 else OneMatrix
        return kind(tuple(kinds), points, SymmetricLayout(k[0][1]), likes, is_tree)
    return Space(tuple(kinds), points, FlatLayout(k, kept), likes, is_tree)


def _like(X: Array) -> Linear:
    if isinstance(X, np.ndarray):
        return lambda values: np.array(values, dtype=X.dtype, order="C")
    kernels, dtype = kernels_for(X), X.dtype
    device = kernels.device(X)
    return lambda values: kernels.xp.asarray(np.array(values), dtype=dtype, device=device)


def _leaf(manifold: Manifold, X: Array) -> LeafStack:
    name = type(manifold).__name__
    if getattr(manifold, "B", None) is not None:
        raise ValueError(
            "nonsmooth= does not go with XᴴBX = I: the proximal step needs orthonormal columns; "
            "pass manifold=stiefel.Stiefel()"
        )
    if name == "Grassmann":
        raise ValueError(
            "nonsmooth= needs matrices, and a point of Grassmann() is a span; "
            "pass manifold=stiefel.Stiefel()"
        )
    if name == "Euclidean":
        return LeafStack((1, math.prod(X.shape), 1), False)
    if name not in ("Stiefel", "Sphere", "SpecialOrthogonal"):
        raise ValueError(
            f"nonsmooth= knows Stiefel, Sphere, SpecialOrthogonal and Euclidean; manifold is {name}"
        )
    shape = tuple(X.shape)
    if name == "Sphere" and shape[-1] != 1:
        shape = (*shape, 1)
    return LeafStack((math.prod(shape[:-2]), shape[-2], shape[-1]), True)


# -- sums of terms -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Sum:
    """One term for every leaf, on flat vectors; ``scale`` is that of the objective."""

    space: Space
    terms: tuple[Term, ...]
    scale: float = 1.0

    @cached_property
    def soft_weights(self) -> Array | None:
        """The weights of `L1` on one real matrix, one or one an entry: what the kernels know."""
        h = self.terms[0]
        if self.space.compiled is None or type(h) is not L1:
            return None
        weights = self.scale * np.asarray(h.mu, dtype=float)
        if weights.size > 1:
            weights = np.broadcast_to(weights, self._shapes[0])
        return np.ascontiguousarray(weights.reshape(-1))

    def _each(self, x: Array) -> Any:
        return zip(self.terms, self.space.points.split(x))

    @cached_property
    def bends(self) -> bool:
        """Whether h has a second derivative on its support: then prox' is no mask."""
        return not isinstance(self.prox_derivative(np.ones(self.space.points.size), 1.0), Diagonal)

    @cached_property
    def _one(self) -> Term | None:
        """The term of a point that is one real matrix: fewer layers for it."""
        return self.terms[0] if self.space.matrix is not None else None

    def value(self, x: Array) -> float:
        if self._one is not None:
            return self.scale * self._one.value(x.reshape(self._shapes[0]))
        return self.scale * math.fsum(h.value(X) for h, X in self._each(x))

    def prox(self, v: Array, t: float) -> Array:
        if self._one is not None:
            return self._one.prox(v.reshape(self._shapes[0]), t * self.scale).reshape(-1)
        return self.space.points.join([h.prox(V, t * self.scale) for h, V in self._each(v)])

    def prox_derivative(self, v: Array, t: float) -> Linear:
        if self._one is not None:
            D = self._one.prox_derivative(v.reshape(self._shapes[0]), t * self.scale)
            if isinstance(D, Diagonal) and D.weights.size == v.size:
                return Diagonal(D.weights.reshape(-1))
        parts = [h.prox_derivative(V, t * self.scale) for h, V in self._each(v)]
        if all(isinstance(D, Diagonal) for D in parts):
            weights = [np.broadcast_to(D.weights, s) for D, s in zip(parts, self._shapes)]  # type: ignore[attr-defined]
            if all(np.dtype(d).kind != "c" for d in self.space.points.dtypes):
                return Diagonal(self.space.points.join(weights))
        points = self.space.points
        return lambda w: points.join([D(W) for D, W in zip(parts, points.split(w))])

    @property
    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        return self.space.points.shapes

    def support(self, z: Array) -> Array:
        """The free entries, as weights 0 and 1."""
        if self._one is not None:
            return self._one.support(z.reshape(self._shapes[0])).astype(float).reshape(-1)
        return self._mask([h.support(Z) for h, Z in self._each(z)])

    def _mask(self, parts: list[Array]) -> Array:
        doubled = [
            p * (1 + 1j) if np.dtype(d).kind == "c" else p
            for p, d in zip(parts, self.space.points.dtypes)
        ]
        return self.space.points.join(doubled)

    def steepness(self, X: Array) -> float:
        """The largest entry of the gradient at X, in the solvers' form; 0 if it is no number."""
        largest = float(np.abs(self.gradient(self.space.flat(X))).max(initial=0.0))
        return largest if math.isfinite(largest) else 0.0

    def gradient(self, x: Array) -> Array:
        return self.scale * self.space.points.join([h.gradient(X) for h, X in self._each(x)])

    def hessian(self, x: Array, w: Array) -> Array:
        W = self.space.points.split(w)
        parts = [h.hessian(X, V) for (h, X), V in zip(self._each(x), W)]
        return self.scale * self.space.points.join(parts)

    def stop_at_kinks(self, x: Array, y: Array) -> Array:
        Y = self.space.points.split(y)
        return self.space.points.join(
            [h.stop_at_kinks(X, V) for (h, X), V in zip(self._each(x), Y)]
        )
