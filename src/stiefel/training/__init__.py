"""Optimisers for minibatch training, in which orthonormal weights stay orthonormal.

`formulas` is the mathematics, for every array library; ``torch_*`` are the `torch.optim` classes
(public in `stiefel.torch`), ``jax_*`` the optax transformations (public in `stiefel.jax`).
"""
