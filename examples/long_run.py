"""A long run: progress, a callback, a checkpoint; interrupted by Ctrl-C and resumed.

The interrupt is raised by the callback here, as a key press would raise it.
"""

import tempfile
from pathlib import Path

import numpy as np

import stiefel

A = np.arange(1.0, 201.0)[:, None] ** 2 / 200
weights = np.arange(1.0, 6.0)
X0 = stiefel.random_point(200, 5, seed=0)


def fun(X):
    return np.vdot(X, A * X * weights), 2 * A * X * weights


def interrupt(snapshot):
    if snapshot.nit == 50:
        raise KeyboardInterrupt


with tempfile.TemporaryDirectory() as folder:
    saved = {"checkpoint": Path(folder) / "run.npz", "rtol": 1e-8}
    try:
        stiefel.minimize(fun, X0, callback=interrupt, progress=True, **saved)
    except KeyboardInterrupt as error:
        print("interrupted:", error.partial_result.message)
    result = stiefel.minimize(fun, X0, resume=True, progress=True, **saved)

print(result)
assert result.success and result.nit > 50
assert np.array_equal(result.x, stiefel.minimize(fun, X0, rtol=1e-8).x)  # bit for bit
