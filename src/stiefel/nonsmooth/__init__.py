"""f + h with a nonsmooth convex h: terms, the proximal step, and the methods that use it."""

from typing import Any

from .accelerated_proximal import AcceleratedProximal
from .proximal_gradient import ProximalGradient
from .proximal_lbfgs import ProximalLBFGS
from .proximal_newton import ProximalNewton
from .terms import L1, RowNorms, Term

PROXIMAL_METHODS: dict[str, Any] = {
    "proximal-lbfgs": ProximalLBFGS(),
    "proximal-newton": ProximalNewton(),
    "proximal-gradient": ProximalGradient(),
    "accelerated-proximal": AcceleratedProximal(),
}

__all__ = [
    "L1",
    "PROXIMAL_METHODS",
    "AcceleratedProximal",
    "ProximalGradient",
    "ProximalLBFGS",
    "ProximalNewton",
    "RowNorms",
    "Term",
]
