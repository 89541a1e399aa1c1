"""A quantum gate from a circuit, from many starts at once

The circuit alternates local gates, unitary 2×2 matrices on each qubit, with CNOT. Its distance
from a random target is a function of eight unitary matrices that is not convex: one start gives no
certainty, so `jax.vmap` runs the solver from every start at once. Writing each gate by three Euler
angles and minimising with SciPy, the usual way, solves one start after the other.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import scipy.optimize

import stiefel
import stiefel.jax

jax.config.update("jax_enable_x64", True)

CNOT = jnp.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]], dtype=complex)
layers, starts = 4, 32

target = stiefel.Stiefel().random(4, 4, seed=7, dtype=complex)
target = jnp.asarray(target)


def circuit(gates):
    """gates (layers, 2, 2, 2): one unitary matrix for each layer and qubit."""
    total = jnp.eye(4, dtype=complex)
    for layer in range(layers):
        local = jnp.kron(gates[layer, 0], gates[layer, 1])
        total = local @ (total if layer == 0 else CNOT @ total)
    return total


def infidelity(gates):
    """1 − |Tr UᴴV|²/16: zero if the gates agree up to a phase."""
    overlap = jnp.sum(jnp.conj(target) * circuit(gates))
    return 1.0 - (overlap.real**2 + overlap.imag**2) / 16.0


def solve(start):
    return stiefel.jax.minimize(
        infidelity, start, manifold=stiefel.SpecialOrthogonal(), gtol=1e-7, rtol=0.0, maxiter=500
    )


points = stiefel.Stiefel().random(starts, layers, 2, 2, 2, seed=1, dtype=complex)
found = jax.jit(jax.vmap(solve))(jnp.asarray(points))
best = int(jnp.argmin(found.fun))
print("infidelities:", np.sort(np.asarray(found.fun))[:8])
print(f"{int(jnp.sum(found.fun < 1e-10))} of {starts} starts reach the target exactly")
print("status of the best:", stiefel.Status(int(found.status[best])))
assert float(found.fun[best]) < 1e-10


def gate(a):  # Rz Ry Rz
    z = lambda t: jnp.diag(jnp.exp(jnp.array([-0.5j, 0.5j]) * t))
    c, s = jnp.cos(a[1] / 2), jnp.sin(a[1] / 2)
    return z(a[0]) @ jnp.array([[c, -s], [s, c]]) @ z(a[2])


in_angles = jax.jit(
    jax.value_and_grad(
        lambda a: infidelity(jax.vmap(jax.vmap(gate))(a.reshape(layers, 2, 3)).astype(complex))
    )
)
angles = np.random.default_rng(0).uniform(0, 2 * np.pi, (starts, layers * 6))
scipy_runs = [scipy.optimize.minimize(in_angles, a, jac=True, method="L-BFGS-B") for a in angles]
reached = sum(run.fun < 1e-7 for run in scipy_runs)
print(f"scipy in Euler angles: {reached} of {starts} starts come within 1e-7, one after the other")

fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
ax.semilogy(np.sort(np.maximum(found.fun, 1e-16)), "o", ms=4, label="stiefel.jax.minimize")
ends = np.sort([max(run.fun, 1e-16) for run in scipy_runs])
ax.semilogy(ends, "x", ms=4, color="0.5", label="scipy, Euler angles")
ax.set(xlabel="start (sorted)", title="infidelity at the end")
ax.legend()
