"""What refused steps along a line say about f, against functions of which it is known."""

import math

import pytest

from stiefel.solvers.noise import Kind, Witness, judge, lost_digits, measured

DISTANCES = [1.0, 0.3, 0.11, 0.04, 0.012, 0.003, 7e-4]


def smooth(t):
    return math.cosh(t - 2.0)


def derivative(t):
    return math.sinh(t - 2.0)


def pseudo_noise(t, size):
    """The same t, the same noise; as far from zero as it varies."""
    return size * (0.7 + 0.3 * math.sin(1e9 * t)) if t else 0.0


def witnesses(f, slope):
    """Steps from 0, compared with the trapezium of their slopes."""
    found = []
    for t in DISTANCES:
        change, area = f(t) - f(0.0), 0.5 * t * (slope(0.0) + slope(t))
        found.append(Witness(t, abs(change - area), abs(area), change == 0))
    return found


def noise_of(found, plausible=1.0):
    return max(measured(w, found[:i], plausible) for i, w in enumerate(found))


def test_a_smooth_function_shows_nothing():
    found = witnesses(smooth, derivative)
    assert noise_of(found) == 0.0
    assert judge(found, 0.0, 1.0).kind is Kind.OPEN


@pytest.mark.parametrize("size", [1e-2, 1e-3, 1e-4, 1e-5])
def test_noise_is_measured_within_a_factor(size):
    found = witnesses(lambda t: smooth(t) + pseudo_noise(t, size), derivative)
    assert 0.3 * size <= noise_of(found) <= 3 * size
    verdict = judge(found, 0.1 * size, 1.0)
    assert verdict.kind is Kind.NOISE
    assert 0.3 * size <= verdict.noise <= 3 * size


def test_noise_beyond_belief_is_not_a_jump():
    noisy = witnesses(lambda t: smooth(t) + pseudo_noise(t, 0.1), derivative)
    assert judge(noisy, 0.0, 1e-3).kind is Kind.DROWNED
    assert noise_of(noisy, plausible=1e-3) == 0.0
    jumping = witnesses(lambda t: smooth(t) + (t > 0), derivative)
    short = [w for w in jumping if w.distance < 0.2]  # longer ones show the curvature
    assert judge(short, 0.0, 1e-3).kind is Kind.JUMP


@pytest.mark.parametrize("factor", [-1.0, 0.1, 2.0, 10.0])
def test_a_wrong_gradient_is_not_noise(factor):
    found = witnesses(smooth, lambda t: factor * derivative(t))
    assert noise_of(found) == 0.0
    assert judge(found, 1e-6, 1.0).kind is Kind.WRONG
    assert judge(found[:2], 1e-6, 1.0).kind is not Kind.WRONG  # two may be chance
    assert judge(found, 1.0, 1.0).kind is not Kind.WRONG  # noise may be all there is


def test_values_that_do_not_change_have_lost_their_digits():
    found = witnesses(lambda t: 1.0, derivative)
    assert lost_digits(found) == pytest.approx(found[0].gap)
    assert judge(found, 0.0, 0.0) == (Kind.NOISE, found[0].gap)
    assert lost_digits(found[:2]) == 0.0
    assert lost_digits([]) == 0.0
