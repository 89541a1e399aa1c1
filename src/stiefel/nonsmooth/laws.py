"""The laws that tie the answers of a term to each other; for terms of your own.

prox is checked against h itself (no other point is better), its derivative and those of h against
differences, and the support against the places where h can be differentiated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from stiefel.types import Array

from .terms import Term

Check = tuple[str, float, float]  # what was compared, how far apart, how far is allowed

PROX_DIFFERENCE = 1e-6
TRIALS = 20


def check_term(term: Term, X: Array, *, seed: int = 0) -> None:
    """Check that a term keeps the laws that the proximal methods rely on.

    Parameters
    ----------
    term
        An object with ``value``, ``prox``, ``prox_derivative``, ``support``, ``gradient``,
        ``hessian`` and ``stop_at_kinks``, as `stiefel.L1` has them.
    X
        A NumPy array of the shape and dtype of the points; random arrays of its size are tried.
    seed
        Of the random arrays.

    Raises
    ------
    AssertionError
        If a law is broken; the message names every broken law with two numbers, found and allowed.

    Examples
    --------
    >>> import numpy as np
    >>> import stiefel
    >>> from stiefel.nonsmooth.laws import check_term
    >>> check_term(stiefel.L1(0.5), np.ones((6, 2)))
    """
    rng = np.random.default_rng(seed)
    broken: dict[str, tuple[float, float]] = {}
    for _ in range(TRIALS):
        for what, found, allowed in _checks(term, np.asarray(X), rng):
            if not found <= allowed and found > broken.get(what, (-1.0, 0.0))[0]:
                broken[what] = found, allowed
    if broken:
        lines = [f"  {what}: {f:.3g}, allowed {a:.3g}" for what, (f, a) in broken.items()]
        raise AssertionError(f"{type(term).__name__} breaks\n" + "\n".join(lines))


def _checks(h: Term, X: Array, rng: np.random.Generator) -> Iterator[Check]:
    draw = _drawer(X, rng)
    t, V, W, W2 = float(np.exp(rng.uniform(-2, 1))), draw(), draw(), draw()
    Z, size = h.prox(V, t), 1.0 + float(np.linalg.norm(V))
    yield "h is finite and real", 0.0 if np.isfinite(h.value(V)) else np.inf, 0.0
    best = h.value(Z) + _square(Z - V) / (2 * t)
    other = min(
        h.value(Y) + _square(Y - V) / (2 * t)
        for Y in (V, Z + 1e-3 * W, Z + 0.3 * W, h.prox(V, 2 * t), h.prox(V, t / 2), 0 * Z)
    )
    yield "no point is better than prox", best - other, 1e-12 * size
    V2 = V + W
    Z2 = h.prox(V2, t)
    gap = _square(Z2 - Z) - _inner(Z2 - Z, V2 - V)
    yield "prox is firmly nonexpansive", gap, 1e-12 * size**2
    D = h.prox_derivative(V, t)
    difference = (h.prox(V + PROX_DIFFERENCE * W, t) - h.prox(V - PROX_DIFFERENCE * W, t)) / (
        2 * PROX_DIFFERENCE
    )
    smooth = _same_support(h, V, PROX_DIFFERENCE * W, t)
    if smooth:
        yield "prox_derivative is the derivative", _norm(D(W) - difference), 1e-4 * size
    yield "prox_derivative is symmetric", abs(_inner(W2, D(W)) - _inner(D(W2), W)), 1e-10 * size
    yield (
        "prox_derivative is between 0 and 1",
        max(-_inner(W, D(W)), _inner(W, D(W)) - _square(W)),
        1e-10 * size,
    )
    stacked = D(np.stack([W, W2]))
    yield "prox_derivative takes stacks", _norm(stacked[1] - D(W2)), 1e-12 * size
    S = h.support(Z)
    yield "the support is a mask", 0.0 if S.shape == Z.shape and S.dtype == bool else np.inf, 0.0
    yield "Z is zero off its support", _norm(np.where(S, 0, Z)), 0.0
    yield "Z − V is a subgradient", *_subgradient(h, Z, (V - Z) / t, draw)
    yield from _derivatives(h, Z, np.where(S, W, 0))
    yield "stop_at_kinks leaves short steps", _norm(h.stop_at_kinks(Z, Z + 0.0 * W) - Z), 0.0


def _subgradient(h: Term, Z: Array, zeta: Array, draw: Callable[[], Array]) -> tuple[float, float]:
    """h(Y) ≥ h(Z) + ⟨ζ, Y − Z⟩ for some Y."""
    gaps = [h.value(Z) + _inner(zeta, Y - Z) - h.value(Y) for Y in (draw(), 0 * Z, 2 * Z)]
    return max(gaps), 1e-10 * (1.0 + h.value(Z))


def _derivatives(h: Term, Z: Array, W: Array) -> Iterator[Check]:
    """The gradient and Hessian of h along the support, against differences."""
    S, size = h.support(Z), 1.0 + _norm(W)
    least = float(np.min(np.abs(Z[S]), initial=np.inf))
    step = min(PROX_DIFFERENCE, 1e-3 * least)
    if not step > 1e-9:
        return
    up, down = Z + step * W, Z - step * W
    slope = (h.value(up) - h.value(down)) / (2 * step)
    yield "gradient is the slope of h", abs(_inner(h.gradient(Z), W) - slope), 1e-4 * size
    yield "gradient is zero off the support", _norm(np.where(S, 0, h.gradient(Z))), 0.0
    bend = (h.gradient(up) - h.gradient(down)) / (2 * step)
    error = _norm(np.where(S, h.hessian(Z, W) - bend, 0))
    yield "hessian is the derivative of gradient", error, 1e-3 * size * (1 + _norm(bend))


def _same_support(h: Term, V: Array, W: Array, t: float) -> bool:
    supports = [h.support(h.prox(V + a * W, t)) for a in (-2.0, 0.0, 2.0)]
    return all(np.array_equal(supports[0], s) for s in supports)


def _drawer(X: Array, rng: np.random.Generator) -> Callable[[], Array]:
    def draw() -> Array:
        A = rng.standard_normal(X.shape)
        return A + 1j * rng.standard_normal(X.shape) if X.dtype.kind == "c" else A

    return draw


def _inner(A: Array, B: Array) -> float:
    return float(np.sum((A.conj() * B).real))


def _square(A: Array) -> float:
    return _inner(A, A)


def _norm(A: Array) -> float:
    return float(np.sqrt(_square(A)))
