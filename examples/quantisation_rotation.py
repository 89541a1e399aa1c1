"""A learned rotation for quantisation

Weights with a few large channels lose much when they are rounded to four bits. A rotation of the
channels spreads the large ones; it is undone after rounding and costs nothing in accuracy. Random
and Hadamard rotations are the usual choice. Here the rotation is learned, in bfloat16, with
`Muon`.
"""

import matplotlib.pyplot as plt
import torch

import stiefel.torch

torch.manual_seed(0)
size = 64
weights = torch.randn(96, size) * torch.exp(torch.randn(size))  # some channels are outliers


def error(R):
    """The relative error of rounding WR to 4 bits a row; rounding has the gradient of identity."""
    W = weights @ R
    step = W.abs().amax(-1, keepdim=True) / 7
    levels = W / step
    rounded = step * (levels + (levels.round() - levels).detach())
    return (rounded - W).square().sum() / W.square().sum()


rotation = torch.nn.Parameter(torch.eye(size, dtype=torch.bfloat16))
stiefel.torch.orthonormal(rotation)
optimizer = stiefel.torch.Muon([rotation], lr=0.02)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 150)

before = float(error(rotation.detach().float()))
for _ in range(150):
    optimizer.zero_grad()
    error(rotation.float()).backward()
    optimizer.step()
    schedule.step()

after = float(error(rotation.detach().float()))
master = optimizer.state[rotation]["master"]  # float32, where small steps are not lost
defect = float(torch.linalg.matrix_norm(master.mT @ master - torch.eye(size), 2))
random = torch.linalg.qr(torch.randn(size, size))[0]
hadamard = torch.ones(1, 1)
while len(hadamard) < size:
    hadamard = torch.kron(hadamard, torch.tensor([[1.0, 1.0], [1.0, -1.0]])) / 2**0.5
errors = {"none": before, "random": float(error(random)), "Hadamard": float(error(hadamard))}
errors["learned"] = after
print("relative 4-bit error:", ", ".join(f"{name} {e:.4f}" for name, e in errors.items()))
print(f"‖RᵀR − I‖ of the float32 master = {defect:.1e}")
assert after < 0.7 * before
assert defect < 2e-6

fig, ax = plt.subplots(figsize=(4.4, 2.8), layout="constrained")
ax.bar(list(errors), list(errors.values()), color=["0.7", "0.7", "0.7", "C0"])
ax.set(title="relative error of 4-bit weights")
