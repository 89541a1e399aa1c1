"""Implicit differentiation: a bilevel problem

Several data sources are mixed with weights θ, and the subspace that they give together should fit
a target. The lower level is a principal subspace of Σ θ_i C_i; the upper level moves θ by
gradient descent. The gradient goes through the minimiser: `stiefel.torch.minimize` knows its
derivative. Differences would need one more solve for every weight in every step.
"""

import matplotlib.pyplot as plt
import torch

import stiefel
import stiefel.torch

torch.manual_seed(0)
torch.set_default_dtype(torch.float64)
n, k, sources = 10, 2, 4

signal = torch.linalg.qr(torch.randn(n, k))[0]
covariances = []
for i in range(sources):  # one source sees the signal, the others something else
    noise = torch.randn(n, 2)
    seen = 3.0 * signal @ signal.T if i == 2 else 3.0 * noise @ noise.T / n
    covariances.append(seen + 0.1 * torch.eye(n))
C = torch.stack(covariances)

target = signal @ signal.T
x0 = stiefel.random_point(n, k, seed=1, like=torch.zeros(1))


def subspace(theta):
    weights = torch.softmax(theta, 0)
    mixed = torch.einsum("i,ijk->jk", weights, C)
    return stiefel.torch.minimize(
        lambda X: -(X * (mixed @ X)).sum(), x0, manifold=stiefel.Grassmann(), rtol=1e-9
    ).x


theta = torch.zeros(sources, requires_grad=True)
optimizer = torch.optim.Adam([theta], lr=0.2)
losses = []
for step in range(40):
    optimizer.zero_grad()
    X = subspace(theta)
    loss = ((X @ X.T - target) ** 2).sum()
    loss.backward()
    optimizer.step()
    losses.append(float(loss.detach()))
    if step % 10 == 0:
        print(f"step {step:2d}  misfit {float(loss.detach()):.4f}")

weights = torch.softmax(theta, 0).detach()
print("weights", [f"{float(w):.3f}" for w in weights], "misfit", f"{float(loss.detach()):.2e}")
assert int(weights.argmax()) == 2
assert float(loss.detach()) < 0.1

fig, axes = plt.subplots(1, 2, figsize=(6, 2.8), layout="constrained")
axes[0].semilogy(losses)
axes[0].set(xlabel="step", title="misfit of the subspace")
axes[1].bar(range(sources), weights.tolist())
axes[1].set(xlabel="source", title="weights", xticks=range(sources))
