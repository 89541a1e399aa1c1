"""Which parameters of a JAX model are orthonormal, and how an array is read as matrices.

An array with more than two axes can be read as matrices in several ways.  A mark says which: some
axes together are the rows, some the columns, and every index of the remaining axes is a matrix of
its own.  The columns of a tall matrix are orthonormal, or the rows of a wide one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from stiefel.geometry import Euclidean, Sphere, Stiefel
from stiefel.types import Array

from .formulas import adjoint
from .jax_masters import finfo, in_working_precision
from .jax_trees import Choice, leaves_with_paths, path_name

Axes = int | tuple[int, ...]

LARGEST_ENTRY = 0.05  # of XᴴX/s² − I at the start: more than rounding to bfloat16 leaves


@dataclass(frozen=True)
class Orthonormal:
    """A parameter whose matrices X satisfy XᴴX = s²I, or XXᴴ = s²I where they are wide.

    Parameters
    ----------
    scale
        The length s of each column (row).
    rows, columns
        The axes that are the rows and the columns of a matrix.  Several axes are read in the order
        given.  Each index of the axes that are not named is a matrix of its own.  With no columns,
        ``columns=()``, the parameter is a unit vector times s.
    blocks
        Cut the rows, or with two numbers the rows and the columns, into this many equal blocks,
        each a matrix of its own: 4 for the gates of an LSTM in ``(4 * hidden, inputs)``, and
        ``(1, heads)`` for heads side by side in ``(features, heads * size)``.

    Raises
    ------
    ValueError
        If the scale is not positive, or the blocks are not positive numbers.

    Examples
    --------
    Kernels of convolutions, ``(height, width, inputs, outputs)`` in flax and
    ``(outputs, inputs, height, width)`` in Equinox, and an attention kernel
    ``(features, heads, size)`` with one orthonormal matrix for each head:

    >>> from stiefel.jax import Orthonormal
    >>> flax_kernel = Orthonormal(rows=(0, 1, 2), columns=3)
    >>> equinox_kernel = Orthonormal(rows=0, columns=(1, 2, 3))
    >>> heads = Orthonormal(rows=0, columns=2)
    """

    scale: float = 1.0
    rows: Axes = -2
    columns: Axes = -1
    blocks: int | tuple[int, int] = 1

    @property
    def grid(self) -> tuple[int, int]:
        """The number of blocks in the rows and in the columns."""
        return (self.blocks, 1) if isinstance(self.blocks, int) else self.blocks

    def __post_init__(self) -> None:
        if not (self.scale > 0 and math.isfinite(self.scale)):
            raise ValueError(f"scale is {self.scale}; expected a positive number")
        if min(self.grid) < 1:
            raise ValueError(f"blocks is {self.blocks}; expected positive numbers")


class View(NamedTuple):
    """How one parameter is read as a stack (m, n, k) of tall matrices."""

    order: tuple[int, ...]  # the axes: stack, rows, columns
    axes: tuple[int, ...]  # the lengths of these axes
    grid: tuple[int, int]  # the blocks in the rows and in the columns
    matrix: tuple[int, int]  # rows and columns of one matrix, tall or wide
    scale: float

    @property
    def size(self) -> int:
        """m: the number of matrices."""
        return math.prod(self.axes) // math.prod(self.matrix)

    @property
    def is_wide(self) -> bool:
        return self.matrix[0] < self.matrix[1]

    def tall(self, x: Array) -> Array:
        """The stack (m, n, k)."""
        (r, c), (h, w) = self.grid, self.matrix
        grid = jnp.transpose(x, self.order).reshape(-1, r, h, c, w)
        stack = jnp.swapaxes(grid, 2, 3).reshape(-1, h, w)
        return adjoint(stack) if self.is_wide else stack

    def back(self, stack: Array) -> Array:
        """The array whose stack is given."""
        (r, c), (h, w) = self.grid, self.matrix
        stack = adjoint(stack) if self.is_wide else stack
        grid = jnp.swapaxes(stack.reshape(-1, r, c, h, w), 2, 3)
        inverse = sorted(range(len(self.order)), key=self.order.__getitem__)
        return jnp.transpose(grid.reshape(self.axes), inverse)


def as_mark(given: Any, x: Array, name: str) -> Orthonormal | None:
    """What was given for one parameter: a mark, or None for a free one."""
    if given is None or given is False or isinstance(given, Euclidean):
        return None
    if given is True and x.ndim != 2:
        raise ValueError(
            f"the parameter {name!r} of shape {x.shape} is marked True, which takes a matrix; pass "
            "stiefel.jax.Orthonormal() for a stack (..., n, k) of matrices, or with rows= and "
            "columns= to say which axes of a kernel are the rows and the columns"
        )
    if given is True or (type(given) is Stiefel and given.B is None):
        return Orthonormal()
    if type(given) is Sphere:
        return Orthonormal(rows=-1, columns=())
    if isinstance(given, Orthonormal):
        return given
    raise TypeError(
        f"{given!r} was given for the parameter {name!r}; expected True, False, None, "
        "stiefel.jax.Orthonormal(...), or one of the manifolds stiefel.Stiefel(), stiefel.Sphere() "
        "and stiefel.Euclidean(); stiefel.jax.accelerated takes the others"
    )


def view_of(mark: Orthonormal, x: Array, name: str) -> View:
    """The view of a parameter; an error where it has none."""
    rows, columns = (_axes(a, x, name) for a in (mark.rows, mark.columns))
    if not rows or set(rows) & set(columns):
        raise ValueError(
            f"the rows {mark.rows} and columns {mark.columns} of the parameter {name!r} of shape "
            f"{x.shape} must be different axes, and the rows at least one"
        )
    stack = tuple(i for i in range(x.ndim) if i not in rows + columns)
    n, k = (math.prod(x.shape[i] for i in axes) for axes in (rows, columns))
    if n % mark.grid[0] or k % mark.grid[1] or not x.size:
        raise ValueError(
            f"the parameter {name!r} of shape {x.shape} has {n} rows and {k} columns, which do not "
            f"divide into blocks={mark.blocks} of the same shape with at least one entry"
        )
    order, matrix = stack + rows + columns, (n // mark.grid[0], k // mark.grid[1])
    return View(order, tuple(x.shape[i] for i in order), mark.grid, matrix, mark.scale)


def _axes(axes: Axes, x: Array, name: str) -> tuple[int, ...]:
    listed = (axes,) if isinstance(axes, int) else tuple(axes)
    if not all(-x.ndim <= i < x.ndim for i in listed):
        raise ValueError(
            f"the parameter {name!r} has shape {x.shape}, and no axis {max(listed, key=abs)}; "
            "expected a matrix, a stack of matrices, or stiefel.jax.Orthonormal(rows=..., "
            "columns=...) with axes that it has"
        )
    return tuple(i % x.ndim for i in listed)


class Marks:
    """The marks of a tree's parameters, from all that ``orthonormal=`` may be."""

    def __init__(self, given: Any) -> None:
        self._choice = Choice(given)

    def mark(self, path: Any, x: Array) -> Orthonormal | None:
        return as_mark(self._choice(path, x), x, path_name(path))

    def labels(self, tree: Any) -> Any:
        """ "orthonormal" or "free" for each parameter, as `optax.partition` wants it."""

        def label(path: Any, x: Array) -> str:
            return "free" if self.mark(path, x) is None else "orthonormal"

        return jax.tree_util.tree_map_with_path(label, tree)

    def views(self, tree: Any) -> list[View]:
        """The views of a tree whose parameters are all orthonormal, leaf by leaf."""
        result = []
        for path, x in leaves_with_paths(tree):
            mark = self.mark(path, x)
            assert mark is not None
            result.append(view_of(mark, x, path_name(path)))
        return result

    def check(self, tree: Any) -> None:
        """Refuse marks without parameters, and parameters that are not what they are marked as."""
        self._choice.check_paths(tree)
        listed = leaves_with_paths(tree)
        marked = [(path_name(path), x, m) for path, x in listed if (m := self.mark(path, x))]
        if listed and not marked and self._choice.named:
            raise ValueError(
                f"orthonormal= marks none of the parameters "
                f"{', '.join(path_name(path) for path, _ in listed[:8])}; expected a mark for at "
                "least one, or orthonormal=False for none"
            )
        for name, x, mark in marked:
            _check_parameter(name, x, view_of(mark, x, name))


