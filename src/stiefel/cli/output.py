"""What the subcommands share: where to write, how to refuse, how to end."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

SUCCESS, NOT_CONVERGED, MISUSE = 0, 1, 2
INTERRUPTED = 130
PIPE_WIDTH = 120  # where there is no terminal there is no width to keep to


class Misuse(Exception):
    """Wrong input: its one sentence is shown without a traceback, and the exit code is 2."""


def console(stderr: bool = False) -> Console:
    """Results go to standard output, everything else to standard error; NO_COLOR is obeyed."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(stderr=stderr, highlight=False, soft_wrap=False, width=width)


def refuse(sentence: str) -> NoReturn:
    """End with exit code 2."""
    console(stderr=True).print(f"error: {sentence}", markup=False, soft_wrap=True)
    raise typer.Exit(MISUSE)


@contextmanager
def refusals(*errors: type[Exception]) -> Iterator[None]:
    """Turn `Misuse`, and the library's own errors named here, into a refusal."""
    refused: tuple[type[Exception], ...] = (Misuse, *errors)
    try:
        yield
    except refused as error:
        refuse(str(error) or type(error).__name__)


def print_json(document: Any) -> None:
    """One JSON document on standard output, for machines."""
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False) + "\n")


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table that folds on a narrow terminal instead of cutting digits off."""
    table = Table(title=title, title_justify="left", title_style="bold", show_edge=False)
    for name in header:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console().print(table)
