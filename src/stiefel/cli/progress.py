"""How far a series of runs is: a bar with the time left, or a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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

ShowProgress = Callable[[str, float, float], None]  # what has just ended, done so far, in all


@contextmanager
def bar(name: str) -> Iterator[ShowProgress]:
    """A function to be called with what has just ended and the shares done, in any unit."""
    if not sys.stderr.isatty():
        yield _Lines(name)
        return
    columns = (
        TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(),
        TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(elapsed_when_finished=False),
    )  # fmt: skip
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task(name, total=None)

        def show(ended: str, done: float, total: float) -> None:
            progress.update(task, completed=done, total=total, description=f"{name}: {ended}")

        yield show


class _Lines:
    def __init__(self, name: str) -> None:
        self._name, self._start = name, time.monotonic()
        self._next = self._start + LINE_EVERY

    def __call__(self, ended: str, done: float, total: float) -> None:
        now = time.monotonic()
        if now >= self._next and done < total:
            self._next = now + LINE_EVERY
            left = (now - self._start) * (total - done) / done
            sys.stderr.write(
                f"{self._name}: {ended}; {100 * done / total:.0f} % done, about {left:.0f} s left\n"
            )
            sys.stderr.flush()
