"""An orthogonal layer trained in PyTorch, beside an ordinary optimiser for the rest."""

import torch

from stiefel.torch import Accelerated, is_marked, mark_orthonormal

torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Linear(16, 8, bias=False), torch.nn.Tanh(), torch.nn.Linear(8, 1)
)
mark_orthonormal(model[0].weight)  # 8×16: its rows are kept orthonormal

inner = Accelerated(model.parameters())  # takes the marked parameters
rest = torch.optim.Adam([p for p in model.parameters() if not is_marked(p)], lr=0.02)

inputs = torch.randn(256, 16)
targets = torch.tanh(inputs[:, :1]) - torch.tanh(2 * inputs[:, 1:2])


def closure():
    model.zero_grad()
    loss = torch.mean((model(inputs) - targets) ** 2)
    loss.backward()
    return loss


first = float(closure().detach())
for epoch in range(80):
    closure()
    rest.step()
    loss = inner.step(closure)
    if epoch % 20 == 0:
        print(f"epoch {epoch:3d}  loss {loss:.5f}")

weight = model[0].weight.detach()
defect = torch.linalg.norm(weight @ weight.T - torch.eye(8))
print(f"loss {loss:.5f}, from {first:.5f}; ‖WWᵀ − I‖ = {defect:.1e}")
assert loss < 0.2 * first
assert defect < 1e-5
