"""A directive that shows what the command line says of itself."""

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

WIDTH = 88


def help_of(command: str) -> str:
    """The text of `stiefel COMMAND --help`, made by the program."""
    import click
    import typer

    from stiefel.cli.app import app, register_all

    if not app.registered_commands:
        register_all()
    program = typer.main.get_command(app)
    path = ["stiefel", *command.split()]
    context = click.Context(program, info_name="stiefel", max_content_width=WIDTH)
    context.terminal_width = WIDTH
    for name in path[1:]:
        program = program.get_command(context, name)
        context = type(context)(program, info_name=name, parent=context)
    return program.get_help(context)


class ProgramHelp(SphinxDirective):
    optional_arguments = 2
    final_argument_whitespace = True

    def run(self):
        text = help_of(" ".join(self.arguments))
        return [nodes.literal_block(text, text, language="text")]


def setup(app):
    app.add_directive("program-help", ProgramHelp)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
