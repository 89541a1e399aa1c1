"""What trials along a line say about f, against functions of which it is known."""

import math
from typing import NamedTuple

import pytest

from stiefel.solvers.evidence import contradicts, drowned, gap, lost_digits, measured_noise

DISTANCES = [1.0, 0.3, 0.11, 0.04, 0.012, 0.003, 7e-4]


class At(NamedTuple):
    t: float
    f: float
    slope: float


def smooth(t):
    return math.cosh(t - 2.0)


def derivative(t):
    return math.sinh(t - 2.0)


def pseudo_noise(t, size):
    """The same t, the same noise; as far from zero as it varies."""
    return size * (0.7 + 0.3 * math.sin(1e9 * t)) if t else 0.0


def gaps(f, slope):
    start = At(0.0, f(0.0), slope(0.0))
    return [gap(start, At(t, f(t), slope(t))) for t in DISTANCES]


def noise_of(found):
    return max(measured_noise(g, found[:i], 1.0) for i, g in enumerate(found))


def test_a_smooth_function_shows_neither():
    found = gaps(smooth, derivative)
    assert noise_of(found) == 0.0
    assert not contradicts(found, 0.0)


@pytest.mark.parametrize("size", [1e-2, 1e-3, 1e-4, 1e-5])
def test_noise_is_measured_within_a_factor(size):
    found = gaps(lambda t: smooth(t) + pseudo_noise(t, size), derivative)
    assert 0.3 * size <= noise_of(found) <= 3 * size
    assert not contradicts(found, 0.1 * size)


def test_values_drown_in_noise_not_in_a_jump():
    assert drowned(gaps(lambda t: smooth(t) + pseudo_noise(t, 0.1), derivative))
    found = gaps(lambda t: smooth(t) + (t > 0), derivative)
    assert not drowned([g for g in found if g.distance < 0.2])  # longer ones show the curvature
    assert not drowned(gaps(smooth, derivative))
    assert not drowned(gaps(smooth, lambda t: -derivative(t)))


def test_more_than_plausible_is_not_noise():
    found = gaps(lambda t: smooth(t) + pseudo_noise(t, 0.1), derivative)
    assert max(measured_noise(g, found[:i], 1e-3) for i, g in enumerate(found)) == 0.0


@pytest.mark.parametrize("factor", [-1.0, 0.1, 2.0, 10.0])
def test_a_wrong_gradient_is_not_noise(factor):
    found = gaps(smooth, lambda t: factor * derivative(t))
    assert noise_of(found) == 0.0
    assert contradicts(found, 1e-6)
    assert not contradicts(found[:2], 1e-6)  # two may be chance
    assert not contradicts(found, 1.0)  # noise may be all there is


def test_values_that_do_not_change_have_lost_their_digits():
    found = gaps(lambda t: 1.0, derivative)
    assert lost_digits(found) == pytest.approx(found[0].size)
    assert lost_digits(found[:2]) == 0.0
    assert lost_digits([]) == 0.0
