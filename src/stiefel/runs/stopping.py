"""Stopping rules are values that combine: ``RelativeGradient(1e-10) | MaxIterations(10_000)``.

*Converged* and *should stop* are different questions: a rule answers with the `Status` that is
true when it fires, and with a sentence that says what was reached against what was asked.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from .result import Status


class Progress(NamedTuple):
    """What a stopping rule may look at."""

    nit: int
    nfev: int
    clock: Callable[[], float]
    f: float
    gradient_norm: float
    initial_norm: float  # ‖∇f(x0)‖_g*
    recent_decrease: Callable[[], float]
    settled: Callable[[], bool] = lambda: True  # what is still to be gained is small; see `Ledger`

    @property
    def seconds(self) -> float:
        """Since the start of the run, earlier parts of it included."""
        return self.clock()

    @property
    def decrease(self) -> float:
        """The relative decrease of f over the last ten iterations; inf at first."""
        return self.recent_decrease()


class Reason(NamedTuple):
    status: Status
    message: str


@dataclass(frozen=True)
class Rule:
    """One stopping rule."""

    def reason(self, progress: Progress) -> Reason | None:
        raise NotImplementedError

    def __or__(self, other: Rule) -> Rule:
        return any_of((self, other))


@dataclass(frozen=True)
class AnyOf(Rule):
    """Stops when one of its rules does; the first one names the reason."""

    rules: tuple[Rule, ...] = ()

    def reason(self, progress: Progress) -> Reason | None:
        for rule in self.rules:
            if found := rule.reason(progress):
                return found
        return None


def any_of(rules: Sequence[Rule]) -> Rule:
    """One rule that stops when one of these does."""
    parts = [part for rule in rules for part in _parts(rule)]
    return AnyOf(tuple(parts)) if len(parts) > 1 else parts[0]


def _parts(rule: Rule) -> tuple[Rule, ...]:
    return rule.rules if isinstance(rule, AnyOf) else (rule,)


A_REAL_NUMBER = (float, int, numbers.Real)  # the abstract class alone takes five times as long


def _check_integer(rule: object, value: int, least: int) -> None:
    if not isinstance(value, A_REAL_NUMBER) or isinstance(value, bool):
        raise TypeError(f"{type(rule).__name__}({value!r}): expected an integer ≥ {least}")
    if not value >= least or math.isinf(value) or int(value) != value:
        raise ValueError(f"{type(rule).__name__}({value!r}): expected an integer ≥ {least}")


def _check_positive(rule: object, name: str, value: float) -> None:
    if not isinstance(value, A_REAL_NUMBER):
        raise TypeError(f"{type(rule).__name__}({value!r}): {name} must be a positive number")
    if not value > 0 or math.isnan(value):
        raise ValueError(f"{type(rule).__name__}({value!r}): {name} must be positive")


@dataclass(frozen=True)
class RelativeGradient(Rule):
    """Converged when ‖∇f(X)‖_g* ≤ tolerance · ‖∇f(X0)‖_g*.

    Parameters
    ----------
    tolerance : float
        A positive number.

    Examples
    --------
    >>> import stiefel
    >>> stiefel.RelativeGradient(1e-8) | stiefel.MaxSeconds(60)
    AnyOf(rules=(RelativeGradient(tolerance=1e-08), MaxSeconds(limit=60)))
    """

    tolerance: float

    def __post_init__(self) -> None:
        _check_positive(self, "the tolerance", self.tolerance)

    def reason(self, p: Progress) -> Reason | None:
        target = self.tolerance * p.initial_norm
        if not p.gradient_norm <= target:
            return None
        return Reason(
            Status.CONVERGED,
            f"gradient norm {p.gradient_norm:.2e} ≤ {target:.2e} "
            f"({self.tolerance:g} of the initial {p.initial_norm:.2e})",
        )


@dataclass(frozen=True)
class SettledGradient(RelativeGradient):
    """The same, and the method's model of f expects to gain next to nothing; the default."""

    def reason(self, p: Progress) -> Reason | None:
        found = RelativeGradient.reason(self, p)
        return found if found is not None and p.settled() else None


@dataclass(frozen=True)
class AbsoluteGradient(Rule):
    """Converged when ‖∇f(X)‖_g* ≤ tolerance."""

    tolerance: float

    def __post_init__(self) -> None:
        _check_positive(self, "the tolerance", self.tolerance)

    def reason(self, p: Progress) -> Reason | None:
        if not p.gradient_norm <= self.tolerance:
            return None
        return Reason(
            Status.CONVERGED, f"gradient norm {p.gradient_norm:.2e} ≤ {self.tolerance:.2e}"
        )


@dataclass(frozen=True)
class RoundedGradient(Rule):
    """Converged when ‖∇f(X)‖_g* is what rounding leaves of the gradient before its projection."""

    level: float

    def reason(self, p: Progress) -> Reason | None:
        if not p.gradient_norm <= self.level:
            return None
        return Reason(
            Status.CONVERGED,
            f"gradient norm {p.gradient_norm:.2e} is at its rounding level, {self.level:.2e}: "
            "the projection of a gradient that is larger by the digits of the precision",
        )


@dataclass(frozen=True)
class SmallDecrease(Rule):
    """Converged when f fell by less than tolerance · max(|f|, f(x0) − f) over ten iterations."""

    tolerance: float

    def __post_init__(self) -> None:
        _check_positive(self, "the tolerance", self.tolerance)

    def reason(self, p: Progress) -> Reason | None:
        if not p.decrease <= self.tolerance:
            return None
        return Reason(
            Status.CONVERGED,
            f"f fell by {p.decrease:.2e} ≤ {self.tolerance:.2e} (relative, ten iterations)",
        )


@dataclass(frozen=True)
class MaxIterations(Rule):
    """Stops after so many iterations.

    Parameters
    ----------
    limit : int
        At least 0.

    Examples
    --------
    >>> import numpy as np, stiefel
    >>> fun = lambda X: (np.sum(X[:2]), np.eye(4, 1) + np.eye(4, 1, -1))
    >>> X0 = stiefel.random_point(4, 1, seed=0)
    >>> stiefel.minimize(fun, X0, stop=stiefel.MaxIterations(2)).status
    Status.MAX_ITERATIONS
    """

    limit: int

    def __post_init__(self) -> None:
        _check_integer(self, self.limit, 0)

    def reason(self, p: Progress) -> Reason | None:
        if p.nit < self.limit:
            return None
        return Reason(Status.MAX_ITERATIONS, f"{p.nit} iterations reached the limit")


@dataclass(frozen=True)
class MaxEvaluations(Rule):
    """Stops after so many calls of the user's function; an iteration is never cut in half."""

    limit: int

    def __post_init__(self) -> None:
        _check_integer(self, self.limit, 1)

    def reason(self, p: Progress) -> Reason | None:
        if p.nfev < self.limit:
            return None
        return Reason(Status.MAX_EVALUATIONS, f"{p.nfev} evaluations reached the limit")


@dataclass(frozen=True)
class MaxSeconds(Rule):
    """Stops after so many seconds of wall-clock time.

    Parameters
    ----------
    limit : float
        A positive number.

    Examples
    --------
    >>> import stiefel
    >>> stiefel.MaxSeconds(60).limit
    60
    """

    limit: float

    def __post_init__(self) -> None:
        _check_positive(self, "the limit", self.limit)

    def reason(self, p: Progress) -> Reason | None:
        if (seconds := p.seconds) < self.limit:
            return None
        return Reason(Status.MAX_TIME, f"{seconds:.1f} s reached the limit of {self.limit:g} s")
