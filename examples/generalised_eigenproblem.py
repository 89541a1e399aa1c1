"""Vibrations of a membrane: A x = λ B x

Sparse finite-element matrices, the constraint XᵀBX = I, and a preconditioner. SciPy's `eigsh` is
the tool for a plain eigenproblem like this one, and the check.
"""

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import eigsh

import stiefel
from stiefel.preconditioners import QuadraticPreconditioner

m, k = 20, 4


def tridiagonal(off, diagonal):
    return sparse.diags_array([off, diagonal, off], offsets=[-1, 0, 1], shape=(m, m))


mass, stiffness = tridiagonal(1 / 6, 4 / 6), tridiagonal(-1.0, 2.0)
A = sparse.csc_array(sparse.kron(stiffness, mass) + sparse.kron(mass, stiffness))
B = sparse.csc_array(sparse.kron(mass, mass))


def fun(X):
    AX = A @ X
    return 0.5 * np.vdot(X, AX), AX


manifold = stiefel.Grassmann(B=B)  # XᵀBX = I; B is factorised once, no square root is formed
X0 = manifold.random(m * m, k, seed=0)
plain = stiefel.minimize(fun, X0, manifold=manifold, rtol=1e-7)

# A preconditioner: the inverse of A itself, here by a factorisation.
factor = sparse.linalg.splu(A)
precond = QuadraticPreconditioner(factor.solve, manifold)
result = stiefel.minimize(fun, X0, manifold=manifold, rtol=1e-7, precond=precond)

eigenvalues = np.linalg.eigvalsh(result.x.T @ (A @ result.x))
expected = np.sort(eigsh(A, k, B, sigma=0.0, return_eigenvectors=False))
print("eigenvalues", eigenvalues)
print("by eigsh   ", expected)
print(f"{plain.nit} iterations, {result.nit} with the preconditioner")
np.testing.assert_allclose(eigenvalues, expected, rtol=1e-8)
assert result.success
assert result.nit < plain.nit
