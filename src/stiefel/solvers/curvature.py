"""The extreme curvatures of f at a point: eigenvalues of the Riemannian Hessian H.

H is self-adjoint in g*.  Lanczos' method builds a g*-orthonormal frame V of cotangents with

    H V = V M + w eᴴ,    M = (g*(v_i, H v_j)),    w orthogonal to V,    e the last unit vector;

eigenvalues θ of M with eigenvectors y approximate those of H, and ‖w‖ |eᴴy| bounds the distance of
θ from one of them.  Each vector of the frame is projected twice, which keeps it orthonormal.  When
it is full, the Ritz vectors at both ends of the spectrum replace it, which keeps the equation
above (a thick restart).  Only the manifold's own inner product is used.

Directions in which f is constant because f(XQ) = f(X) for unitary Q, or for some of them, are no
directions of descent and make H singular.  Re⟨∇f(Y), YΩ⟩ = 0 at every Y for a skew Ω of such a
group: entries of skew(Yᴴ∇f(Y)) that vanish at random points Y are its generators in the basis of
the columns, and are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from stiefel.backends.arrays import to_numpy
from stiefel.geometry import Grassmann, Sphere, Stiefel
from stiefel.geometry.checks import gaussian
from stiefel.types import Array, Cotangent, LibraryManifold, Manifold, NumpyArray, Objective, Point

FRAME, LARGEST_FRAME = 40, 200  # vectors of the frame; memory is that many points …
FRAME_ENTRIES = 20_000_000  # … and more of them where points are small
KEPT, KEPT_ABOVE = 10, 2  # Ritz vectors that survive a restart: smallest, largest
ACCURACY = 0.01  # of the smallest eigenvalue, relative to it or to what is called zero
COMPLETE = 60  # degrees of freedom up to which all eigenvalues are computed
LOOKS = 2  # random points at which symmetries are looked for


class Spectrum(NamedTuple):
    """What Lanczos' method found."""

    values: NumpyArray  # Ritz values, ascending
    lowest: Cotangent | None  # a unit Ritz vector of values[0]
    residual: float  # how far values[0] may be from an eigenvalue
    products: int


class Symmetry(NamedTuple):
    """Rotations XΩ of the columns along which f is constant: the entries of Ω, leaf by leaf."""

    masks: tuple[Array | None, ...]
    dimension: int

    def horizontal(self, geometry: Manifold, X: Point, W: Cotangent) -> Cotangent:
        """W without those rotations; a g*-orthogonal projection."""
        if not self.dimension:
            return W
        parts = zip(_factors(geometry), _leaves(X), _leaves(W), self.masks, strict=True)
        found = tuple(w if mask is None else _without(m, x, w, mask) for m, x, w, mask in parts)
        return found if isinstance(X, tuple) else found[0]


