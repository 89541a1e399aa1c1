"""A whole solve inside compiled code, and an optax-shaped ``init``/``update`` pair.

solution = jax.jit(jax.vmap(lambda A: stiefel.jax.minimize(lambda X: f(X, A), x0)))(matrices)

method = stiefel.jax.accelerated(0.1)
state = method.init(params)
updates, state = method.update(grads, state, params, value_fn=loss)
params = params + updates
"""

from stiefel.interop.jax_transform import State, Transformation, accelerated

from .batched.jax_solve import Solution, minimize

__all__ = ["Solution", "State", "Transformation", "accelerated", "minimize"]
