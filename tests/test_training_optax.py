"""`stiefel.jax.sgd`, `adam` and `muon` inside optax, and on the trees of flax and Equinox."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")
jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402

import stiefel  # noqa: E402
import stiefel.jax  # noqa: E402
from stiefel.jax import Orthonormal, adam, muon, nearest, sgd  # noqa: E402


@pytest.fixture(autouse=True, scope="module")
def _compile_quickly():
    """Compiling takes most of the time here, and optimised code is not faster for small arrays."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


MARKS = {"layers": [{"W": True}, {"W": True}]}
BY_PATH = lambda path, parameter: path.endswith("W")


def params_at(seed=0, dtype=jnp.float32):
    rng = np.random.default_rng(seed)
    layer = lambda: {
        "W": jnp.asarray(rng.standard_normal((5, 3)), dtype),
        "b": jnp.asarray(rng.standard_normal(3), dtype),
    }
    return {"layers": [layer(), layer()]}


START = nearest(params_at(), MARKS)
GOAL = params_at(1)


def loss(params, goal=GOAL):
    pairs = zip(jax.tree.leaves(params), jax.tree.leaves(goal), strict=True)
    return sum(0.5 * jnp.sum((x - t) ** 2) for x, t in pairs)


def stepper(optimiser, loss=loss):
    @jax.jit
    def step(params, state):
        updates, state = optimiser.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    return step


def after(optimiser, steps=6, params=START):
    state, step = jax.jit(optimiser.init)(params), stepper(optimiser)  # a traced init
    for _ in range(steps):
        params, state = step(params, state)
    return params


def same(given, expected, atol=5e-6):
    jax.tree.map(partial(np.testing.assert_allclose, atol=atol), given, expected)


def defect(params):
    return max(
        float(jnp.max(jnp.abs(layer["W"].T @ layer["W"] - jnp.eye(3))))
        for layer in params["layers"]
    )


PLAIN = after(adam(0.03, MARKS))


# -- marks ---------------------------------------------------------------------------------------


def test_marks_by_path_are_marks_by_tree():
    same(after(adam(0.03, BY_PATH)), PLAIN)
    assert defect(PLAIN) < 1e-6
    assert not np.allclose(PLAIN["layers"][0]["b"], START["layers"][0]["b"])


def test_misuse_is_named():
    init = lambda marks, params=START: adam(0.1, marks).init(params)
    with pytest.raises(ValueError, match=r"'layers/0/V', and no parameter has this path"):
        init({"layers": [{"V": True}]})
    with pytest.raises(ValueError, match="marks none of the parameters layers/0/W, layers/0/b"):
        init(lambda path, p: path.endswith("kernel"))
    with pytest.raises(ValueError, match=r"'layers/0/b' of shape \(3,\) is marked True"):
        init(True)
    with pytest.raises(ValueError, match=r"'layers/0/W' of shape \(5, 3\) is not orthonormal.*nea"):
        init(MARKS, params_at())
    with pytest.raises(TypeError, match=r"Grassmann.* expected True, False, None"):
        init({"layers": [{"W": stiefel.Grassmann()}]})
    with pytest.raises(ValueError, match=r"has shape \(3,\), and no axis 2"):
        init({"layers": [{"b": Orthonormal(rows=0, columns=2)}]})
    with pytest.raises(
        ValueError, match=r"5 rows and 3 columns, which do not divide into blocks=2"
    ):
        init({"layers": [{"W": Orthonormal(blocks=2)}]})
    with pytest.raises(ValueError, match="different axes"):
        init({"layers": [{"W": Orthonormal(rows=0, columns=-2)}]})
    with pytest.raises(ValueError, match="no nearest orthonormal point"):
        nearest(jnp.ones((3, 2)), True)
    with pytest.raises(ValueError, match="scale is -1"):
        Orthonormal(scale=-1)
    with pytest.raises(ValueError, match="second_moment='row' is none of"):
        adam(0.1, MARKS, second_moment="row")
    with pytest.raises(ValueError, match="update\\(grads, state, params\\)"):
        adam(0.1, MARKS).update(START, init(MARKS))
    with pytest.raises(TypeError, match="int32; expected a floating"):
        init(True, jnp.eye(3, dtype=jnp.int32))


