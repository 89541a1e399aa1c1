"""Kohn–Sham orbitals by finite differences, with a preconditioner

Six pairs of electrons in one dimension, in the field of six soft nuclei: kinetic energy, external
potential, Hartree energy and a local exchange term. The energy depends on the span of the
orbitals only, so that the manifold is `Grassmann()`. Every evaluation is counted; the usual
self-consistent iteration diagonalises the Hamiltonian in each cycle and needs a mixing parameter.
"""

import matplotlib.pyplot as plt
import numpy as np
import scipy.linalg
import scipy.sparse as sparse

import stiefel
from stiefel.preconditioners import QuadraticPreconditioner

n, box, k = 300, 24.0, 6
h = box / (n + 1)
x = h * np.arange(1, n + 1)
centres = 2.0 + 4.0 * np.arange(6)
soft = lambda a, b: 1 / np.sqrt((a - b) ** 2 + 1.0)
V = -2.0 * sum(soft(x, c) for c in centres)
repulsion = h * soft(x[:, None], x)
T = sparse.diags_array([-0.5, 1.0, -0.5], offsets=[-1, 0, 1], shape=(n, n)).tocsc() / h**2


def potential(X):
    density = 2 * np.sum(X**2, axis=1) / h
    return density, V + repulsion @ density - np.cbrt(density)


def energy(X):
    density, v = potential(X)
    TX = T @ X
    hartree = 0.5 * h * density @ (repulsion @ density)
    exchange = -0.75 * h * np.sum(density ** (4 / 3))
    return 2 * np.vdot(X, TX) + h * density @ V + hartree + exchange, 4 * (TX + v[:, None] * X)


manifold = stiefel.Grassmann()
factor = sparse.linalg.splu(4 * (T + 2.0 * sparse.eye_array(n, format="csc")))
precond = QuadraticPreconditioner(factor.solve, manifold)
X0 = scipy.linalg.eigh(T.toarray() + np.diag(V), subset_by_index=(0, k - 1))[1]
plain = stiefel.minimize(energy, X0, manifold=manifold, method="lbfgs")
result = stiefel.minimize(energy, X0, manifold=manifold, method="lbfgs", precond=precond)
assert result.success and result.nfev < plain.nfev

X, v, cycles = X0, potential(X0)[1], 0
while cycles < 200:  # self-consistent iteration with 20 % mixing of the potential
    v = 0.8 * v + 0.2 * potential(X)[1]
    X = scipy.linalg.eigh(T.toarray() + np.diag(v), subset_by_index=(0, k - 1))[1]
    cycles += 1
    if abs(energy(X)[0] - result.fun) < 1e-8 * abs(result.fun):
        break
print(f"L-BFGS {plain.fun:.8f} in {plain.nfev} evaluations")
print(f"with the preconditioner {result.fun:.8f} in {result.nfev} evaluations")
print(f"self-consistent iteration {energy(X)[0]:.8f} after {cycles} diagonalisations")

fig, ax = plt.subplots(figsize=(5.4, 3), layout="constrained")
ax.plot(x, potential(result.x)[0], label="density")
ax.plot(x, V / 10, color="0.6", label="potential / 10")
ax.set(xlabel="x", title="Kohn–Sham in one dimension")
ax.legend()
