"""Training of models with orthonormal parameters in JAX, as transformations of optax.

optimiser = stiefel.jax.adam(1e-3, orthonormal=lambda path, p: path.endswith("rotation/kernel"))
state = optimiser.init(params)
updates, state = optimiser.update(grads, state, params)
params = optax.apply_updates(params, updates)
"""

from stiefel.interop.jax_transform import State, Transformation, accelerated
from stiefel.training.jax_marks import Orthonormal, nearest
from stiefel.training.jax_rules import adam, muon, sgd

__all__ = [
    "Orthonormal",
    "State",
    "Transformation",
    "accelerated",
    "adam",
    "muon",
    "nearest",
    "sgd",
]
