"""A pose graph: rotations from noisy loops

A robot drives two rounds and measures how it turned and moved between some pairs of poses.
Adding up the measurements (odometry) drifts. `synchronize` finds the rotations that fit all
measurements best and proves that they are the global optimum; positions then follow from linear
least squares. Files in the g2o format are read by `stiefel.applications.g2o.read_g2o`.
"""

import matplotlib.pyplot as plt
import numpy as np

from stiefel.applications.synchronization import synchronize
from stiefel.objectives import RotationSynchronization

rng = np.random.default_rng(3)
m = 80
angle = np.linspace(0, 4 * np.pi, m)
place = np.stack([5 * np.cos(angle), 3 * np.sin(angle)], axis=1)
turn = lambda a: np.moveaxis(np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]), -1, 0)
R = turn(angle)

edges = np.array([(i, i + 1) for i in range(m - 1)] + [(i, i + 39) for i in range(0, m - 39, 4)])
i, j = edges.T
measured = turn(angle[i] - angle[j] + 0.08 * rng.standard_normal(len(edges)))  # R_i R_jᵀ
step = np.einsum("eba,eb->ea", R[i], place[j] - place[i]) + 0.03 * rng.standard_normal((len(i), 2))

found = synchronize(RotationSynchronization(edges, measured))
assert found.certificate.proves_optimality()
best = found.rotations
best = best @ best[0].T @ R[0]  # the first pose is known

odometry = [R[0]]
for e in range(m - 1):
    odometry.append(measured[e].T @ odometry[-1])
incidence = np.zeros((len(edges), m))
incidence[np.arange(len(edges)), i], incidence[np.arange(len(edges)), j] = -1, 1


def positions(rotations, count):
    moves = np.einsum("eab,eb->ea", np.asarray(rotations)[i[:count]], step[:count])
    p = np.linalg.lstsq(incidence[:count], moves, rcond=None)[0]
    return p - p[0] + place[0]


paths = {"odometry": positions(odometry, m - 1), "all loops": positions(best, len(edges))}
for name, p in paths.items():
    print(f"{name:10} mean error of a position {np.linalg.norm(p - place, axis=1).mean():.2f}")

fig, ax = plt.subplots(figsize=(4.6, 3.2), layout="constrained")
ax.plot(*place.T, "k", lw=0.8, label="truth")
for (name, p), colour in zip(paths.items(), ("C3", "C0")):
    ax.plot(*p.T, color=colour, label=name)
ax.set(aspect="equal", title="Pose graph")
ax.legend()
