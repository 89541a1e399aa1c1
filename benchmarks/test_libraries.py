"""Time per iteration in NumPy, PyTorch and JAX, n = 2000, k = 20; run with ``-s`` to see it.

The same function, given with its gradient and compiled for JAX, and the same iterates; CPU time
of the process on one thread, the best of a dozen runs, in which the libraries take turns.
"""

import time

import numpy as np
import pytest

import stiefel

N, K, ITERATIONS = 2000, 20, 60
SPECTRUM = np.arange(1.0, N + 1) ** 2 / N
WEIGHTS = np.arange(1.0, K + 1)


class Brockett:
    """½ Σ w_j ⟨X_j, AX_j⟩ with its gradient, A diagonal, in the library of ``array``."""

    def __init__(self, array, dot, compiled=lambda f: f):
        d, w = array(SPECTRUM)[:, None], array(WEIGHTS)

        def pair(X):
            G = d * X * w
            return 0.5 * dot(X, G), G

        self.value_and_gradient = compiled(pair)
        self.value = compiled(lambda X: pair(X)[0])


def problem(library):
    if library == "numpy":
        return Brockett(np.asarray, np.vdot), np.asarray
    if library == "torch":
        torch = pytest.importorskip("torch")
        torch.set_num_threads(1)
        dot = lambda X, G: torch.vdot(X.reshape(-1), G.reshape(-1))
        return Brockett(torch.from_numpy, dot), torch.from_numpy
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    return Brockett(jax.numpy.asarray, jax.numpy.vdot, jax.jit), jax.numpy.asarray


PROBLEMS = {name: problem(name) for name in ("numpy", "torch", "jax")}


def measured(method, rounds=12):
    """The least seconds an iteration and the result of each library; the libraries take turns."""
    start = stiefel.random_point(N, K, seed=1)
    found = {}
    for i in range(rounds + 1):
        for name, (objective, array) in PROBLEMS.items():
            began = time.process_time()
            result = stiefel.minimize(
                objective, array(start), method=method, maxiter=ITERATIONS, rtol=1e-14
            )
            seconds = (time.process_time() - began) / result.nit
            least = found[name][0] if i > 1 else float("inf")  # the first round compiles
            found[name] = min(least, seconds), result
    return found


@pytest.mark.parametrize("method", ["accelerated", "lbfgs"])
def test_libraries(capsys, method):
    figures = measured(method)
    reference, result = figures["numpy"]
    with capsys.disabled():
        for name, (seconds, _) in figures.items():
            print(
                f"\n{method:12} {name:6} {1e6 * seconds:7.0f} µs/iteration  "
                f"{seconds / reference:4.2f}×",
                end="",
            )
    for _, other in figures.values():
        assert other.nfev == result.nfev
        assert other.fun == pytest.approx(result.fun, rel=1e-9)
