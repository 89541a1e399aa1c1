"""Geometries, objectives with known minimum, and solvers, as data: an entry buys every law.

Laws are written in NumPy.  `Case.geometry(library)` is the manifold seen through NumPy: arrays go
to the array library on the way in and come back on the way out, so that the same laws hold every
library to account.  `LIBRARIES` is that axis.
"""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import oracles
from stiefel import (
    ComplexCircle,
    Euclidean,
    Grassmann,
    Oblique,
    Orthogonal,
    SpecialOrthogonal,
    Sphere,
    Stiefel,
    Unitary,
)
from stiefel.geometry import Product
from stiefel.geometry.frames import framed
from stiefel.objectives import (
    Brockett,
    JointDiagonalization,
    LogSumExp,
    Procrustes,
    Quadratic,
    Rayleigh,
)
from stiefel.solvers import METHODS

# ---------------------------------------------------------------------------------------------
# Array libraries
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Library:
    """How NumPy arrays go to an array library, and come back."""

    name: str
    load: Callable[[], Callable[[np.ndarray], Any]]  # imports the library, returns its `asarray`

    def asarray(self, values):
        return self.load()(values)

    def __str__(self):
        return self.name


def to_numpy(x):
    """Any library's array as a NumPy array; other things (floats, booleans) as they are."""
    if hasattr(x, "detach"):
        return x.detach().cpu().numpy()
    return np.asarray(x) if hasattr(x, "shape") else x


def _torch():
    torch = pytest.importorskip("torch")
    return lambda values: torch.from_numpy(np.array(values))


def _jax():
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    return jax.numpy.asarray


def _strict():
    import array_api_strict

    return array_api_strict.asarray


NUMPY = Library("numpy", lambda: np.asarray)
TORCH = Library("torch", _torch)
JAX = Library("jax", _jax)
STRICT = Library("strict", _strict)
LIBRARIES = (NUMPY, TORCH, JAX, STRICT)


# ---------------------------------------------------------------------------------------------
# Points may be tuples of leaves
# ---------------------------------------------------------------------------------------------


def leafwise(function, *trees):
    """``function`` of arrays, or of each leaf of tuples of arrays."""
    if isinstance(trees[0], tuple):
        return tuple(function(*leaves) for leaves in zip(*trees, strict=True))
    return function(*trees)


def leaves(tree):
    return tree if isinstance(tree, tuple) else (tree,)


def size(tree):
    """The Frobenius norm of everything."""
    return math.sqrt(sum(float(np.sum(np.abs(leaf) ** 2)) for leaf in leaves(tree)))


def gap(a, b):
    """‖a − b‖_F / max(1, ‖b‖_F)."""
    return size(leafwise(np.subtract, a, b)) / max(1.0, size(b))


class SeenThroughNumPy:
    """A manifold of any array library whose functions take and return NumPy arrays."""

    def __init__(self, manifold, library):
        self.manifold, self.library = manifold, library

    def _in(self, x):
        if isinstance(x, tuple):
            return tuple(map(self._in, x))
        return self.library.asarray(x) if isinstance(x, np.ndarray) else x

    def __getattr__(self, name):
        method = getattr(self.manifold, name)

        def call(*arguments, **options):
            options = {key: self._in(value) for key, value in options.items()}
            result = method(*map(self._in, arguments), **options)
            return _CurveThroughNumPy(result) if name == "ray" else leafwise(to_numpy, result)

        return call


class _CurveThroughNumPy:
    def __init__(self, ray):
        self._ray = ray
        self.squared_norm, self.defect = float(ray.squared_norm), float(ray.defect)

    def __call__(self, t):
        return leafwise(to_numpy, self._ray(t))


# ---------------------------------------------------------------------------------------------
# Geometries in coordinates, seen as what they stand for
# ---------------------------------------------------------------------------------------------


def _of_vectors(name):
    """A function of (point, cotangents or tangents …) that returns a number or another."""

    def method(self, X, *vectors):
        frames, Q = self._enter(X)
        inside = (frames.coordinates(Q, V) if hasattr(V, "shape") else V for V in vectors)
        found = getattr(frames, name)(Q, *inside)
        return frames.ambient(Q, found) if hasattr(found, "shape") and found.ndim else found

    return method


