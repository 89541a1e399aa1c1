"""Stopped, saved, resumed

A run that is stopped, saved and resumed ends with the same bits as one left alone. SciPy's
`minimize` saves nothing: a run that is started again from its last point has forgotten what it
learned, and needs more evaluations.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import stiefel

A = np.arange(1.0, 101.0)[:, None]
weights = np.arange(1.0, 4.0)


def fun(X):
    AXw = A * X * weights
    return np.vdot(X, AXw), 2 * AXw


X0 = stiefel.random_point(100, 3, seed=0)
alone = stiefel.minimize(fun, X0, rtol=1e-8)

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "run.npz"
    stopped = stiefel.minimize(fun, X0, rtol=1e-8, maxiter=20, checkpoint=path)
    print(stopped.message)
    resumed = stiefel.minimize(fun, X0, rtol=1e-8, checkpoint=path, resume=True)

print(resumed)
assert np.array_equal(resumed.x, alone.x)
assert (resumed.nit, resumed.nfev) == (alone.nit, alone.nfev)

again = stiefel.minimize(
    fun, stopped.x, rtol=1e-8 * alone.history["gradient_norm"][0] / stopped.gradient_norm
)
print(f"{alone.nfev} evaluations if resumed, {stopped.nfev + again.nfev} if started again")

for run, style, label in ((alone, "-", "left alone"), (resumed, "--", "stopped and resumed")):
    plt.semilogy(run.history["gradient_norm"], style, label=label)
plt.axvline(stopped.nit, color="grey", linewidth=0.8)
plt.xlabel("iteration")
plt.ylabel("gradient norm")
plt.legend()
