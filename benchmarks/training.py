"""Optimisers with orthonormal weights, ours and others', on the tasks of training_tasks.py.

    python benchmarks/training.py run mlp attention …     # adds to docs/benchmarks/training.json
    python benchmarks/training.py render         # tables and curves of docs/guide/training.md

Every method gets the same grid of learning rates.  The rate is chosen with the first seed, and the
best one is run with two further seeds.  A step's time is the CPU time of all of it, forward,
backward and update, because parametrisations do their work in the forward pass.
"""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from training_tasks import TASKS, Trial

import stiefel.torch

RECORD = Path(__file__).parent.parent / "docs" / "benchmarks" / "training.json"
RATES = (0.003, 0.01, 0.03, 0.1)
SEEDS = (0, 1, 2)


class Landing(torch.optim.Optimizer):
    """The landing field: X ← X − lr (skew(GXᵀ)X + λX(XᵀX − I)), G with momentum.

    Written here from the published formula, because no package index has the authors' program.
    skew(GXᵀ)X = ½(G(XᵀX) − X(GᵀX)), from products of n×k and k×k matrices.
    """

    def __init__(self, params: Any, lr: float, momentum: float = 0.9, strength: float = 1.0):
        super().__init__(params, {"lr": lr, "momentum": momentum, "strength": strength})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for X in group["params"]:
                state = self.state[X]
                if group["momentum"]:
                    M = state.setdefault("momentum", torch.zeros_like(X))
                    G = M.mul_(group["momentum"]).add_(X.grad)
                else:
                    G = X.grad
                S = X.mT @ X
                field = (G @ S - X @ (G.mT @ X)) / 2
                field += group["strength"] * (X @ S - X)
                X.sub_(field, alpha=group["lr"])


class Several:
    """Several optimisers as one."""

    def __init__(self, *members: Any) -> None:
        self.members = members
        self.param_groups = [g for m in members for g in m.param_groups]

    def step(self) -> None:
        for m in self.members:
            m.step()


def ours(name: str, **settings: Any) -> Any:
    def make(trial: Trial, lr: float) -> Any:
        for layer in trial.layers:
            stiefel.torch.orthonormal(layer, "weight")
        return getattr(stiefel.torch, name)(trial.model, lr=lr, **settings)

    return make


def with_geoopt(name: str, **settings: Any) -> Any:
    def make(trial: Trial, lr: float) -> Any:
        import geoopt

        for layer in trial.layers:
            data = layer.weight.detach()
            layer.weight = geoopt.ManifoldParameter(data, manifold=geoopt.Stiefel())
        return getattr(geoopt.optim, name)(trial.model.parameters(), lr=lr, **settings)

    return make


def parametrised(how: str, name: str, **settings: Any) -> Any:
    def make(trial: Trial, lr: float) -> Any:
        for layer in trial.layers:
            if how == "geotorch":
                import geotorch

                start = layer.weight.detach().clone()
                geotorch.orthogonal(layer, "weight")
                layer.weight = start
            else:
                nn.utils.parametrizations.orthogonal(layer, "weight", orthogonal_map=how)
        return getattr(torch.optim, name)(trial.model.parameters(), lr=lr, **settings)

    return make


def beside(make_constrained: Any) -> Any:
    """An optimiser for the orthonormal weights, and SGD with momentum for the others."""

    def make(trial: Trial, lr: float) -> Any:
        weights = [layer.weight for layer in trial.layers]
        chosen = {id(w) for w in weights}
        rest = [p for p in trial.model.parameters() if id(p) not in chosen and p.requires_grad]
        first = make_constrained(weights, lr)
        return Several(first, torch.optim.SGD(rest, lr=lr, momentum=0.9)) if rest else first

    return make


def _pogo(weights: list[Any], lr: float) -> Any:
    import pogo
    import pogo.base

    base = pogo.base.SGD(momentum=0.9)
    return pogo.POGO(weights, base, lr=lr, flatten_fn=lambda x: x.unsqueeze(0), rows=False)


HEAVY = {"momentum": 0.9}
METHODS: dict[str, Any] = {
    "stiefel SGD": ours("SGD", **HEAVY),
    "stiefel Adam": ours("Adam"),
    "stiefel Muon": ours("Muon"),
    "geoopt SGD": with_geoopt("RiemannianSGD", **HEAVY),
    "geoopt Adam": with_geoopt("RiemannianAdam"),
    "cayley + Adam": parametrised("cayley", "Adam"),
    "cayley + SGD": parametrised("cayley", "SGD", **HEAVY),
    "matrix_exp + Adam": parametrised("matrix_exp", "Adam"),
    "matrix_exp + SGD": parametrised("matrix_exp", "SGD", **HEAVY),
    "householder + Adam": parametrised("householder", "Adam"),
    "householder + SGD": parametrised("householder", "SGD", **HEAVY),
    "GeoTorch + Adam": parametrised("geotorch", "Adam"),
    "landing": beside(lambda weights, lr: Landing(weights, lr)),
    "POGO": beside(_pogo),
}


def train(task: str, method: str, lr: float, seed: int) -> dict[str, Any]:
    """One run: the score at the end (None if it diverged), the curve, milliseconds a step."""
    trial = TASKS[task](seed)
    optimizer = METHODS[method](trial, lr)
    if trial.cosine:
        rates = [lr * (1 + math.cos(math.pi * i / trial.steps)) / 2 for i in range(trial.steps)]
    every, curve = max(1, trial.steps // 40), []
    clock = time.process_time()
    for i in range(trial.steps):
        if trial.cosine:
            for group in optimizer.param_groups:
                group["lr"] = rates[i]
        trial.model.zero_grad()
        loss = trial.loss(i)
        loss.backward()
        optimizer.step()
        if i % every == 0:
            curve.append(round(float(loss.detach()), 6))
            if not math.isfinite(curve[-1]):
                return {"lr": lr, "seed": seed, "score": None}
    milliseconds = 1e3 * (time.process_time() - clock) / trial.steps
    score = trial.score()
    found = {"lr": lr, "seed": seed, "score": score if math.isfinite(score) else None}
    return found | {"curve": curve, "ms": round(milliseconds, 3), "notes": trial.notes}


def better(task: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    sign = -1 if task == "attention" else 1
    return min(runs, key=lambda r: math.inf if r["score"] is None else sign * r["score"])


def compare(task: str, method: str) -> dict[str, Any]:
    grid = [train(task, method, lr, SEEDS[0]) for lr in RATES]
    best = better(task, grid)
    seeds = [best] + [train(task, method, best["lr"], seed) for seed in SEEDS[1:]]
    return {"grid": [[r["lr"], r["score"]] for r in grid], "best": best["lr"], "seeds": seeds}


def save(task: str, method: str, found: dict[str, Any]) -> None:
    record = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    record.setdefault(task, {})[method] = found
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text(json.dumps(record, indent=None, separators=(",", ":"), sort_keys=True))


def main() -> None:
    torch.set_num_threads(1)
    command, *names = sys.argv[1:] or ["run"]
    if command == "render":
        from training_page import render

        render(json.loads(RECORD.read_text()))
        return
    methods = [n for n in names if n in METHODS] or list(METHODS)
    for task in [n for n in names if n in TASKS] or list(TASKS):
        for method in methods:
            found = compare(task, method)
            save(task, method, found)
            scores = [s["score"] for s in found["seeds"]]
            print(f"{task:14s} {method:20s} lr {found['best']:<6} {scores}", flush=True)


if __name__ == "__main__":
    main()
