"""The call as in SciPy

`args`, `jac=True`, SciPy's method names, `tol` and `options` mean what they mean in
`scipy.optimize.minimize`, which has no orthogonality constraints.
"""

import numpy as np

import stiefel

A = np.diag(np.arange(1.0, 51.0))
weights = np.arange(1.0, 4.0)


def fun(X, A, weights):
    AXw = A @ X * weights
    return np.vdot(X, AXw), 2 * AXw


result = stiefel.minimize(
    fun,
    stiefel.random_point(50, 3, seed=0),
    args=(A, weights),
    jac=True,
    method="L-BFGS-B",
    tol=1e-6,
    options={"maxiter": 1000, "disp": True},
)
print(result.success, result.status, result.fun, np.linalg.norm(result.jac))
assert result.success and np.isclose(result.fun, 10)
