"""What the parts of the library are to each other; read this first.

A *point* X is an array, a stack of matrices, or a tuple of leaves.  The derivative of f at X is a
*cotangent* G: it acts on *tangents* T, the velocities of curves through X, by Re⟨G, T⟩.  A
`Manifold` knows how both are measured and how to move; a `Curve` is a way to move; an `Objective`
is the user's function, counted.  A `Solver` is `init` and `step`, and its `State` is data.
`Gradient` is what is known at a point, `Aim` is where a solver looks from there.

The laws that a manifold must obey are functions, too: `stiefel.testing.check_manifold` runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np

Array = Any  # of NumPy, PyTorch, JAX or another library that follows the array API
NumpyArray = np.ndarray[Any, Any]  # small matrices, and what files hold
Leaves = tuple[Array, ...]
Point = Any  # an array, or leaves with a manifold for each
Tangent = Any  # has the shape of the point …
Cotangent = Any  # … and so has this one


class Status(Enum):
    """Why a run ended.  The names are stable; the values are short explanations.

    A status prints as its name and equals it; as in SciPy, ``int(status)`` is 0 for success.

    Examples
    --------
    >>> import stiefel
    >>> status = stiefel.Status.MAX_TIME
    >>> print(status, status == "MAX_TIME", int(status), int(stiefel.Status.CONVERGED))
    MAX_TIME True 3 0
    """

    CONVERGED = "the gradient meets the tolerance"
    MAX_ITERATIONS = "the limit on iterations was reached"
    MAX_EVALUATIONS = "the limit on function evaluations was reached"
    MAX_TIME = "the limit on time was reached"
    STOPPED_BY_CALLBACK = "the callback asked to stop"
    INTERRUPTED = "an exception ended the run"
    ROUNDING_LIMIT = "rounding errors hide any further progress"
    NOT_FINITE = "the function or its gradient is not finite"
    INFEASIBLE = "no point was found that meets the constraints"
    STEP_NOT_FOUND = "no step along the direction decreases the function"

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Status.{self.name}"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return self.name == other
        if isinstance(other, int) and not isinstance(other, bool):
            return int(self) == other
        return self is other

    def __hash__(self) -> int:
        return hash(self.name)

    def __int__(self) -> int:
        return list(type(self)).index(self)

    @classmethod
    def _missing_(cls, value: object) -> Status | None:
        """``Status(code)`` of the integers in which compiled code tells it, 0 for CONVERGED."""
        members = list(cls)
        if hasattr(value, "__index__") and 0 <= (code := value.__index__()) < len(members):
            return members[code]
        return None


class Gradient(NamedTuple):
    """What is known at a point: all that the driver reads."""

    f: float
    G: Cotangent
    norm: float  # ‖G‖_g*
    aux: Any = None  # what the user's function returned for the preconditioner
    rotation: Any = None  # XᴴG, where the manifold has it
    finite: bool = True  # f and norm are
    level: Any = None  # herm(XᴴE) of the Euclidean gradient E = G + X level, where it is at hand


class Metric(NamedTuple):
    """How φ raises an index; see `stiefel.geometry.metric`."""

    D: Array | None = None  # None for the identity
    omega: float = 2.0
    horizontal: bool = False
    scale: float = 1.0  # of this leaf among the leaves of a tree


class Aim(NamedTuple):
    """Where a solver looks from a point: for t > 0 the curve descends, its slope is negative."""

    direction: Array  # a cotangent, or a tangent where a metric goes with it
    slope: float  # of f along the curve, at t = 0
    curve: Annotated[Curve, "rebuilt"]  # not saved, but made again
    metric: Metric | tuple[Metric, ...] | None = None

    def remade(self, manifold: Manifold, x: Point) -> Aim:
        """The same with its curve made again, which repeats every bit."""
        if self.metric is None:
            return self._replace(curve=manifold.ray(x, self.direction))
        return self._replace(curve=manifold.ray_along(x, self.direction, self.metric))


class Curve(Protocol):
    """t ↦ X(t), with X(0) = X; Gram matrices are computed once, when it is made."""

    @property
    def squared_norm(self) -> float:
        """‖W‖²_g* of the cotangent W that it follows; curves along tangents need not know it."""
        ...

    @property
    def length(self) -> float:
        """‖X'(0)‖_F, of a stack or tree the largest."""
        ...

    @property
    def bounded_length(self) -> float:
        """The same where steps must be bounded, 0 where the space is flat."""
        ...

    @property
    def defect(self) -> float:
        """How far X is from the manifold, from the Gram matrices at hand."""
        ...

    def __call__(self, t: float) -> Point:
        """X(t)."""
        ...

    def velocity(self, t: float) -> Tangent:
        """X'(t)."""
        ...

    def transported_velocity(self, t: float) -> Tangent:
        """X'(0), carried isometrically to X(t)."""
        ...

    def transport(self, t: float, V: Cotangent) -> Cotangent:
        """V at X, carried isometrically to X(t)."""
        ...

    def secant_pair(self, t: float, old: Any, new: Any) -> Any:
        """The pair (s, y) of a step to X(t) with the gradients (.G, .rotation) at both ends."""
        ...


