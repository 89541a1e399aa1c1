"""An optax-shaped ``init``/``update`` pair for orthonormal parameters.

method = stiefel.jax.accelerated(0.1)
state = method.init(params)
updates, state = method.update(grads, state, params, value_fn=loss)
params = params + updates
"""

from stiefel.interop.jax_transform import State, Transformation, accelerated

__all__ = ["State", "Transformation", "accelerated"]
