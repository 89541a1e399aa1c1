"""How to choose the next point: Sections 3 and 4 of the paper."""

from typing import Any

from .accelerated import AcceleratedGradient
from .gradient_descent import GradientDescent
from .lbfgs import LBFGS

METHODS: dict[str, Any] = {
    "auto": AcceleratedGradient(),
    "accelerated": AcceleratedGradient(),
    "accelerated-gradient-restart": AcceleratedGradient(restart="gradient"),
    "gradient-descent": GradientDescent(),
    "lbfgs": LBFGS(),
}

__all__ = ["LBFGS", "METHODS", "AcceleratedGradient", "GradientDescent"]
