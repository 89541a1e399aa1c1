"""`stiefel.jax.sgd`, `adam` and `muon`: what a step is, and that weights stay orthonormal."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")
jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402

import stiefel  # noqa: E402
import stiefel.jax  # noqa: E402
from stiefel.jax import Orthonormal  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def _compile_quickly():
    """Compiling takes most of the time here, and optimised code is not faster for small arrays."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


RULES = {
    "sgd": lambda rate, marks: stiefel.jax.sgd(rate, marks, momentum=0.9),
    "adam": stiefel.jax.adam,
    "muon": stiefel.jax.muon,
}
MODEL = {  # shapes and marks; most matrices are 6×3, which keeps compiling short
    "tall": ((6, 3), True),
    "wide": ((3, 6), True),
    "square": ((3, 3), Orthonormal(scale=2.0)),
    "stack": ((2, 6, 3), Orthonormal()),
    "kernel": ((1, 2, 3, 3), Orthonormal(rows=(0, 1, 2), columns=3)),
    "gates": ((18, 3), Orthonormal(blocks=3)),
    "heads": ((6, 2, 3), Orthonormal(rows=0, columns=2)),
    "beside": ((6, 6), Orthonormal(blocks=(1, 2))),
    "vector": ((6,), stiefel.Sphere()),
    "bias": ((4,), None),
}
MARKS = {name: mark for name, (_, mark) in MODEL.items()}


def matrices(params):
    """The matrices that shall have orthonormal columns, cut out by hand."""
    p = {
        name: np.asarray(x, None if x.dtype.itemsize > 2 else np.float32)
        for name, x in params.items()
    }
    return [
        p["tall"],
        p["wide"].conj().T,
        p["square"] / 2,
        *p["stack"],
        p["kernel"].reshape(6, 3),
        *(p["gates"][i : i + 6] for i in (0, 6, 12)),
        *(p["heads"][:, i] for i in (0, 1)),
        *(p["beside"][:, i : i + 3] for i in (0, 3)),
        p["vector"][:, None],
    ]


def worst_defect(params):
    return max(np.abs(X.conj().T @ X - np.eye(X.shape[1])).max() for X in matrices(params))


def normal(rng, shape, dtype):
    A = rng.standard_normal(shape)
    return jnp.asarray(A + 1j * rng.standard_normal(shape) if dtype == jnp.complex128 else A, dtype)


def model(dtype=jnp.float64, seed=0):
    rng = np.random.default_rng(seed)
    return {name: normal(rng, shape, dtype) for name, (shape, _) in MODEL.items()}


def start(dtype=jnp.float64):
    return jax.jit(lambda p: stiefel.jax.nearest(p, MARKS))(model(dtype))


def distance(targets):
    """A quadratic loss whose Euclidean gradient is params − targets."""
    return lambda p: sum(
        0.5 * jnp.sum(jnp.abs(x - t) ** 2)
        for x, t in zip(jax.tree.leaves(p), jax.tree.leaves(targets), strict=True)
    )


def train(optimiser, params, loss, steps):
    def body(carry, _):
        params, state = carry
        updates, state = optimiser.update(jax.grad(loss)(params), state, params)
        return (optax.apply_updates(params, updates), state), None

    run = jax.jit(lambda p: jax.lax.scan(body, (p, optimiser.init(p)), length=steps)[0])
    return run(params)


# -- what a step is ------------------------------------------------------------------------------


def project(X, G):
    S = X.conj().T @ G
    return G - X @ (S + S.conj().T) / 2


def retract(X, V):
    U, _, Vh = np.linalg.svd(X + V, full_matrices=False)
    return U @ Vh


def sgd_by_hand(X, G, M, v, t, dampening=0.3):
    M = 0.9 * project(X, M) + (1 - dampening * (t > 1)) * project(X, G)
    return project(X, G) + 0.9 * M, M, v


def adam_by_hand(X, G, M, v, t):
    g = project(X, G)
    M = 0.9 * project(X, M) + 0.1 * g
    v = 0.999 * v + 0.001 * np.abs(g) ** 2
    D = M / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return project(X, D) / np.sqrt(len(X)), M, v


def muon_by_hand(X, G, M, v, t):
    """The sign of a skew matrix from its eigenvalues, which are imaginary."""
    g = project(X, G)
    M = 0.95 * project(X, M) + g
    D = g + 0.95 * M
    S = X.conj().T @ D - D.conj().T @ X
    values, vectors = np.linalg.eigh(-1j * S)
    sign = 1j * (vectors * np.sign(values)) @ vectors.conj().T
    return X @ (sign if np.iscomplexobj(X) else sign.real), M, v


BY_HAND = {
    "sgd": (
        sgd_by_hand,
        lambda rate, marks: stiefel.jax.sgd(
            rate, marks, momentum=0.9, dampening=0.3, nesterov=True
        ),
    ),
    "adam": (adam_by_hand, stiefel.jax.adam),
    "muon": (muon_by_hand, stiefel.jax.muon),
}


