"""JAX: a compiled function and a compiled loop

The first part takes gradients by autodiff in double precision. The second part uses the same
method as a pair of functions in the style of optax, inside one compiled loop.
"""

import jax
import jax.numpy as jnp
import numpy as np

import stiefel
import stiefel.jax

jax.config.update("jax_enable_x64", True)  # before the first array is made

spectrum, weights = jnp.arange(1.0, 51.0), jnp.arange(1.0, 4.0)
minimum = 3 * 1 + 2 * 2 + 1 * 3


@jax.jit
def loss(X):
    return jnp.sum(weights * X**2 * spectrum[:, None])


X0 = stiefel.random_point(50, 3, seed=0, like=spectrum)
result = stiefel.minimize(loss, X0, rtol=1e-8)
print(result)
assert isinstance(result.x, jax.Array)
assert result.success and abs(result.fun - minimum) < 1e-9

# The same method as an optax-shaped pair: the whole loop is one compiled program.
method = stiefel.jax.accelerated()


def body(_, carry):
    params, state = carry
    updates, state = method.update(jax.grad(loss)(params), state, params, value_fn=loss)
    return params + updates, state


params, state = jax.jit(lambda p, s: jax.lax.fori_loop(0, 200, body, (p, s)))(X0, method.init(X0))
print("after 200 compiled iterations:", float(loss(params)))
np.testing.assert_allclose(float(loss(params)), minimum, atol=1e-6)
