"""Runs for the tests of the engine; imported by its worker processes."""

import os
import signal
import time
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Run:
    number: int
    act: str
    lane: str = "a"
    limit: float = 0.0
    cost: float = 1.0

    @property
    def key(self):
        return self.number

    order = key

    def replaces(self, record):
        return False


def execute(run):
    """What the process sees, or what goes wrong in it."""
    print(f"noise of run {run.number}", flush=True)
    if run.act == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if run.act == "raise":
        raise LookupError("nobody is there")
    if run.act == "leave":
        raise SystemExit(3)
    if run.act == "interrupted":
        os.kill(os.getpid(), signal.SIGINT)
    if run.act == "hang":
        time.sleep(1000)
    threads = [os.environ["OPENBLAS_NUM_THREADS"], os.environ["OMP_NUM_THREADS"]]
    facts = {"pid": os.getpid(), "threads": threads, "status": "CONVERGED", "cpu_seconds": 0.0}
    return {"run": asdict(run), **facts}
