"""The tasks of benchmarks/training.py: models with orthonormal weights, their data and scores.

Each task is a function of a seed that gives a `Trial`.  Weights are orthonormal matrices with at
least as many rows as columns, because not every library takes others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass
class Trial:
    """A model to train: ``loss(i)`` is that of batch i, ``score()`` is what counts at the end."""

    model: nn.Module
    layers: list[nn.Module]  # whose ``weight`` is orthonormal
    steps: int
    loss: Callable[[int], Tensor]
    score: Callable[[], float]
    cosine: bool = False
    larger_is_better: bool = False
    notes: dict[str, float] = field(default_factory=dict)


class Point(nn.Module):
    """A module that is nothing but an orthonormal matrix."""

    def __init__(self, W: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(W)

    def forward(self) -> Tensor:
        return self.weight


def orthonormal_point(n: int, k: int) -> Point:
    return Point(nn.init.orthogonal_(torch.empty(n, k)))


def digits() -> tuple[Tensor, Tensor]:
    from sklearn.datasets import load_digits

    data = load_digits()
    return torch.tensor(data.data / 16, dtype=torch.float32), torch.tensor(data.target)


def mlp(seed: int) -> Trial:
    """64-128-128-10 with ReLU on the 1,797 digits of scikit-learn; batch 64, eight epochs."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 10)
    )
    for layer in (model[0], model[2]):
        nn.init.orthogonal_(layer.weight)
    x, y = digits()
    batches = [b for _ in range(8) for b in torch.randperm(len(x)).split(64)]

    def loss(i: int) -> Tensor:
        return functional.cross_entropy(model(x[batches[i]]), y[batches[i]])

    def score() -> float:
        with torch.no_grad():
            return float(functional.cross_entropy(model(x), y))

    return Trial(model, [model[0], model[2]], len(batches), loss, score)


