"""How to choose the next point: Sections 3 and 4 of the paper."""

from typing import Any

from .accelerated import AcceleratedGradient
from .conjugate_gradient import ConjugateGradient
from .gradient_descent import GradientDescent
from .lbfgs import LBFGS
from .learned_metric import LearnedMetric
from .row_model import RowModel
from .trust_region import TrustRegion

METHODS: dict[str, Any] = {
    "auto": LBFGS(metric=LearnedMetric(), rows=RowModel()),
    "accelerated": AcceleratedGradient(),
    "accelerated-gradient-restart": AcceleratedGradient(restart="gradient"),
    "gradient-descent": GradientDescent(),
    "lbfgs": LBFGS(),
    "cg": ConjugateGradient(),
    "trust-region": TrustRegion(),
}

__all__ = [
    "LBFGS",
    "METHODS",
    "AcceleratedGradient",
    "ConjugateGradient",
    "GradientDescent",
    "LearnedMetric",
    "RowModel",
    "TrustRegion",
]
