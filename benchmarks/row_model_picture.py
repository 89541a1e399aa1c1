"""What the row model learns, drawn: Ritz values step by step beside the spectrum.

python benchmarks/row_model_picture.py docs/explanations/images/row_model.png
"""

from __future__ import annotations

import sys
from dataclasses import replace

import matplotlib
import numpy as np

import stiefel
from stiefel.objectives import Brockett
from stiefel.solvers import METHODS
from stiefel.solvers.problem import Problem

N, K = 200, 5


class Direct:
    """The objective as a solver sees it, without counting."""

    def __init__(self, objective: Brockett) -> None:
        self.objective = objective

    def projected(self, project, X, value=None):
        f, G = self.objective.value_and_gradient(X)
        return f, project(X, G), None


def history(method, objective, X0):
    """(gradient norms, Ritz values at each step)."""
    problem = Problem(stiefel.Stiefel().bind(X0), Direct(objective))
    state, norms, values = method.init(problem, X0), [], []
    for _ in range(700):
        norms.append(state.at.norm)
        known = state.rows.known
        values.append(np.zeros(0) if known is None else known.ritz.theta)
        if norms[-1] < 1e-9 * norms[0] or state.failure is not None:
            break
        state = method.step(problem, state)
    return np.array(norms), values


def main(path: str) -> None:
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    objective, X0 = Brockett.table(N, K), stiefel.random_point(N, K, seed=0)
    auto = METHODS["auto"]
    norms, values = history(auto, objective, X0)
    slow, _ = history(replace(auto, rows=None), objective, X0)
    # A is known up to the factor by which D differs from M⁻¹: det D = 1.
    factor = 2.0 * float(np.exp(np.mean(np.log(objective.weights))))
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for value in np.arange(1.0, 26) ** 2 / N:
        left.axhline(value, color="0.85", linewidth=0.7, zorder=0)
    for step, theta in enumerate(values):
        theta = theta / factor
        left.plot(np.full(len(theta), step), theta, ".", color="C0", markersize=2)
    left.set(yscale="log", ylim=(0.1, 4), xlabel="step", ylabel="Ritz values of A")
    right.semilogy(norms / norms[0], label="with the row model")
    right.semilogy(slow / slow[0], label="without", color="0.6")
    right.set(xlabel="step", ylabel="‖∇f‖, relative")
    right.legend()
    figure.savefig(path, dpi=110)


if __name__ == "__main__":
    main(sys.argv[1])