# -- inside optax --------------------------------------------------------------------------------


def test_schedules_and_injected_hyperparameters():
    schedule = optax.exponential_decay(0.03, 2, 0.5)
    by_schedule = after(adam(schedule, BY_PATH))
    inject = optax.inject_hyperparams(adam, static_args="orthonormal")
    same(after(inject(schedule, BY_PATH)), by_schedule)

    optimiser = inject(learning_rate=1.0, orthonormal=BY_PATH, b1=0.9)
    state, params, step = optimiser.init(START), START, stepper(optimiser)
    for i in range(6):
        state.hyperparams["learning_rate"] = schedule(i)
        params, state = step(params, state)
    same(params, by_schedule)
    for make in (partial(sgd, momentum=0.9), muon):
        wrapped = optax.inject_hyperparams(make, static_args="orthonormal")(0.03, BY_PATH)
        same(after(wrapped, 3), after(make(0.03, BY_PATH), 3))


def test_chain_masked_partition_and_steps_that_collect_gradients():
    clipped = after(optax.chain(optax.clip_by_global_norm(0.5), sgd(0.03, MARKS)))
    assert defect(clipped) < 1e-6 and not np.allclose(
        clipped["layers"][0]["W"], PLAIN["layers"][0]["W"]
    )

    first = {"layers": [{"W": True, "b": True}, {"W": False, "b": False}]}
    frozen = optax.chain(
        optax.masked(adam(0.03, MARKS), first),
        optax.masked(optax.set_to_zero(), jax.tree.map(lambda on: not on, first)),
    )
    given = after(frozen)
    same(given["layers"][0], PLAIN["layers"][0])
    same(given["layers"][1], START["layers"][1], atol=0)

    labels = {"layers": [{"W": "a", "b": "c"}, {"W": "b", "b": "c"}]}
    parts = {"a": adam(0.03, MARKS), "b": muon(0.03, BY_PATH), "c": optax.adam(0.03)}
    given = after(optax.multi_transform(parts, labels))
    same(given["layers"][0], PLAIN["layers"][0])
    assert defect(given) < 1e-6

    collected = after(optax.MultiSteps(adam(0.03, MARKS), 3).gradient_transformation(), 18)
    same(collected, PLAIN)  # each gradient three times


def test_a_batch_that_is_not_finite_can_be_left_out():
    optimiser = optax.apply_if_finite(adam(0.03, MARKS), max_consecutive_errors=5)
    state, params = optimiser.init(START), START
    good, bad = stepper(optimiser), stepper(optimiser, lambda p: jnp.nan * loss(p))
    for _ in range(6):
        params, state = good(*bad(params, state))
    same(params, PLAIN)


def test_many_problems_at_once():
    starts = jax.tree.map(lambda x: jnp.stack([x, x[::-1], -x]), START)
    optimiser = muon(0.03, MARKS)
    together = jax.jit(jax.vmap(partial(after, optimiser, 3)))(starts)
    for i in range(3):
        one = after(optimiser, 3, jax.tree.map(lambda x: x[i], starts))
        same(jax.tree.map(lambda x: x[i], together), one)


def test_the_state_is_a_tree_that_optax_can_read():
    optimiser = adam(0.03, MARKS)
    shapes = jax.eval_shape(optimiser.init, START)
    state = optimiser.init(START)
    assert jax.tree.structure(shapes) == jax.tree.structure(state)
    momentum = optax.tree_utils.tree_get(state, "momentum")
    assert momentum["layers"][0]["W"].shape == (5, 3)
    doubled = optax.tree_utils.tree_map_params(optimiser, lambda x: 2 * x + 1, state)
    changed = optax.tree_utils.tree_get(doubled, "momentum")
    assert float(changed["layers"][0]["W"][0, 0]) == 1.0
    flat, structure = jax.tree.flatten(state)
    resumed = stepper(optimiser)(START, structure.unflatten(flat))[0]
    same(resumed, after(optimiser, 1), atol=0)


