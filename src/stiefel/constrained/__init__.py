"""Constraints, bounds and h(AX): an augmented Lagrangian around the smooth methods."""

from .augmented import is_constrained, minimize_constrained

__all__ = ["is_constrained", "minimize_constrained"]
