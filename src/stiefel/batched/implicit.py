"""The linear system behind derivatives of a minimiser, and its solution by conjugate gradients.

At a strict minimum x of f(·, θ) the projected gradient stays zero when θ moves, so that

    A z = −∂_θ∇f θ̇,   ẋ = Π z,   A = Πᴴ(∇²f − M (·) herm(XᴴG))Π + λ(I − Π)ᴴ(I − Π)

with Π the projection onto tangents, Π T = T − X herm(XᴴMT) (or T − X XᴴMT for spans).  The second
part keeps normal directions apart, so that residuals are measured against the whole of the
right-hand side.  A is symmetric; along directions of symmetry it vanishes, and the right-hand side
has no part there: conjugate gradients stay away from them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

from stiefel.types import Array, Leaves

from .border import Border
from .leaves import Leaf, Matrices

LeafMap = Callable[[Leaves], Leaves]

FLAT_CURVATURE = 1e-10  # curvature, relative to the largest seen, that counts as none
SOLVED = 1e-6  # relative residual beyond which a system has no solution
MESSAGE = (
    "the derivative of the solution is NaN: the point is no strict minimum (up to directions "
    "along which f is constant), or the run did not converge"
)


class Second(Protocol):
    """The Euclidean gradient at a point, and products with the Hessian there."""

    gradient: Leaves

    def hessian(self, T: Leaves) -> Leaves: ...


class Operator:
    """A at a point; leaves have the user's shapes."""

    def __init__(self, border: Border, x: Leaves, second: Second) -> None:
        self._border, self.x, self._second = border, x, second
        self._multipliers = self._map(multiplier, x, second.gradient)

    def on_tangents(self, z: Leaves) -> tuple[Leaves, Leaves]:
        """Πᴴ(∇²f − M (·) herm(XᴴG))Π z, and Π z."""
        T = self.tangent(z)
        bent = self._map(bend, T, self._multipliers, self._second.hessian(T))
        return self._map(to_cotangent, self.x, bent), T

    def with_normals(self, weight: Any) -> LeafMap:
        """z ↦ A z with this λ."""

        def image(z: Leaves) -> Leaves:
            bent, T = self.on_tangents(z)
            N = tuple(u - v for u, v in zip(z, T, strict=True))
            rest = self._map(to_cotangent, self.x, N)
            return tuple(h + weight * (n - r) for h, n, r in zip(bent, N, rest, strict=True))

        return image

    def tangent(self, z: Leaves) -> Leaves:
        return self._map(to_tangent, self.x, z)

    def _map(self, function: Any, *parts: Any) -> tuple[Any, ...]:
        """``function`` leaf by leaf, on arrays of the solver's shape with one problem."""
        result, border = [], self._border
        for leaf, inner, shape, *args in zip(
            border.leaves, border.inner, border.shapes, *parts, strict=True
        ):
            arrays = [a.reshape(1, *inner) if tuple(a.shape) == shape else a for a in args]
            found = function(leaf, *arrays)
            fits = tuple(found.shape) == (1, *inner)
            result.append(found.reshape(shape) if fits else found)
        return tuple(result)


def multiplier(leaf: Leaf, X: Array, G: Array) -> Array:
    """herm(XᴴG), the multiplier of the constraint."""
    return leaf.k.hermitian(leaf.k.pairing(X, G)) if isinstance(leaf, Matrices) else G


def bend(leaf: Leaf, T: Array, multiplier: Array, E: Array) -> Array:
    """∇²f[T] − M T herm(XᴴG)."""
    return E - leaf.k.weigh(T) @ multiplier if isinstance(leaf, Matrices) else E


def to_tangent(leaf: Leaf, X: Array, Z: Array) -> Array:
    """Π Z."""
    if not isinstance(leaf, Matrices):
        return Z
    m = leaf.k.gram(X, Z)
    return Z - X @ (m if leaf.spans_only else leaf.k.hermitian(m))


def to_cotangent(leaf: Leaf, X: Array, E: Array) -> Array:
    """Πᴴ E."""
    if not isinstance(leaf, Matrices):
        return E
    m = leaf.k.pairing(X, E)
    return E - leaf.k.weigh(X) @ (m if leaf.spans_only else leaf.k.hermitian(m))


# -- eager conjugate gradients ------------------------------------------------------------------


def solved_by_gradients(image: LeafMap, b: Leaves) -> tuple[Leaves, bool]:
    """z with A z = b, and whether there is such a z."""
    z, good = descend(image, b)
    residual = tuple(u - v for u, v in zip(b, image(z), strict=True))
    return z, good and math.sqrt(dot(residual, residual)) <= SOLVED * math.sqrt(dot(b, b))


def is_definite(operator: Operator) -> tuple[bool, float]:
    """Whether no negative curvature shows from an arbitrary direction; and a curvature."""
    xp = operator._border.k.xp
    parts = []
    for x in operator.x:
        number = xp.arange(math.prod(x.shape), dtype=x.real.dtype, device=x.device)
        parts.append((xp.sin(1.0 + 7.3 * number**1.3) + 0.0 * x.reshape(-1)).reshape(x.shape))
    b = operator.on_tangents(tuple(parts))[0]
    curvature = math.sqrt(dot(b, b) / dot(tuple(parts), tuple(parts)))
    return descend(lambda z: operator.on_tangents(z)[0], b)[1], curvature


def descend(image: LeafMap, b: Leaves) -> tuple[Leaves, bool]:
    """Conjugate gradients from zero; and whether curvature stayed positive."""
    eps = max(float(_eps(v)) for v in b)
    z, r, p = tuple(0.0 * v for v in b), b, b
    bb = rr = dot(b, b)
    largest, good = 0.0, math.isfinite(bb)
    for _ in range(4 * sum(math.prod(v.shape) for v in b) + 20):
        if not good or rr <= (100.0 * eps) ** 2 * bb:
            break
        Ap = image(p)
        pp, pAp = dot(p, p), dot(p, Ap)
        largest = max(largest, math.sqrt(dot(Ap, Ap) / pp))
        if not pAp > FLAT_CURVATURE * largest * pp:  # a direction that is rounding has no curvature
            return z, rr <= SOLVED**2 * bb
        alpha = rr / pAp
        z = tuple(u + alpha * v for u, v in zip(z, p, strict=True))
        r = tuple(u - alpha * v for u, v in zip(r, Ap, strict=True))
        old, rr = rr, dot(r, r)
        p = tuple(u + (rr / old) * v for u, v in zip(r, p, strict=True))
    return z, good


def dot(U: Leaves, V: Leaves) -> float:
    """Re⟨U, V⟩."""
    return sum(float((u.conj() * v).real.sum()) for u, v in zip(U, V, strict=True))


def _eps(v: Array) -> float:
    import torch

    return torch.finfo(v.dtype).eps