# -- the trees of others -------------------------------------------------------------------------


def test_equinox():
    eqx = pytest.importorskip("equinox")
    keys = jax.random.split(jax.random.key(0), 3)
    model = eqx.nn.MLP(4, 2, 6, 2, key=keys[0], dtype=jnp.float32)
    marks = lambda path, p: path == "layers/1/weight"
    params, static = eqx.partition(model, eqx.is_inexact_array)
    model = eqx.combine(nearest(params, marks), static)
    x, y = (
        jax.random.normal(k, (16, n), jnp.float32) for k, n in zip(keys[1:], (4, 2), strict=True)
    )
    optimiser = adam(0.02, marks)
    state = optimiser.init(eqx.filter(model, eqx.is_inexact_array))
    value = lambda m: jnp.mean((jax.vmap(m)(x) - y) ** 2)

    @eqx.filter_jit
    def step(model, state):
        grads = eqx.filter_grad(value)(model)
        updates, state = optimiser.update(grads, state, eqx.filter(model, eqx.is_inexact_array))
        return eqx.apply_updates(model, updates), state

    before = float(value(model))
    for _ in range(60):
        model, state = step(model, state)
    W = model.layers[1].weight
    np.testing.assert_allclose(W @ W.T, np.eye(6), atol=1e-6)
    assert W.dtype == jnp.float32 and float(value(model)) < 0.6 * before
    # a tree of marks is a model with marks for leaves
    spec = eqx.tree_at(lambda m: m.layers[1].weight, jax.tree.map(lambda _: False, params), True)
    params = eqx.filter(model, eqx.is_inexact_array)
    assert str(sgd(0.1, spec).init(params)) == str(sgd(0.1, marks).init(params))


def test_flax():
    nn = pytest.importorskip("flax.linen")

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            x = nn.tanh(nn.Dense(6, param_dtype=jnp.float32)(x))
            x = nn.Conv(4, (3,), param_dtype=jnp.float32)(x[..., None])  # a kernel (3, 1, 4)
            return nn.Dense(1, param_dtype=jnp.float32)(x.reshape(x.shape[0], -1))

    x = jax.random.normal(jax.random.key(1), (16, 6), jnp.float32)
    net = Net()
    marks = lambda path, p: {
        "params/Dense_0/kernel": True,
        "params/Conv_0/kernel": Orthonormal(rows=(0, 1), columns=2),
    }.get(path)
    params = nearest(net.init(jax.random.key(0), x), marks)
    value = lambda p: jnp.mean((net.apply(p, x)[:, 0] - x[:, 0] * x[:, 1]) ** 2)
    optimiser = muon(0.02, marks)
    state, step, before = optimiser.init(params), stepper(optimiser, value), float(value(params))
    for _ in range(60):
        params, state = step(params, state)
    W, C = params["params"]["Dense_0"]["kernel"], params["params"]["Conv_0"]["kernel"].reshape(3, 4)
    np.testing.assert_allclose(W.T @ W, np.eye(6), atol=1e-6)
    np.testing.assert_allclose(C @ C.T, np.eye(3), atol=1e-6)
    assert float(value(params)) < 0.6 * before