@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
@pytest.mark.parametrize("name", BY_HAND)
def test_a_step_is_the_rule_on_the_manifold(name, dtype):
    """Against NumPy with singular and eigenvalue decompositions; Muon's sign has 0.5 %."""
    rule, make = BY_HAND[name]
    shape = (6, 6) if name == "muon" else (7, 3)
    rng = np.random.default_rng(1)
    X = np.asarray(stiefel.jax.nearest(normal(rng, shape, dtype), True))
    optimiser, params = make(0.05, True), jnp.asarray(X)
    state, step = optimiser.init(params), jax.jit(optimiser.update)
    M, v = np.zeros_like(X), 0.0
    for t in range(1, 6):
        G = 0.3 * np.asarray(normal(rng, shape, dtype))  # long steps are made shorter
        D, M, v = rule(X, G, M, v, t)
        X = retract(X, -0.05 * D)
        updates, state = step(jnp.conj(jnp.asarray(G)), state, params)  # as jax.grad gives it
        params = optax.apply_updates(params, updates)
    np.testing.assert_allclose(params, X, atol=4e-3 if name == "muon" else 1e-12)


def test_free_parameters_follow_the_ordinary_rules():
    params = {"X": stiefel.jax.nearest(jnp.asarray(np.random.default_rng(0).random((4, 2))), True)}
    params |= {"b": jnp.linspace(0.5, 1.0, 6, dtype=jnp.float32), "c": jnp.ones((2, 3))}
    target = jax.tree.map(jnp.zeros_like, params)
    marks = {"X": True}
    nesterov = {"momentum": 0.9, "nesterov": True}
    pairs = [
        (stiefel.jax.sgd(0.1, marks, **nesterov), optax.sgd(0.1, **nesterov)),
        (stiefel.jax.adam(0.1, marks, weight_decay=0.1), optax.adamw(0.1, weight_decay=0.1)),
        (
            stiefel.jax.muon(0.1, marks, free_lr_factor=2.0),
            optax.adamw(0.2, b2=0.95, weight_decay=0.0),
        ),
    ]
    for ours, theirs in pairs:
        given, _ = train(ours, params, distance(target), 5)
        expected, _ = train(theirs, params, distance(target), 5)
        for name in ("b", "c"):
            np.testing.assert_array_equal(given[name], expected[name])
            assert given[name].dtype == params[name].dtype


def test_dampening_and_decay_of_free_parameters_are_those_of_pytorch():
    torch = pytest.importorskip("torch")
    options = {"momentum": 0.9, "dampening": 0.4, "weight_decay": 0.2}
    p = torch.nn.Parameter(torch.linspace(0.5, 1.0, 6, dtype=torch.float64))
    theirs = torch.optim.SGD([p], lr=0.1, **options)
    for _ in range(5):
        theirs.zero_grad()
        (0.5 * p @ p).backward()
        theirs.step()
    params = {"b": jnp.linspace(0.5, 1.0, 6)}
    ours = stiefel.jax.sgd(0.1, False, **options)
    given, _ = train(ours, params, lambda p: 0.5 * p["b"] @ p["b"], 5)
    np.testing.assert_allclose(given["b"], p.detach().numpy(), rtol=1e-14)


# -- weights stay orthonormal --------------------------------------------------------------------


ALLOWED = {jnp.float64: 1e-14, jnp.complex128: 1e-14, jnp.float32: 1e-6, jnp.bfloat16: 2e-2}
PRECISIONS = [
    ("adam", jnp.float64),
    ("adam", jnp.bfloat16),
    ("sgd", jnp.float32),
    ("muon", jnp.complex128),
]


@pytest.mark.parametrize(("name", "dtype"), PRECISIONS)
def test_every_view_in_every_precision_is_trained(name, dtype):
    params, targets = start(dtype), model(jnp.float64, seed=7)
    targets["tall"] = 3 * model(jnp.float64, seed=8)["tall"]  # long steps
    loss = distance(targets)
    after, _ = train(RULES[name](0.02, MARKS), params, loss, 300)
    assert jax.tree.map(lambda x: (x.dtype, x.shape), after) == jax.tree.map(
        lambda x: (x.dtype, x.shape), params
    )
    assert worst_defect(after) < ALLOWED[dtype]
    best = loss(stiefel.jax.nearest(targets, MARKS) | {"bias": targets["bias"]})
    assert abs(float(loss(after) - best)) < 0.05 * float(loss(params) - best)


LONG = [
    *(pytest.param(name, 5_000) for name in RULES),
    *(pytest.param(name, 100_000, marks=pytest.mark.slow) for name in RULES),
]


