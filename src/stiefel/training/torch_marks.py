"""Marks: which parameters of a model are orthonormal, as which matrices, and at which scale.

A mark has to outlive everything that happens to a model.  A plain attribute of a tensor is lost by
`copy.deepcopy`, so a marked parameter is an `OrthonormalParameter`, which copies and pickles its
mark; its class is changed in place, so that the module keeps the very same object, as it does in
``.to()`` and ``.double()``.  Where PyTorch puts another tensor in the place of a parameter
(``load_state_dict(assign=True)``, conversion by swapping), only the module remembers: a mark that
was set through its module is put back from there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from stiefel.types import Manifold

VIEWS = ("matrix", "stack", "kernel")
ON_MODULE = "_stiefel_orthonormal"


@dataclass(frozen=True)
class Mark:
    """A parameter is s times matrices with orthonormal columns (rows, where they are wide).

    ``view`` says which matrices: the parameter itself ("matrix"), its last two axes ("stack"), or
    a convolution kernel (out, in·h·w) ("kernel").  Each is cut into ``blocks`` of rows and columns,
    every block a matrix of its own.
    """

    view: str = "matrix"
    blocks: tuple[int, int] = (1, 1)
    scale: float = 1.0
    manifold: Manifold | None = None  # another one than Stiefel, for `Accelerated` only

    def shape(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Rows and columns of each block, before a wide one is turned."""
        rows, columns = (shape[0], math.prod(shape[1:])) if self.view == "kernel" else shape[-2:]
        return rows // self.blocks[0], columns // self.blocks[1]

    def matrices(self, T: Tensor, shape: tuple[int, ...]) -> Tensor:
        """A stack (b, n, k) with n ≥ k from a stack of parameters of one shape."""
        (r, c), (h, w) = self.blocks, self.shape(shape)
        if self.view == "kernel":
            T = T.reshape(T.shape[0], r * h, c * w)
        if r * c > 1:
            T = T.reshape(-1, r, h, c, w).transpose(-3, -2)
        if T.ndim != 3:
            T = T.reshape(-1, h, w)
        return T.mH if h < w else T

    def parameters(self, X: Tensor, shape: tuple[int, ...]) -> Tensor:
        """The inverse of `matrices`."""
        (r, c), (h, w) = self.blocks, self.shape(shape)
        T = X.mH if h < w else X
        if c > 1:
            T = T.reshape(-1, r, c, h, w).transpose(-3, -2)
        return T if T.shape[1:] == shape else T.reshape(-1, *shape)

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse a shape that this view does not fit."""
        self._check_axes(shape)
        rows, columns = (shape[0], math.prod(shape[1:])) if self.view == "kernel" else shape[-2:]
        if rows * columns == 0:
            raise ValueError(f"a parameter of shape {shape} is empty and cannot be orthonormal")
        if rows % self.blocks[0] or columns % self.blocks[1]:
            raise ValueError(
                f"a matrix of {rows} rows and {columns} columns (parameter of shape {shape}) does "
                f"not divide into blocks={self.blocks} of equal size; give numbers that divide "
                "both, such as blocks=4 for an LSTM, 3 for a GRU, or the number of heads"
            )

    def _check_axes(self, shape: tuple[int, ...]) -> None:
        least, most, hint = {
            "matrix": (2, 2, "; view='kernel' takes a convolution, view='stack' many matrices"),
            "stack": (3, math.inf, ""),
            "kernel": (3, math.inf, ""),
        }[self.view]
        if not least <= len(shape) <= most:
            wanted = "two axes" if most == 2 else "three axes or more"
            raise ValueError(
                f"a parameter of shape {shape} cannot be orthonormal as view={self.view!r}, which "
                f"expects {wanted}{hint if len(shape) > 2 else ''}"
            )


class OrthonormalParameter(nn.Parameter):
    """A parameter with a mark that copies and pickles carry along; made by `orthonormal`."""

    stiefel_mark: Mark

    def __deepcopy__(self, memo: dict[int, Any]) -> OrthonormalParameter:
        if id(self) not in memo:
            data = self.data.clone(memory_format=torch.preserve_format)
            memo[id(self)] = set_mark(nn.Parameter(data, self.requires_grad), self.stiefel_mark)
        return memo[id(self)]

    def __reduce_ex__(self, proto: Any) -> Any:
        return _rebuild, (self.data, self.requires_grad, self.stiefel_mark)


def set_mark(parameter: Any, mark: Mark) -> Any:
    """Mark a parameter, which keeps its identity."""
    parameter.__class__ = OrthonormalParameter
    parameter.stiefel_mark = mark
    return parameter


def _rebuild(data: Tensor, requires_grad: bool, mark: Mark) -> Any:
    return set_mark(nn.Parameter(data, requires_grad), mark)


def mark_of(parameter: Tensor) -> Mark | None:
    """The mark of a parameter, or None if it is free."""
    return getattr(parameter, "stiefel_mark", None)


def is_orthonormal(parameter: Tensor) -> bool:
    """Whether a parameter is marked orthonormal.

    Examples
    --------
    >>> layer = torch.nn.Linear(4, 3)
    >>> is_orthonormal(orthonormal(layer, "weight")), is_orthonormal(layer.bias)
    (True, False)
    """
    return mark_of(parameter) is not None


# -- setting marks --------------------------------------------------------------------------------


def orthonormal(
    target: nn.Module | nn.Parameter,
    name: str | None = None,
    *,
    view: str = "matrix",
    blocks: int | tuple[int, int] = 1,
    scale: float = 1.0,
    init: str = "nearest",
    generator: torch.Generator | None = None,
) -> nn.Parameter:
    """Make a parameter orthonormal, in place, and mark it for the optimisers of this library.

    The columns of a tall matrix become orthonormal, the rows of a wide one: XᴴX = s²I.

    Parameters
    ----------
    target : torch.nn.Module or torch.nn.Parameter
        A module, with ``name`` the name of its parameter, or the parameter itself.  The mark lasts
        through `copy.deepcopy`, pickling, ``load_state_dict``, ``.to()`` and ``.double()`` either
        way; through ``load_state_dict(assign=True)`` only if it is set through the module.
    name : str, optional
        The name of the parameter in the module: ``"weight"``, ``"weight_hh_l0"``.
    view : {"matrix", "stack", "kernel"}
        What is orthonormal: the parameter itself, which has two axes; each matrix of a stack
        (..., n, k); or a convolution kernel read as a matrix (out, in·h·w).
    blocks : int or (int, int)
        Cut the rows (and columns) into this many equal blocks, each a matrix of its own: 4 for the
        gates of an LSTM, 3 for those of a GRU, the number of heads for a projection of attention.
    scale : float
        s.
    init : {"nearest", "random", "keep"}
        Start at the nearest such point, at a random one (uniformly distributed), or keep the
        entries, which must then be orthonormal already.
    generator : torch.Generator, optional
        For ``init="random"``.

    Returns
    -------
    torch.nn.Parameter
        The same parameter.

    Raises
    ------
    TypeError
        If the target is not a floating-point parameter.
    ValueError
        If the shape does not fit the view, or no nearest point exists.

    Examples
    --------
    >>> cell = torch.nn.LSTM(8, 16)
    >>> W = orthonormal(cell, "weight_hh_l0", blocks=4)
    >>> forget = W.detach()[16:32]
    >>> bool(torch.allclose(forget.mT @ forget, torch.eye(16), atol=1e-5))
    True
    """
    parameter = _parameter(target, name)
    if view not in VIEWS:
        raise ValueError(f"view={view!r} is none of {VIEWS}")
    if not 0 < scale < math.inf:
        raise ValueError(f"scale={scale!r} is not a positive number")
    mark = Mark(view, (blocks, 1) if isinstance(blocks, int) else blocks, float(scale))
    if min(mark.blocks) < 1:
        raise ValueError(f"blocks={blocks!r} is not a positive number of blocks")
    mark.check(tuple(parameter.shape))
    put_on_manifold(parameter, mark, init, generator)
    _remember(target, name, parameter, mark)
    return parameter


def _parameter(target: Any, name: str | None) -> Any:
    if isinstance(target, nn.Module):
        names = [n for n, _ in target.named_parameters(recurse=False)]
        if name not in names:
            raise TypeError(
                f"{type(target).__name__} has no parameter {name!r} of its own; it has {names}"
            )
        target = getattr(target, name)
    if not isinstance(target, nn.Parameter):
        raise TypeError(
            f"expected a module and a name, or a parameter; got {type(target).__name__}"
        )
    if not (target.is_floating_point() or target.is_complex()):
        raise TypeError(f"a parameter of dtype {target.dtype} cannot be orthonormal")
    return target


def _remember(target: Any, name: str | None, parameter: Any, mark: Mark) -> None:
    set_mark(parameter, mark)
    if isinstance(target, nn.Module) and name is not None:
        if ON_MODULE not in target.__dict__:
            target.__dict__[ON_MODULE] = {}
            target.register_load_state_dict_post_hook(_after_loading)  # type: ignore[no-untyped-call]
            target._register_state_dict_hook(_while_saving)  # type: ignore[no-untyped-call]
        target.__dict__[ON_MODULE][name] = mark


def _after_loading(module: nn.Module, incompatible: Any) -> None:
    for name, mark in module.__dict__[ON_MODULE].items():
        parameter = getattr(module, name)
        if mark_of(parameter) is None:
            set_mark(parameter, mark)


def _while_saving(module: nn.Module, state: Any, prefix: str, metadata: dict[str, Any]) -> None:
    marks = module.__dict__[ON_MODULE].items()
    metadata[ON_MODULE] = {name: (m.view, m.blocks, m.scale) for name, m in marks}


def working_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which steps are computed and masters are kept."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


@torch.no_grad()
def put_on_manifold(
    parameter: Any, mark: Mark, init: str, generator: torch.Generator | None = None
) -> None:
    """Put a parameter on its manifold; the only place where a singular value decomposition is."""
    shape = tuple(parameter.shape)
    W = parameter.detach().to(working_dtype(parameter.dtype)).unsqueeze(0)
    if init == "random":
        W = torch.randn(W.shape, dtype=W.dtype, device=W.device, generator=generator)
    elif init == "keep":
        check_on_manifold(parameter, mark, f"a parameter of shape {shape}")
        return
    elif init != "nearest":
        raise ValueError(f"init={init!r} is none of 'nearest', 'random', 'keep'")
    sentence = f"a parameter of shape {shape} has no nearest orthonormal point, because its matrix"
    if not bool(W.isfinite().all()):
        raise ValueError(f"{sentence} is not finite; pass init='random'")
    U, s, Vh = torch.linalg.svd(mark.matrices(W, shape), full_matrices=False)
    if not bool((s[..., -1:] > 10 * torch.finfo(W.dtype).eps * s[..., :1]).all()):
        raise ValueError(f"{sentence} has not full rank; pass init='random'")
    parameter.copy_(mark.parameters(mark.scale * (U @ Vh), shape)[0])


def defect(parameter: Tensor, mark: Mark) -> float:
    """The largest entry of |XᴴX/s² − I|."""
    W = parameter.detach().to(working_dtype(parameter.dtype)).unsqueeze(0)
    X = mark.matrices(W, tuple(parameter.shape)) / mark.scale
    return float((X.mH @ X - torch.eye(X.shape[-1], dtype=X.dtype, device=X.device)).abs().max())


def check_on_manifold(parameter: Tensor, mark: Mark, label: str) -> None:
    """Refuse a point from which one step would not come back to the manifold."""
    error, allowed = defect(parameter, mark), 64 * torch.finfo(parameter.dtype).eps
    if not error <= max(allowed, 1e-3):
        raise ValueError(
            f"{label} is not orthonormal: the largest entry of XᴴX/s² − I is {error:.1e} (allowed "
            f"{max(allowed, 1e-3):.0e}); call stiefel.torch.orthonormal on it"
        )


# -- reading them ---------------------------------------------------------------------------------


def parameters_of(model: nn.Module) -> Iterator[nn.Parameter]:
    """The parameters of a model, with marks that only their modules remember put back on them."""
    for module in model.modules():
        for name, mark in module.__dict__.get(ON_MODULE, {}).items():
            parameter = getattr(module, name, None)
            if isinstance(parameter, nn.Parameter) and mark_of(parameter) is None:
                refuse_sharded(parameter)
                set_mark(parameter, mark)
    yield from model.parameters()


def refuse_sharded(parameter: Any) -> None:
    """A process that holds some rows of a matrix cannot step on its manifold."""
    if hasattr(parameter, "device_mesh"):
        raise TypeError(
            f"a parameter of shape {tuple(parameter.shape)} is sharded; pass "
            "ignored_params={the orthonormal parameters} to fully_shard, give those to this "
            "optimiser and the sharded ones to one of torch.optim"
        )


def copy_marks(source: nn.Module | Mapping[str, Any], target: nn.Module) -> None:
    """Set the marks of one model, or of a ``state_dict``, on another model's parameters.

    For a model that is built afresh by code that knows nothing of marks, after its weights were
    loaded.  A ``state_dict``, also one that was saved to a file, knows the marks that were set
    through modules.

    Parameters
    ----------
    source : torch.nn.Module or dict
        Where the marks are read.
    target : torch.nn.Module
        Its parameters of the same names are marked; they must be orthonormal.

    Raises
    ------
    ValueError
        If a parameter of the target is missing or is not orthonormal.

    Examples
    --------
    >>> trained, fresh = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    >>> W = orthonormal(trained, "weight")
    >>> result = fresh.load_state_dict(trained.state_dict())
    >>> copy_marks(trained.state_dict(), fresh)
    >>> is_orthonormal(fresh.weight)
    True
    """
    found = dict(target.named_parameters())
    for name, mark in _named_marks(source):
        if name not in found:
            raise ValueError(f"the target has no parameter {name!r}; it has {sorted(found)}")
        check_on_manifold(found[name], mark, name)
        path, _, last = name.rpartition(".")
        _remember(target.get_submodule(path), last, found[name], mark)


def _named_marks(source: Any) -> list[tuple[str, Mark]]:
    if isinstance(source, nn.Module):
        list(parameters_of(source))
        named = [(name, mark_of(p)) for name, p in source.named_parameters()]
        return [(name, mark) for name, mark in named if mark is not None]
    return [
        (f"{prefix}.{name}" if prefix else name, Mark(view, tuple(blocks), scale))
        for prefix, data in getattr(source, "_metadata", {}).items()
        for name, (view, blocks, scale) in data.get(ON_MODULE, {}).items()
    ]
