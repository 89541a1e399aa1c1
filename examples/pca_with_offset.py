"""Principal components with a free offset

A dict of an orthonormal matrix X and a free vector c: min Σ_i ‖(I − XXᵀ)(d_i − c)‖². The singular
value decomposition of the centred data has the same minimum and serves as a check.
"""

import numpy as np

import stiefel

rng = np.random.default_rng(0)
data = rng.standard_normal((200, 12)) * np.geomspace(3.0, 0.3, 12) + rng.standard_normal(12)


def fun(p):
    X, c = p["X"], p["c"]
    R = (data - c) / np.sqrt(len(data))
    S = R @ X
    E = R - S @ X.T
    # XᵀX = I is not used: the gradient is that of the formula with E as it stands.
    EX = E @ X
    G = -2 * (E.T @ S + R.T @ EX)
    g = -2 * (E - EX @ X.T).sum(axis=0) / np.sqrt(len(data))
    return np.vdot(E, E), {"X": G, "c": g}


x0 = {"X": stiefel.random_point(12, 3, seed=1), "c": np.zeros(12)}
manifold = {"X": stiefel.Stiefel(), "c": stiefel.Euclidean()}
print(stiefel.check_gradient(fun, x0, manifold=manifold))
result = stiefel.minimize(fun, x0, manifold=manifold, rtol=1e-6)
print(result)

centred = data - data.mean(axis=0)
tail = np.linalg.svd(centred, compute_uv=False)[3:]
print("by the singular value decomposition:", np.sum(tail**2) / len(data))
assert result.success
assert abs(result.fun - np.sum(tail**2) / len(data)) < 1e-6
assert set(result.grad) == {"X", "c"}
