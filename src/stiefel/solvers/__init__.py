"""How to choose the next point: Sections 3 and 4 of the paper."""

from typing import Any

from .accelerated import AcceleratedGradient
from .conjugate_gradient import ConjugateGradient
from .gradient_descent import GradientDescent
from .lbfgs import LBFGS
from .learned_metric import LearnedMetric
from .trust_region import TrustRegion

METHODS: dict[str, Any] = {
    # With a learned metric five pairs need as few evaluations as ten, and less time.
    "auto": LBFGS(memory=5, metric=LearnedMetric()),
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
    "TrustRegion",
]
