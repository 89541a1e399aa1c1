"""Experiments with `stiefel`: the paper's figures and tables, and other libraries beside it."""

from .engine import Outcome, Report, Request, Spec, perform

__all__ = ["Outcome", "Report", "Request", "Spec", "perform"]
