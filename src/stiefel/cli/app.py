"""The application: one module a subcommand, registered in one place."""

from __future__ import annotations

from importlib import import_module

from . import MissingExtra

try:
    import rich  # noqa: F401
    import typer
except ModuleNotFoundError as error:
    raise MissingExtra(
        f"the command line needs {error.name}, which is not installed: pip install 'stiefel[cli]'"
    ) from None

# A subcommand is a module of this package with a function `register(app)`.
COMMANDS = ("reproduce", "bench", "eigs", "scf", "modes", "info")

app = typer.Typer(
    name="stiefel",
    help="Minimise functions of matrices with orthonormal columns.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # an unforeseen error keeps its plain traceback
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _stiefel() -> None:
    """Minimise functions of matrices with orthonormal columns.

    Exit codes: 0 success, 1 a run did not converge, 2 misuse.
    """


for _name in COMMANDS:
    import_module(f"{__package__}.{_name}").register(app)
