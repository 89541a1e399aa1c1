"""Derivatives of a minimiser by the implicit function theorem, for PyTorch.

The gradient g = ∇_X f(x, θ) at the minimiser is computed with its graph, so that autograd knows
how it depends on θ, through whatever the function closes over.  `_Attach` returns x, and says
that x depends on g by ẋ = −Π A⁻¹ ġ with the symmetric operator A of `jax_implicit`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from stiefel.types import Array, Leaves, Manifolds

from .border import border_of
from .implicit import MESSAGE, Operator, is_definite, solved_by_gradients
from .shared import Result, Tree
from .shared import minimize as minimize_once


def minimize(
    fun: Callable[..., Any],
    x0: Any,
    *,
    args: tuple[Any, ...] = (),
    manifold: Manifolds | None = None,
    rtol: float | None = None,
    gtol: float = 0.0,
    ftol: float = 0.0,
    maxiter: int = 100_000,
    maxfun: int | None = None,
    maxtime: float | None = None,
) -> Result:
    """Minimise a function of orthonormal tensors, and keep the derivatives of the solution.

    Parameters
    ----------
    fun
        ``fun(X, *args)``, a real scalar computed by PyTorch.
    x0
        The start: a tensor (n, k), a stack, or a nested dict, list or tuple of tensors.
        Derivatives by x0 are zero.
    args
        Further arguments of ``fun``.  Derivatives are taken by every tensor that requires them
        and on which ``fun`` depends, whether it is an argument or closed over.
    manifold, rtol, gtol, ftol, maxiter, maxfun, maxtime
        As for `stiefel.minimize`.

    Returns
    -------
    Result
        As of `stiefel.minimize`; ``x`` and ``fun`` are part of PyTorch's graph.

    Raises
    ------
    TypeError, ValueError
        As `stiefel.minimize`.

    Notes
    -----
    Reverse mode (``backward``) and forward mode (``torch.autograd.forward_ad``) solve one linear
    system with the projected Hessian by conjugate gradients.  Second derivatives of the solution
    are not offered: a backward pass through a backward pass raises an error.  At a point that is
    no strict minimum, up to directions along which f is constant for all arguments, derivatives
    are NaN, with a warning.

    Examples
    --------
    >>> import torch, stiefel, stiefel.torch
    >>> d = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    >>> x0 = stiefel.random_point(3, 1, seed=0, like=torch.zeros(1, dtype=torch.float64))
    >>> result = stiefel.torch.minimize(lambda x: (x[:, 0] ** 2 * d).sum(), x0, rtol=1e-9)
    >>> result.fun.backward()
    >>> d.grad.round(decimals=6).tolist()
    [1.0, 0.0, 0.0]
    """
    result = minimize_once(
        lambda X: fun(X, *args),
        x0,
        manifold=manifold,
        rtol=rtol,
        gtol=gtol,
        ftol=ftol,
        maxiter=maxiter,
        maxfun=maxfun,
        maxtime=maxtime,
    )
    tree = Tree(x0)
    found = (result.x,) if tree.is_leaf else tree.flatten(result.x)
    tracked = tuple(leaf.detach().requires_grad_(True) for leaf in found)
    with torch.enable_grad():
        f = fun(tracked[0] if tree.is_leaf else tree.unflatten(tracked), *args)
        g = torch.autograd.grad(f, tracked, create_graph=True, allow_unused=True)
    G = tuple(torch.zeros_like(x) if u is None else u for u, x in zip(g, tracked, strict=True))
    batch = tuple(leaf.detach()[None] for leaf in tracked)
    border = border_of(batch[0] if tree.is_leaf else tree.unflatten(batch), manifold)
    operator = Operator(border, tuple(x.detach() for x in tracked), _Products(tracked, G))
    x = _Attach.apply(operator, bool(result.success), *G)  # type: ignore[no-untyped-call]
    result.x = x[0] if tree.is_leaf else tree.unflatten(x)
    with torch.enable_grad():
        result.fun = fun(result.x, *args)
    return result


class _Products:
    """The gradient at x, and products of the Hessian, from the graph of the gradient."""

    def __init__(self, x: Leaves, G: Leaves) -> None:
        self._x, self._G = x, G
        self.gradient = tuple(g.detach() for g in G)

    def hessian(self, T: Leaves) -> Leaves:
        """∇²f[T]: the gradient of Re⟨∇f, T⟩, as the Hessian is symmetric."""
        moving = [(g, t) for g, t in zip(self._G, T, strict=True) if g.requires_grad]
        zeros = tuple(map(torch.zeros_like, self._x))
        if not moving:
            return zeros
        G, V = zip(*moving, strict=True)
        found = torch.autograd.grad(G, self._x, V, retain_graph=True, allow_unused=True)
        return tuple(z if h is None else h for h, z in zip(found, zeros, strict=True))


class _Attach(torch.autograd.Function):
    """The minimiser, as a function of the gradient at it."""

    @staticmethod
    def forward(operator: Operator, success: bool, *G: Array) -> Leaves:
        return tuple(x.clone() for x in operator.x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.operator, ctx.success = inputs[0], inputs[1]

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *v: Array) -> Any:
        """−A⁻¹Πᴴ v, which autograd hands on to whatever the gradient depends on."""
        given = tuple(
            torch.zeros_like(x) if w is None else w for w, x in zip(v, ctx.operator.x, strict=True)
        )
        return None, None, *_solved(ctx, given)

    @staticmethod
    def jvp(ctx: Any, *tangents: Array) -> Leaves:
        given = tuple(
            torch.zeros_like(x) if t is None else t
            for t, x in zip(tangents[2:], ctx.operator.x, strict=True)
        )
        return _solved(ctx, given)


def _solved(ctx: Any, given: Leaves) -> Leaves:
    """−Π A⁻¹ Πᴴ of tensors of the shape of x; NaN, with a warning, where there is no inverse."""
    operator: Operator = ctx.operator
    given = tuple(v.detach() for v in given)
    definite, curvature = is_definite(operator)
    z, good = solved_by_gradients(operator.with_normals(curvature), given)
    if not (ctx.success and definite and good):
        warnings.warn(MESSAGE, RuntimeWarning, stacklevel=2)
        return tuple(torch.full_like(x, torch.nan) for x in operator.x)
    return tuple(-t for t in operator.tangent(z))
