"""The copying task: memory over a long delay, in JAX

A recurrent network reads a random pattern, then nothing for a while, and is asked for the pattern
at the end. With an orthonormal recurrent matrix the memory neither fades nor explodes, and the
gradient does not either. The same network with a free recurrent matrix and the same Adam of optax
is trained beside it.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import optax

import stiefel.jax

SYMBOLS, LENGTH, DELAY, HIDDEN, BATCH = 4, 3, 30, 64, 64


def initial(key):
    keys = jax.random.split(key, 3)
    return {
        "recurrent": jax.random.normal(keys[0], (HIDDEN, HIDDEN)),
        "input": 0.5 * jax.random.normal(keys[1], (SYMBOLS + 2, HIDDEN)),
        "bias": jnp.zeros(HIDDEN),
        "output": 0.1 * jax.random.normal(keys[2], (HIDDEN, SYMBOLS)),
    }


def batch(key):
    """Pattern, blanks, a question mark, blanks; the answer is the pattern."""
    pattern = jax.random.randint(key, (BATCH, LENGTH), 0, SYMBOLS)
    blank = jnp.full((BATCH, DELAY), SYMBOLS)
    ask = jnp.full((BATCH, 1), SYMBOLS + 1)
    tail = jnp.full((BATCH, LENGTH - 1), SYMBOLS)
    return jnp.concatenate([pattern, blank, ask, tail], axis=1), pattern


def loss(params, key):
    symbols, answer = batch(key)

    def read(h, symbol):
        h = h @ params["recurrent"] + params["input"][symbol]
        h = jnp.sign(h) * jax.nn.relu(jnp.abs(h) + params["bias"])  # modReLU
        return h, h

    _, states = jax.lax.scan(read, jnp.zeros((BATCH, HIDDEN)), symbols.T)
    logits = states[-LENGTH:] @ params["output"]
    return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, answer.T))


marks = {"recurrent": True}  # the others are free
params = stiefel.jax.nearest(initial(jax.random.key(0)), marks)
steps = 300
schedule = optax.cosine_decay_schedule(5e-3, steps)


def train(rule, params, keys):
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), rule)

    def step(carry, key):
        params, state = carry
        value, grads = jax.value_and_grad(loss)(params, key)
        updates, state = optimiser.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), value

    (end, _), values = jax.jit(lambda p, s: jax.lax.scan(step, (p, s), keys))(
        params, optimiser.init(params)
    )
    return end, values


keys = jax.random.split(jax.random.key(1), steps)
_, free = train(optax.adam(schedule), params, keys)
params, values = train(stiefel.jax.adam(schedule, marks), params, keys)
guessing = float(jnp.log(SYMBOLS))
print(f"guessing has the loss {guessing:.3f}")
print(f"after {steps} steps: orthonormal {values[-20:].mean():.3f}, free {free[-20:].mean():.3f}")
W = params["recurrent"]
defect = float(jnp.max(jnp.abs(W.T @ W - jnp.eye(HIDDEN))))
print(f"largest entry of WᵀW − I: {defect:.1e}")
assert float(jnp.mean(values[-20:])) < 0.5 * guessing
assert defect < 1e-6

fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
ax.plot(values, label="orthonormal")
ax.plot(free, label="free", color="0.6")
ax.axhline(guessing, color="k", lw=0.8, ls="--", label="guessing")
ax.set(xlabel="step", ylabel="loss", title=f"recall after {DELAY} steps")
ax.legend()
