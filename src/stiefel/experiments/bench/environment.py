"""What the counts and times were measured with; no names of hosts, users or directories."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Any

import numpy as np

THREAD_VARIABLES = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
)
PACKAGES = ("numpy", "scipy", "pymanopt", "geoopt", "torch", "cdopt")


def environment() -> dict[str, Any]:
    from stiefel import __version__

    found = {"stiefel": __version__, "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "versions": found,
        "system": platform.system(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "blas": _blas(),
        "threads": 1,
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return " ".join(line.split(":", 1)[1].split())
    except OSError:
        pass
    return platform.machine()


def _blas() -> str:
    try:
        config: Any = np.show_config(mode="dicts")
        blas = config["Build Dependencies"]["blas"]
        return f"{blas['name']} {blas['version']}"
    except (KeyError, TypeError):
        return "unknown"
