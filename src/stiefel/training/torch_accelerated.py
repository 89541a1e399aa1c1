"""The accelerated method as a `torch.optim.Optimizer`; public in `stiefel.torch`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import distributed, nn

from stiefel.geometry import Product, Stiefel
from stiefel.solvers.accelerated import AcceleratedGradient, State
from stiefel.solvers.noise import Model, Watch
from stiefel.solvers.problem import Problem
from stiefel.types import Manifold

from .torch_marks import (
    Mark,
    check_on_manifold,
    defect,
    is_orthonormal,
    mark_of,
    orthonormal,
    parameters_of,
    put_on_manifold,
    set_mark,
)

Tensor = Any
KEYS = {"params", "param_names", "manifold"}
# What a state holds beside points and values: numbers that survive in a state_dict.
STATE_NUMBERS = ("f_X", "gamma", "k", "restarted", "ceiling")


def mark_orthonormal(parameter: Tensor, manifold: Manifold | None = None) -> Tensor:
    """Make a parameter orthonormal, in place, and mark it; `orthonormal` for more than matrices.

    The columns of a tall matrix become orthonormal, the rows of a wide one; stacks (..., n, k) of
    matrices likewise.  ``manifold`` is `Stiefel()` unless given; others are for `Accelerated`.
    """
    view = "stack" if parameter.ndim > 2 else "matrix"
    if manifold is None:
        return orthonormal(parameter, view=view)
    with torch.no_grad():
        parameter.copy_(_from_tall(manifold.nearest(_to_tall(parameter)), parameter))
    return set_mark(parameter, Mark(view, manifold=manifold))


def is_marked(parameter: Tensor) -> bool:
    """Whether a parameter is marked orthonormal."""
    return is_orthonormal(parameter)


class Accelerated(torch.optim.Optimizer):
    """Accelerated gradient descent with a line search, for a loss of the whole data.

    ``params`` are a model, parameters or groups of them.  Those that are not marked orthonormal are
    left to another optimiser, unless their group names a ``manifold``; no other key is known.
    ``step(closure)`` runs one iteration of ``method``, whose line search calls the closure several
    times: the closure clears gradients, computes the loss, calls ``backward()`` and returns the
    loss, as for `torch.optim.LBFGS`.

    Between two steps the loss may have changed, because of another batch or another optimiser; so
    each step evaluates it afresh, once or twice.  ``fixed=True`` says that it has not, saves these
    calls and gives the iterates of `stiefel.minimize`.

    With `torch.distributed`, losses and gradients are averaged over ``process_group`` (all
    processes, unless given), so that every process takes the same decisions and ends at the same
    point.  If ``params`` is a model, its buffers (the statistics of BatchNorm) change once a step.
    An exception in the closure, or a loss that is not finite, leaves the parameters as they were.
    """

    def __init__(
        self,
        params: nn.Module | Iterable[Any],
        method: AcceleratedGradient | None = None,
        *,
        manifold: Manifold | None = None,
        fixed: bool = False,
        process_group: Any = None,
    ) -> None:
        self.method = AcceleratedGradient() if method is None else method
        self.fixed = fixed
        self.process_group = process_group
        self._current: State | None = None
        self._buffers = list(params.buffers()) if isinstance(params, nn.Module) else []
        super().__init__(_marked_groups(params, manifold), {"manifold": None})
        factors = []
        for group in self.param_groups:
            for i, p in enumerate(group["params"]):
                factor = group["manifold"] or _manifold(p)
                _settle(p, f"parameter {i} of shape {tuple(p.shape)}")
                factor.check_point(_to_tall(p), f"parameter {i} of shape {tuple(p.shape)}")
                factors.append(factor)
            del group["manifold"]  # what is left is data, and fits in a state_dict
        self._parameters = [p for group in self.param_groups for p in group["params"]]
        self._geometry = Product(tuple(factors)).bind(self._point())

    def step(self, closure: Callable[[], Any]) -> float:  # type: ignore[override]
        """One iteration; returns the loss at the point it started from."""
        if closure is None:
            raise TypeError("step() needs a closure that computes the loss and its gradient")
        objective = _ClosureObjective(closure, self._parameters, self._buffers, self.process_group)
        start = self._point()
        problem = Problem(self._geometry, objective, noise=Model(self._geometry.eps(start)))
        try:
            before = self._entry(problem)
            after = self.method.step(problem, before) if before.at.finite else before
        except BaseException:
            objective.place(start)
            raise
        if not before.at.finite:
            objective.place(start)
            return before.at.f
        self._keep(after)
        objective.place(after.x)
        return before.at.f

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._current = None

    # -- from and to the state of the solver ------------------------------------------------

    def _point(self) -> tuple[Tensor, ...]:
        return tuple(_to_tall(p) for p in self._parameters)

    def _entry(self, problem: Problem) -> State:
        """The solver's state at the parameters as they are now."""
        now, saved = self._point(), self.state.get(self._parameters[0], {})
        held = self._current
        moved = held is not None and not all(map(torch.equal, held.x, now))
        if held is not None and self.fixed and not moved and held.failure is None:
            return held
        if not saved or moved:  # at first, or if somebody else has set the parameters
            return self.method.init(problem, now)
        X = tuple(self.state[p]["accepted"] for p in self._parameters)
        at = problem.gradient(now)
        aim = problem.against(now, *problem.steepest(now, at))
        at_X = all(map(torch.equal, X, now))
        if at_X:
            X, f_X = now, at.f
        else:
            f_X = saved["f_X"] if self.fixed else problem.objective.value(X)
        numbers = {name: saved[name] for name in STATE_NUMBERS} | {"f_X": f_X}
        return State(x=now, at=at, aim=aim, X=X, at_X=at_X, watch=Watch(*saved["watch"]), **numbers)

    def _keep(self, s: State) -> None:
        self._current = s
        for p, X in zip(self._parameters, s.X, strict=True):
            self.state[p]["accepted"] = X
        numbers = {n: getattr(s, n) for n in STATE_NUMBERS} | {"watch": tuple(s.watch)}
        self.state[self._parameters[0]].update(numbers)


