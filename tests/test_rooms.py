"""How many rooms one iteration enters: files, changes of file, depth; counted, not timed."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import stiefel
from stiefel.backends.arrays import kernels_for
from stiefel.solvers import METHODS

pytestmark = pytest.mark.skipif(
    kernels_for(np.zeros(1)).compiled is None, reason="without compiled kernels it is a room more"
)
SOURCE = Path(stiefel.__file__).parent
A = np.arange(1.0, 31.0)[:, None]
WEIGHTS = np.arange(1.0, 4.0)


def brockett(X):
    AX = A * X * WEIGHTS
    return float(np.vdot(X, AX)), 2.0 * AX


class Rooms:
    """What happens between two calls of the callback, as `sys.setprofile` sees it."""

    def __init__(self, iteration):
        self.iteration, self.calls, self.deepest = iteration, 0, 0
        self.files, self.changes, self.last = Counter(), 0, None

    def callback(self, snapshot):
        if snapshot.nit == self.iteration:
            sys.setprofile(self)
        elif snapshot.nit == self.iteration + 1:
            sys.setprofile(None)
            return True
        return False

    def __call__(self, frame, event, argument):
        if event not in ("call", "return"):
            return
        name = frame.f_code.co_filename
        if Path(name).is_relative_to(SOURCE):
            if event == "call":
                self.deepest = max(self.deepest, depth_below_the_loop(frame))
                self.calls += 1
                self.files[str(Path(name).relative_to(SOURCE))] += 1
            if name != self.last:
                self.changes, self.last = self.changes + 1, name


def depth_below_the_loop(frame):
    """How many functions of the package are open within the driver's loop."""
    open_here = 0
    while frame is not None and frame.f_code.co_name != "_loop":
        open_here += Path(frame.f_code.co_filename).is_relative_to(SOURCE)
        frame = frame.f_back
    return open_here


def rooms(method, iteration=12):
    found = Rooms(iteration)
    X0 = stiefel.random_point(30, 3, seed=0)
    with threadpool_limits(1):  # otherwise the limits on threads are a room of their own
        stiefel.minimize(brockett, X0, method=method, rtol=1e-12, callback=found.callback)
    assert found.calls
    return found


def enters(method, files, changes, depth):
    found = rooms(method)
    assert len(found.files) <= files, found.files
    assert found.changes <= changes
    assert found.deepest <= depth


def test_an_iteration_of_auto_enters_few_rooms():
    enters("auto", 14, 66, 9)
    enters(replace(METHODS["auto"], rows=None), 14, 45, 7)


def test_an_iteration_of_the_paper_enters_few_rooms():
    found = rooms("accelerated")
    assert len(found.files) <= 14, found.files
    assert found.changes <= 90
    assert found.deepest <= 12


if __name__ == "__main__":
    for name in ("auto", "accelerated", "lbfgs", "cg"):
        r = rooms(name)
        counts = r.calls, len(r.files), r.changes, r.deepest
        print("{:12} {} calls, {} files, {} changes, {} deep".format(name, *counts))
        print("    ", dict(r.files))
