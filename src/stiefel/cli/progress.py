"""How far a reproduction is: a bar with the time left, or a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from .output import console

LINE_EVERY = 15.0  # seconds, where there is no terminal


@contextmanager
def bar(name: str) -> Iterator[Callable[[Any, float, float], None]]:
    """A function of (run, guessed seconds done, guessed seconds in all)."""
    if not sys.stderr.isatty():
        yield _Lines(name)
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(elapsed_when_finished=False),
    )  # fmt: skip
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task(name, total=None)

        def show(run: Any, done: float, total: float) -> None:
            progress.update(task, completed=done, total=total, description=describe(name, run))

        yield show


def describe(name: str, run: Any) -> str:
    return f"{name}: {run.method}, n = {run.n}, start {run.start}"


class _Lines:
    def __init__(self, name: str) -> None:
        self._name, self._start = name, time.monotonic()
        self._next = self._start + LINE_EVERY

    def __call__(self, run: Any, done: float, total: float) -> None:
        now = time.monotonic()
        if now >= self._next and done < total:
            self._next = now + LINE_EVERY
            left = (now - self._start) * (total - done) / done
            sys.stderr.write(
                f"{describe(self._name, run)}; {100 * done / total:.0f} % done, "
                f"about {left:.0f} s left\n"
            )
            sys.stderr.flush()
