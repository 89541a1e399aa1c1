"""SciPy's spellings of the arguments of `minimize`, where they mean the same here.

    args, tol, disp, options={"maxiter", "gtol", "ftol", "maxfun", "disp", …}, method="L-BFGS-B"

become ``fun``, ``gtol``, ``progress``, ``maxiter`` and so on before anything else is read.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from types import SimpleNamespace
from typing import Any

SCIPY_METHODS = {  # SciPy's name ↦ ours, in lower case
    "bfgs": "lbfgs",
    "l-bfgs": "lbfgs",
    "l-bfgs-b": "lbfgs",
    "conjugate-gradient": "cg",
    "newton-cg": "trust-region",
    "trust-ncg": "trust-region",
    "trust-krylov": "trust-region",
}
RETIRED = {"accelerated-lean": "accelerated"}  # accepted until 0.3, with a warning
WITHOUT_GRADIENTS = ("nelder-mead", "powell", "cobyla", "cobyqa")
OPTIONS = {  # SciPy's name ↦ ours, whatever the method
    "maxfev": "maxfun",
    "disp": "progress",
    **{name: name for name in ("maxiter", "maxfun", "maxtime", "rtol", "gtol", "ftol", "progress")},
}
SOLVER_OPTIONS = {"maxcor": "memory"}
# What `minimize` has where nothing is given, for the arguments that SciPy has elsewhere too.
DEFAULTS: dict[str, Any] = {
    "rtol": None, "gtol": 0.0, "ftol": 0.0, "maxiter": 100_000, "maxfun": None,
    "maxtime": None, "progress": False,
}  # fmt: skip
NOT_HERE = {
    "hess": "hess= is not used: pass the Hessian's product with a direction, hessp(X, V)",
    "hessian": "hessian= is not used: pass the Hessian's product with a direction, hessp(X, V)",
    "x_scale": "x_scale= is not used: scale the function's argument, or pass precond=",
}


def method_name(name: str) -> str:
    """Our name of a method, in any case, ours or SciPy's."""
    lower = name.lower().replace("_", "-")
    if lower in WITHOUT_GRADIENTS:
        raise ValueError(
            f"method {name!r} uses no gradients, and every method here does: "
            'pass jac="2-point" for differences of values, and leave method out'
        )
    if lower in RETIRED:
        said = (
            f"method {name!r} is gone since 0.2 and will be refused in 0.3: use {RETIRED[lower]!r}"
        )
        warnings.warn(said, DeprecationWarning, stacklevel=2)
    return SCIPY_METHODS.get(lower, RETIRED.get(lower, lower))


def translate(task: Any) -> None:
    """Rewrite the fields of a task that are given in SciPy's way."""
    for name in task.unknown:
        if name in NOT_HERE:
            raise TypeError(NOT_HERE[name])
    if task.method is None:  # SciPy's way to leave the choice to the library
        task.method = "auto"
    _take_options(task)
    if task.tol is not None:
        _set(task, "gtol", task.tol, "tol")
    if task.disp is not None:
        task.progress = task.progress or bool(task.disp)
    if callable(task.callback) and task.comm is not None:  # otherwise the driver catches it
        task.callback = _stopping(task.callback)


def translated(given: dict[str, Any]) -> dict[str, Any]:
    """The same for arguments that have not become a task."""
    task = SimpleNamespace(**given)
    translate(task)
    return vars(task) | {"tol": None, "disp": None}


def _take_options(task: Any) -> None:
    """Limits and tolerances among the options go where they belong; the rest is the solver's."""
    if not task.options:
        return
    if not isinstance(task.options, dict):
        raise TypeError(f"options is a {type(task.options).__name__}; expected a dict")
    rest = {}
    for name, value in task.options.items():
        if name in OPTIONS:
            _set(task, OPTIONS[name], value, f"options[{name!r}]")
        else:
            rest[SOLVER_OPTIONS.get(name, name)] = value
    task.options = rest


def _set(task: Any, name: str, value: Any, where: str) -> None:
    """Only a value that was not given twice; gtol by itself is the whole test, as in SciPy."""
    default = DEFAULTS[name]
    if getattr(task, name) not in (default, value):
        raise ValueError(
            f"{name} is given twice: {getattr(task, name)!r}, and {value!r} by {where}"
        )
    if name == "gtol" and task.rtol is None:
        task.rtol = 0.0
    if name == "progress":
        value = bool(value)
    setattr(task, name, value)


def with_args(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `minimize` with fun(X, *args), jac(X, *args) and hessp(X, V, *args)."""
    args = given.pop("args")
    if args is None:
        return given
    if hasattr(given["fun"], "value_and_gradient"):
        raise TypeError("args= goes with a function; give it to the object that fun is instead")
    args = args if isinstance(args, tuple) else (args,)
    for name in ("fun", "jac", "hessp"):
        if args and callable(given[name]):
            given[name] = _with(given[name], args)
    return given


def _with(function: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
    @wraps(function)
    def bound(*points: Any) -> Any:
        return function(*points, *args)

    return bound


def _stopping(callback: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """As in SciPy, a callback may stop the run by raising StopIteration."""

    @wraps(callback)
    def called(snapshot: Any) -> Any:
        try:
            return callback(snapshot)
        except StopIteration:
            return True

    return called
