"""Compressed modes without smoothing: residual, supports and energy of the problem itself."""

from __future__ import annotations

import numpy as np
import pytest

from stiefel.applications.compressed_modes import closed_form, compressed_modes


@pytest.mark.parametrize("seed", [11, 201, 206])
def test_the_last_stage_is_the_problem_itself(seed):
    modes = compressed_modes((1000,), (100.0,), 10, 5.0, seed=seed)
    last = modes.results[-1]
    assert last.success, last.message
    assert modes.residual <= 1e-8
    assert modes.energy <= 5.640295  # each mode by itself; overlapping ones are above 5.64031
    assert modes.energy == pytest.approx(last.fun, abs=1e-10)
    assert modes.evaluations <= 150
    assert np.linalg.norm(modes.X.T @ modes.X - np.eye(10)) < 1e-13
    # A mode that touches no other one is as long as the closed form says, to two grid points.
    assert modes.supports.min() == pytest.approx(closed_form(5.0, 1).extent, abs=0.25)
    assert modes.supports.max() < 9.5
    inside = (modes.X != 0).astype(int)
    shared = inside.T @ inside - np.diag(inside.sum(axis=0))
    alone = inside[:, ~shared.any(axis=1)]
    assert alone.shape[1] >= 1
    for mode in alone.T:  # one interval on the circle, without holes
        assert np.sum(mode != np.roll(mode, 1)) == 2


def test_the_last_stage_may_be_left_out():
    modes = compressed_modes((120,), (30.0,), 3, 5.0, gtol=0.0)
    assert modes.residual > 1e-6
    assert len(modes.results) == 6
    finished = compressed_modes((120,), (30.0,), 3, 5.0, start=modes.X, stages=(3e-4,))
    assert finished.residual <= 1e-8
    assert finished.energy < modes.energy
