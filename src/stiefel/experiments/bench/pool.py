"""One process for each library, one run at a time: libraries do not disturb one another's runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import asdict
from types import TracebackType
from typing import Self

from stiefel.experiments.machine import THREAD_VARIABLES

from .runs import Record, Run, blank
from .solvers import ALL

GRACE = 300.0  # wall seconds beyond which a run that does not call its function is ended …
PATIENCE = 20.0  # … plus this many for each CPU second of its limit


class Pool:
    """Runs specs; a process that hangs or dies costs its run and nothing else."""

    def __init__(self) -> None:
        self._workers: dict[str, _Worker] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        for worker in self._workers.values():
            worker.stop()

    def run(self, run: Run) -> Record:
        library = ALL[run.solver].library
        if library not in self._workers:
            self._workers[library] = _Worker()
        worker = self._workers[library]
        answer = worker.ask(json.dumps(asdict(run)), GRACE + PATIENCE * run.limit)
        if answer:
            record: Record = json.loads(answer)
            return record
        worker.stop()
        del self._workers[library]
        return blank(run, "FAILED", f"the process ended or was ended: {worker.last_words}")


class _Worker:
    def __init__(self) -> None:
        self._errors = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", f"{__package__}.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            env=os.environ | dict.fromkeys(THREAD_VARIABLES, "1"),
        )

    def ask(self, line: str, seconds: float) -> str:
        """The answer to a line, or nothing if the process died or took too long."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        watch = threading.Timer(seconds, self._process.kill)
        watch.daemon = True
        watch.start()
        try:
            stdin.write(line + "\n")
            stdin.flush()
            return stdout.readline()
        except OSError:
            return ""
        finally:
            watch.cancel()

    @property
    def last_words(self) -> str:
        return self._last

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        self._last = lines[-1] if lines else "it said nothing"
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            try:
                if stream is not None:
                    stream.close()
            except OSError:
                pass  # the pipe of a process that was killed
