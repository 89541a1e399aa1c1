"""Objectives that misbehave, each with what may truthfully be said about a run on it.

``make(seed)`` returns fun(X) -> (value, gradient).  A run must end within its limits with one of
the statuses in ``may``; CONVERGED is also checked against the gradient that the function gives
at the returned point.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

N, K = 12, 3
A = np.diag(np.arange(1.0, N + 1.0))
WEIGHTS = np.arange(1.0, K + 1.0)

ANY = frozenset(
    {
        "CONVERGED",
        "MAX_ITERATIONS",
        "MAX_EVALUATIONS",
        "MAX_TIME",
        "ROUNDING_LIMIT",
        "NOT_FINITE",
        "STEP_NOT_FOUND",
    }
)
UNSUCCESSFUL = ANY - {"CONVERGED"}


class Hostile(NamedTuple):
    make: Callable[[int], Callable[[Any], Any]]
    may: frozenset[str] = ANY
    raises: type[BaseException] | None = None


class Boom(RuntimeError):
    """What a user's function raises."""


def smooth(X):
    AX = A.astype(X.dtype) @ X * WEIGHTS.astype(X.dtype)
    return float(np.vdot(X, AX).real), 2 * AX


def noise(X, seed):
    """A number in [−1, 1] that depends on every bit of X, and on nothing else."""
    digest = hash((X.tobytes(), seed))
    return (digest % 2_000_001) / 1_000_000 - 1.0


def changed(change):
    """fun(X, f, G, call, rng) -> (f, G), around the smooth function."""

    def make(seed):
        # Another stream than the start's: a gradient equal to the Gaussian of x0 projects to zero.
        rng, calls = np.random.default_rng([seed, 1]), [0]

        def fun(X):
            calls[0] += 1
            return change(X, *smooth(X), calls[0], rng)

        return fun

    return make


def _raise(X, f, G, n, rng):
    if n > 1 and rng.random() < 0.05:
        raise Boom("a random failure of the user's function")
    return f, G


def _nan(X, f, G, n, rng):
    return (np.nan if n > 1 and rng.random() < 0.2 else f), G


def _nan_gradient(X, f, G, n, rng):
    return f, np.full_like(G, np.nan) if n > 1 and rng.random() < 0.2 else G


def _infinite(X, f, G, n, rng):
    return (rng.choice([np.inf, -np.inf]) if n > 1 and rng.random() < 0.2 else f), G


def _jump(X, f, G, n, rng):
    return f + 10.0 * np.floor(4 * X[0, 0]), G


def _unbounded(X, f, G, n, rng):
    """+∞ on part of the manifold, as a domain error is."""
    return (np.inf if X[0, 0] > 0.3 else f), G


def _pole(X, f, G, n, rng):
    x = X[0, 0]
    G = G.copy()
    G[0, 0] += -1.0 / (x * x)
    return f + 1.0 / x, G


def _minus_pole(X, f, G, n, rng):
    """−log|x|^-1 → −∞: no minimum."""
    x = X[0, 0]
    G = G.copy()
    G[0, 0] += 1.0 / x if x else np.inf
    return f + (np.log(abs(x)) if x else -np.inf), G


def _linear(X, f, G, n, rng):
    C = np.arange(X.size, dtype=X.dtype).reshape(X.shape) / X.size
    return float(np.vdot(C, X).real), C


def _step(X, f, G, n, rng):
    return np.sign(X[0, 0]) + 0.0 * f, 0.0 * G + np.ones_like(G)


