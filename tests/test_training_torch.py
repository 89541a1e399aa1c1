"""SGD, Adam and Muon of `stiefel.torch`: what a `torch.optim` user relies on."""

import copy
import io
import math

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from stiefel.torch import SGD, Adam, Muon, orthonormal  # noqa: E402
from stiefel.training.torch_marks import defect, mark_of  # noqa: E402

OURS = {
    "SGD": lambda p, **s: SGD(p, **{"lr": 0.05, "momentum": 0.9} | s),
    "Nesterov": lambda p, **s: SGD(p, **{"lr": 0.05, "momentum": 0.9, "nesterov": True} | s),
    "Adam": lambda p, **s: Adam(p, **{"lr": 0.01} | s),
    "Adam, matrix": lambda p, **s: Adam(p, **{"lr": 0.01, "second_moment": "matrix"} | s),
    "Muon": lambda p, **s: Muon(p, **{"lr": 0.03} | s),
}
every = pytest.mark.parametrize("name", OURS)


def network(seed=0, **marks):
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 12), nn.Linear(12, 1)
    )
    for i in (0, 2, 4):
        orthonormal(model[i], "weight", **marks)
    return model


X = torch.randn(32, 8, generator=torch.Generator().manual_seed(5))
Y = torch.tanh(X[:, :1]) - X[:, 1:2] * X[:, 2:3]


def train(model, optimizer, steps, x=X, y=Y, scheduler=None):
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        if scheduler:
            scheduler.step()
        losses.append(float(loss.detach()))
    return losses


def weights(model):
    return [p.detach().clone() for p in model.parameters()]


def same(a, b):
    return all(map(torch.equal, a, b))


def largest_defect(model):
    return max(defect(p, mark_of(p)) for p in model.parameters() if mark_of(p) is not None)


# -- the rules ------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("scale", [1.0, 1.7])
def test_training_lowers_the_loss_on_the_manifold(name, scale):
    model = network(scale=scale)
    losses = train(model, OURS[name](model), 150)
    assert losses[-1] < 0.35 * losses[0]
    assert largest_defect(model) < 2e-6


@pytest.mark.parametrize(
    ("mine", "theirs"),
    [
        (lambda p: SGD(p, lr=0.1), lambda p: torch.optim.SGD(p, lr=0.1)),
        (
            lambda p: SGD(p, lr=0.1, momentum=0.9, dampening=0.4, weight_decay=0.1),
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.4, weight_decay=0.1),
        ),
        (
            lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True),
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        ),
        (
            lambda p: Adam(p, lr=0.03, weight_decay=0.2),
            lambda p: torch.optim.AdamW(p, lr=0.03, weight_decay=0.2),
        ),
        (
            lambda p: Muon(p, lr=0.3, free_lr_factor=0.1, betas=(0.8, 0.9)),
            lambda p: torch.optim.AdamW(p, lr=0.03, betas=(0.8, 0.9), weight_decay=0),
        ),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_free_parameters_get_the_rule_of_pytorch(mine, theirs, dtype):
    """Also those that have no gradient in some steps."""
    torch.manual_seed(0)
    shapes = [(3, 2), (5,), (), (2, 2, 2)]
    ours = [nn.Parameter(torch.randn(s, dtype=dtype)) for s in shapes]
    others = copy.deepcopy(ours)
    a, b = mine(ours), theirs(others)
    for i in range(6):
        for j, (p, q) in enumerate(zip(ours, others)):
            G = torch.randn(p.shape, dtype=dtype)
            p.grad, q.grad = (None, None) if (i + j) % 3 == 0 else (G, G.clone())
        a.step(), b.step()
    for p, q in zip(ours, others):
        torch.testing.assert_close(p, q, rtol=1e-6, atol=1e-6)  # steps are counted in float32


