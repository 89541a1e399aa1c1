"""Many problems at once: the default method without a branch on data."""

from .many import minimize_many
from .result import ManyResult

__all__ = ["ManyResult", "minimize_many"]