def test_flax_nnx():
    nnx = pytest.importorskip("flax.nnx")
    layer = nnx.Linear(4, 4, rngs=nnx.Rngs(0), param_dtype=jnp.float32)
    marks = lambda path, p: "kernel" in path
    nnx.update(layer, nearest(nnx.state(layer, nnx.Param), marks))
    optimiser = nnx.Optimizer(layer, adam(0.05, marks), wrt=nnx.Param)
    x = jax.random.normal(jax.random.key(1), (8, 4), jnp.float32)
    value = lambda m: jnp.mean((m(x) - x[:, ::-1]) ** 2)
    before = float(value(layer))
    for _ in range(20):
        optimiser.update(layer, nnx.grad(value)(layer))
    W = np.asarray(layer.kernel[...])
    np.testing.assert_allclose(W.T @ W, np.eye(4), atol=1e-6)
    assert float(value(layer)) < 0.6 * before


# -- several devices, and PyTorch ----------------------------------------------------------------


def test_parameters_on_two_devices_are_never_gathered():
    program = Path(__file__).with_name("training_sharded_program.py")
    done = subprocess.run(
        [sys.executable, str(program)],
        env=os.environ | {"PYTHONPATH": str(Path(stiefel.__file__).parents[1])},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]


def torch_pairs(torch):
    import stiefel.torch as st

    options = {"momentum": 0.9, "dampening": 0.2, "nesterov": False, "weight_decay": 0.1}
    ahead = {"momentum": 0.8, "nesterov": True}
    return {
        "sgd": (lambda m: st.SGD(m, lr=0.05, **options), lambda o: sgd(0.05, o, **options)),
        "nesterov": (lambda m: st.SGD(m, lr=0.05, **ahead), lambda o: sgd(0.05, o, **ahead)),
        "adam": (
            lambda m: st.Adam(m, lr=0.05, betas=(0.8, 0.9), weight_decay=0.1),
            lambda o: adam(0.05, o, b1=0.8, b2=0.9, weight_decay=0.1),
        ),
        "rows": (
            lambda m: st.Adam(m, lr=0.05, second_moment="rows"),
            lambda o: adam(0.05, o, second_moment="rows"),
        ),
        "muon": (
            lambda m: st.Muon(m, lr=0.05, free_lr_factor=0.5),
            lambda o: muon(0.05, o, free_lr_factor=0.5),
        ),
    }


# PyTorch computes 1 − δ and 1 − βᵗ in float32, as its own optimisers do: 6e-5 of 1 − 0.999.
@pytest.mark.parametrize(
    ("name", "atol"),
    [("sgd", 1e-6), ("nesterov", 1e-12), ("adam", 1e-6), ("rows", 1e-4), ("muon", 1e-6)],
)
def test_the_numbers_are_those_of_pytorch(name, atol):
    """One problem, two libraries: tall, wide, square with a scale, and free parameters."""
    torch = pytest.importorskip("torch")
    from stiefel.torch import orthonormal

    make_torch, make_jax = torch_pairs(torch)[name]
    rng = np.random.default_rng(0)
    shapes = {"tall": (7, 3), "wide": (2, 5), "square": (4, 4), "free": (3, 2)}
    marks = {"tall": True, "wide": True, "square": Orthonormal(scale=2.0)}
    params = nearest({n: jnp.asarray(rng.standard_normal(s)) for n, s in shapes.items()}, marks)
    C = {n: rng.standard_normal(s) for n, s in shapes.items()}
    model = torch.nn.ParameterDict({n: torch.tensor(np.asarray(x)) for n, x in params.items()})
    for n in marks:
        orthonormal(model, n, init="keep", scale=2.0 if n == "square" else 1.0)
    theirs, ours = make_torch(model), make_jax(marks)
    state, step = (
        ours.init(params),
        stepper(ours, lambda p: sum(jnp.sum((p[n] - C[n]) ** 2 * C[n]) for n in C)),
    )
    for _ in range(10):
        theirs.zero_grad()
        sum(((model[n] - torch.tensor(C[n])) ** 2 * torch.tensor(C[n])).sum() for n in C).backward()
        theirs.step()
        params, state = step(params, state)
    for n in shapes:
        np.testing.assert_allclose(
            params[n], model[n].detach().numpy(), rtol=0, atol=atol, err_msg=n
        )