class Recall(nn.Module):
    """One head of attention over pairs of key and value, whose embeddings are random and frozen.

    The four projections are orthonormal, and all that is learned.
    """

    def __init__(self, symbols: int = 32, width: int = 32) -> None:
        super().__init__()
        self.keys, self.values = nn.Embedding(symbols, width), nn.Embedding(symbols, width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.keys.requires_grad_(False)
        self.values.requires_grad_(False)
        for layer in (self.q, self.k, self.v, self.o):
            nn.init.orthogonal_(layer.weight)

    def forward(self, key: Tensor, value: Tensor, asked: Tensor) -> Tensor:
        x = self.keys(key) + self.values(value)
        a = self.k(x) @ self.q(self.keys(asked)).unsqueeze(-1) / x.shape[-1] ** 0.5
        return self.o((a.softmax(1) * self.v(x)).sum(1)) @ self.values.weight.mT


def attention(seed: int) -> Trial:
    """Associative recall among 16 pairs of 32 symbols, batch 64, 300 steps; accuracy."""
    torch.manual_seed(seed)
    model = Recall()

    def batch(size: int, i: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        g = torch.Generator().manual_seed(1000 * seed + i)
        key = torch.rand(size, 32, generator=g).argsort(1)[:, :16]
        value = torch.randint(32, (size, 16), generator=g)
        at = torch.randint(16, (size,), generator=g)
        rows = torch.arange(size)
        return key, value, key[rows, at], value[rows, at]

    def loss(i: int) -> Tensor:
        key, value, asked, answer = batch(64, i)
        return functional.cross_entropy(model(key, value, asked), answer)

    def score() -> float:
        key, value, asked, answer = batch(2048, 999)
        with torch.no_grad():
            return float((model(key, value, asked).argmax(1) == answer).float().mean())

    layers = [model.q, model.k, model.v, model.o]
    return Trial(model, layers, 300, loss, score, larger_is_better=True)


class Recurrent(nn.Module):
    """h ← modReLU(Wh + Vx), with W orthonormal."""

    def __init__(self, inputs: int = 10, hidden: int = 64, outputs: int = 9) -> None:
        super().__init__()
        self.inner = orthonormal_point(hidden, hidden)
        self.enter, self.leave = nn.Linear(inputs, hidden, bias=False), nn.Linear(hidden, outputs)
        self.bias = nn.Parameter(torch.zeros(hidden))

    def forward(self, x: Tensor) -> Tensor:
        W, V = self.inner(), self.enter(x)
        h, all_h = torch.zeros(x.shape[1], W.shape[0]), []
        for v in V:
            z = h @ W.mT + v
            h = z.sign() * functional.relu(z.abs() + self.bias)
            all_h.append(h)
        return self.leave(torch.stack(all_h))


def copying(seed: int) -> Trial:
    """Ten symbols of eight, to be repeated after a delay of 100; hidden 64, batch 32, 200 steps."""
    torch.manual_seed(seed)
    model, delay, length = Recurrent(), 100, 10

    def batch(i: int) -> tuple[Tensor, Tensor]:
        g = torch.Generator().manual_seed(1000 * seed + i)
        symbols = torch.randint(1, 9, (length, 32), generator=g)
        x = torch.zeros(delay + 2 * length, 32, dtype=torch.long)
        x[:length], x[delay + length - 1] = symbols, 9
        y = torch.zeros_like(x)
        y[-length:] = symbols
        return functional.one_hot(x, 10).float(), y

    def loss(i: int) -> Tensor:
        x, y = batch(i)
        return functional.cross_entropy(model(x).flatten(0, 1), y.flatten())

    def score() -> float:
        with torch.no_grad():
            return sum(float(loss(900 + i)) for i in range(4)) / 4

    return Trial(model, [model.inner], 200, loss, score)


def streaming_pca(seed: int) -> Trial:
    """½ tr(N XᵀCX) from a stream, n = 50, k = 5: 2,000 gradients of 64 samples, cosine schedule."""
    torch.manual_seed(seed)
    n, k = 50, 5
    point = orthonormal_point(n, k)
    values, weights = 1 / torch.arange(1.0, n + 1), torch.arange(k, 0, -1.0) / k
    Q = torch.linalg.qr(torch.randn(n, n))[0]
    stream = torch.Generator().manual_seed(seed)

    def loss(i: int) -> Tensor:
        samples = torch.randn(64, n, generator=stream) * values.sqrt() @ Q.mT
        return -0.5 * ((samples @ point()).square().mean(0) * weights).sum()

    def score() -> float:
        with torch.no_grad():
            Y = values.sqrt()[:, None] * (Q.mT @ point())
            return float(0.5 * ((values[:k] - Y.square().sum(0)) * weights).sum())

    return Trial(point, [point], 2000, loss, score, cosine=True)


def fake_quantised(W: Tensor, bits: int = 4) -> Tensor:
    """Rounded to 2ᵇ − 1 levels a row; rounding has the gradient of the identity."""
    step = W.abs().amax(-1, keepdim=True) / (2 ** (bits - 1) - 1)
    levels = W / step
    return step * (levels + (levels.round() - levels).detach())


def quantisation(seed: int) -> Trial:
    """A rotation of the residual stream of a gated block with outliers; 4-bit error, 200 steps."""
    torch.manual_seed(seed)
    d, hidden = 64, 128
    spread = torch.exp(torch.randn(d))  # some channels are much larger than others
    up, gate = (torch.randn(hidden, d) / d**0.5 for _ in range(2))
    down = spread[:, None] * torch.randn(d, hidden) / hidden**0.5
    rotation = orthonormal_point(d, d)

    def block(x: Tensor, R: Tensor, quantise: Callable[[Tensor], Tensor]) -> Tensor:
        z = quantise(x @ R)
        h = functional.silu(z @ quantise(gate @ R).mT) * (z @ quantise(up @ R).mT)
        return quantise(h) @ quantise(R.mT @ down).mT @ R.mT

    def error(R: Tensor, i: int, size: int) -> Tensor:
        g = torch.Generator().manual_seed(1000 * seed + i)
        x = torch.randn(size, d, generator=g) * spread
        exact = block(x, torch.eye(d), lambda W: W)
        return (block(x, R, fake_quantised) - exact).square().sum() / exact.square().sum()

    def score() -> float:
        with torch.no_grad():
            return float(error(rotation(), 999, 1024))

    loss = lambda i: error(rotation(), i, 256)
    notes = {"without a rotation": float(error(torch.eye(d), 999, 1024)), "random": score()}
    return Trial(rotation, [rotation], 200, loss, score, cosine=True, notes=notes)


class Turned(nn.Module):
    """A frozen layer W whose output is turned: RW."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        n = layer.out_features
        self.rotation = Point(torch.eye(n))
        self.register_buffer("W", layer.weight.detach().clone())
        self.register_buffer("b", layer.bias.detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x, self.rotation() @ self.W, self.b)


def fine_tuning(seed: int) -> Trial:
    """A network for the digits, pretrained here, turned to mirrored digits; ten epochs of 64."""
    torch.manual_seed(seed)
    x, y = digits()
    base = nn.Sequential(
        nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 10)
    )
    adam = torch.optim.Adam(base.parameters(), lr=2e-3)
    for _ in range(15):
        for b in torch.randperm(len(x)).split(64):
            adam.zero_grad()
            functional.cross_entropy(base(x[b]), y[b]).backward()
            adam.step()
    model = nn.Sequential(Turned(base[0]), nn.ReLU(), Turned(base[2]), nn.ReLU(), base[4])
    base[4].requires_grad_(False)
    mirrored = x.view(-1, 8, 8).flip(2).reshape(-1, 64)
    split = torch.randperm(len(x))
    train, held = split[:1200], split[1200:]
    batches = [train[b] for _ in range(10) for b in torch.randperm(len(train)).split(64)]

    def loss(i: int) -> Tensor:
        return functional.cross_entropy(model(mirrored[batches[i]]), y[batches[i]])

    def score() -> float:
        with torch.no_grad():
            return float(functional.cross_entropy(model(mirrored[held]), y[held]))

    layers = [model[0].rotation, model[2].rotation]
    return Trial(model, layers, len(batches), loss, score, notes={"before": score()})


TASKS = {
    "mlp": mlp,
    "attention": attention,
    "copying": copying,
    "streaming_pca": streaming_pca,
    "quantisation": quantisation,
    "fine_tuning": fine_tuning,
}
