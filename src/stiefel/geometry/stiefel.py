"""The Stiefel manifold {X : XᴴX = I} with the canonical metric; Section 2.1 of the paper.

A point X is n×k (or a stack of such matrices).  G, V and W are cotangents: n×k matrices with
XᴴW skew, paired with tangents by Re Tr(VᴴW).  Tangents, obtained by `raise_index`, are T.
The formulas are those of real and complex matrices alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from stiefel.backends.arrays import kernels_for
from stiefel.backends.base import Kernels, kernel
from stiefel.backends.ranks import ALONE, Alone, Ranks
from stiefel.types import Array, Metric

from . import cayley, checks, compiled, real_vector
from . import hessian as second_order
from . import metric as metrics
from .compiled import faster
from .geodesic import geodesic_point
from .metric import CANONICAL
from .ray import ColumnRay, Lowered, Ray, TangentRay
from .real_columns import is_column_stack, units_gradient
from .real_vector import RealVectorRay, is_real_vector
from .unit import StackCircle


@dataclass(frozen=True)
class Stiefel:
    """Matrices with orthonormal columns, or stacks ``(..., n, k)`` of them.

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
    >>> import numpy as np, scipy.linalg, stiefel
    >>> A, B = np.diag(np.arange(1.0, 9.0)), np.diag(np.linspace(1.0, 2.0, 8))
    >>> manifold = stiefel.Stiefel(B=B)  # a generalised eigenproblem
    >>> X0 = manifold.random(8, 2, seed=0)
    >>> result = stiefel.minimize(lambda X: (np.sum(X * (A @ X)), 2 * A @ X), X0, manifold=manifold)
    >>> bool(np.isclose(result.fun, scipy.linalg.eigvalsh(A, B)[:2].sum()))
    True
    """

    rows_on_ranks: ClassVar[bool] = True  # with comm=; see `layout`
    learns: ClassVar[bool] = True  # a metric for its columns; see `solvers.learned_metric`

    B: Any = None
    solve: Callable[[Array], Array] | None = None
    kernels: Kernels | None = field(default=None, repr=False, compare=False)
    _factorised: dict[Any, Kernels] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def bind(self, X: Array, ranks: Alone | Ranks = ALONE) -> Self:
        """This manifold with its array library resolved for points like X.

        With ``ranks``, X is this rank's rows of a point.
        """
        return replace(self, kernels=self._resolve(X, ranks))

    def _resolve(self, X: Array, ranks: Alone | Ranks = ALONE) -> Kernels:
        kernels = kernels_for(X, ranks)
        if self.B is None:
            return kernels
        # B is checked and factorised once for each kind of point, also without `bind`.
        kind = (kernels, X.shape[-2], X.dtype, str(kernels.device(X)))
        if kind not in self._factorised:
            from .constraint import weighted

            self._factorised[kind] = weighted(kernels, self.B, self.solve, X)
        return self._factorised[kind]

    def kernels_at(self, X: Array) -> Kernels:
        """The array operations for points like X."""
        return self.kernels or self._resolve(X)

    def has_plain_metric(self, X: Array) -> bool:
        """Whether tangents are cotangents, in real NumPy arrays: see `solvers.plain_pairs`."""
        k = self.kernels_at(X)
        return is_column_stack(k, X) or (X.shape[-1] == 1 and is_real_vector(k, X))

    # -- cotangents and tangents -----------------------------------------------------------

    def project(self, X: Array, G: Array) -> Array:
        """The cotangent at X that acts on tangents as the Euclidean gradient G; 4nk²."""
        k = self.kernels_at(X)
        fast = faster(k, X, G)
        return (fast.project if fast else project)(k, X, G)

    def gradient(self, X: Array, E: Array) -> Lowered:
        """`project` with the norm of its result, and with XᴴG where there are several columns."""
        k = self.kernels_at(X)
        if X.shape[-1] == 1:
            if is_real_vector(k, X):
                return real_vector.vector_gradient(k, X, E)
            if is_column_stack(k, X):
                return units_gradient(k, X, E, by_rows=False)
        fast = faster(k, X, E)
        lower = fast.lower_gradient if fast else lower_gradient
        G, square, rotation, level = lower(k, X, E)
        if X.shape[-1] == 1:
            return Lowered(G, float(square))
        return Lowered(G, float(square), rotation, level)

    def project_direction(self, X: Array, W: Array) -> Array:
        """The cotangent nearest to an n×k direction W of the space of points; 4nk²."""
        return _project_direction(self.kernels_at(X), X, W)

    def inner(self, X: Array, V: Array, W: Array) -> float:
        """g*(V, W) = Re Tr Vᴴ(I + XXᴴ)W of two cotangents."""
        return float(_inner(self.kernels_at(X), X, V, W))

    def norm(self, X: Array, W: Array) -> float:
        """‖W‖_g*."""
        return math.sqrt(self.inner(X, W, W))

    def inner_tangent(self, X: Array, S: Array, T: Array) -> float:
        """g(S, T) = Re Tr Sᴴ(I − XXᴴ/2)T of two tangents."""
        return float(_inner_tangent(self.kernels_at(X), X, S, T))

    def raise_index(self, X: Array, W: Array, metric: Metric | None = None) -> Array:
        """The tangent φ(W) = (I + XXᴴ)W of a cotangent W; or φ of another metric."""
        if metric is not None:
            k = self.kernels_at(X)
            if metric.D is None and is_real_vector(k, X):
                return real_vector.project_onto(X, np.array(W, order="C"))
            return (faster(k, X, W) or metrics).raise_index(k, X, W, metric)
        return _add_projection(self.kernels_at(X), X, W, 1.0)

    def raise_onto(self, X: Array, W: Array, metric: Metric) -> Array:
        """φ(W), perhaps written over W, which nobody needs any more.

        For a real column it is W itself, up to a part along X that the next ray takes off: the
        same steps here, on ranks and in other libraries as of `solvers.plain_pairs`.
        """
        k = self.kernels_at(X).overwriting()
        if X.shape[-1] == 1 and len(X.shape) == 2 and not k.is_complex(X):
            return W
        fast = faster(k, X, W)
        return fast.raise_onto(k, X, W, metric) if fast else metrics.raise_index(k, X, W, metric)

    def lower_index(self, X: Array, T: Array) -> Array:
        """The cotangent φ⁻¹(T) = (I − XXᴴ/2)T of a tangent T."""
        return _add_projection(self.kernels_at(X), X, T, -0.5)

    def cotangent_of(self, X: Array, T: Array, metric: Metric = CANONICAL) -> Array:
        """φ⁻¹ of the tangent (for a horizontal metric: the horizontal one) nearest to T; 4nk²."""
        kernel = metrics.horizontal if metric.horizontal else metrics.cotangent_of
        return kernel(self.kernels_at(X), X, T)

    def pair(self, X: Array, W: Array, T: Array) -> float:
        """W(T) = Re Tr WᴴT of a cotangent and a tangent."""
        return float(_pair(self.kernels_at(X), W, T))

    def hessian(self, X: Array, gradient: Array, W: Array, E: Array) -> Array:
        """The Riemannian Hessian times a cotangent W, a cotangent; 16nk².

        ``gradient`` is the Euclidean gradient at X, E the Euclidean Hessian times φ(W).
        """
        return second_order.stiefel_hessian(self.kernels_at(X), X, gradient, W, E)

    # -- moving ----------------------------------------------------------------------------

    def ray(self, X: Array, W: Array) -> Ray | ColumnRay | StackCircle:
        """The curve t ↦ R(X, φ(tW)) of the Cayley retraction; `Ray.squared_norm` is ‖W‖²_g*."""
        k = self.kernels_at(X)
        if X.shape[-1] == 1:
            if is_column_stack(k, X):
                return StackCircle(k, X, W)
            return RealVectorRay(k, X, W) if is_real_vector(k, X) else ColumnRay(k, X, W)
        fast = faster(k, X, W)
        return fast.FastRay(k, X, W) if fast else Ray(k, X, W)

    def aim_along(self, X: Array, G: Array, T: Array, into: Any = None) -> tuple[float, Any]:
        """⟨G, T⟩ and the ray along T, of real vectors: see `real_vector` and `real_columns`."""
        known = self.kernels_at(X), X, T, G, into
        ray = StackCircle(*known) if X.ndim > 2 else RealVectorRay(*known, tangent=True)
        return ray.slope, ray

    def ray_along(self, X: Array, T: Array, metric: Metric = CANONICAL) -> Any:
        """The ray whose velocity is the tangent (horizontal in such a metric) nearest to T."""
        k = self.kernels_at(X)
        if X.shape[-1] > 1:
            fast = faster(k, X, T)
            kind = fast.FastTangentRay if fast else TangentRay
            ray = kind(k, X, T, self.rotation_left_out(metric))
            if not ray.lossy:
                return ray
        elif is_real_vector(k, X):
            return RealVectorRay(k, X, T, tangent=True)
        elif is_column_stack(k, X):
            return StackCircle(k, X, T)
        return self.ray(X, self.cotangent_of(X, T, metric))

    def rotation_left_out(self, metric: Metric) -> float:
        """θ of `TangentRay`: all of the rotation in a horizontal metric, as φ halves it else."""
        return 1.0 if metric.horizontal else 0.5

    def lift(self, X: Array, Y: Array) -> Array:
        """The cotangent V at X with R(X, φ(V)) = Y."""
        return cayley.lift(self.kernels_at(X), X, Y)

    def extrapolate(self, X: Array, Y: Array, tau: float) -> Array:
        """R(X, φ(τV)), V = lift(X, Y): X at τ = 0, Y at τ = 1, between or beyond otherwise."""
        k = self.kernels_at(X)
        if X.shape[-1] > 1 and (fast := faster(k, X, Y)):
            return fast.extrapolate(k, X, Y, tau)
        return cayley.extrapolate(k, X, Y, tau)

    def geodesic(self, X: Array, W: Array, t: float = 1.0) -> Array:
        """exp(t(WXᴴ − XWᴴ))X: the exact geodesic along the cotangent W; O(nk²)."""
        return geodesic_point(self.kernels_at(X), X, W, t)

    def exponential(self, X: Array, T: Array, t: float = 1.0) -> Array:
        """The exact geodesic that leaves X with the velocity of the tangent T."""
        return self.geodesic(X, self.lower_index(X, T), t)

    def transport(self, X: Array, Y: Array, W: Array) -> Array:
        """A cotangent at Y that stands for W at X, by projection; 4nk²."""
        return self.project_direction(Y, W)

    # -- cotangents form a vector space ----------------------------------------------------

    def combine(self, a: float, V: Array, b: float, W: Array) -> Array:
        """a V + b W."""
        return self.kernels_at(V).axpby(a, V, b, W)

    def scale(self, a: float, V: Array) -> Array:
        """a V."""
        return a * V

    def dot(self, C: Array, D: Array) -> float:
        """Re⟨C, D⟩ of a tangent and a cotangent, or of two vectors."""
        k = self.kernels_at(C)
        return float(np.vdot(C, D).real if k.pure_numpy else _pair(k, C, D))

    def dual(self, C: Array) -> Array:
        """The array whose plain product with a tangent is C of it: BC under XᴴBX = I."""
        k = self.kernels_at(C)
        return C if k.pure_numpy else k.weigh(C)

    def bounded_length(self, T: Array) -> float:
        """The largest ‖T‖_F of the matrices of a stack: how far one of them would move."""
        return math.sqrt(float(metrics.longest_of(self.kernels_at(T), T)))

    # -- feasibility -----------------------------------------------------------------------

    def defect(self, X: Array) -> float:
        """‖XᴴX − I‖_F; the largest one of a stack."""
        k = self.kernels_at(X)
        if k.pure_numpy and X.ndim == 2:  # wrappers take four times as long
            E = X.conj().T.dot(X)
            E -= k.eye(X)
            return math.sqrt(np.vdot(E, E).real)
        if (fast := compiled.kernels_of_turns(k, X, X)) is not None:
            return math.sqrt(fast.turns_defect(X.shape[-1], X))
        E = k.gram(X, X) - k.eye(X)
        return math.sqrt(float(k.largest_square(E)))

    def allowed_defect(self, X: Array) -> float:
        """What a returned point promises: 10 eps √k, or what the product with B rounds to."""
        roundings = 10.0
        if self.B is not None:
            from .constraint import rounding_of_product

            roundings = max(roundings, rounding_of_product(self.kernels_at(X), X))
        return roundings * self.eps(X) * math.sqrt(X.shape[-1])

    def restore(self, X: Array) -> Array:
        """X brought back to rounding level by two Newton–Schulz steps; for small defects."""
        k = self.kernels_at(X)
        if compiled.kernels_of_turns(k, X, X) is not None:
            return compiled.straightened(k, compiled.straightened(k, X))
        for _ in range(2):
            X = k.subtract(1.5 * X, X, 0.5 * k.gram(X, X))
        return X

    def nearest(self, A: Array) -> Array:
        """The point nearest to A: its polar factor."""
        return _nearest(self.kernels_at(A), A)

    def random(
        self,
        *shape: int,
        seed: int | np.random.Generator | None = None,
        dtype: Any = np.float64,
        like: Array | None = None,
    ) -> Array:
        """A uniformly distributed point: the polar factor of a Gaussian matrix.

        ``like`` gives the array library, dtype and device; NumPy otherwise.
        """
        return self.nearest(checks.gaussian(shape, seed, dtype, like))

    def eps(self, X: Array) -> float:
        return self.kernels_at(X).eps(X)

    def check_point(self, X: Array, name: str = "X0") -> None:
        """Raise an error that says what is wrong with X as a point, or return."""
        checks.check_matrix(X, name, self.kernels)
        checks.check_finite(self.kernels_at(X), X, name)
        checks.check_orthonormal(self, X, name)

    def dimension(self, X: Array) -> int:
        """The number of real degrees of freedom."""
        n, k = self.kernels_at(X).rows(X), X.shape[-1]
        stack = math.prod(X.shape[:-2])
        real = n * k - k * (k + 1) // 2
        return stack * (2 * n * k - k * k if self.kernels_at(X).is_complex(X) else real)


@kernel
def project(k: Kernels, X: Array, G: Array) -> Array:
    """M⁻¹G − X herm(XᴴG): after Section 2.1, the orthogonal projection onto (T_X)*."""
    return k.subtract(k.sharpen(G), X, k.hermitian(k.pairing(X, G)))


@kernel
def lower_gradient(k: Kernels, X: Array, E: Array) -> tuple[Array, Array, Array, Array]:
    """G, ‖G‖²_g*, XᴴG = skew(XᴴE), which has no more rounding than G itself, and herm(XᴴE)."""
    m = k.pairing(X, E)
    level, rotation = k.hermitian(m), k.skew(m)
    G = k.subtract(k.sharpen(E), X, level)
    return G, k.dot(G, G) + k.squared_frobenius(rotation), rotation, level


@kernel
def _project_direction(k: Kernels, X: Array, W: Array) -> Array:
    return k.subtract(W, X, k.hermitian(k.gram(X, W)))


@kernel
def _inner(k: Kernels, X: Array, V: Array, W: Array) -> Array:
    MW, XM = k.weigh(W), k.weigh(X)
    # One reduction for the three sums over rows.
    vw, xv, xw = k.reduce(k._dot(V, MW), k._product(XM, V), k._product(X, MW))
    return vw + k.small_inner(xv, xw)


@kernel
def _pair(k: Kernels, W: Array, T: Array) -> Array:
    return k.dot(W, T)


@kernel
def _inner_tangent(k: Kernels, X: Array, S: Array, T: Array) -> Array:
    MT, XM = k.weigh(T), k.weigh(X)
    st, xs, xt = k.reduce(k._dot(S, MT), k._product(XM, S), k._product(X, MT))
    return st - 0.5 * k.small_inner(xs, xt)


@kernel
def _add_projection(k: Kernels, X: Array, W: Array, weight: float) -> Array:
    return k.subtract(W, X, -weight * k.gram(X, W))


@kernel
def _nearest(k: Kernels, A: Array) -> Array:
    return k.nearest(A)
