"""A classifier with orthonormal hidden layers

The network is trained with `stiefel.torch.Adam` on batches. One optimiser moves marked and free
parameters. `torch.nn.utils.parametrizations.orthogonal` reaches the same constraint by computing
the matrix from a free one at each forward pass; [the page on training](../guide/training.md)
compares the two.
"""

import matplotlib.pyplot as plt
import torch
from sklearn.datasets import load_digits
from torch.nn import functional

import stiefel.torch

torch.manual_seed(0)
digits = load_digits()
x, y = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)

model = torch.nn.Sequential(
    torch.nn.Linear(64, 128),
    torch.nn.ReLU(),
    torch.nn.Linear(128, 128),
    torch.nn.ReLU(),
    torch.nn.Linear(128, 10),
)
for i in (0, 2):
    stiefel.torch.orthonormal(model[i], "weight")

losses = []
optimizer = stiefel.torch.Adam(model, lr=0.03)  # all parameters, marked and free
for epoch in range(8):
    for batch in torch.randperm(len(x)).split(64):
        optimizer.zero_grad()
        loss = functional.cross_entropy(model(x[batch]), y[batch])
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    print(f"epoch {epoch}  loss {float(loss.detach()):.4f}")

W = model[2].weight.detach()
defect = float(torch.linalg.matrix_norm(W.mT @ W - torch.eye(128), 2))
with torch.no_grad():
    final = float(functional.cross_entropy(model(x), y))
print(f"loss {final:.4f}, ‖WᵀW − I‖ = {defect:.1e}")
assert final < 0.3
assert defect < 5e-6

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5))
left.semilogy(losses)
left.set(xlabel="step", ylabel="loss of a batch")
free = torch.nn.init.kaiming_uniform_(torch.empty(128, 128), 5**0.5)  # torch.nn.Linear's own start
right.plot(torch.linalg.svdvals(free), label="a free layer, at its start")
right.plot(torch.linalg.svdvals(W), label="the orthonormal layer, trained")
right.set(xlabel="index", ylabel="singular value")
right.legend()
