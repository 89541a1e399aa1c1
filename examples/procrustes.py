"""Orthogonal Procrustes: the orthogonal Q that turns A onto B, from the identity; no gradient.

Orthogonal matrices of determinant +1 and −1 are two components; the better one is kept.
"""

import numpy as np

import stiefel

rng = np.random.default_rng(1)
A = rng.standard_normal((30, 3))
B = A @ stiefel.random_point(3, 3, seed=5) + 0.01 * rng.standard_normal((30, 3))
group = stiefel.Orthogonal()


def misfit(Q):
    return np.sum((A @ Q - B) ** 2)


starts = (np.eye(3), group.reflected(np.eye(3)))
runs = [stiefel.minimize(misfit, Q0, manifold=group, jac="3-point") for Q0 in starts]
result = min(runs, key=lambda run: run.fun)

print(result)
U, _, Vh = np.linalg.svd(A.T @ B)
assert result.success
assert np.allclose(result.x, U @ Vh, atol=1e-5)
