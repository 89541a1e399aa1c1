"""Many runs, some at a time, in processes that are watched from outside.

loky starts the processes, carries runs and records, and notices when one dies.  Here it is given
what measuring needs: one thread a process, one process for each lane (libraries do not disturb one
another's runs), an end to runs that hang, and workers that do not outlive their parent.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from pathlib import Path

from loky import BrokenProcessPool, ProcessPoolExecutor

from stiefel.cli.machine import THREAD_VARIABLES

from .records import R, Record

GRACE = 300.0  # wall seconds beyond which a run that does not call its function is ended …
PATIENCE = 20.0  # … plus this many for each CPU second of its limit
LOOK_EVERY = 0.5  # seconds: a worker's looks at its parent, the parent's at its clock
ENVIRONMENT = dict.fromkeys(THREAD_VARIABLES, "1") | {
    "PYTHONSAFEPATH": "1",  # a directory called stiefel where the user happens to stand is not ours
}


@dataclass(frozen=True)
class Lost:
    """A run without a record, and why."""

    why: str


def run_all(
    execute: Callable[[R], Record], runs: Sequence[R], jobs: int = 1
) -> Iterator[tuple[R, Record | Lost]]:
    """Each run with its record as soon as it is there; at most `jobs` at a time."""
    waiting, busy = deque(runs), dict[Future[Record], tuple[R, _Desk, float]]()
    with tempfile.TemporaryDirectory() as folder:
        desks = [_Desk(Path(folder, str(i))) for i in range(min(jobs, len(runs)))]
        idle = desks.copy()
        try:
            while waiting or busy:
                while waiting and idle:
                    run, desk = waiting.popleft(), idle.pop()
                    latest = time.monotonic() + GRACE + PATIENCE * run.limit
                    busy[desk.submit(execute, run)] = run, desk, latest
                done, now = wait(busy, LOOK_EVERY, FIRST_COMPLETED).done, time.monotonic()
                for future, (run, desk, latest) in list(busy.items()):
                    if future in done or now >= latest:
                        del busy[future]
                        idle.append(desk)
                        yield run, desk.outcome(future, run.lane)
        finally:
            for desk in desks:
                desk.close()


@dataclass
class _Desk:
    """Where one run is done at a time, by the process of its lane."""

    log: Path  # what its processes print
    processes: dict[str, ProcessPoolExecutor] = field(default_factory=dict)

    def submit(self, execute: Callable[[R], Record], run: R) -> Future[Record]:
        if run.lane not in self.processes:
            about = (str(self.log), os.getpid())
            self.processes[run.lane] = ProcessPoolExecutor(
                1, initializer=_settle, initargs=about, env=ENVIRONMENT
            )
        try:
            future: Future[Record] = self.processes[run.lane].submit(execute, run)
        except BrokenProcessPool:  # it died while it had nothing to do
            self._end(run.lane)
            return self.submit(execute, run)
        return future

    def outcome(self, future: Future[Record], lane: str) -> Record | Lost:
        why = "it did not end in time and was ended"
        if future.done():
            try:
                return future.result()
            except BrokenProcessPool:
                why = "its process ended"
            except BaseException as error:  # raised over there
                return Lost(f"{type(error).__name__}: {error}")
        self._end(lane)
        said = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return Lost(f"{why}; it said: {[*said.splitlines(), 'nothing'][-2:][0]}")

    def close(self) -> None:
        for lane in list(self.processes):
            self._end(lane)

    def _end(self, lane: str) -> None:
        self.processes.pop(lane).shutdown(kill_workers=True)


def _settle(log: str, parent: int) -> None:
    """The first act of a worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    paper = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(paper, 1)  # what libraries print is no answer of ours
    os.dup2(paper, 2)
    threading.Thread(target=_follow, args=(parent,), daemon=True).start()


def _follow(parent: int) -> None:
    """End at once when the parent has gone, instead of working for nobody."""
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY)
    os._exit(0)
