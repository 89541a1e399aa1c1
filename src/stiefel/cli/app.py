"""The application: one module a subcommand, registered in one place."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Annotated

import stiefel

from . import MissingExtra

try:
    import rich  # noqa: F401
    import typer
except ModuleNotFoundError as error:
    raise MissingExtra(
        f"the command line needs {error.name}, which is not installed: "
        "pip install typer rich matplotlib"
    ) from None

from .output import refuse

# A subcommand is a module of this package with a function `register(app)`, …
COMMANDS = ("demo", "eigs", "scf", "modes", "info")
# … or an entry point of this group, named like its command, that is such a function.
GROUP = "stiefel.commands"
EXPERIMENTS = {
    "reproduce": "Regenerate a figure or table of the paper",
    "bench": "Compare every method with those of other libraries",
}
ABSENT = (
    "the command '{}' is in the package stiefel-experiments, which is not installed: in a clone "
    "of stiefel's repository, pip install ./experiments"
)

STORY = """Minimise functions of matrices with orthonormal columns: min f(X) subject to XᴴX = I.

In Python:  result = stiefel.minimize(fun, X0)

See it work:  stiefel demo

Exit codes: 0 success, 1 a run did not converge, 2 misuse, 130 interrupted.
"""

app = typer.Typer(
    name="stiefel",
    help=STORY,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # an unforeseen error keeps its plain traceback
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"stiefel {stiefel.__version__}")
        raise typer.Exit


@app.callback()
def _stiefel(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """The options before a subcommand."""


def register_all() -> None:
    """The commands of other distributions first, then this package's own."""
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    for name in dict.fromkeys((*EXPERIMENTS, *found)):
        try:
            if name in found:
                found[name].load()(app)
            else:
                _register_absent(name, f"{EXPERIMENTS[name]} (not installed).", ABSENT.format(name))
        except ImportError as error:  # one broken package does not take the others along
            _register_absent(name, "(broken)", f"the command '{name}' does not load: {error}")
    for name in COMMANDS:
        import_module(f"{__package__}.{name}").register(app)


def _register_absent(name: str, title: str, sentence: str) -> None:
    """A command that only says why it is not there, whatever its arguments are."""

    def absent(context: typer.Context) -> None:
        refuse(sentence)

    absent.__doc__ = f"{title}\n\n{sentence[0].upper()}{sentence[1:]}."
    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    app.command(name, context_settings=anything)(absent)


register_all()
