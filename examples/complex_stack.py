"""Orbitals at several k-points: a complex stack

A Kohn–Sham-like energy E = Σ_k w_k Re Tr C_kᴴH_kC_k + (a/2) Σ_i ρ_i² with one orbital matrix for
each k-point. The density couples the k-points, so that they are one problem; the stack is one
array. At the end NumPy's `eigvalsh` confirms that the orbitals are the lowest of their own
Hamiltonian.
"""

import numpy as np

import stiefel

points, n, occupied, a = 4, 40, 3, 2.0
weights = np.full(points, 1.0 / points)

# A ring of sites in a weak potential: hopping carries the phase of the k-point.
H = np.zeros((points, n, n), dtype=complex)
for k in range(points):
    phase = np.exp(2j * np.pi * k / (points * n))
    H[k] += np.diag(2.0 + 0.3 * np.cos(2 * np.pi * np.arange(n) / n))
    H[k] -= phase * np.roll(np.eye(n), 1, axis=1)
    H[k] -= np.conj(phase) * np.roll(np.eye(n), -1, axis=1)


def energy(C):
    HC = H @ C
    density = np.einsum("k,kij->i", weights, np.abs(C) ** 2)
    kinetic = np.einsum("k,kij,kij->", weights, C.conj(), HC).real
    # f(X+H) = f(X) + Re⟨G, H⟩: twice the derivative with respect to conj(C).
    G = 2 * weights[:, None, None] * (HC + a * density[:, None] * C)
    return kinetic + 0.5 * a * density @ density, G


C0 = stiefel.random_point(points, n, occupied, seed=0, dtype=complex)
print(stiefel.check_gradient(energy, C0))
result = stiefel.minimize(energy, C0, manifold=stiefel.Grassmann(), rtol=1e-8)
print(result)

# The solution is self-consistent: its orbitals are the lowest of their own Hamiltonian.
density = np.einsum("k,kij->i", weights, np.abs(result.x) ** 2)
for k in range(points):
    full = H[k] + a * np.diag(density)
    inside = np.linalg.eigvalsh(result.x[k].conj().T @ full @ result.x[k])
    np.testing.assert_allclose(inside, np.linalg.eigvalsh(full)[:occupied], atol=1e-6)
assert result.success
assert result.x.dtype == complex
