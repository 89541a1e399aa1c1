"""Is it a minimum?

Saddles of an eigenvalue problem are recognised and left; several starts find both components of
O(8). SciPy's `orthogonal_procrustes` is the check.
"""

import numpy as np
import scipy.linalg

import stiefel

A = np.diag(np.arange(1.0, 9.0))


def trace(X):
    return np.vdot(X, A @ X), 2 * A @ X


saddle = np.eye(8)[:, [2, 5]]  # eigenvectors, but not the lowest
print(stiefel.check_minimum(trace, saddle))

result = stiefel.minimize(trace, saddle, escape=True)
print(result.message)
assert result.success
assert result.minimum.kind == "minimum"
assert abs(result.fun - 3.0) < 1e-9

rng = np.random.default_rng(7)
P, Q = rng.standard_normal((30, 8)), rng.standard_normal((30, 8))


def procrustes(X):
    R = P @ X - Q
    return np.vdot(R, R), 2 * P.T @ R


best = stiefel.minimize(procrustes, np.eye(8), starts=6)
print(best.starts)
exact, _ = scipy.linalg.orthogonal_procrustes(P, Q)
assert abs(best.fun - procrustes(exact)[0]) < 1e-8 * best.fun
