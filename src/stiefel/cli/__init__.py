"""The command line: ``stiefel reproduce | eigs | info``; needs the [cli] extra."""

from __future__ import annotations

import sys


def main() -> None:
    """The console entry point."""
    try:
        from .app import app
    except ImportError as error:
        if error.name is not None and error.name.startswith("stiefel"):
            raise
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from None
    app()