def test_sgd_is_the_riemannian_method():
    """Two steps by hand, with the SVD as retraction and the projection as transport."""
    torch.manual_seed(0)
    p = orthonormal(nn.Parameter(torch.randn(6, 3, dtype=torch.float64)))
    G = torch.randn(2, 6, 3, dtype=torch.float64)
    W, M = p.detach().clone(), torch.zeros(6, 3, dtype=torch.float64)
    project = lambda W, Z: Z - W @ (W.mT @ Z + Z.mT @ W) / 2
    optimizer = SGD([p], lr=0.1, momentum=0.8)
    for g in G:
        p.grad = g.clone()
        optimizer.step()
        M = project(W, 0.8 * project(W, M) + project(W, g))
        U, _, Vh = torch.linalg.svd(W - 0.1 * M, full_matrices=False)
        W = U @ Vh
    torch.testing.assert_close(p.detach(), W)


def test_adam_with_one_number_a_matrix_does_not_see_the_basis():
    """Rotating the problem rotates the steps; with the squares of entries it would not."""
    torch.manual_seed(0)
    P, _ = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64))
    Q, _ = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64))
    G = torch.randn(4, 6, 3, dtype=torch.float64)
    for kind, equal in (("matrix", True), ("entries", False)):
        p = orthonormal(nn.Parameter(torch.randn(6, 3, dtype=torch.float64)))
        q = orthonormal(nn.Parameter(P @ p.detach() @ Q))
        a, b = Adam([p], lr=0.1, second_moment=kind), Adam([q], lr=0.1, second_moment=kind)
        for g in G:
            p.grad, q.grad = g, P @ g @ Q
            a.step(), b.step()
        assert torch.allclose(P @ p @ Q, q, atol=1e-8) == equal


@pytest.mark.parametrize("shape", [(5, 5), (9, 4), (4, 9)])
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_muon_turns_every_direction_by_the_rate(shape, scale):
    p = orthonormal(nn.Parameter(torch.randn(shape, dtype=torch.float64)), scale=scale)
    before = p.detach().clone()
    p.grad = 1e5 * torch.randn(shape, dtype=torch.float64)
    Muon([p], lr=0.05).step()
    turned = torch.linalg.svdvals(p.detach() - before) / scale
    assert 0.03 < float(turned.max()) < 0.06
    assert float(turned.min()) > (0.0 if shape == (5, 5) else 0.005)


def test_views_batches_and_wide_matrices_move_as_the_matrices_do():
    """Gates, wide and stacked parameters take the steps of their matrices alone."""
    torch.manual_seed(0)
    cell = nn.LSTM(3, 4).double()
    whole = orthonormal(cell, "weight_hh_l0", blocks=4)
    gates = [nn.Parameter(g.clone()) for g in whole.detach().split(4)]
    wide = nn.Parameter(gates[1].detach().clone()[:2])  # rows of an orthonormal matrix
    tall = nn.Parameter(wide.detach().mT.clone())
    for p in (*gates, wide, tall):
        orthonormal(p, init="keep")
    for make in OURS.values():
        params = copy.deepcopy([whole, *gates, wide, tall])
        for i in range(3):
            G = torch.randn(16, 4, dtype=torch.float64)
            H = torch.randn(2, 4, dtype=torch.float64)
            for p, g in zip(params, [G, *G.split(4), H, H.mT]):
                p.grad = g
            if i == 0:
                one, many = make([params[0]]), make(params[1:])
            one.step(), many.step()
        torch.testing.assert_close(params[0].detach(), torch.cat([p.detach() for p in params[1:5]]))
        torch.testing.assert_close(params[5].detach(), params[6].detach().mT)


# -- precision ------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_masters_of_low_precision(name, dtype):
    """Rates far below the rounding of the weights still train, and the masters are orthonormal."""
    torch.manual_seed(0)
    p = orthonormal(nn.Parameter(torch.randn(24, 8).to(dtype)))
    target = torch.linalg.qr(torch.randn(24, 8))[0]
    optimizer = OURS[name]([p], lr=2e-4)
    start = float((p.detach().float() * target).sum())
    for _ in range(400):
        p.grad = (-target).to(dtype)
        optimizer.step()
    assert float((p.detach().float() * target).sum()) > start + 0.3
    master = optimizer.state[p]["master"]
    assert master.dtype == torch.float32
    gram = master.double().mT @ master.double()
    assert float(torch.linalg.matrix_norm(gram - torch.eye(8), 2)) < 1e-6
    assert torch.equal(master.to(dtype), p)
    assert defect(p, mark_of(p)) < 4 * torch.finfo(dtype).eps


