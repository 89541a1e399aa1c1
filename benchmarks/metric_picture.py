"""What the learned metric gains, drawn: column scales step by step, and the gradient.

python benchmarks/metric_picture.py docs/explanations/images/metric.png
"""

from __future__ import annotations

import sys
from dataclasses import replace

import matplotlib
import numpy as np
from row_model_picture import Direct

import stiefel
from stiefel.solvers import METHODS
from stiefel.solvers.problem import Problem

N, WEIGHTS = 100, np.geomspace(100.0, 1.0, 4)


class Weighted:
    """Σ_j w_j ⟨x_j, A x_j⟩ with A = diag(1, …, n): column j is w_j times as stiff."""

    def value_and_gradient(self, X):
        AXw = np.arange(1.0, N + 1)[:, None] * X * WEIGHTS
        return np.vdot(X, AXw), 2 * AXw


def history(method, X0):
    """(gradient norms, the diagonal of D at each step)."""
    problem = Problem(stiefel.Stiefel().bind(X0), Direct(Weighted()))
    state, norms, scales = method.init(problem, X0), [], []
    while not norms or norms[-1] > 1e-8 * norms[0]:
        norms.append(state.at.norm)
        D = state.learned[0].metric.D if state.learned else None
        scales.append(np.ones(4) if D is None else np.diag(np.asarray(D)))
        state = method.step(problem, state)
    return np.array(norms), np.array(scales)


def main(path):
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    X0 = stiefel.random_point(N, 4, seed=0)
    learned, scales = history(replace(METHODS["auto"], rows=None), X0)
    canonical, _ = history(METHODS["lbfgs"], X0)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
    stiffness = scales * WEIGHTS
    for j, w in enumerate(WEIGHTS):
        left.semilogy(stiffness[:, j] / stiffness.mean(axis=1), label=f"weight {w:.0f}")
    left.set(xlabel="step", ylabel="stiffness of a column, relative to the mean")
    left.set_title("With the learned D the columns become equally stiff", fontsize=10)
    left.legend(frameon=False, fontsize=8)
    right.semilogy(canonical / canonical[0], color="#999999", label="canonical metric (lbfgs)")
    right.semilogy(learned / learned[0], color="#0072b2", label="learned metric")
    right.set(xlabel="step", ylabel="gradient norm, relative")
    right.set_title("What that saves", fontsize=10)
    right.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    main(sys.argv[1])
