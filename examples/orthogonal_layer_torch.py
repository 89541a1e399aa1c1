"""An orthogonal layer in PyTorch

A layer whose weight keeps orthonormal rows is marked once, and one optimiser moves all
parameters. PyTorch's own way is `torch.nn.utils.parametrizations.orthogonal`, which writes the
weight as the exponential of a skew matrix and differentiates through it. Both see the same data
in the same order here, with two learning rates: the parametrization wins with the smaller one, the
mark with the larger one. The picture shows the losses.
"""

import matplotlib.pyplot as plt
import torch

import stiefel.torch


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(16, 8, bias=False), torch.nn.Tanh(), torch.nn.Linear(8, 1)
    )


inputs = torch.randn(512, 16, generator=torch.Generator().manual_seed(1))
targets = torch.tanh(inputs[:, :1]) - torch.tanh(2 * inputs[:, 1:2])


def train(model, optimizer, steps=200):
    losses = []
    for step in range(steps):
        batch = slice(64 * (step % 8), 64 * (step % 8) + 64)
        optimizer.zero_grad()
        loss = torch.mean((model(inputs[batch]) - targets[batch]) ** 2)
        loss.backward()
        optimizer.step()
        losses.append(float(torch.mean((model(inputs) - targets) ** 2).detach()))
    return losses


def with_a_mark(rate):
    model = network()
    stiefel.torch.orthonormal(model[0], "weight", init="nearest")
    return train(model, stiefel.torch.Adam(model, lr=rate)), model[0].weight.detach()


def with_a_parametrization(rate):
    model = network()
    torch.nn.utils.parametrizations.orthogonal(model[0], "weight")
    return train(model, torch.optim.Adam(model.parameters(), lr=rate))


fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
for rate, style in ((0.02, ":"), (0.05, "-")):
    marked, W = with_a_mark(rate)
    parametrized = with_a_parametrization(rate)
    defect = float(torch.linalg.matrix_norm(W @ W.T - torch.eye(8), 2))
    print(f"rate {rate}: loss {marked[-1]:.4f} with a mark, {parametrized[-1]:.4f} without")
    print(f"‖WWᵀ − I‖ = {defect:.1e}")
    assert marked[-1] < 0.3 * marked[0]
    assert defect < 1e-5
    ax.semilogy(marked, style, color="C0", label=f"stiefel.torch.Adam, rate {rate}")
    ax.semilogy(parametrized, style, color="0.6", label=f"parametrization and Adam, rate {rate}")
ax.set(xlabel="step", title="loss on all data")
ax.legend(fontsize="small")