class Manifold(Protocol):
    """Where points live; bound to one array library by ``bind(X)``.

    A manifold of your own is a class with these functions; `stiefel.testing.check_manifold` says
    which laws it breaks.
    """

    # -- cotangents and tangents
    def project(self, X: Point, G: Array) -> Cotangent:
        """The cotangent that acts on tangents as the Euclidean gradient G."""
        ...

    def project_direction(self, X: Point, W: Array) -> Cotangent:
        """The cotangent nearest to any array of the shape of X."""
        ...

    def gradient(self, X: Point, E: Array) -> Any:
        """`project` with ‖G‖²_g*, and XᴴG where it is to be had."""
        ...

    def inner(self, X: Point, V: Cotangent, W: Cotangent) -> float:
        """g*(V, W), the inner product of cotangents."""
        ...

    def norm(self, X: Point, W: Cotangent) -> float:
        """‖W‖_g*."""
        ...

    def pair(self, X: Point, W: Cotangent, T: Tangent) -> float:
        """W(T) = Re⟨W, T⟩."""
        ...

    def raise_index(self, X: Point, W: Cotangent, metric: Any = None) -> Tangent:
        """The tangent φ(W) with g*(V, W) = V(φ(W)); or φ of a learned metric."""
        ...

    def raise_onto(self, X: Point, W: Cotangent, metric: Any) -> Tangent:
        """`raise_index`, perhaps written over W, which nobody needs any more."""
        ...

    def lower_index(self, X: Point, T: Tangent) -> Cotangent:
        """φ⁻¹(T)."""
        ...

    def hessian(self, X: Point, gradient: Array, W: Cotangent, E: Array) -> Cotangent:
        """The Riemannian Hessian times W; E is the Euclidean one times φ(W)."""
        ...

    # -- moving
    def ray(self, X: Point, W: Cotangent) -> Curve:
        """The retraction curve that leaves X along φ(W)."""
        ...

    def ray_along(self, X: Point, T: Tangent, metric: Any) -> Curve:
        """The one whose velocity is the tangent nearest to T."""
        ...

    def lift(self, X: Point, Y: Point) -> Cotangent:
        """V with ray(X, V)(1) = Y."""
        ...

    def extrapolate(self, X: Point, Y: Point, tau: float) -> Point:
        """ray(X, lift(X, Y))(τ)."""
        ...

    # -- tangents and cotangents are vectors
    def dot(self, C: Array, D: Array) -> float:
        """Re⟨C, D⟩ of a tangent and a cotangent."""
        ...

    def dual(self, C: Cotangent) -> Array:
        """The array D with dot(C, T) = Σ D T for every T; C itself unless XᴴBX = I."""
        ...

    def bounded_length(self, T: Tangent) -> float:
        """‖T‖_F, of a stack or tree the largest, where steps must be bounded; 0 in flat spaces."""
        ...

    def combine(self, a: float, V: Array, b: float, W: Array) -> Array:
        """a V + b W."""
        ...

    def scale(self, a: float, V: Array) -> Array:
        """a V."""
        ...

    # -- what a point must be
    def defect(self, X: Point) -> float:
        """How far X is from the manifold …"""
        ...

    def allowed_defect(self, X: Point) -> float:
        """… and what rounding excuses."""
        ...

    def restore(self, X: Point) -> Point:
        """X brought back from a small defect."""
        ...

    def nearest(self, A: Array) -> Point:
        """The point nearest to any array."""
        ...

    def dimension(self, X: Point) -> int:
        """Real degrees of freedom."""
        ...

    def eps(self, X: Point) -> float:
        """The relative rounding error of the precision of X."""
        ...


class LibraryManifold(Manifold, Protocol):
    """What the manifolds of this library can besides: solvers do not ask for it."""

    def bind(self, X: Array, ranks: Any = ...) -> LibraryManifold:
        """The same with its array library resolved for points like X, or for rows of ranks."""
        ...

    def kernels_at(self, X: Array) -> Any:
        """The array operations for points like X."""
        ...

    def random(self, *shape: int, seed: Any = ..., dtype: Any = ..., like: Any = ...) -> Array:
        """A random point."""
        ...

    def check_point(self, X: Array, name: str = ...) -> None:
        """Raise an error that says what is wrong with X as a point, or return."""
        ...


Manifolds = Manifold | Mapping[Any, Any] | Sequence[Any]  # one for each leaf of a structure


class Objective(Protocol):
    """The user's function; its calls are counted where they happen, and nowhere else."""

    nfev: int
    njev: int
    nhev: int
    scale: float  # what values and gradients here are of the user's

    def value(self, X: Point) -> float: ...

    def value_and_gradient(self, X: Point, value: float | None = None) -> tuple[float, Array, Any]:
        """(f, Euclidean gradient, aux) at X; ``value`` is f(X) where it is held already."""
        ...

    def aux(self, X: Point) -> Any:
        """What the user's function returned beside the gradient at X, for `precond`."""
        ...

    def projected(
        self, project: Callable[[Point, Array], Any], X: Point, value: float | None = None
    ) -> tuple[float, Any, Any]:
        """(f, project(X, gradient), aux) at X; across ranks both travel in one message."""
        ...

    def user_point(self, X: Point) -> Any:
        """X in the structure in which the user gave it."""
        ...


class Solver(Protocol):
    """The parameters of a method; what varies is its state, a record of arrays and numbers."""

    def init(self, problem: Any, x: Point) -> Any:
        """The first state; ``problem`` is a `stiefel.solvers.problem.Problem`."""
        ...

    def step(self, problem: Any, s: Any) -> Any:
        """The state after ``s``."""
        ...
