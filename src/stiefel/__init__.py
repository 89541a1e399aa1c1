"""Optimisation with orthogonality constraints: minimise f(X) subject to XᴴX = I.

import stiefel

result = stiefel.minimize(fun, X0)  # fun(X) -> (value, gradient)
"""

from stiefel.runs.result import Result, Status
from stiefel.runs.stopping import MaxIterations, MaxSeconds, RelativeGradient

from ._minimize import minimize
from .check import check_gradient
from .geometry import Euclidean, Grassmann, SpecialOrthogonal, Sphere, Stiefel
from .minimum import check_minimum
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
    "LBFGS",
    "AcceleratedGradient",
    "ConjugateGradient",
    "Euclidean",
    "GradientDescent",
    "Grassmann",
    "MaxIterations",
    "MaxSeconds",
    "RelativeGradient",
    "Result",
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
    "nearest",
    "random_point",
]
