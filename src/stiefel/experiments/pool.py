"""Many runs, `jobs` at a time, each worker a process with one BLAS thread."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from .machine import THREAD_VARIABLES
from .specs import Run


class WorkerError(RuntimeError):
    """A worker ended without an answer."""


def run_all(runs: Sequence[Run], jobs: int) -> Iterator[dict[str, Any]]:
    """The records of the runs, each as soon as it is there; at most `jobs` at a time."""
    tasks: queue.SimpleQueue[Run] = queue.SimpleQueue()
    answers: queue.Queue[dict[str, Any] | BaseException] = queue.Queue()
    for run in runs:
        tasks.put(run)
    workers = [_Worker() for _ in range(min(jobs, len(runs)))]
    for worker in workers:
        threading.Thread(target=_drive, args=(worker, tasks, answers), daemon=True).start()
    try:
        for _ in runs:
            answer = answers.get()
            if isinstance(answer, BaseException):
                raise answer
            yield answer
    finally:
        for worker in workers:
            worker.stop()


def _drive(worker: _Worker, tasks: Any, answers: Any) -> None:
    try:
        while True:
            answers.put(worker.ask(tasks.get_nowait()))
    except queue.Empty:
        pass
    except Exception as error:
        answers.put(error)


class _Worker:
    def __init__(self) -> None:
        environment = os.environ | dict.fromkeys(THREAD_VARIABLES, "1")
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed in stop
        self._process = subprocess.Popen(
            # -P: a directory called stiefel where the user happens to stand is not ours
            [sys.executable, "-P", "-m", "stiefel.experiments.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=environment,
        )

    def ask(self, run: Run) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(asdict(run)) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except OSError:
            answer = ""
        if not answer:
            raise WorkerError(
                f"the process that ran {run.method} at n = {run.n}, k = {run.k} ended with code "
                f"{self._process.wait()}: {self._last_error()}"
            )
        record: dict[str, Any] = json.loads(answer)
        return record

    def _last_error(self) -> str:
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            try:
                if stream is not None:
                    stream.close()
            except OSError:
                pass  # the pipe of a process that was killed