def lowest_curvatures(
    geometry: Manifold,
    X: Point,
    product: Callable[[Cotangent], Cotangent],
    symmetry: Symmetry,
    zero: float,
    limit: int,
    rng: np.random.Generator,
) -> Spectrum:
    """The low end of the spectrum of H and its largest values, by at most ``limit`` products.

    Curvatures below ``zero`` times the largest count as zero, and are not resolved further.
    """
    free = geometry.dimension(X) - symmetry.dimension
    if free <= 0:
        return Spectrum(np.zeros(0), None, 0.0, 0)
    entries = sum(math.prod(x.shape) for x in _leaves(X))
    most = min(max(FRAME, FRAME_ENTRIES // entries), LARGEST_FRAME)
    frame, M = (
        [_unit(geometry, X, symmetry, random_cotangent(geometry, X, rng), [])],
        np.zeros((0, 0)),
    )
    for products in range(1, min(limit, free * 4) + 1):
        W = symmetry.horizontal(geometry, X, product(frame[-1]))
        W, column = _orthogonal(geometry, X, W, frame)
        M = _bordered(M, column)
        values, Y = np.linalg.eigh(M)
        beta, size = geometry.norm(X, W), float(np.abs(values).max(initial=0.0))
        ended = not beta > 0.01 * zero * size  # the frame spans an invariant subspace
        residual = 0.0 if ended else beta * abs(float(Y[-1, 0]))
        done = residual <= ACCURACY * max(abs(float(values[0])), zero * size) and products > 3
        done = done and not ended and free > COMPLETE
        if len(frame) >= free or done or products == limit:
            break
        if len(frame) >= most:
            frame, M = _restarted(geometry, frame, values, Y)
        new = random_cotangent(geometry, X, rng) if ended else geometry.scale(1.0 / beta, W)
        frame.append(_unit(geometry, X, symmetry, new, frame))
    return Spectrum(values, _combined(geometry, frame[: len(M)], Y[:, 0]), residual, products)


def _orthogonal(
    geometry: Manifold, X: Point, W: Cotangent, frame: list[Cotangent]
) -> tuple[Cotangent, NumpyArray]:
    """W minus its part in the frame, and the coefficients of that part."""
    column = np.array([geometry.inner(X, v, W) for v in frame])
    for c, v in zip(column.tolist(), frame):
        W = geometry.combine(1.0, W, -c, v)
    return W, column


def _bordered(M: NumpyArray, column: NumpyArray) -> NumpyArray:
    size = len(column)
    larger = np.zeros((size, size))
    larger[: len(M), : len(M)] = M
    larger[-1], larger[:, -1] = column, column
    return larger


def _restarted(
    geometry: Manifold, frame: list[Cotangent], values: NumpyArray, Y: NumpyArray
) -> tuple[list[Cotangent], NumpyArray]:
    kept = [*range(KEPT), *range(len(values) - KEPT_ABOVE, len(values))]
    return [_combined(geometry, frame, Y[:, i]) for i in kept], np.diag(values[kept])


def _combined(geometry: Manifold, frame: list[Cotangent], weights: NumpyArray) -> Cotangent:
    total = geometry.scale(float(weights[0]), frame[0])
    for c, v in zip(weights[1:].tolist(), frame[1:], strict=True):
        total = geometry.combine(1.0, total, c, v)
    return total


def _unit(
    geometry: Manifold, X: Point, symmetry: Symmetry, W: Cotangent, frame: list[Cotangent]
) -> Cotangent:
    """W as a unit cotangent, orthogonal to the frame and to the symmetries.

    What is left of a product after the frame was taken out may be small, and rounding in it large.
    """
    W, _ = _orthogonal(geometry, X, symmetry.horizontal(geometry, X, W), frame)
    W = symmetry.horizontal(geometry, X, geometry.project_direction(X, W))
    return geometry.scale(1.0 / geometry.norm(X, W), W)


def random_cotangent(geometry: Manifold, X: Point, rng: np.random.Generator) -> Cotangent:
    draws = tuple(gaussian(tuple(x.shape), rng, None, x) for x in _leaves(X))
    return geometry.project_direction(X, draws if isinstance(X, tuple) else draws[0])


# -- symmetries ----------------------------------------------------------------------------


def find_symmetry(
    geometry: Manifold, objective: Objective, X: Point, rng: np.random.Generator
) -> Symmetry:
    """The rotations of columns that f does not see, from `LOOKS` gradients at random points."""
    factors, leaves = _factors(geometry), _leaves(X)
    masks = [_every_rotation(m, x) for m, x in zip(factors, leaves, strict=True)]
    if all(mask is None for mask in masks):
        return Symmetry(tuple(masks), 0)
    for _ in range(LOOKS):
        W = random_cotangent(geometry, X, rng)
        Y = geometry.ray(X, W)(0.7 / geometry.norm(X, W))
        gradient = _leaves(objective.value_and_gradient(Y)[1])
        for i, (m, y, G) in enumerate(zip(factors, _leaves(Y), gradient, strict=True)):
            if masks[i] is not None:
                masks[i] = masks[i] & _vanishing(m, y, G)
    counts = [
        0 if mask is None else _count(m, x, mask) for m, x, mask in zip(factors, leaves, masks)
    ]
    return Symmetry(tuple(m if c else None for m, c in zip(masks, counts)), sum(counts))


def _every_rotation(factor: Manifold, x: Array) -> NumpyArray | None:
    """All entries of Ω; None where points have no columns to rotate, or are spans already."""
    if not isinstance(factor, Stiefel) or isinstance(factor, Grassmann):
        return None
    columns = _columns(factor, x)
    k = columns.shape[-1]
    mask = np.ones((*columns.shape[:-2], k, k), dtype=bool)
    if not factor.kernels_at(columns).is_complex(columns):
        mask &= ~np.eye(k, dtype=bool)
    return mask if mask.any() else None


def _vanishing(factor: LibraryManifold, y: Array, G: Array) -> NumpyArray:
    """Entries of skew(YᴴG) that are rounding, beside the size of the gradient."""
    Y, G = _columns(factor, y), _columns(factor, G, like=y)
    k = factor.kernels_at(Y)
    S = to_numpy(k.skew(k.pairing(Y, G)))
    size = math.sqrt(float(np.sum(np.abs(to_numpy(G)) ** 2)))
    return np.abs(S) <= math.sqrt(factor.eps(y)) * size


def _count(factor: LibraryManifold, x: Array, mask: NumpyArray) -> int:
    upper = int(np.triu(mask, 1).sum())
    columns = _columns(factor, x)
    if not factor.kernels_at(columns).is_complex(columns):
        return upper
    return 2 * upper + int(np.diagonal(mask, axis1=-2, axis2=-1).sum())


def _without(factor: LibraryManifold, x: Array, w: Array, mask: NumpyArray) -> Array:
    X, W = _columns(factor, x), _columns(factor, w, like=x)
    k = factor.kernels_at(X)
    A = k.gram(X, W)
    A = A * k.asarray(mask.astype(to_numpy(A).real.dtype), A)
    W = k.subtract(W, X, A)
    return W if X.shape == x.shape else W[..., 0]


def _columns(factor: Manifold, x: Array, like: Array | None = None) -> Array:
    """Unit vectors (..., n) as columns (..., n, 1)."""
    shape = (x if like is None else like).shape
    vectors = isinstance(factor, Sphere) and not (len(shape) >= 2 and shape[-1] == 1)
    return x[..., None] if vectors else x


def _factors(geometry: Manifold) -> tuple[Any, ...]:
    return getattr(geometry, "factors", (geometry,))


def _leaves(X: Any) -> tuple[Any, ...]:
    return X if isinstance(X, tuple) else (X,)
