"""``stiefel info``: what this installation would run with."""

from __future__ import annotations

import os
from importlib import metadata
from importlib.util import find_spec
from typing import Annotated, Any

import typer

from .machine import THREAD_VARIABLES, blas, processor, versions
from .output import print_json, print_table

ARRAY_LIBRARIES = ("numpy", "torch", "jax", "cupy", "array-api-strict")
OPTIONAL = ("matplotlib", "mpi4py", "pyscf", "typer", "rich")


def register(app: typer.Typer) -> None:
    app.command("info")(info)


def info(
    as_json: Annotated[bool, typer.Option("--json", help="Write JSON for machines.")] = False,
) -> None:
    """Show versions, the array libraries found, BLAS and thread counts.

    Example:  stiefel info --json
    """
    found = gather_facts()
    if as_json:
        print_json(found)
        return
    for title, values in found.items():
        print_table(title, ("", ""), [(name, str(value)) for name, value in values.items()])


def gather_facts() -> dict[str, dict[str, Any]]:
    """Looked up, not imported: importing a GPU library to print its version takes seconds."""
    return {
        "versions": versions()
        | {"array-api-compat": installed("array-api-compat"), "compiled kernels": compiled()},
        "array libraries": {name: installed(name) for name in ARRAY_LIBRARIES},
        "optional packages": {name: installed(name) for name in OPTIONAL},
        "processor": {"model": processor(), "cores": os.cpu_count(), "BLAS": blas()},
        "threads": {name: os.environ.get(name, "unset") for name in THREAD_VARIABLES},
    }


def compiled() -> str:
    """Whether the compiled kernels are there, and in use."""
    if find_spec("stiefel.backends._compiled") is None:
        return "not built (no C compiler was found)"
    return "left aside (STIEFEL_COMPILED=0)" if os.environ.get("STIEFEL_COMPILED") == "0" else "yes"


def installed(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"