class InFrames(Stiefel):
    """`Framed` with points, cotangents and tangents as arrays of the user's shape."""

    def _enter(self, X):
        frames, Q = framed(Stiefel().bind(X), X)
        assert frames.manifold is not None
        return frames, Q

    project_direction = _of_vectors("project_direction")
    inner = _of_vectors("inner")
    inner_tangent = _of_vectors("inner_tangent")
    raise_index = _of_vectors("raise_index")
    lower_index = _of_vectors("lower_index")

    def project(self, X, G):
        frames, Q = self._enter(X)
        return frames.ambient(Q, frames.project(Q, G))

    def gradient(self, X, E):
        frames, Q = self._enter(X)
        found = frames.gradient(Q, E)
        return found._replace(G=frames.ambient(Q, found.G))

    def ray(self, X, W):
        frames, Q = self._enter(X)
        return RayInFrames(frames, Q, frames.ray(Q, frames.coordinates(Q, W)))

    def ray_along(self, X, T, metric):
        frames, Q = self._enter(X)
        return RayInFrames(frames, Q, frames.ray_along(Q, frames.coordinates(Q, T), metric))

    def cotangent_of(self, X, T, metric):
        frames, Q = self._enter(X)
        return frames.ambient(Q, frames.cotangent_of(Q, frames.coordinates(Q, T), metric))

    def lift(self, X, Y):
        frames, Q = self._enter(X)
        return frames.ambient(Q, frames.lift(Q, frames.completed(Y)))

    def extrapolate(self, X, Y, tau):
        frames, Q = self._enter(X)
        return frames.seen(frames.extrapolate(Q, frames.completed(Y), tau))

    def defect(self, X):
        frames, Q = self._enter(X)
        return frames.defect(Q)


class RayInFrames:
    def __init__(self, frames, Q, ray):
        self.frames, self.Q, self.ray = frames, Q, ray
        self.squared_norm, self.defect = ray.squared_norm, ray.defect
        self.bounded_length, self.length = ray.bounded_length, ray.length

    def __call__(self, t):
        return self.frames.seen(self.ray(t))

    def velocity(self, t):
        return self.frames.ambient(self.ray(t), self.ray.velocity(t))

    def transported_velocity(self, t):
        return self.frames.ambient(self.ray(t), self.ray.transported_velocity(t))

    def transport(self, t, V):
        W = self.ray.transport(t, self.frames.coordinates(self.Q, V))
        return self.frames.ambient(self.ray(t), W)

    def secant_pair(self, t, old, new):
        Y = self.ray(t)
        old = old._replace(G=self.frames.coordinates(self.Q, old.G))
        new = new._replace(G=self.frames.coordinates(Y, new.G))
        pair = self.ray.secant_pair(t, old, new)
        s, y = (self.frames.ambient(Y, V) for V in pair[:2])
        return pair._replace(s=s, y=y)


