"""Derivatives of a minimiser for JAX: the system of `implicit`, solved inside compiled code.

Both modes come from one linear solve, which JAX transposes; second derivatives come from
differentiating it again.
"""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from stiefel.types import Array, Leaves

from .border import Border
from .implicit import FLAT_CURVATURE, MESSAGE, SOLVED, Operator


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
        operator = Operator(border, point, _Products(point, partial(gradient, moving)))
        return point, _solved(operator, change, success)

    fixed = tuple(c for i, c in enumerate(constants) if i not in smooth)
    return minimiser(tuple(constants[i] for i in smooth), fixed, x, success)


class _Products:
    """The gradient at a point and products with the Hessian, by JAX."""

    def __init__(self, x: Leaves, gradient: Any) -> None:
        self._x, self._function = x, gradient
        self.gradient = gradient(x)

    def hessian(self, T: Leaves) -> Leaves:
        return jax.jvp(self._function, (self._x,), (T,))[1]


def _solved(operator: Operator, change: Leaves, success: Array) -> Leaves:
    """ẋ for a change ∂_θ∇f θ̇ of the Euclidean gradient."""
    b, back = _real(change)
    good, curvature = _definite(operator, back, b.shape, b.dtype)
    good = good & success
    _warn_unless(good)
    apply = operator.with_normals(curvature)
    b = b * jnp.where(good, -1.0, jnp.nan)  # a factor: transposed, `where` would give zeros
    z = jax.lax.custom_linear_solve(
        lambda z: _real(apply(back(z)))[0], b, _conjugate_gradients, symmetric=True
    )
    return operator.tangent(back(z))


def _real(leaves: Leaves) -> tuple[Array, Any]:
    """The leaves as one real vector, in which Re⟨·,·⟩ is the dot product; and the way back."""
    parts = tuple(jnp.stack([a.real, a.imag]) if jnp.iscomplexobj(a) else a for a in leaves)
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


def _definite(
    operator: Operator, back: Any, shape: tuple[int, ...], dtype: Any
) -> tuple[Array, Array]:
    """Whether no negative curvature shows from an arbitrary direction; and a curvature."""
    stop = jax.lax.stop_gradient

    def image(z: Array) -> Array:
        return stop(_real(operator.on_tangents(back(stop(z)))[0])[0])

    arbitrary = jnp.asarray(jnp.sin(1.0 + 7.3 * jnp.arange(shape[0]) ** 1.3), dtype)
    b = image(arbitrary)
    return _descend(image, b)[1], jnp.linalg.norm(b) / jnp.linalg.norm(arbitrary)


def _descend(image: Any, b: Array) -> tuple[Array, Array]:
    """Conjugate gradients from zero; and whether curvature stayed positive."""
    eps = float(np.finfo(b.dtype).eps)
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
        flat = ~(pAp > FLAT_CURVATURE * largest * pp)
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
