"""Kernels for PyTorch tensors, on whatever device they live."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import array_api_compat.torch as xp
import numpy as np
import torch

from stiefel.types import Array

from .base import Kernels


class TorchKernels(Kernels):
    """The array API's wrappers cost more than small operations do: PyTorch is called directly."""

    def __init__(self) -> None:
        super().__init__(xp)
        self._eyes: dict[Any, Array] = {}

    def run(self, formula: Callable[..., Any], *arguments: Any) -> Any:
        with torch.no_grad():
            return formula(self, *arguments)

    def is_complex(self, A: Array) -> bool:
        return bool(A.is_complex())

    def conj(self, A: Array) -> Array:
        return A.conj()

    def real(self, A: Array) -> Array:
        return A.real if A.is_complex() else A

    def adjoint(self, A: Array) -> Array:
        return A.mH

    def eye(self, like: Array) -> Array:
        key = (like.shape[-1], like.dtype, like.device)
        if key not in self._eyes:
            self._eyes[key] = torch.eye(key[0], dtype=key[1], device=key[2])
        return self._eyes[key]

    def solve(self, A: Array, B: Array) -> Array:
        # Not `solve`, which raises where rounding has made A singular: here a trial that is not
        # finite is shortened, as with every other library.
        return torch.linalg.solve_ex(A, B).result

    def contiguous(self, A: Array) -> Array:
        return A.contiguous()

    def assemble(self, rows: Any) -> Array:
        return torch.cat([torch.cat(row, -1) if len(row) > 1 else row[0] for row in rows], -2)

    def squared_frobenius(self, A: Array) -> Array:
        return self._dot(A, A)

    def trace(self, A: Array) -> Array:
        return self.real(torch.diagonal(A, dim1=-2, dim2=-1)).sum()

    def _dot(self, A: Array, B: Array) -> Array:
        return torch.vdot(A.reshape(-1), B.reshape(-1)).real

    def combine(self, X: Array, P: Array, U: Array, Q: Array) -> Array:
        if X.ndim == 2:
            return (X @ P).addmm_(U, Q)
        return X @ P + U @ Q

    def subtract(self, G: Array, X: Array, S: Array) -> Array:
        return torch.addmm(G, X, S, alpha=-1) if X.ndim == 2 else G - X @ S

    def to_numpy(self, A: Array) -> np.ndarray[Any, Any]:
        return A.detach().cpu().resolve_conj().resolve_neg().numpy()

    def numbers(self, scalars: Sequence[Array]) -> list[float]:
        return torch.stack(list(scalars)).tolist()  # type: ignore[no-any-return]

    def expm(self, A: Array) -> Array:
        return torch.linalg.matrix_exp(A)

    def factorise(self, M: Array) -> tuple[Any, Callable[[Any, Array], Array]]:
        L, info = torch.linalg.cholesky_ex(M)
        if int(info) != 0:
            raise np.linalg.LinAlgError("M is not positive definite")
        return L, lambda L, G: torch.cholesky_solve(G, L)