# ---------------------------------------------------------------------------------------------
# Geometries
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A manifold with a shape and dtype of points, and what the laws must know about it."""

    name: str
    manifold: Any  # a class; `Case.build` gives it the matrix B in the right library
    shape: tuple[int, ...]
    dtype: type = float
    with_B: bool = False
    libraries: tuple[Library, ...] = field(default=LIBRARIES, repr=False)

    def __str__(self):
        return self.name

    # -- what kind of space -----------------------------------------------------------------

    @property
    def constrained(self):
        return self.manifold is not Euclidean

    @property
    def quotient(self):
        return self.manifold is Grassmann

    @property
    def vectors(self):
        """Points are unit vectors (..., n) without the axis of columns."""
        return self.manifold is Sphere

    @functools.cached_property
    def B(self):
        if not self.with_B:
            return None
        return oracles.random_positive(np.random.default_rng(77), self.shape[-2], self.dtype)

    def build(self, library=NUMPY):
        return self.manifold(B=library.asarray(self.B)) if self.with_B else self.manifold()

    def geometry(self, library=NUMPY):
        return SeenThroughNumPy(self.build(library), library)

    # -- matrices: the last two axes of what the oracles understand ---------------------------

    def matrices(self, X):
        """The points as a list of n×k matrices."""
        X = X[..., None] if self.vectors else X
        return list(X.reshape(-1, *X.shape[-2:]))

    def join(self, matrices):
        stacked = np.stack(matrices)
        return stacked[..., 0].reshape(self.shape) if self.vectors else stacked.reshape(self.shape)

    def each(self, function, *arrays):
        """A function of matrices, applied to every matrix of a stack."""
        return self.join([function(*m) for m in zip(*map(self.matrices, arrays), strict=True)])

    # -- random data; points are polar factors, so that sign errors do not survive -----------

    def point(self, rng):
        Z = self.ambient(rng)
        if not self.constrained:
            return Z
        X = self.each(lambda m: oracles.polar_factor(m, B=self.B), Z)
        if self.manifold is SpecialOrthogonal and self.dtype is float:
            X = self.each(lambda m: m * np.where(np.arange(len(m)), 1.0, np.linalg.det(m)), X)
        return X

    def ambient(self, rng):
        """Any array of the shape of a point: a Euclidean gradient, or a direction."""
        return oracles.gaussian(rng, *self.shape, dtype=self.dtype)

    def cotangent(self, rng, X, length=1.0):
        """A random cotangent in the library's coordinates, of the given g* norm."""
        W = self.ambient(rng)
        if self.constrained:
            B, part = self.B, oracles.horizontal_tangent if self.quotient else _nearest_cotangent
            W = self.each(lambda x, w: part(x, w, B=B), X, W)
        return W * (length / self.norm(X, W))

    def norm(self, X, W):
        """‖W‖_g* by the oracle."""
        if not self.constrained:
            return float(np.linalg.norm(W))
        pairs = zip(self.matrices(X), self.matrices(self.flat(W)), strict=True)
        return math.sqrt(sum(oracles.inner_dual(x, w, w, B=self.B) for x, w in pairs))

    def flat(self, W):
        """From the library's coordinates of a cotangent to those of a Euclidean gradient: BW."""
        return W if not self.with_B else self.B @ W

    def sharp(self, G):
        return G if not self.with_B else np.linalg.solve(self.B, G)

    def near(self, rng, X, distance):
        """A point at the end of a random geodesic of that length, by the oracle.

        On a quotient in another basis of its span.
        """
        W = self.cotangent(rng, X, distance)
        if not self.constrained:
            return X + W
        Y = self.each(lambda x, w: oracles.geodesic_dual(x, w, B=self.B), X, self.flat(W))
        k = self.shape[-1]
        return Y @ oracles.random_point(rng, k, k, self.dtype) if self.quotient else Y

    def normal(self, rng, X):
        """X S with Hermitian S (any S on a quotient): what a retraction must not see."""
        if not self.constrained:
            return 0.0 * X
        shape = (len(self.matrices(X)), *(self.matrices(X)[0].shape[-1:] * 2))
        S = oracles.gaussian(rng, *shape, dtype=self.dtype)
        S = S + np.conj(np.swapaxes(S, -1, -2)) if not self.quotient else S
        return self.join([x @ s for x, s in zip(self.matrices(X), S, strict=True)])

    def isometry(self, rng):
        """(Q, Q⁻ᴴ) with QᴴBQ = B: acts on points, and on Euclidean gradients."""
        n = self.matrices(np.zeros(self.shape))[0].shape[0] if self.constrained else 1
        Q = oracles.polar_factor(oracles.gaussian(rng, n, n, dtype=self.dtype))
        if self.manifold is SpecialOrthogonal and self.dtype is float:
            Q = Q * np.where(np.arange(n), 1.0, np.linalg.det(Q))
        if self.with_B:
            T, T_inverse = oracles.standardise(self.B)
            Q = T_inverse @ Q @ T
        return Q, np.linalg.inv(Q).conj().T

    def act(self, Q, X):
        """QX for every matrix of X."""
        return self.each(lambda x: Q @ x, X) if self.constrained else Q[0, 0] * X

    def pair(self, W, T):
        """What the cotangent W, in the library's coordinates, makes of the tangent T."""
        return float(np.real(np.vdot(self.flat(W), T)))

    def same(self, X, Y):
        """The distance of two points; of their projectors on a quotient."""
        if self.quotient:
            X, Y = (np.stack([m @ m.conj().T for m in self.matrices(Z)]) for Z in (X, Y))
        return gap(X, Y)


