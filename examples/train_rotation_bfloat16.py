"""A rotation that makes weights easier to quantise, learned in bfloat16 with Muon."""

import torch

import stiefel.torch

torch.manual_seed(0)
size = 48
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
print(f"4-bit error {before:.4f} → {after:.4f}; ‖RᵀR − I‖ of the master = {defect:.1e}")
assert after < 0.7 * before
assert defect < 2e-6
