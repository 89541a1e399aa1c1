"""Metrics with scaled columns and rotations.

A cotangent at X is N + XA with XᴴN = 0 and A skew.  The metrics here raise its index by

    φ(N + XA) = N D + ω X A

with a positive definite k×k matrix D and a number ω.  D = I, ω = 2 is the canonical metric of the
paper, D = I, ω = 1 the embedded one.  A *horizontal* metric drops the rotation XA: right for
functions with f(XQ) = f(X), where it carries nothing but rounding.  Under X → XQ the metric with
QᴴDQ takes the place of the one with D, so that nothing depends on the choice of columns.
"""

from __future__ import annotations

from typing import Any

from stiefel.backends.base import Kernels, kernel
from stiefel.types import Array, Metric

from .ray import Curvature

CANONICAL = Metric()


def raise_index(k: Kernels, X: Array, W: Array, metric: Metric) -> Array:
    """φ(W), a tangent; W may have a part normal to the manifold, which is dropped; 6nk²."""
    T = _raised(k, X, W, metric)
    return T if metric.scales is None else metric.scales * T


def _raised(k: Kernels, X: Array, W: Array, metric: Metric) -> Array:
    if metric.horizontal:
        if metric.D is None:
            return horizontal(k, X, W)
        return _horizontal_columns(k, X, W, metric.D)
    if metric.D is None:
        return _rotation(k, X, W, metric.omega)
    return raise_columns(k, X, W, metric.D, metric.omega)


@kernel
def horizontal(k: Kernels, X: Array, W: Array) -> Array:
    return k.subtract(W, X, k.gram(X, W))


@kernel
def _horizontal_columns(k: Kernels, X: Array, W: Array, D: Array) -> Array:
    return k.combine(W, D, X, -(k.gram(X, W) @ D))


@kernel
def _rotation(k: Kernels, X: Array, W: Array, omega: Any) -> Array:
    m = k.gram(X, W)
    return k.subtract(W, X, m - omega * k.skew(m))


@kernel
def raise_columns(k: Kernels, X: Array, W: Array, D: Array, omega: Any) -> Array:
    m = k.gram(X, W)
    return k.combine(W, D, X, omega * k.skew(m) - m @ D)


@kernel
def cotangent_of(k: Kernels, X: Array, T: Array) -> Array:
    """The cotangent W whose φ(W) is the tangent nearest to T, in the canonical metric; 4nk²."""
    m = k.gram(X, T)
    return k.subtract(T, X, k.hermitian(m) + 0.5 * k.skew(m))


@kernel
def squared_change(
    k: Kernels, seen: Curvature, D: Array | None, omega: Any, scales: Array | None = None
) -> Array:
    """⟨y, φ(y)⟩ = Tr(TᴴT D) + ω Tr BᴴB with TᴴT = yᴴy − BᴴB: no tall work."""
    B, yy = seen.B, seen.yy
    if scales is not None:
        B, yy = k.xp.sqrt(scales) * B, scales * yy
    if D is None:
        return k.trace(yy) + (omega - 1.0) * k.squared_frobenius(B)
    return k.small_inner(D, yy) - k.small_inner(B, B @ D) + omega * k.squared_frobenius(B)


@kernel
def mean_metric(k: Kernels, P: Array, R: Array, largest_ratio: float) -> Array:
    """D = M⁻¹ with M P M = R: of all D the one that minimises Tr(RD) Tr(PD⁻¹).

    Normalised to determinant one, with condition number at most ``largest_ratio``.
    """
    xp, (P, R) = k.xp, _regular(k, P, R)
    root, inverse_root = _roots(k, P)
    values, vectors = k.eigh(k.hermitian(root @ R @ root))
    middle = _rebuild(k, vectors, xp.sqrt(xp.clip(values, 0.0, None)))
    values, vectors = k.eigh(k.hermitian(inverse_root @ middle @ inverse_root))
    # Relative to the largest one: logarithms of 2ᵖx would round differently.
    values = values / xp.max(values, axis=-1, keepdims=True)
    values = xp.maximum(values, 1.0 / largest_ratio)
    values = values / xp.exp(xp.mean(xp.log(values), axis=-1, keepdims=True))
    return _rebuild(k, vectors, 1.0 / values)


@kernel
def surely_near(k: Kernels, P: Array, R: Array, D: Array, ratio: Any) -> Array:
    """Where `mean_metric` of P and R surely differs from D by no more than ``ratio``; O(k³).

    With α DRD ≤ P ≤ β DRD the mean lies between α^½ D and β^½ D, because it is monotone.  β/α is
    at most r if the k eigenvalues λ of (DRD)⁻¹P have Σλ Σ1/λ ≤ k² + h(r) + 2(k − 2) h(r^½), with
    h(x) = x + 1/x − 2: two of them are apart by β/α, and each other one lies between.
    """
    P, R = _regular(k, P, R)
    Q = D @ R @ D
    seen = _traces(k, k.solve(Q, P)) * _traces(k, k.solve(P, Q))
    size = P.shape[-1]
    allowed = size**2 + _apart(ratio**2) + 2 * (size - 2) * _apart(ratio)
    return k.largest(seen) <= allowed


@kernel
def spread(k: Kernels, D: Array, E: Array | None) -> Array:
    """The condition number of D relative to E: by how much two metrics differ; the worst one."""
    if E is not None:
        inverse_root = _roots(k, E)[1]
        D = inverse_root @ D @ inverse_root
    values, _ = k.eigh(k.hermitian(D))
    return k.largest(k.xp.max(values, axis=-1) / k.xp.min(values, axis=-1))


@kernel
def matrix_squares(k: Kernels, C: Array) -> Array:
    """‖C‖²_F of every matrix of a stack."""
    return k.reduce(k.xp.sum(k.real(k.conj(C) * k.weigh(C)), axis=(-2, -1)))[0]


def _regular(k: Kernels, P: Array, R: Array) -> tuple[Array, Array]:
    """P and R, a little off the singular ones."""
    one = k.eye(P)
    P = P + (1e-3 * _mean_diagonal(k, P) + _tiny(k, P)) * one
    return P, R + (1e-6 * _mean_diagonal(k, R) + _tiny(k, R)) * one


def _apart(ratio: Any) -> Any:
    return ratio + 1.0 / ratio - 2.0


def _traces(k: Kernels, A: Array) -> Array:
    return k.real(k.xp.linalg.trace(A))


def _roots(k: Kernels, A: Array) -> tuple[Array, Array]:
    values, vectors = k.eigh(A)
    root = k.xp.sqrt(values)
    return _rebuild(k, vectors, root), _rebuild(k, vectors, 1.0 / root)


def _rebuild(k: Kernels, vectors: Array, values: Array) -> Array:
    return (vectors * k.xp.astype(values, vectors.dtype)[..., None, :]) @ k.adjoint(vectors)


def _mean_diagonal(k: Kernels, A: Array) -> Array:
    trace = k.xp.linalg.trace(A) / A.shape[-1]
    return trace[..., None, None]


def _tiny(k: Kernels, A: Array) -> float:
    return float(k.xp.finfo(A.dtype).smallest_normal) ** 0.5


@kernel
def longest_of(k: Kernels, T: Array) -> Array:
    return k.xp.max(matrix_squares(k, T))