@dataclass(frozen=True)
class UnitCase(Case):
    """Unit vectors side by side; a complex one is a real vector of twice the length."""

    def matrices(self, X):
        """The vectors as a list of real columns."""
        vectors = np.moveaxis(X, -2, -1) if self.manifold is Oblique else X[..., None]
        vectors = vectors.reshape(-1, vectors.shape[-1])
        if self.dtype is complex:
            vectors = np.concatenate([vectors.real, vectors.imag], axis=-1)
        return list(vectors[..., None])

    def join(self, matrices):
        vectors = np.stack(matrices)[..., 0]
        if self.dtype is complex:
            real, imaginary = np.split(vectors, 2, axis=-1)
            vectors = real + 1j * imaginary
        if self.manifold is not Oblique:
            return vectors.reshape(self.shape)
        *stack, n, k = self.shape
        return np.moveaxis(vectors.reshape(*stack, k, n), -1, -2)

    def normal(self, rng, X):
        scales = rng.standard_normal(len(self.matrices(X)))
        return self.join([s * x for s, x in zip(scales, self.matrices(X), strict=True)])

    def isometry(self, rng):
        n = len(self.matrices(np.zeros(self.shape, self.dtype))[0])
        Q = oracles.polar_factor(rng.standard_normal((n, n)))
        return Q, Q


def _nearest_cotangent(X, W, B=None):
    """The oracle's tangent projection: in the library's coordinates the formula is the same."""
    return oracles.project_tangent(X, W, B=B)


@dataclass(frozen=True)
class ProductCase:
    """Several matrices, as a tuple; every question goes to the leaves."""

    name: str
    parts: tuple[Case, ...]
    constrained: bool = True
    quotient: bool = False
    libraries: tuple[Library, ...] = field(default=LIBRARIES, repr=False)

    def __str__(self):
        return self.name

    def build(self, library=NUMPY):
        return Product(tuple(part.build(library) for part in self.parts))

    def geometry(self, library=NUMPY):
        return SeenThroughNumPy(self.build(library), library)

    def _map(self, name, *trees):
        return tuple(
            getattr(part, name)(*leaf) for part, *leaf in zip(self.parts, *trees, strict=True)
        )

    def point(self, rng):
        return tuple(part.point(rng) for part in self.parts)

    def ambient(self, rng):
        return tuple(part.ambient(rng) for part in self.parts)

    def cotangent(self, rng, X, length=1.0):
        share = length / math.sqrt(len(self.parts))
        return tuple(p.cotangent(rng, x, share) for p, x in zip(self.parts, X, strict=True))

    def norm(self, X, W):
        return math.hypot(*self._map("norm", X, W))

    def flat(self, W):
        return self._map("flat", W)

    def sharp(self, G):
        return self._map("sharp", G)

    def near(self, rng, X, distance):
        share = distance / math.sqrt(len(self.parts))
        return tuple(p.near(rng, x, share) for p, x in zip(self.parts, X, strict=True))

    def normal(self, rng, X):
        return tuple(p.normal(rng, x) for p, x in zip(self.parts, X, strict=True))

    def isometry(self, rng):
        pairs = [part.isometry(rng) for part in self.parts]
        return tuple(q for q, _ in pairs), tuple(q for _, q in pairs)

    def act(self, Q, X):
        return self._map("act", Q, X)

    def pair(self, W, T):
        return sum(self._map("pair", W, T))

    def same(self, X, Y):
        return max(self._map("same", X, Y))


GEOMETRIES = (
    Case("stiefel", Stiefel, (9, 3)),
    Case("stiefel-complex", Stiefel, (9, 3), complex),
    Case("column", Stiefel, (8, 1)),
    Case("column-complex", Stiefel, (8, 1), complex),
    Case("square", Stiefel, (4, 4)),
    Case("square-complex", Stiefel, (4, 4), complex),
    Case("nearly-square", Stiefel, (5, 4)),
    Case("stack", Stiefel, (2, 3, 7, 2)),
    Case("stack-complex", Stiefel, (3, 7, 2), complex),
    Case("stack-of-columns", Stiefel, (3, 6, 1)),
    Case("grassmann", Grassmann, (9, 3)),
    Case("grassmann-complex", Grassmann, (9, 3), complex),
    Case("grassmann-stack", Grassmann, (3, 8, 2)),
    Case("sphere", Sphere, (10,)),
    Case("sphere-complex", Sphere, (10,), complex),
    Case("sphere-stack", Sphere, (4, 6)),
    Case("rotations", SpecialOrthogonal, (3, 3)),
    Case("rotations-stack", SpecialOrthogonal, (5, 3, 3)),
    Case("orthogonal", Orthogonal, (4, 4)),
    Case("unitary", Unitary, (3, 3), complex),
    Case("frame-square", InFrames, (4, 4)),
    Case("frame-square-complex", InFrames, (4, 4), complex),
    Case("frame-nearly-square", InFrames, (7, 4)),
    Case("frame-nearly-square-complex", InFrames, (5, 3), complex),
    Case("frame-stack", InFrames, (2, 5, 3)),
    Case("frame-rotations", InFrames, (5, 3, 3)),
    Case("frame-rotations-of-the-plane", InFrames, (4, 2, 2)),
    UnitCase("oblique", Oblique, (6, 4)),
    UnitCase("oblique-stack", Oblique, (2, 3, 5)),
    UnitCase("oblique-complex", Oblique, (4, 3), complex),
    UnitCase("complex-circle", ComplexCircle, (7,), complex),
    Case("euclidean", Euclidean, (7, 2)),
    Case("euclidean-complex", Euclidean, (5,), complex),
    Case("generalised", Stiefel, (9, 3), with_B=True),
    Case("generalised-complex", Stiefel, (9, 3), complex, with_B=True),
    Case("generalised-column", Stiefel, (9, 1), with_B=True),
    Case("generalised-stack", Stiefel, (2, 7, 2), with_B=True),
    Case("generalised-grassmann", Grassmann, (9, 3), with_B=True),
    ProductCase(
        "product",
        (
            Case("left", Stiefel, (8, 3)),
            Case("right", Stiefel, (6, 2), complex),
            Case("direction", Sphere, (5,)),
            Case("free", Euclidean, (4,)),
            Case("weighted", Stiefel, (7, 2), with_B=True),
        ),
    ),
)


