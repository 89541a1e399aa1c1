"""Derivatives of a minimiser by the implicit function theorem, for JAX.

At a strict minimum x of f(·, θ) the projected gradient stays zero when θ moves, so that

    A ẋ = −Πᴴ ∂_θ∇f θ̇,     A = Πᴴ(∇²f − M (·) herm(XᴴG))Π,     ẋ = Π z,   A z = b

with Π the projection onto tangents, Π T = T − X herm(XᴴMT) (or T − X XᴴMT for spans).  A is
symmetric; along directions of symmetry it vanishes, and b has no part there: conjugate gradients
stay away from them.  Both modes come from one linear solve, which JAX transposes.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from .border import Border
from .leaves import Matrices
from .state import Leaves

Array = Any

FLAT = 1e-10  # curvature, relative to the largest seen, that counts as none
SOLVED = 1e-6  # relative residual beyond which a system has no solution
MESSAGE = (
    "the derivative of the solution is NaN: the point is no strict minimum (up to directions "
    "along which f is constant), or the run did not converge"
)


def attach(
    value: Any, border: Border, x: Leaves, constants: tuple[Array, ...], success: Array
) -> Leaves:
    """x with the derivatives of the minimiser by the constants."""
    smooth = [i for i, c in enumerate(constants) if jnp.issubdtype(c.dtype, jnp.inexact)]
    if not smooth:
        return x

    def filled(moving: tuple[Array, ...], fixed: tuple[Array, ...]) -> tuple[Array, ...]:
        moved, rest = iter(moving), iter(fixed)
        return tuple(next(moved if i in smooth else rest) for i in range(len(constants)))

    @jax.custom_jvp
    def minimiser(
        moving: tuple[Array, ...], fixed: tuple[Array, ...], x: Leaves, success: Array
    ) -> Leaves:
        return x

    @minimiser.defjvp
    def derivative(primals: Any, tangents: Any) -> tuple[Leaves, Leaves]:
        moving, fixed, _, success = primals
        point = minimiser(*primals)

        def gradient(moving: tuple[Array, ...], at: Leaves) -> Leaves:
            return value.gradient(filled(moving, fixed), at)[1]

        change = jax.jvp(lambda m: gradient(m, point), (moving,), (tangents[0],))[1]
        system = _System(border, point, partial(gradient, moving), success)
        return point, system.solve(change)

    fixed = tuple(c for i, c in enumerate(constants) if i not in smooth)
    return minimiser(tuple(constants[i] for i in smooth), fixed, x, success)


class _System:
    """A z = b at a point."""

    def __init__(self, border: Border, x: Leaves, gradient: Any, success: Array) -> None:
        self._leaves = border.leaves
        self._x, self._gradient = x, gradient
        self._shapes = border.inner
        self._users = border.shapes
        self._multipliers = self._map(_multiplier, x, gradient(x))
        self._success = success

    def solve(self, change: Leaves) -> Leaves:
        """ẋ for a change ∂_θ∇f θ̇ of the Euclidean gradient."""
        b, back = _real(self._map(_cotangent, self._x, change))
        image = lambda z: _real(self._image(back(z)))[0]  # noqa: E731
        good = self._success & _definite(jax.lax.stop_gradient, image, b.shape, b.dtype)
        _warn_unless(good)
        b = jnp.where(good, -b, jnp.nan)
        z = jax.lax.custom_linear_solve(image, b, _conjugate_gradients, symmetric=True)
        return self._map(_tangent, self._x, back(z))

    def _image(self, z: Leaves) -> Leaves:
        T = self._map(_tangent, self._x, z)
        E = jax.jvp(self._gradient, (self._x,), (T,))[1]
        bent = self._map(_bent, T, self._multipliers, E)
        return self._map(_cotangent, self._x, bent)

    def _map(self, function: Any, *parts: Any) -> tuple[Any, ...]:
        """``function`` leaf by leaf, on arrays of the solver's shape with one problem."""
        result = []
        for leaf, inner, shape, *args in zip(
            self._leaves, self._shapes, self._users, *parts, strict=True
        ):
            arrays = [a.reshape(1, *inner) if a.shape == shape else a for a in args]
            found = function(leaf, *arrays)
            result.append(found.reshape(shape) if found.shape == (1, *inner) else found)
        return tuple(result)


def _multiplier(leaf: Any, X: Array, G: Array) -> Array:
    """herm(XᴴG), the multiplier of the constraint."""
    return leaf.k.hermitian(leaf.k.pairing(X, G)) if isinstance(leaf, Matrices) else jnp.zeros(())


