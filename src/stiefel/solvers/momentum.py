"""How far to go on beyond the new point: Y_{t+1} lies at 1 + α on the curve from X_t to X_{t+1}.

A momentum is a function of the number k of steps since the last restart.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class LinearMomentum:
    """q_t = rate · t in Theorem 3.2: α_t = q_t/(2 + q_{t+1}).

    rate = 1 is the paper's k/(k + 3); a smaller rate is the damped family of Su, Boyd and
    Candès with r = 1 + 2/rate.
    """

    rate: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise ValueError(f"rate is {self.rate!r}; Theorem 3.2 needs 0 < rate ≤ 1")

    def __call__(self, k: int) -> float:
        return self.rate * k / (2.0 + self.rate * (k + 1))


@dataclass(frozen=True)
class SequenceMomentum:
    """Any sequence q of Theorem 3.2: q_0 = 0 and (q_{t+1} + 1)² ≤ (q_t + 2)² + 1."""

    q: Callable[[int], float]

    def __call__(self, k: int) -> float:
        now, later = self.q(k), self.q(k + 1)
        if k == 0 and now != 0:
            raise ValueError(f"q(0) is {now!r}; Theorem 3.2 needs q(0) = 0")
        if now < 0 or (later + 1) ** 2 > ((now + 2) ** 2 + 1) * (1 + 1e-12):
            raise ValueError(
                f"q({k}) = {now!r}, q({k + 1}) = {later!r}: Theorem 3.2 needs q ≥ 0 and "
                "(q(t+1) + 1)² ≤ (q(t) + 2)² + 1"
            )
        return now / (2.0 + later)


@dataclass(frozen=True)
class StronglyConvexMomentum:
    """α = (√L − √μ)/(√L + √μ) for μ-strongly convex, L-smooth functions; Theorem 3.1."""

    mu: float
    L: float

    def __post_init__(self) -> None:
        if not 0 < self.mu <= self.L:
            raise ValueError(f"mu = {self.mu!r}, L = {self.L!r}; expected 0 < mu ≤ L")

    def __call__(self, k: int) -> float:
        root_L, root_mu = math.sqrt(self.L), math.sqrt(self.mu)
        return (root_L - root_mu) / (root_L + root_mu)


@dataclass(frozen=True)
class NoMomentum:
    """α = 0: plain gradient descent."""

    def __call__(self, k: int) -> float:
        return 0.0


Momentum = Callable[[int], float]