HOSTILE = {
    "alternating value": Hostile(changed(lambda X, f, G, n, rng: (float((-1) ** n), G))),
    "alternating gradient": Hostile(changed(lambda X, f, G, n, rng: (f, (-1.0) ** n * G))),
    "random value": Hostile(changed(lambda X, f, G, n, rng: (rng.standard_normal(), G))),
    "random gradient": Hostile(
        changed(lambda X, f, G, n, rng: (f, rng.standard_normal(G.shape))), UNSUCCESSFUL
    ),
    "random both": Hostile(
        changed(lambda X, f, G, n, rng: (rng.standard_normal(), rng.standard_normal(G.shape))),
        UNSUCCESSFUL,
    ),
    "constant with a gradient": Hostile(changed(lambda X, f, G, n, rng: (1.0, G))),
    "constant": Hostile(changed(lambda X, f, G, n, rng: (1.0, 0 * G)), frozenset({"CONVERGED"})),
    "zero": Hostile(changed(lambda X, f, G, n, rng: (0.0, 0 * G)), frozenset({"CONVERGED"})),
    "gradient zero": Hostile(changed(lambda X, f, G, n, rng: (f, 0 * G)), frozenset({"CONVERGED"})),
    "wrong sign": Hostile(changed(lambda X, f, G, n, rng: (f, -G)), UNSUCCESSFUL),
    "gradient ten times too large": Hostile(changed(lambda X, f, G, n, rng: (f, 10 * G))),
    "gradient ten times too small": Hostile(changed(lambda X, f, G, n, rng: (f, 0.1 * G))),
    "gradient of another function": Hostile(
        changed(lambda X, f, G, n, rng: (f, np.ascontiguousarray(G[::-1])))
    ),
    "NaN at random": Hostile(changed(_nan)),
    "NaN gradient at random": Hostile(changed(_nan_gradient)),
    "infinite at random": Hostile(changed(_infinite)),
    "NaN from the start": Hostile(
        changed(lambda X, f, G, n, rng: (np.nan, G)), frozenset({"NOT_FINITE"})
    ),
    "NaN gradient from the start": Hostile(
        changed(lambda X, f, G, n, rng: (f, np.nan * G)), frozenset({"NOT_FINITE"})
    ),
    "infinite from the start": Hostile(
        changed(lambda X, f, G, n, rng: (np.inf, G)), frozenset({"NOT_FINITE"})
    ),
    "NaN after the start": Hostile(
        changed(lambda X, f, G, n, rng: (f if n == 1 else np.nan, G)), UNSUCCESSFUL
    ),
    "-infinity after the start": Hostile(
        changed(lambda X, f, G, n, rng: (f if n == 1 else -np.inf, G)), UNSUCCESSFUL
    ),
    "NaN gradient after the start": Hostile(
        changed(lambda X, f, G, n, rng: (f, G if n == 1 else np.nan * G)), UNSUCCESSFUL
    ),
    "raises at random": Hostile(changed(_raise), raises=Boom),
    "discontinuous": Hostile(changed(_jump)),
    "infinite on a part": Hostile(changed(_unbounded)),
    "with a pole": Hostile(changed(_pole)),
    "without a minimum": Hostile(changed(_minus_pole)),
    "linear": Hostile(changed(_linear)),
    "a sign": Hostile(changed(_step)),
    "huge": Hostile(changed(lambda X, f, G, n, rng: (1e300 * f, 1e300 * G))),
    "huge and not calibrated": Hostile(
        changed(lambda X, f, G, n, rng: (f, G) if n == 1 else (1e300 * f, 1e300 * G))
    ),
    "tiny": Hostile(changed(lambda X, f, G, n, rng: (1e-300 * f, 1e-300 * G))),
    "subnormal": Hostile(changed(lambda X, f, G, n, rng: (1e-320 * f, 1e-320 * G))),
    "value shrinks with every call": Hostile(changed(lambda X, f, G, n, rng: (f - n, G))),
    "value grows with every call": Hostile(changed(lambda X, f, G, n, rng: (f + n, G))),
    "gradient grows with every call": Hostile(changed(lambda X, f, G, n, rng: (f, n * n * G))),
    "scale changes with every call": Hostile(
        changed(lambda X, f, G, n, rng: (f * 10.0 ** (n % 7), G * 10.0 ** (n % 5)))
    ),
    "flat": Hostile(changed(lambda X, f, G, n, rng: (f**9 * 1e-12, 9e-12 * f**8 * G))),
    "rounded to three digits": Hostile(changed(lambda X, f, G, n, rng: (round(f, 3), G))),
    "noise of 1e-3": Hostile(
        changed(lambda X, f, G, n, rng: (f + 1e-3 * rng.standard_normal(), G))
    ),
    "noise of 1": Hostile(changed(lambda X, f, G, n, rng: (f + rng.standard_normal(), G))),
}
