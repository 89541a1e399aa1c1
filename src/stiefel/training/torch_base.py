"""What the three optimisers share: one step over all parameters, batched, without waiting.

Parameters of one shape, mark, dtype and device form a *batch*: they are stacked, the rule is
computed once for the stack, and the results are copied back, so that the number of kernels does not
grow with the number of equal shapes.  Free parameters of one dtype are laid end to end and form a
batch too.  A batch of one parameter is a view of it and copies nothing; batches are limited in
size, because a large matrix gains nothing from company.

A rule is a pure function of tensors: point, gradient and state in, new point and state out.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from .torch_marks import (
    Mark,
    check_on_manifold,
    mark_of,
    parameters_of,
    refuse_sharded,
    working_dtype,
)

State = dict[str, Tensor]
Group = dict[str, Any]

# Parameters are stacked up to this many entries; the copies that stacking makes are no larger.
LARGEST_BATCH = 1 << 22
# Keys that PyTorch and its schedulers put into groups.
FOREIGN_KEYS = {"params", "param_names", "initial_lr"}
FLAT = Mark("flat")  # the mark, so to say, of free parameters


@dataclass(frozen=True)
class Batch:
    """Parameters that are moved together; ``mark`` is FLAT for free ones, laid end to end."""

    mark: Mark
    members: list[Any]

    @property
    def free(self) -> bool:
        return self.mark is FLAT

    def join(self, tensors: list[Tensor]) -> Tensor:
        """Matrices (..., n, k), n ≥ k, or one vector, in the dtype of the computation."""
        first = tensors[0]
        if self.free:
            T = torch.cat([_flat(t) for t in tensors]) if len(tensors) > 1 else _flat(first)
        else:
            T = torch.stack(tensors) if len(tensors) > 1 else first.unsqueeze(0)
            T = self.mark.matrices(T, tuple(first.shape))
        return T.to(working_dtype(T.dtype))

    def split(self, T: Tensor, like: list[Tensor]) -> list[Tensor]:
        """The inverse of `join`."""
        shape = tuple(like[0].shape)
        if not self.free:
            return list(self.mark.parameters(T, shape).unbind(0))
        if len(like) == 1:
            return [_unflat(T, like[0])]
        sizes = [t.numel() * (1 + t.is_complex()) for t in like]
        parts = torch.split(T, sizes)
        return [_unflat(part, t) for part, t in zip(parts, like, strict=True)]


def _flat(t: Tensor) -> Tensor:
    return (torch.view_as_real(t) if t.is_complex() else t).reshape(-1)


def _unflat(part: Tensor, t: Tensor) -> Tensor:
    return torch.view_as_complex(part.view(*t.shape, 2)) if t.is_complex() else part.view(t.shape)


def _batches(group: Group) -> Iterator[Batch]:
    """The parameters of a group that have a gradient, by kind and in pieces of limited size."""
    kinds: dict[Any, list[Any]] = {}
    for p in group["params"]:
        if p.grad is None:
            continue
        if p.grad.is_sparse:
            raise TypeError(
                f"a parameter of shape {tuple(p.shape)} has a sparse gradient; give it to "
                "torch.optim.SparseAdam, or make its layer with sparse=False"
            )
        mark = mark_of(p)
        shape = None if mark is None else p.shape
        kinds.setdefault((mark or FLAT, shape, p.dtype, p.device), []).append(p)
    for (mark, *_), members in kinds.items():
        for piece in _pieces(members):
            yield Batch(mark, piece)


def _pieces(members: list[Any]) -> Iterator[list[Any]]:
    piece: list[Any] = []
    entries = 0
    for p in members:
        if piece and entries + p.numel() > LARGEST_BATCH:
            yield piece
            piece, entries = [], 0
        piece.append(p)
        entries += p.numel()
    yield piece


class ManifoldOptimizer(torch.optim.Optimizer):
    """Steps for all parameters of a model: marked ones stay orthonormal, the others are free."""

    _step_supports_amp_scaling = True  # a GradScaler leaves scaling and skipping to `step`
    grad_scale: Tensor | None
    found_inf: Tensor | None

    def __init__(self, params: Any, defaults: Group) -> None:
        if isinstance(params, nn.Module):
            params = list(parameters_of(params))
        super().__init__(params, defaults)

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters, with settings of their own; unknown settings are refused."""
        unknown = sorted(set(param_group) - set(self.defaults) - FOREIGN_KEYS)
        if unknown:
            known = sorted(set(self.defaults) | {"params"})
            raise ValueError(f"a group has the unknown keys {unknown}; expected some of {known}")
        if isinstance(param_group.get("params"), nn.Module):
            param_group = {**param_group, "params": list(parameters_of(param_group["params"]))}
        self.check_group({**self.defaults, **param_group})
        super().add_param_group(param_group)
        try:
            self._check_parameters(self.param_groups[-1])
        except (TypeError, ValueError):
            self.param_groups.pop()
            raise

    def check_group(self, group: Group) -> None:
        """Refuse settings that make no sense."""
        for name in ("lr", "weight_decay", "momentum", "dampening", "eps", "free_lr_factor"):
            value = group.get(name, 0.0)
            if not torch.is_tensor(value) and not 0 <= value < math.inf:
                raise ValueError(f"{name}={value!r} is not a number of at least 0")
        for beta in group.get("betas", ()):
            if not 0 <= beta < 1:
                raise ValueError(f"betas={group['betas']!r} are not numbers in [0, 1)")
        if group.get("nesterov") and not (group["momentum"] > 0 and not group.get("dampening")):
            raise ValueError("nesterov=True needs a momentum above 0 and a dampening of 0")

    def _check_parameters(self, group: Group) -> None:
        marked = 0
        for i, p in enumerate(group["params"]):
            refuse_sharded(p)
            mark = mark_of(p)
            if mark is None:
                continue
            marked += 1
            if mark.manifold is not None:
                raise ValueError(
                    f"parameter {i} is marked with {mark.manifold!r}; {type(self).__name__} moves "
                    "orthonormal parameters only, stiefel.torch.Accelerated the others"
                )
            mark.check(tuple(p.shape))
            if not p.is_meta:
                check_on_manifold(p, mark, f"parameter {i} of shape {tuple(p.shape)}")
        if marked and group.get("weight_decay"):
            _explain_weight_decay(group["weight_decay"], len(group["params"]) - marked)

    # -- one step -----------------------------------------------------------------------------

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step from the gradients that the parameters hold.

        Parameters without gradient are skipped.  If any gradient is not finite, no parameter and
        no state changes, as under a `torch.amp.GradScaler`; nothing waits for the device to know.
        ``closure``, if given, is called once, before.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        work = [(group, batch) for group in self.param_groups for batch in _batches(group)]
        finite = {d: self._all_finite(d, work) for d in {b.members[0].device for _, b in work}}
        for group, batch in work:
            self._move(group, batch, finite[batch.members[0].device])
        return loss

    def _all_finite(self, device: Any, work: list[tuple[Group, Batch]]) -> Tensor:
        gradients = [p.grad for _, b in work for p in b.members]
        half = [g for g in gradients if g.dtype == torch.float16]  # whose norm would overflow
        rest = [g for g in gradients if g.dtype != torch.float16]
        norms = torch._foreach_norm(half, 2, dtype=torch.float32) if half else ()
        norms = (*norms, *(torch._foreach_norm(rest) if rest else ()))
        total = torch.stack([s.to(device, torch.float32) for s in norms]).sum()
        finite = total - total == 0  # in fewer kernels than isfinite
        found = getattr(self, "found_inf", None)
        return finite if found is None else finite & (found.to(device) == 0)

    def _move(self, group: Group, batch: Batch, finite: Tensor) -> None:
        # Under autocast the products of a step would be rounded to 8 bits, and their defect stay.
        device = finite.device.type
        if torch.is_autocast_enabled(device):
            with torch.autocast(device, enabled=False):
                self._step_of(group, batch, finite)
        else:
            self._step_of(group, batch, finite)

    def _step_of(self, group: Group, batch: Batch, finite: Tensor) -> None:
        G = batch.join([p.grad for p in batch.members])
        scale = getattr(self, "grad_scale", None)
        if scale is not None:
            G = G / scale.to(G.device)
        old = self._read(group, batch, G, finite)
        X = old.pop("point")
        rule = self.free_rule if batch.free else self.constrained_rule
        after, new = rule(group, batch.mark.scale, X, G, old)  # of no use if G is not finite
        for name, value in new.items():
            self._write(batch, name, torch.where(finite, value, old[name]))
        self._write(batch, "point", torch.where(finite, after, X))

    def state_names(self, group: Group, free: bool) -> tuple[str, ...]:
        """What the rule keeps of each parameter: "momentum", "second_moment", "step"."""
        raise NotImplementedError

    def constrained_rule(
        self, group: Group, scale: float, X: Tensor, G: Tensor, old: State
    ) -> tuple[Tensor, State]:
        """The next point and state of matrices (..., n, k) with XᴴX = s²I."""
        raise NotImplementedError

    def free_rule(
        self, group: Group, scale: float, X: Tensor, G: Tensor, old: State
    ) -> tuple[Tensor, State]:
        """The next point and state of a vector of free entries."""
        raise NotImplementedError

    # -- from and to the parameters -----------------------------------------------------------

    def _read(self, group: Group, batch: Batch, G: Tensor, finite: Tensor) -> State:
        names = self.state_names(group, batch.free)
        low = working_dtype(batch.members[0].dtype) != batch.members[0].dtype
        self._prepare(group, batch, (*names, "master") if low else names, G)
        state = [self.state[p] for p in batch.members]
        joined = {name: self._join(batch, name, G) for name in names if name != "step"}
        if "step" in names:
            joined["step"] = self._count(batch, finite, G)
        joined["point"] = X = batch.join(batch.members)
        if low:  # an entry that is not its master rounded was set by somebody else
            kept = batch.join([s["master"] for s in state])
            held = kept.to(batch.members[0].dtype).to(kept.dtype) == X
            joined["point"] = torch.where(held, kept, X)
        return joined

    def _count(self, batch: Batch, finite: Tensor, G: Tensor) -> Tensor:
        """The steps of each parameter, this one included, to broadcast against the batch."""
        kept = [self.state[p]["step"] for p in batch.members]
        steps = torch.stack(kept) + finite
        torch._foreach_copy_(kept, list(steps.unbind(0)))
        if batch.free:
            pairs = zip(steps.unbind(0), batch.members, strict=True)
            return torch.cat([t.expand(_flat(p).shape) for t, p in pairs])
        each = G.shape[0] // len(kept)  # matrices a parameter
        return (steps.repeat_interleave(each) if each > 1 else steps)[:, None, None]

    def _join(self, batch: Batch, name: str, G: Tensor) -> Tensor:
        tensors = [self.state[p][name] for p in batch.members]
        if name == "second_moment" and not batch.free:
            return torch.cat(tensors) if len(tensors) > 1 else tensors[0]
        return batch.join(tensors)

    def _write(self, batch: Batch, name: str, T: Tensor) -> None:
        if name == "point":
            if "master" in self.state[batch.members[0]]:
                self._write(batch, "master", T)
            targets = batch.members
        else:
            targets = [self.state[p][name] for p in batch.members]
        if name == "second_moment" and not batch.free:
            parts = list(T.reshape(len(targets), -1, *T.shape[1:]).unbind(0))
        else:
            parts = batch.split(T, targets)
        torch._foreach_copy_(targets, parts)

    def _prepare(self, group: Group, batch: Batch, names: tuple[str, ...], G: Tensor) -> None:
        """Zeros, where a parameter has no state yet; a master is the parameter."""
        for p in batch.members:
            for name in names:
                if name in self.state[p]:
                    continue
                if name == "master":
                    value = p.detach().to(working_dtype(p.dtype))
                elif name == "step":
                    value = torch.zeros((), dtype=torch.float32, device=p.device)
                elif name == "second_moment" and not batch.free:
                    each = G.shape[0] // len(batch.members)
                    value = torch.zeros_like(self.second_moment(group, G[:each]))
                else:
                    value = torch.zeros_like(p, dtype=working_dtype(p.dtype))
                self.state[p][name] = value

    def second_moment(self, group: Group, G: Tensor) -> Tensor:
        """|G|² as the rule averages it; its shape is that of the state."""
        raise NotImplementedError

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state; its tensors keep their dtype, whatever that of the parameters is."""
        super().load_state_dict(state_dict)
        groups = zip(self.param_groups, state_dict["param_groups"], strict=True)
        pairs = [pair for a, b in groups for pair in zip(a["params"], b["params"], strict=True)]
        for p, key in pairs:
            for name, value in state_dict["state"].get(key, {}).items():
                if torch.is_tensor(value):
                    self.state[p][name] = value.detach().clone().to(p.device)


def _explain_weight_decay(value: float, free: int) -> None:
    sentence = (
        f"weight_decay={value} does not act on orthonormal parameters, whose norm is fixed: the "
        "gradient of their norm has no tangent part"
    )
    if not free:
        raise ValueError(f"{sentence}; pass weight_decay=0 for their group")
    warnings.warn(f"{sentence}; it acts on the free parameters of their group", stacklevel=5)
