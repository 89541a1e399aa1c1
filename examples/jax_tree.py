"""A tree of JAX arrays, some orthonormal

The unknowns are an orthonormal dictionary and free coefficients. Gradients come from JAX. The
singular value decomposition has the same minimum and serves as a check.
"""

import jax
import jax.numpy as jnp
import numpy as np

import stiefel

jax.config.update("jax_enable_x64", True)
data = jnp.asarray(np.random.default_rng(0).standard_normal((20, 50)))


@jax.jit
def loss(p):
    return jnp.sum((data - p["D"] @ p["A"]) ** 2) + 0.1 * jnp.sum(p["A"] ** 2)


start = {"D": jnp.asarray(stiefel.random_point(20, 4, seed=0)), "A": jnp.zeros((4, 50)) + 0.1}
result = stiefel.minimize(loss, start, manifold={"D": stiefel.Stiefel()})  # A is free

print(result)
assert result.success
s = np.linalg.svd(data)[1]
assert np.isclose(result.fun, np.sum(s**2) - np.sum(s[:4] ** 2) / 1.1)
