"""Rows of X on two (virtual) devices: the compiled kernels must never gather a tall matrix.

Started by `test_jax_sharded.py` in a process of its own, because the number of devices is fixed
when JAX starts.
"""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

import stiefel
from stiefel.backends.jax import JaxKernels

jax.config.update("jax_enable_x64", True)

N, K = 64, 3
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("rows",))
rows = NamedSharding(mesh, PartitionSpec("rows", None))
assert len(jax.devices()) == 2

used = {}
original = JaxKernels.run


def noted(self, function, *arguments):
    used.setdefault(function, (self, arguments))
    return original(self, function, *arguments)


JaxKernels.run = noted

X0 = stiefel.random_point(N, K, seed=0)
a, d = np.linspace(1.0, 3.0, N)[:, None], np.arange(1.0, K + 1)
A = jax.device_put(a, rows)


def energy(X):
    return 0.5 * jnp.sum(A * X * X * d)


for method in ("accelerated", "accelerated-gradient-restart", "lbfgs"):
    spread = stiefel.minimize(energy, jax.device_put(X0, rows), method=method, maxiter=8)
    one = stiefel.minimize(
        lambda X: (0.5 * np.vdot(X, a * X * d), a * X * d), X0, method=method, maxiter=8
    )
    assert spread.x.sharding.is_equivalent_to(rows, 2), spread.x.sharding
    assert abs(spread.fun - one.fun) < 1e-10 and spread.nit == one.nit
    assert np.abs(np.asarray(spread.x) - one.x).max() < 1e-10

reductions = 0
for function, (kernels, arguments) in used.items():
    tall = [x for x in jax.tree.leaves(arguments) if getattr(x, "shape", ())[-2:] == (N, K)]
    if not tall:
        continue
    text = jax.jit(partial(kernels._apply, function)).lower(None, *arguments).compile().as_text()
    moved = re.findall(
        r"= \(?(\w+)\[([\d,]*)\]\S* (all-gather|all-to-all|collective-permute)", text
    )
    for _, shape, operation in moved:
        size = np.prod([int(s) for s in shape.split(",") if s])
        assert size < N * K / 2, f"{function.__name__}: {operation} of {shape}"
    found = len(re.findall(r" all-reduce\(", text))
    reductions += found
    print(f"{function.__name__}: {found} all-reduce, moved {moved}")
assert reductions > 0 and len(used) >= 4, used
