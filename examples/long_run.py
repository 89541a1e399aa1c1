"""A long run: progress, checkpoint, interruption, resumption

The run saves itself. An interruption, here raised by the callback as a key press would raise it,
loses nothing: the same call with `resume=True` goes on and ends with the same bits.
`scipy.optimize.minimize` can be called again from its last point, but forgets what it has learned
about the function.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
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
alone = stiefel.minimize(fun, X0, rtol=1e-8)
forgetful = stiefel.minimize(
    fun, stiefel.minimize(fun, X0, maxiter=50).x, gtol=result.gradient_norm
)
print(f"evaluations: {alone.nfev} without interruption, {result.nfev} interrupted and resumed, "
      f"{50 + forgetful.nfev} started afresh from the last point")  # fmt: skip
assert result.success and result.nit > 50
assert np.array_equal(result.x, alone.x)  # bit for bit

fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
ax.semilogy(result.history["nfev"], result.history["gradient_norm"])
ax.axvline(result.history["nfev"][50], color="C3", ls="--", label="interrupted and resumed")
ax.set(xlabel="evaluations", ylabel="gradient norm", title="one run in two pieces")
ax.legend()
