"""The accelerated method as a `torch.optim.Optimizer`; public as `stiefel.torch`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from stiefel.geometry import Product, Stiefel
from stiefel.solvers.accelerated import AcceleratedGradient, State
from stiefel.solvers.noise import Model, Watch
from stiefel.solvers.problem import Problem

Tensor = Any
MARK = "_stiefel_manifold"
# What a state holds beside points and values: numbers that survive in a state_dict.
NUMBERS = ("f_X", "gamma", "k", "restarted", "ceiling")


def mark_orthonormal(parameter: Tensor, manifold: Any = None) -> Tensor:
    """Make a parameter orthonormal, in place, and mark it so for `Accelerated`.

    The columns of a tall matrix become orthonormal, the rows of a wide one; stacks (..., n, k) of
    matrices likewise.  ``manifold`` is `Stiefel()` unless given.
    """
    manifold = Stiefel() if manifold is None else manifold
    with torch.no_grad():
        parameter.copy_(_from_tall(manifold.nearest(_to_tall(parameter)), parameter))
    setattr(parameter, MARK, manifold)
    return parameter


def is_marked(parameter: Tensor) -> bool:
    """Whether `mark_orthonormal` was called on a parameter."""
    return hasattr(parameter, MARK)


class Accelerated(torch.optim.Optimizer):
    """Accelerated gradient descent on the parameters that are marked orthonormal.

    ``params`` are parameters or groups of them; those that are not marked are left to another
    optimiser, unless their group names a ``manifold``.  ``step(closure)`` runs one iteration of
    ``method``, whose line search calls the closure several times: the closure clears gradients,
    computes the loss, calls ``backward()`` and returns the loss, as for `torch.optim.LBFGS`.

    Between two steps the loss may have changed, because of another batch or another optimiser; so
    each step evaluates it afresh, once or twice.  ``fixed=True`` says that it has not, saves these
    calls and gives the iterates of `stiefel.minimize`.
    """

    def __init__(
        self,
        params: Iterable[Any],
        method: AcceleratedGradient | None = None,
        *,
        manifold: Any = None,
        fixed: bool = False,
    ) -> None:
        self.method = AcceleratedGradient() if method is None else method
        self.fixed = fixed
        self._current: State | None = None
        super().__init__(_marked_groups(params, manifold), {"manifold": None})
        factors = []
        for group in self.param_groups:
            for i, p in enumerate(group["params"]):
                factor = group["manifold"] or getattr(p, MARK)
                factor.check_point(_to_tall(p), f"parameter {i} of shape {tuple(p.shape)}")
                factors.append(factor)
            del group["manifold"]  # what is left is data, and fits in a state_dict
        self._parameters = [p for group in self.param_groups for p in group["params"]]
        self._geometry = Product(tuple(factors)).bind(self._point())

    def step(self, closure: Callable[[], Any]) -> float:  # type: ignore[override]
        """One iteration; returns the loss at the point it started from."""
        if closure is None:
            raise TypeError("step() needs a closure that computes the loss and its gradient")
        objective = _ClosureObjective(closure, self._parameters)
        eps = self._geometry.eps(self._point())
        problem = Problem(self._geometry, objective, noise=Model(eps))
        before = self._entry(problem)
        if not before.at.finite:
            raise ValueError(f"the loss is {before.at.f}, or its gradient is not finite")
        after = self.method.step(problem, before)
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
        numbers = {name: saved[name] for name in NUMBERS} | {"f_X": f_X}
        return State(x=now, at=at, aim=aim, X=X, at_X=at_X, watch=Watch(*saved["watch"]), **numbers)

    def _keep(self, s: State) -> None:
        self._current = s
        for p, X in zip(self._parameters, s.X, strict=True):
            self.state[p]["accepted"] = X
        numbers = {n: getattr(s, n) for n in NUMBERS} | {"watch": tuple(s.watch)}
        self.state[self._parameters[0]].update(numbers)


class _ClosureObjective:
    """f and its gradient through a closure that fills ``.grad``; one call gives both."""

    def __init__(self, closure: Callable[[], Any], parameters: list[Tensor]) -> None:
        self.nfev = self.njev = self.nhev = 0
        self.scale = 1.0
        self._closure, self._parameters = closure, parameters
        self._held: tuple[Any, float, Any] | None = None

    def place(self, X: tuple[Tensor, ...]) -> None:
        """Set the parameters to X."""
        with torch.no_grad():
            for p, x in zip(self._parameters, X, strict=True):
                p.copy_(_from_tall(x, p))

    def value(self, X: tuple[Tensor, ...]) -> float:
        self.place(X)
        with torch.enable_grad():
            f = float(self._closure().detach())
        self.nfev, self.njev = self.nfev + 1, self.njev + 1
        self._held = X, f, tuple(_gradient(p) for p in self._parameters)
        return f

    def value_and_gradient(
        self, X: tuple[Tensor, ...], value: float | None = None
    ) -> tuple[float, tuple[Tensor, ...], None]:
        if self._held is None or self._held[0] is not X:
            self.value(X)
        assert self._held is not None
        _, f, G = self._held
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


def _gradient(p: Tensor) -> Tensor:
    if p.grad is None:
        raise TypeError(
            f"a parameter of shape {tuple(p.shape)} has no gradient after the closure; "
            "expected the closure to call loss.backward()"
        )
    return _to_tall(p.grad)


def _is_wide(p: Tensor) -> bool:
    return p.ndim >= 2 and p.shape[-2] < p.shape[-1]


def _to_tall(p: Tensor) -> Tensor:
    """A tall copy: optimisers and closures write into parameters and gradients in place."""
    p = p.detach()
    return p.mH.resolve_conj().contiguous() if _is_wide(p) else p.clone()


def _from_tall(x: Tensor, p: Tensor) -> Tensor:
    return x.mH if _is_wide(p) else x


def _marked_groups(params: Iterable[Any], manifold: Any) -> list[dict[str, Any]]:
    given = list(params)
    groups = given if given and isinstance(given[0], dict) else [{"params": given}]
    result = []
    for group in groups:
        listed = group["params"]
        members = [listed] if torch.is_tensor(listed) else list(listed)
        choice = group.get("manifold", manifold)
        chosen = [p for p in members if choice is not None or is_marked(p)]
        if chosen:
            result.append({**group, "params": chosen, "manifold": choice})
    if not result:
        raise ValueError(
            "no parameter is marked orthonormal; call stiefel.torch.mark_orthonormal(p) on those "
            "that shall be, or pass manifold=stiefel.Stiefel()"
        )
    return result


__all__ = ["Accelerated", "is_marked", "mark_orthonormal"]
