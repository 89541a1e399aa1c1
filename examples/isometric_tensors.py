"""Isometric tensors: compressing a state

A state of nine spins is compressed site by site with isometries, as in a matrix-product state in
canonical form. The point is a list of matrices with orthonormal columns, and the loss is the part
of the state that the isometries lose. The usual way is a sequence of truncated singular value
decompositions, which takes each site as if it were the last. Gradients are those of PyTorch.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

import stiefel

sites, bond = 9, 4
field = np.array([[1.0, 0.0], [0.0, -1.0]])
flip = np.array([[0.0, 1.0], [1.0, 0.0]])


def at(*pairs):
    matrices = [np.eye(2)] * sites
    for site, matrix in pairs:
        matrices[site] = matrix
    total = np.eye(1)
    for matrix in matrices:
        total = np.kron(total, matrix)
    return total


H = -sum(at((i, field), (i + 1, field)) for i in range(sites - 1))
H = H - sum((0.7 + 0.3 * (i % 3)) * at((i, flip)) for i in range(sites))
state = torch.as_tensor(np.linalg.eigh(H + 0.2 * at((0, field)))[1][:, 150])  # an excited state


def kept(isometries):
    rest = state.reshape(4, -1)  # the first two sites need no compression
    for A in isometries:
        rest = A.mT @ rest.reshape(A.shape[0], -1)
    return rest


def sequential():
    rest, found = state.reshape(4, -1), []
    for _ in range(sites - 4):
        rest = rest.reshape(2 * rest.shape[0], -1)
        U = torch.linalg.svd(rest, full_matrices=False)[0][:, :bond]
        found.append(U.contiguous())
        rest = U.mT @ rest
    return found


loss = lambda isometries: 1 - torch.sum(kept(isometries) ** 2)
start = sequential()
result = stiefel.minimize(loss, start, manifold=[stiefel.Stiefel()] * len(start), rtol=1e-4)
print(f"lost by truncated SVDs {float(loss(start)):.5f}, after minimize {result.fun:.5f}")
assert result.success and result.fun < float(loss(start))

fig, ax = plt.subplots(figsize=(5, 3), layout="constrained")
ax.axhline(float(loss(start)), color="0.6", ls="--", label="truncated SVDs")
ax.plot(result.history["nfev"], result.history["value"], label="minimize")
ax.set(xlabel="evaluations", ylabel="lost weight", title="Isometric tensors")
ax.legend()
