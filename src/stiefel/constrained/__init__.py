"""Constraints, bounds and h(AX): an augmented Lagrangian around the smooth methods."""

from .augmented import minimize_constrained

__all__ = ["minimize_constrained"]
