"""SGD, Adam and Muon; public in `stiefel.torch`.

Each rule is written twice: for matrices on XᴴX = s²I, with the formulas of `formulas`, and for the
free entries of the model, where it is PyTorch's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import formulas
from .torch_base import Group, ManifoldOptimizer, State


def _identity(X: Tensor) -> Tensor:
    return torch.eye(X.shape[-1], dtype=X.dtype, device=X.device)


class SGD(ManifoldOptimizer):
    """Stochastic gradient descent with momentum for all parameters of a model.

    On orthonormal parameters, with P the projection onto the tangent space at X,

        M ← P(μM + (1−d)G),     X ← R(X, −lr·M),

    where R is the polar retraction; with ``nesterov`` the step is along P(G + μM).  Projecting M
    carries it from the point before.  Free parameters get the rule of `torch.optim.SGD`.

    Parameters
    ----------
    params : torch.nn.Module or iterable
        A model, or parameters or groups of them, as for every optimiser of PyTorch.
    lr : float or Tensor
        The learning rate.
    momentum, dampening : float
        μ and d.  The first gradient enters undamped.
    nesterov : bool
        Look ahead along the momentum.
    weight_decay : float
        For free parameters; the norm of orthonormal ones is fixed.

    Raises
    ------
    ValueError
        If a setting makes no sense or is unknown, or a marked parameter is not orthonormal.

    Examples
    --------
    >>> model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    >>> from stiefel.torch import orthonormal
    >>> W = orthonormal(model[0], "weight")
    >>> optimizer = SGD(model, lr=0.1, momentum=0.9)
    >>> model(torch.ones(3, 8)).sum().backward()
    >>> optimizer.step()
    >>> bool(torch.allclose(W @ W.mT, torch.eye(4), atol=1e-6))
    True
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-2,
        *,
        momentum: float = 0.0,
        dampening: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        settings = {"lr": lr, "momentum": momentum, "dampening": dampening}
        super().__init__(params, settings | {"nesterov": nesterov, "weight_decay": weight_decay})

    def state_names(self, group: Group, free: bool) -> tuple[str, ...]:
        names = ("momentum",) if group["momentum"] else ()
        return (*names, "step") if names and group["dampening"] else names

    def constrained_rule(
        self, group: Group, scale: float, X: Tensor, G: Tensor, old: State
    ) -> tuple[Tensor, State]:
        M, new = _momentum(group, G, old)
        M = formulas.tangent(X, M, scale)
        if new:
            new["momentum"] = M
        if group["nesterov"]:
            M = formulas.tangent(X, G + group["momentum"] * M, scale)
        return formulas.polar(X, -group["lr"] * M, _identity(X), scale), new

    def free_rule(
        self, group: Group, scale: float, X: Tensor, G: Tensor, old: State
    ) -> tuple[Tensor, State]:
        if group["weight_decay"]:
            G = G + group["weight_decay"] * X
        M, new = _momentum(group, G, old)
        if group["nesterov"]:
            M = G + group["momentum"] * M
        return X - group["lr"] * M, new


def _momentum(group: Group, G: Tensor, old: State) -> tuple[Tensor, State]:
    """μM + (1−d)G, and G itself in the first step."""
    if not group["momentum"]:
        return G, {}
    M = group["momentum"] * old["momentum"]
    if group["dampening"]:
        M = M + torch.where(old["step"] > 1, 1 - group["dampening"], 1.0) * G
    else:
        M = M + G
    return M, {"momentum": M}