def _check_parameter(name: str, x: Array, view: View) -> None:
    if not jnp.issubdtype(x.dtype, jnp.inexact):
        raise TypeError(f"the parameter {name!r} is {x.dtype}; expected a floating-point array")
    if isinstance(x, jax.core.Tracer | jax.ShapeDtypeStruct):
        return  # it has no entries yet
    with jax.ensure_compile_time_eval():
        found = float(defect(x, view))
    if not found <= LARGEST_ENTRY:
        raise ValueError(
            f"the parameter {name!r} of shape {x.shape} is not orthonormal: the largest entry of "
            f"XᴴX/s² − I is {found:.1e} (allowed {LARGEST_ENTRY}); start from "
            "stiefel.jax.nearest(params, orthonormal)"
        )


def defect(x: Array, view: View) -> Array:
    """The largest entry of |XᴴX/s² − I|."""
    X = view.tall(in_working_precision(x)) / view.scale
    return jnp.max(jnp.abs(adjoint(X) @ X - jnp.eye(X.shape[-1], dtype=X.dtype)))


def nearest(params: Any, orthonormal: Any) -> Any:
    """The parameters with each marked one replaced by the orthonormal one nearest to it.

    Parameters
    ----------
    params
        A tree of arrays.
    orthonormal
        The marks, as for `stiefel.jax.sgd`.

    Returns
    -------
    tree
        With the structure and the types of ``params``; free parameters are the same arrays.

    Raises
    ------
    ValueError, TypeError
        If a mark belongs to no parameter, or a parameter cannot be read as its mark says.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, stiefel.jax
    >>> params = {"rotation": jax.random.normal(jax.random.key(0), (4, 4)), "bias": jnp.zeros(4)}
    >>> params = stiefel.jax.nearest(params, {"rotation": True})
    >>> R = params["rotation"]
    >>> bool(jnp.allclose(R.T @ R, jnp.eye(4), atol=1e-5))
    True
    """
    marks = Marks(orthonormal)
    marks._choice.check_paths(params)

    def place(path: Any, x: Array) -> Array:
        mark, name = marks.mark(path, x), path_name(path)
        if mark is None:
            return x
        view = view_of(mark, x, name)
        U, sigma, Vh = jnp.linalg.svd(view.tall(in_working_precision(x)), full_matrices=False)
        _check_rank(sigma, x, name)
        return view.back(view.scale * (U @ Vh)).astype(x.dtype)

    return jax.tree_util.tree_map_with_path(place, params)


def _check_rank(sigma: Array, x: Array, name: str) -> None:
    if isinstance(sigma, jax.core.Tracer):
        return
    if not bool(jnp.all(sigma[..., -1] > 10 * finfo(sigma.dtype).eps * sigma[..., 0])):
        raise ValueError(
            f"the parameter {name!r} of shape {x.shape} has no nearest orthonormal point, because "
            "a matrix has not full rank or is not finite; start from random entries"
        )
