"""`stiefel.torch.Accelerated` runs the method of `stiefel.minimize`, beside other optimisers."""

import copy
import io

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import stiefel  # noqa: E402
import stiefel.torch  # noqa: E402
from stiefel.torch import Accelerated, is_marked, mark_orthonormal  # noqa: E402

A = torch.diag(torch.arange(1.0, 21.0, dtype=torch.float64))
WEIGHTS = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)


def brockett(X):
    return torch.sum(X.conj() * (A.to(X.dtype) @ X) * WEIGHTS).real


def parameter(dtype=torch.float64):
    like = torch.zeros(1, dtype=dtype)
    return torch.nn.Parameter(stiefel.random_point(20, 3, seed=1, like=like))


def closure_for(optimizer, loss, calls=None):
    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        if calls is not None:
            calls.append(1)
        return value

    return closure


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("wide", [False, True])
def test_the_iterates_are_those_of_minimize(dtype, fixed, wide):
    p = parameter(dtype)
    points = []
    stiefel.minimize(
        brockett,
        p.detach().clone(),
        method=stiefel.AcceleratedGradient(),
        callback=lambda s: points.append(s.x.clone()),
        maxiter=15,
        rtol=1e-14,
    )
    if wide:  # the rows of a wide matrix are its orthonormal vectors
        p = torch.nn.Parameter(p.detach().mH.contiguous())
    tall = (lambda: p.mH) if wide else (lambda: p)
    optimizer = Accelerated([mark_orthonormal(p)], stiefel.AcceleratedGradient(), fixed=fixed)
    closure = closure_for(optimizer, lambda: brockett(tall()))
    for X in points[1:]:
        optimizer.step(closure)
        np.testing.assert_allclose(tall().detach().resolve_conj().numpy(), X.numpy(), atol=1e-9)


def test_a_fixed_loss_is_not_evaluated_again():
    calls = {}
    for fixed in (True, False):
        p = mark_orthonormal(parameter())
        optimizer, calls[fixed] = Accelerated([p], fixed=fixed), []
        closure = closure_for(optimizer, lambda: brockett(p), calls[fixed])
        losses = [optimizer.step(closure) for _ in range(10)]
        assert losses[-1] < losses[0]
    assert len(calls[True]) < len(calls[False]) <= len(calls[True]) + 20


def test_state_dict_round_trip():
    """A run that is saved and loaded in the middle goes on to the same bits."""
    p = mark_orthonormal(parameter())
    optimizer = Accelerated([p])
    for _ in range(7):
        optimizer.step(closure_for(optimizer, lambda: brockett(p)))
    file = io.BytesIO()
    torch.save({"optimizer": optimizer.state_dict(), "p": p.detach()}, file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)  # nothing but tensors and numbers is in it

    q = mark_orthonormal(parameter())
    other = Accelerated([q])
    other.load_state_dict(copy.deepcopy(saved["optimizer"]))
    with torch.no_grad():
        q.copy_(saved["p"])
    for _ in range(5):
        optimizer.step(closure_for(optimizer, lambda: brockett(p)))
        other.step(closure_for(other, lambda: brockett(q)))
    assert torch.equal(p, q)