def test_weights_that_somebody_sets_are_taken_up():
    p = orthonormal(nn.Parameter(torch.randn(6, 3).bfloat16()))
    optimizer = SGD([p], lr=0.0)
    p.grad = torch.randn(6, 3).bfloat16()
    optimizer.step()
    other = orthonormal(nn.Parameter(torch.randn(6, 3).bfloat16()))
    with torch.no_grad():
        p.copy_(other)
    optimizer.step()
    torch.testing.assert_close(p, other, atol=0.02, rtol=0)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_hundred_thousand_steps_do_not_drift(dtype):
    torch.manual_seed(0)
    p = orthonormal(nn.Parameter(torch.randn(16, 8).to(dtype)))
    optimizer = SGD([p], lr=0.1, momentum=0.9)
    G = torch.randn(64, 16, 8).to(dtype)
    for i in range(100_000):
        p.grad = G[i % 64]
        optimizer.step()
    W = optimizer.state[p].get("master", p.detach()).double()
    assert float(torch.linalg.matrix_norm(W.mT @ W - torch.eye(8), 2)) < 1e-6


@every
def test_a_batch_that_is_not_finite_changes_nothing(name):
    model = network()
    optimizer = OURS[name](model)
    train(model, optimizer, 3)
    before, state = weights(model), copy.deepcopy(optimizer.state_dict()["state"])
    bad = X.clone()
    for value in (math.nan, math.inf):
        bad[0, 0] = value
        train(model, optimizer, 1, bad)
        assert same(weights(model), before)
    for key, held in optimizer.state_dict()["state"].items():
        assert all(torch.equal(held[n], state[key][n]) for n in held)
    twin, losses = copy.deepcopy(model), train(model, optimizer, 2)
    assert all(map(math.isfinite, losses))
    assert not same(weights(model), weights(twin))


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_a_grad_scaler_skips_and_unscales(name, dtype):
    """With a scale of 2¹⁰ training is the training without, and overflow is skipped and halved."""
    plain, scaled = (network().to(dtype) for _ in range(2))
    a, b = OURS[name](plain), OURS[name](scaled)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    x, y = X.to(dtype), Y.to(dtype)
    for i in range(5):
        for model, optimizer in ((plain, a), (scaled, b)):
            optimizer.zero_grad()
            loss = (model(x) - y).square().mean()
            if model is plain:
                loss.backward()
                optimizer.step()
            else:
                scaler.scale(loss).backward()
                if i == 2 and dtype is torch.float32:
                    scaler.unscale_(optimizer)  # as for clipping
                scaler.step(optimizer)
                scaler.update()
    for p, q in zip(plain.parameters(), scaled.parameters()):
        atol = 1e-6 if dtype is torch.float32 else 0.02
        torch.testing.assert_close(p, q, atol=atol, rtol=0)
    before, scale = weights(scaled), scaler.get_scale()
    b.zero_grad()
    scaler.scale((scaled(x * math.inf) - y).square().mean()).backward()
    scaler.step(b), scaler.update()
    assert same(weights(scaled), before)
    assert scaler.get_scale() == scale / 2


def test_autocast():
    model = network()
    optimizer = Adam(model, lr=0.01)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = (model(X) - Y).square().mean()
        loss.backward()
        with torch.autocast("cpu", torch.bfloat16):  # some loops hold it over the step
            optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.6 * losses[0]
    assert largest_defect(model) < 2e-6


# -- counts ---------------------------------------------------------------------------------------


