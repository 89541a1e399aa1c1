"""A smooth convex function on Rⁿ that is not quadratic, with a planted minimiser."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import linalg

from stiefel.types import NumpyArray as Array

from ._base import Cast, Objective, real_inner


@dataclass(frozen=True, eq=False)
class LogSumExp(Objective):
    """f(x) = ρ log Σ_i exp(⟨a_i, x − c⟩/ρ) + (λ/2)‖x − c‖² on real x (n,), with Σ_i a_i = 0.

    At x = c all terms are equal, the softmax is uniform and the gradient λ(x − c) + Σ p_i a_i
    vanishes: c is the minimiser and ρ log m the minimum, exactly. Cost: one product with the rows
    A (m, n) for f, one with Aᵀ for G. f is `mu`-strongly convex and `L`-smooth.
    """

    rows: Array  # A (m, n), columns summing to zero
    center: Array  # c (n,)
    temperature: float = 1.0  # ρ: small is nearly the maximum of the linear functions
    regularization: float = 0.0  # λ

    def __post_init__(self) -> None:
        A, c = np.asarray(self.rows), np.asarray(self.center)
        if A.ndim != 2 or c.shape != A.shape[1:]:
            raise ValueError(f"rows {A.shape} and center {c.shape}; expected (m, n) and (n,)")
        if not (self.temperature > 0 and self.regularization >= 0):
            raise ValueError("temperature must be positive and regularization not negative")
        if np.abs(A.sum(axis=0)).max() > 1e-6 * np.abs(A).sum(axis=0).max():
            raise ValueError("the rows must sum to zero; pass rows - rows.mean(axis=0)")
        object.__setattr__(self, "rows", A)
        object.__setattr__(self, "center", c)

    @classmethod
    def random_instance(
        cls,
        m: int,
        n: int,
        temperature: float = 1.0,
        regularization: float = 0.0,
        rng: Any = None,
    ) -> LogSumExp:
        """Normal rows, centred, and a normal minimiser."""
        rng = np.random.default_rng(rng)
        A = rng.standard_normal((m, n))
        A -= A.mean(axis=0)
        return cls(A, rng.standard_normal(n), temperature, regularization)

    @cached_property
    def _casts(self) -> tuple[Cast, Cast]:
        return Cast(self.rows), Cast(self.center)

    def _parts(self, x: Array) -> tuple[float, Array, Array, Array]:
        """f(x), the softmax p, A, and x − c."""
        if x.dtype.kind != "f" or x.shape != self.center.shape:
            raise TypeError(f"x is {x.dtype} {x.shape}; expected real {self.center.shape}")
        A, c = (cast(x.dtype) for cast in self._casts)
        y = x - c
        z = A @ y
        z /= self.temperature
        top = z.max()  # subtracted so that exp cannot overflow
        z -= top
        p = np.exp(z, out=z)
        total = p.sum()
        p /= total
        f = self.temperature * (float(top) + float(np.log(total)))
        return f + 0.5 * self.regularization * real_inner(y, y), p, A, y

    def value(self, x: Array) -> float:
        """f(x): one product with A."""
        return self._parts(x)[0]

    def value_and_gradient(self, x: Array) -> tuple[float, Array]:
        """f(x) and G = Aᵀp + λ(x − c), p the softmax."""
        f, p, A, y = self._parts(x)
        G = p @ A
        y *= self.regularization
        G += y
        return f, G

    def hessp(self, x: Array, v: Array) -> Array:
        """Aᵀ(diag(p) − ppᵀ)A v/ρ + λ v: three products with A."""
        _, p, A, _ = self._parts(x)
        u = A @ v
        u -= np.dot(p, u)
        u *= p
        u /= self.temperature
        return np.asarray(u @ A + self.regularization * v)

    @property
    def mu(self) -> float:
        """A strong convexity constant: λ."""
        return self.regularization

    @cached_property
    def L(self) -> float:
        """A Lipschitz constant of the gradient: max_i ‖a_i‖²/ρ + λ.

        diag(p) − ppᵀ is a covariance, so Aᵀ(diag(p) − ppᵀ)A ≤ Σ p_i a_i a_iᵀ ≤ max ‖a_i‖².
        """
        return float(linalg.norm(self.rows, axis=1).max() ** 2) / self.temperature + self.mu

    @property
    def minimum(self) -> float:
        """ρ log m."""
        return self.temperature * float(np.log(len(self.rows)))

    @property
    def minimizer(self) -> Array:
        """c."""
        return self.center.copy()