class Adam(ManifoldOptimizer):
    """Adam for all parameters of a model, with decoupled weight decay (AdamW) for the free ones.

    On orthonormal parameters, with P the projection onto the tangent space at X and g = P(G),

        M ← P(β₁M + (1−β₁)g),     v ← β₂v + (1−β₂) |g|²,
        X ← R(X, −lr · s/√n · P(M̂ / (√v̂ + ε))),

    where M̂ and v̂ are corrected for their start at zero.  s/√n is the root mean square of the
    entries of X, so that ``lr`` is relative: a step turns the matrix by about ``lr`` radians,
    whatever its shape and scale, and one rate serves orthonormal and free parameters.  |g|² is
    that of each entry by default, as for free parameters; one number a matrix would give steps
    that do not depend on the basis, and was worse wherever it was measured.

    Parameters
    ----------
    params : torch.nn.Module or iterable
        A model, or parameters or groups of them.
    lr : float or Tensor
        The learning rate.
    betas : (float, float)
        β₁ and β₂.
    eps : float
        ε.
    weight_decay : float
        For free parameters; the norm of orthonormal ones is fixed.
    second_moment : {"matrix", "rows", "columns", "entries"}
        What v averages over, for orthonormal parameters; rows and columns are those of the tall
        form.  docs/guide/training.md compares them.

    Raises
    ------
    ValueError
        If a setting makes no sense or is unknown, or a marked parameter is not orthonormal.

    Examples
    --------
    >>> from stiefel.torch import orthonormal
    >>> layer = torch.nn.Linear(8, 4)
    >>> W = orthonormal(layer, "weight")
    >>> optimizer = Adam(layer, lr=1e-2)
    >>> layer(torch.ones(3, 8)).sum().backward()
    >>> optimizer.step()
    >>> bool(torch.allclose(W @ W.mT, torch.eye(4), atol=1e-6))
    True
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        second_moment: str = "entries",
    ) -> None:
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, settings | {"second_moment": second_moment})

    def check_group(self, group: Group) -> None:
        super().check_group(group)
        if group["second_moment"] not in formulas.MOMENTS:
            given = group["second_moment"]
            raise ValueError(f"second_moment={given!r} is none of {formulas.MOMENTS}")

    def state_names(self, group: Group, free: bool) -> tuple[str, ...]:
        return ("momentum", "second_moment", "step")

    def second_moment(self, group: Group, G: Tensor) -> Tensor:
        return formulas.second_moment(G, group["second_moment"])

    def constrained_rule(
        self, group: Group, scale: float, X: Tensor, G: Tensor, old: State
    ) -> tuple[Tensor, State]:
        beta1, beta2 = group["betas"]
        g = formulas.tangent(X, G, scale)
        M = formulas.tangent(X, beta1 * old["momentum"] + (1 - beta1) * g, scale)
        v = beta2 * old["second_moment"] + (1 - beta2) * self.second_moment(group, g)
        D = M * (_adaptive_rate(group, v, old["step"]) * (scale / X.shape[-2] ** 0.5))
        if group["second_moment"] != "matrix":
            D = formulas.tangent(X, D, scale)
        return formulas.polar(X, -D, _identity(X), scale), {"momentum": M, "second_moment": v}

    def free_rule(
        self, group: Group, scale: float, X: Tensor, G: Tensor, old: State
    ) -> tuple[Tensor, State]:
        return _adamw(group, X, G, old)


def _adaptive_rate(group: Group, v: Tensor, t: Tensor) -> Tensor:
    """lr/(1−β₁ᵗ) / (√(v/(1−β₂ᵗ)) + ε)."""
    beta1, beta2 = group["betas"]
    root = (v / (1 - beta2**t)).sqrt()
    return group["lr"] / ((1 - beta1**t) * (root + group["eps"]))


def _adamw(group: Group, X: Tensor, G: Tensor, old: State) -> tuple[Tensor, State]:
    beta1, beta2 = group["betas"]
    M = beta1 * old["momentum"] + (1 - beta1) * G
    v = beta2 * old["second_moment"] + (1 - beta2) * G * G
    if group["weight_decay"]:
        X = X * (1 - group["lr"] * group["weight_decay"])
    return X - M * _adaptive_rate(group, v, old["step"]), {"momentum": M, "second_moment": v}


class Muon(ManifoldOptimizer):
    """Steepest descent in the spectral norm, with momentum; AdamW for the free parameters.

    On orthonormal parameters, with P the projection onto the tangent space at X,

        M ← P(μM + G),     X ← R(X, −lr·s·A),     A = argmax ⟨M, A⟩ over tangent ‖A‖₂ ≤ 1,

    computed by matrix products: exactly for square matrices, to a factor for tall ones (see
    `stiefel.training.formulas.muon_direction`).  Every direction turns by at most about ``lr``
    radians a step, whatever the size of the gradient, the shape and the scale s.

    Parameters
    ----------
    params : torch.nn.Module or iterable
        A model, or parameters or groups of them.
    lr : float or Tensor
        The angle of a step.
    momentum : float
        μ.
    nesterov : bool
        Look ahead along the momentum.
    free_lr_factor : float
        Free parameters (biases, embeddings, heads) get AdamW with the rate ``free_lr_factor * lr``,
        so that a schedule of ``lr`` moves both.
    betas, eps, weight_decay
        Of that AdamW.

    Raises
    ------
    ValueError
        If a setting makes no sense or is unknown, or a marked parameter is not orthonormal.

    Examples
    --------
    >>> from stiefel.torch import orthonormal
    >>> layer = torch.nn.Linear(8, 8)
    >>> W = orthonormal(layer, "weight")
    >>> optimizer = Muon(layer, lr=0.05)
    >>> before = W.detach().clone()
    >>> layer(torch.randn(3, 8)).square().sum().backward()
    >>> optimizer.step()
    >>> bool(torch.linalg.matrix_norm(W - before, 2) < 0.051)
    True
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 2e-2,
        *,
        momentum: float = 0.95,
        nesterov: bool = True,
        free_lr_factor: float = 1.0,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        settings = {"lr": lr, "momentum": momentum, "nesterov": nesterov, "betas": betas}
        settings |= {"free_lr_factor": free_lr_factor, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, settings)

    def state_names(self, group: Group, free: bool) -> tuple[str, ...]:
        if free:
            return ("momentum", "second_moment", "step")
        return ("momentum",) if group["momentum"] else ()

    def constrained_rule(
        self, group: Group, scale: float, X: Tensor, G: Tensor, old: State
    ) -> tuple[Tensor, State]:
        M, new = G, {}
        if group["momentum"]:
            M = formulas.tangent(X, group["momentum"] * old["momentum"] + G, scale)
            new = {"momentum": M}
        if group["nesterov"]:
            M = G + group["momentum"] * M
        A = formulas.muon_direction(X, M, _identity(X), scale)
        return formulas.polar(X, -group["lr"] * scale * A, _identity(X), scale), new

    def free_rule(
        self, group: Group, scale: float, X: Tensor, G: Tensor, old: State
    ) -> tuple[Tensor, State]:
        return _adamw({**group, "lr": group["lr"] * group["free_lr_factor"]}, X, G, old)
