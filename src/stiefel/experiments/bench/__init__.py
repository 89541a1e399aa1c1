"""Our methods beside those of other libraries: the same problems, starts, counts and norm."""

from .pipeline import Outcome, Request, benchmark
from .plan import Extent, plan

__all__ = ["Extent", "Outcome", "Request", "benchmark", "plan"]