def test_beside_another_optimiser():
    """An orthogonal layer and a free one; float32, as networks are."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 4, bias=False), torch.nn.Linear(4, 1))
    mark_orthonormal(model[0].weight)
    inner = Accelerated(model.parameters())
    rest = torch.optim.SGD([p for p in model.parameters() if not is_marked(p)], lr=0.05)
    data = torch.randn(64, 8)
    target = data[:, :1] - 2 * data[:, 1:2]

    def closure():
        model.zero_grad()
        value = torch.mean((model(data) - target) ** 2)
        value.backward()
        return value

    first = float(closure().detach())
    for _ in range(60):
        rest.zero_grad()
        closure()
        rest.step()
        inner.step(closure)
    assert float(closure().detach()) < 0.05 * first
    W = model[0].weight.detach()
    assert W.dtype == torch.float32
    assert float(torch.linalg.norm(W @ W.T - torch.eye(4))) < 1e-5


def test_groups_with_manifolds_and_misuse():
    p, q = parameter(), torch.nn.Parameter(torch.ones(4, dtype=torch.float64))
    with pytest.raises(ValueError, match="no parameter is marked"):
        Accelerated([p])
    groups = [
        {"params": [p], "manifold": stiefel.Stiefel()},
        {"params": [q], "manifold": stiefel.Euclidean()},
    ]
    optimizer = Accelerated(groups)
    loss = lambda: brockett(p) + torch.sum((q - 3.0) ** 2)
    for _ in range(40):
        optimizer.step(closure_for(optimizer, loss))
    np.testing.assert_allclose(q.detach().numpy(), 3.0, atol=0.1)
    with pytest.raises(ValueError, match="not orthonormal"):
        Accelerated([torch.nn.Parameter(2 * p.detach())], manifold=stiefel.Stiefel())
    fresh = Accelerated([mark_orthonormal(parameter())])
    with pytest.raises(TypeError, match="has a gradient after the closure"):
        fresh.step(lambda: torch.tensor(1.0))


def test_a_rate_in_a_group_is_not_swallowed():
    with pytest.raises(ValueError, match=r"unknown keys \['lr'\].*no learning rate"):
        Accelerated([{"params": [mark_orthonormal(parameter())], "lr": 0.1}])
    low = torch.nn.Parameter(parameter().detach().bfloat16())
    with pytest.raises(TypeError, match="use float32"):
        Accelerated([mark_orthonormal(low)])


@pytest.mark.parametrize("after", range(4))
def test_no_trial_point_stays_behind(after):
    """Whenever the closure fails, the parameters are as they were before the step."""
    p = mark_orthonormal(parameter())
    optimizer = Accelerated([p])
    calls = []

    def closure():
        calls.append(1)
        if len(calls) > after:
            raise RuntimeError("no data")
        optimizer.zero_grad()
        value = brockett(p)
        value.backward()
        return value

    failed = False
    while not failed:
        before = p.detach().clone()
        try:
            optimizer.step(closure)
        except RuntimeError:
            failed = True
    assert torch.equal(p, before)


def test_a_loss_that_is_not_finite_leaves_the_parameters():
    p = mark_orthonormal(parameter())
    optimizer = Accelerated([p])
    optimizer.step(closure_for(optimizer, lambda: brockett(p)))
    before = p.detach().clone()
    assert np.isnan(optimizer.step(closure_for(optimizer, lambda: brockett(p) * float("nan"))))
    assert torch.equal(p, before)
    losses = [optimizer.step(closure_for(optimizer, lambda: brockett(p))) for _ in range(5)]
    assert losses[-1] < losses[0]


def test_views_scales_and_parameters_without_gradient():
    torch.manual_seed(0)
    cell = torch.nn.LSTM(3, 4).double()
    W = stiefel.torch.orthonormal(cell, "weight_ih_l0", blocks=4, scale=2.0)
    unused = mark_orthonormal(parameter())
    held = unused.detach().clone()
    optimizer = Accelerated([W, unused])
    target = torch.randn(16, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for _ in range(60):
        optimizer.step(closure_for(optimizer, lambda: (W - target).square().sum()))
    for gate, wanted in zip(W.detach().split(4), target.split(4)):  # the nearest points, by the SVD
        U, _, Vh = torch.linalg.svd(wanted, full_matrices=False)
        torch.testing.assert_close(gate, 2 * U @ Vh, atol=1e-4, rtol=0)
    torch.testing.assert_close(unused.detach(), held, atol=1e-12, rtol=0)  # but for rounding


def test_statistics_of_a_model_change_once_a_step():
    model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.BatchNorm1d(4))
    stiefel.torch.orthonormal(model[0], "weight")
    optimizer, calls = Accelerated(model), []
    x = torch.randn(16, 6)
    loss = lambda: (model(x) - x[:, :4]).square().mean()
    for i in range(3):
        optimizer.step(closure_for(optimizer, loss, calls))
        assert int(model[1].num_batches_tracked) == i + 1
    assert len(calls) > 3
