"""The smallest use

This recipe finds the eigenvectors of the three smallest eigenvalues of a matrix by minimising
Brockett's function. The gradient is the Euclidean one, as if there were no constraint. NumPy's
`eigh` gives the same numbers: for a plain eigenproblem use an eigensolver.
"""

import numpy as np

import stiefel

A = np.diag(np.arange(1.0, 101.0))
weights = np.arange(1.0, 4.0)


def fun(X):
    AXw = A @ X * weights
    return np.vdot(X, AXw), 2 * AXw


result = stiefel.minimize(fun, stiefel.random_point(100, 3, seed=0), rtol=1e-8)
print(result)
assert result.success
assert abs(result.fun - (3 * 1 + 2 * 2 + 1 * 3)) < 1e-8