# ---------------------------------------------------------------------------------------------
# Objectives with known minimum
# ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """An objective on a manifold, with a start and the value of its minimum."""

    name: str
    objective: Any
    start: Any
    minimum: float
    manifold: Any = field(default_factory=Stiefel)

    def __str__(self):
        return self.name


def _brockett(dtype, B=None):
    rng = np.random.default_rng(5)
    n, weights = 30, np.arange(1.0, 4.0)
    U = oracles.random_point(rng, n, n, dtype)
    A = U @ np.diag(np.linspace(1.0, 8.0, n)) @ U.conj().T
    A = (A + A.conj().T) / 2
    minimum, _ = oracles.brockett_minimum(A, weights, B=B, half=False)
    return Brockett(A, weights), oracles.random_point(rng, n, 3, dtype, B=B), minimum


def _problems():
    rng = np.random.default_rng(6)
    yield Problem("brockett", *_brockett(float))
    yield Problem("brockett-complex", *_brockett(complex))
    B = oracles.random_positive(np.random.default_rng(7), 30)
    yield Problem("brockett-generalised", *_brockett(float, B), Stiefel(B=B))
    rayleigh = Rayleigh(np.arange(1.0, 31.0), columns=3)
    start = oracles.random_point(rng, 30, 3)
    yield Problem("subspace", rayleigh, start, rayleigh.minimum, Grassmann())
    sphere = Rayleigh(np.arange(1.0, 21.0))
    start = oracles.random_point(rng, 20, 1)[:, 0]
    yield Problem("sphere", sphere, start, sphere.minimum, Sphere())
    A, target = rng.standard_normal((20, 8)), oracles.random_point(rng, 8, 2)
    yield Problem(
        "procrustes", Procrustes(A, A @ target), oracles.random_near(rng, target, 0.7), 0.0
    )
    joint = JointDiagonalization.random_exact(5, 4, 3)
    answer = joint.minimizer
    answer[:, 0] *= np.linalg.det(answer)
    near = oracles.random_near(rng, answer, 0.3)
    yield Problem("joint-diagonalisation", joint, near, 0.0, SpecialOrthogonal())
    quadratic = Quadratic(np.linspace(1.0, 40.0, 25), rng.standard_normal(25))
    yield Problem("quadratic", quadratic, np.zeros(25), quadratic.minimum, Euclidean())
    smooth = LogSumExp.random_instance(40, 12, 1.0, 0.1, 8)
    yield Problem("log-sum-exp", smooth, np.zeros(12), smooth.minimum, Euclidean())


PROBLEMS = tuple(_problems())


# ---------------------------------------------------------------------------------------------
# Solvers: whatever `minimize` knows by name
# ---------------------------------------------------------------------------------------------

SOLVERS = tuple(METHODS)


def into(library, X):
    return leafwise(library.asarray, X)


def out(X):
    return leafwise(to_numpy, X)


# Every geometry in every library that it works in.
EVERYWHERE = [
    pytest.param(case, library, id=f"{case}-{library}")
    for case in GEOMETRIES
    for library in LIBRARIES
    if library in case.libraries
]
