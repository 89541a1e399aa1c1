"""A bilevel problem: weights of several data sources, so that their joint subspace fits a target.

The lower level is a principal subspace of Σ θ_i C_i; the upper level compares its projector with
that of labelled data and moves θ by gradient descent.  The gradient goes through the minimiser
itself: `stiefel.torch.minimize` knows its derivative.
"""

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
for step in range(40):
    optimizer.zero_grad()
    X = subspace(theta)
    loss = ((X @ X.T - target) ** 2).sum()
    loss.backward()
    optimizer.step()
    if step % 10 == 0:
        print(f"step {step:2d}  misfit {float(loss.detach()):.4f}")

weights = torch.softmax(theta, 0).detach()
print("weights", [f"{float(w):.3f}" for w in weights], "misfit", f"{float(loss.detach()):.2e}")
assert int(weights.argmax()) == 2
assert float(loss.detach()) < 0.1
