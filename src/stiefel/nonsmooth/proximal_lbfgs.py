"""Proximal L-BFGS that learns: quasi-Newton steps, and leaps where f turns out to be quadratic.

The steps are those of `quasi_newton`, one evaluation each; when the operator of ∇f has become known
by them, the next step is a `leap`.  Other functions are told by an asymmetry within two steps, or
by a leap that F refuses, and nothing more is spent on them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from .composite import Composite, unwarned
from .leap import is_ready, leap
from .proximal_newton import ProximalNewton
from .quasi_newton import QuasiNewton, State
from .smooth_piece import STEADY


@dataclass(frozen=True)
class ProximalLBFGS(QuasiNewton):
    """Proximal L-BFGS for f + h.

    Parameters
    ----------
    memory : int
        The number of pairs kept.
    sufficient_decrease : float
        The part of the predicted decrease that a step must bring.
    caution : float
        A pair is used if ⟨s, y⟩ > caution ‖s‖‖y‖.
    learn : bool
        Whether the operator of a quadratic f is learned.

    Examples
    --------
    >>> import numpy as np, stiefel
    >>> B = np.random.default_rng(0).standard_normal((20, 30))
    >>> fun = lambda X: (-np.sum((B @ X) ** 2), -2 * B.T @ (B @ X))
    >>> X0 = stiefel.random_point(30, 2, seed=0)
    >>> result = stiefel.minimize(fun, X0, nonsmooth=stiefel.L1(2.0), method="proximal-lbfgs")
    >>> bool(result.success), bool((result.x == 0).any())
    (True, True)
    """

    @cached_property
    def _newton(self) -> ProximalNewton:
        return ProximalNewton(memory=self.memory)

    @unwarned
    def step(self, problem: Composite, s: State) -> State:
        if is_ready(s):
            return leap(problem, s, self, self._newton)
        if s.steady >= STEADY:
            moved = self.along_piece(problem, s)
            if moved is not None:
                return moved
        return super().step(problem, s)