@pytest.mark.parametrize(("name", "steps"), LONG)
def test_nothing_drifts(name, steps):
    """Noise for gradients; weights in float32 and in bfloat16, with masters in float32."""
    low_marks = {"f": True, "b": True}
    rng = np.random.default_rng(3)
    f = stiefel.jax.nearest(jnp.asarray(rng.standard_normal((8, 4)), jnp.float32), True)
    params = {"f": f, "b": f.astype(jnp.bfloat16)}
    optimiser = RULES[name](0.02, low_marks)

    def body(carry, key):
        params, state = carry
        master = params["b"].astype(jnp.float32) + state.low["b"]
        wrong = lambda X: jnp.max(jnp.abs(X.mT @ X - jnp.eye(4, dtype=jnp.float32)))
        found = [wrong(X) for X in (params["f"], master, params["b"].astype(jnp.float32))]
        G = jax.random.normal(key, (8, 4), jnp.float32)
        grads = {"f": G, "b": G.astype(jnp.bfloat16)}
        updates, state = optimiser.update(grads, state, params)
        return (optax.apply_updates(params, updates), state), jnp.stack(found)

    keys = jax.random.split(jax.random.key(0), steps)
    run = jax.jit(lambda p, s: jax.lax.scan(body, (p, s), keys))
    (after, _), defects = run(params, optimiser.init(params))
    single, master, low = np.asarray(jnp.max(defects[10:], axis=0))  # the start is rounded
    assert single < 1e-6 and master < 1e-6 and low < 2e-2
    assert np.abs(np.asarray(after["f"] - params["f"])).max() > 0.1  # it has moved


@pytest.mark.parametrize("name", RULES)
def test_small_steps_are_not_lost_in_bfloat16(name):
    """Steps of 1e-5 are below the rounding of bfloat16: the masters collect them."""
    rng = np.random.default_rng(0)
    target = {"X": jnp.asarray(rng.standard_normal((6, 3)), jnp.float32), "b": jnp.ones(3)}
    b16 = {"X": stiefel.jax.nearest(target["X"][::-1], True), "b": jnp.full(3, 2.0, jnp.float32)}
    b16 = jax.tree.map(lambda x: x.astype(jnp.bfloat16), b16)
    b32 = jax.tree.map(lambda x: x.astype(jnp.float32), b16)
    rate = {"sgd": 1e-6, "adam": 3e-5, "muon": 3e-5}[name]
    optimiser = RULES[name](rate, {"X": True})
    linear = lambda p: sum(jnp.sum(p[i] * target[i]) for i in p)  # the same gradient everywhere
    (low, state), (high, _) = (train(optimiser, p, linear, 1000) for p in (b16, b32))
    moved = jax.tree.map(lambda a, b: float(jnp.max(jnp.abs(a - b))), high, b32)
    for i in ("X", "b"):
        master = low[i].astype(jnp.float32) + state.low[i]
        np.testing.assert_allclose(master, high[i], atol=0.02 * moved[i])
        assert moved[i] > 1e-3


def test_the_parameters_are_what_counts():
    """Weights in bfloat16 that were loaded from elsewhere are trained from where they are."""
    target = jnp.asarray(np.random.default_rng(0).standard_normal((6, 3)), jnp.float32)
    optimiser = stiefel.jax.sgd(0.0, True)
    first, other = (
        stiefel.jax.nearest(x, True).astype(jnp.bfloat16) for x in (target, target[::-1])
    )
    _, state = train(optimiser, first, distance(target), 3)
    updates, _ = optimiser.update(jnp.zeros_like(other), state, other)
    moved = jnp.abs(optax.apply_updates(other, updates) - other).astype(jnp.float32)
    assert float(jnp.max(moved)) <= 2**-7


# -- derivatives ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RULES)
def test_derivatives_pass_through_training(name):
    params = {"X": start()["square"] / 2, "b": jnp.zeros(3)}
    target = {"X": model(seed=4)["square"], "b": jnp.zeros(3)}  # a gradient that is exactly zero

    @jax.jit
    def final(rate):
        optimiser = RULES[name](rate, {"X": True})
        state, p = optimiser.init(params), params
        for _ in range(3):
            updates, state = optimiser.update(jax.grad(distance(target))(p), state, p)
            p = optax.apply_updates(p, updates)
        return distance(target)(p)

    h = 1e-6
    quotient = (final(0.05 + h) - final(0.05 - h)) / (2 * h)
    np.testing.assert_allclose(jax.jit(jax.grad(final))(0.05), quotient, rtol=1e-5)


@pytest.mark.parametrize("name", RULES)
def test_a_missing_gradient_has_a_derivative(name):
    X = start(jnp.float32)["tall"]
    optimiser = RULES[name](0.1, True)

    def moved(strength):
        updates, _ = optimiser.update(strength * X[::-1], optimiser.init(X), X)
        return jnp.sum(updates**2)

    both = jax.jit(jax.value_and_grad(moved))
    for strength in (0.0, 1e-30, 1e-15, 1.0):
        value, slope = both(jnp.float32(strength))
        assert np.isfinite(value) and np.isfinite(slope)
        assert (float(value) > 1e-11) == (strength == 1.0 or (name == "muon" and strength > 0))
