"""What the row model saves

Where one operator acts on all columns, `auto` recognises it and learns the operator from the
columns of its steps. This recipe finds the lowest eigenvectors of a matrix with and without it.
"""

import numpy as np

import stiefel

n, k = 300, 6
eigenvalues = np.arange(1.0, n + 1) ** 2 / n
U = stiefel.random_point(n, n, seed=1)
A = (U * eigenvalues) @ U.T


def fun(X):
    G = A @ X
    return 0.5 * float(np.vdot(X, G)), G


x0 = stiefel.random_point(n, k, seed=0)
for name, options in (("with the row model", None), ("without", {"rows": None})):
    result = stiefel.minimize(fun, x0, rtol=1e-8, options=options)
    error = result.fun - 0.5 * eigenvalues[:k].sum()
    print(f"{name:20} {result.nfev:5} evaluations, error {error:.1e}")
    assert result.success and abs(error) < 1e-8
