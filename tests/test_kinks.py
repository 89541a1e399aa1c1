"""Kinks are named early, and nothing else is called one: `stiefel.runs.kinks`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stiefel
from stiefel.runs import kinks

METHODS = {"auto": 600, "lbfgs": 600, "cg": 250, "trust-region": 500, "accelerated": 1400}
A = np.random.default_rng(0).standard_normal((25, 50)) / 10


def sparse(X: Any, delta: float = 0.0) -> tuple[float, Any]:
    """0.3 Σ √(x² + δ²) − ½‖AX‖²: absolute values for δ = 0."""
    root, AX = np.sqrt(X * X + delta * delta), A @ X
    return float(0.3 * root.sum() - 0.5 * np.vdot(AX, AX)), 0.3 * X / root - A.T @ AX


def rows(X: Any) -> tuple[float, Any]:
    """Σ ‖row‖ − ½‖AX‖²."""
    length, AX = np.linalg.norm(X, axis=1, keepdims=True), A @ X
    return float(length.sum() - 0.5 * np.vdot(AX, AX)), X / length - A.T @ AX


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("fun", [sparse, rows])
@pytest.mark.parametrize("k", [1, 3])
def test_kinks_are_named_early(fun: Any, k: int, method: str) -> None:
    result = stiefel.minimize(fun, stiefel.random_point(50, k, seed=0), method=method)
    assert result.status == "STEP_NOT_FOUND"
    assert "nonsmooth=" in result.message
    assert result.nfev <= METHODS[method]


@pytest.mark.parametrize("delta", [1e-3, 1e-5])
def test_a_sharp_bend_is_no_kink(delta: float) -> None:
    """With SHORTENED = 1e3 the second one is called a kink."""
    X0 = stiefel.random_point(50, 3, seed=1)
    assert stiefel.minimize(lambda X: sparse(X, delta), X0, maxfun=3000).success


@pytest.mark.parametrize("method", ["auto", "accelerated", "trust-region"])
def test_a_gradient_that_is_a_little_wrong_has_no_kinks(method: str) -> None:
    """It stays as large while steps shrink, but is continuous; with JUMP = 0 it is called one."""
    C = 0.1 * np.cos(np.arange(100.0)).reshape(50, 2)

    def fun(X: Any) -> tuple[float, Any]:
        f, G = sparse(X, 0.1)
        return f, G + C

    for seed in range(3):
        X0 = stiefel.random_point(50, 2, seed=seed)
        result = stiefel.minimize(fun, X0, method=method, rtol=1e-10)
        assert not result.success
        assert "kinks" not in result.message


def test_rounding_has_no_kinks() -> None:
    """Gradients that are rounding jump as well, but then the gains are rounding too."""
    for seed in range(5):
        X0 = stiefel.random_point(50, 2, seed=seed, dtype=np.float32)
        fun = lambda X: (lambda f, G: (f, G.astype(np.float32)))(*sparse(X, 0.1))
        assert "kinks" not in stiefel.minimize(fun, X0, rtol=1e-12, maxiter=3000).message


def test_shortening_is_what_the_history_says() -> None:
    """Gains fall by ten every window: with the gradient that is descent, without it kinks."""
    falls = 0.1 ** (np.arange(101) // kinks.KINK_WINDOW)
    values = 10.0 - np.cumsum(falls)
    steady, falling = np.ones(101), np.sqrt(falls)
    assert kinks.shortening(values, steady, 1e-15) == pytest.approx(1e9, rel=2)
    assert kinks.shortening(values, falling, 1e-15) < 10
    assert kinks.shortening(values, steady, 1e-8) == 0.0
