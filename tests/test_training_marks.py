"""Marks outlive what happens to a model, and views are the matrices that they say."""

import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from stiefel.torch import SGD, copy_marks, is_orthonormal, orthonormal  # noqa: E402
from stiefel.training.torch_marks import defect, mark_of  # noqa: E402


class Model(nn.Module):
    def __init__(self, mark=True):
        super().__init__()
        self.dense, self.conv = nn.Linear(6, 4), nn.Conv2d(3, 8, 3)
        self.lstm, self.gru = nn.LSTM(5, 6), nn.GRU(5, 6)
        if mark:
            orthonormal(self.dense, "weight", scale=2.0)
            orthonormal(self.conv, "weight", view="kernel")
            orthonormal(self.lstm, "weight_hh_l0", blocks=4)
            orthonormal(self.gru, "weight_hh_l0", blocks=3)


MARKED = ["dense.weight", "conv.weight", "lstm.weight_hh_l0", "gru.weight_hh_l0"]


def marks(model):
    return {n: mark_of(p) for n, p in model.named_parameters() if mark_of(p) is not None}


def through_a_file(thing, weights_only=False):
    file = io.BytesIO()
    torch.save(thing, file)
    file.seek(0)
    return torch.load(file, weights_only=weights_only)


def swapped(model):
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        return model.double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)


def assigned(model):
    state = {k: v.clone() for k, v in model.state_dict().items()}
    model.load_state_dict(state, assign=True)
    return model


def loaded(model):
    fresh = Model()
    fresh.load_state_dict(through_a_file(model.state_dict(), weights_only=True))
    return fresh


FATES = {
    "deepcopy": copy.deepcopy,
    "deepcopy twice": lambda m: copy.deepcopy(copy.deepcopy(m)),
    "pickle": lambda m: pickle.loads(pickle.dumps(m)),
    "torch.save": through_a_file,
    "double": lambda m: m.double(),
    "half and back": lambda m: m.half().float(),
    "to": lambda m: m.to("cpu", torch.float64),
    "state_dict into a fresh model": loaded,
    "load_state_dict(assign=True)": assigned,
    "conversion by swapping": swapped,
    "share_memory": lambda m: m.share_memory(),
}


@pytest.mark.parametrize("fate", FATES)
def test_marks_last(fate):
    model = Model()
    before = marks(model)
    assert list(before) == MARKED
    after = FATES[fate](model)
    optimizer = SGD(after, lr=0.1)  # a model tells what only its modules know
    assert marks(after) == before
    for p in after.parameters():
        p.grad = 0.1 * torch.randn_like(p)
    optimizer.step()
    for name, mark in before.items():
        assert defect(after.get_parameter(name), mark) < 1e-5
    assert not is_orthonormal(after.dense.bias)


@pytest.mark.parametrize("fate", sorted(set(FATES) - {"conversion by swapping"}))
def test_marks_last_without_asking_the_model(fate):
    assert list(marks(FATES[fate](Model()))) == MARKED


@pytest.mark.parametrize(
    "fate", ["deepcopy", "pickle", "torch.save", "double", "to", "half and back"]
)
def test_a_mark_set_on_the_parameter_alone(fate):
    model = Model(mark=False)
    assert orthonormal(model.dense.weight) is model.dense.weight
    assert list(marks(FATES[fate](model))) == ["dense.weight"]


def test_a_model_that_knows_nothing_of_marks_gets_them_from_a_state_dict():
    model, plain = Model(), Model(mark=False)
    state = through_a_file(model.state_dict(), weights_only=True)
    plain.load_state_dict(state)
    assert not marks(plain)
    copy_marks(state, plain)
    assert marks(plain) == marks(model)
    other = Model(mark=False)
    with pytest.raises(ValueError, match=r"dense.weight is not orthonormal"):
        copy_marks(model, other)
    with pytest.raises(ValueError, match=r"no parameter 'dense.weight'"):
        copy_marks(model, nn.Linear(2, 2))


def test_tied_parameters_stay_tied_in_a_copy():
    model = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
    model[1].weight = model[0].weight
    orthonormal(model[0], "weight")
    twin = copy.deepcopy(model)
    assert twin[0].weight is twin[1].weight
    assert is_orthonormal(twin[1].weight)


def eye_like(G):
    return torch.eye(G.shape[-1], dtype=G.dtype).expand(G.shape)


