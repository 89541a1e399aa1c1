"""Online PCA in the set-up of the landing papers, scaled down: epochs and time a step.

N samples of dimension n with covariance UUᵀ + I/10, U of k orthonormal columns; the loss is
−½‖AX‖² over batches of 128.  Each method gets the same rates, divided by the same cosine over ten
epochs; what counts is the first quarter of an epoch at which the gap to the optimum is 1e-2 of the
first gap, and the CPU time of a step of the optimiser beside landing's, taken in turns.

    python benchmarks/training_online_pca.py 100 200 500
"""

from __future__ import annotations

import json
import math
import sys
import time
from typing import Any

import torch
from training import RECORD, Landing

import stiefel.torch

N, BATCH, EPOCHS, RATES = 3000, 128, 10, (0.03, 0.1, 0.3)


class QR(torch.optim.Optimizer):
    """The projected gradient and a QR retraction."""

    def __init__(self, params: Any, lr: float) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for X in group["params"]:
                S = X.mT @ X.grad
                V = X.grad - X @ (S + S.mT) / 2
                Q, R = torch.linalg.qr(X - group["lr"] * V)
                X.copy_(Q * R.diagonal().sign())


METHODS = {
    "stiefel SGD": lambda p, lr: stiefel.torch.SGD([stiefel.torch.orthonormal(p)], lr=lr),
    "QR retraction": lambda p, lr: QR([p], lr=lr),
    "landing": lambda p, lr: Landing([p], lr=lr, momentum=0.0, strength=0.5 / lr),
}


def data(n: int, k: int) -> tuple[torch.Tensor, torch.Tensor, float]:
    torch.manual_seed(k)
    U = torch.linalg.qr(torch.randn(n, k))[0]
    A = torch.randn(N, k) @ U.mT + math.sqrt(0.1) * torch.randn(N, n)
    best = -0.5 * float(torch.linalg.eigvalsh(A.mT @ A / N)[-k:].sum())
    return A, torch.linalg.qr(torch.randn(n, k))[0], best


def gradient(A: torch.Tensor, p: torch.Tensor, i: int) -> None:
    rows = A[(i * BATCH) % N : (i * BATCH) % N + BATCH]
    p.grad = -(rows.mT @ (rows @ p.detach())) / len(rows)


def epochs(A: torch.Tensor, X: torch.Tensor, best: float, make: Any, lr: float) -> float | None:
    p = torch.nn.Parameter(X.clone())
    optimizer = make(p, lr)
    C = A.mT @ A / N

    def gap() -> float:
        Q, _ = torch.linalg.qr(p.detach())  # landing's points are not orthonormal
        return float(-0.5 * (Q * (C @ Q)).sum()) - best

    first, steps = gap(), math.ceil(EPOCHS * N / BATCH)
    for i in range(steps):
        optimizer.param_groups[0]["lr"] = lr * (1 + math.cos(math.pi * i / steps)) / 2
        gradient(A, p, i)
        optimizer.step()
        if (i + 1) % 6 == 0 and gap() < 1e-2 * first:
            return round((i + 1) * BATCH / N, 2)
    return None


def times(A: torch.Tensor, X: torch.Tensor, repeats: int) -> dict[str, float]:
    runs = {name: torch.nn.Parameter(X.clone()) for name in METHODS}
    optimizers = {name: make(runs[name], 0.1) for name, make in METHODS.items()}
    spent: dict[str, list[float]] = {name: [] for name in METHODS}
    for i in range(repeats):
        for name, optimizer in optimizers.items():
            gradient(A, runs[name], i)
            clock = time.process_time()
            optimizer.step()
            spent[name].append(time.process_time() - clock)
    return {name: min(values) for name, values in spent.items()}


def main() -> None:
    torch.set_num_threads(1)
    for k in map(int, sys.argv[1:] or ("100", "200", "500")):
        n = 1000
        A, X, best = data(n, k)
        found: dict[str, Any] = {"n": n, "N": N}
        spent = times(A, X, 8 if k < 500 else 4)
        for name, make in METHODS.items():
            reached = {lr: epochs(A, X, best, make, lr) for lr in RATES}
            found[name] = {"epochs": reached, "time": spent[name] / spent["landing"]}
            print(k, n, name, found[name], flush=True)
        record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        record.setdefault("online_pca", {})[str(k)] = found
        RECORD.write_text(json.dumps(record, separators=(",", ":"), sort_keys=True))


if __name__ == "__main__":
    main()
