"""A two-qubit gate from three entangling gates: many random starts in one compiled call.

The circuit alternates local gates, unitary 2×2 matrices on each qubit, with CNOT.  Its distance
from a random target is a function of eight unitary matrices with many local minima: `jax.vmap`
runs the solver from every start at once.
"""

import jax
import jax.numpy as jnp
import numpy as np

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
