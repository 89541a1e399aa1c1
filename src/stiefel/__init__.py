"""Optimisation with orthogonality constraints: minimise f(X) subject to XᴴX = I.

import stiefel

result = stiefel.minimize(fun, X0)  # fun(X) -> (value, gradient)
"""

from stiefel.runs.result import Result, Status
from stiefel.runs.stopping import MaxIterations, MaxSeconds, RelativeGradient

from ._minimize import minimize
from .batched import ManyResult, minimize_many
from .check import check_gradient
from .geometry import (
    ComplexCircle,
    Euclidean,
    Grassmann,
    Oblique,
    Orthogonal,
    SpecialOrthogonal,
    Sphere,
    Stiefel,
    Unitary,
)
from .minimum import check_minimum
from .nonsmooth import (
    L1,
    AcceleratedProximal,
    ProximalGradient,
    ProximalLBFGS,
    ProximalNewton,
    RowNorms,
)
from .points import extrapolate, interpolate, nearest, random_point
from .solvers import (
    LBFGS,
    AcceleratedGradient,
    ConjugateGradient,
    GradientDescent,
    TrustRegion,
)

__version__ = "0.2.0"

__all__ = [
    "L1",
    "LBFGS",
    "AcceleratedGradient",
    "AcceleratedProximal",
    "ComplexCircle",
    "ConjugateGradient",
    "Euclidean",
    "GradientDescent",
    "Grassmann",
    "ManyResult",
    "MaxIterations",
    "MaxSeconds",
    "Oblique",
    "Orthogonal",
    "ProximalGradient",
    "ProximalLBFGS",
    "ProximalNewton",
    "RelativeGradient",
    "Result",
    "RowNorms",
    "SpecialOrthogonal",
    "Sphere",
    "Status",
    "Stiefel",
    "TrustRegion",
    "Unitary",
    "check_gradient",
    "check_minimum",
    "extrapolate",
    "interpolate",
    "minimize",
    "minimize_many",
    "nearest",
    "random_point",
]

_LAZY = ("jax", "mpi", "objectives", "preconditioners", "torch")  # imported when first asked for


def __getattr__(name: str) -> object:
    import difflib
    import importlib

    if name in _LAZY:
        return importlib.import_module(f"{__name__}.{name}")
    close = difflib.get_close_matches(name, [*__all__, *_LAZY], n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise AttributeError(f"module 'stiefel' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
