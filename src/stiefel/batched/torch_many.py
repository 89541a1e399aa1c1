"""Kernels of a batch for PyTorch tensors, on whatever device they live."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from stiefel.backends.torch import TorchKernels
from stiefel.types import Array

from .kernels import PerProblem


class TorchMany(PerProblem, TorchKernels):
    number = torch.float64

    def run(self, formula: Callable[..., Any], *arguments: Any) -> Any:
        return formula(self, *arguments)

    def choose(self, mask: Array, a: Any, b: Any) -> Any:
        return a if bool(mask.all()) else super().choose(mask, a, b)

    def shown(self, a: Array) -> Array:
        """A copy, which the user may change, as in `minimize`; not where memory is dear."""
        return a.clone() if a.device.type == "cpu" else a

    def numbers(self, a: Array) -> Array:
        return a.to(self.number)

    def spread_out(self, a: Array, like: Array) -> Array:
        real = like.real.dtype if like.is_complex() else like.dtype
        return a.to(real).reshape(tuple(a.shape) + (1,) * (like.ndim - a.ndim))

    def _exact_power(self, exponent: Array) -> Array:
        return torch.ldexp(torch.ones_like(exponent), exponent.to(torch.int32))

    def frexp(self, a: Array) -> tuple[Array, Array]:
        mantissa, exponent = torch.frexp(a)
        return mantissa, torch.ldexp(torch.ones_like(a), exponent)

    def last_bit(self, mantissa: Array, bits: int) -> Array:
        digits = (mantissa.abs() * 2.0**bits).to(torch.int64)
        return (digits & -digits).to(mantissa.dtype) * 2.0**-bits