@pytest.mark.parametrize("init", ["nearest", "random"])
@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_views(init, scale):
    """Each view, read off the parameter by hand."""
    model = Model(mark=False)
    conv = orthonormal(model.conv, "weight", view="kernel", init=init, scale=scale)
    K = conv.detach().reshape(8, 27)
    torch.testing.assert_close(K @ K.mT / scale**2, torch.eye(8), atol=1e-5, rtol=0)
    for cell, gates in ((model.lstm, 4), (model.gru, 3)):
        for name in ("weight_hh_l0", "weight_ih_l0"):
            W = orthonormal(cell, name, blocks=gates, init=init, scale=scale)
            for gate in W.detach().split(6):  # 6×6, and 6×5 with orthonormal columns
                gram = gate.mT @ gate / scale**2
                torch.testing.assert_close(gram, eye_like(gram), atol=1e-5, rtol=0)
    out = nn.Linear(12, 12)  # three heads of width four, side by side in the columns
    W = orthonormal(out, "weight", blocks=(1, 3), init=init, scale=scale)
    for head in W.detach().split(4, dim=1):
        torch.testing.assert_close(head.mT @ head / scale**2, torch.eye(4), atol=1e-5, rtol=0)
    stack = nn.Parameter(torch.randn(2, 3, 5, 4, dtype=torch.complex64))
    X = orthonormal(stack, view="stack", init=init, scale=scale).detach()
    gram = X.mH @ X / scale**2
    torch.testing.assert_close(gram, eye_like(gram), atol=1e-5, rtol=0)


def test_the_nearest_point_is_the_polar_factor():
    W = torch.randn(7, 4, dtype=torch.float64)
    p = orthonormal(nn.Parameter(W.clone()), scale=2.0)
    U, _, Vh = torch.linalg.svd(W, full_matrices=False)
    torch.testing.assert_close(p.detach(), 2 * U @ Vh)
    kept = nn.Parameter(p.detach().clone())
    orthonormal(kept, scale=2.0, init="keep")
    assert torch.equal(kept, p)


def test_random_points_are_random_and_repeatable():
    draw = lambda seed: orthonormal(
        nn.Parameter(torch.zeros(5, 3)),
        init="random",
        generator=torch.Generator().manual_seed(seed),
    ).detach()
    assert torch.equal(draw(1), draw(1))
    assert not torch.allclose(draw(1), draw(2))


@pytest.mark.parametrize(
    ("make", "error", "sentence"),
    [
        (lambda: orthonormal(nn.Parameter(torch.randn(5))), ValueError, "expects two axes"),
        (lambda: orthonormal(nn.Conv2d(3, 4, 3), "weight"), ValueError, "view='kernel' takes"),
        (lambda: orthonormal(nn.Linear(4, 4), "weight", view="stack"), ValueError, "three axes"),
        (lambda: orthonormal(nn.Linear(4, 6), "weight", blocks=4), ValueError, "does not divide"),
        (lambda: orthonormal(nn.Linear(4, 4), "wight"), TypeError, "no parameter 'wight'"),
        (lambda: orthonormal(nn.Linear(4, 4)), TypeError, "no parameter None"),
        (lambda: orthonormal(torch.randn(4, 4)), TypeError, "or a parameter"),
        (lambda: orthonormal(nn.Parameter(torch.zeros(4, 4))), ValueError, "init='random'"),
        (
            lambda: orthonormal(nn.Parameter(torch.full((4, 4), torch.nan))),
            ValueError,
            "not finite",
        ),
        (lambda: orthonormal(nn.Parameter(torch.randn(4, 0))), ValueError, "is empty"),
        (
            lambda: orthonormal(nn.Parameter(torch.ones(3, 3, dtype=torch.int), False)),
            TypeError,
            "int32 cannot",
        ),
        (lambda: orthonormal(nn.Linear(4, 4), "weight", scale=0.0), ValueError, "positive"),
        (lambda: orthonormal(nn.Linear(4, 4), "weight", view="row"), ValueError, "none of"),
        (lambda: orthonormal(nn.Linear(4, 4), "weight", init="keep"), ValueError, "not orthon"),
        (lambda: orthonormal(nn.Linear(4, 4), "weight", init="qr"), ValueError, "none of"),
        (lambda: orthonormal(nn.Linear(4, 4), "weight", blocks=0), ValueError, "positive"),
    ],
)
def test_what_cannot_be_orthonormal_is_refused(make, error, sentence):
    with pytest.raises(error, match=sentence):
        make()


def test_a_refusal_changes_nothing():
    layer = nn.Linear(4, 6)
    before = layer.weight.detach().clone()
    with pytest.raises(ValueError, match="divide"):
        orthonormal(layer, "weight", blocks=4)
    assert torch.equal(layer.weight, before)
    assert not is_orthonormal(layer.weight)
