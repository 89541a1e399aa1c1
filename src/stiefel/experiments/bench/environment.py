"""What the counts and times were measured with, the other libraries included."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from stiefel.experiments.machine import machine, versions

PEERS = ("pymanopt", "geoopt", "torch", "cdopt")


def environment() -> dict[str, Any]:
    found = versions()
    for package in PEERS:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {"versions": found, "machine": machine() | {"threads": "1"}}
