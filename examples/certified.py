"""Two problems with a proof of optimality

Neither problem is convex, but a certificate proves the answer: rotations from measurements of
their ratios, and the largest cut of a graph. A greedy cut, which proves nothing, stands beside
it.
"""

import matplotlib.pyplot as plt
import numpy as np

from stiefel.applications.maxcut import max_cut
from stiefel.applications.synchronization import alignment, synchronize
from stiefel.objectives import RotationSynchronization

# 200 rotations from noisy measurements of their ratios.
problem, planted = RotationSynchronization.random_instance(200, noise=0.1, rng=0)
found = synchronize(problem)
error = np.abs(alignment(found.rotations, planted) - planted).max()
print(
    f"200 rotations: {found.result.nfev} evaluations, largest error {error:.3f}, "
    f"smallest eigenvalue of the dual slack {found.certificate.smallest_eigenvalue:.1e}"
)
assert found.certificate.proves_optimality()

# The largest cut of a random weighted graph.
weights = np.triu(np.random.default_rng(0).random((30, 30)), 1)
cut = max_cut(weights + weights.T)
print(f"largest cut: {cut.cut_value:.4f} found, at most {cut.certificate.bound:.4f} possible")
assert cut.cut_value <= cut.certificate.bound

# A greedy cut for comparison: each node goes where it cuts more.
sides = np.ones(30)
for node in range(30):
    sides[node] = -np.sign((weights + weights.T)[node, :node] @ sides[:node] or 1.0)
greedy = 0.25 * np.sum((weights + weights.T) * (1 - np.outer(sides, sides)))
print(f"a greedy cut reaches {greedy:.4f}")

values = [greedy, cut.cut_value, cut.certificate.bound]
plt.bar(["greedy", "found here", "proved bound"], values, color=["C7", "C0", "C1"])
plt.ylim(0.9 * greedy, 1.02 * values[-1])
plt.ylabel("weight of the cut")
