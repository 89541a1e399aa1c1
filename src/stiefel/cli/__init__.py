"""The command line: ``stiefel eigs | scf | modes | info``, and more; needs the [cli] extra."""

from __future__ import annotations

import sys


class MissingExtra(ImportError):
    """The packages of the [cli] extra are not there; the message is one sentence."""


def main() -> None:
    """The console entry point."""
    try:
        from .app import app
    except MissingExtra as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from None
    app()
