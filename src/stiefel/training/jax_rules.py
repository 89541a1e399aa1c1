"""SGD, Adam and Muon as optax transformations; public as `stiefel.jax.sgd`, `adam` and `muon`.

At an orthonormal parameter X with gradient G and momentum M, with P the projection onto the tangent
space at X and g = P(G), the directions D of `jax_manifold` are

    SGD    M' = P(μM + (1−δ)G),          D = M',  or P(G + μM') (Nesterov)
    Adam   M' = P(β₁M + (1−β₁)g),        D = s/√n P(M'/(1−β₁ᵗ) / (√(v'/(1−β₂ᵗ)) + ε)),
           v' = β₂v + (1−β₂)|g|²         by entries, or their mean over rows, columns or matrices
    Muon   M' = P(μM + G),               D = s × the steepest direction of M', or of G + μM'

They are those of `torch_rules`.  Free parameters follow optax's own rules.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from stiefel.types import Array

from . import formulas
from .jax_manifold import Place, Rate, RuleMemory, Scalar, as_number, on_manifold
from .jax_marks import Marks
from .jax_masters import finfo, with_masters

# Below the square of any gradient that matters in float32; it gives √v a derivative at v = 0.
EPS_ROOT = 1e-36


def sgd(
    learning_rate: Rate,
    orthonormal: Any,
    *,
    momentum: Scalar = 0.0,  # μ
    dampening: Scalar = 0.0,  # δ
    nesterov: bool = False,
    weight_decay: Scalar = 0.0,
) -> optax.GradientTransformationExtraArgs:
    """Stochastic gradient descent with momentum, for all parameters of a model.

    Marked parameters move on their manifold: the gradient and the momentum are projected onto the
    tangent space, and a step ends at the orthonormal matrix nearest to where it leads.  No step
    turns a direction by more than 27°; longer ones are shortened.  Free parameters get the rule of
    `optax.sgd`.  ``update`` needs the parameters, and ``grads`` is what `jax.grad` gives, also for
    complex parameters.

    Parameters
    ----------
    learning_rate
        A number, or a schedule: a function of the number of steps.
    orthonormal
        Which parameters are orthonormal.  A function ``(path, parameter) -> mark``, with a path
        such as ``"params/Dense_0/kernel"``; or a tree of marks with the structure of the
        parameters, from which free ones may be missing; or one mark for all.  A mark is True for a
        matrix, `stiefel.jax.Orthonormal` for everything else, or None or False for a free
        parameter.
    momentum, dampening
        μ and δ.  The first gradient enters undamped.
    nesterov
        Look ahead along the momentum.
    weight_decay
        For free parameters; the norm of orthonormal ones is fixed.

    Returns
    -------
    optax.GradientTransformationExtraArgs
        To be the last one in a chain, because other transformations of its updates would lead away
        from the manifold.

    Raises
    ------
    ValueError, TypeError
        In ``init``, if a mark belongs to no parameter or does not fit its shape, if nothing is
        marked, or if a marked parameter is not orthonormal; `stiefel.jax.nearest` makes it so.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, optax, stiefel.jax
    >>> params = {"rotation": jnp.eye(3), "bias": jnp.zeros(3)}
    >>> loss = lambda p: jnp.sum((jnp.ones(3) @ p["rotation"] + p["bias"] - jnp.arange(3.0)) ** 2)
    >>> optimiser = stiefel.jax.sgd(0.05, {"rotation": True}, momentum=0.9)
    >>> state = optimiser.init(params)
    >>> for _ in range(100):
    ...     updates, state = optimiser.update(jax.grad(loss)(params), state, params)
    ...     params = optax.apply_updates(params, updates)
    >>> R = params["rotation"]
    >>> bool(loss(params) < 1e-3), bool(jnp.allclose(R.T @ R, jnp.eye(3), atol=1e-5))
    (True, True)
    """

    def rule(at: Place, G: Array, memory: RuleMemory, t: Array) -> tuple[Array, RuleMemory]:
        mu = as_number(momentum, G)
        M = at.tangent(mu * memory.momentum + _kept(dampening, t, G) * G)
        return (at.tangent(G + mu * M) if nesterov else M), RuleMemory(M, memory.square)

    free = optax.chain(
        optax.add_decayed_weights(weight_decay),
        _trace(momentum, dampening, nesterov),
        optax.scale_by_learning_rate(learning_rate),
    )
    marks = Marks(orthonormal)
    return _assembled(marks, on_manifold(marks, rule, learning_rate), free)


def adam(
    learning_rate: Rate,
    orthonormal: Any,
    *,
    b1: Scalar = 0.9,  # β₁
    b2: Scalar = 0.999,  # β₂
    eps: Scalar = 1e-8,  # ε
    eps_root: Scalar = EPS_ROOT,
    weight_decay: Scalar = 0.0,
    second_moment: str = "entries",
) -> optax.GradientTransformationExtraArgs:
    """Adam for all parameters of a model, with decoupled weight decay (AdamW) for the free ones.

    On marked parameters the step of Adam is projected onto the tangent space, and multiplied by
    s/√n, the root mean square of the entries of an n×k matrix with columns of length s.  So the
    learning rate is relative: a step turns the matrix by about so many radians, whatever its shape
    and scale.  Free parameters get the rule of `optax.adamw`.

    Parameters
    ----------
    learning_rate, orthonormal
        As for `stiefel.jax.sgd`.
    b1, b2, eps
        β₁, β₂ and ε of Adam.
    eps_root
        Added under the square root, so that derivatives through an update are finite where a
        gradient is zero.
    weight_decay
        For free parameters; the norm of orthonormal ones is fixed.
    second_moment
        Whether the mean square of the gradient is kept for each entry of an orthonormal parameter,
        ``"entries"``, or as one mean over ``"rows"``, ``"columns"`` or the ``"matrix"`` in its
        tall form.  Only the last one gives steps that do not depend on the basis.

    Returns
    -------
    optax.GradientTransformationExtraArgs
        See `stiefel.jax.sgd`.

    Raises
    ------
    ValueError, TypeError
        If ``second_moment`` is unknown; and in ``init``, see `stiefel.jax.sgd`.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, optax, stiefel.jax
    >>> A = jnp.diag(jnp.arange(5.0))
    >>> loss = lambda X: jnp.trace(X.T @ A @ X)
    >>> X = stiefel.jax.nearest(jax.random.normal(jax.random.key(0), (5, 2)), True)
    >>> optimiser = stiefel.jax.adam(optax.cosine_decay_schedule(0.2, 200), True)
    >>> state = optimiser.init(X)
    >>> for _ in range(200):
    ...     updates, state = optimiser.update(jax.grad(loss)(X), state, X)
    ...     X = optax.apply_updates(X, updates)
    >>> round(float(loss(X)), 2)
    1.0
    """
    if second_moment not in formulas.MOMENTS:
        raise ValueError(f"second_moment={second_moment!r} is none of {formulas.MOMENTS}")

    def rule(at: Place, G: Array, memory: RuleMemory, t: Array) -> tuple[Array, RuleMemory]:
        beta1, beta2 = (as_number(b, G) for b in (b1, b2))
        g = at.tangent(G)
        M = at.tangent(beta1 * memory.momentum + (1 - beta1) * g)
        v = beta2 * memory.square + (1 - beta2) * formulas.second_moment(g, second_moment)
        t = t.astype(v.dtype)
        root = jnp.sqrt(v / (1 - beta2**t) + as_number(eps_root, G)) + as_number(eps, G)
        D = M / ((1 - beta1**t) * root) * (at.scale / at.X.shape[-2] ** 0.5)
        return (D if second_moment == "matrix" else at.tangent(D)), RuleMemory(M, v)

    free = optax.adamw(
        learning_rate, b1=b1, b2=b2, eps=eps, eps_root=eps_root, weight_decay=weight_decay
    )
    marks = Marks(orthonormal)
    return _assembled(marks, on_manifold(marks, rule, learning_rate, second_moment), free)


def muon(
    learning_rate: Rate,
    orthonormal: Any,
    *,
    momentum: Scalar = 0.95,  # μ
    nesterov: bool = True,
    free_lr_factor: Scalar = 1.0,
    b1: Scalar = 0.9,
    b2: Scalar = 0.95,
    eps: Scalar = 1e-8,
    eps_root: Scalar = EPS_ROOT,
    weight_decay: Scalar = 0.0,
) -> optax.GradientTransformationExtraArgs:
    """Steepest descent in the spectral norm, with momentum; AdamW for the free parameters.

    On marked parameters each step turns every direction by at most about ``learning_rate``
    radians, whatever the size of the gradient, the shape and the scale.  The steepest direction
    comes from matrix products alone: exactly for square matrices, to a factor for tall ones.

    Parameters
    ----------
    learning_rate, orthonormal
        As for `stiefel.jax.sgd`; the learning rate is the angle of a step.
    momentum, nesterov
        μ, and whether to look ahead along the momentum.
    free_lr_factor
        Free parameters get `optax.adamw` with ``free_lr_factor`` times the learning rate, so that
        a schedule moves both.
    b1, b2, eps, eps_root, weight_decay
        Of that AdamW.

    Returns
    -------
    optax.GradientTransformationExtraArgs
        See `stiefel.jax.sgd`.

    Raises
    ------
    ValueError, TypeError
        In ``init``, see `stiefel.jax.sgd`.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, optax, stiefel.jax
    >>> X = jnp.eye(4)
    >>> optimiser = stiefel.jax.muon(0.1, True)
    >>> grads = jax.random.normal(jax.random.key(0), (4, 4))
    >>> updates, state = optimiser.update(grads, optimiser.init(X), X)
    >>> bool(jnp.linalg.norm(updates, 2) < 0.102)
    True
    """

    def rule(at: Place, G: Array, memory: RuleMemory, t: Array) -> tuple[Array, RuleMemory]:
        mu = as_number(momentum, G)
        M = at.tangent(mu * memory.momentum + G)
        return _steepest(at, G + mu * M if nesterov else M), RuleMemory(M, memory.square)

    free = optax.adamw(
        _scaled(learning_rate, free_lr_factor),
        b1=b1,
        b2=b2,
        eps=eps,
        eps_root=eps_root,
        weight_decay=weight_decay,
    )
    marks = Marks(orthonormal)
    return _assembled(marks, on_manifold(marks, rule, learning_rate), free)


def _scaled(rate: Rate, factor: Scalar) -> Rate:
    return (lambda count: factor * rate(count)) if callable(rate) else factor * rate


def _steepest(at: Place, M: Array) -> Array:
    """s times `formulas.muon_direction`, in which the size of M is a constant: it has no effect.

    Its derivative with respect to the size is zero, and would be computed as infinity times zero
    for a small M.  For M = 0 the direction and its derivative are zero.
    """
    size = jax.lax.stop_gradient(jnp.max(jnp.abs(M), axis=(-2, -1), keepdims=True))
    n, k = M.shape[-2:]
    anything = jnp.cos(jnp.arange(1.0, n * k + 1, dtype=size.dtype)).reshape(n, k)
    unit = M / jnp.maximum(size, finfo(M.dtype).tiny)
    M = jnp.where(size > 0, unit, anything.astype(M.dtype))
    A = formulas.muon_direction(at.X, M, at.one, at.scale)
    return jnp.where(size > 0, at.scale * A, 0)


def _kept(dampening: Scalar, t: Array, like: Array) -> Scalar:
    """1 − δ, but 1 at the first step, where there is nothing to dampen; as PyTorch's SGD."""
    if isinstance(dampening, int | float) and dampening == 0:
        return 1.0
    return 1 - jnp.where(t > 1, as_number(dampening, like), 0).astype(like.real.dtype)


