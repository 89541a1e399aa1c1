"""Parameters whose rows are on two (virtual) devices; started by `test_training_optax.py`."""

import os

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import re

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import NamedSharding, PartitionSpec

from stiefel.jax import adam, muon, nearest, sgd

mesh = jax.sharding.Mesh(np.array(jax.devices()), ("rows",))
rows = NamedSharding(mesh, PartitionSpec("rows", None))
assert len(jax.devices()) == 2

N, K = 64, 4
rng = np.random.default_rng(0)
names = ("a", "b", "c")  # of one shape: they are stepped as one stack
params = {n: jnp.asarray(rng.standard_normal((N, K)), jnp.float32) for n in names}
goal = {n: jnp.asarray(rng.standard_normal((N, K)), jnp.float32) for n in names}
params = nearest(params, True)


def run(optimiser, params, goal):
    loss = lambda p: sum(jnp.sum((p[n] - goal[n]) ** 2) for n in names)

    def step(params, state):
        updates, state = optimiser.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    state = jax.jit(optimiser.init)(params)
    compiled = jax.jit(step).lower(params, state).compile()
    for _ in range(4):
        params, state = compiled(params, state)
    return params, state, compiled.as_text()


for make in (
    lambda: sgd(0.05, True, momentum=0.9),
    lambda: adam(0.05, True),
    lambda: muon(0.05, True),
):
    spread, state, text = run(make(), *(jax.device_put(t, rows) for t in (params, goal)))
    one, _, _ = run(make(), params, goal)
    for n in names:
        assert spread[n].sharding.is_equivalent_to(rows, 2), spread[n].sharding
        np.testing.assert_allclose(spread[n], one[n], atol=1e-5)
    momentum = state.inner.inner_states["orthonormal"].inner_state.momentum
    assert momentum["a"].sharding.is_equivalent_to(rows, 2), momentum["a"].sharding
    moved = re.findall(r"= \(?\w+\[([\d,]*)\]\S* (all-gather|all-to-all|collective-permute)", text)
    for shape, operation in moved:
        size = np.prod([int(s) for s in shape.split(",") if s])
        assert size < N * K / 2, f"{operation} of {shape}"
    assert " all-reduce(" in text
