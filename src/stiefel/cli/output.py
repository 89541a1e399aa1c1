"""What the subcommands share: where to write, how to refuse, how to end."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stiefel.runs.files import write_whole

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


def say(text: str, stderr: bool = False) -> None:
    """A line of text; a terminal breaks it between words, a pipe not at all."""
    screen = console(stderr)
    screen.print(text, markup=False, soft_wrap=not screen.is_terminal)


def print_table(title: str, header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table that never breaks a word: turned on its side, or a list, where it is too wide."""
    screen = console()
    upright = [list(header), *map(list, rows)]
    for cells in (upright, [list(line) for line in zip(*upright, strict=True)]):
        widths = column_widths(cells, screen.width)
        if widths is not None:
            screen.print(_drawn(title, cells, widths))
            return
    screen.print(title, markup=False, style="bold")
    longest = max(map(cell_len, header))
    for first, *others in rows:
        screen.print(first, markup=False)
        for name, value in zip(header[1:], others, strict=True):
            line = f"  {name}{' ' * (longest - cell_len(name))}  {value}"
            fits = cell_len(line) <= screen.width
            screen.print(line if fits else f"  {name}: {value}", markup=False)


def column_widths(lines: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """Widths that fill at most ``width`` and hold the longest word of each column, if there are."""
    columns = list(zip(*lines, strict=True))
    least = [max(cell_len(w) for cell in c for w in (cell.split() or [""])) for c in columns]
    widths = [max(map(cell_len, c)) for c in columns]
    room = width - 3 * len(columns) + 1  # a blank on both sides, a bar between
    if sum(least) > room:
        return None
    while sum(widths) > room:
        spare = [(w, -i) for i, w in enumerate(widths) if w > least[i]]
        widths[-max(spare)[1]] -= 1
    return widths


def _drawn(title: str, lines: Sequence[Sequence[str]], widths: Sequence[int]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", show_edge=False)
    for name, width in zip(lines[0], widths, strict=True):
        table.add_column(Text(name), width=width, overflow="fold")
    for row in lines[1:]:
        table.add_row(*map(Text, row))
    return table


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file so that at every moment there is the old one or the new one, whole."""
    write_whole(path, lambda file: file.write(data))