class TraceState(NamedTuple):
    """The number of steps, and the momentum."""

    count: Array
    momentum: Any


def _trace(momentum: Scalar, dampening: Scalar, nesterov: bool) -> optax.GradientTransformation:
    """The momentum of free parameters, M' = μM + (1−δ)g; `optax.trace` has no dampening."""

    def init(params: Any) -> TraceState:
        return TraceState(jnp.zeros([], jnp.int32), jax.tree.map(jnp.zeros_like, params))

    def update(grads: Any, state: TraceState, params: Any = None) -> tuple[Any, TraceState]:
        t = optax.safe_increment(state.count)
        M = jax.tree.map(
            lambda m, g: as_number(momentum, g) * m + _kept(dampening, t, g) * g,
            state.momentum,
            grads,
        )
        ahead = jax.tree.map(lambda m, g: g + as_number(momentum, g) * m, M, grads)
        return (ahead if nesterov else M), TraceState(t, M)

    return optax.GradientTransformation(init, update)


def _assembled(
    marks: Marks,
    orthonormal: optax.GradientTransformation,
    free: optax.GradientTransformation,
) -> optax.GradientTransformationExtraArgs:
    """One transformation for the marked parameters and one for the others, on masters."""
    parts = {"orthonormal": orthonormal, "free": free}
    inner = with_masters(optax.partition(parts, marks.labels))

    def init(params: Any) -> Any:
        marks.check(params)
        return inner.init(params)

    def update(grads: Any, state: Any, params: Any = None, **extra: Any) -> tuple[Any, Any]:
        if params is None:
            raise ValueError(
                "orthonormal parameters move from where they are: call "
                "update(grads, state, params), not update(grads, state)"
            )
        # jax.grad gives the conjugate of the direction of steepest ascent.
        return inner.update(jax.tree.map(jnp.conj, grads), state, params, **extra)

    return optax.GradientTransformationExtraArgs(init, update)
