"""A whole solve inside compiled code, and training of models with orthonormal parameters.

solution = jax.jit(jax.vmap(lambda A: stiefel.jax.minimize(lambda X: f(X, A), x0)))(matrices)

optimiser = stiefel.jax.adam(1e-3, orthonormal=lambda path, p: path.endswith("rotation/kernel"))
state = optimiser.init(params)
updates, state = optimiser.update(grads, state, params)
params = optax.apply_updates(params, updates)
"""

from stiefel.batched.jax_solve import Solution, minimize
from stiefel.training.jax_accelerated import State, Transformation, accelerated
from stiefel.training.jax_marks import Orthonormal, nearest
from stiefel.training.jax_rules import adam, muon, sgd

__all__ = [
    "Orthonormal",
    "Solution",
    "State",
    "Transformation",
    "accelerated",
    "adam",
    "minimize",
    "muon",
    "nearest",
    "sgd",
]