class Operations(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(str(function))
        return function(*args, **(kwargs or {}))


def operations(make, count, shape=(32, 16)):
    params = [orthonormal(nn.Parameter(torch.randn(shape))) for _ in range(count)]
    for p in params:
        p.grad = torch.randn_like(p)
    optimizer = make(params)
    optimizer.step()
    with Operations() as seen:
        optimizer.step()
    return seen.names


WAITS = ("_local_scalar_dense", "equal.default", "nonzero", "_linalg", "linalg_", "_lu", "item")


@every
def test_no_synchronisation_and_no_growth_with_equal_shapes(name):
    four, fifty = operations(OURS[name], 4), operations(OURS[name], 50)
    assert len(four) == len(fifty)
    assert not [n for n in fifty if any(w in n for w in WAITS) and "vector_norm" not in n]


def test_at_most_110_operations_with_sgd():
    assert len(operations(lambda p: SGD(p, lr=0.1), 4)) <= 90
    assert len(operations(OURS["SGD"], 4)) <= 95


# -- around it ------------------------------------------------------------------------------------


@every
def test_state_dict_resumes_to_the_same_bits(name):
    for dtype in (torch.float32, torch.bfloat16):
        model = network().to(dtype)
        x, y = X.to(dtype), Y.to(dtype)
        optimizer = OURS[name](model)
        train(model, optimizer, 4, x, y)
        file = io.BytesIO()
        torch.save([model.state_dict(), optimizer.state_dict()], file)
        file.seek(0)
        saved = torch.load(file, weights_only=True)
        other = network(seed=9).to(dtype)
        other.load_state_dict(saved[0])
        second = OURS[name](other)
        second.load_state_dict(saved[1])
        assert train(model, optimizer, 4, x, y) == train(other, second, 4, x, y)
        assert same(weights(model), weights(other))
        twin = copy.deepcopy(optimizer)  # and optimisers can be copied with their parameters
        assert len(twin.state) == len(optimizer.state)


@every
def test_the_same_run_twice_gives_the_same_bits(name):
    runs = []
    for _ in range(2):
        model = network()
        train(model, OURS[name](model), 5)
        runs.append(weights(model))
    assert same(*runs)


def test_schedules_warm_up_and_rates_as_tensors():
    for lr in (0.1, torch.tensor(0.1)):
        model = network()
        optimizer = SGD(model, lr=lr, momentum=0.9)
        warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=5)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 25)
        schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], [5])
        losses = train(model, optimizer, 30, scheduler=schedule)
        assert losses[-1] < losses[0]
        before = weights(model)
        assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0, abs=1e-6)
        train(model, optimizer, 1)
        for p, q in zip(weights(model), before):  # a rate of zero: nothing moves
            torch.testing.assert_close(p, q, atol=1e-6, rtol=0)
    one = SGD(model, lr=0.1, momentum=0.9)
    torch.optim.lr_scheduler.OneCycleLR(one, max_lr=0.2, total_steps=9)


def test_groups():
    model = network()
    optimizer = SGD([{"params": model[0].parameters(), "lr": 0.0}], lr=0.1)
    optimizer.add_param_group({"params": model[2:], "momentum": 0.5})
    assert [g["lr"] for g in optimizer.param_groups] == [0.0, 0.1]
    before = weights(model)
    train(model, optimizer, 1)
    after = weights(model)
    torch.testing.assert_close(before[0], after[0], atol=1e-6, rtol=0)
    assert not torch.equal(before[2], after[2])
    named = SGD(model.named_parameters(), lr=0.1)
    assert named.param_groups[0]["param_names"][0] == "0.weight"
    with pytest.raises(ValueError, match=r"unknown keys \['lrr'\]; expected some of"):
        SGD([{"params": model.parameters(), "lrr": 0.1}])
    with pytest.raises(ValueError, match="unknown keys"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))], "manifold": None})
    assert len(optimizer.param_groups) == 2


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda m: SGD(m, lr=-1.0), "lr=-1.0"),
        (lambda m: SGD(m, lr=math.nan), "lr=nan"),
        (lambda m: SGD(m, nesterov=True), "needs a momentum"),
        (lambda m: Adam(m, betas=(0.9, 1.0)), r"in \[0, 1\)"),
        (lambda m: Adam(m, second_moment="all"), "none of"),
        (lambda m: Muon([m[0].weight], weight_decay=0.1), "norm is fixed"),
        (lambda m: SGD([torch.nn.Parameter(torch.ones(2)), m[0].weight.mul_(2)]), "not orthonor"),
    ],
)
def test_misuse_is_refused(make, sentence):
    model = network()
    with torch.no_grad(), pytest.raises(ValueError, match=sentence):
        make(model)


