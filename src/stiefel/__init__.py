"""Optimisation with orthogonality constraints: minimise f(X) subject to XᴴX = I.

import stiefel

result = stiefel.minimize(fun, X0)  # fun(X) -> (value, gradient)
"""

from stiefel.runs.result import Result, Status
from stiefel.runs.stopping import MaxIterations, MaxSeconds, RelativeGradient

from ._minimize import minimize
from .batched import ManyResult, minimize_many
from .check import check_gradient
from .geometry import Euclidean, Grassmann, SpecialOrthogonal, Sphere, Stiefel
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

__version__ = "0.1.0"

__all__ = [
    "L1",
    "LBFGS",
    "AcceleratedGradient",
    "AcceleratedProximal",
    "ConjugateGradient",
    "Euclidean",
    "GradientDescent",
    "Grassmann",
    "ManyResult",
    "MaxIterations",
    "MaxSeconds",
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
    "check_gradient",
    "check_minimum",
    "extrapolate",
    "interpolate",
    "minimize",
    "minimize_many",
    "nearest",
    "random_point",
]
