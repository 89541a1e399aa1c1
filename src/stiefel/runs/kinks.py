"""Kinks of f: the gradient stays as large and jumps, while steps become shorter and shorter.

What a step of length d gains is about d‖∇f‖, so that a window of iterations tells

    d ≈ (f at its beginning − f at its end) / ‖∇f‖

from the history alone.  Where f is smooth, d falls with ‖∇f‖: it is ‖∇f‖ over a curvature, and
curvatures are bounded.  At kinks it falls without ‖∇f‖.  The same happens where the gradient is
wrong, but there it is continuous: in the end the gradients of one step are compared.  Nothing is
claimed where the gains are beneath the noise of f.
"""

from __future__ import annotations

from stiefel.solvers.problem import Problem
from stiefel.types import Gradient, NumpyArray

KINK_WINDOW = 10  # iterations
# Of 32 smooth functions and five methods none fell by more than 3e3, √(x² + δ²) with δ = 1e-5 by
# 1.5e3 and with 1e-6 by 1.6e4; test_kinks.py.
SHORTENED = 3e4
AS_LARGE = 0.5  # of the gradient in the window of long steps
JUMP = 0.3  # of the gradient's length; wrong gradients change less, test_kinks.py
VISIBLE = 2.0  # times the noise of f: what a window must gain
KINKS_FOUND = (
    "the gradient jumps from step to step and does not become smaller, although the steps are "
    "{:.0e} times shorter than they were: the function has kinks, or its gradient is noisy. "
    "Absolute values of entries and lengths of rows can be minimised exactly with nonsmooth= "
    "(stiefel.L1, stiefel.RowNorms); others must be smoothed"
)


def shortening(values: NumpyArray, norms: NumpyArray, noise: float) -> float:
    """How many times shorter the steps have become while the gradient stayed as large; else 0.

    Of all iterations; the newest window is compared with the first, second, fourth, eighth … one.
    """
    last = (len(values) - 1) // KINK_WINDOW - 1
    if last < 1:
        return 0.0
    gain, norm, _ = _window(values, norms, last)
    if not gain > VISIBLE * noise:
        return 0.0
    most, i = 0.0, 0
    while i < last:
        old_gain, old_norm, largest = _window(values, norms, i)
        if norm >= AS_LARGE * old_norm:
            most = max(most, (old_gain / gain) * (norm / largest))
        i = 2 * i + 1
    return most


def jumps(problem: Problem, old: Gradient, new: Gradient) -> bool:
    """Whether the gradient has changed by much of its length; the step between must be short."""
    geometry = problem.geometry
    y = geometry.combine(1.0, new.G, -1.0, old.G)
    return bool(geometry.dot(y, y) >= JUMP * JUMP * geometry.dot(new.G, new.G))


def _window(values: NumpyArray, norms: NumpyArray, i: int) -> tuple[float, float, float]:
    """What f lost in window i, the median of the gradient norm, and the largest.

    A run that leaves a saddle gains by the largest of them: test_minimum.py in single precision.
    """
    first, end = i * KINK_WINDOW, (i + 1) * KINK_WINDOW
    seen = sorted(norms[first + 1 : end + 1].tolist())
    middle = 0.5 * (seen[KINK_WINDOW // 2 - 1] + seen[KINK_WINDOW // 2])
    return float(values[first] - values[end]), middle, seen[-1]