def test_weight_decay_acts_on_free_parameters_and_says_so():
    model = network()
    with pytest.warns(UserWarning, match="does not act on orthonormal parameters"):
        optimizer = Adam(model, lr=0.1, weight_decay=0.5)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    before = weights(model)
    optimizer.step()
    after = weights(model)
    torch.testing.assert_close(after[0], before[0], atol=1e-6, rtol=0)
    torch.testing.assert_close(after[1], before[1] * 0.95)


def test_gradients_accumulate():
    whole, parts = network(), network()
    a, b = OURS["SGD"](whole), OURS["SGD"](parts)
    for _ in range(3):
        train(whole, a, 1)
        b.zero_grad()
        for x, y in zip(X.split(8), Y.split(8)):
            ((parts(x) - y).square().mean() / 4).backward()
        b.step()
    for p, q in zip(whole.parameters(), parts.parameters()):
        torch.testing.assert_close(p, q, atol=1e-5, rtol=0)


@every
def test_a_closure_is_called_once(name):
    """So that BatchNorm sees each batch once."""
    model = nn.Sequential(nn.Linear(8, 6), nn.BatchNorm1d(6), nn.Linear(6, 1))
    orthonormal(model[0], "weight")
    optimizer = OURS[name](model)

    def closure():
        optimizer.zero_grad()
        loss = (model(X) - Y).square().mean()
        loss.backward()
        return loss

    loss = optimizer.step(closure)
    assert loss.requires_grad
    assert int(model[1].num_batches_tracked) == 1
    assert optimizer.step() is None


@every
def test_an_exception_leaves_everything_as_it_was(name):
    model = network()
    optimizer = OURS[name](model)
    train(model, optimizer, 2)
    before, state = weights(model), copy.deepcopy(optimizer.state_dict()["state"])

    def fails():
        raise RuntimeError("no data")

    with pytest.raises(RuntimeError, match="no data"):
        optimizer.step(fails)
    embedding = nn.Embedding(5, 3, sparse=True)
    optimizer.add_param_group({"params": embedding.parameters()})
    embedding(torch.tensor([1])).sum().backward()
    with pytest.raises(TypeError, match="sparse gradient"):
        optimizer.step()
    assert same(weights(model), before)
    for key, held in state.items():
        now = optimizer.state_dict()["state"][key]
        assert all(torch.equal(held[n], now[n]) for n in held)


def test_parameters_without_gradient_are_skipped():
    model = network()
    optimizer = Adam(model, lr=0.1)
    before = weights(model)
    optimizer.step()  # none has one
    model[0].weight.grad = torch.randn_like(model[0].weight)
    optimizer.step()
    after = weights(model)
    assert not torch.equal(before[0], after[0])
    assert same(before[1:], after[1:])


def test_large_parameters_are_not_stacked(monkeypatch):
    import stiefel.training.torch_base as base

    small, large = network(), network()
    train(small, OURS["Adam"](small), 3)
    monkeypatch.setattr(base, "LARGEST_BATCH", 1)
    train(large, OURS["Adam"](large), 3)
    for p, q in zip(small.parameters(), large.parameters()):
        torch.testing.assert_close(p, q, atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["SGD", "Adam", "Muon"])
def test_a_step_compiles_to_one_graph(name):
    torch._dynamo.reset()
    plain, compiled = network(), network()
    a, b = OURS[name](plain), OURS[name](compiled)
    step = torch.compile(b.step, fullgraph=True, backend="eager")
    for _ in range(3):
        for model, optimizer, move in ((plain, a, a.step), (compiled, b, step)):
            optimizer.zero_grad()
            (model(X) - Y).square().mean().backward()
            move()
    assert same(weights(plain), weights(compiled))
