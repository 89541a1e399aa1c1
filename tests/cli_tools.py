"""Driving the command line as a user does: a process of its own."""

import os
import subprocess
import sys
from contextlib import chdir
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

COMMAND = [sys.executable, "-m", "stiefel.cli"]


def environment(**extra: str) -> dict[str, str]:
    """The environment of this process, one BLAS thread, without what changes the output."""
    kept = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    return kept | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"} | extra


def stiefel(
    *arguments: Any, cwd: Path | None = None, **extra: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(**extra),
        stdin=subprocess.DEVNULL,
        timeout=300,
    )


def stiefel_here(*arguments: Any, cwd: Path) -> Result:
    """The same without a new process, where there are many cases of one kind."""
    from stiefel.cli.app import app

    with chdir(cwd):
        return CliRunner().invoke(app, [str(a) for a in arguments], env=environment())
