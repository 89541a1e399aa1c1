"""An orthogonal layer in PyTorch

A layer whose weight keeps orthonormal rows is marked once, and one optimiser moves all
parameters. PyTorch's own way is `torch.nn.utils.parametrizations.orthogonal`, which writes the
weight as the exponential of a skew matrix and differentiates through it. Both see the same data
in the same order here; the picture shows the losses.
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


ours = network()
stiefel.torch.orthonormal(ours[0], "weight", init="nearest")
marked = train(ours, stiefel.torch.Adam(ours, lr=0.05))

theirs = network()
torch.nn.utils.parametrizations.orthogonal(theirs[0], "weight")
parametrized = train(theirs, torch.optim.Adam(theirs.parameters(), lr=0.05))

W = ours[0].weight.detach()
defect = float(torch.linalg.matrix_norm(W @ W.T - torch.eye(8), 2))
print(f"loss {marked[-1]:.5f} with a mark, {parametrized[-1]:.5f} with a parametrization")
print(f"‖WWᵀ − I‖ = {defect:.1e}")
assert marked[-1] < 0.2 * marked[0]
assert defect < 1e-5

fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
ax.semilogy(marked, label="stiefel.torch.Adam")
ax.semilogy(parametrized, label="parametrization and Adam", color="0.6")
ax.set(xlabel="step", title="loss on all data")
ax.legend()
