"""Every artefact of the paper as one function of a spec: records first, plots from records."""

from .pipeline import Outcome, Request, reproduce
from .specs import ARTEFACTS, Run, plan

__all__ = ["ARTEFACTS", "Outcome", "Request", "Run", "plan", "reproduce"]