class _ClosureObjective:
    """f and its gradient through a closure that fills ``.grad``; one call gives both."""

    def __init__(
        self,
        closure: Callable[[], Any],
        parameters: list[Tensor],
        buffers: list[Tensor],
        process_group: Any,
    ) -> None:
        self.nfev = self.njev = self.nhev = 0
        self.scale = 1.0
        self._closure, self._parameters, self._buffers = closure, parameters, buffers
        self._process_group = process_group
        self._last_evaluation: tuple[Any, float, Any] | None = None

    def place(self, X: tuple[Tensor, ...]) -> None:
        """Set the parameters to X."""
        with torch.no_grad():
            for p, x in zip(self._parameters, X, strict=True):
                p.copy_(_from_tall(x, p))

    def value(self, X: tuple[Tensor, ...]) -> float:
        self.place(X)
        kept = [b.clone() for b in self._buffers] if self.nfev else []
        with torch.enable_grad():
            loss = self._closure().detach().clone()
        for b, k in zip(self._buffers, kept, strict=False):  # only the first call of a step counts
            b.copy_(k)
        gradients = _gradients(self._parameters)
        for tensor in (loss, *gradients):
            self._average(tensor)
        self.nfev, self.njev = self.nfev + 1, self.njev + 1
        f = float(loss)
        self._last_evaluation = X, f, gradients
        return f

    def _average(self, tensor: Tensor) -> None:
        if distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(tensor, group=self._process_group)
            tensor.div_(distributed.get_world_size(self._process_group))

    def value_and_gradient(
        self, X: tuple[Tensor, ...], value: float | None = None
    ) -> tuple[float, tuple[Tensor, ...], None]:
        if self._last_evaluation is None or self._last_evaluation[0] is not X:
            self.value(X)
        assert self._last_evaluation is not None
        _, f, G = self._last_evaluation
        return f, G, None

    def projected(
        self, project: Callable[..., Any], X: tuple[Tensor, ...], value: float | None = None
    ) -> tuple[float, Any, None]:
        f, gradient, _ = self.value_and_gradient(X)
        return f, project(X, gradient), None

    def user_point(self, X: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return X

    def aux(self, X: tuple[Tensor, ...]) -> None:
        """A closure returns nothing for a preconditioner."""


def _gradients(parameters: list[Tensor]) -> tuple[Tensor, ...]:
    """Zeros for a parameter that the loss does not see; copies, because closures write in place."""
    if all(p.grad is None for p in parameters):
        raise TypeError(
            "no parameter has a gradient after the closure; expected it to call loss.backward()"
        )
    found = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    return tuple(_to_tall(g, p, gradient=True) for g, p in zip(found, parameters, strict=True))


def _manifold(p: Tensor) -> Any:
    mark = mark_of(p)
    return Stiefel() if mark is None or mark.manifold is None else mark.manifold


def _settle(p: Tensor, label: str) -> None:
    """A model that was made in float32 and is float64 now is orthonormal to float32: mend that."""
    mark = mark_of(p)
    if mark is not None and mark.manifold is None:
        check_on_manifold(p, mark, label)
        if defect(p, mark) > 32 * torch.finfo(p.dtype).eps:
            put_on_manifold(p, mark, "nearest")


def _is_wide(p: Tensor) -> bool:
    return p.ndim >= 2 and p.shape[-2] < p.shape[-1]


def _special(p: Tensor) -> Mark | None:
    """The mark of a parameter that is not read as it is, or as the adjoint of what it is."""
    mark = mark_of(p)
    if mark is None or (mark.view != "kernel" and mark.blocks == (1, 1) and mark.scale == 1.0):
        return None
    return mark


def _to_tall(T: Tensor, p: Tensor | None = None, gradient: bool = False) -> Tensor:
    """A copy of p, or of a gradient of p, as the tall matrices with orthonormal columns."""
    p = T if p is None else p
    T, mark = T.detach(), _special(p)
    if mark is None:
        return T.mH.resolve_conj().contiguous() if _is_wide(p) else T.clone()
    X = mark.matrices(T.unsqueeze(0), tuple(p.shape)).resolve_conj()
    return X * mark.scale if gradient else X / mark.scale


def _from_tall(x: Tensor, p: Tensor) -> Tensor:
    mark = _special(p)
    if mark is None:
        return x.mH if _is_wide(p) else x
    return mark.scale * mark.parameters(x, tuple(p.shape))[0]


def _marked_groups(params: Any, manifold: Manifold | None) -> list[dict[str, Any]]:
    given = list(parameters_of(params) if isinstance(params, nn.Module) else params)
    groups = given if given and isinstance(given[0], dict) else [{"params": given}]
    result = []
    for group in groups:
        if unknown := sorted(set(group) - KEYS):
            raise ValueError(
                f"a group has the unknown keys {unknown}; expected {sorted(KEYS)}: a line search "
                "finds the step, so that there is no learning rate"
            )
        listed = group["params"]
        members = [listed] if torch.is_tensor(listed) else list(listed)
        choice = group.get("manifold", manifold)
        chosen = [p for p in members if choice is not None or is_orthonormal(p)]
        _check_dtypes(chosen)
        if chosen:
            result.append({**group, "params": chosen, "manifold": choice})
    if not result:
        raise ValueError(
            "no parameter is marked orthonormal; call stiefel.torch.orthonormal(p) on those that "
            "shall be, or pass manifold=stiefel.Stiefel()"
        )
    return result


def _check_dtypes(parameters: list[Tensor]) -> None:
    for p in parameters:
        if p.dtype in (torch.float16, torch.bfloat16):
            raise TypeError(
                f"a parameter of shape {tuple(p.shape)} has dtype {p.dtype}, in which a line "
                "search finds no step; use float32, or stiefel.torch.SGD, Adam or Muon"
            )


__all__ = ["Accelerated", "is_marked", "mark_orthonormal"]
