"""Two orthonormal matrices and a vector

A ≈ U diag(s) Vᵀ with a manifold for each part; what the manifold does not name is free. NumPy's
`svd` is the check.
"""

import numpy as np

import stiefel

A = np.random.default_rng(0).standard_normal((30, 20))


def fun(p):
    U, s, V = p["U"], p["s"], p["V"]
    R = U * s @ V.T - A
    return np.sum(R * R), {
        "U": 2 * R @ V * s,
        "s": 2 * np.sum(U * (R @ V), 0),
        "V": 2 * R.T @ U * s,
    }


start = {"U": np.eye(30, 3), "s": np.ones(3), "V": np.eye(20, 3)}
where = {"U": stiefel.Stiefel(), "V": stiefel.Stiefel()}  # what is not named is free
result = stiefel.minimize(fun, start, manifold=where)

print(result)
assert result.success
assert np.allclose(np.sort(np.abs(result.x["s"])), np.linalg.svd(A)[1][:3][::-1], atol=1e-4)