def _bent(leaf: Any, T: Array, multiplier: Array, E: Array) -> Array:
    """∇²f[T] − M T herm(XᴴG)."""
    return E - leaf.k.weigh(T) @ multiplier if isinstance(leaf, Matrices) else E


def _tangent(leaf: Any, X: Array, Z: Array) -> Array:
    if not isinstance(leaf, Matrices):
        return Z
    m = leaf.k.gram(X, Z)
    return Z - X @ (m if leaf.spans_only else leaf.k.hermitian(m))


def _cotangent(leaf: Any, X: Array, E: Array) -> Array:
    """Πᴴ E."""
    if not isinstance(leaf, Matrices):
        return E
    m = leaf.k.pairing(X, E)
    return E - leaf.k.weigh(X) @ (m if leaf.spans_only else leaf.k.hermitian(m))


def _real(leaves: Leaves) -> tuple[Array, Any]:
    """The leaves as one real vector, in which Re⟨·,·⟩ is the dot product; and the way back."""
    parts = tuple(
        jnp.stack([a.real, a.imag]) if jnp.iscomplexobj(a) else a for a in leaves
    )
    vector, unravel = ravel_pytree(parts)
    complex_ = tuple(jnp.iscomplexobj(a) for a in leaves)

    def back(z: Array) -> Leaves:
        return tuple(
            jax.lax.complex(p[0], p[1]) if c else p
            for p, c in zip(unravel(z), complex_, strict=True)
        )

    return vector, back


# -- conjugate gradients ------------------------------------------------------------------------


def _conjugate_gradients(image: Any, b: Array) -> Array:
    """z with A z = b; NaN where a direction has no positive curvature, or b is out of reach."""
    z, good = _descend(image, b)
    residual = b - image(z)
    reached = jnp.linalg.norm(residual) <= SOLVED * jnp.linalg.norm(b)
    return jnp.where(good & reached, z, jnp.nan)


def _definite(stop: Any, image: Any, shape: tuple[int, ...], dtype: Any) -> Array:
    """Whether no direction of negative curvature shows from an arbitrary one."""
    arbitrary = jnp.asarray(jnp.sin(1.0 + 7.3 * jnp.arange(shape[0]) ** 1.3), dtype)
    frozen = lambda z: stop(image(stop(z)))  # noqa: E731
    return _descend(frozen, frozen(arbitrary))[1]


def _descend(image: Any, b: Array) -> tuple[Array, Array]:
    """Conjugate gradients from zero; and whether curvature stayed positive."""
    eps = float(jnp.finfo(b.dtype).eps)
    target = (100.0 * eps) ** 2 * jnp.vdot(b, b)
    most = 4 * b.shape[0] + 20

    def going(s: Any) -> Array:
        _, _, _, rr, _, count, good = s
        return (rr > target) & (count < most) & good

    def step(s: Any) -> Any:
        z, r, p, rr, largest, count, good = s
        Ap = image(p)
        pp, pAp = jnp.vdot(p, p), jnp.vdot(p, Ap)
        largest = jnp.maximum(largest, jnp.linalg.norm(Ap) / jnp.sqrt(pp))
        # A direction that is rounding has no curvature, and no meaning.
        flat = ~(pAp > FLAT * largest * pp)
        alpha = jnp.where(flat, 0.0, rr / jnp.where(flat, 1.0, pAp))
        z, r = z + alpha * p, r - alpha * Ap
        new = jnp.vdot(r, r)
        done = flat & (rr <= SOLVED**2 * jnp.vdot(b, b))
        p = r + (new / rr) * p
        return z, r, p, jnp.where(done, 0.0, new), largest, count + 1, good & (~flat | done)

    zero = jnp.zeros_like(b)
    start = (zero, b, b, jnp.vdot(b, b), jnp.zeros((), b.dtype), 0, jnp.isfinite(jnp.vdot(b, b)))
    z, _, _, _, _, _, good = jax.lax.while_loop(going, step, start)
    return z, good


def _warn_unless(good: Array) -> None:
    """At once where the answer is known; from compiled code when it is."""
    if isinstance(good, jax.core.Tracer):
        jax.debug.callback(_warn, good)
    else:
        _warn(good)


def _warn(good: Any) -> None:
    if not bool(good):
        warnings.warn(MESSAGE, RuntimeWarning, stacklevel=2)
